"""Conversations with pictures, as a vision-language model learns from them."""

from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from trainauto.core.errors import InputError, Problem

USER, ASSISTANT, SYSTEM = "user", "assistant", "system"
ROLES = (SYSTEM, USER, ASSISTANT)


@dataclass(frozen=True)
class TextPart:
    """Words of a turn."""

    text: str


@dataclass(frozen=True)
class ImagePart:
    """A picture of a turn: a file, or what one holds."""

    source: Path | bytes

    def open(self, place: str) -> Any:
        """Return the picture as PIL has it, in RGB; what is transparent in it is white.

        Args:
            place: of the conversation, for messages.

        Raises:
            InputError: it cannot be read.
        """
        from PIL import Image, UnidentifiedImageError

        name = str(self.source) if isinstance(self.source, Path) else f"a picture of {len(self.source)} bytes"
        try:
            with Image.open(self.source if isinstance(self.source, Path) else BytesIO(self.source)) as picture:
                if not picture.has_transparency_data:
                    return picture.convert("RGB")
                over = picture.convert("RGBA")
                white = Image.new("RGBA", over.size, "white")
                return Image.alpha_composite(white, over).convert("RGB")
        except FileNotFoundError as error:
            advice = "Paths are relative to the folder of the file that names them."
            raise InputError(Problem(f"{place}: there is no {name}", advice=advice)) from error
        except (UnidentifiedImageError, OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            raise InputError(f"{place}: {name} cannot be read as a picture: {error}") from error


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

    def answers(self) -> Iterator[int]:
        """Yield the places of the assistant's turns."""
        return (place for place, turn in enumerate(self.turns) if turn.role == ASSISTANT)


def _content(part: Part) -> dict[str, str]:
    return {"type": "text", "text": part.text} if isinstance(part, TextPart) else {"type": "image"}


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
        if turn.role == ASSISTANT and not turn.text.strip():
            at = number + 1 + len(turns) - len(spoken)
            raise InputError(
                Problem(f"{place}: message {at}, an answer of the assistant, is empty", advice="Remove the line.")
            )
        if turn.role == ASSISTANT and any(isinstance(part, ImagePart) for part in turn.parts):
            raise InputError(
                Problem(f"{place}: the assistant shows a picture", advice="Pictures belong to messages of the user.")
            )
    if not any(turn.role == ASSISTANT for turn in turns):
        advice = 'Add {"role": "assistant", "content": "words"}, which is what is to be learned; or remove the line.'
        raise InputError(Problem(f"{place}: no message is of the assistant: nothing would be learned", advice=advice))
