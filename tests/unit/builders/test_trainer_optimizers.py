"""Optimizers by name where the rate is an option beside them: fine-tuning and several tasks."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.integration.commands import command, tiny_options, train_loaded, write_options
from tests.integration.multitask_runs import multitask_options
from trainauto.builders.optimizers import trainer_optimizer
from trainauto.core.errors import InputError
from trainauto.options.fields import Component
from trainauto.options.load import load_options

PATH = ("training", "optim")


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.Linear(6, 6), nn.Linear(6, 2))


def made(folder: Path, chosen: dict[str, Any] | None) -> torch.optim.Optimizer:
    loaded = load_options(write_options(folder / "run.yml", tiny_options(folder)))
    return trainer_optimizer(loaded, PATH, Component(**chosen) if chosen else None, network(), 0.02, 0.1)


@pytest.mark.parametrize(("chosen", "kind"), [(None, "AdamW"), ({"type": "Lion", "betas": [0.9, 0.98]}, "Lion")])
def test_rate_and_decay_are_the_options_beside_it(tmp_path: Path, chosen: dict[str, Any] | None, kind: str) -> None:
    """Biases and the weights of norms do not decay."""
    optimizer = made(tmp_path, chosen)
    assert type(optimizer).__name__ == kind
    decaying, others = optimizer.param_groups
    assert [group["lr"] for group in (decaying, others)] == [0.02, 0.02]
    assert (decaying["weight_decay"], others["weight_decay"]) == (0.1, 0.0)
    assert [len(group["params"]) for group in (decaying, others)] == [4, 4]  # a norm in nn.Sequential is called 1
    if chosen:
        assert decaying["betas"] == (0.9, 0.98)


def test_muon_takes_the_hidden_matrix(tmp_path: Path) -> None:
    """At a rate of its own; ``learning_rate`` is that of AdamW, under which biases do not decay."""
    hidden, others, kept = made(tmp_path, {"type": "Muon", "momentum": 0.9, "lr": 0.04}).param_groups
    assert [tuple(weight.shape) for weight in hidden["params"]] == [(6, 6)]
    assert (hidden["lr"], hidden["momentum"], hidden["weight_decay"]) == (0.04, 0.9, 0.1)
    assert (others["lr"], others["use_muon"], others["weight_decay"]) == (0.02, False, 0.1)
    assert (kept["lr"], kept["use_muon"], kept["weight_decay"]) == (0.02, False, 0.0)
    assert [len(group["params"]) for group in (others, kept)] == [3, 4]


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"type": "Lion", "lr": 1e-4}, "(?s)lr of the optimizer is training.learning_rate.*Write learning_rate"),
        ({"type": "Lion", "beta": 1}, "no argument 'beta'"),
        ({"type": "Lionn"}, "(?s)no optimizer named 'Lionn'.*Lion"),
        ({"type": "adan_sf"}, "keeps an average that is its result, and runs of this task keep none"),
        ({"type": "Nero"}, "(?s)Nero has no weight decay, and weight_decay is 0.1.*Write weight_decay: 0"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, chosen: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        made(tmp_path, chosen)


def test_one_block_names_it_beside_other_mistakes(tmp_path: Path) -> None:
    train = {"optim": {"type": "Lion", "lr": 3}, "scheduler": {"type": "cosin"}, "base_batch_size": 0}
    file = write_options(tmp_path / "run.yml", multitask_options(train=train))
    done = command("train", "-opt", file.name, cwd=tmp_path)
    assert done.returncode == 2
    for what in ("lr of the optimizer is train.learning_rate", "no schedule named 'cosin'", "base_batch_size"):
        assert done.stderr.count(what) >= 1


def test_several_tasks_train_by_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options = multitask_options(
        train={"total_epochs": None, "total_iter": 3, "optim": {"type": "Lion", "betas": [0.9, 0.99]}}
    )
    assert train_loaded(load_options(write_options(tmp_path / "run.yml", options))) == 0
    newest = next(iter((tmp_path / "experiments" / "tiny" / "current").resolve().rglob("state.pt")))
    assert torch.load(newest, weights_only=True)["model"]["optimizer_kinds"] == {"train": "Lion"}
