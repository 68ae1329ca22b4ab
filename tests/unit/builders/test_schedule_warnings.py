"""A schedule that does what its file may not want says so, once, before the run."""

from pathlib import Path
from typing import Any

import pytest

from tests.integration.commands import tiny_options, write_options
from trainauto.builders.image_model import build_model, build_network
from trainauto.builders.precision import choose_precision
from trainauto.builders.schedules import build_schedule
from trainauto.options.load import load_options


@pytest.mark.parametrize(
    ("scheduler", "said"),
    [
        ({"type": "MultiStepLR", "milestones": [5]}, ""),
        ({"type": "CosineAnnealingRestartLR", "periods": [5, 7]}, ""),
        (
            {"type": "CosineAnnealingRestartLR", "periods": [4, 4]},
            "scheduler CosineAnnealingRestartLR ends after 8 of 12 steps: the learning rate stays as it is then",
        ),
        (
            {"type": "CosineAnnealingLR", "T_max": 6},
            "scheduler CosineAnnealingLR ends after 6 of 12 steps: the learning rate rises again",
        ),
        ({"type": "CosineAnnealingLR", "T_max": 12, "eta_min": 1e-7}, ""),
        (
            {"type": "cosine", "eta_min": 1e-2},
            "eta_min 0.01 of scheduler cosine is above the learning rate 0.001, which rises to it",
        ),
        ({"type": "OneCycleLR", "total_steps": 6}, "ends after 6 of 12 steps"),
        ({"type": "polynomial", "total_iters": 6}, "ends after 6 of 12 steps"),
        ({"type": "knee", "total_steps": 6}, "ends after 6 of 12 steps"),
        ({"type": "wsd", "num_warmup_steps": 1, "num_stable_steps": 2, "num_decay_steps": 3}, "ends after 6 of 12"),
        ({"type": "wsd", "num_warmup_steps": 1, "num_stable_steps": 8, "num_decay_steps": 3}, ""),
        ({"type": "CosineAnnealingWarmupLR", "total_iters": 6}, "ends after 6 of 12 steps"),
    ],
)
def test_ends_and_floors(
    scheduler: dict[str, Any], said: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert_said(tmp_path, caplog, {"scheduler": scheduler}, said)


def test_a_schedule_that_is_not_needed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    free = {"optim_g": {"type": "AdanScheduleFree"}}
    step = {"scheduler": {"type": "multistep", "milestones": [5]}}
    assert_said(tmp_path, caplog, free, "")
    assert_said(
        tmp_path,
        caplog,
        free | step,
        "AdanScheduleFree needs no schedule, but scheduler multistep changes its learning rate",
    )


def assert_said(folder: Path, caplog: pytest.LogCaptureFixture, train: dict[str, Any], said: str) -> None:
    loaded = load_options(write_options(folder / "run.yml", tiny_options(folder, train=train)))
    model = build_model(loaded, build_network(loaded), choose_precision(loaded))
    caplog.clear()
    build_schedule(loaded, model, 12, "steps")
    words = " ".join(record.message for record in caplog.records if record.levelname == "WARNING")
    assert said in words if said else not words, words
