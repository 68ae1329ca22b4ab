"""Texts as token ids: tokenized once, kept in flat arrays, padded as batches of them are asked for."""

import logging
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset

from trainauto.core.errors import InputError
from trainauto.data.packing import padded_width
from trainauto.tasks.text.text_batch import TextBatch

logger = logging.getLogger(__name__)

TEXTS_AT_ONCE = 1024
"""Fast tokenizers work on so many side by side; the lists of numbers that they return are short-lived."""


@dataclass(frozen=True)
class Padding:
    """How rows are made equally long.

    Attributes:
        values: what fills a row, by the tokenizer's key.
        on_left: fill before the text, as models that continue it need.
        multiple: widths are multiples of this.
    """

    values: Mapping[str, int]
    on_left: bool = False
    multiple: int = 1


class TokenizedTexts(Dataset[TextBatch]):
    """Texts, ready to be made into batches.

    Flat arrays are one block of memory for any number of texts, which workers share.

    Attributes:
        texts: as they were given.
        lengths: tokens of each, special tokens included.
        padding: how rows are made equally long.
    """

    def __init__(
        self, texts: Sequence[str], lengths: NDArray[np.int64], tokens: Mapping[str, NDArray[Any]], padding: Padding
    ) -> None:
        self.texts = texts
        self.lengths = lengths
        self.padding = padding
        self._tokens = tokens
        self._ends = np.cumsum(lengths)

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: int) -> TextBatch:
        return self.batch([index])

    def __getitems__(self, indices: Sequence[int]) -> TextBatch:
        """Return what torch's loader asks for at once: the whole batch."""
        return self.batch(indices)

    def batch(self, indices: Sequence[int]) -> TextBatch:
        """Return a batch of the texts at these places, padded to its longest."""
        lengths = self.lengths[indices]
        ends = self._ends[indices]
        width = int(padded_width(lengths.max(), self.padding.multiple))
        columns = np.arange(width)
        is_text = columns < lengths[:, None]
        if self.padding.on_left:
            is_text = is_text[:, ::-1]
        data = {}
        for name, flat in self._tokens.items():
            rows = np.full((len(indices), width), self.padding.values[name], dtype=np.int64)
            spans = zip(ends - lengths, ends, strict=True)
            rows[is_text] = np.concatenate([flat[start:end] for start, end in spans])
            data[name] = torch.from_numpy(rows)
        places = [int(index) for index in indices]
        return TextBatch(data, [self.texts[place] for place in places], places)


def tokenize(texts: Iterable[str], tokenizer: Any, most_tokens: int, arguments: Mapping[str, Any]) -> TokenizedTexts:
    """Tokenize texts once, in batches, with progress on a terminal.

    Args:
        texts: strings of any length.
        tokenizer: a tokenizer of Hugging Face's, fast or slow.
        most_tokens: texts are cut to so many, special tokens included.
        arguments: further keywords of the tokenizer.

    Raises:
        InputError: a text is no string, rows cannot be padded as asked, or the tokenizer returns what cannot be padded.
    """
    texts = check_texts(texts)
    padding, to_tokenizer = _padding_of(tokenizer, arguments)
    if most_tokens % padding.multiple:
        raise InputError(
            f"max_input_token_length {most_tokens} is no multiple of pad_to_multiple_of {padding.multiple}"
        )
    longest = getattr(tokenizer, "model_max_length", most_tokens)
    if most_tokens > longest:
        logger.warning(
            "max_input_token_length is %d, but the tokenizer says that its model takes %d tokens", most_tokens, longest
        )
    lengths: list[NDArray[np.int64]] = []
    parts: dict[str, list[NDArray[Any]]] = {}
    for some in _with_progress(texts):
        encoded = tokenizer(some, truncation=True, max_length=most_tokens, padding=False, **to_tokenizer)
        rows = encoded[tokenizer.model_input_names[0]]
        lengths.append(np.fromiter(map(len, rows), np.int64, len(rows)))
        for name, of_rows in encoded.items():
            parts.setdefault(name, []).append(_flat(of_rows, int(lengths[-1].sum())))
    unknown = parts.keys() - padding.values.keys()
    if unknown:
        raise InputError(f"the tokenizer returns '{min(unknown)}', for which there is no padding")
    tokens = {name: np.concatenate(arrays) for name, arrays in parts.items()}
    return TokenizedTexts(texts, np.concatenate([*lengths, np.empty(0, np.int64)]), tokens, padding)


def check_texts(texts: Iterable[str]) -> list[str]:
    """Return texts in a list of our own: what is given may be a generator, or change later.

    Raises:
        InputError: naming the first that is no string.
    """
    if isinstance(texts, str):
        raise InputError("texts is one string; give a list of strings")
    listed = list(texts)
    for index, text in enumerate(listed):
        if not isinstance(text, str):
            raise InputError(f"texts[{index}] is no string but {type(text).__name__}: {text!r:.60}")
    return listed


def _padding_of(tokenizer: Any, arguments: Mapping[str, Any]) -> tuple[Padding, dict[str, Any]]:
    if tokenizer.pad_token_id is None:
        raise InputError(
            "the tokenizer has no padding token, and rows of a batch must be equally long; "
            "set one before: tokenizer.pad_token = tokenizer.eos_token"
        )
    to_tokenizer = dict(arguments)
    side = to_tokenizer.pop("padding_side", None) or tokenizer.padding_side
    if side not in ("left", "right"):
        raise InputError(f"padding_side is 'left' or 'right', not {side!r}")
    multiple = to_tokenizer.pop("pad_to_multiple_of", None) or 1
    if multiple < 1:
        raise InputError(f"pad_to_multiple_of must be 1 or more, got {multiple}")
    values = {
        tokenizer.model_input_names[0]: tokenizer.pad_token_id,
        "attention_mask": 0,
        "token_type_ids": tokenizer.pad_token_type_id,
        "special_tokens_mask": 1,
    }
    return Padding(values, side == "left", multiple), to_tokenizer


def _flat(rows: Sequence[Sequence[int]], count: int) -> NDArray[Any]:
    """Return the numbers of all rows in one array of the smallest type that holds them."""
    numbers = np.fromiter(chain.from_iterable(rows), np.int64, count)
    return numbers.astype(np.min_scalar_type(int(numbers.max(initial=0))))


def _with_progress(texts: Sequence[str]) -> Iterator[list[str]]:
    starts: Iterable[int] = range(0, len(texts), TEXTS_AT_ONCE)
    if sys.stderr.isatty():
        from rich.console import Console  # loaded where there is somebody to look
        from rich.progress import track

        starts = track(starts, "Tokenizing", console=Console(stderr=True), transient=True)
    for start in starts:
        yield list(texts[start : start + TEXTS_AT_ONCE])
