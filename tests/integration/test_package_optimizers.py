"""Optimizers of pytorch_optimizer and torch in runs: as in a plain loop, resumed to the bit, traced, on two ranks."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.acceptance import only_in_acceptance
from tests.integration.commands import (
    command,
    latest_weights,
    merged,
    run_directory,
    step_records,
    tiny_options,
    train,
    write_options,
)
from tests.integration.ranks import finish, train_ranks
from tests.integration.text_runs import text_options, write_texts
from trainauto.builders.image_model import build_model, build_network
from trainauto.builders.precision import choose_precision
from trainauto.core.batch import Batch
from trainauto.core.errors import InputError
from trainauto.core.plan import BatchShape, Plan
from trainauto.engine.step import optimize_parameters
from trainauto.engine.traced_training import TracedModel, empty_batch
from trainauto.forecast.traced_run import FakeRun
from trainauto.models.base_model import BaseModel
from trainauto.optim import OPTIMIZERS
from trainauto.optim.muon import split_for_muon
from trainauto.optim.package_optimizers import TESTED
from trainauto.options.load import load_options
from trainauto.tasks.sr.data.image_crops import ImageCrops

NAMES = ("AdamW", "AdanScheduleFree", "NAdam", *TESTED)
RATES = {"Prodigy": 1.0, "Lion": 1e-4, "Muon": 0.02}
STEPS, SIDE, SAMPLES = 20, 12, 4


def options_of(name: str, folder: Path, **changes: Any) -> dict[str, Any]:
    network = {"type": "compact", "num_feat": 8, "num_conv": 2}
    train_options = {"optim_g": {"type": name, "lr": RATES.get(name, 1e-3)}, "ema_decay": 0, "total_iter": STEPS}
    return merged(tiny_options(folder, network_g=network, train=train_options), changes)


def model_of(file: Path) -> BaseModel:
    torch.manual_seed(0)
    loaded = load_options(file)
    return build_model(loaded, build_network(loaded), choose_precision(loaded))


def batch_of(step: int, scale: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(step)
    sides = {"lq": SIDE, "gt": SIDE * scale}
    return {
        name: torch.randint(0, 256, (SAMPLES, 3, side, side), dtype=torch.uint8, generator=generator)
        for name, side in sides.items()
    }


def step_model(model: BaseModel, step: int, scale: int) -> None:
    plan, tensors = Plan.of(batch_size=SAMPLES, lq_size=SIDE), batch_of(step, scale)
    shape = BatchShape(SAMPLES, SIDE)
    optimize_parameters(model, Batch(tensors, ImageCrops(3, scale), ("made",) * SAMPLES, 0, plan, plan, shape))


def weights_of(model: BaseModel) -> list[Tensor]:
    (network,) = model.networks.values()
    return [weight.detach().clone() for weight in network.parameters()]


@pytest.mark.parametrize("name", NAMES)
def test_steps_are_those_of_a_plain_loop_and_resume_to_the_bit(name: str, tmp_path: Path) -> None:
    file = write_options(tmp_path / "run.yml", options_of(name, tmp_path / "none"))
    scale, ours = load_options(file).options.scale, model_of(file)
    torch.manual_seed(0)
    network: nn.Module = build_network(load_options(file)).train()
    parameters = split_for_muon(network, network.parameters()).groups() if name == "Muon" else network.parameters()
    optimizer = OPTIMIZERS.get(name)(parameters, lr=RATES.get(name, 1e-3))
    saved = tmp_path / "checkpoint"
    saved.mkdir()
    for step in range(STEPS):
        step_model(ours, step, scale)
        tensors = {key: pixels.float().div_(255) for key, pixels in batch_of(step, scale).items()}
        optimizer.zero_grad()
        nn.functional.l1_loss(network(tensors["lq"]), tensors["gt"]).backward()
        optimizer.step()
        if step == STEPS // 2:
            ours.save(saved)
            torch.save(ours.state_dict(), saved / "state.pt")
    for mine, theirs in zip(weights_of(ours), network.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-7)

    resumed = model_of(file)
    resumed.load(saved)
    resumed.load_state_dict(torch.load(saved / "state.pt", weights_only=True))
    for step in range(STEPS // 2 + 1, STEPS):
        step_model(resumed, step, scale)
    assert all(map(torch.equal, weights_of(resumed), weights_of(ours)))


@pytest.mark.parametrize("name", NAMES)
def test_traced_bytes_are_those_of_real_steps(name: str, tmp_path: Path) -> None:
    loaded = load_options(write_options(tmp_path / "run.yml", options_of(name, tmp_path / "none")))
    plan, workload = Plan.of(batch_size=SAMPLES, lq_size=SIDE), ImageCrops(3, loaded.options.scale)
    real = TracedModel(
        build_model(loaded, build_network(loaded), choose_precision(loaded)),
        lambda wanted: empty_batch(wanted, workload),
        None,
    ).trace(plan, steps=3)
    foreseen = FakeRun.of(loaded).trace(plan)
    assert foreseen.peak_bytes == pytest.approx(real.peak_bytes, rel=1e-3)
    assert foreseen.held_bytes == pytest.approx(real.held_bytes, rel=1e-3)


@only_in_acceptance
@pytest.mark.parametrize("name", NAMES)
def test_two_ranks_train_as_one(name: str, tmp_path: Path, write_images: Callable[..., Path]) -> None:
    """And a run is repeated to the bit, its controller at work."""
    options = options_of(
        name, write_images("gt", 12), datasets={"train": {"batch_size_per_gpu": 2}}, val={"val_freq": 10}
    )
    file = write_options(tmp_path / "two.yml", merged(options, {"name": "two"}))
    assert [code for code, _ in finish(train_ranks(file, 2))] == [0, 0]
    single = merged(options, {"name": "one", "datasets": {"train": {"batch_size_per_gpu": 4}}})
    alone = write_options(tmp_path / "one.yml", single)
    assert train(alone).returncode == 0
    both = (step_records(run_directory(file, "two")), step_records(run_directory(alone, "one")))
    for ours, theirs in zip(*both, strict=True):
        assert ours["losses"] == pytest.approx(theirs["losses"], rel=1e-3, abs=1e-5), ours["step"]
    repeated = command("replay", str(run_directory(alone, "one")), cwd=tmp_path)
    assert "every loss equals the log's" in repeated.stdout, repeated.stderr


@only_in_acceptance
@pytest.mark.parametrize("name", ["AdanScheduleFree", "AdamWScheduleFree", "Muon"])
def test_spread_weights_are_trained_as_whole_ones(name: str, tmp_path: Path) -> None:
    """By two ranks, to the bit: averages of optimizers and products of whole matrices among them."""
    train_options = {"optim": {"type": name, "lr": RATES.get(name, 1e-2)}, "scheduler": {"type": "constant"}}
    options = text_options(write_texts(tmp_path), train={**train_options, "total_epochs": None, "total_iter": 12})
    kept = []
    for run in ("whole", "spread"):
        named = merged(options, {"name": run, "distributed": {"fully_shard": run == "spread"}})
        file = write_options(tmp_path / f"{run}.yml", named)
        ended = finish(train_ranks(file, 2))
        assert [code for code, _ in ended] == [0, 0], ended[0][1]
        kept.append(latest_weights(run_directory(file, run)))
    assert len(kept[0]) == (1 if name == "Muon" else 2)
    assert kept[0] == kept[1]


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("ScheduleFreeAdamW", "(?s)switches weights for validation, which is not supported.*Write AdamWScheduleFree"),
        ("splus", "SPlus of pytorch_optimizer switches weights for validation"),
        ("AdamWScheduleFreeClosure", "(?s)no optimizer named.*Did you mean 'AdamWScheduleFree'"),
        ("adaan", r"(?s)no optimizer named 'adaan'.*Did you mean 'Adan'"),
        ("prodgy", "(?s)no optimizer.*Did you mean 'Prodigy'"),
    ],
)
def test_what_is_not_there_is_refused(name: str, what: str) -> None:
    with pytest.raises(InputError, match=what):
        OPTIMIZERS.get(name)


def test_arguments_are_checked(tmp_path: Path) -> None:
    """The package's classes take any name in silence, and fail in the first step where betas are too few."""
    for arguments, what in (
        ({"beta": 0.9}, "no argument 'beta'"),
        ({"betas": [0.9, 0.99]}, "must be 3 numbers, got 2"),
    ):
        changes = {"train": {"optim_g": {"type": "Adan", **arguments}}}
        with pytest.raises(InputError, match=what) as caught:
            model_of(write_options(tmp_path / "run.yml", options_of("Adan", tmp_path / "none", **changes)))
        assert caught.value.problems[0].place is not None


def test_a_package_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pytorch_optimizer", None)
    with pytest.raises(InputError, match=r"(?s)Adan is an optimizer of the package pytorch_optimizer.*optimizers\]"):
        OPTIMIZERS.get("adan")
    with pytest.raises(InputError, match="no optimizer named"):
        OPTIMIZERS.get("adabelief")
