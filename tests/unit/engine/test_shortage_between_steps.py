"""Memory that runs out between steps: while a batch is made, and while a checkpoint is written."""

from pathlib import Path

import pytest
import torch

from tests.token_runs import token_run
from tests.unit.integrations.test_adaptive_loop import Numbered, Regression
from trainauto import AdaptiveLoop
from trainauto.core.errors import InputError
from trainauto.core.plan import Plan
from trainauto.engine.loop import train
from trainauto.engine.run import Run
from trainauto.engine.run_errors import NoMemoryToSaveError

PLAN = Plan.of(tokens=32, batch_size=2)


class Tight(Numbered):
    """Samples of which one cannot be made, as long as there is no room."""

    has_room = False

    def __getitem__(self, index: int) -> tuple[torch.Tensor, ...]:
        if index == 17 and not self.has_room:
            return (torch.empty(2**60, dtype=torch.uint8),)
        return super().__getitem__(index)


def train_epoch(loop: AdaptiveLoop) -> None:
    for batch in loop.batches(epochs=1):
        loop.step(batch)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_batch_that_cannot_be_made_is_said_so_and_comes_again(workers: int) -> None:
    task, samples = Regression(), Tight()
    with AdaptiveLoop(task.net, task.objective(), samples, batch_size=8, num_workers=workers) as loop:
        with pytest.raises(InputError, match="out of memory while the next batch was loaded"):
            train_epoch(loop)
        samples.has_room = True
        train_epoch(loop)
    assert sorted(task.seen) == list(range(len(samples)))


def failing(run: Run, monkeypatch: pytest.MonkeyPatch, times: int) -> list[bool]:
    """Have memory run out when weights are written, so many times; return whether each attempt still had gradients."""
    save, attempts = run.model.save, list[bool]()

    def fails(folder: Path) -> None:
        weights = [one for group in run.model.optimizers.values() for one in group.param_groups[0]["params"]]
        attempts.append(any(weight.grad is not None for weight in weights))
        if run.progress.steps == 2 and len(attempts) <= times:
            torch.empty(2**60, dtype=torch.uint8)
        save(folder)

    monkeypatch.setattr(run.model, "save", fails)
    return attempts


def test_a_checkpoint_is_written_without_gradients_where_memory_runs_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with token_run(tmp_path, PLAN, 2) as run:
        attempts = failing(run, monkeypatch, 1)
        train(run)
        assert attempts == [True, False]
        assert run.checkpoints.newest_whole() == run.checkpoints.path(2)


def test_a_checkpoint_that_does_not_fit_is_said_so_and_the_one_before_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with token_run(tmp_path, PLAN, 1) as run:
        train(run)
    with token_run(tmp_path, PLAN, 2) as run:
        run.restore(run.checkpoints.path(1))
        failing(run, monkeypatch, 2)
        with pytest.raises(NoMemoryToSaveError, match=r"checkpoint of step 2 .*\n.*step_00000001 is intact"):
            train(run)
        assert run.checkpoints.steps() == [1]
        assert run.checkpoints.newest_whole() == run.checkpoints.path(1)
