"""Validation of a language model: its mean loss and perplexity on texts, beside those of a unigram model."""

import hashlib
import logging
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from trainauto.core.errors import InputError
from trainauto.core.process import Limited, without_memory_limit
from trainauto.core.records import ValidationRecord
from trainauto.core.run_events import Picture
from trainauto.core.words import counted
from trainauto.distributed.communicator import Communicator
from trainauto.engine.signals import StopSignals
from trainauto.memory.monitor.oom import allocator_message, in_words, is_out_of_memory
from trainauto.memory.monitor.release import release_memory
from trainauto.models.base_model import BaseModel
from trainauto.tasks.text.training.language_model import LanguageModel
from trainauto.tasks.text.training.text_dataset import TextDataset
from trainauto.tasks.text.training.tokenized_samples import TokenizedSamples

logger = logging.getLogger(__name__)

LOSS, PERPLEXITY = "loss", "perplexity"
BETTER_IS_HIGHER = {LOSS: False, PERPLEXITY: False}

MOST_NATS = 700.0
"""Above it ``exp`` of a float overflows."""


class _StopHeardError(BaseException):
    """A signal came while a batch was under way. Like Ctrl-C it is no error that other code may swallow."""


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


@dataclass
class TextValidation:
    """A validation set of texts, padded in batches of a budget of tokens, the longest first.

    Batches that run out of memory run again in halves of the budget, which stays so for later validations.

    Attributes:
        dataset: its texts.
        tokens_per_batch: budget of a batch, padding included; a text that is longer comes alone.
        unigram: mean loss of a unigram model; ``None`` where nobody compares.
        tokens: tokens that are predicted in a validation.
        last: of its validations.
        is_rehearsal: only its first batch is run, to see that it can be: the longest texts.
    """

    dataset: TextDataset
    tokens_per_batch: int
    unigram: float | None = None
    tokens: int = field(init=False)
    last: ValidationRecord | None = field(init=False, default=None)
    is_rehearsal: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        learned = self.dataset.samples.learned
        self.tokens = len(learned)
        digest = hashlib.sha256(np.ascontiguousarray(learned).data).hexdigest()[:12]
        self._samples = f"{counted(self.tokens, 'token')} {digest}"

    @property
    def name(self) -> str:
        """Name of the set, in records and logs."""
        return self.dataset.name

    def validate(
        self, model: BaseModel, step: int, ranks: Communicator, signals: StopSignals
    ) -> tuple[ValidationRecord, list[Picture]] | None:
        """Validate in this process; ``None`` if a signal cut it short."""
        del ranks
        start = time.perf_counter()
        try:
            with signals.raising(_StopHeardError), without_memory_limit() as limited:
                loss, ooms = self._mean_loss(_language_model(model), limited)
        except _StopHeardError:
            signals.agreed = signals.received
            return None
        record = ValidationRecord(
            step=step,
            dataset=self.name,
            metrics={LOSS: loss, PERPLEXITY: perplexity(loss)},
            baseline={LOSS: self.unigram, PERPLEXITY: perplexity(self.unigram)} if self.unigram is not None else {},
            scores=(),
            seconds=time.perf_counter() - start,
            tile_px=0,
            better_is_higher=BETTER_IS_HIGHER,
            ooms=ooms,
            baseline_name="unigram",
            seen=counted(self.tokens, "token"),
            measured_by=dict.fromkeys(BETTER_IS_HIGHER, self._samples),
        )
        self.last = record
        return record, []

    def lack_of_room(self, model: BaseModel, limited: Limited) -> str:
        """Say so if the longest text does not fit under a limit, alone."""
        index = self.dataset.largest_sample
        failure, _ = self._try(_language_model(model), [index], limited)
        if not failure:
            return ""
        size = counted(int(self.dataset.sizes[index]), "token")
        return f"its longest text ({size}) does not fit alone. Take a smaller max_length, or a larger budget."

    def if_too_large(self, error: BaseException, *, is_sharded: bool) -> tuple[str, str]:
        """Return how far it was tried when validation ran out of memory, and what to do."""
        del error, is_sharded
        return "not even one text at a time", "Take shorter validation texts (max_length)"

    def warm_up(self) -> None:
        """Nothing is loaded at the first use."""

    def _mean_loss(self, model: LanguageModel, limited: Limited) -> tuple[float, int]:
        """Return the mean loss over all learned tokens, and how often memory ran out."""
        order = np.argsort(-self.dataset.sizes, kind="stable").tolist()
        total, place, ooms = 0.0, 0, 0
        while place < len(order):
            batch = order[place : place + self._count(order[place])]
            failure, loss = self._try(model, batch, limited)
            if failure:
                self._shrink(batch, failure, model.device)
                ooms += 1
                continue
            total += loss
            place += len(batch)
            if self.is_rehearsal:
                return total / self.dataset.workload.weight(self.dataset.batch(batch)), ooms
        return total / self.tokens, ooms

    def _count(self, longest: int) -> int:
        """Return how many texts a batch has that begins with this one."""
        return max(1, self.tokens_per_batch // int(self.dataset.sizes[longest]))

    def _try(self, model: LanguageModel, batch: Sequence[int], limited: Limited) -> tuple[str, float]:
        """Return why a batch does not fit, empty where it does, and the sum of its losses."""
        tensors = self.dataset.batch(batch)
        learned = self.dataset.workload.weight(tensors)
        try:
            with limited():
                held = {
                    name: leaf.to(model.device) if isinstance(leaf, torch.Tensor) else leaf
                    for name, leaf in tensors.items()
                }
                return "", model.mean_loss(held) * learned
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            return in_words(allocator_message(error)), 0.0

    def _shrink(self, batch: Sequence[int], failure: str, device: torch.device) -> None:
        release_memory(device)
        if len(batch) == 1:
            raise MemoryError(f"a text of {counted(int(self.dataset.sizes[batch[0]]), 'token')} alone: {failure}")
        width = int(self.dataset.sizes[batch[0]])
        self.tokens_per_batch = width * math.ceil(len(batch) / 2)
        logger.warning(
            "out of memory in validation with %s (%s): batches of %d tokens from here on",
            counted(len(batch), "text"),
            failure,
            self.tokens_per_batch,
        )


def _language_model(model: BaseModel) -> LanguageModel:
    if not isinstance(model, LanguageModel):
        raise InputError(f"a {type(model).__name__} cannot be validated on texts")
    return model
