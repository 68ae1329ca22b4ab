"""``plan --python``: code named on a command line is planned in a process of its own, as an option file is."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.commands import command, tiny_options, write_options

Write = Callable[..., Path]

CODE = """
import os
import torch
import trainauto
from torch.nn import functional
from trainauto.tasks.sr.archs import ARCHS

def loss(model, batch):
    return functional.l1_loss(model(batch["lq"].float().div_(255)), batch["gt"].float().div_(255))

SHAPES = {
    "lq": ("batch", 3, "lq_size", "lq_size", torch.uint8),
    "gt": ("batch", 3, "2*lq_size", "2*lq_size", torch.uint8),
}

def request(loss=loss):
    assert torch.ones(1, device="cuda").device.type == "cpu"  # there is no card, and nobody has to know
    return trainauto.PlanRequest(
        model=lambda: ARCHS.get("compact")(num_feat=8, num_conv=1, scale=2),
        loss=loss,
        shapes=SHAPES,
        optimizer=torch.optim.Adam,
        bounds={"lq_size": (8, 96), "batch": (4, 4000)},
        target_vram_usage=0.5,
    )

def vector():
    return request(lambda model, batch: model(batch["lq"] / 255))

def ends():
    return request(lambda model, batch: os._exit(3))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "code_of_mine.py").write_text(CODE)
    return tmp_path


def test_code_and_an_option_file_of_one_network_get_one_answer(folder: Path, write_images: Write) -> None:
    bounds = {"min_lq_size": 8, "max_lq_size": 96, "min_batch_size": 4, "max_batch_size": 4000}
    controller = {"DynamicBatchSizeOptimizer": {"target_vram_usage": 0.5, **bounds}}
    options = tiny_options(write_images("gt", 2, (200, 200)), train={"ema_decay": 0.0}, training_automations=controller)
    write_options(folder / "run.yml", options)
    cards = ("--card", "T4", "--vram", "2GiB", "--json")
    answers = []
    for subject in (("-opt", "run.yml"), ("--python", "code_of_mine:request", "--png", "map.png")):
        done = command("plan", *subject, *cards, cwd=folder)
        assert done.returncode == 0, done.stderr
        answers.append(json.loads(done.stdout))
    options_answer, code_answer = answers
    assert code_answer["name"] == "code_of_mine:request"
    assert [card["card"] for card in code_answer["cards"]] == ["T4 16GB", "2 GiB"]
    for ours, theirs in zip(code_answer["cards"], options_answer["cards"], strict=True):
        assert ours["plan"]["lq_size"] == theirs["plan"]["lq_size"]
        # What was chosen for code is then traced itself; of so small a network segments are much of what is reserved.
        assert ours["plan"]["batch_size"] == pytest.approx(theirs["plan"]["batch_size"], rel=0.05)
        assert ours["plan"]["batch_size"] > 4
        for figure in ("expected_peak_bytes", "upper_peak_bytes"):
            by_sample = [one[figure] / one["plan"]["batch_size"] for one in (ours, theirs)]
            assert by_sample[0] == pytest.approx(by_sample[1], rel=0.01)
    assert (folder / "map.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--python", "code_of_mine:vector"), 2, "has to return a scalar: a tensor of (4, 3, 16, 16)"),
        (("--python", "code_of_mine:ends"), 1, "the process that traces ended with exit code 3"),
        (("--python", "code_of_mine:request", "--card", "RTX 3066"), 2, "Did you mean 'RTX 30"),
        (("--python", "code_of_mine:request", "--measure"), 2, "--measure trains an option file's run"),
        (("--python", "code_of_mine:request", "-opt", "x.yml"), 2, "-opt and --python are two runs"),
        ((), 2, "or plan --python module:factory"),
    ],
)
def test_what_cannot_be_planned_is_said_in_a_block(
    folder: Path, arguments: tuple[str, ...], code: int, message: str
) -> None:
    done = command("plan", *arguments, cwd=folder)
    assert done.returncode == code
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not done.stdout
