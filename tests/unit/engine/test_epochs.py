"""The ends of passes over the training samples: each is handled once, also where a kill came between."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.token_runs import heard, token_run
from trainauto.core.plan import Plan
from trainauto.core.records import Progress
from trainauto.engine.epochs import Epochs
from trainauto.engine.loop import train

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
    epochs = Epochs(10, heard.append)
    for samples in steps:
        epochs.handle(Progress(samples=samples))
    assert heard == handled


def test_a_state_of_other_samples_has_handled_all_ends() -> None:
    epochs = Epochs(10)
    epochs.load_state_dict({"samples": 7, "handled": 1}, Progress(samples=25))
    assert epochs.handled == 2
    epochs.load_state_dict(None, Progress(samples=31))
    assert epochs.handled == 3
    epochs.load_state_dict({"samples": 10, "handled": 1}, Progress(samples=25))
    assert epochs.handled == 1


class KilledError(BaseException):
    """As if the process were gone."""


def test_an_end_that_a_kill_came_before_is_handled_by_the_resume(tmp_path: Path) -> None:
    """The weights are those of the step in which the pass ended."""
    seen: list[tuple[int, int]] = []
    with token_run(tmp_path, PLAN, steps=9) as run:
        samples = run.epochs.samples
        run.epochs = replace(run.epochs, at_end=lambda epoch: seen.append((epoch, run.progress.samples)))
        train(run)
        whole, ends = heard(run).records, list(seen)
    assert [epoch for epoch, _ in ends] == list(range(1, 1 + 9 * 4 // samples))

    def killed(_epoch: int) -> None:
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
        run.epochs = replace(run.epochs, at_end=lambda epoch: seen.append((epoch, run.progress.samples)))
        run.restore(checkpoint)
        train(run)
        assert [record.losses for record in heard(run).records] == [record.losses for record in whole[step:]]
    assert seen == ends
