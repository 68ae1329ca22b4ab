"""Options of data sets meet the data set that is to take them, and its images, before anything is written."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from tests.integration.commands import merged, run_directory, tiny_options, write_options
from trainauto.cli import main
from trainauto.tasks.sr.data import DATASETS, GTImageDataset

Write = Callable[..., Path]
Refused = Callable[..., str]


class PlainDataset(GTImageDataset):
    """As a plugin may have it: no flips, no cache, no name."""

    def __init__(self, dataroot_gt: str, *, scale: int, channels: int = 3) -> None:
        super().__init__(dataroot_gt, scale=scale, channels=channels, name="plain", use_hflip=False, use_rot=False)


@pytest.fixture(autouse=True)
def _plugin(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(DATASETS._entries, "plaindataset", PlainDataset)
    monkeypatch.setitem(DATASETS._shown, "plaindataset", "PlainDataset")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Refused:
    """Have the door refuse some options, and return what it says."""

    def said(options: dict[str, Any], *overrides: str) -> str:
        write_options(tmp_path / "run.yml", options)
        force = ["--force_yml", *overrides] if overrides else []
        assert main(["train", "-opt", "run.yml", *force]) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        assert not (tmp_path / "experiments").exists()
        return printed.err

    return said


def plain(gt: Path, where: str = "train", **more: Any) -> dict[str, Any]:
    return merged(tiny_options(gt), {"datasets": {where: {"dataroot_gt": str(gt), **more}}}) | {"name": "plain"}


@pytest.mark.parametrize(
    ("where", "option", "line"),
    [
        ("train", {"use_rot": True}, "use_rot: true"),
        ("train", {"dataroot_lq": "lq"}, "dataroot_lq: lq"),
        ("train", {"cache_dir": "cache"}, "cache_dir: cache"),
        ("val", {"cache_dir": "cache"}, "cache_dir: cache"),
    ],
)
def test_an_option_its_dataset_does_not_take_is_refused(
    tmp_path: Path, write_images: Write, refused: Refused, where: str, option: dict[str, Any], line: str
) -> None:
    options = plain(write_images("gt", 2), where, **option)
    options["datasets"][where]["type"] = "PlainDataset"
    said = refused(options)
    number = next(n for n, text in enumerate((tmp_path / "run.yml").read_text().splitlines(), 1) if line in text)
    assert f"run.yml:{number}:" in said
    assert f"dataset 'PlainDataset' has no argument '{next(iter(option))}'" in said


def test_options_of_plan_and_loader_are_taken_whatever_the_dataset(tmp_path: Path, write_images: Write) -> None:
    gt = write_images("gt", 2)
    options = plain(gt, name="a", accum_iter=1, lookahead=2, dataroot_lq=None)
    options["datasets"]["train"]["type"] = "PlainDataset"
    options["train"]["total_iter"] = 1
    file = write_options(tmp_path / "run.yml", options)
    assert main(["train", "-opt", "run.yml"]) == 0
    assert (run_directory(file, "plain") / "checkpoints" / "latest.json").is_file()


def test_an_image_too_small_for_a_metric_is_found_before_the_run(
    tmp_path: Path, write_images: Write, refused: Refused
) -> None:
    gt = write_images("gt", 2)
    assert cv2.imwrite(str(gt / "small.png"), np.zeros((10, 30, 3), np.uint8))
    options = tiny_options(
        gt,
        datasets={"val": {"name": "photos", "dataroot_gt": str(gt)}},
        val={"metrics": {"ssim": {"type": "calculate_ssim"}}},
    )
    said = refused(options)
    assert "run.yml:" in said
    assert "dataset 'photos': ssim cannot be computed for" in said
    assert "small.png: SSIM needs at least 11x11 px; an image of 10x10 px" in said
    said = refused(options, "val:metrics={p: {type: psnr, crop_border: 5}}")
    assert "--force_yml:" in said
    assert "p cannot be computed for" in said
