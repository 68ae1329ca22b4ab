"""Where conversations lie: JSON lines, folders of pictures with captions, datasets saved on disk."""

from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from trainauto.core.errors import InputError, Problem
from trainauto.data.dataset_roots import resolve_root
from trainauto.tasks.finetune.captions import PICTURE_SUFFIXES, captioned_pictures
from trainauto.tasks.finetune.conversation_lines import conversation_lines, conversation_of
from trainauto.tasks.finetune.conversations import Conversation

LINE_SUFFIXES = (".jsonl", ".ndjson")
DATASET_FILE = "dataset_info.json"
"""What ``datasets.Dataset.save_to_disk`` writes into its folder."""


def read_conversations(
    roots: str | Sequence[str], *, set_name: str, prompt: str = "", argument: str = "path"
) -> list[Conversation]:
    """Read all conversations under one or several roots.

    Args:
        roots: files of JSON lines, folders of pictures with captions, datasets that ``datasets`` saved to disk, or
            ``package:NAME/PATH``: PATH inside the installed Python package NAME.
        set_name: of the dataset, for messages.
        prompt: what is asked of a captioned picture.
        argument: what errors of a root blame.

    Raises:
        InputError: a root does not exist or holds none, or one cannot be used: it names the file and the line.
    """
    conversations: list[Conversation] = []
    for root in [roots] if isinstance(roots, str) else roots:
        path = resolve_root(root, (*LINE_SUFFIXES, *PICTURE_SUFFIXES), set_name, argument)
        of_root = list(_read(path, prompt))
        if not of_root:
            advice = "A file has a conversation a line; a folder has pictures with captions, or a saved dataset."
            raise InputError(
                Problem(f"dataset '{set_name}': no conversations in {root}", advice=advice, argument=argument)
            )
        conversations.extend(of_root)
    if not conversations:
        raise InputError(Problem(f"dataset '{set_name}': the list of roots is empty", argument=argument))
    return conversations


def _read(path: Path, prompt: str) -> Iterator[Conversation]:
    if path.is_file():
        yield from _lines_of(path)
    elif (path / DATASET_FILE).is_file():
        yield from _saved_dataset(path)
    else:
        yield from captioned_pictures(path, prompt)


def _lines_of(file: Path) -> Iterator[Conversation]:
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(Problem(f"{file} is no UTF-8 text", advice="Its lines are JSON objects.")) from error
    yield from conversation_lines(file, text.replace("\r\n", "\n"))


def _saved_dataset(folder: Path) -> Iterator[Conversation]:
    """Yield the rows of a dataset on disk; their pictures stay as bytes."""
    if find_spec("datasets") is None:
        advice = "pip install datasets; or write the conversations as JSON lines."
        raise InputError(Problem(f"{folder} is a dataset that the package datasets saved", advice=advice))
    datasets = import_module("datasets")
    saved = datasets.load_from_disk(str(folder))
    for name in saved.column_names:
        feature = saved.features[name]
        inner = getattr(feature, "feature", None)
        if isinstance(inner, datasets.Image):
            saved = saved.cast_column(name, type(feature)(datasets.Image(decode=False)))
    for number, row in enumerate(saved):
        yield conversation_of(_without_missing(row), f"{folder}, row {number}", folder)


def _without_missing(value: object) -> object:
    """Return an entry without the keys that its table has and it does not: a table gives every row all keys."""
    if isinstance(value, dict):
        return {key: _without_missing(inner) for key, inner in value.items() if inner is not None}
    return [_without_missing(inner) for inner in value] if isinstance(value, list) else value
