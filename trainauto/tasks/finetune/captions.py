"""A folder of pictures with captions, as conversations: what is asked of each, and its caption as the answer."""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from trainauto.core.errors import InputError, Place, Problem
from trainauto.core.json_text import from_json
from trainauto.data.folder_walk import warn_of_links
from trainauto.tasks.finetune.conversations import ASSISTANT, USER, Conversation, ImagePart, TextPart, Turn, check_turns

logger = logging.getLogger(__name__)

PICTURE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff")
TABLES = ("metadata.jsonl", "captions.jsonl")
"""Files that name pictures and their captions, as ``datasets`` has them for a folder of images."""

NAME_KEYS, CAPTION_KEYS = ("file_name", "image"), ("text", "caption")
PROMPT = "Describe the picture."
"""What is asked where the option file does not say."""

ADVICE = (
    f"A caption stands in a text file beside its picture (a.png, a.txt), or in {TABLES[0]}: "
    '{"file_name": "a.png", "text": "words"}.'
)


def captioned_pictures(folder: Path, prompt: str = "") -> Iterator[Conversation]:
    """Yield a conversation for each picture below a folder.

    Args:
        folder: of pictures.
        prompt: what the user asks.

    Raises:
        InputError: a picture has no caption, a caption of a table no picture, or a caption is empty.
    """
    table = next((folder / name for name in TABLES if (folder / name).is_file()), None)
    for picture, caption, place in _of_table(table) if table is not None else _beside(folder):
        if not caption.strip():
            raise InputError(Problem(f"{place}: the caption of {picture.name} is empty", advice=ADVICE))
        parts = (ImagePart(picture), TextPart(prompt or PROMPT))
        conversation = Conversation(place, (Turn(USER, parts), Turn(ASSISTANT, (TextPart(caption),))))
        check_turns(conversation)
        yield conversation


def _beside(folder: Path) -> Iterator[tuple[Path, str, str]]:
    """Yield pictures with the captions in files of the same name."""
    without = []
    warn_of_links(folder, "pictures")
    files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
    pictures = [file for file in files if file.suffix.lower() in PICTURE_SUFFIXES]
    _say_not_read(folder, files, pictures)
    for picture in pictures:
        text = picture.with_suffix(".txt")
        if not text.is_file():
            without.append(picture)
            continue
        yield picture, _read(text).strip(), str(text)
    if without:
        shown = ", ".join(str(picture) for picture in without[:3]) + (", ..." if len(without) > 3 else "")
        raise InputError(Problem(f"{len(without)} pictures have no caption: {shown}", advice=ADVICE))


def _say_not_read(folder: Path, files: Sequence[Path], pictures: Sequence[Path]) -> None:
    """Warn of captions whose pictures are of kinds that are not read."""
    known = {picture.with_suffix(".txt") for picture in pictures}
    captions = {file for file in files if file.suffix == ".txt"} - known
    left_out = [file for file in files if file.with_suffix(".txt") in captions and file.suffix != ".txt"]
    if left_out:
        kinds = ", ".join(f"{count} {kind}" for kind, count in Counter(file.suffix for file in left_out).most_common())
        more = ", ..." if len(left_out) > 1 else ""
        logger.warning(
            "pictures with captions in %s are of kinds that are not read, and left out: %s (%s%s). Save them as PNG.",
            folder,
            kinds,
            left_out[0].name,
            more,
        )


def _read(file: Path) -> str:
    try:
        return file.read_bytes().decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        message = f"{file} is no UTF-8 text: byte {error.start} is {error.object[error.start]:#04x}"
        raise InputError(Problem(message, advice="Save it as UTF-8.")) from error


def _of_table(table: Path) -> Iterator[tuple[Path, str, str]]:
    """Yield what a table of pictures and captions names."""
    for number, line in enumerate(_read(table).split("\n"), start=1):  # others are no ends of JSON lines
        if not line.strip():
            continue
        try:
            entry = from_json(line)
        except ValueError as error:
            raise _error(table, number, line, f"this line is no JSON: {error}") from error
        name, caption = (_first(entry, keys) for keys in (NAME_KEYS, CAPTION_KEYS))
        if name is None or caption is None:
            raise _error(table, number, line, "this line names no picture with its caption")
        picture = table.parent / name
        if not picture.is_file():
            raise _error(table, number, line, f"there is no picture {picture}")
        yield picture, caption.strip(), f"{table}:{number}"


def _first(entry: object, keys: tuple[str, ...]) -> str | None:
    if not isinstance(entry, Mapping):
        return None
    return next((entry[key] for key in keys if isinstance(entry.get(key), str)), None)


def _error(table: Path, number: int, line: str, message: str) -> InputError:
    return InputError(Problem(message, place=Place(str(table), number, 1, line), advice=ADVICE))
