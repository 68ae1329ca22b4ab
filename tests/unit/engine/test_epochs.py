"""The ends of passes over the training samples: each is handled once, also where a kill came between."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.token_runs import heard, token_run
from trainauto.core.automation import Automation
from trainauto.core.decisions import GoBack
from trainauto.core.plan import Plan
from trainauto.core.records import Progress, StepRecord
from trainauto.engine.epochs import Epochs
from trainauto.engine.loop import train
from trainauto.engine.run import Run

PLAN = Plan.of(batch_size=4)


@pytest.mark.parametrize(
    ("steps", "handled"),
    [
        ([5, 10, 15, 20], [1, 2]),
        ([7, 14, 21], [1, 2]),  # a step reaches over the end
        ([35], [3]),  # over several: the last one
        ([3, 9], []),
    ],
)
def test_an_end_is_due_once_that_many_samples_are_trained(steps: Sequence[int], handled: list[int]) -> None:
    heard: list[int] = []
    epochs = Epochs(10, lambda epoch, _: heard.append(epoch))
    for samples in steps:
        epochs.handle(Progress(samples=samples))
    assert heard == handled


def test_a_run_that_kept_no_state_has_handled_all_ends() -> None:
    epochs = Epochs(10)
    epochs.load_state_dict(None, Progress(samples=31))
    assert epochs.handled == 3
    epochs.load_state_dict({"handled": 1, "since": 0, "before": 0}, Progress(samples=25))
    assert epochs.handled == 1


def test_other_samples_begin_a_pass_of_their_own() -> None:
    """12 of a set of 10 are trained; then there are 7, of which the next pass is."""
    heard: list[int] = []
    before = Epochs(10)
    before.handle(Progress(samples=12))
    epochs = Epochs(7, lambda epoch, _: heard.append(epoch))
    epochs.load_state_dict(before.state_dict(), Progress(samples=12), begins_anew=True)
    for samples in (14, 18, 19, 25, 26):
        epochs.handle(Progress(samples=samples))
        resumed = Epochs(7)
        resumed.load_state_dict(epochs.state_dict(), Progress(samples=samples))
        assert resumed == replace(epochs, at_end=resumed.at_end)
    assert heard == [2, 3]


class KilledError(BaseException):
    """As if the process were gone."""


class GoesBack(Automation):
    """Goes back once to a step, after another one."""

    goes_back = True

    def __init__(self, after: int, to: int) -> None:
        self._after, self._to = after, to

    def on_step_end(self, record: StepRecord) -> GoBack | None:
        if record.step != self._after:
            return None
        self._after = 0
        return GoBack(self._to, "it is worse")


def test_an_end_is_handled_with_the_weights_that_it_came_with(tmp_path: Path) -> None:
    """A checkpoint of the very step, written before the end was handled, is gone back to."""
    seen: list[tuple[int, int]] = []
    with token_run(tmp_path, PLAN, steps=9) as run:
        run.epochs = replace(run.epochs, samples=10, at_end=lambda epoch, _: seen.append((epoch, run.progress.steps)))
        run.journal.automations = [SavesAfter(run, 3), GoesBack(after=4, to=3)]
        train(run)
    assert seen[:2] == [(1, 3), (1, 3)]
    assert [epoch for epoch, _ in seen] == [1, 1, 2, 3]


def test_an_error_at_an_end_leaves_a_checkpoint_of_its_step(tmp_path: Path) -> None:
    def fails(_epoch: int, _progress: Progress) -> None:
        raise OSError("no such host")

    with token_run(tmp_path, PLAN, steps=9) as run:
        run.epochs = replace(run.epochs, samples=10, at_end=fails)
        with pytest.raises(OSError, match="no such host"):
            train(run)
        assert run.is_saved
        assert run.progress.steps == 3


class SavesAfter(Automation):
    """Writes a checkpoint of a step before anything follows it, as a validation does."""

    def __init__(self, run: Run, step: int) -> None:
        self._run, self._step = run, step

    def on_step_end(self, record: StepRecord) -> None:
        if record.step == self._step:
            self._run.save()


def test_an_end_that_a_kill_came_before_is_handled_by_the_resume(tmp_path: Path) -> None:
    """The weights are those of the step in which the pass ended."""
    seen: list[tuple[int, int]] = []
    with token_run(tmp_path, PLAN, steps=9) as run:
        samples = run.epochs.samples
        run.epochs = replace(run.epochs, at_end=lambda epoch, _: seen.append((epoch, run.progress.samples)))
        train(run)
        whole, ends = heard(run).records, list(seen)
    assert [epoch for epoch, _ in ends] == list(range(1, 1 + 9 * 4 // samples))

    def killed(_epoch: int, _progress: Progress) -> None:
        run.save()
        raise KilledError

    seen.clear()
    with token_run(tmp_path / "killed", PLAN, steps=9) as run:
        run.epochs = replace(run.epochs, at_end=killed)
        with pytest.raises(KilledError):
            train(run)
        checkpoint, step = run.last_checkpoint, run.progress.steps
    assert checkpoint is not None
    with token_run(tmp_path / "killed", PLAN, steps=9) as run:
        run.epochs = replace(run.epochs, at_end=lambda epoch, _: seen.append((epoch, run.progress.samples)))
        run.restore(checkpoint)
        train(run)
        assert [record.losses for record in heard(run).records] == [record.losses for record in whole[step:]]
    assert seen == ends
