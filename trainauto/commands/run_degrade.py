"""What ``python -m trainauto degrade`` draws and writes."""

import argparse
import textwrap
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont

from trainauto.builders.data import build_train_set
from trainauto.builders.image_model import build_network
from trainauto.commands.whole_options import check_components, load_whole
from trainauto.core.errors import InputError, Problem
from trainauto.core.files import remove_leftovers, write_atomically
from trainauto.core.words import counted
from trainauto.data.dynamic_dataset import SampleKey
from trainauto.data.sampler import ShuffledStream
from trainauto.options.load import super_resolution_only
from trainauto.tasks.sr.data.file_datasets import PairedImageDataset
from trainauto.tasks.sr.data.geometry import in_8_bits
from trainauto.tasks.sr.data.image_dataset import ImageDataset
from trainauto.tasks.sr.data.image_io import Pixels
from trainauto.tasks.sr.degradations import Drawn

SIDE_PX, GAP_PX, TEXT_PX = 256, 8, 400
"""Of a picture on the sheet, between them, and of the text beside them."""
LINE_PX, LETTERS = 14, 66


def degrade(parsed: argparse.Namespace) -> int:
    """Write what is asked for, and say what was written.

    Raises:
        InputError: options cannot be used, or the training set makes no low-quality images.
    """
    advice = "Training sets of other tasks are not degraded."
    loaded = super_resolution_only(load_whole(parsed.opt, parsed.force_yml), "degrade", advice)
    check_components(loaded)
    options = loaded.options
    dataset, _ = build_train_set(loaded, build_network(loaded, pretrained=False))
    if not isinstance(dataset, ImageDataset):
        raise InputError(f"{type(dataset).__name__} does not say what it draws")
    if parsed.sheet is not None:
        samples = first_samples(dataset, options.manual_seed, options.datasets.train.lq_size, parsed.count)
        sheet = sheet_of(samples)
        write_atomically(parsed.sheet, lambda file: sheet.save(file, format=parsed.sheet_format))
        print(f"{parsed.sheet}: the first {counted(len(samples), 'sample')} of the run")
    if parsed.folder is not None:
        if isinstance(dataset, PairedImageDataset):
            advice = "Write type: RealESRGANDataset and leave dataroot_lq out."
            raise InputError(Problem("--folder: this set has low-quality images of its own", advice=advice))
        write_pairs(dataset, parsed.folder)
        print(f"{parsed.folder}: {counted(dataset.images, 'pair')} in gt and lq")
    return 0


def first_samples(
    dataset: ImageDataset, seed: int, side: int, count: int
) -> list[tuple[str, dict[str, Pixels], list[Drawn]]]:
    """Return the first samples of a run with what was drawn for them, each with the name of its file."""
    stream = ShuffledStream(len(dataset), seed)
    keys = [SampleKey(stream.index_at(place), side, stream.seed_at(place)) for place in range(count)]
    return [(dataset.sample_key(key.sample), *dataset.drawn(key)) for key in keys]


def sheet_of(samples: Sequence[tuple[str, dict[str, Pixels], list[Drawn]]]) -> Image.Image:
    """Return a picture with a row a sample: the low-quality crop, the high-quality one, the steps."""
    rows = [_row(*sample) for sample in samples]
    sheet = Image.new("RGB", (rows[0].width, sum(row.height + GAP_PX for row in rows) - GAP_PX), "white")
    top = 0
    for row in rows:
        sheet.paste(row, (0, top))
        top += row.height + GAP_PX
    return sheet


def _row(name: str, pixels: dict[str, Pixels], drawn: Sequence[Drawn]) -> Image.Image:
    lines = [name, *(line for step in drawn for line in textwrap.wrap(words_of(step), LETTERS, subsequent_indent="  "))]
    row = Image.new("RGB", (2 * SIDE_PX + TEXT_PX + 2 * GAP_PX, max(SIDE_PX, LINE_PX * (len(lines) + 1))), "white")
    for place, key in enumerate(("lq", "gt")):
        shown = _image(pixels[key]).resize((SIDE_PX, SIDE_PX), Image.Resampling.NEAREST)
        row.paste(shown, (place * (SIDE_PX + GAP_PX), 0))
    text = ImageDraw.Draw(row)
    font = ImageFont.load_default(LINE_PX - 3)
    for number, line in enumerate(lines):
        text.text((2 * (SIDE_PX + GAP_PX), number * LINE_PX), line, fill="black", font=font)
    return row


def words_of(step: Drawn) -> str:
    """Say a step on one line: ``noise: kind gaussian, strength 12.3``."""
    values = ", ".join(f"{name} {_value(value)}" for name, value in step.values.items())
    return f"{step.step}: {values}" if values else step.step


def _value(value: object) -> str:
    if isinstance(value, tuple):
        return "x".join(map(_value, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def write_pairs(dataset: ImageDataset, folder: Path) -> None:
    """Write every whole image of a set and its degraded version, each as PNG of the same name."""
    remove_leftovers(folder, below=True)
    for index in range(dataset.images):
        sample = dataset.full_sample(index)
        for kind in ("gt", "lq"):
            pixels = sample[kind].permute(1, 2, 0).numpy()
            encoded = cv2.imencode(".png", np.ascontiguousarray(pixels[:, :, ::-1]))[1].tobytes()
            file = folder / kind / f"{dataset.sample_key(index)}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(file, lambda path, encoded=encoded: path.write_bytes(encoded))  # type: ignore[misc]


def _image(pixels: Pixels) -> Image.Image:
    pixels = in_8_bits(torch.from_numpy(np.ascontiguousarray(pixels))).numpy()
    return Image.fromarray(np.ascontiguousarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels))
