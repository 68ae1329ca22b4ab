"""Images as people have them: photographs on their side, and samples of 16 bits."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from tests.integration.commands import command, run_directory, step_records, tiny_options, train, write_options
from tests.unit.tasks.sr.data.test_image_sets import save_turned

SIZE_PX = 48, 72
"""Height and width of a low-quality image as it is seen: no square, and a quarter turn does not fit the other one."""


def write_pairs(folder: Path, photograph: np.ndarray, gt_turn: int, lq_turn: int) -> tuple[Path, Path]:
    """Write three pairs of x2 with these EXIF orientations; as they are seen, they do not depend on them."""
    height, width = SIZE_PX
    for number in range(3):
        gt = photograph[20 * number : 20 * number + 2 * height, 30 * number : 30 * number + 2 * width]
        lq = cv2.resize(gt, (width, height), interpolation=cv2.INTER_AREA)
        for side, pixels, turn in (("gt", gt, gt_turn), ("lq", lq, lq_turn)):
            (folder / side).mkdir(parents=True, exist_ok=True)
            save_turned(folder / side / f"{number}.png", pixels, turn)
    return folder / "gt", folder / "lq"


def paired_options(gt: Path, lq: Path, **changes: Any) -> dict[str, Any]:
    roots = {"type": "PairedImageDataset", "dataroot_gt": str(gt), "dataroot_lq": str(lq)}
    options = tiny_options(gt, train={"total_iter": 3}, val={"val_freq": 3}, **changes)
    options["datasets"] = {"train": {**options["datasets"]["train"], **roots}, "val": roots}
    return options


def stored_size(file: Path) -> tuple[int, ...]:
    pixels = cv2.imread(str(file), cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION)
    assert pixels is not None
    return pixels.shape[:2]


def test_photographs_on_their_side_train_and_enlarge_as_upright_ones(tmp_path: Path, photograph: np.ndarray) -> None:
    figures: dict[str, Mapping[str, Any]] = {}
    enlarged = []
    for name, turns in {"upright": (1, 1), "turned": (6, 3)}.items():
        gt, lq = write_pairs(tmp_path / name, photograph, *turns)
        done = train(write_options(tmp_path / name / "run.yml", paired_options(gt, lq)))
        assert done.returncode == 0, done.stderr
        assert f"the smallest: {SIZE_PX[0]} px of the input" in done.stdout
        run = run_directory(tmp_path / name / "run.yml")
        validation = (run / "validation.jsonl").read_text().splitlines()
        figures[name] = {
            "losses": [record["losses"] for record in step_records(run)],
            "scores": [line.partition('"seconds"')[0] for line in validation],
        }
        done = command("upscale", str(run), str(lq), "large", cwd=tmp_path / name)
        assert done.returncode == 0, done.stderr
        enlarged.append([cv2.imread(str(tmp_path / name / "large" / f"{number}.png")) for number in range(3)])
    assert stored_size(tmp_path / "turned" / "gt" / "0.png") == (2 * SIZE_PX[1], 2 * SIZE_PX[0])
    assert len(figures["upright"]["losses"]) == 3
    assert figures["turned"] == figures["upright"]
    # The two networks are the same, for they were trained on the same pixels.
    for one, other in zip(*enlarged, strict=True):
        assert one.shape[:2] == (2 * SIZE_PX[0], 2 * SIZE_PX[1])
        assert np.array_equal(one, other)


def test_a_pair_of_which_one_lies_on_its_side_starts_no_run(tmp_path: Path, photograph: np.ndarray) -> None:
    gt, lq = write_pairs(tmp_path, photograph, 6, 1)
    for file in gt.iterdir():  # the same pixels without the tag
        pixels = cv2.imread(str(file), cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION)
        assert cv2.imwrite(str(file), pixels)
    done = train(write_options(tmp_path / "run.yml", paired_options(gt, lq)))
    assert done.returncode == 2
    said = " ".join(done.stderr.split())
    assert "0.png is 96x144, but 2 times" in said
    assert "So it is with 3 of 3 pairs" in said
    assert "One of the two lies on its side: images are turned as their EXIF tag says." in said
    assert not (tmp_path / "experiments").exists()


def test_sixteen_bits_are_said_to_be_reduced_and_floating_point_is_refused(
    tmp_path: Path, write_images: Callable[..., Path], photograph: np.ndarray
) -> None:
    gt = write_images("gt", 2, (80, 100))
    for name in ("deep.png", "deeper.tif"):
        assert cv2.imwrite(str(gt / name), photograph[:80, :100].astype(np.uint16) * 257)
    file = write_options(tmp_path / "run.yml", tiny_options(gt, train={"total_iter": 1}, val={"val_enabled": False}))
    reduced = f"dataset 'train': 16 bits are reduced to 8: 2 of the images in {gt} (deep.png, ...)"
    done = train(file)
    assert done.returncode == 0, done.stderr
    said = "".join(done.stdout.split())  # a long path is wrapped anywhere
    assert said.count("".join(reduced.split())) == 1, done.stdout
    for name, pixels in (("grey", photograph[:80, :100, 0]), ("colour", photograph[:80, :100])):
        assert cv2.imwrite(str(gt / f"hdr_{name}.tif"), pixels.astype(np.float32) / 255)
    done = train(file)
    assert done.returncode == 2
    said = " ".join(done.stderr.split())
    assert "hdr_grey.tif has 32 bits a sample, which cannot be decoded" in said
    assert "hdr_colour.tif is a TIFF of a kind that is not read" in said
    assert said.count("Save it with 8 or 16 bits.") == 2
    assert len(list((tmp_path / "experiments" / "tiny").glob("2*"))) == 1
