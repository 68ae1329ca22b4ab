"""Validation of one set by all ranks: each takes its images, the first writes and reports."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import cv2
import numpy as np
from torch import Tensor

from trainauto.core.errors import Saving, have_saved
from trainauto.core.process import Limited
from trainauto.core.records import ImageScore, ValidationRecord
from trainauto.core.run_events import ImageArray, Picture
from trainauto.distributed.communicator import Communicator, RankLostError
from trainauto.engine.run_errors import RankAbortedError
from trainauto.engine.signals import StopSignals
from trainauto.models.base_model import BaseModel
from trainauto.tasks.sr.models.tiles import Enlarge
from trainauto.tasks.sr.models.validation import NoRoomBesideTilesError, Validator
from trainauto.tasks.sr.models.validation_group import ImageResult, LocalValidation, StopHeard, ValidationGroup

PICTURES = ("output", "bicubic", "reference")

FAILED = {"failed": True}
LEFT = "left for signal"


class RunValidator(Validator):
    """A validation set of a run: its ranks take the images in turns, and a signal cuts it short."""

    @property
    def name(self) -> str:
        """The set's name."""
        return self.dataset.name

    def validate(
        self, model: BaseModel, step: int, ranks: Communicator, signals: StopSignals
    ) -> tuple[ValidationRecord, list[Picture]] | None:
        """Validate with all ranks; ``None`` if a signal cut it short.

        Where one of several ranks fails, all of them save and end.

        Raises:
            RankAbortedError: an image failed on another rank.
        """
        try:
            return model.validation(self, step, group_of(ranks, signals, is_sharded=model.is_sharded))
        except (RankAbortedError, RankLostError):
            raise
        except Exception as error:
            if not model.is_sharded:
                ranks.all_gather_object(FAILED)  # where the others wait for this rank's image
                have_saved(error, Saving.TOGETHER)
            raise

    def lack_of_room(self, model: Any, limited: Limited) -> str:
        """Say so if the largest image of the set does not fit under a limit, not even in the smallest tiles.

        Raises:
            InputError: the image cannot be read.
        """
        if self.largest_fits(model.enlarge, limited):
            return ""
        kind = f"the smallest kind (with {self.overlap_px} px around it, tile_overlap)"
        return (
            f"beside its picture, no tile of {kind if self.overlap_px else 'the smallest kind'} fits what the budget "
            "leaves. Take a smaller tile_overlap, smaller images, or a larger budget, or write val_enabled: false "
            "under val"
        )

    def if_too_large(self, error: BaseException, *, is_sharded: bool) -> tuple[str, str]:
        """Return how far it was tried when validation ran out of memory, and what to do."""
        if isinstance(error, NoRoomBesideTilesError):
            return f"memory ran out {error}, beside the network", "Take smaller validation images"
        if is_sharded:
            return "and with fully_shard tiles do not shrink by themselves", "Set val: tile_size"
        return "not even in the smallest tiles", "Take smaller validation images, a smaller tile_overlap"


def group_of(ranks: Communicator, signals: StopSignals, *, is_sharded: bool) -> ValidationGroup:
    """Return who validates: this process alone, or all ranks together."""
    if ranks.world_size == 1:
        return _Alone(signals)
    return _EveryImageTogether(ranks, signals) if is_sharded else _ImagesInTurns(ranks, signals)


class _Alone(LocalValidation):
    """The one process of a run, which leaves an image at once when a signal comes."""

    def __init__(self, signals: StopSignals) -> None:
        super().__init__()
        self._signals = signals

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

    def __init__(self, ranks: Communicator, signals: StopSignals) -> None:
        self._ranks = ranks
        self._signals = signals
        self.rank = ranks.rank
        self.count = ranks.world_size

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

    def __init__(self, ranks: Communicator, signals: StopSignals) -> None:
        super().__init__(ranks, signals)
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


def _unpacked_pictures(packed: bytes) -> dict[str, ImageArray]:
    line, _, rest = packed.partition(b"\n")
    pictures, start = {}, 0
    for name, length in json.loads(line).items():
        pictures[name] = _pixels(rest[start : start + length])
        start += length
    return pictures


def _png(pixels: ImageArray) -> bytes:
    # Channels stay in their order: what is packed here is unpacked here, and nobody else reads it.
    return bytes(cv2.imencode(".png", pixels)[1].tobytes())


def _pixels(png: bytes) -> ImageArray:
    decoded: Any = cv2.imdecode(np.frombuffer(png, np.uint8), cv2.IMREAD_UNCHANGED)
    pixels: ImageArray = decoded if decoded.ndim == 3 else decoded[:, :, None]
    return pixels
