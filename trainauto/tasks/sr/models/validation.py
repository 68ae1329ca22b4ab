"""Validation of one set: enlarge every image, measure it, keep the pictures."""

import inspect
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

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
from trainauto.memory.monitor.oom import is_out_of_memory
from trainauto.tasks.sr.data.geometry import in_8_bits, largest_of
from trainauto.tasks.sr.data.large_images import empty_pixels
from trainauto.tasks.sr.models.tiles import Box, Enlarge, Read, TiledEnlarger
from trainauto.tasks.sr.models.validation_group import ImageResult, LocalValidation, StopHeard, ValidationGroup

Metric = Callable[[ImageArray, ImageArray], float]

SHOWN_PICTURES = 4
_DIGEST_SIGNS = 12
"""Of the digest of a set's names and sizes that are written beside its metrics."""


class NoRoomBesideTilesError(MemoryError):
    """Memory ran out in a validation while no tile was under way; says when."""


@contextmanager
def naming_shortage(when: str) -> Iterator[None]:
    """Have a lack of memory say that it is none of tiles, which smaller ones would not cure.

    Raises:
        NoRoomBesideTilesError: memory ran out.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise NoRoomBesideTilesError(when) from error


class Validator:
    """One validation set with its metrics.

    The score of plain bicubic enlargement is measured beside the network's: a number without comparison says little.

    Args:
        dataset: whole images.
        metrics: by name; each maps (output, reference) to a number.
        better_is_higher: for each metric, whether a higher value is better.
        enlarger: runs the network, in tiles where needed.
        device: where the network runs.
        pictures: folder for enlarged images; ``None`` keeps none.
        by_step: keep the picture of every step; otherwise the last one, under the name of the image.
        scratch: folder for the pixels of large images while they are measured; ``None`` holds them in memory.

    Attributes:
        is_rehearsal: only the largest image is validated, to see that it can be.
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
        scratch: Path | None = None,
    ) -> None:
        self.dataset = dataset
        self.is_rehearsal = False
        self._scratch = scratch
        self._metrics = dict(metrics)
        self._better_is_higher = dict(better_is_higher)
        self._enlarger = enlarger
        self._device = device
        self._pictures = pictures
        if pictures is not None:
            pictures.parent.parent.mkdir(parents=True, exist_ok=True)
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
        indices = self._indices
        for first in range(0, len(indices), judges.count):
            if judges.stop():
                return None
            together = self._round(enlarge, indices[first : first + judges.count], judges, limited)
            if together is None:
                return None
            for judged in together:
                ooms += judged.ooms
                scores.append(judged.score)
                if judged.output is None:
                    continue
                if self._pictures is not None:
                    _write_picture(self._pictures, self._file(self._pictures, judged.score.name, step), judged.output)
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

    @property
    def _indices(self) -> Sequence[int]:
        """The images to validate on."""
        return [self.dataset.largest_sample] if self.is_rehearsal else range(len(self.dataset))

    def _round(
        self, enlarge: Enlarge, indices: Sequence[int], judges: ValidationGroup, limited: Limited
    ) -> list[ImageResult] | None:
        """Judge one image, and return what all have judged meanwhile; ``None`` if any has heard of a stop."""
        mine = None
        try:
            if judges.rank < len(indices):
                with judges.heeding(enlarge) as heeded:
                    mine = self._judged(heeded, indices[judges.rank], limited)
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
        lq, reference = self._images(self.dataset.largest_sample)
        size, read = _size_of(lq), self._reader(lq)
        fits = self._enlarger.smallest_fits(enlarge, size, read, lambda: self._canvas(lq), limited)
        del reference
        return fits

    def warm_up(self) -> None:
        """Measure a small image once: metrics load their libraries when they are first called."""
        image = torch.zeros(64, 64, 3, dtype=torch.uint8).numpy()
        for metric in self._metrics.values():
            metric(image, image)

    def _judged(self, enlarge: Enlarge, index: int, limited: Limited) -> ImageResult:
        name = self.dataset.sample_key(index)
        with naming_shortage(f"while {name} was read"):
            lq, reference = self._images(index)
        ooms_before = self._enlarger.ooms
        with limited():
            output = self._enlarged(enlarge, lq)
        is_shown = index < SHOWN_PICTURES
        bicubic = None
        with naming_shortage(f"while {name} was measured"):
            if index not in self._bicubic or is_shown:
                bicubic = _bicubic(lq, reference.shape[:2])
                self._bicubic.setdefault(index, self._measured(bicubic, reference))
            score = ImageScore(name, self._measured(output, reference), self._bicubic[index])
        ooms = self._enlarger.ooms - ooms_before
        if is_shown:
            return ImageResult(score, output, bicubic, reference, ooms=ooms)
        return ImageResult(score, output if self._pictures is not None else None, ooms=ooms)

    def _images(self, index: int) -> tuple[Tensor, ImageArray]:
        """Return a sample: its input (1, C, h, w), and the pixels of its reference in 8 bits."""
        sample = self.dataset.full_sample(index)
        pixels = _to_pixels(in_8_bits(sample["gt"]))
        reference = empty_pixels(self._scratch, *pixels.shape)
        reference[...] = pixels
        return sample["lq"][None], reference

    def _enlarged(self, enlarge: Enlarge, lq: Tensor) -> ImageArray:
        """Return the pixels that the network makes of an input."""
        canvas, (height, width) = self._canvas(lq), _size_of(lq)
        everything, scale = Box(0, height, 0, width), self._enlarger.scale

        def keep(box: Box, enlarged: Tensor) -> None:
            place = box.within(everything, scale)
            canvas[place.top : place.bottom, place.left : place.right] = _to_pixels(enlarged[0] * 255)

        self._enlarger.run(enlarge, (height, width), self._reader(lq), keep)
        return canvas

    def _canvas(self, lq: Tensor) -> ImageArray:
        (height, width), scale = _size_of(lq), self._enlarger.scale
        return empty_pixels(self._scratch, height * scale, width * scale, lq.shape[1])

    def _reader(self, lq: Tensor) -> Read:
        return lambda box: (box.of(lq).float() / largest_of(lq)).to(self._device)

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


def _bicubic(lq: Tensor, size: tuple[int, ...]) -> ImageArray:
    """Return the pixels of plain enlargement of an input (1, C, h, w)."""
    image = lq.float() / largest_of(lq)
    return _to_pixels(F.interpolate(image, size, mode="bicubic", antialias=True, align_corners=False)[0] * 255)


def _size_of(lq: Tensor) -> tuple[int, int]:
    return int(lq.shape[-2]), int(lq.shape[-1])


def _to_pixels(image: Tensor) -> ImageArray:
    """Return an image (C, H, W) in 0..255 as rounded (H, W, C) pixels."""
    if image.dtype != torch.uint8:
        image = image.float().round().clamp_(0, 255).to(torch.uint8)
    pixels: ImageArray = image.permute(1, 2, 0).cpu().numpy()
    return pixels


def _write_picture(folder: Path, file: Path, pixels: ImageArray) -> None:
    folder.parent.mkdir(exist_ok=True)  # but nothing above: a run's folder that was moved is not begun a second time
    file.parent.mkdir(parents=True, exist_ok=True)
    stored = cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR) if pixels.shape[2] == 3 else pixels
    _, encoded = cv2.imencode(".png", stored)

    def write(temporary: Path) -> None:
        temporary.write_bytes(encoded.tobytes())

    write_atomically(file, write)
