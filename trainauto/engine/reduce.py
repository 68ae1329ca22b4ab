"""What several ranks have seen of a step becomes one record; every rank comes to the same one."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import torch

from trainauto.core.errors import TrainautoError
from trainauto.core.noise_scale import NoiseSample
from trainauto.core.plan import BATCH_SIZE, BatchShape
from trainauto.core.records import MicrobatchSplit, PeakReading, RankFigures, StepRecord
from trainauto.core.sharding import SampleSharding
from trainauto.distributed.communicator import Communicator
from trainauto.engine.step_outcome import DoesNotFit, Failure
from trainauto.models.base_model import BaseModel

StepReport = tuple[StepRecord, tuple[Failure, ...], int]
"""A step, failures on the way, and the number of a signal that was received, or 0."""


def reduce_step(
    ranks: Communicator, sharding: SampleSharding, mine: StepRecord, failures: Sequence[Failure], signal: int
) -> StepReport:
    """Return the step as all ranks trained it, the failures that count, and a signal that any of them received.

    Losses are sums of the ranks' parts, in the order of the ranks. The peak is the reading of the rank that used the
    largest share of its memory: what does not fit there fits nowhere.

    Args:
        ranks: all of them must ask.
        sharding: how samples are divided among them.
        mine: what this rank did: its own samples, parts of losses, reading and times.
        failures: of this rank.
        signal: number of the signal this rank received, or 0.
    """
    merge = partial(_merged_step, sharding, mine)
    return ranks.reduce_object((mine, tuple(failures), signal), _packed_step, merge)


def _packed_step(report: StepReport) -> dict[str, Any]:
    record, failures, signal = report
    return {
        **asdict(record.shape),
        "units": record.units,
        "losses": dict(record.losses),
        "told": list(record.told),
        "seconds": [record.data_seconds, record.step_seconds, record.compile_seconds],
        "peak": asdict(record.peak) if record.peak is not None else None,
        "ooms": record.ooms,
        "pieces": {name: asdict(split) for name, split in record.pieces.items()},
        "failures": [asdict(failure) for failure in failures],
        "signal": signal,
        "noise": {name: asdict(sample) for name, sample in record.noise.items()},
        "fills_plan": record.fills_plan,
        "tasks": {task: [loss, record.task_samples[task]] for task, loss in record.task_losses.items()},
    }


def _merged_step(sharding: SampleSharding, mine: StepRecord, reports: Sequence[Mapping[str, Any]]) -> StepReport:
    worst, peak = _worst_reading(reports, sharding)
    tasks = _tasks_of_all(reports)
    names = dict.fromkeys(name for report in reports for name in report["losses"])
    record = replace(
        mine,
        shape=_shape_of_all(reports),
        losses={name: math.fsum(report["losses"].get(name, 0.0) for report in reports) for name in names},
        told=tuple(dict.fromkeys(name for report in reports for name in report["told"])),
        data_seconds=max(report["seconds"][0] for report in reports),
        step_seconds=max(report["seconds"][1] for report in reports),
        compile_seconds=max(report["seconds"][2] for report in reports),
        units=sum(report["units"] for report in reports),
        peak=peak,
        ooms=sum(report["ooms"] for report in reports),
        pieces=_most_pieces(reports),
        noise=_noise_of_all(reports),
        fills_plan=any(report["fills_plan"] for report in reports),
        task_losses={task: loss for task, (loss, _) in tasks.items()},
        task_samples={task: samples for task, (_, samples) in tasks.items()},
        ranks=RankFigures(
            count=len(reports),
            # Where a plan counts samples, a draw that an epoch's end cuts short is none of the plan's.
            planned_samples=sharding.total(mine.plan.batch_size) if BATCH_SIZE in mine.plan else mine.draw_samples,
            worst=worst,
            ooms={rank: report["ooms"] for rank, report in enumerate(reports) if report["ooms"]},
            shares=() if sharding.is_equal else sharding.weights,
        ),
    )
    return record, _failures_that_count(reports, sharding), max(report["signal"] for report in reports)


def _tasks_of_all(reports: Sequence[Mapping[str, Any]]) -> dict[str, tuple[float, int]]:
    """Return the mean loss of each task over the samples of all ranks, and how many these are."""
    found: dict[str, list[tuple[float, int]]] = {}
    for report in reports:
        for task, (loss, samples) in report["tasks"].items():
            found.setdefault(task, []).append((loss, samples))
    counts = {task: sum(samples for _, samples in parts) for task, parts in found.items()}
    return {
        task: (math.fsum(loss * samples for loss, samples in parts) / counts[task], counts[task])
        for task, parts in found.items()
        if counts[task]
    }


def _noise_of_all(reports: Sequence[Mapping[str, Any]]) -> dict[str, NoiseSample]:
    """Return what all parts of all ranks say together; the gradient of the whole step is the same on each."""
    merged: dict[str, NoiseSample] = {}
    for report in reports:
        for name, fields in report["noise"].items():
            mine, others = NoiseSample(**fields), merged.get(name)
            merged[name] = mine if others is None else others.joined(mine)
    return merged


def _shape_of_all(reports: Sequence[Mapping[str, Any]]) -> BatchShape:
    """Return what all ranks hold together; samples are as large as the largest."""
    samples, tokens, images = (sum(report[name] for report in reports) for name in ("samples", "tokens", "images"))
    return BatchShape(samples, max(report["extent"] for report in reports), tokens, images)


def reduce_reading(ranks: Communicator, sharding: SampleSharding, mine: PeakReading | None) -> PeakReading | None:
    """Return what a measurement took on the rank that used the largest share of its memory; every rank must ask.

    ``None``, that something did not fit, holds for all where it holds for one.
    """

    def merge(reports: Sequence[Mapping[str, Any]]) -> PeakReading | None:
        if any(report["peak"] is None for report in reports):
            return None
        return _worst_reading(reports, sharding)[1]

    return ranks.reduce_object(mine, lambda reading: {"peak": None if reading is None else asdict(reading)}, merge)


def reduce_failure(ranks: Communicator, mine: DoesNotFit, signal: int) -> tuple[DoesNotFit, int]:
    """Return the failure of the first rank that had one, and a signal that any of them received."""

    def merge(reports: Sequence[Mapping[str, Any]]) -> tuple[DoesNotFit, int]:
        failures = (DoesNotFit(**report["failure"]) for report in reports)
        first = next(failure for failure in failures if not failure.is_elsewhere)
        return first, max(report["signal"] for report in reports)

    return ranks.reduce_object(
        (mine, signal), lambda report: {"failure": asdict(report[0]), "signal": report[1]}, merge
    )


def check_same_weights(ranks: Communicator, model: BaseModel) -> None:
    """Refuse to continue where weights are no longer the same on all ranks; every rank must ask.

    Each of them steps its own copy by the same gradients. A broken card, or code of a model's own that draws random
    numbers into its weights, would otherwise spoil the run in silence.

    Raises:
        TrainautoError: names the ranks.
    """
    if not model.is_sharded:
        ranks.reduce_object(None, lambda _: {"weights": _digest(model)}, _refuse_other_weights)


def _digest(model: BaseModel) -> str:
    digest = hashlib.sha256()
    for name in model.networks:
        for tensor in model.kept_state(name).values():
            digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _refuse_other_weights(reports: Sequence[Mapping[str, Any]]) -> None:
    others = [str(rank) for rank, report in enumerate(reports) if report != reports[0]]
    if others:
        raise TrainautoError(
            f"the weights of rank {', '.join(others)} are no longer those of rank 0\n"
            "  Nothing was saved; the last checkpoint is intact. Look at the hardware of these ranks, and at code of "
            "your own that changes weights by random numbers."
        )


def _worst_reading(reports: Sequence[Mapping[str, Any]], sharding: SampleSharding) -> tuple[int, PeakReading | None]:
    """Return the rank that used the largest share of its memory, and its reading in terms of the rank that plans mean.

    That is the one with the least memory, or where batches follow memory, with the most: a controller sees one limit.
    What other processes leave is the least of all ranks, and the allocator's retries are the most.
    """
    readings = {
        rank: PeakReading(**report["peak"]) for rank, report in enumerate(reports) if report["peak"] is not None
    }
    if not readings:
        return 0, None
    worst = max(readings, key=lambda rank: _use(readings[rank]))
    limits = [reading.limit for reading in readings.values() if reading.limit]
    if len(limits) < len(readings):
        return worst, readings[worst]
    meant = min(limits) if sharding.is_equal else max(limits)
    scaled = {rank: _scaled(reading, meant / (reading.limit or meant)) for rank, reading in readings.items()}
    return worst, replace(
        scaled[worst],
        available=min(
            (reading.available for reading in scaled.values() if reading.available is not None), default=None
        ),
        alloc_retries=max(reading.alloc_retries for reading in scaled.values()),
    )


def _use(reading: PeakReading) -> float:
    return reading.allocated / reading.limit if reading.limit else float(reading.allocated)


def _scaled(reading: PeakReading, factor: float) -> PeakReading:
    """Return a reading as a card of another size would have it: the same shares of its memory."""
    if factor == 1:
        return reading
    scaled = {
        name: int(value * factor)
        for name, value in asdict(reading).items()
        if name != "alloc_retries" and value is not None
    }
    return replace(reading, **scaled)


def _most_pieces(reports: Sequence[Mapping[str, Any]]) -> dict[str, MicrobatchSplit]:
    most: dict[str, MicrobatchSplit] = {}
    for report in reports:
        for name, fields in report["pieces"].items():
            split = MicrobatchSplit(**fields)
            if name not in most or split.micro_batches > most[name].micro_batches:
                most[name] = split
    return most


def _failures_that_count(reports: Sequence[Mapping[str, Any]], sharding: SampleSharding) -> tuple[Failure, ...]:
    """Return one failure for each pass: of the rank where the least fitted in the end, in samples of the plan."""
    worst: dict[str, Failure] = {}
    for weight, report in zip(sharding.weights, reports, strict=True):
        last = {fields["pass_name"]: Failure(**fields) for fields in report["failures"]}
        for name, failure in last.items():
            in_plan = replace(
                failure, samples=round(failure.samples / weight), fitted=max(1, int(failure.fitted / weight))
            )
            # Texts differ in size from rank to rank: a short one says less than a long one that had to be cut.
            if name not in worst or _fit(in_plan) < _fit(worst[name]):
                worst[name] = in_plan
    return tuple(worst.values())


def _fit(failure: Failure) -> tuple[int, bool, int]:
    """Return how much fitted in the end, to compare: samples, whether they were whole, and their size."""
    return failure.fitted, not failure.is_cut, failure.extent
