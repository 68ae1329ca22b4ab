"""Validation of one set by all ranks: each takes its images, the first writes and reports."""

import json
from functools import partial
from typing import Any

import cv2
import numpy as np

from trainauto.core.records import ImageScore, ValidationRecord
from trainauto.core.reports import Picture, Pixels
from trainauto.engine.ranks import RankLost
from trainauto.engine.run import Run
from trainauto.engine.step import AnotherRankLeft
from trainauto.models.validation import Judged, Judges, OneJudge, Validator

PICTURES = ("output", "bicubic", "reference")

FAILED = {"failed": True}


def judges_of(run: Run) -> Judges:
    """Return who validates: this process alone, or all ranks together."""
    if run.ranks.count == 1:
        return OneJudge(partial(_is_signalled, run))
    return _InStep(run) if run.model.is_sharded else _RankJudges(run)


def _is_signalled(run: Run) -> bool:
    run.signal = run.signals.received
    return bool(run.signal)


def validated(run: Run, validator: Validator) -> tuple[ValidationRecord, list[Picture]] | None:
    """Run a validation set; ``None`` if a signal cut it short.

    Where one of several ranks fails, all of them save and end.

    Raises:
        AnotherRankLeft: an image failed on another rank.
    """
    try:
        return run.model.validation(validator, run.progress.steps, judges_of(run))
    except (AnotherRankLeft, RankLost):
        raise
    except Exception:
        if run.ranks.count > 1 and not run.model.is_sharded:
            run.ranks.exchange(FAILED)  # where the others wait for this rank's image
            run.save()
        raise


class _RankJudges:
    """Ranks that meet after every round of images. Scores reach all of them, pictures the first one."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.rank = run.ranks.rank
        self.count = run.ranks.count

    def stop(self) -> bool:
        """Whether any rank has received a signal; all of them hear of it at once."""
        told = self._run.ranks.exchange({"signal": self._run.signals.received})
        self._run.signal = max(one["signal"] for one in told)
        return bool(self._run.signal)

    def meet(self, mine: Judged | None) -> list[Judged]:
        """Return the images of this round: with pictures on the first rank, scores alone on the others."""
        ranks = self._run.ranks
        told = ranks.exchange(_told(mine))
        if FAILED in told:
            self._run.save()
            raise AnotherRankLeft(f"validation failed on rank {told.index(FAILED)}; the reason stands there")
        scores = [_score(one) for one in told if one]
        packed = [one for one in ranks.gather(_packed(mine)) if one]
        pictures = [_unpacked(one) for one in packed] if packed else [{} for _ in scores]
        return [Judged(score, **found) for score, found in zip(scores, pictures, strict=True)]


class _InStep(_RankJudges):
    """Ranks that each hold a part of the weights: they all run every image, and the first one keeps the pictures."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self.rank, self.count = 0, 1

    def meet(self, mine: Judged | None) -> list[Judged]:
        """Return the image of this round."""
        if mine is None:
            return []
        return [mine if self._run.ranks.is_first else Judged(mine.score)]


def _told(judged: Judged | None) -> dict[str, Any]:
    if judged is None:
        return {}
    score = judged.score
    return {"name": score.name, "metrics": dict(score.metrics), "bicubic": dict(score.bicubic)}


def _score(told: Any) -> ImageScore:
    return ImageScore(told["name"], told["metrics"], told["bicubic"])


def _packed(judged: Judged | None) -> bytes:
    """Return the pictures of an image as PNG, behind a line that says how long each is."""
    if judged is None:
        return b""
    pictures = {name: _png(pixels) for name in PICTURES if (pixels := getattr(judged, name)) is not None}
    lengths = json.dumps({name: len(png) for name, png in pictures.items()})
    return lengths.encode() + b"\n" + b"".join(pictures.values())


def _unpacked(packed: bytes) -> dict[str, Pixels]:
    line, _, rest = packed.partition(b"\n")
    found, start = {}, 0
    for name, length in json.loads(line).items():
        found[name] = _pixels(rest[start : start + length])
        start += length
    return found


def _png(pixels: Pixels) -> bytes:
    # Channels stay in their order: what is packed here is unpacked here, and nobody else reads it.
    return bytes(cv2.imencode(".png", pixels)[1].tobytes())


def _pixels(png: bytes) -> Pixels:
    decoded: Any = cv2.imdecode(np.frombuffer(png, np.uint8), cv2.IMREAD_UNCHANGED)
    found: Pixels = decoded if decoded.ndim == 3 else decoded[:, :, None]
    return found
