"""Validation of one set: enlarge every image, measure it, keep the pictures."""

import inspect
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import cv2
import torch
import torch.nn.functional as F
from torch import Tensor

from trainauto.core.files import place_below, write_atomically
from trainauto.core.mean_scores import mean_scores
from trainauto.core.process import Limited, without_memory_limit
from trainauto.core.records import ImageScore, ValidationRecord
from trainauto.core.run_events import ImageArray, Picture
from trainauto.core.words import counted
from trainauto.data.dynamic_dataset import DynamicDataset
from trainauto.tasks.sr.models.tiles import Enlarge, TiledEnlarger

Metric = Callable[[ImageArray, ImageArray], float]

SHOWN_PICTURES = 4
_DIGEST_SIGNS = 12
"""Of the digest of a set's names and sizes that are written beside its metrics."""


@dataclass(frozen=True)
class ImageResult:
    """An image that was enlarged and measured.

    Attributes:
        score: its metrics.
        output: what the network made; ``None`` where nobody wants to see it.
        bicubic: plain enlargement of the input, where the image is to be shown.
        reference: what it should have been, where the image is to be shown.
        ooms: times memory ran out on the way, so that tiles shrank.
    """

    score: ImageScore
    output: ImageArray | None = None
    bicubic: ImageArray | None = None
    reference: ImageArray | None = None
    ooms: int = 0


class StopHeard(BaseException):
    """A stop was asked for while an image was under way. Like Ctrl-C it is no error that other code may swallow."""


class ValidationGroup(Protocol):
    """Who validates a set together: each takes every ``count``-th image.

    Attributes:
        rank: number of this process.
        count: how many there are.
    """

    rank: int
    count: int

    def stop(self) -> bool:
        """Whether to give up; asked before each round of images, and the same for all."""

    def heeding(self, enlarge: Enlarge) -> AbstractContextManager[Enlarge]:
        """Yield the network for one image; a stop that comes meanwhile raises :class:`StopHeard`."""

    def leave(self) -> None:
        """Tell the others that this one has left its image for a stop; comes in place of :meth:`meet`."""

    def meet(self, mine: ImageResult | None) -> list[ImageResult] | None:
        """Return what all have judged in this round, in their order; ``None`` if any has left.

        Args:
            mine: what this one has judged; ``None`` is nothing.
        """


class LocalValidation:
    """A process that validates all images itself; ``stop`` is asked before each."""

    rank = 0
    count = 1

    def __init__(self, stop: Callable[[], bool] = lambda: False) -> None:
        self._stop = stop

    def stop(self) -> bool:
        """Whether to give up."""
        return self._stop()

    def heeding(self, enlarge: Enlarge) -> AbstractContextManager[Enlarge]:
        """Yield the network; nothing is heard within an image."""
        return nullcontext(enlarge)

    def leave(self) -> None:
        """There are no others."""

    def meet(self, mine: ImageResult | None) -> list[ImageResult]:
        """Return what was judged."""
        return [mine] if mine is not None else []


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
        by_step: keep the picture of every step; otherwise the last one, under the name of the image.
    """

    def __init__(
        self,
        dataset: DynamicDataset,
        metrics: Mapping[str, Metric],
        better_is_higher: Mapping[str, bool],
        enlarger: TiledEnlarger,
        device: torch.device,
        pictures: Path | None = None,
        *,
        by_step: bool = True,
    ) -> None:
        self.dataset = dataset
        self._metrics = dict(metrics)
        self._better_is_higher = dict(better_is_higher)
        self._enlarger = enlarger
        self._device = device
        self._pictures = pictures
        self._by_step = by_step
        self._bicubic: dict[int, Mapping[str, float]] = {}
        samples = f"{counted(len(dataset), 'image')} {dataset.digest[:_DIGEST_SIGNS]}".rstrip()
        self._measured_by = {name: f"{_in_words(metric)} on {samples}" for name, metric in metrics.items()}

    def run_model(
        self, model: Any, step: int, group: ValidationGroup | None = None
    ) -> tuple[ValidationRecord, list[Picture]] | None:
        """Validate a model by its ``enlarge``."""
        return self.run(model.enlarge, step, group)

    def run(
        self, enlarge: Enlarge, step: int, judges: ValidationGroup | None = None
    ) -> tuple[ValidationRecord, list[Picture]] | None:
        """Validate after ``step``; return the record and the first few pictures.

        Once the judges want to stop, there is no result.
        """
        with without_memory_limit() as limited:
            return self._run(enlarge, step, judges or LocalValidation(), limited)

    def _run(
        self, enlarge: Enlarge, step: int, judges: ValidationGroup, limited: Limited
    ) -> tuple[ValidationRecord, list[Picture]] | None:
        start = time.perf_counter()
        scores: list[ImageScore] = []
        shown: list[Picture] = []
        ooms = 0
        for first in range(0, len(self.dataset), judges.count):
            if judges.stop():
                return None
            together = self._round(enlarge, first, judges, limited)
            if together is None:
                return None
            for judged in together:
                ooms += judged.ooms
                scores.append(judged.score)
                if judged.output is None:
                    continue
                if self._pictures is not None:
                    _write_picture(self._file(self._pictures, judged.score.name, step), judged.output)
                if len(shown) < SHOWN_PICTURES:
                    shown.append(Picture(judged.score.name, judged.output, judged.bicubic, judged.reference))
        metrics, baseline, left_out = mean_scores(scores)
        record = ValidationRecord(
            step=step,
            dataset=self.dataset.name,
            metrics=metrics,
            baseline=baseline,
            scores=tuple(scores),
            seconds=time.perf_counter() - start,
            tile_px=self._enlarger.tile_px,
            better_is_higher=self._better_is_higher,
            ooms=ooms,
            left_out=left_out,
            measured_by=self._measured_by,
        )
        return record, shown

    def _round(
        self, enlarge: Enlarge, first: int, judges: ValidationGroup, limited: Limited
    ) -> list[ImageResult] | None:
        """Judge one image, and return what all have judged meanwhile; ``None`` if any has heard of a stop."""
        index, mine = first + judges.rank, None
        try:
            if index < len(self.dataset):
                with judges.heeding(enlarge) as heeded:
                    mine = self._judged(heeded, index, limited)
        except StopHeard:
            judges.leave()
            return None
        return judges.meet(mine)

    def _file(self, folder: Path, name: str, step: int) -> Path:
        place = place_below(folder, name)
        return place / f"{step:08d}.png" if self._by_step else place.with_name(f"{place.name}.png")

    @property
    def overlap_px(self) -> int:
        """Pixels that tiles see beyond their own."""
        return self._enlarger.overlap_px

    def largest_fits(self, enlarge: Enlarge, limited: Limited) -> bool:
        """Say whether the largest image of the set can be enlarged under a limit, be it in the smallest tiles.

        What validation holds beside it is held here, too.

        Raises:
            InputError: the image cannot be read.
        """
        sample = self.dataset.full_sample(self.dataset.largest_sample)
        lq, reference = sample["lq"][None].float() / 255, _to_pixels(sample["gt"])
        fits = self._enlarger.smallest_fits(enlarge, lq.to(self._device), limited)
        del reference
        return fits

    def warm_up(self) -> None:
        """Measure a small image once: metrics load their libraries when they are first called."""
        image = torch.zeros(64, 64, 3, dtype=torch.uint8).numpy()
        for metric in self._metrics.values():
            metric(image, image)

    def _judged(self, enlarge: Enlarge, index: int, limited: Limited) -> ImageResult:
        sample = self.dataset.full_sample(index)
        lq = sample["lq"][None].float() / 255
        reference = _to_pixels(sample["gt"])
        ooms_before = self._enlarger.ooms
        with limited():
            enlarged = self._enlarger(enlarge, lq.to(self._device))
        output = _to_pixels(enlarged[0] * 255)
        is_shown = index < SHOWN_PICTURES
        bicubic = None
        if index not in self._bicubic or is_shown:
            size = reference.shape[:2]
            bicubic = _to_pixels(F.interpolate(lq, size, mode="bicubic", antialias=True, align_corners=False)[0] * 255)
            self._bicubic.setdefault(index, self._measured(bicubic, reference))
        score = ImageScore(self.dataset.sample_key(index), self._measured(output, reference), self._bicubic[index])
        ooms = self._enlarger.ooms - ooms_before
        if is_shown:
            return ImageResult(score, output, bicubic, reference, ooms=ooms)
        return ImageResult(score, output if self._pictures is not None else None, ooms=ooms)

    def _measured(self, image: ImageArray, reference: ImageArray) -> dict[str, float]:
        return {name: metric(image, reference) for name, metric in self._metrics.items()}


def _in_words(metric: Metric) -> str:
    """Return the name of a metric with all of its arguments, those at their defaults included."""
    function = metric.func if isinstance(metric, partial) else metric
    name = getattr(function, "__name__", type(function).__name__)
    with suppress(ValueError, TypeError):  # of a function that does not say what it takes
        parameters = inspect.signature(metric).parameters.values()
        given = [f"{one.name}={one.default}" for one in parameters if one.default is not one.empty]
        return f"{name}({', '.join(given)})"
    return name


def _to_pixels(image: Tensor) -> ImageArray:
    """Return an image (C, H, W) in 0..255 as rounded (H, W, C) pixels."""
    pixels: ImageArray = image.float().round().clamp(0, 255).to(torch.uint8).permute(1, 2, 0).contiguous().numpy()
    return pixels


def _write_picture(file: Path, pixels: ImageArray) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    stored = cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR) if pixels.shape[2] == 3 else pixels
    _, encoded = cv2.imencode(".png", stored)

    def write(temporary: Path) -> None:
        temporary.write_bytes(encoded.tobytes())

    write_atomically(file, write)
