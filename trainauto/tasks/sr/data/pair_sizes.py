"""What is said of pairs whose sizes do not suit the scale: one cause is one block, however many pairs have it."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from trainauto.core.errors import Problem

logger = logging.getLogger(__name__)

SHOWN_PAIRS = 3

EXCHANGED = "dataroot_gt and dataroot_lq seem to be exchanged: gt is the larger one."
ON_ITS_SIDE = "One of the two lies on its side: images are turned as their EXIF tag says. Save both upright."
OTHERWISE = "Shrink the high-quality image again, or crop both to matching sizes."


@dataclass(frozen=True)
class WrongPair:
    """A pair that does not suit the scale.

    Attributes:
        gt: path of the high-quality image.
        lq: path of its partner.
        gt_px: height and width of the first.
        lq_px: height and width of the second.
    """

    gt: str
    lq: str
    gt_px: tuple[int, int]
    lq_px: tuple[int, int]

    def cause(self) -> str:
        """Return what is probably wrong, as advice."""
        if (ratio := _ratio(self.lq_px, self.gt_px)) >= 1:
            return f"This pair is for `scale: {ratio}`."
        if _ratio(self.gt_px, self.lq_px) > 1:
            return EXCHANGED
        turned = self.gt_px[0] * self.lq_px[0] == self.gt_px[1] * self.lq_px[1]
        return ON_ITS_SIDE if turned and self.gt_px[0] != self.gt_px[1] else OTHERWISE

    def is_croppable(self, scale: int) -> bool:
        """Say whether the high-quality image has a right or a lower edge too many, and nothing else is wrong."""
        beyond = [gt - scale * lq for gt, lq in zip(self.gt_px, self.lq_px, strict=True)]
        return min(beyond) >= 0 and self.cause() == OTHERWISE

    def fact(self, scale: int) -> str:
        """Return both sizes, in words."""
        (gt_height, gt_width), (height, width) = self.gt_px, self.lq_px
        return (
            f"{self.gt} is {gt_width}x{gt_height}, but {scale} times {self.lq} ({width}x{height}) is "
            f"{width * scale}x{height * scale}"
        )


def _ratio(small: tuple[int, int], large: tuple[int, int]) -> int:
    """Return how many times larger one is than the other; 0 where that is no whole number."""
    ratio = round(large[0] / small[0])
    return ratio if ratio >= 1 and large == (small[0] * ratio, small[1] * ratio) else 0


def problems_of(wrong: Iterable[WrongPair], scale: int, pairs: int, set_name: str) -> Iterator[Problem]:
    """Yield a problem for each cause, the one that most pairs have first.

    Args:
        wrong: what does not suit.
        scale: of the run.
        pairs: how many there are in all.
        set_name: for messages.
    """
    causes: dict[str, list[WrongPair]] = {}
    for pair in wrong:
        causes.setdefault(pair.cause(), []).append(pair)
    for advice, misfits in sorted(causes.items(), key=lambda item: -len(item[1])):
        first = f"dataset '{set_name}': {misfits[0].fact(scale)}"
        if len(misfits) == 1:
            yield Problem(first, advice=advice, argument=_argument(advice))
            continue
        others = ", ".join(pair.lq for pair in misfits[1:SHOWN_PAIRS])
        more = f" and {len(misfits) - SHOWN_PAIRS} more" if len(misfits) > SHOWN_PAIRS else ""
        what = f"{first}\n  So it is with {len(misfits)} of {pairs} pairs: {others}{more}."
        yield Problem(what, advice=advice.replace("This pair is", "They are"), argument=_argument(advice))


def _argument(advice: str) -> str:
    return "dataroot_gt" if advice == EXCHANGED else ""


def say_cropped(cropped: Sequence[WrongPair], scale: int, pairs: int, set_name: str) -> None:
    """Warn of high-quality images whose right or lower edge is left out.

    Args:
        cropped: their pairs.
        scale: of the run.
        pairs: how many there are in all.
        set_name: for messages.
    """
    if cropped:
        most = max(cropped, key=lambda pair: _beyond_px(pair, scale))
        logger.warning(
            "dataset '%s': gt images of %d of %d pairs are larger than scale x lq: their right and lower edges are "
            "left out, as BasicSR does; the most is %d px. %s",
            set_name,
            len(cropped),
            pairs,
            _beyond_px(most, scale),
            most.fact(scale),
        )


def _beyond_px(pair: WrongPair, scale: int) -> int:
    return max(gt - scale * lq for gt, lq in zip(pair.gt_px, pair.lq_px, strict=True))
