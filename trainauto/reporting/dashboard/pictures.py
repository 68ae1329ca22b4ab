"""Pictures of validations over time, small enough to stand in the page."""

import base64
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from trainauto.core.process import without_memory_limit
from trainauto.core.records import ValidationRecord
from trainauto.core.run_events import ImageArray, Picture
from trainauto.core.words import visible
from trainauto.reporting.dashboard.blocks import LONGEST_TEXT, Block
from trainauto.reporting.formatting import metric_text

MOST_SETS = 4
"""Validation images that are shown over time: the first ones, as in TensorBoard."""

MOST_STEPS = 8
"""Validations of each that are shown, with its baseline and its reference."""

MOST_OF_SAMPLES = 12
"""Pictures of samples of the first batch."""

MOST_PICTURES = MOST_SETS * (MOST_STEPS + 2) + MOST_OF_SAMPLES

MOST_BYTES = 1_000_000
"""What all pictures take in the page, written as text."""

LONGEST_SIDE_PX = 320
_QUALITIES = (88, 70, 45, 20)
"""Of WebP; the next lower one where a picture is larger than its share."""

PICTURES, SAMPLES = "pictures", "samples"
"""Types of blocks."""

_PREFIX = "data:image/webp;base64,"


@dataclass
class Frame:
    """One picture of a set.

    Attributes:
        step: after which step it was made.
        image: what the network made, as an address of data; pixels until it is shown.
        file: the full size beside the page; empty where it is not kept.
        score: what was measured of it, in words.
    """

    step: int
    image: str | ImageArray
    file: str
    score: str


@dataclass
class PictureSet:
    """One validation image over time.

    Attributes:
        name: of the set and the image.
        frames: its pictures, by steps.
        baseline: what costs nothing, as an address of data.
        baseline_name: what that is.
        reference: what it should have been.
    """

    name: str
    frames: list[Frame] = field(default_factory=list)
    baseline: str | None = None
    baseline_name: str = ""
    reference: str | None = None

    def add(self, frame: Frame) -> None:
        """Keep a picture; of too many, drop the one whose neighbours are nearest to each other, never an end."""
        self.cut(frame.step - 1)  # the same step again, after a resume
        self.frames.append(frame)
        if len(self.frames) > MOST_STEPS:
            steps = [one.step for one in self.frames]
            spans = [after - before for before, after in zip(steps, steps[2:], strict=False)]
            del self.frames[spans.index(min(spans)) + 1]

    def cut(self, step: int) -> None:
        """Drop what is of a later step."""
        self.frames = [frame for frame in self.frames if frame.step <= step]

    def to_dict(self) -> Block:
        """Return it as the page has it; pictures are made small now, each once."""
        for frame in self.frames:
            if not isinstance(frame.image, str):
                frame.image = address_of(frame.image)
        return {
            "name": self.name,
            "steps": [frame.step for frame in self.frames],
            "images": [frame.image for frame in self.frames],
            "files": [frame.file for frame in self.frames],
            "scores": [frame.score for frame in self.frames],
            "baseline": self.baseline,
            "baseline_name": self.baseline_name,
            "reference": self.reference,
        }

    @classmethod
    def from_dict(cls, entry: Mapping[str, Any]) -> "PictureSet":
        """Rebuild a set from what a page has."""
        columns = zip(entry["steps"], entry["images"], entry["files"], entry["scores"], strict=True)
        frames = [Frame(*values) for values in columns]
        return cls(entry["name"], frames, entry["baseline"], entry["baseline_name"], entry["reference"])


class Pictures:
    """The pictures of a page.

    Args:
        before: the blocks of pictures of the page that a resumed run had.
        step: the step that it resumes from; later ones are dropped.
    """

    def __init__(self, before: Iterable[Mapping[str, Any]] = (), step: int = 0) -> None:
        self._sets: dict[str, PictureSet] = {}
        for known in sets_in(before):
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
                shown.baseline = address_of(middle_of(picture.baseline))
            if shown.reference is None and picture.reference is not None:
                shown.reference = address_of(middle_of(picture.reference))
            measured = scores.get(picture.name, {})
            figures = ", ".join(f"{metric} {metric_text(value)}" for metric, value in measured.items())
            shown.add(Frame(record.step, middle_of(picture.output), files.get(picture.name, ""), figures))

    def blocks(self) -> list[Block]:
        """Return them as the page has them."""
        sets = [shown.to_dict() for shown in self._sets.values() if shown.frames]
        return [{"type": PICTURES, "id": "pictures", "title": "Pictures over time", "sets": sets}] if sets else []


def sets_in(blocks: Iterable[Mapping[str, Any]]) -> Iterator[PictureSet]:
    """Yield the sets of blocks that a page has; what a person has edited is left out."""
    for block in blocks:
        for entry in block.get("sets", ()):
            with suppress(KeyError, TypeError, ValueError):
                yield PictureSet.from_dict(entry)


def samples_block(samples: Sequence[Mapping[str, ImageArray]]) -> Block:
    """Return samples as the page has them: each a row of pictures with their names."""
    rows = [
        [[visible(name, LONGEST_TEXT), address_of(middle_of(image))] for name, image in sample.items()]
        for sample in samples[: MOST_OF_SAMPLES // max(1, len(samples[0]) if samples else 1)]
    ]
    return {"type": SAMPLES, "id": "samples", "title": "First batch, as trained on", "rows": rows}


def pictures_of(page: Mapping[str, Any]) -> list[Block]:
    """Return the blocks of pictures of a page that was written."""
    blocks = (block for section in page.get("sections", ()) for block in section.get("blocks", ()))
    return [block for block in blocks if block.get("type") in (PICTURES, SAMPLES)]


def middle_of(image: ImageArray) -> ImageArray:
    """Return the middle of an image, a copy of at most 320 px: scaled down, it would hide the detail to be judged."""
    height, width = (min(side, LONGEST_SIDE_PX) for side in image.shape[:2])
    top, left = (image.shape[0] - height) // 2, (image.shape[1] - width) // 2
    return image[top : top + height, left : left + width].copy()


def address_of(image: ImageArray) -> str:
    """Return a picture as an address that holds it: WebP of at most its share of what all may take."""
    with without_memory_limit():  # a plugin that finds no memory for its library is left out by Pillow, for good
        from PIL import Image, WebPImagePlugin  # noqa: F401

    picture = Image.fromarray(image[..., 0] if image.shape[2] == 1 else image)
    most_bytes = MOST_BYTES // MOST_PICTURES * 3 // 4  # base64 makes four characters of three bytes
    while True:
        for quality in _QUALITIES:
            encoded = io.BytesIO()
            picture.save(encoded, "WEBP", quality=quality, method=2)
            if encoded.tell() <= most_bytes:
                return _PREFIX + base64.b64encode(encoded.getvalue()).decode()
        picture = picture.reduce(2)  # pure noise, which nothing makes small
