"""What several ranks have seen of a step becomes one record; every rank comes to the same one."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import torch

from trainauto.core.errors import TrainautoError
from trainauto.core.records import MicrobatchSplit, PeakReading, RankFigures, StepRecord
from trainauto.core.sharding import SampleSharding
from trainauto.distributed.communicator import Communicator
from trainauto.engine.gradients import Failure
from trainauto.engine.snapshot import BatchTooLargeError
from trainauto.engine.step import ELSEWHERE
from trainauto.models.base_model import BaseModel


def reduce_step(
    ranks: Communicator, division: SampleSharding, mine: StepRecord, failures: Sequence[Failure], signal: int
) -> tuple[StepRecord, tuple[Failure, ...], int]:
    """Return the step as all ranks trained it, the failures that count, and a signal that any of them received.

    Losses are sums of the ranks' parts, in the order of the ranks. The peak is the reading of the rank that used the
    largest share of its memory: what does not fit there fits nowhere.

    Args:
        ranks: all of them must ask.
        division: how samples are divided among them.
        mine: what this rank did: its own samples, parts of losses, reading and times.
        failures: of this rank.
        signal: number of the signal this rank received, or 0.
    """
    if ranks.world_size == 1:
        return mine, tuple(failures), signal
    told = ranks.all_gather_object(
        {
            "samples": mine.shape.samples,
            "pixels": mine.pixels,
            "losses": dict(mine.losses),
            "seconds": [mine.data_seconds, mine.step_seconds],
            "peak": asdict(mine.peak) if mine.peak is not None else None,
            "ooms": mine.ooms,
            "pieces": {name: asdict(one) for name, one in mine.pieces.items()},
            "failures": [asdict(one) for one in failures],
            "signal": signal,
        }
    )
    worst, peak = _worst_reading(told, division)
    names = dict.fromkeys(name for one in told for name in one["losses"])
    record = replace(
        mine,
        shape=replace(mine.shape, samples=sum(one["samples"] for one in told)),
        losses={name: math.fsum(one["losses"].get(name, 0.0) for one in told) for name in names},
        data_seconds=max(one["seconds"][0] for one in told),
        step_seconds=max(one["seconds"][1] for one in told),
        pixels=sum(one["pixels"] for one in told),
        peak=peak,
        ooms=sum(one["ooms"] for one in told),
        pieces=_most_pieces(told),
        ranks=RankFigures(
            count=ranks.world_size,
            planned_samples=division.total(mine.plan.batch_size),
            worst=worst,
            ooms={rank: one["ooms"] for rank, one in enumerate(told) if one["ooms"]},
        ),
    )
    return record, _failures_that_count(told, division), max(one["signal"] for one in told)


def reduce_reading(ranks: Communicator, division: SampleSharding, mine: PeakReading | None) -> PeakReading | None:
    """Return what a measurement took on the rank that used the largest share of its memory; every rank must ask.

    ``None``, that something did not fit, holds for all where it holds for one.
    """
    if ranks.world_size == 1:
        return mine
    told = ranks.all_gather_object({"peak": None if mine is None else asdict(mine)})
    if any(one["peak"] is None for one in told):
        return None
    return _worst_reading(told, division)[1]


def reduce_failure(ranks: Communicator, mine: BatchTooLargeError, signal: int) -> tuple[BatchTooLargeError, int]:
    """Return the failure of the first rank that had one, and a signal that any of them received."""
    if ranks.world_size == 1:
        return mine, signal
    told = ranks.all_gather_object(
        {"pass": mine.pass_name, "samples": mine.samples, "message": mine.message, "signal": signal}
    )
    first = next(one for one in told if one["message"] != ELSEWHERE)
    return BatchTooLargeError(first["pass"], first["samples"], first["message"]), max(one["signal"] for one in told)


def check_same_weights(ranks: Communicator, model: BaseModel) -> None:
    """Refuse to go on where weights are no longer the same on all ranks; every rank must ask.

    Each of them steps its own copy by the same gradients. A broken card, or code of a model's own that draws random
    numbers into its weights, would otherwise spoil the run in silence.

    Raises:
        TrainautoError: names the ranks.
    """
    if ranks.world_size == 1 or model.is_sharded:
        return
    digest = hashlib.sha256()
    for network in model.networks.values():
        for tensor in network.state_dict().values():
            digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    told = [one["weights"] for one in ranks.all_gather_object({"weights": digest.hexdigest()})]
    others = [str(rank) for rank, one in enumerate(told) if one != told[0]]
    if others:
        raise TrainautoError(
            f"the weights of rank {', '.join(others)} are no longer those of rank 0\n"
            "  Nothing was saved; the last checkpoint stands. Look at the hardware of these ranks, and at code of your "
            "own that changes weights by random numbers."
        )


def _worst_reading(told: Sequence[Mapping[str, Any]], division: SampleSharding) -> tuple[int, PeakReading | None]:
    """Return the rank that used the largest share of its memory, and its reading in terms of the rank that plans mean.

    That is the one with the least memory, or where batches follow memory, with the most: a controller sees one limit.
    What other processes leave is the least of all ranks, and the allocator's retries are the most.
    """
    readings = {rank: PeakReading(**one["peak"]) for rank, one in enumerate(told) if one["peak"] is not None}
    if not readings:
        return 0, None
    worst = max(readings, key=lambda rank: _use(readings[rank]))
    limits = [one.limit for one in readings.values() if one.limit]
    if len(limits) < len(readings):
        return worst, readings[worst]
    meant = min(limits) if len(set(division.shares)) == 1 else max(limits)
    scaled = {rank: _scaled(one, meant / (one.limit or meant)) for rank, one in readings.items()}
    return worst, replace(
        scaled[worst],
        available=min((one.available for one in scaled.values() if one.available is not None), default=None),
        alloc_retries=max(one.alloc_retries for one in scaled.values()),
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


def _most_pieces(told: Sequence[Mapping[str, Any]]) -> dict[str, MicrobatchSplit]:
    found: dict[str, MicrobatchSplit] = {}
    for one in told:
        for name, fields in one["pieces"].items():
            pieces = MicrobatchSplit(**fields)
            if name not in found or pieces.micro_batches > found[name].micro_batches:
                found[name] = pieces
    return found


def _failures_that_count(told: Sequence[Mapping[str, Any]], division: SampleSharding) -> tuple[Failure, ...]:
    """Return one failure for each pass: of the rank where the least fitted in the end, in samples of the plan."""
    found: dict[str, Failure] = {}
    for share, one in zip(division.shares, told, strict=True):
        last = {fields["pass_name"]: Failure(**fields) for fields in one["failures"]}
        for name, failure in last.items():
            in_plan = replace(
                failure, samples=round(failure.samples / share), fitted=max(1, int(failure.fitted / share))
            )
            if name not in found or (in_plan.fitted, in_plan.extent) < (found[name].fitted, found[name].extent):
                found[name] = in_plan
    return tuple(found.values())
