"""How fast one process reads samples of a training set."""

import time
from pathlib import Path
from typing import Any

from trainauto.data.dynamic_dataset import DynamicDataset, SampleKey
from trainauto.tasks.sr.data.image_io import image_size_px, read_image

MOST_IMAGES = 20
MOST_SECONDS = 3.0


def reading(dataset: DynamicDataset, lq_size: int) -> dict[str, Any]:
    """Read up to 20 samples spread over a set, within about 3 s: decoded as files, then made as samples.

    Samples are timed when they are made for the second time: a pixel cache is filled by then, as it is after an epoch.

    Raises:
        InputError: a file cannot be decoded.
    """
    count = min(MOST_IMAGES, len(dataset))
    counts: dict[str, Any] = {"images": 0, "of": len(dataset), "megapixels": 0.0}
    counts |= {"decode_seconds": 0.0, "sample_seconds": 0.0}
    channels = len(dataset[SampleKey(0, lq_size, 0)]["lq"])
    _decoded(dataset, 0, channels)  # the first image that a process decodes loads the decoder, too
    begin = time.perf_counter()
    for part in range(count):
        index = part * len(dataset) // count
        pixels, seconds = _decoded(dataset, index, channels)
        counts["decode_seconds"] += seconds
        counts["megapixels"] += pixels / 1e6
        key = SampleKey(index, lq_size, part)
        dataset[key]
        start = time.perf_counter()
        dataset[key]
        counts["sample_seconds"] += time.perf_counter() - start
        counts["images"] += 1
        if time.perf_counter() - begin > MOST_SECONDS:
            break
    return counts


def _decoded(dataset: DynamicDataset, index: int, channels: int) -> tuple[int, float]:
    """Return pixels and seconds of decoding a sample's file; zeros where it is none (a dataset of one's own)."""
    name = dataset.sample_name(index)
    if not Path(name).is_file():
        return 0, 0.0
    height, width = image_size_px(name)
    start = time.perf_counter()
    read_image(name, channels)
    return height * width, time.perf_counter() - start
