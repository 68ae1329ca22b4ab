"""The picture of docs/losses.md: photographs enlarged by bicubic, by the first stage of a recipe, by its second; as is.

    python3 scripts/quickstart.py
    python train.py -opt options/train/gan_stage.yml --force_yml name=gan_pictures train:losses:2:loss_weight=0 \
        train:total_iter=900 val:val_freq=900
    python scripts/bench/loss_pictures.py experiments/quickstart/current experiments/gan_pictures/current

What the networks made is read from the last validation of each run. Parts of photographs are shown at twice their size.
"""

import argparse
from pathlib import Path

import numpy as np
import skimage.data
from numpy.typing import NDArray
from PIL import Image

from trainauto.core.files import write_atomically
from trainauto.tasks.sr.data.geometry import shrunk

PICTURE = Path(__file__).resolve().parents[2] / "docs" / "images" / "gan_stage.webp"
SCALE, SIDE_PX, GAP_PX, SHOWN = 2, 110, 6, 2
PARTS = (("chelsea", 60, 130), ("coffee", 200, 190))
"""Photographs of scikit-image, and the upper left corner of what is shown of each, in pixels."""

Pixels = NDArray[np.uint8]


def of_run(run: Path, name: str) -> Pixels:
    """Return what the last validation of a run made of a photograph."""
    return np.asarray(Image.open(max((run / "validation" / "photographs" / name).glob("*.png"))))


def enlarged(pixels: Pixels) -> Pixels:
    """Return an image at ``SCALE`` times its size, by Pillow's bicubic."""
    height, width = pixels.shape[:2]
    return np.asarray(Image.fromarray(pixels).resize((width * SCALE, height * SCALE), Image.Resampling.BICUBIC))


def row_of(name: str, top: int, left: int, runs: list[Path]) -> Pixels:
    """Return a part of a photograph by bicubic, by each run, and as it is, beside each other."""
    truth = getattr(skimage.data, name)()
    images = [enlarged(shrunk(truth, SCALE)), *(of_run(run, name) for run in runs), truth]
    gap = np.full((SIDE_PX, GAP_PX, 3), 255, np.uint8)
    parts = [part for image in images for part in (image[top : top + SIDE_PX, left : left + SIDE_PX], gap)]
    return np.concatenate(parts[:-1], axis=1)


def main() -> None:
    """Write the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("--out", type=Path, default=PICTURE)
    given = parser.parse_args()
    rows = [row_of(*part, given.runs) for part in PARTS]
    gap = np.full((GAP_PX, rows[0].shape[1], 3), 255, np.uint8)
    sheet = Image.fromarray(np.concatenate([rows[0], gap, rows[1]]))
    sheet = sheet.resize((sheet.width * SHOWN, sheet.height * SHOWN), Image.Resampling.NEAREST)
    write_atomically(given.out, lambda file: sheet.save(file, format="webp", quality=88))


if __name__ == "__main__":
    main()
