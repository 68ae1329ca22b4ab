"""Conversations as a map-style dataset: encoded when they are drawn, put together to batches that all look alike."""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainauto.core.plan import BatchShape
from trainauto.core.workload import Tensors
from trainauto.data.packing import FewestBatches, IntArray, SampleSizes
from trainauto.data.packing.pack import pack_ordered
from trainauto.integrations.samples import NestedSamples, Template, Weigh
from trainauto.integrations.structure import Structure, leaves_of
from trainauto.tasks.finetune.conversation_samples import ROWS_OF, ConversationSamples
from trainauto.tasks.finetune.conversations import Conversation
from trainauto.tasks.finetune.encoding import IDS, MASK, ConversationEncoder, Encoded


class ConversationDataset:
    """Conversations that are made tokens when they are asked for.

    Args:
        conversations: looked through before.
        encoder: of the model.
        lengths: tokens of each as they were looked through, (N,), by which steps are ordered: a step of which a part is
            trained keeps its order when pictures shrink. ``None`` for those that they have when they are drawn.
    """

    def __init__(
        self,
        conversations: Sequence[Conversation],
        encoder: ConversationEncoder,
        lengths: NDArray[np.int64] | None = None,
    ) -> None:
        self.conversations = conversations
        self._encoder = encoder
        self._lengths = lengths

    def __len__(self) -> int:
        return len(self.conversations)

    @property
    def checksum(self) -> int:
        """Checksum of all words, and of names and sizes of the pictures' files."""
        checksum = 0
        for conversation in self.conversations:
            checksum = zlib.crc32(repr(conversation.fingerprint()).encode(), checksum)
        return checksum

    def __getitem__(self, index: int) -> Encoded:
        encoded = self._encoder.encode(self.conversations[index])
        return encoded if self._lengths is None else replace(encoded, length=int(self._lengths[index]))


class ConversationCollator:
    """Makes encoded conversations a batch that holds what every batch of a run holds, pictures or none.

    Args:
        samples: puts them together.
        example: a conversation with pictures; ``None`` where there are none in the run.
        longest_first: whether conversations come from the longest to the shortest, whose passes are then of neighbours
            by length (:mod:`~trainauto.tasks.finetune.datasets`); else in the order in which they are given.
    """

    def __init__(self, samples: ConversationSamples, example: Encoded | None, *, longest_first: bool = False) -> None:
        self.samples = samples
        self._longest_first = longest_first
        self._along = tuple(example.along) if example is not None else ()
        self._pictures = {name: rows[:0] for name, rows in example.pictures.items()} if example is not None else {}

    def __call__(self, samples: Sequence[Encoded]) -> dict[str, Tensor]:
        """Return a batch, ``input_ids`` first."""
        if self._longest_first:
            samples = sorted(samples, key=_length_of, reverse=True)
        batch = self.samples.batch(samples)
        for name in self._along:
            if name not in batch:
                batch[name] = torch.zeros_like(batch[IDS])
        for name, none in self._pictures.items():
            if name not in batch:
                batch[name] = none
                batch[ROWS_OF + name] = torch.zeros(len(samples), dtype=torch.long)
        return {name: batch[name] for name in sorted(batch, key=lambda name: (name != IDS, name))}


def _length_of(sample: Encoded) -> int:
    return len(sample.ids) if sample.length is None else sample.length


def _tokens_and_rows(tensors: Mapping[str, Any]) -> tuple[IntArray, IntArray]:
    """Return the tokens of each sample of a batch, padding left out, and the rows of its pictures."""
    rows = [tensors[name].cpu().numpy() for name in tensors if name.startswith(ROWS_OF)]
    tokens = tensors[MASK].sum(1).cpu().numpy()
    return tokens, np.max(rows, axis=0) if rows else np.zeros_like(tokens)


class PlannedConversations(NestedSamples):
    """Batches of conversations as a Trainer's workload, with the largest sample that plans go by.

    Args:
        samples: divides them, and puts them together.
        template: of the largest sample.
        weigh: see :class:`~trainauto.integrations.samples.NestedSamples`.
    """

    def __init__(self, samples: ConversationSamples, template: Template, weigh: Weigh | None = None) -> None:
        super().__init__(template, weigh)
        self._samples = samples
        tokens, rows = _tokens_and_rows(template.leaves)
        self._cost = PassCost(int(tokens.max()), max(1, int(rows.max())))

    @classmethod
    def of(cls, samples: ConversationSamples, one: Mapping[str, Any]) -> "PlannedConversations":
        """Return the workload of batches like this one, of the largest sample alone."""
        leaves = leaves_of(one)
        divided = frozenset(name for name in leaves if ROWS_OF + name not in leaves)
        return cls(samples, Template(leaves, Structure.of(one), divided, {}))

    def weighed(self, weigh: Weigh | None) -> "PlannedConversations":
        """Return the same kind of samples with other weights."""
        return PlannedConversations(self._samples, self.template, weigh)

    def part(self, tensors: Tensors, start: int, stop: int) -> dict[str, Tensor]:
        """Return samples ``start`` to ``stop`` with their pictures."""
        return self._samples.part(tensors, start, stop)

    def ends(self, tensors: Tensors, largest: int) -> Sequence[int]:
        """Return where each pass of a step ends: the fewest of which none takes more than ``largest`` of the largest.

        Where a longer one comes later, those before it count as it does.
        """
        tokens, rows = _tokens_and_rows(tensors)
        longest_from_here = np.maximum.accumulate(tokens[::-1])[::-1]
        return self._cost.ends(SampleSizes(longest_from_here, rows), largest)

    def join(self, parts: Sequence[Tensors]) -> dict[str, Tensor]:
        """Return the samples of all parts; what a loss has handed on has a row for each, and no pictures."""
        return self._samples.join(parts) if IDS in parts[0] else super().join(parts)

    def shape(self, tensors: Tensors) -> BatchShape:
        """Say how many samples a batch has, how long the longest is, and how many pictures there are."""
        return self._samples.shape(tensors)

    def units(self, tensors: Tensors) -> int:
        """Return the tokens of a batch, padding left out."""
        return self._samples.units(tensors)

    def fullness(self, tensors: Tensors, largest: int) -> float:
        """Return what the fullest pass takes, over what so many of the template's sample take, or all there are."""
        tokens, rows = _tokens_and_rows(tensors)
        ends = np.asarray(self.ends(tensors, largest))
        starts = np.append(0, ends[:-1])
        longest, held = np.maximum.reduceat(tokens, starts), np.add.reduceat(rows, starts)
        costs = self._cost.cost(ends - starts, longest, held)
        return float(costs.max() / self._cost.bound(min(largest, len(tokens))))

    def told(self) -> Sequence[Tensor]:
        """Return all but what pictures show: models read sizes out of tokens, masks, and how many patches there are."""
        return [leaf for leaf in self.template.leaves.values() if not leaf.is_floating_point()]

    def dummy(self, samples: int, extent: int) -> dict[str, Tensor]:
        """Return a batch that repeats the template's sample; where it is several, one lacks its last token.

        Such batches are padded, as most are, and models leave masks out where nothing is.
        """
        del extent
        one = self.template.leaves
        shorter = self._samples.without_last(one)
        return self._samples.join([*[one] * (samples - 1), one if samples == 1 else shorter])

    def check(self, leaves: Mapping[str, Any], samples: int) -> None:
        """Accept a batch: the collator sees to it that all are made alike."""
        del leaves, samples


@dataclass(frozen=True)
class PassCost:
    """What a pass takes, in parts of what the largest conversation takes alone.

    A pass fits where so many of the largest would: by padded tokens, words and those of pictures, and by rows of
    pictures (patches) that the vision tower reads; or where it has no more conversations than that.

    Attributes:
        tokens: of the largest conversation, pictures included.
        rows: what its pictures are to the vision tower; 1 where it has none.
        unit: what costs are in.
    """

    tokens: int
    rows: int
    unit: str = "parts of the largest conversation"

    def cost(self, samples: IntArray, longest: IntArray, images: IntArray) -> IntArray:
        """Return what passes cost; ``images`` are rows of pictures."""
        held = np.maximum(samples * longest * self.rows, images * self.tokens)
        cost: IntArray = np.minimum(held, samples * self.tokens * self.rows)
        return cost

    def bound(self, largest: int) -> int:
        """Return what so many of the largest conversations cost."""
        return largest * self.tokens * self.rows

    def ends(self, sizes: SampleSizes, largest: int) -> list[int]:
        """Return where the fewest passes end that take no more than so many of the largest conversations.

        Args:
            sizes: tokens and rows of pictures of the step's conversations, from the longest to the shortest.
            largest: how many of the largest a pass may hold.
        """
        count = len(sizes)
        rule = FewestBatches(self, self.bound(largest))
        ends: list[int] = pack_ordered(rule, sizes, np.arange(count), np.full(count, count)).ends.tolist()
        return ends
