"""Metrics of a trained network: of a run on its own sets, and of weights that a test file names."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from tests.integration.commands import Ended, command, write_options
from tests.made_runs import make_run, options_of

Write = Callable[..., Path]
TEST = Path(__file__).parents[2] / "test.py"
METRICS = {"psnr": {"type": "calculate_psnr", "crop_border": 2}, "ssim": {"type": "calculate_ssim", "crop_border": 2}}
NETWORK = {"type": "compact", "num_feat": 4, "num_conv": 1}


def measured(*arguments: object, cwd: Path) -> Ended:
    return command("test", *map(str, arguments), cwd=cwd)


@pytest.fixture
def run(tmp_path: Path, write_images: Write) -> Path:
    write_images("gt", 2, (48, 60))
    options = options_of(NETWORK, val={"metrics": METRICS, "val_enabled": False}, device="cpu", num_threads=1)
    return make_run(tmp_path, options, steps=(10, 20), best=10).path


def write_folder(images: Path, folder: Path) -> Path:
    shutil.copytree(images, folder)
    return folder


def lines_of(results: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (results / "metrics.jsonl").read_text().splitlines()]


def test_a_run_and_the_same_weights_in_a_test_file_give_the_same_figures(tmp_path: Path, run: Path) -> None:
    done = measured(run, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert ", step 10, averaged weights: compact x2" in done.stdout  # the best, not the latest
    assert all(len(line) <= 80 for line in done.stdout.splitlines())
    of_run = lines_of(tmp_path / "results" / "made")
    assert [line.get("image") for line in of_run] == ["image_000", "image_001", None]
    means = of_run[-1]
    for name in METRICS:
        values = [line["metrics"][name] for line in of_run[:-1]]
        assert means["mean"][name] == pytest.approx(sum(values) / 2)
        assert f"{means['mean'][name]:.4f}" in done.stdout
        assert f"{means['bicubic'][name]:.4f}" in done.stdout
    elsewhere = write_folder(tmp_path / "gt", tmp_path / "other images")
    done = measured(run, elsewhere, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "metrics.jsonl also keeps what was measured before on val" in done.stdout
    both = lines_of(tmp_path / "results" / "made")
    assert both[:3] == of_run
    of_folder = both[3:]
    assert [line["dataset"] for line in of_folder] == ["other_images"] * 3
    assert [line.get("metrics") for line in of_folder] == [line.get("metrics") for line in of_run]
    missing = measured(run, tmp_path / "not_there", cwd=tmp_path)
    assert missing.returncode == 2
    assert "there is no" in missing.stderr

    picture = cv2.imread(str(tmp_path / "results" / "made" / "val" / "image_000.png"))
    assert picture.shape == (48, 60, 3)

    weights = run / "checkpoints" / "step_00000010" / "net_g_ema.safetensors"
    sets = {"test_1": {"name": "mine", "type": "GTImageDataset", "dataroot_gt": "gt"}}
    options = {
        "name": "again",
        "scale": 2,
        "device": "cpu",
        "num_threads": 1,
        "datasets": sets,
        "network_g": NETWORK,
        "path": {"pretrain_network_g": str(weights), "results_root": "elsewhere"},
        "val": {"metrics": METRICS, "save_img": False},
    }
    file = write_options(tmp_path / "test.yml", options)
    done = measured("-opt", file, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    of_file = lines_of(tmp_path / "elsewhere" / "again")
    assert [line["metrics"] for line in of_file[:-1]] == [line["metrics"] for line in of_run[:-1]]
    assert not (tmp_path / "elsewhere" / "again" / "mine").exists()

    del options["network_g"], options["path"]
    done = measured(run, "--checkpoint", "latest", "-opt", write_options(file, options), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    later = lines_of(tmp_path / "results" / "again")
    assert (later[0]["dataset"], later[-1]["step"]) == ("mine", 20)
    assert later[-1]["mean"] != of_run[-1]["mean"]
    assert later[-1]["bicubic"] == of_run[-1]["bicubic"]


def test_what_cannot_be_measured_is_said(tmp_path: Path, run: Path) -> None:
    done = measured(cwd=tmp_path)
    assert (done.returncode, "Neither RUN nor -opt" in done.stderr) == (2, True)
    sets = {"test": {"type": "GTImageDataset", "dataroot_gt": "gt"}}
    options = {"name": "t", "scale": 2, "datasets": sets, "network_g": NETWORK, "val": {"metrics": METRICS}}
    file = write_options(tmp_path / "test.yml", options)
    done = measured("-opt", file, cwd=tmp_path)
    assert (done.returncode, "'pretrain_network_g' is missing" in done.stderr) == (2, True)
    done = measured(run, "-opt", file, cwd=tmp_path)
    assert done.returncode == 2
    assert "test.yml:7:1: network_g is given, and the RUN brings its own" in done.stderr
    assert not (tmp_path / "results").exists()


def test_a_damaged_line_costs_no_figures_of_other_sets(tmp_path: Path, run: Path, photograph: np.ndarray) -> None:
    assert measured(run, cwd=tmp_path).returncode == 0
    results = tmp_path / "results" / "made"
    before = lines_of(results)
    file = results / "metrics.jsonl"
    file.write_text(file.read_text() + '{"torn": \n\n')
    (tmp_path / "others").mkdir()
    cv2.imwrite(str(tmp_path / "others" / "one.png"), photograph[:48, :60])
    assert measured(run, "others", cwd=tmp_path).returncode == 0
    after = lines_of(results)
    assert after[: len(before)] == before
    assert len(after) > len(before)
