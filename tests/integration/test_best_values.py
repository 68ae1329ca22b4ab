"""The best checkpoint of a run: blank pages do not decide it, and it belongs to what it was measured by."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from tests.integration.commands import run_directory, tiny_options, train, write_options

Write = Callable[..., Path]


def noted_best(run: Path) -> dict[str, Any]:
    best: dict[str, Any] = json.loads((run / "checkpoints" / "latest.json").read_text())["best"]
    return best


def last_table(output: str) -> list[str]:
    """Return metric, last, best and its step, as the console says in the end."""
    lines = output[output.rindex("validated: the last value") :].splitlines()
    return next(line.split()[:4] for line in lines if line.split()[:1] == ["psnr"])


def test_a_blank_page_is_left_out_and_the_best_goes_with_its_arguments(tmp_path: Path, write_images: Write) -> None:
    train_set, pages = write_images("gt", 3), write_images("pages", 2, (48, 60))
    cv2.imwrite(str(pages / "blank.png"), np.full((48, 60, 3), 0, np.uint8))
    changes = {"datasets": {"val": {"dataroot_gt": str(pages)}}, "val": {"val_freq": 3}}
    options = write_options(tmp_path / "x.yml", tiny_options(train_set, **changes))
    done = train(options)
    assert done.returncode == 0, done.stderr
    run = run_directory(options)
    lines = [json.loads(line) for line in (run / "validation.jsonl").read_text().splitlines()]
    means = {line["step"]: line["metrics"]["psnr"] for line in lines}
    assert all(line["left_out"] == {"psnr": 1} and 5 < line["bicubic"]["psnr"] < 60 for line in lines)
    best_step = max(means, key=lambda step: means[step])
    assert (noted_best(run)["step"], noted_best(run)["value"]) == (best_step, means[best_step])
    assert last_table(done.stdout)[2:] == [f"{means[best_step]:.4f}", str(best_step)]
    assert "the mean of psnr leaves out 1 image, whose psnr (or that of bicubic) is infinite" in " ".join(
        done.stdout.split()
    )

    # The same metric with another argument: lower values, which no checkpoint of before compares with.
    changes["val"] |= {"metrics": {"psnr": {"type": "calculate_psnr", "test_y_channel": True, "crop_border": 8}}}
    write_options(options, tiny_options(train_set, **changes, train={"total_iter": 18}))
    done = train(options, "--auto_resume")
    assert done.returncode == 0, done.stderr
    found = noted_best(run)
    assert found["step"] > 12
    assert "calculate_psnr(crop_border=8, test_y_channel=True) on 3 images" in found["measured_by"]
    assert last_table(done.stdout)[2:] == [f"{found['value']:.4f}", str(found["step"])]
    assert done.stdout.replace("\n    ", " ").count("the comparison restarts") == 1
