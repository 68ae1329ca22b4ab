"""Runs in this process whose optimizer runs out of memory: nothing of a half-made step is saved or resumed from."""

import platform
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.acceptance import only_in_acceptance
from tests.integration.commands import run_directory, step_records, tiny_options, write_options
from tests.integration.commands import train as train_command
from tests.optimizer_failures import FailsAt
from trainauto.build import build_run
from trainauto.engine.loop import train
from trainauto.engine.run_errors import OptimizerOutOfMemoryError
from trainauto.options.load import load_options

Write = Callable[..., Path]
FAILING_STEP = 8


@pytest.fixture
def options(tmp_path: Path, write_images: Write, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Options of 12 steps with a checkpoint after every fifth."""
    monkeypatch.chdir(tmp_path)
    options = tiny_options(write_images("gt", 3, (100, 110)), val={"val_enabled": False, "metrics": {}})
    del options["datasets"]["val"]
    return options


def fail_in_step(monkeypatch: pytest.MonkeyPatch, place: int) -> None:
    """Have the optimizer's step of one step of the run fail at one of its operators."""
    real, calls = torch.optim.Adam.step, []

    @wraps(real)
    def step(self: torch.optim.Adam, closure: Any = None) -> Any:
        (group,) = self.param_groups
        if len(group["params"]) > 1 and group["lr"]:  # else it tries out what its state begins with
            calls.append(1)
        if len(calls) != FAILING_STEP:
            return real(self, closure)
        with FailsAt(place):
            return real(self, closure)

    monkeypatch.setattr(torch.optim.Adam, "step", step)


def weights_of(options: dict[str, Any], *, auto_resume: bool = False) -> Tensor:
    with build_run(load_options(write_options(Path("run.yml"), options)), auto_resume=auto_resume) as run:
        train(run)
        (network,) = run.model.networks.values()
        return torch.cat([weight.detach().flatten() for weight in network.parameters()])


def checkpoints() -> list[str]:
    return sorted(path.name for path in (run_directory(Path("run.yml").resolve()) / "checkpoints").glob("step_*"))


@pytest.mark.parametrize("place", [14, 60])
def test_a_half_made_step_is_never_saved_and_the_run_resumes_from_the_checkpoint_before(
    options: dict[str, Any], place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = weights_of({**options, "name": "plain"})
    with monkeypatch.context() as patch:
        fail_in_step(patch, place)
        with pytest.raises(OptimizerOutOfMemoryError) as caught:
            weights_of(options)
    said = str(caught.value)
    assert "Some weights may be updated and others not: they are not saved" in said
    assert len(checkpoints()) == 1
    assert f"{checkpoints()[0]} is the last intact checkpoint" in said
    assert "--auto_resume" in said
    assert torch.equal(weights_of(options, auto_resume=True), plain)


def test_a_step_that_fails_before_it_wrote_anything_goes_on(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    plain = weights_of({**options, "name": "plain"})
    fail_in_step(monkeypatch, 2)
    assert torch.equal(weights_of(options), plain)
    assert "before it wrote anything: the step runs again" in caplog.text


def test_without_a_checkpoint_the_run_is_to_be_started_again(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    options["logger"]["save_checkpoint_freq"] = 100
    fail_in_step(monkeypatch, 14)
    with pytest.raises(OptimizerOutOfMemoryError, match="no checkpoint yet: free memory, then start it again"):
        weights_of(options)
    assert not checkpoints()


@only_in_acceptance
@pytest.mark.skipif(platform.system() != "Linux", reason="the CPU budget is enforced on Linux only")
def test_an_optimizer_whose_temporaries_do_not_fit_takes_one_weight_after_another(
    tmp_path: Path, write_images: Write
) -> None:
    """Weights of 15 MiB: gradients and the temporaries of all of them pass 85 % of the budget, those of one do not."""
    bounds = {"min_batch_size": 1, "max_batch_size": 8, "min_lq_size": 8, "max_lq_size": 16}
    options = tiny_options(
        write_images("gt", 2, (64, 64)),
        network_g={"type": "compact", "num_feat": 256, "num_conv": 6},
        datasets={"train": {"lq_size": 8, "batch_size_per_gpu": 1, "num_worker_per_gpu": 0}},
        train={"total_iter": 3, "optim_g": {"type": "Adam", "lr": 1e-4, "foreach": True}},
        val={"val_enabled": False, "metrics": {}},
        memory={"budget": "36MiB", "calibration": False},
        training_automations={"DynamicBatchSizeOptimizer": bounds},
    )
    file = write_options(tmp_path / "run.yml", options)
    done = train_command(file)
    assert done.returncode == 0, done.stderr
    log = (run_directory(file) / "training.log").read_text()
    assert "it updates one weight after another (foreach=False)" in log
    records = step_records(run_directory(file))
    assert sum(record["ooms"] for record in records) == 0
    assert len(records) == 3
