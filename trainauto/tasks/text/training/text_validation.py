"""Validation of a language model: its mean loss and perplexity on texts, beside those of a unigram model."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from trainauto.core.errors import InputError
from trainauto.core.records import ValidationRecord
from trainauto.core.words import counted
from trainauto.engine.batched_validation import BatchedValidation
from trainauto.tasks.text.training.language_model import LanguageModel
from trainauto.tasks.text.training.text_dataset import TextDataset
from trainauto.tasks.text.training.tokenized_samples import TokenizedSamples

LOSS, PERPLEXITY = "loss", "perplexity"
BETTER_IS_HIGHER = {LOSS: False, PERPLEXITY: False}

MOST_NATS = 700.0
"""Above it ``exp`` of a float overflows."""


def perplexity(loss: float) -> float:
    """Return the perplexity of a mean loss in nats; infinite where no float holds it."""
    return math.exp(loss) if loss < MOST_NATS else math.inf


def unigram_loss(training: TokenizedSamples, validation: TokenizedSamples, vocabulary: int) -> float:
    """Return the mean loss, in nats, of a model that knows how frequent each token is in training, and no more.

    Every token is counted once more than it comes, so that none is impossible (Laplace's rule of succession).

    Args:
        training: texts whose learned tokens are counted.
        validation: texts whose learned tokens are predicted.
        vocabulary: number of tokens.
    """
    counts = np.bincount(training.learned, minlength=vocabulary).astype(np.float64) + 1
    return float(-np.log(counts / counts.sum())[validation.learned].mean())


def describe_perplexity(record: ValidationRecord) -> str:
    """Return the line that a run ends with: ``perplexity 38.1, a unigram model of the training text 402.7``."""
    line = f"perplexity {record.metrics[PERPLEXITY]:.1f}"
    if PERPLEXITY not in record.baseline:
        return line
    return f"{line}, a unigram model of the training text {record.baseline[PERPLEXITY]:.1f}"


class TextValidation(BatchedValidation):
    """A validation set of texts, padded in batches of a budget of tokens, the longest first.

    Args:
        dataset: its texts.
        tokens_per_batch: budget of a batch, padding included.
        unigram: mean loss of a unigram model; ``None`` without comparison.
    """

    dataset: TextDataset
    sample, unit, smaller = "text", "token", "shorter validation texts (max_length)"
    most_option = "tokens_per_batch under val"
    better_is_higher = BETTER_IS_HIGHER
    baseline_name = "unigram"

    def __init__(self, dataset: TextDataset, tokens_per_batch: int, unigram: float | None = None) -> None:
        learned = dataset.samples.learned
        digest = hashlib.sha256(np.ascontiguousarray(learned).data).hexdigest()[:12]
        super().__init__(dataset, tokens_per_batch, dataset.sizes, seen=counted(len(learned), "token"), samples=digest)
        if unigram is not None:
            self.baseline = {LOSS: unigram, PERPLEXITY: perplexity(unigram)}

    def batch(self, indices: Sequence[int]) -> Mapping[str, Tensor]:
        """Return these texts as a batch."""
        return self.dataset.batch(indices)

    def measure(self, model: Any, tensors: Mapping[str, Tensor]) -> Mapping[str, float]:
        """Return the mean loss over the learned tokens of a batch."""
        if not isinstance(model, LanguageModel):
            raise InputError(f"a {type(model).__name__} cannot be validated on texts")
        return {LOSS: model.mean_loss(tensors)}

    def metrics(self, means: Mapping[str, float]) -> Mapping[str, float]:
        """Return the mean loss and its perplexity."""
        return {**means, PERPLEXITY: perplexity(means[LOSS])}
