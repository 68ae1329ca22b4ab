"""A first step that takes long on a CPU: said while it runs, and what would take less than what the file has."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.commands import run_directory, tiny_options, train, write_options

RRDBNET = {"type": "rrdbnet", "num_feat": 16, "num_block": 1, "num_grow_ch": 8}

CASES: dict[str, tuple[dict[str, Any], str]] = {
    "as for a card": (
        {"network_g": RRDBNET, "use_amp": True, "datasets": {"train": {"lq_size": 40, "batch_size_per_gpu": 5}}},
        "on a CPU take a small network (type: compact), lq_size 32, batch_size_per_gpu 4 and no use_amp",
    ),
    "the batch alone": (
        {"datasets": {"train": {"lq_size": 32, "batch_size_per_gpu": 8}}},
        "on a CPU take batch_size_per_gpu 4",
    ),
    "all of it small": ({}, "plan and kind of network are small already; fewer features or layers of it"),
}


@pytest.mark.parametrize("case", CASES)
def test_advice_is_what_the_file_does_not_have(
    case: str, tmp_path: Path, write_images: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainauto.engine.long_steps.LONG_S", 0.001)  # in place of 10 s
    changes, advice = CASES[case]
    gt = write_images("gt", 2, (96, 100))
    options = tiny_options(gt, train={"total_iter": 2}, val={"val_enabled": False}, **changes)
    file = write_options(tmp_path / "run.yml", options)
    done = train(file)
    assert done.returncode == 0, done.stderr
    log = (run_directory(file) / "training.log").read_text()
    if case == "as for a card":  # others are shorter than what starting a thread may take
        assert "the first step is still running after " in log
    (said,) = re.findall(r"the first step took \d+ s: (.*)", log)
    assert said.startswith(advice)


def test_short_steps_and_later_ones_are_no_news(tmp_path: Path, write_images: Callable[..., Path]) -> None:
    options = tiny_options(write_images("gt", 2), train={"total_iter": 1}, val={"val_enabled": False})
    file = write_options(tmp_path / "run.yml", options)
    done = train(file)
    assert done.returncode == 0, done.stderr
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("trainauto.engine.long_steps.LONG_S", 0.001)
        done = train(file, "--auto_resume", "--force_yml", "train:total_iter=2")
    assert done.returncode == 0, done.stderr
    assert "the first step" not in (run_directory(file) / "training.log").read_text()
