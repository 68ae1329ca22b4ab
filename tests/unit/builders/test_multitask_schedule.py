"""Rates of a run on samples of several tasks, as its option file has them."""

import json
from math import cos, pi
from pathlib import Path
from typing import Any

import pytest

from tests.integration.commands import train_loaded, write_options
from tests.integration.multitask_runs import built, multitask_options
from trainauto.core.errors import InputError
from trainauto.options.load import load_options

SMALL: dict[str, Any] = {
    "model": {"hidden_size": 8},
    "datasets": {"train": {"samples": 32}, "val": {"samples": 6}},
    "train": {"learning_rate": 1e-2, "base_batch_size": 4, "target_batch_size": 4, "warmup_steps": 4},
}


def rates(folder: Path, **train: Any) -> list[float]:
    """The rate of each step of a run over 2 * 32 samples in fours, warmed up in four steps, as its log has it."""
    options = multitask_options(**{**SMALL, "train": {**SMALL["train"], **train}})
    train_loaded(load_options(write_options(folder / "run.yml", options)))
    (log,) = folder.rglob("training_log.jsonl")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    return [rate for line in lines for rate in line.get("lr", {}).values()]


WARM = [0.25, 0.5, 0.75, 1.0]


@pytest.mark.parametrize(
    ("schedule", "factors"),
    [
        ({"type": "linear"}, [1 - step / 12 for step in range(12)]),
        ({"type": "cosine", "end_factor": 0.5}, [0.75 + cos(pi * step / 12) / 4 for step in range(12)]),
        ({"type": "multistep", "milestones": [24, 40], "gamma": 0.1}, [1, 1, *[0.1] * 4, *[0.01] * 6]),
        ({"type": "cosine_with_restarts", "cycles": 2}, [(1 + cos(pi * step / 6)) / 2 for step in range(6)] * 2),
    ],
    ids=lambda given: given["type"] if isinstance(given, dict) else "",
)
def test_rates_of_an_option_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, schedule: dict[str, Any], factors: list[float]
) -> None:
    """D09, D10, D14: after the warm-up; milestones in samples of the whole run."""
    monkeypatch.chdir(tmp_path)
    assert rates(tmp_path, scheduler=schedule) == pytest.approx([1e-2 * factor for factor in [*WARM, *factors]])


def test_a_run_of_so_many_steps_counts_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D14: the warm-up may be a share, too."""
    monkeypatch.chdir(tmp_path)
    schedule = {"type": "multistep", "milestones": [6], "gamma": 0.5}
    length = {"total_epochs": None, "total_iter": 8, "warmup_steps": 0, "warmup_ratio": 0.5}
    found = rates(tmp_path, scheduler=schedule, **length)
    assert found == pytest.approx([1e-2 * factor for factor in [*WARM, 1, 1, 0.5, 0.5]])


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        ({"type": "cosin"}, r"(?s)run\.yml:\d+.*'cosin'.*Did you mean 'cosine'"),
        ({"type": "multistep"}, "schedule 'multistep' needs 'milestones'"),
        ({"type": "cosine", "milestones": [3]}, "schedule 'cosine' has no argument 'milestones'"),
        ({"type": "cosine_with_restarts", "cycles": 0}, "cycles must be 1 or more, got 0"),
    ],
)
def test_what_a_schedule_does_not_take_is_refused_at_once(tmp_path: Path, schedule: dict[str, Any], words: str) -> None:
    """D13: before samples are read."""
    options = multitask_options(train={"scheduler": schedule})
    with pytest.raises(InputError, match=words):
        built(write_options(tmp_path / "run.yml", options))
