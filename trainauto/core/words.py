"""Numbers with their nouns, and paths with what they are, for what people read."""

from pathlib import Path


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, in the singular or the plural: ``1 batch``, ``8 batches``."""
    if number == 1:
        return f"{number} {noun}"
    return f"{number} {noun}{'es' if noun.endswith(('s', 'x', 'ch', 'sh')) else 's'}"


def path_words(path: str) -> str:
    """Return a path that is not there, with what its name says it would be: ``folder 'chats'``, ``file 'a.jsonl'``."""
    return f"{'file' if Path(path).suffix else 'folder'} '{path}'"
