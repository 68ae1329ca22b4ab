"""Decisions pass through one journal: asked for, carried out, annotated, kept for the next record."""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.engine.test_step import batch_of
from trainauto.automations import Automation
from trainauto.core.decisions import Decision, PlanChange, RateFactor
from trainauto.core.errors import Saving, TrainautoError, have_saved
from trainauto.core.plan import Plan
from trainauto.core.records import Progress
from trainauto.data import DynamicDataLoader, GTImageDataset
from trainauto.distributed.communicator import SINGLE_PROCESS
from trainauto.engine.controls import Controls
from trainauto.engine.journal import DecisionJournal
from trainauto.engine.leaving import saving_on_errors
from trainauto.engine.oom_notes import read_oom_note
from trainauto.engine.run_errors import GroupOutOfMemoryError, OptimizerOutOfMemoryError, RankAbortedError
from trainauto.engine.step_outcome import DoesNotFit

SMALL, LARGE = Plan.of(batch_size=2, lq_size=16), Plan.of(batch_size=4, lq_size=16)


class Grows(Automation):
    """Asks for more, and knows what it takes."""

    def expected_bytes(self, plan: Plan) -> int | None:
        return 10 * plan.batch_size

    def on_step_end(self, record: Any) -> Decision | None:
        return PlanChange(LARGE, "there is room")


class Silent(Automation):
    """Asks for nothing."""


@pytest.fixture
def journal(write_images: Callable[..., Path]) -> Iterator[DecisionJournal]:
    dataset = GTImageDataset(str(write_images("photos", 4, (130, 130))), scale=2)
    with DynamicDataLoader(dataset, SMALL, seed=1, lookahead=2) as loader:
        yield DecisionJournal(Controls(loader, None), [Silent(), Grows()])


def test_a_decision_is_carried_out_annotated_and_reported_once(journal: DecisionJournal) -> None:
    journal.predictions.predict(SMALL)
    decisions = journal.ask(lambda automation: automation.on_step_end(None))  # type: ignore[arg-type]
    assert decisions == [PlanChange(LARGE, "there is room")]
    journal.decide(decisions, SMALL, early=True)
    assert journal.controls.plan_changes == 1
    assert journal.take() == [PlanChange(LARGE, "there is room", predicted=40, predicted_before=20, early=True)]
    assert journal.take() == []


def test_what_a_log_says_is_carried_out_to_the_letter(journal: DecisionJournal) -> None:
    logged = [PlanChange(LARGE, "as logged", predicted=7), RateFactor(0.5, "as logged")]
    journal.follow(logged)
    assert (journal.controls.plan_changes, journal.controls.rate_factor) == (1, 0.5)
    assert journal.take() == logged


def test_failures_wait_for_the_next_record(journal: DecisionJournal) -> None:
    journal.count_oom()
    journal.count_oom()
    assert (journal.take_ooms(), journal.take_ooms()) == (2, 0)


class Several:
    """As many ranks as it says."""

    rank, world_size = 1, 2


@pytest.mark.parametrize(
    ("error", "alone", "together"),
    [
        (TrainautoError("no"), 0, 0),
        (ValueError("no"), 0, 0),
        (OptimizerOutOfMemoryError("g", "no"), 0, 0),
        (RankAbortedError("no"), 1, 1),
    ],
)
def test_an_error_says_who_saves_before_it_ends_the_run(error: Exception, alone: int, together: int) -> None:
    for ranks, expected in ((SINGLE_PROCESS, alone), (Several(), together)):
        saved: list[int] = []
        run: Any = SimpleNamespace(
            ranks=ranks, save=lambda saved=saved: saved.append(1), last_checkpoint=None, resume_command=""
        )
        with pytest.raises(type(error)), saving_on_errors(run):
            raise error
        assert len(saved) == expected


def test_any_error_can_be_told_to_save_first() -> None:
    error, saved = ValueError("an image of the validation set"), []
    have_saved(error, Saving.TOGETHER)
    run: Any = SimpleNamespace(ranks=Several(), save=lambda: saved.append(1))
    with pytest.raises(ValueError, match="image"), saving_on_errors(run):
        raise error
    assert saved == [1]


def test_a_group_that_ends_leaves_a_note_of_what_did_not_fit(tmp_path: Path) -> None:
    run: Any = SimpleNamespace(
        ranks=Several(),
        progress=Progress(steps=6),
        meter=SimpleNamespace(limit_bytes=1000),
        checkpoints=SimpleNamespace(folder=tmp_path),
    )
    with pytest.raises(GroupOutOfMemoryError), saving_on_errors(run):
        raise GroupOutOfMemoryError(DoesNotFit("g", 4, "no room"), batch_of(4))
    note = read_oom_note(tmp_path, ())
    assert note is not None
    assert (note.step, note.pass_name, note.shape.samples, note.limit) == (7, "g", 4, 1000)
