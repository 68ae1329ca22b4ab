"""Marks of a tokenizer within words: what a person has written as words is read as the end of a turn, say."""

import logging
import re
from collections.abc import Iterable
from typing import Any

from trainauto.core.words import visible

logger = logging.getLogger(__name__)


def marks_of(tokenizer: Any) -> set[str]:
    """Return the texts that a tokenizer reads as special tokens wherever they stand; none where it does not."""
    if getattr(tokenizer, "split_special_tokens", False):
        return set()
    added = getattr(tokenizer, "added_tokens_decoder", {}).values()
    return {*map(str, tokenizer.all_special_tokens), *(str(token) for token in added if token.special)} - {""}


def say_marks(texts: Iterable[tuple[str, str]], marks: Iterable[str], of_what: str) -> None:
    """Warn once where words hold special tokens: a model learns or reads them as marks.

    Args:
        texts: places with the words there, before any template.
        marks: special tokens, as :func:`marks_of` returns them.
        of_what: whose words they are, such as ``dataset 'train'``.
    """
    longest_first = sorted(marks, key=len, reverse=True)
    if not longest_first:
        return
    pattern = re.compile("|".join(map(re.escape, longest_first)))
    found = [(place, match[0]) for place, words in texts if (match := pattern.search(words))]
    if not found:
        return
    place, mark = found[0]
    places = "1 text holds" if len(found) == 1 else f"{len(found)} texts hold"
    logger.warning(
        "%s: %s a special token of the tokenizer among the words (%s, first in %s): the model gets it as a mark, and "
        "not as words. Write it otherwise where it is none",
        of_what,
        places,
        visible(mark),
        visible(place),
    )
