"""What several ranks saw becomes one record: figures of unequal ranks, failures, what a lost group left behind."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.unit.engine.test_step import batch_of
from trainauto.automations.dynamic_batch_size import LQ_SIZE
from trainauto.core.plan import BATCH_SIZE, Axis, BatchShape, Plan
from trainauto.core.records import MicrobatchSplit, PeakReading, StepRecord
from trainauto.core.sharding import SampleSharding
from trainauto.distributed.communicator import TorchCommunicator
from trainauto.engine.oom_notes import clear_oom_note, failed_starts, read_oom_note, write_oom_note
from trainauto.engine.reduce import reduce_step
from trainauto.engine.snapshot import StepSnapshot
from trainauto.engine.step_outcome import DoesNotFit, Failure

PLAN = Plan.of(batch_size=8, lq_size=16)


class Heard(TorchCommunicator):
    """A first rank that hears given words of the others."""

    def __init__(self, *others: Mapping[str, Any]) -> None:  # no group is joined
        self.world_size = 1 + len(others)
        self._others = others

    def all_gather_object(self, message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        return [message, *({**message, **one} for one in self._others)]


def record(samples: int = 8, **changes: Any) -> StepRecord:
    shape = BatchShape(samples, 16)
    plain = StepRecord(3, PLAN, PLAN, shape, 0, {"l1": 0.25}, {"g": 1e-3}, {"g": 1.0}, 0.1, 1.0, units=samples * 256)
    return replace(plain, **changes)


def peak(allocated: int, limit: int, **more: int) -> dict[str, Any]:
    return {"peak": asdict(PeakReading(allocated, limit=limit, **more))}


def agreed(
    mine: StepRecord, sharding: SampleSharding, *others: Mapping[str, Any], failures: Sequence[Failure] = ()
) -> Any:
    return reduce_step(Heard(*others), sharding, mine, failures, 0)


def test_sums_the_worst_and_the_slowest() -> None:
    mine = record(peak=PeakReading(500, limit=1000, available=900, alloc_retries=1))
    other = {"losses": {"l1": 0.5}, "seconds": [0.3, 0.9, 0.7], "signal": 15, "ooms": 2}
    found, failures, signal = agreed(
        mine, SampleSharding.equal(2), other | peak(800, 1000, available=820, alloc_retries=3)
    )
    assert (found.shape.samples, found.units, found.losses) == (16, 4096, {"l1": 0.75})
    assert (found.data_seconds, found.step_seconds, found.compile_seconds, found.ooms) == (0.3, 1.0, 0.7, 2)
    assert found.peak == PeakReading(800, limit=1000, available=820, alloc_retries=3)
    assert found.ranks is not None
    assert (found.ranks.worst, found.ranks.planned_samples, found.ranks.ooms) == (1, 16, {1: 2})
    assert found.is_as_planned
    assert (failures, signal) == ((), 15)


def test_texts_of_all_ranks_are_counted_and_the_longest_says_how_long_they_are() -> None:
    mine = record(plan=(plan := Plan.of(tokens=40)), drawn=plan, draw_samples=5, shape=BatchShape(3, 9, tokens=27))
    found, _, _ = agreed(mine, SampleSharding.equal(2), {"samples": 2, "extent": 17, "tokens": 34, "images": 1})
    assert found.shape == BatchShape(5, 17, tokens=61, images=1)
    assert found.ranks is not None
    assert (found.ranks.planned_samples, found.is_as_planned) == (5, True)
    assert not replace(found, drawn=Plan.of(tokens=50)).is_as_planned


def test_a_text_that_had_to_be_cut_counts_more_than_a_shorter_one_that_ran_whole() -> None:
    whole, cut = Failure("g", 2, 4, "no", 20, fitted=1), Failure("g", 1, 4, "no", 27, fitted=1, is_cut=True)
    for mine, other in ((whole, cut), (cut, whole)):
        _, counted, _ = agreed(record(), SampleSharding.equal(2), {"failures": [asdict(other)]}, failures=[mine])
        assert counted == (cut,)


def test_a_controller_sees_one_limit_whichever_rank_is_worst() -> None:
    for used, worst in ((500, 1), (700, 0)):
        found, _, _ = agreed(record(peak=PeakReading(used, limit=1000)), SampleSharding.equal(2), peak(480, 800))
        assert found.peak is not None
        assert found.ranks is not None
        assert found.peak.limit == 800
        assert found.ranks.worst == worst
        assert found.peak.allocated == (480 if worst else 560)


def test_where_batches_follow_memory_plans_speak_of_the_largest_rank() -> None:
    failure = Failure("g", 4, 2, "no", 16, fitted=2)
    other = peak(450, 500) | {"samples": 4, "failures": [asdict(failure)]}
    found, (counted,), _ = agreed(record(peak=PeakReading(600, limit=1000)), SampleSharding((1.0, 0.5)), other)
    assert found.peak is not None
    assert (found.peak.allocated, found.peak.limit) == (900, 1000)
    assert found.shape.samples == 12
    assert found.is_as_planned
    assert (counted.samples, counted.fitted, counted.pieces) == (8, 4, 2)


def test_the_rank_that_took_most_pieces_is_the_one_in_the_record() -> None:
    pieces = {"g": MicrobatchSplit(2, 16)}
    found, _, _ = agreed(
        record(pieces=pieces), SampleSharding.equal(2), {"pieces": {"g": asdict(MicrobatchSplit(4, 16))}}
    )
    assert found.pieces == {"g": MicrobatchSplit(4, 16)}


def test_of_several_notes_that_of_the_smallest_plan_holds(tmp_path: Path) -> None:
    axes = (Axis(LQ_SIZE, "px", 8, 64, power=2), Axis(BATCH_SIZE, "samples", 1, 16))
    assert read_oom_note(tmp_path, axes) is None
    for rank, side in ((0, 64), (1, 48), (2, 56)):
        batch = replace(batch_of(4), plan=Plan.of(batch_size=4, lq_size=side))
        write_oom_note(tmp_path, rank, 7, batch, DoesNotFit("g", 4, "no room"), 1000)
    found = read_oom_note(tmp_path, axes)
    assert found is not None
    assert (found.plan["lq_size"], found.step, found.pieces, found.limit) == (48, 7, 0, 1000)
    clear_oom_note(tmp_path)
    assert read_oom_note(tmp_path, axes) is None


def test_starts_that_failed_are_counted_on_all_ranks_by_their_plans(tmp_path: Path) -> None:
    """Each start has another plan, on whichever rank it fails; a note of an earlier version knows its own."""
    assert failed_starts(tmp_path) == 0
    for rank, side in ((0, 64), (1, 64), (1, 48), (0, 32)):
        batch = replace(batch_of(4), plan=Plan.of(batch_size=4, lq_size=side))
        write_oom_note(tmp_path, rank, 7, batch, DoesNotFit("g", 4, "no room"), 1000)
    assert failed_starts(tmp_path) == 3
    for file in tmp_path.glob("*.json"):
        note = json.loads(file.read_text())
        del note["failed_plans"]
        file.write_text(json.dumps(note))
    assert failed_starts(tmp_path) == 2


@pytest.mark.parametrize("first_fails", [False, True])
def test_buffers_that_change_are_known_though_the_first_attempt_was_taken_back(first_fails: bool) -> None:
    network = nn.Sequential(nn.BatchNorm2d(3), nn.Conv2d(3, 3, 1))
    network.register_buffer("constant", torch.zeros(3))
    snapshot = StepSnapshot([network], torch.device("cpu"))
    image = torch.rand(2, 3, 4, 4)
    if first_fails:
        snapshot.take()
        network(image)
        snapshot.restore()
        assert not torch.any(network[0].running_mean)
    snapshot.take()
    network(image)
    snapshot.commit_pass()
    snapshot.commit_step()
    snapshot.take()
    assert {id(one) for one in snapshot.changing()} == {
        id(one) for one in (network[0].running_mean, network[0].running_var, network[0].num_batches_tracked)
    }
