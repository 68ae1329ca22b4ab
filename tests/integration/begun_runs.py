"""Runs of twelve steps, trained once for a file of tests, whose copies are resumed after something has happened."""

import shutil
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from tests.integration.commands import Ended, tiny_options, train, write_options

MORE = ("--force_yml", "train:total_iter=15")


def trained_in(folder: Path, photograph: np.ndarray, images: int, **changes: Any) -> Path:
    """Train on ``images`` cuts of a photograph in ``folder/gt``; return the option file."""
    (folder / "gt").mkdir()
    for number in range(images):
        assert cv2.imwrite(str(folder / "gt" / f"image_{number:03d}.png"), photograph[7 * number :][:60, :70])
    file = write_options(folder / "run.yml", tiny_options(Path("gt"), **changes))
    done = train(file)
    assert done.returncode == 0, done.stderr
    return file


def copied(file: Path, folder: Path) -> Path:
    """Copy an option file with its images and runs; return the option file of the copy."""
    shutil.copytree(file.parent, folder, symlinks=True)
    return folder / file.name


def words_of(done: Ended) -> str:
    """Return all that a command said, on one line."""
    return " ".join((done.stdout + done.stderr).split())
