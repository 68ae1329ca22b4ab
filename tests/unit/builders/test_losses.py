"""Losses of an option file: what weighs nothing is not built, and what cannot be had is said with its place."""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.integration.commands import tiny_options, write_options
from tests.seeded_towers import write_seeded_towers
from trainauto.builders.losses import build_losses, labels
from trainauto.core.errors import InputError, Problem
from trainauto.options.load import LoadedOptions, load_options

L1 = {"type": "l1loss"}
Load = Callable[..., LoadedOptions]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Load an option file with these losses; torch.hub's folder is empty."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))

    def loaded(*losses: Mapping[str, Any], **train: Any) -> LoadedOptions:
        changes = {"train": {"losses": [dict(loss) for loss in losses], **train}}
        return load_options(write_options(tmp_path / "run.yml", tiny_options(tmp_path, **changes)))

    return loaded


def problem_of(loaded: LoadedOptions) -> Problem:
    with pytest.raises(InputError) as refused:
        build_losses(loaded)
    (problem,) = refused.value.problems
    return problem


def text_at(problem: Problem) -> str:
    assert problem.place is not None
    return problem.place.text[problem.place.column - 1 :].strip()


def test_what_weighs_nothing_is_not_built(load: Load, caplog: pytest.LogCaptureFixture) -> None:
    idle = [{"type": name, "loss_weight": 0} for name in ("perceptualloss", "adistsloss", "distsloss")]
    with caplog.at_level(logging.INFO):
        losses = build_losses(load(*idle, L1))
    assert {position: type(loss).__name__ for position, loss in losses.items()} == {3: "L1Loss"}
    assert "loss_weight 0 are left out, and load nothing: perceptualloss, adistsloss, distsloss" in caplog.text


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        ({"type": "l2loss", "loss_weight": 0}, "there is no loss named 'l2loss'"),
        ({"type": "mssimloss", "loss_weight": 0, "size": 1}, "has no argument 'size'"),
    ],
)
def test_what_is_misspelled_is_refused_whatever_it_weighs(load: Load, loss: dict[str, Any], said: str) -> None:
    assert said in problem_of(load(L1, loss)).message


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("contextualloss", "perceptualloss"),
        ("ADISTSLoss", "distsloss"),
        ("aesoploss", "bicubicloss"),
        ("linedistillerloss", "sobeledgeloss"),
        ("perceptualanimeloss", "perceptualloss"),
        ("structuretextureloss", "mssimloss"),
        ("fdl_loss", "perceptualloss"),
        ("kl_loss", "charbonnierloss"),
        ("msswd_loss", "distsloss"),
        ("vgg_perceptual_loss", "perceptualloss"),
    ],
)
def test_losses_of_others_are_named_with_what_is_near(load: Load, name: str, near: str) -> None:
    problem = problem_of(load(L1, {"type": name, "loss_weight": 1.0}))
    assert problem.message == f"loss '{name}' is left out of trainauto"
    assert near in problem.advice
    assert text_at(problem) == name


@pytest.mark.parametrize(
    ("arguments", "at", "advice"),
    [
        ({"criterion": "pd+l1"}, "pd+l1", "Write charbonnier or l1"),
        ({"vgg_type": "vgg19"}, "vgg19", "write that type"),
    ],
)
def test_perceptual_losses_of_others(load: Load, arguments: dict[str, Any], at: str, advice: str) -> None:
    problem = problem_of(load({"type": "perceptualloss", **arguments}))
    assert advice in problem.advice
    assert at in text_at(problem)


def test_a_negative_weight_is_refused_with_what_others_mean_by_it(load: Load) -> None:
    problem = problem_of(load({"type": "l1loss", "loss_weight": -1.0}))
    assert "traiNNer-redux's meaning of it, is not offered" in problem.message
    assert text_at(problem) == "-1.0"


def test_a_tower_that_is_not_there(load: Load, tmp_path: Path) -> None:
    problem = problem_of(load(L1, {"type": "perceptualloss", "loss_weight": 0.01}))
    place = tmp_path / "torch/hub/checkpoints/vgg19-dcbb9e9d.pth"
    assert problem.message == f"loss 'perceptualloss': the weights of vgg19 are not here: {place}"
    assert problem.advice.startswith("It is torchvision's vgg19-dcbb9e9d.pth (548 MiB), from models/ of PyTorch's")
    assert problem.advice.endswith("Put it there, or write `weights`, the path of one that you have.")
    assert "perceptualloss" in text_at(problem)


def test_a_tower_of_another_network(load: Load, tmp_path: Path) -> None:
    write_seeded_towers(tmp_path / "torch", divisor=8)
    alexnet = tmp_path / "torch/hub/checkpoints/alexnet-owt-7be5be79.pth"
    problem = problem_of(load({"type": "perceptualloss", "weights": str(alexnet)}))
    assert "does not hold the weights of vgg19: features." in problem.message
    torch.save({"weight": torch.zeros(1)}, alexnet)
    problem = problem_of(load({"type": "perceptualloss", "weights": str(alexnet)}))
    assert "does not hold the weights of vgg19: features.0.weight is missing" in problem.message


def test_a_layer_that_there_is_not(load: Load, tmp_path: Path) -> None:
    write_seeded_towers(tmp_path / "torch", divisor=8)
    problem = problem_of(load({"type": "perceptualloss", "layer_weights": {"conv9_9": 1.0}}))
    assert "vgg19 has no layer conv9_9; it has conv1_1, conv1_2" in problem.message


def test_a_loss_against_the_average_needs_one(load: Load) -> None:
    assert isinstance(build_losses(load({"type": "ldlloss"}, ema_decay=0.9))[0], nn.Module)
    problem = problem_of(load({"type": "ldlloss"}, ema_decay=0.0))
    assert "compares with the averaged network, and ema_decay is 0" in problem.message
    assert text_at(problem) == "ldlloss"


def test_two_losses_of_one_name(load: Load) -> None:
    assert labels(load(L1, {"type": "mseloss"}, L1)) == {0: "l1loss", 1: "mseloss", 2: "l1loss_3"}
