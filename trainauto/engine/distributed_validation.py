"""Validation of one set by all ranks: each takes its images, the first writes and reports."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import cv2
import numpy as np
from torch import Tensor

from trainauto.core.errors import Saving, have_saved
from trainauto.core.records import ImageScore, ValidationRecord
from trainauto.core.run_events import Picture, Pixels
from trainauto.distributed.communicator import RankLostError
from trainauto.engine.run import Run
from trainauto.engine.run_errors import RankAbortedError
from trainauto.models.tiles import Enlarge
from trainauto.models.validation import ImageResult, LocalValidation, StopHeard, ValidationGroup, Validator

PICTURES = ("output", "bicubic", "reference")

FAILED = {"failed": True}
LEFT = "left for signal"


def run_on_all_ranks(run: Run, validator: Validator) -> tuple[ValidationRecord, list[Picture]] | None:
    """Run a validation set; ``None`` if a signal cut it short.

    Where one of several ranks fails, all of them save and end.

    Raises:
        RankAbortedError: an image failed on another rank.
    """
    try:
        return run.model.validation(validator, run.progress.steps, group_of(run))
    except (RankAbortedError, RankLostError):
        raise
    except Exception as error:
        if not run.model.is_sharded:
            run.ranks.all_gather_object(FAILED)  # where the others wait for this rank's image
            have_saved(error, Saving.TOGETHER)
        raise


def group_of(run: Run) -> ValidationGroup:
    """Return who validates: this process alone, or all ranks together."""
    if run.ranks.world_size == 1:
        return _Alone(run)
    return _EveryImageTogether(run) if run.model.is_sharded else _ImagesInTurns(run)


class _Alone(LocalValidation):
    """The one process of a run, which leaves an image at once when a signal comes."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self._signals = run.signals

    def stop(self) -> bool:
        """Whether there was a signal."""
        self._signals.agreed = self._signals.received
        return bool(self._signals.agreed)

    @contextmanager
    def heeding(self, enlarge: Enlarge) -> Iterator[Enlarge]:
        """Yield the network; a signal ends the image where it is."""
        with self._signals.raising(StopHeard):
            yield enlarge

    def leave(self) -> None:
        """Know of the signal."""
        self.stop()


class _ImagesInTurns:
    """Ranks that meet after every round of images. Scores reach all of them, pictures the first one."""

    def __init__(self, run: Run) -> None:
        self._ranks = run.ranks
        self._signals = run.signals
        self.rank = run.ranks.rank
        self.count = run.ranks.world_size

    def stop(self) -> bool:
        """Whether any rank has received a signal; all of them hear of it at once."""
        messages = self._ranks.all_gather_object({"signal": self._signals.received})
        self._signals.agreed = max(message["signal"] for message in messages)
        return bool(self._signals.agreed)

    @contextmanager
    def heeding(self, enlarge: Enlarge) -> Iterator[Enlarge]:
        """Yield the network, which a rank runs by itself: a signal ends the image where it is."""
        with self._signals.raising(StopHeard):
            yield enlarge

    def leave(self) -> None:
        """Tell the others of the signal where they wait for this rank's image."""
        self._gather({LEFT: self._signals.received})

    def meet(self, mine: ImageResult | None) -> list[ImageResult] | None:
        """Return the images of this round: with pictures on the first rank, scores alone on the others."""
        messages = self._gather(_packed_score(mine))
        if messages is None:
            return None
        scored = [(_score(message), message["ooms"]) for message in messages if message]
        packed = [pictures for pictures in self._ranks.gather(_packed_pictures(mine)) if pictures]
        shown = [_unpacked_pictures(pictures) for pictures in packed] if packed else [{} for _ in scored]
        return [
            ImageResult(score, ooms=ooms, **pictures) for (score, ooms), pictures in zip(scored, shown, strict=True)
        ]

    def _gather(self, mine: Mapping[str, Any]) -> list[Mapping[str, Any]] | None:
        """Return what all ranks tell of this round; ``None`` if any has left it for a signal, which all know then."""
        messages = self._ranks.all_gather_object(mine)
        if FAILED in messages:
            raise RankAbortedError(f"validation failed on rank {messages.index(FAILED)}; the reason stands there")
        self._signals.agreed = max(message.get(LEFT, 0) for message in messages)
        return None if self._signals.agreed else messages


class _EveryImageTogether(_ImagesInTurns):
    """Ranks that each hold a part of the weights: all run every image, and the first one keeps the pictures."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self.rank, self.count = 0, 1

    @contextmanager
    def heeding(self, enlarge: Enlarge) -> Iterator[Enlarge]:
        """Yield the network; before each tile all ranks ask each other, for they meet inside of it."""

        def next_tile(tile: Tensor) -> Tensor:
            if self.stop():
                raise StopHeard
            return enlarge(tile)

        yield next_tile

    def leave(self) -> None:
        """All ranks have heard of it together."""

    def meet(self, mine: ImageResult | None) -> list[ImageResult] | None:
        """Return the image of this round."""
        if mine is None:
            return []
        return [mine if self._ranks.is_first else ImageResult(mine.score)]


def _packed_score(result: ImageResult | None) -> dict[str, Any]:
    if result is None:
        return {}
    score = result.score
    return {
        "name": score.name,
        "metrics": dict(score.metrics),
        "bicubic": dict(score.baseline),
        "ooms": result.ooms,
    }


def _score(message: Mapping[str, Any]) -> ImageScore:
    return ImageScore(message["name"], message["metrics"], message["bicubic"])


def _packed_pictures(result: ImageResult | None) -> bytes:
    """Return the pictures of an image as PNG, behind a line that says how long each is."""
    if result is None:
        return b""
    pictures = {name: _png(pixels) for name in PICTURES if (pixels := getattr(result, name)) is not None}
    lengths = json.dumps({name: len(png) for name, png in pictures.items()})
    return lengths.encode() + b"\n" + b"".join(pictures.values())


def _unpacked_pictures(packed: bytes) -> dict[str, Pixels]:
    line, _, rest = packed.partition(b"\n")
    pictures, start = {}, 0
    for name, length in json.loads(line).items():
        pictures[name] = _pixels(rest[start : start + length])
        start += length
    return pictures


def _png(pixels: Pixels) -> bytes:
    # Channels stay in their order: what is packed here is unpacked here, and nobody else reads it.
    return bytes(cv2.imencode(".png", pixels)[1].tobytes())


def _pixels(png: bytes) -> Pixels:
    decoded: Any = cv2.imdecode(np.frombuffer(png, np.uint8), cv2.IMREAD_UNCHANGED)
    pixels: Pixels = decoded if decoded.ndim == 3 else decoded[:, :, None]
    return pixels
