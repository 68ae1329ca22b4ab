"""Validation of language models: mean loss and perplexity over the tokens of a set, whatever its batches are."""

import math
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

from tests.language_models import GPT2, T5, causal_samples, language_model, pair_samples
from trainauto.distributed.communicator import SINGLE_PROCESS, TorchCommunicator
from trainauto.engine.run_errors import RankAbortedError
from trainauto.engine.signals import StopSignals
from trainauto.tasks.text.training.language_model import LanguageModel
from trainauto.tasks.text.training.text_dataset import TextDataset
from trainauto.tasks.text.training.text_validation import (
    TextValidation,
    describe_perplexity,
    perplexity,
    unigram_loss,
)

LENGTHS = [5, 16, 2, 7, 11, 3, 9]


class Crowded(LanguageModel):
    """A language model that has room for so many tokens."""

    room = 10**9

    def mean_loss(self, tensors: Any) -> float:
        if self._layout.tokens(tensors["lengths"]) > self.room:
            raise MemoryError("no room")
        return super().mean_loss(tensors)


def crowded(model: LanguageModel, room: int) -> Crowded:
    model.__class__ = Crowded
    assert isinstance(model, Crowded)
    model.room = room
    return model


@pytest.mark.parametrize("budget", [1, 20, 40, 1000])
@pytest.mark.parametrize("kind", ["causal", "pairs"])
def test_the_mean_is_over_tokens_whatever_the_budget(kind: str, budget: int) -> None:
    texts = causal_samples(LENGTHS) if kind == "causal" else pair_samples(LENGTHS, LENGTHS[::-1])
    dataset = TextDataset("val", texts, "causal" if kind == "causal" else "encoder_decoder")
    model = language_model(dataset, GPT2 if kind == "causal" else T5)
    losses = [model.mean_loss(dataset.batch([index])) for index in range(len(LENGTHS))]
    weights = [dataset.workload.weight(dataset.batch([index])) for index in range(len(LENGTHS))]
    mean = np.average(losses, weights=weights)
    assert abs(mean - np.mean(losses)) > 1e-4
    result = TextValidation(dataset, budget).validate(model, 7, SINGLE_PROCESS, StopSignals())
    assert result is not None
    record, pictures = result
    assert record.metrics["loss"] == pytest.approx(mean, rel=1e-6)
    assert record.metrics["perplexity"] == pytest.approx(math.exp(mean), rel=1e-5)
    assert (record.step, record.dataset, record.ooms, record.baseline, pictures) == (7, "val", 0, {}, [])
    assert model.networks["model"].training


def test_out_of_memory_shrinks_batches_and_loses_no_text(caplog: pytest.LogCaptureFixture) -> None:
    dataset = TextDataset("val", causal_samples(LENGTHS))
    model = language_model(dataset, GPT2)
    plain = TextValidation(dataset, 1000).validate(model, 1, SINGLE_PROCESS, StopSignals())
    validation = TextValidation(dataset, 1000)
    result = validation.validate(crowded(model, 40), 1, SINGLE_PROCESS, StopSignals())
    assert plain is not None
    assert result is not None
    assert result[0].metrics["loss"] == pytest.approx(plain[0].metrics["loss"], rel=1e-6)
    assert result[0].ooms == 2  # 7 texts of 16, 4, 2
    assert validation.most == 32
    assert "out of memory in validation with 7 texts (no room): batches of 64 tokens from here on" in caplog.text
    again = validation.validate(model, 2, SINGLE_PROCESS, StopSignals())
    assert again is not None
    assert again[0].ooms == 0
    assert validation.lack_of_room(model, nullcontext) == ""


def test_a_text_that_does_not_fit_alone_is_said() -> None:
    dataset = TextDataset("val", causal_samples(LENGTHS))
    model = crowded(language_model(dataset, GPT2), 15)
    validation = TextValidation(dataset, 1000)
    assert validation.lack_of_room(model, nullcontext).startswith(
        "its largest text (16 tokens) does not fit on its own"
    )
    with pytest.raises(MemoryError, match=r"one text \(16 tokens\) alone: no room"):
        validation.validate(model, 1, SINGLE_PROCESS, StopSignals())
    assert "one text at a time" in validation.if_too_large(MemoryError(), is_sharded=False)[0]


def test_a_signal_ends_a_validation() -> None:
    dataset = TextDataset("val", causal_samples(LENGTHS))
    signals = StopSignals()
    signals.received = 15
    assert TextValidation(dataset, 9).validate(language_model(dataset, GPT2), 1, SINGLE_PROCESS, signals) is None
    assert signals.agreed == 15


def test_the_unigram_model_is_laplaces() -> None:
    training, validation = causal_samples([4, 4]), causal_samples([3], seed=9)
    words = 512
    learned = [*training.labels[1:4], *training.labels[5:8]]
    expected = [-math.log((learned.count(token) + 1) / (6 + words)) for token in validation.labels[1:3]]
    assert unigram_loss(training, validation, words) == pytest.approx(np.mean(expected))


def test_figures_are_said_beside_the_unigrams() -> None:
    dataset = TextDataset("val", causal_samples(LENGTHS))
    result = TextValidation(dataset, 99, unigram=6.0).validate(
        language_model(dataset, GPT2), 1, SINGLE_PROCESS, StopSignals()
    )
    assert result is not None
    assert describe_perplexity(result[0]).endswith(f", a unigram model of the training text {math.exp(6):.1f}")
    assert result[0].better_is_higher == {"loss": False, "perplexity": False}
    assert perplexity(1e4) == math.inf


class Told(TorchCommunicator):
    """A rank that hears given words of another."""

    def __init__(self, other: Mapping[str, Any]) -> None:  # no group is joined
        self.world_size, self._other = 2, other

    def all_gather_object(self, message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        return [message, {**message, **self._other}]


def test_ranks_leave_a_validation_together() -> None:
    """A signal to one of them, or its failure, is heard by all: none waits for words that never come."""
    dataset = TextDataset("val", causal_samples(LENGTHS))
    model, signals = language_model(dataset, GPT2), StopSignals()
    assert TextValidation(dataset, 99).validate(model, 1, Told({"signal": 15}), signals) is None
    assert signals.agreed == 15
    with pytest.raises(RankAbortedError, match="validation failed on rank 1"):
        TextValidation(dataset, 99).validate(model, 1, Told({"failed": True}), StopSignals())
