"""Conversations in JSON lines, whose messages have words and pictures."""

import base64
import binascii
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainauto.core.errors import InputError, Place, Problem, nearest
from trainauto.core.json_text import from_json
from trainauto.tasks.finetune.conversations import (
    ASSISTANT,
    ROLES,
    SYSTEM,
    USER,
    Conversation,
    ImagePart,
    Part,
    TextPart,
    Turn,
    check_turns,
)

MESSAGE = (
    'A message is {"role": "user", "content": [{"type": "image", "image": "a.png"}, {"type": "text", "text": "words"}]}'
    "; where it has only words, its content may be these."
)
LINE = 'A line is {"messages": [...]}.'
SHAREGPT_ROLES = {"human": USER, "gpt": ASSISTANT}
SHAREGPT_IMAGE = "<image>"
SHAREGPT = (
    'A line of ShareGPT is {"conversations": [{"from": "human", "value": "words"}, {"from": "gpt", "value": "words"}]}.'
)
IMAGE_KEYS = ("image", "path", "url", "bytes")
"""Where the picture of a part stands: the first two are paths, a URL must be one of this machine or hold the data."""


def conversation_lines(file: Path, text: str) -> Iterator[Conversation]:
    """Yield the conversations of a file, one a line; empty lines are none.

    Args:
        file: where it was read from; paths of pictures are relative to its folder.
        text: of the file.

    Raises:
        InputError: a line is no conversation, or one that nothing can be learned from; it names the line.
    """
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield _Line(file, number, line).conversation()


def _as_messages(entry: dict[str, Any]) -> dict[str, Any]:
    """Return an entry in the form of ShareGPT and LLaVA as one that has ``messages``.

    ``system`` may stand beside its ``conversations``; where it has pictures, ``image`` or ``images``, each ``<image>``
    in its words is the place of one.
    """
    images = entry.get("images") or ([entry["image"]] if entry.get("image") is not None else [])
    turns = entry["conversations"]
    if not isinstance(turns, list) or not turns:
        raise _EntryError("'conversations' is no list of messages", SHAREGPT)
    messages = [{"role": SYSTEM, "content": entry["system"]}] if entry.get("system") else []
    for number, turn in enumerate(turns, start=1):
        if not isinstance(turn, dict) or not isinstance(turn.get("value"), str) or "from" not in turn:
            raise _EntryError(f"entry {number} of 'conversations' is {turn!r:.60}", SHAREGPT)
        content = _words_and_pictures(turn["value"]) if images else turn["value"]
        messages.append({"role": SHAREGPT_ROLES.get(turn["from"], turn["from"]), "content": content})
    return {"messages": messages, "images": images}


def _words_and_pictures(value: str) -> list[dict[str, str]]:
    parts: list[dict[str, str]] = []
    for place, words in enumerate(value.split(SHAREGPT_IMAGE)):
        parts += [{"type": "image"}] if place else []
        parts += [{"type": "text", "text": words}] if words else []
    return parts


def conversation_of(entry: Any, place: str, folder: Path) -> Conversation:
    """Return the conversation of an entry of a dataset: ``messages`` or ``conversations``, maybe ``images``.

    Raises:
        InputError: it is none; the message names the place.
    """
    try:
        return _Entry(folder).conversation(entry, place)
    except _EntryError as error:
        raise InputError(Problem(f"{place}: {error}", advice=error.advice)) from None


class _EntryError(Exception):
    """What is wrong with an entry, wherever it stands."""

    def __init__(self, message: str, advice: str = "") -> None:
        super().__init__(message)
        self.advice = advice


@dataclass(frozen=True)
class _Line:
    """A line of a file, which errors point at."""

    file: Path
    number: int
    text: str

    def conversation(self) -> Conversation:
        try:
            entry = from_json(self.text)
        except ValueError as error:
            advice = 'Each line of the file is one object; quotes within words are written \\".'
            what, column = getattr(error, "msg", str(error)), getattr(error, "colno", 1)
            raise self._error(f"this line is no JSON: {what}", advice, column) from error
        try:
            return _Entry(self.file.parent).conversation(entry, f"{self.file}:{self.number}")
        except _EntryError as error:
            raise self._error(str(error), error.advice) from None

    def _error(self, message: str, advice: str, column: int = 1) -> InputError:
        return InputError(Problem(message, place=Place(str(self.file), self.number, column, self.text), advice=advice))


@dataclass(frozen=True)
class _Entry:
    """Reads entries whose pictures lie below a folder."""

    folder: Path

    def conversation(self, entry: Any, place: str) -> Conversation:
        if not isinstance(entry, dict):
            raise _EntryError(f"this is a {type(entry).__name__}, no object", LINE)
        if "messages" not in entry and "conversations" in entry:
            entry = _as_messages(entry)
        if "messages" not in entry:
            hint = next((near for key in entry if (near := nearest(key, ["messages"])).startswith("Did you")), "")
            keys = ", ".join(map(repr, entry)) or "nothing"
            raise _EntryError(f"this has {keys}, and no messages", f"{LINE} {hint}".strip())
        messages = entry["messages"]
        if not isinstance(messages, list) or not messages:
            raise _EntryError("'messages' is no list of messages", MESSAGE)
        images = entry.get("images") or ()
        if not isinstance(images, list | tuple):
            raise _EntryError(f"'images' is a {type(images).__name__}, no list", MESSAGE)
        listed = iter(images)
        turns = tuple(self._turn(message, number, listed) for number, message in enumerate(messages, start=1))
        if left := sum(1 for _ in listed):
            raise _EntryError(
                f"{left} of its images belong to no message",
                'Say where each is shown: {"type": "image"} in the content of a message.',
            )
        conversation = Conversation(place, turns)
        check_turns(conversation)
        return conversation

    def _turn(self, message: Any, number: int, listed: Iterator[Any]) -> Turn:
        if not isinstance(message, dict) or "role" not in message or "content" not in message:
            raise _EntryError(f"message {number} is {message!r:.60}", MESSAGE)
        role, content = message["role"], message["content"]
        if role not in ROLES:
            raise _EntryError(f"message {number} is of {role!r}", nearest(str(role), ROLES))
        if isinstance(content, str):
            return Turn(role, (TextPart(_as_text(content, number)),))
        if not isinstance(content, list):
            raise _EntryError(f"the content of message {number} is a {type(content).__name__}", MESSAGE)
        return Turn(role, tuple(self._part(part, number, listed) for part in content))

    def _part(self, part: Any, number: int, listed: Iterator[Any]) -> Part:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "text" and isinstance(part.get("text"), str):
            return TextPart(_as_text(part["text"], number))
        if kind in ("image", "image_url"):
            return self._image(part, number, listed)
        raise _EntryError(f"a part of message {number} is {part!r:.60}: neither text nor image", MESSAGE)

    def _image(self, part: dict[str, Any], number: int, listed: Iterator[Any]) -> ImagePart:
        given = next((part[key] for key in (*IMAGE_KEYS, "image_url") if part.get(key) is not None), None)
        if given is None:
            given = next(listed, None)
        if given is None:
            raise _EntryError(
                f"an image of message {number} says neither its path nor its bytes",
                'Write {"type": "image", "image": "folder/a.png"}, or list the paths in "images" beside "messages".',
            )
        return self._picture(given, number)

    def _picture(self, given: Any, number: int) -> ImagePart:
        match given:
            case {"url": str(url)}:
                return self._picture(url, number)
            case {"bytes": bytes(content)}:
                return ImagePart(content)
            case {"path": str(path)}:
                return self._picture(path, number)
            case bytes():
                return ImagePart(given)
            case str() if given.startswith("data:"):
                return ImagePart(_decoded(given, number))
            case str() if given.startswith(("http://", "https://")):
                raise _EntryError(
                    f"an image of message {number} is on the web", "Download it, and name the file: runs read no URLs."
                )
            case str():
                file = self.folder / given.removeprefix("file://")
                if not _is_file(file):
                    raise _EntryError(
                        f"there is no image {file!s:.200} (message {number})",
                        "Paths are relative to the folder of the file that names them.",
                    )
                return ImagePart(file)
        raise _EntryError(f"an image of message {number} is a {type(given).__name__}", MESSAGE)


def _as_text(words: str, number: int) -> str:
    """Return words; halves of a letter, which JSON can write, are none."""
    try:
        words.encode()
    except UnicodeEncodeError as error:
        raise _EntryError(f"message {number} has half a letter, {words[error.start]!r}, which is no text") from error
    return words


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name that no file system takes: a picture's bytes, say
        return False


def _decoded(url: str, number: int) -> bytes:
    """Return what a data URL holds."""
    head, _, content = url.partition(",")
    if not head.endswith(";base64"):
        raise _EntryError(f"an image of message {number} is a data URL that is not base64")
    try:
        return base64.b64decode(content, validate=True)
    except (binascii.Error, ValueError) as error:
        raise _EntryError(f"an image of message {number} is no base64: {error}") from error
