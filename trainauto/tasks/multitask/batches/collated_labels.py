"""What the samples of a batch are to be trained on: a number each, rows of their own, or their tokens."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from trainauto.core.errors import InputError, Problem
from trainauto.tasks.multitask.batches.padded_rows import IDS, LABELS, MASK, NOT_LEARNED, Row, RowPadding


def collated_labels(
    samples: Sequence[Mapping[str, Any]], rows: Sequence[Row], padding: RowPadding, width: int
) -> Tensor:
    """Return the labels of a batch.

    - Where a sample has a ``label``: one number for each, (N,), whole ones as int64, others as float32.
    - Where a sample has ``labels``: rows of them. Where they are as many as its ``input_ids``, they stand beside these,
      (N, width); else they are padded on the right to their own longest.
    - Else the tokens, (N, width), of which those that are masked are not learned.

    What is padding, or has no label, is -100.

    Args:
        samples: of the batch.
        rows: of the samples, cut, with their ``labels`` where these go with their tokens.
        padding: of the rows.
        width: that they are padded to.

    Raises:
        InputError: something is no number, or missing where it cannot be.
    """
    labelled = [number for number, sample in enumerate(samples) if sample.get(LABELS) is not None]
    has_single = any(sample.get("label") is not None for sample in samples)
    if has_single:
        _check_one_kind(samples, labelled)
    if has_single or (not labelled and any("label" in sample for sample in samples)):
        return _numbers([sample.get("label") for sample in samples])
    if not labelled:
        return padding.padded([_learned(row) for row in rows], width, NOT_LEARNED, torch.int64)
    if all(LABELS in rows[number] for number in labelled):
        return padding.padded([row.get(LABELS, []) for row in rows], width, NOT_LEARNED, torch.int64)
    labels = [_row(sample.get(LABELS), number) for number, sample in enumerate(samples)]
    has_fractions = any(isinstance(value, float) for row in labels for value in row)
    own = RowPadding(multiple=padding.multiple)
    dtype = torch.float32 if has_fractions else torch.int64
    return own.padded(labels, own.width([len(row) for row in labels]), NOT_LEARNED, dtype)


def _check_one_kind(samples: Sequence[Mapping[str, Any]], labelled: Sequence[int]) -> None:
    """Refuse rows of labels beside single ones: no tensor holds both, and either would go unlearned."""
    for number in labelled:
        if samples[number].get("label") is None:
            raise InputError(
                Problem(
                    f"sample {number} of a batch has a row of labels, and others have one label each",
                    advice="Give all samples the one or the other: a label may be a row of one number.",
                )
            )


def _learned(row: Row) -> list[int]:
    mask = row.get(MASK) or [1] * len(row[IDS])
    return [token if seen else NOT_LEARNED for token, seen in zip(row[IDS], mask, strict=True)]


def _row(labels: Any, number: int) -> list[float]:
    values = labels.tolist() if hasattr(labels, "tolist") else [] if labels is None else labels
    if not isinstance(values, list | tuple) or not all(isinstance(value, int | float) for value in values):
        raise InputError(f"sample {number} of a batch: its labels must be one row of numbers; one number is a 'label'")
    return list(values)


def _numbers(labels: Sequence[Any]) -> Tensor:
    plain = [label.item() if hasattr(label, "item") else label for label in labels]
    for number, label in enumerate(plain):
        if label is not None and not isinstance(label, int | float):
            raise InputError(f"sample {number} of a batch: its label is {label!r}, not a number")
    if not any(isinstance(label, float) for label in plain):
        return torch.tensor([NOT_LEARNED if label is None else int(label) for label in plain])
    if None in plain:
        raise InputError(f"sample {plain.index(None)} of a batch has no label, which only whole numbers can do without")
    return torch.tensor(plain, dtype=torch.float32)
