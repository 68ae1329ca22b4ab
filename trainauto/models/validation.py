"""Validation of one set: enlarge every image, measure it, keep the pictures."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import cv2
import torch
import torch.nn.functional as F
from torch import Tensor

from trainauto.core.process import Limited, without_memory_limit
from trainauto.core.records import ImageScore, ValidationRecord
from trainauto.core.reports import Picture, Pixels
from trainauto.data.dynamic_dataset import DynamicDataset
from trainauto.models.tiles import Enlarge, TiledEnlarger

Metric = Callable[[Pixels, Pixels], float]

SHOWN_PICTURES = 4


class Validator:
    """One validation set with its metrics.

    The score of plain bicubic enlargement is measured beside the network's: a number nobody can compare says little.

    Args:
        dataset: whole images.
        metrics: by name; each maps (output, reference) to a number.
        better_is_higher: for each metric, whether a higher value is better.
        enlarger: runs the network, in tiles where needed.
        device: where the network runs.
        pictures: folder for enlarged images; ``None`` keeps none.
    """

    def __init__(
        self,
        dataset: DynamicDataset,
        metrics: Mapping[str, Metric],
        better_is_higher: Mapping[str, bool],
        enlarger: TiledEnlarger,
        device: torch.device,
        pictures: Path | None = None,
    ) -> None:
        self.dataset = dataset
        self._metrics = dict(metrics)
        self._better_is_higher = dict(better_is_higher)
        self._enlarger = enlarger
        self._device = device
        self._pictures = pictures
        self._bicubic: dict[int, Mapping[str, float]] = {}

    def run(
        self, enlarge: Enlarge, step: int, stop: Callable[[], bool] = lambda: False
    ) -> tuple[ValidationRecord, list[Picture]] | None:
        """Validate after ``step``; return the record and the first few pictures.

        ``stop`` is asked before each image; once it says so, there is no result.
        """
        with without_memory_limit() as limited:
            return self._run(enlarge, step, stop, limited)

    def _run(
        self, enlarge: Enlarge, step: int, stop: Callable[[], bool], limited: Limited
    ) -> tuple[ValidationRecord, list[Picture]] | None:
        start = time.perf_counter()
        scores: list[ImageScore] = []
        shown: list[Picture] = []
        for index in range(len(self.dataset)):
            if stop():
                return None
            picture, reference = self._enlarged(enlarge, index, limited)
            if index not in self._bicubic and picture.bicubic is not None:
                self._bicubic[index] = self._measured(picture.bicubic, reference)
            scores.append(ImageScore(picture.name, self._measured(picture.output, reference), self._bicubic[index]))
            if self._pictures is not None:
                _write_picture(self._pictures / picture.name / f"{step:08d}.png", picture.output)
            if index < SHOWN_PICTURES:
                shown.append(picture)
        record = ValidationRecord(
            step=step,
            dataset=self.dataset.name,
            metrics=_means([score.metrics for score in scores]),
            bicubic=_means([score.bicubic for score in scores]),
            scores=tuple(scores),
            seconds=time.perf_counter() - start,
            tile_px=self._enlarger.tile_px,
            better_is_higher=self._better_is_higher,
        )
        return record, shown

    def warm_up(self) -> None:
        """Measure a small image once: metrics load their libraries when they are first called."""
        image = torch.zeros(64, 64, 3, dtype=torch.uint8).numpy()
        for metric in self._metrics.values():
            metric(image, image)

    def _enlarged(self, enlarge: Enlarge, index: int, limited: Limited) -> tuple[Picture, Pixels]:
        sample = self.dataset.whole(index)
        lq = sample["lq"][None].float() / 255
        reference = _to_pixels(sample["gt"])
        with limited():
            enlarged = self._enlarger(enlarge, lq.to(self._device))
        output = _to_pixels(enlarged[0] * 255)
        bicubic = None
        if index not in self._bicubic or index < SHOWN_PICTURES:
            size = reference.shape[:2]
            bicubic = _to_pixels(F.interpolate(lq, size, mode="bicubic", antialias=True, align_corners=False)[0] * 255)
        return Picture(self.dataset.sample_key(index), output, bicubic, reference), reference

    def _measured(self, image: Pixels, reference: Pixels) -> dict[str, float]:
        return {name: metric(image, reference) for name, metric in self._metrics.items()}


def _means(measured: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: sum(one[name] for one in measured) / len(measured) for name in measured[0]} if measured else {}


def _to_pixels(image: Tensor) -> Pixels:
    """Return an image (C, H, W) in 0..255 as rounded (H, W, C) pixels."""
    pixels: Pixels = image.float().round().clamp(0, 255).to(torch.uint8).permute(1, 2, 0).contiguous().numpy()
    return pixels


def _write_picture(file: Path, pixels: Pixels) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    stored = cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR) if pixels.shape[2] == 3 else pixels
    _, encoded = cv2.imencode(".png", stored)
    file.write_bytes(encoded.tobytes())
