"""Runs of language models: what they consist of, from options."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from trainauto.builders.components import locate_errors
from trainauto.builders.language_networks import build_language_model, build_network
from trainauto.builders.schedules import length_of
from trainauto.builders.task_parts import PartsRequest, TaskParts
from trainauto.builders.texts import Loaded, build_texts, kept_model, vocabulary_facts
from trainauto.core.plan import TOKENS, Axis, Plan
from trainauto.core.records import Progress
from trainauto.core.run_events import DETAIL
from trainauto.core.sharding import SampleSharding
from trainauto.core.words import counted
from trainauto.data.batcher import Batcher
from trainauto.data.sampler import ShuffledStream
from trainauto.engine.validation_set import ValidationSet
from trainauto.models.base_model import BaseModel
from trainauto.models.parallel import Parallel
from trainauto.optim.precision import Precision
from trainauto.options.text_options import TextOptions
from trainauto.storage.run_directory import RunDirectory
from trainauto.tasks.text.training.hub import without_progress_bars
from trainauto.tasks.text.training.language_model import LanguageModel
from trainauto.tasks.text.training.row_checks import check_rows
from trainauto.tasks.text.training.text_dataset import draws_of, token_axis
from trainauto.tasks.text.training.text_validation import (
    LOSS,
    PERPLEXITY,
    TextValidation,
    describe_perplexity,
    unigram_loss,
)
from trainauto.tasks.text.training.tokenizers import save_tokenizer

logger = logging.getLogger(__name__)


class LanguageModelParts(TaskParts):
    """A language model, its tokenizer and texts.

    Args:
        loaded: the option file.
        request: how its parts are to be built.

    Raises:
        InputError: model, tokenizer or texts cannot be used.
    """

    def __init__(self, loaded: Loaded, request: PartsRequest) -> None:
        self.loaded = self._loaded = loaded
        options = loaded.options
        self._texts = build_texts(loaded, request.earlier, request.ranks)
        self._train_set = self.train_set = self._texts.train_set
        request.check_samples(self.train_set)
        weights = request.pretrained or bool(_adapted(options))
        self.network = build_network(loaded, self._texts.vocabulary, request.precision, weights=weights)
        with locate_errors(loaded, ("train" if options.train.packed else "model",)):
            if options.model.kind == "causal":
                check_rows(self.network, self._train_set.workload.layout)
        self.network_words = _words_of(options, self.network)
        self.datasets = [self.train_set, *self._texts.val_sets]
        self.scans = {dataset.name: dataset.scan() for dataset in self.datasets}
        self.length = length_of(options.train, options.train.total_epochs, len(self.train_set))
        self.length_key = "total_epochs under train" if options.train.total_epochs is not None else ""
        self.validates_every = options.val.val_freq if self._texts.val_sets else 0
        self.metrics, self.best_metric = (LOSS, PERPLEXITY), PERPLEXITY
        self._validations: list[TextValidation] = []
        self._model: LanguageModel | None = None

    def axes(self) -> tuple[Axis, ...]:
        """Return the tokens of a batch: from one row to an epoch in one batch."""
        row = self._train_set.row_tokens
        most = max(self._tokens(), row * len(self._train_set))
        return (token_axis(row, most=most),)

    def first_plan(self) -> Plan:
        """Return the tokens of the first batch, in whole rows."""
        return Plan.of(**{TOKENS: self._tokens()})

    def _tokens(self) -> int:
        row = self._train_set.row_tokens
        return max(1, self._loaded.options.train.tokens_per_batch // row) * row

    def build_model(self, precision: Precision, *, pretrained: bool, parallel: Parallel | None = None) -> BaseModel:
        """Return the network with its optimizer."""
        del pretrained
        layout, vocabulary = self._train_set.workload.layout, self._texts.vocabulary
        self._model = build_language_model(self._loaded, self.network, layout, vocabulary, precision, parallel)
        self._model.frozen_from = _adapted(self._loaded.options)
        return self._model

    def draws(self, sharding: SampleSharding) -> tuple[ShuffledStream, Batcher]:
        """Return the order of the texts, and how many of them a budget of tokens holds."""
        return draws_of(self._train_set, self.options.manual_seed, sharding)

    def build_validators(
        self, directory: RunDirectory, device: torch.device, *, in_step: bool = False
    ) -> Sequence[ValidationSet]:
        """Return what measures the loss of each set, a unigram model of the training texts beside it."""
        del directory, device, in_step
        options, training = self._loaded.options, self._train_set.samples
        tokens = options.val.tokens_per_batch or options.train.tokens_per_batch
        self._validations = [
            TextValidation(dataset, tokens, unigram_loss(training, dataset.samples, self._texts.vocabulary.size))
            for dataset in self._texts.val_sets
        ]
        return self._validations

    def trace_facts(self) -> Mapping[str, Any]:
        """Return what the texts have come to."""
        workload = self._train_set.workload
        longest = {"source": workload.longest_source, "target": workload.longest_target}
        return {"vocabulary": vocabulary_facts(self._texts.vocabulary), "longest": longest}

    def facts(self) -> Sequence[tuple[str, str]]:
        """Return lines on texts and tokenizer."""
        options, samples = self._loaded.options, self._train_set.samples
        packed = f", packed into rows of {self._train_set.row_tokens}" if options.train.packed else ""
        longest = f"the longest has {int(samples.lengths.max())}"
        made = "trained on the training texts" if options.tokenizer.train else "loaded"
        asked, row = options.train.tokens_per_batch, self._train_set.row_tokens
        whole = [("batches", f"{asked} tokens are {self._tokens()} in whole rows of {row}")] if asked % row else []
        return (
            *whole,
            ("texts", f"{len(samples.tokens):,} tokens to train on, {longest}{packed}"),
            ("tokenizer", f"{self._texts.vocabulary.size} tokens, {made}"),
        )

    def keep(self, directory: RunDirectory) -> None:
        """Keep the tokenizer and the model's configuration."""
        folder = kept_model(directory)
        save_tokenizer(self._texts.tokenizer, folder)
        configuration: Any = self.network.config
        configuration.save_pretrained(str(folder))

    def at_epoch_end(self, directory: RunDirectory, epoch: int, progress: Progress) -> None:
        """Note that a pass over the texts is whole."""
        del directory, progress
        logger.log(DETAIL, "epoch %d has ended: all %s", epoch, counted(len(self.train_set), "text"))

    def finish(self, directory: RunDirectory, progress: Progress) -> Sequence[tuple[str, str]]:
        """Write the model for transformers; return what validation came to, beside a unigram model."""
        del progress
        lasts = [(validation.name, validation.last) for validation in self._validations]
        facts = [(name, describe_perplexity(last)) for name, last in lasts if last is not None]
        folder = kept_model(directory)
        self.write_network(self.finished_network(), folder)
        facts.append(("model", f"{folder} (from_pretrained of transformers)"))
        return facts

    def finished_network(self) -> nn.Module:
        """Return the network, averaged where an average is kept."""
        return self._model.finished if self._model is not None else self.network

    def write_network(self, network: nn.Module, folder: Path) -> str:
        """Write network and tokenizer for ``from_pretrained``: of LoRA the adapter alone."""
        save_tokenizer(self._texts.tokenizer, folder)
        own: Any = network
        with without_progress_bars():
            own.save_pretrained(str(folder), state_dict=self.whole_weights)
        if hasattr(own, "merge_and_unload"):
            return "PeftModel.from_pretrained(BASE, '{}')"
        return f"{type(own).__name__}.from_pretrained('{{}}')"


def _adapted(options: TextOptions) -> str:
    """Return which trained model adapters stand in, whose weights a resume loads again; empty without adapters."""
    model = options.model
    return f"model.pretrained {model.pretrained}" if model.lora is not None and model.pretrained else ""


def _words_of(options: TextOptions, network: nn.Module) -> str:
    """Return the model in words."""
    configuration: Any = network.config
    lora = options.model.lora
    return f"{configuration.model_type}{f', LoRA of rank {lora.r}' if lora is not None else ''}"
