"""Write scikit-learn's images of handwritten digits as FOLDER/train/CLASS/NAME.png and FOLDER/val/CLASS/NAME.png."""

import sys
from pathlib import Path

import cv2
import numpy as np
from sklearn.datasets import load_digits

EVERY = 6
"""One image of so many is for validation."""


def write_digits(folder: Path, most: int | None = None) -> None:
    """Write the first ``most`` images; all of them where it is ``None``."""
    digits = load_digits()
    for number, (image, label) in enumerate(zip(digits.images[:most], digits.target[:most], strict=True)):
        file = folder / ("val" if number % EVERY == 0 else "train") / str(label) / f"{number:04}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(file), np.uint8(image * 15))


if __name__ == "__main__":
    write_digits(Path(sys.argv[1] if len(sys.argv) > 1 else "data/digits"))
