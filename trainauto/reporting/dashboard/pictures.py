"""Pictures of validations over time, small enough to stand in the page."""

import base64
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainauto.core.records import ValidationRecord
from trainauto.core.run_events import ImageArray, Picture
from trainauto.core.words import visible
from trainauto.reporting.dashboard.blocks import LONGEST_TEXT, Block

MOST_SETS = 4
"""Validation images that are shown over time: the first ones, as in TensorBoard."""

MOST_STEPS = 8
"""Validations of each that are shown; with its baseline and its reference, 40 pictures in all."""

MOST_BYTES = 1_000_000
"""What all pictures take in the page, written as text."""

LONGEST_SIDE_PX = 320
_QUALITIES = (88, 70, 45, 20)
"""Of WebP; the next lower one where a picture is larger than its share."""

_PREFIX = "data:image/webp;base64,"


@dataclass
class PictureSet:
    """One validation image over time.

    Attributes:
        name: of the set and the image.
        steps: after which steps.
        images: what the network made, as addresses of data.
        files: the full size of each beside the page; empty where it is not kept.
        scores: what was measured of each, in words.
        baseline: what costs nothing.
        baseline_name: what that is.
        reference: what it should have been.
    """

    name: str
    steps: list[int] = field(default_factory=list)
    images: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    scores: list[str] = field(default_factory=list)
    baseline: str | None = None
    baseline_name: str = ""
    reference: str | None = None

    def cut(self, step: int) -> None:
        """Drop what is of a later step."""
        kept = sum(one <= step for one in self.steps)
        for values in (self.steps, self.images, self.files, self.scores):
            del values[kept:]

    def thin(self) -> None:
        """Of too many, drop the one whose neighbours are nearest to each other; the first and the last stay."""
        while len(self.steps) > MOST_STEPS:
            spans = [after - before for before, after in zip(self.steps, self.steps[2:], strict=False)]
            place = spans.index(min(spans)) + 1
            for values in (self.steps, self.images, self.files, self.scores):
                del values[place]


class Pictures:
    """The pictures of a page.

    Args:
        before: the blocks of pictures of the page that a resumed run had.
        step: the step that it resumes from; later ones are dropped.
    """

    def __init__(self, before: Iterable[Mapping[str, Any]] = (), step: int = 0) -> None:
        self._sets: dict[str, PictureSet] = {}
        for block in before:
            for entry in block.get("sets", ()):
                known = PictureSet(**{name: entry[name] for name in PictureSet.__dataclass_fields__ if name in entry})
                known.cut(step)
                self._sets[known.name] = known

    def add(self, record: ValidationRecord, pictures: Sequence[Picture], files: Mapping[str, str]) -> None:
        """Take the pictures of a validation in.

        Args:
            record: the validation.
            pictures: its pictures.
            files: where the full size of each lies, seen from the page, by name.
        """
        scores = {score.name: score.metrics for score in record.scores}
        for picture in pictures:
            name = visible(f"{record.dataset}: {picture.name}", LONGEST_TEXT)
            if name not in self._sets and len(self._sets) >= MOST_SETS:
                continue
            shown = self._sets.setdefault(name, PictureSet(name, baseline_name=record.baseline_name))
            if shown.baseline is None and picture.baseline is not None:
                shown.baseline = address_of(picture.baseline)
            if shown.reference is None and picture.reference is not None:
                shown.reference = address_of(picture.reference)
            shown.cut(record.step - 1)  # the same step again, after a resume
            shown.steps.append(record.step)
            shown.images.append(address_of(picture.output))
            shown.files.append(files.get(picture.name, ""))
            figures = ", ".join(f"{metric} {value:.4f}" for metric, value in scores.get(picture.name, {}).items())
            shown.scores.append(figures)
            shown.thin()

    def blocks(self) -> list[Block]:
        """Return them as the page has them."""
        sets = [vars(shown) for shown in self._sets.values() if shown.steps]
        return [{"type": "pictures", "id": "pictures", "title": "Pictures over time", "sets": sets}] if sets else []


def pictures_of(page: Mapping[str, Any]) -> list[Block]:
    """Return the blocks of pictures of a page that was written."""
    blocks = (block for section in page.get("sections", ()) for block in section.get("blocks", ()))
    return [block for block in blocks if block.get("type") == "pictures"]


def address_of(image: ImageArray) -> str:
    """Return a picture as an address that holds it: WebP of at most a fortieth of what all may take.

    A larger one is cut to its middle rather than scaled down, which would hide the very detail to be judged.
    """
    from PIL import Image

    height, width = (min(side, LONGEST_SIDE_PX) for side in image.shape[:2])
    top, left = (image.shape[0] - height) // 2, (image.shape[1] - width) // 2
    cut = image[top : top + height, left : left + width]
    picture = Image.fromarray(cut[..., 0] if cut.shape[2] == 1 else cut)
    most_bytes = MOST_BYTES // (MOST_SETS * (MOST_STEPS + 2)) * 3 // 4  # base64 makes four characters of three bytes
    while True:
        for quality in _QUALITIES:
            encoded = io.BytesIO()
            picture.save(encoded, "WEBP", quality=quality, method=2)
            if encoded.tell() <= most_bytes:
                return _PREFIX + base64.b64encode(encoded.getvalue()).decode()
        picture = picture.reduce(2)  # pure noise, which nothing makes small
