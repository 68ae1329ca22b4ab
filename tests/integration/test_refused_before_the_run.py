"""What would train to no end is refused, or said, before the first step, at the option that is at fault."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.commands import gan_options, tiny_options, train, write_options

Write = Callable[..., Path]
COMPACT = {"type": "compact", "num_feat": 4, "num_conv": 1}


@pytest.mark.parametrize(
    ("changes", "place", "said"),
    [
        (
            {"train": {"losses": [{"type": "l1loss", "loss_weight": 0}]}},
            "loss_weight: 0",
            "every loss has loss_weight 0",
        ),
        ({"train": {"losses": [{"type": "l1loss", "loss_weight": -1.0}]}}, "loss_weight: -1.0", "0 or more, got -1.0"),
        ({"train": {"losses": [{"type": "l1loss", "loss_weight": float("inf")}]}}, "loss_weight: .inf", "got inf"),
        (
            gan_options(train={"losses": [{"type": "l1loss"}, {"type": "ganloss", "loss_weight": -0.1}]}),
            "loss_weight: -0.1",
            "0 or more, got -0.1",
        ),
        ({"network_g": {**COMPACT, "num_in_ch": 4, "num_out_ch": 4}}, "num_in_ch: 4", "takes 4 channels"),
        ({"network_g": {"type": "rrdbnet", "num_block": 1, "num_in_ch": 4}}, "num_in_ch: 4", "takes 4 channels"),
    ],
)
def test_options_that_train_nothing(
    changes: dict[str, Any], place: str, said: str, tmp_path: Path, write_images: Write
) -> None:
    options = write_options(tmp_path / "x.yml", tiny_options(write_images("gt", 1), **changes))
    number = next(number for number, line in enumerate(options.read_text().splitlines(), 1) if place in line)
    done = train(options)
    assert done.returncode == 2
    assert f"x.yml:{number}:" in done.stderr
    assert said in done.stderr
    assert not (tmp_path / "experiments").exists()


def test_one_of_several_losses_may_weigh_nothing(tmp_path: Path, write_images: Write) -> None:
    losses = [{"type": "l1loss"}, {"type": "mseloss", "loss_weight": 0}]
    changes = {"train": {"losses": losses, "total_iter": 1}, "val": {"val_enabled": False}}
    done = train(write_options(tmp_path / "x.yml", tiny_options(write_images("gt", 1), **changes)))
    assert done.returncode == 0, done.stderr


def test_images_that_are_trained_on_are_said(
    tmp_path: Path, write_images: Write, caplog: pytest.LogCaptureFixture
) -> None:
    trained = write_images("gt", 2)
    validated = write_images("val", 1, (48, 60))
    for number in range(2):
        (validated / f"linked_{number}.png").symlink_to(trained / f"image_00{number}.png")
    changes: dict[str, Any] = {"datasets": {"val": {"dataroot_gt": str(validated)}}, "train": {"total_iter": 1}}
    assert train(write_options(tmp_path / "x.yml", tiny_options(trained, **changes))).returncode == 0
    (said,) = [record.getMessage() for record in caplog.records if "shares" in record.getMessage()]
    assert said.startswith("dataset 'val' shares 2 of its 3 images with the training set (linked_0, ...): its figures")
    caplog.clear()
    changes["datasets"]["val"]["dataroot_gt"] = str(validated / "image_000.png")
    assert train(write_options(tmp_path / "x.yml", tiny_options(trained, **changes))).returncode == 0
    assert "shares" not in caplog.text
