"""Conversations with pictures, as a vision-language model learns from them."""

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from trainauto.core.errors import InputError, Problem
from trainauto.core.files import open_file

USER, ASSISTANT, SYSTEM = "user", "assistant", "system"
ROLES = (SYSTEM, USER, ASSISTANT)

EXIF_ORIENTATION, ON_ITS_SIDE = 0x0112, (5, 6, 7, 8)
"""The EXIF tag of how a picture is turned, and the values of which width and height change places."""


@dataclass(frozen=True)
class TextPart:
    """Words of a turn."""

    text: str


@dataclass(frozen=True)
class ImagePart:
    """A picture of a turn: a file, or what one holds."""

    source: Path | bytes

    def open(self, place: str) -> Any:
        """Return the picture as PIL has it, in RGB, turned as its EXIF tag says; what is transparent in it is white.

        Args:
            place: of the conversation, for messages.

        Raises:
            InputError: it cannot be read.
        """
        with self._reading(place) as picture:
            return _without_transparency(picture)

    def look(self, place: str) -> tuple[int, int]:
        """Return width and height of the picture, whose content has been looked at, a JPEG's at an eighth of its size.

        Args:
            place: of the conversation, for messages.

        Raises:
            InputError: it cannot be read, or lacks its end.
        """
        with self._reading(place) as picture:
            turned = picture.getexif().get(EXIF_ORIENTATION, 1) in ON_ITS_SIDE
            width, height = picture.size
            picture.draft("RGB", (max(1, width // 8), max(1, height // 8)))
            picture.load()
        return (height, width) if turned else (width, height)

    @contextmanager
    def _reading(self, place: str) -> Iterator[Any]:
        from PIL import Image, UnidentifiedImageError

        name = str(self.source) if isinstance(self.source, Path) else f"a picture of {len(self.source)} bytes"
        try:
            file = open_file(self.source) if isinstance(self.source, Path) else BytesIO(self.source)
            with file, Image.open(file) as picture:
                yield picture
        except FileNotFoundError as error:
            advice = "Paths are relative to the folder of the file that names them."
            raise InputError(Problem(f"{place}: there is no {name}", advice=advice)) from error
        except (UnidentifiedImageError, OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            raise InputError(f"{place}: {name} cannot be read as a picture: {error}") from error


def _without_transparency(picture: Any) -> Any:
    from PIL import Image, ImageOps

    upright = ImageOps.exif_transpose(picture)
    if upright.mode in ("I", "I;16", "I;16B"):  # 16 bits of grey, of which Pillow would keep what is below 256
        upright = Image.fromarray((np.asarray(upright).astype(np.uint32) >> 8).astype(np.uint8))
    if not upright.has_transparency_data:
        return upright.convert("RGB")
    over = upright.convert("RGBA")
    white = Image.new("RGBA", over.size, "white")
    return Image.alpha_composite(white, over).convert("RGB")


Part = TextPart | ImagePart


@dataclass(frozen=True)
class Turn:
    """What one says before another speaks.

    Attributes:
        role: ``system``, ``user`` or ``assistant``.
        parts: words and pictures in their order.
    """

    role: str
    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        """All its words."""
        return "".join(part.text for part in self.parts if isinstance(part, TextPart))


@dataclass(frozen=True)
class Conversation:
    """A sample of fine-tuning.

    Attributes:
        place: file and line it stands in, for messages.
        turns: in their order.
    """

    place: str
    turns: tuple[Turn, ...]

    @property
    def images(self) -> list[ImagePart]:
        """All pictures in their order."""
        return [part for turn in self.turns for part in turn.parts if isinstance(part, ImagePart)]

    def messages(self, turns: int | None = None) -> list[dict[str, Any]]:
        """Return the first turns as chat templates of transformers take them; all where no number is given."""
        return [{"role": turn.role, "content": [_content(part) for part in turn.parts]} for turn in self.turns[:turns]]

    def fingerprint(self) -> list[object]:
        """Return what tells it from others, wherever it lies: its words, names and sizes of its pictures' files."""
        return [(turn.role, [_kept(part) for part in turn.parts]) for turn in self.turns]

    def first(self, turns: int) -> "Conversation":
        """Return the conversation as far as its first turns."""
        return replace(self, turns=self.turns[:turns])

    def answers(self) -> Iterator[int]:
        """Yield the places of the assistant's turns."""
        return (place for place, turn in enumerate(self.turns) if turn.role == ASSISTANT)


def _kept(part: Part) -> object:
    if isinstance(part, TextPart):
        return part.text
    source = part.source
    return (source.name, source.stat().st_size) if isinstance(source, Path) else zlib.crc32(source)


def _content(part: Part) -> dict[str, str]:
    return {"type": "text", "text": part.text} if isinstance(part, TextPart) else {"type": "image"}


ANSWER = 'Add {"role": "assistant", "content": "words"}, which is what is to be learned; or remove the line.'


def check_turns(conversation: Conversation) -> None:
    """Refuse a conversation that teaches nothing, or whose turns no chat template would take.

    After a system turn, if there is one, users and the assistant speak by turns, beginning with a user; pictures are
    shown by those who ask.

    Raises:
        InputError: names the place, and what is wrong there.
    """
    turns, place = conversation.turns, conversation.place
    spoken = turns[1:] if turns and turns[0].role == SYSTEM else turns
    for number, turn in enumerate(spoken):
        expected = ASSISTANT if number % 2 else USER
        if turn.role != expected:
            at = number + 1 + len(turns) - len(spoken)
            advice = "A system message may come first; then user and assistant speak by turns, a user first."
            raise InputError(
                Problem(f"{place}: message {at} is of '{turn.role}' where '{expected}' is due", advice=advice)
            )
        if turn.role == ASSISTANT and any(isinstance(part, ImagePart) for part in turn.parts):
            raise InputError(
                Problem(f"{place}: the assistant shows a picture", advice="Pictures belong to messages of the user.")
            )
        if turn.role == ASSISTANT and not turn.text.strip():
            at = number + 1 + len(turns) - len(spoken)
            raise InputError(
                Problem(f"{place}: message {at}, an answer of the assistant, is empty", advice="Remove the line.")
            )
    if not any(turn.role == ASSISTANT for turn in turns):
        raise InputError(Problem(f"{place}: no message is of the assistant: nothing would be learned", advice=ANSWER))
    if spoken[-1].role != ASSISTANT:
        raise InputError(Problem(f"{place}: nothing answers its last message", advice=ANSWER))
