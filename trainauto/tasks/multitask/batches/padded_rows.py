"""Texts as rows of tokens, padded to the longest of their batch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trainauto.core.errors import InputError, Problem

IDS, MASK, LABELS = "input_ids", "attention_mask", "labels"

NOT_LEARNED = -100
"""Label that does not count, as everywhere in torch and transformers."""

NO_LIMIT = 10**9
"""Tokenizers without a longest text say some number above this."""

Row = dict[str, list[int]]
"""Tokens of a sample, and what goes with each of them, by name."""


@dataclass(frozen=True)
class RowPadding:
    """How rows are padded.

    Attributes:
        token: stands where a row has none.
        on_left: rows end together, for models that generate; else they begin together.
        multiple: widths are multiples of this.
    """

    token: int = 0
    on_left: bool = False
    multiple: int = 1

    @classmethod
    def of(cls, tokenizer: Any, multiple: int | None) -> "RowPadding":
        """Return what a tokenizer says; one without a padding token pads with its end, which the mask leaves out."""
        candidates = (getattr(tokenizer, name, None) for name in ("pad_token_id", "eos_token_id"))
        token = next((int(candidate) for candidate in candidates if isinstance(candidate, int)), 0)
        return cls(token, getattr(tokenizer, "padding_side", "right") == "left", multiple or 1)

    def width(self, lengths: Sequence[int]) -> int:
        """Return how wide rows of these lengths become; at least one column, for models take no batch without."""
        return -(-max(1, *lengths) // self.multiple) * self.multiple

    def padded(self, rows: Sequence[Sequence[Any]], width: int, value: float, dtype: torch.dtype) -> Tensor:
        """Return rows as one tensor (N, width).

        Args:
            rows: none longer than the width.
            width: of all.
            value: stands where a row has none.
            dtype: of the tensor.
        """
        tensor = torch.full((len(rows), width), value, dtype=dtype)
        for number, row in enumerate(rows):
            if len(row):
                start = width - len(row) if self.on_left else 0
                tensor[number, start : start + len(row)] = torch.as_tensor(row, dtype=dtype)
        return tensor


def rows_of(samples: Sequence[Mapping[str, Any]], tokenizer: Any, limit: int | None) -> list[Row]:
    """Return the rows of samples: their ``input_ids``, or their ``text`` tokenized.

    A sample with neither has the row of an empty text.

    Args:
        samples: of the batch.
        tokenizer: called once with all texts; only where a sample has no ``input_ids``.
        limit: most tokens of a row; ``None`` for no limit.

    Raises:
        InputError: a text is no string, or rows are none of whole numbers.
    """
    rows: list[Row] = []
    texts: dict[int, str] = {}
    for number, sample in enumerate(samples):
        rows.append({})
        if sample.get(IDS) is not None:
            rows[-1] = _given_row(sample, number)
        else:
            text = sample.get("text") or ""
            if not isinstance(text, str):
                raise InputError(f"sample {number} of a batch: its text is no string but {type(text).__name__}")
            texts[number] = text
    if texts:
        for number, row in zip(texts, _tokenized(list(texts.values()), tokenizer, limit), strict=True):
            rows[number] = row
    return [cut(row, tokenizer, limit) for row in rows]


def as_list(row: Any) -> list[Any]:
    """Return a row of numbers as a list; an empty one for what is none, or missing."""
    values = row.tolist() if hasattr(row, "tolist") else row
    return list(values) if isinstance(values, list | tuple) else []


def cut(row: Row, tokenizer: Any, limit: int | None) -> Row:
    """Return a row of no more than so many tokens: the last ones go, or the first where the tokenizer says so."""
    if limit is None or len(row[IDS]) <= limit:
        return row
    if getattr(tokenizer, "truncation_side", "right") == "left":
        return {name: values[-limit:] for name, values in row.items()}
    return {name: values[:limit] for name, values in row.items()}


def row_limit(tokenizer: Any, max_length: int | None) -> int | None:
    """Return the most tokens of a row: as asked for, else what the tokenizer says its model takes."""
    if max_length is not None:
        return max_length
    longest = getattr(tokenizer, "model_max_length", None)
    return int(longest) if isinstance(longest, int | float) and 0 < longest < NO_LIMIT else None


def padded_rows(rows: Sequence[Row], padding: RowPadding) -> dict[str, Tensor]:
    """Return ``input_ids`` and ``attention_mask``, (N, longest), and what else a tokenizer gave with every token.

    A row without tokens attends to its first padding token: one that attends to nothing is NaN after a softmax.
    """
    width = padding.width([len(row[IDS]) for row in rows])
    masks = [row.get(MASK) or [1] * len(row[IDS]) or [1] for row in rows]
    tensors = {
        IDS: padding.padded([row[IDS] for row in rows], width, padding.token, torch.int64),
        MASK: padding.padded(masks, width, 0, torch.int64),
    }
    for name in sorted({name for row in rows for name in row} - {IDS, MASK, LABELS}):
        values = [row.get(name, [0] * len(row[IDS])) for row in rows]
        tensors[name] = padding.padded(values, width, 0, torch.int64)
    return tensors


def _tokenized(texts: list[str], tokenizer: Any, limit: int | None) -> list[Row]:
    if tokenizer is None and not any(texts):
        return [{IDS: []} for _ in texts]
    if not callable(tokenizer):
        advice = "Give a tokenizer of transformers, or samples with 'input_ids'."
        raise InputError(Problem(f"texts need a tokenizer, not a {type(tokenizer).__name__}", advice=advice))
    given = {} if limit is None else {"truncation": True, "max_length": limit}
    encoded = tokenizer(texts, **given)
    names = [name for name, values in encoded.items() if len(values) == len(texts)]
    return [{name: list(encoded[name][number]) for name in names} for number in range(len(texts))]


def _given_row(sample: Mapping[str, Any], number: int) -> Row:
    """Return the row of a sample that has tokens already; with its labels, where it has one for every token."""
    row = {name: _numbers(sample[name], name, number) for name in (IDS, MASK) if sample.get(name) is not None}
    labels = as_list(sample.get(LABELS))
    if len(labels) == len(row[IDS]) and all(isinstance(label, int) for label in labels):
        row[LABELS] = labels
    return row


def _numbers(row: Any, name: str, number: int) -> list[int]:
    values = row.tolist() if hasattr(row, "tolist") else row
    if not isinstance(values, list | tuple) or any(not isinstance(value, int) for value in values):
        raise InputError(f"sample {number} of a batch: its {name} must be one row of whole numbers")
    return list(values)
