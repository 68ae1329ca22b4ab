"""Conversations as the loader asks for samples, and a validation set of them."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from trainauto.core.words import counted
from trainauto.data.dynamic_dataset import SampleKey
from trainauto.engine.batched_validation import BatchedValidation
from trainauto.integrations.map_samples import MapSamples, seeded
from trainauto.tasks.finetune.conversation_model import LOSS
from trainauto.tasks.finetune.datasets import ConversationCollator, ConversationDataset, PlannedConversations


class ConversationSet(MapSamples):
    """Conversations, and how batches are made of them.

    Args:
        name: of the set.
        conversations: encoded when they are drawn.
        collate: makes batches of them.
        largest: number of the conversation that plans go by.
    """

    if_changed = (
        "Restore the conversations and their pictures; or leave --auto_resume out: a run of its own begins, from the "
        "model of an epoch with model.name."
    )

    def __init__(
        self, name: str, conversations: ConversationDataset, collate: ConversationCollator, largest: int
    ) -> None:
        super().__init__(conversations, collate)
        self.name = name
        self.conversations, self._conversation_collate = conversations, collate
        self.known_checksums = {"conversations": conversations.checksum}
        self.learn_largest(largest)

    def learn_largest(self, largest: int) -> None:
        """Have plans go by a conversation, as it is encoded now."""
        with seeded(0):
            one = self.collate([self[SampleKey(largest, 0, 0)]])
        samples = self._conversation_collate.samples
        self.workload = PlannedConversations.of(samples, one).weighed(samples.weight)

    def planned(self) -> PlannedConversations:
        """Return the workload, which knows the conversation that plans go by."""
        return cast(PlannedConversations, self.workload)

    def sample_name(self, index: int) -> str:
        """Return the file of a conversation, and its line."""
        return self.conversations.conversations[index].place


class ConversationValidation(BatchedValidation):
    """The mean loss over what answers say, on conversations that are not learned."""

    dataset: ConversationSet
    sample, smaller = "conversation", "shorter conversations (max_length), or fewer max_pixels"
    most_option = "per_device_train_batch_size, with more gradient_accumulation_steps"
    better_is_higher = MappingProxyType({LOSS: False})

    def __init__(self, dataset: ConversationSet, most: int, lengths: NDArray[np.int64]) -> None:
        samples = f"{dataset.conversations.checksum:08x}"
        super().__init__(dataset, most, lengths, seen=counted(len(dataset), "conversation"), samples=samples)

    def batch(self, indices: Sequence[int]) -> Mapping[str, Tensor]:
        """Return these conversations as a batch."""
        return self.dataset.some(indices)

    def measure(self, model: Any, tensors: Mapping[str, Tensor]) -> Mapping[str, float]:
        """Return the mean loss over the learned tokens of a batch."""
        return {LOSS: model.mean_loss(tensors)}
