"""Encoded conversations as batches: tokens padded to the longest, rows of pictures behind each other."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from trainauto.core.plan import BatchShape
from trainauto.core.workload import Tensors
from trainauto.tasks.finetune.encoding import IDS, LABELS, MASK, Encoded
from trainauto.tasks.finetune.supervision import NOT_LEARNED

ROWS_OF = "rows_of_"
"""Begins the names of tensors (N,) that say how many rows of another one each sample has."""

IMAGES = "image_counts"
"""(N,): pictures of each sample."""


class ConversationSamples:
    """Batches of conversations as a workload: what is divided by tokens, and what by pictures.

    A batch holds ``input_ids``, ``attention_mask``, ``labels`` and what goes along them as (N, T); what pictures became
    as (rows of all samples, ...), with how many rows each sample has beside it (N,). :func:`for_model` takes the latter
    out again.

    Args:
        padding_id: token that rows are padded with.
        padding_side: ``right`` or ``left``.
    """

    weighs_samples = False

    def __init__(self, padding_id: int, padding_side: str) -> None:
        if padding_side not in ("left", "right"):
            raise ValueError(f"rows are padded on the left or on the right, not {padding_side!r}")
        self._padding = {IDS: padding_id, LABELS: NOT_LEARNED}
        self._at_left = padding_side == "left"

    def batch(self, samples: Sequence[Encoded]) -> dict[str, Tensor]:
        """Return encoded conversations as a batch."""
        return self.join([self._single(sample) for sample in samples])

    def part(self, tensors: Tensors, start: int, stop: int) -> dict[str, Tensor]:
        """Return samples ``start`` to ``stop``; rows that none of them fills are left off."""
        part: dict[str, Tensor] = {}
        for name, tensor in tensors.items():
            counts = tensors.get(ROWS_OF + name)
            if counts is None:
                part[name] = tensor[start:stop]
            else:
                first, last = int(counts[:start].sum()), int(counts[:stop].sum())
                part[name] = tensor[first:last]
        return self._trimmed(part)

    def join(self, parts: Sequence[Tensors]) -> dict[str, Tensor]:
        """Return the samples of all parts; rows of tokens are padded to the longest."""
        names = list(dict.fromkeys(name for part in parts for name in part))
        longest = max(part[IDS].shape[1] for part in parts)
        samples = [len(part[IDS]) for part in parts]
        joined: dict[str, Tensor] = {}
        for name in names:
            there = [part[name] for part in parts if name in part]
            if name == IMAGES:
                joined[name] = torch.cat(there)
            elif ROWS_OF + name in names:
                joined[name] = _stacked(there)
            elif name.startswith(ROWS_OF):
                none = (torch.zeros(count, dtype=torch.long) for count in samples)
                joined[name] = torch.cat([part.get(name, zero) for part, zero in zip(parts, none, strict=True)])
            else:
                rows = (part.get(name, torch.zeros_like(part[IDS])) for part in parts)
                joined[name] = torch.cat([self._padded(name, some, longest) for some in rows])
        return joined

    def without_last(self, tensors: Tensors) -> dict[str, Tensor]:
        """Return samples without their last column of tokens."""
        return self._columns(tensors, slice(0, -1))

    def weight(self, tensors: Tensors) -> int:
        """Return the tokens that are learned: the first of a row is not, since nothing stands before it."""
        return int((tensors[LABELS][:, 1:] != NOT_LEARNED).sum())

    def shape(self, tensors: Tensors) -> BatchShape:
        """Say how many samples a batch has, how long the longest is, and how many pictures there are."""
        samples, longest = tensors[IDS].shape
        return BatchShape(samples, longest, tokens=samples * longest, images=int(tensors[IMAGES].sum()))

    def units(self, tensors: Tensors) -> int:
        """Return the tokens of a batch, padding left out."""
        return int(tensors[MASK].sum())

    def _single(self, sample: Encoded) -> dict[str, Tensor]:
        single = {IDS: sample.ids[None], LABELS: sample.labels[None], MASK: torch.ones_like(sample.ids)[None]}
        single.update({name: value[None] for name, value in sample.along.items()})
        for name, rows in sample.pictures.items():
            single[name] = rows
            single[ROWS_OF + name] = torch.tensor([len(rows)])
        single[IMAGES] = torch.tensor([sample.images])
        return single

    def _padded(self, name: str, rows: Tensor, longest: int) -> Tensor:
        missing = longest - rows.shape[1]
        sides = (missing, 0) if self._at_left else (0, missing)
        return pad(rows, sides, value=self._padding.get(name, 0)) if missing else rows

    def _trimmed(self, part: dict[str, Tensor]) -> dict[str, Tensor]:
        """Leave columns off that are padding in every row."""
        longest = int(part[MASK].sum(1).max()) if len(part[MASK]) else 0
        wide = part[MASK].shape[1]
        if longest == wide:
            return part
        return self._columns(part, slice(wide - longest, wide) if self._at_left else slice(0, longest))

    def _columns(self, part: Tensors, columns: slice) -> dict[str, Tensor]:
        return {
            name: tensor[:, columns] if tensor.ndim == 2 and self._is_of_tokens(name, part) else tensor
            for name, tensor in part.items()
        }

    @staticmethod
    def _is_of_tokens(name: str, part: Mapping[str, Tensor]) -> bool:
        return name != IMAGES and not name.startswith(ROWS_OF) and ROWS_OF + name not in part


def _stacked(rows: Sequence[Tensor]) -> Tensor:
    """Return rows of pictures behind each other; where some are larger or more in a row, others get zeros at their end.

    Zeros are what processors themselves fill up with: parts of a picture that are not there (LLaVA-NeXT, which is told
    how many there are), pictures that are not there (Idefics, which leaves those out that are zero).
    """
    widest = [max(sizes) for sizes in zip(*(tensor.shape[1:] for tensor in rows), strict=True)]
    missing = [[wide - size for wide, size in zip(widest, tensor.shape[1:], strict=True)] for tensor in rows]
    sides = [[side for count in reversed(counts) for side in (0, count)] for counts in missing]
    return torch.cat([pad(tensor, side) if any(side) else tensor for tensor, side in zip(rows, sides, strict=True)])


def for_model(batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return what a model takes of a batch: without counts of rows, and without pictures where there are none."""
    counts = {name for name in batch if name == IMAGES or name.startswith(ROWS_OF)}
    return {
        name: tensor
        for name, tensor in batch.items()
        if name not in counts and not (ROWS_OF + name in batch and not len(tensor))
    }
