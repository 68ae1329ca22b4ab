"""What a loss notes by task: of the attempt that counts, of all its parts, and over the ranks."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.token_runs import TokenModel, heard, token_run
from tests.unit.engine.test_reduce import agreed, record
from tests.unit.engine.test_step import batch_of, model_of, step
from trainauto.core.objectives import LossTerms, MicroBatch, Objective
from trainauto.core.plan import Plan
from trainauto.core.record_json import step_from_dict, step_to_dict
from trainauto.core.records import StepRecord
from trainauto.core.sharding import SampleSharding
from trainauto.engine.loop import train
from trainauto.models.base_model import BaseModel


class TaskNotes:
    """Notes of a loss whose samples are of the tasks "even" and "odd", by turns."""

    def __init__(self) -> None:
        self.sums: dict[str, tuple[float, int]] = {}
        self.seen: list[StepRecord] = []

    def begin(self) -> None:
        self.sums = {}

    def note(self, task: str, loss: float, samples: int) -> None:
        total, count = self.sums.get(task, (0.0, 0))
        self.sums[task] = (total + loss * samples, count + samples)

    def task_losses(self) -> Mapping[str, tuple[float, int]]:
        return {task: (total / count, count) for task, (total, count) in self.sums.items()}

    def recorded(self, record: StepRecord, _ranks: Any) -> None:
        self.seen.append(record)


def noting(model: BaseModel, notes: TaskNotes, *, room: int) -> BaseModel:
    """Have a model note what it trains; a pass of more samples than there is room for runs out of memory at its end."""
    (plain,) = model.objectives()

    def loss(part: MicroBatch) -> LossTerms:
        terms, samples = plain.loss(part), len(part["lq"])
        notes.note("even", 1.0, (samples + 1) // 2)
        notes.note("odd", 3.0, samples // 2) if samples > 1 else None
        if samples > room:
            raise MemoryError("no room")
        return terms

    made: Sequence[Objective] = (replace(plain, loss=loss, notes=notes),)
    model.objectives = lambda: made  # type: ignore[method-assign]
    return model


@pytest.mark.parametrize(("room", "attempts"), [(8, 0), (4, 1), (2, 2)])
def test_an_attempt_that_failed_leaves_no_notes(room: int, attempts: int) -> None:
    notes = TaskNotes()
    outcome = step(noting(model_of(), notes, room=room), batch_of(8))
    assert len(outcome.failures) == attempts
    assert outcome.task_losses == {"even": (1.0, 4), "odd": (3.0, 4)}


def test_ranks_agree_on_the_mean_of_each_task() -> None:
    mine = record(task_losses={"even": 1.0, "odd": 2.0}, task_samples={"even": 6, "odd": 2})
    found, _, _ = agreed(mine, SampleSharding.equal(2), {"tasks": {"even": [3.0, 2], "third": [5.0, 6]}})
    assert found.task_losses == {"even": 1.5, "odd": 2.0, "third": 5.0}
    assert found.task_samples == {"even": 8, "odd": 2, "third": 6}
    assert step_from_dict(step_to_dict(found)) == found


def test_steps_are_taken_in_as_they_were_recorded(tmp_path: Path) -> None:
    notes, model = TaskNotes(), TokenModel()
    made = [replace(objective, notes=notes) for objective in model.objectives()]
    model.objectives = lambda: made  # type: ignore[method-assign]
    with token_run(tmp_path, Plan.of(batch_size=4), steps=3, model=model) as run:
        train(run)
        assert notes.seen == heard(run).records
    assert [one.step for one in notes.seen] == [1, 2, 3]
