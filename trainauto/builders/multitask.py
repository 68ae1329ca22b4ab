"""Runs on samples of several tasks: what they consist of, from options."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from trainauto.builders.components import build_component, locate_errors
from trainauto.builders.schedules import build_shape
from trainauto.builders.trackers import tracker_sinks, tracker_words
from trainauto.builders.trainer_lines import SayChanges, StopOnSignal, already_over, in_place_of_bars
from trainauto.builders.trainer_run import Pair, RunPlace, TrainerRun
from trainauto.builders.trainer_trial import try_trainer
from trainauto.builders.trainer_watchers import watchers_of
from trainauto.core.errors import InputError, Problem
from trainauto.core.files import write_json_atomically
from trainauto.core.records import Progress
from trainauto.core.run_events import LengthUnit
from trainauto.core.units import size_text
from trainauto.core.words import counted
from trainauto.engine.signals import StopSignals
from trainauto.integrations.huggingface.arguments import MemoryAwareTrainingArguments
from trainauto.optim.precision import Precision
from trainauto.optim.schedules import RateSchedule
from trainauto.options.load import LoadedOptions
from trainauto.options.multitask_options import MultitaskOptions, MultitaskTraining
from trainauto.reporting.formatting import duration, in_thousands
from trainauto.reporting.sinks import Sink
from trainauto.storage.run_directory import TRAINER_RUNS, RunDirectory
from trainauto.tasks.multitask import digits, digits_model
from trainauto.tasks.multitask.accuracy import accuracy_by_task, accuracy_text
from trainauto.tasks.multitask.batches.collator import HeterogeneousCollator
from trainauto.tasks.multitask.batches.samples import SampleTable, read_samples
from trainauto.tasks.multitask.batches.task_shares import task_shares
from trainauto.tasks.multitask.batches.task_stream import TaskMixing
from trainauto.tasks.multitask.losses.gradnorm import GradNormBalancer
from trainauto.tasks.multitask.losses.normalizer import EffectiveBatchSizeNormalizer
from trainauto.tasks.multitask.monitoring.monitor import DynamicBatchingMonitor
from trainauto.tasks.multitask.prediction.gradient_checkpoint_manager import GradientCheckpointManager
from trainauto.tasks.multitask.registry import MULTITASK_MODELS, SAMPLE_SETS
from trainauto.tasks.multitask.trainer import DynamicBatchingTrainer
from trainauto.tasks.multitask.trainer_data import predictor_for
from trainauto.tasks.text.training.tokenizers import load_tokenizer, save_tokenizer, train_tokenizer

Loaded = LoadedOptions[MultitaskOptions]

REGISTERING = (digits, digits_model)
"""Modules that bring what they register by being imported."""

MODEL_FOLDER = "model"
"""Of a run: the weights in the end, and the tokenizer."""
ACCURACY_FILE = "accuracy.json"


class MultitaskRun(TrainerRun):
    """A model, its tokenizer, and samples of several tasks.

    Args:
        loaded: the option file.
        precision: number format, and the device.

    Raises:
        InputError: model, tokenizer or samples cannot be used.
    """

    def __init__(self, loaded: Loaded, precision: Precision) -> None:
        self._loaded, self._precision = loaded, precision
        options = loaded.options
        self.place = RunPlace(Path(options.path.experiments_root), options.name, ("path", "experiments_root"))
        self.checkpoint_words = f"a checkpoint every {counted(options.logger.save_checkpoint_freq, 'step')}"
        self.has_curves = options.logger.use_tb_logger
        _check_precision(loaded, precision)
        self._watchers = watchers_of(loaded, "margin under memory says what batches leave free.")
        build_shape(loaded, 1)  # what is wrong with it is said before samples are read
        chosen = {"train": loaded.options.datasets.train, **loaded.options.datasets.validation_sets}
        self._sets = {
            key: build_component(loaded, SAMPLE_SETS, ("datasets", key), component.type, component.arguments)()
            for key, component in chosen.items()
        }
        with locate_errors(loaded, ("datasets", "train")):
            self._table = read_samples(self._sets["train"])
        _check_tasks(loaded, self._table)
        self._tokenizer = _tokenizer(loaded, self._sets["train"])
        self._collate = HeterogeneousCollator.of_dataset(self._sets["train"], self._tokenizer)
        self._model = self._built_model()

    def _built_model(self) -> nn.Module:
        chosen = self._loaded.options.model
        given = {"vocabulary_size": len(self._tokenizer), "tasks": self._table.tasks}
        model: nn.Module = build_component(
            self._loaded, MULTITASK_MODELS, ("model",), chosen.type, chosen.arguments, given
        )()
        if self._loaded.options.memory.gradient_checkpointing:
            with locate_errors(self._loaded, ("memory", "gradient_checkpointing")):
                GradientCheckpointManager.enable_gradient_checkpointing(model)
        return model.to(self._precision.device)

    def checkpoints(self, directory: RunDirectory) -> Path:
        """Return the run's folder."""
        return directory.path

    def curves(self, directory: RunDirectory) -> Path:
        """Return the folder of event files in that of the Trainer's runs."""
        return directory.path / TRAINER_RUNS / "tb"

    def facts(self) -> Sequence[Pair]:
        """Return lines of the start."""
        options, table = self._loaded.options, self._table
        parameters = sum(weight.numel() for weight in self._model.parameters() if weight.requires_grad)
        of_tasks = zip(table.tasks, table.counts.tolist(), strict=True)
        validated = [f"{key} {len(samples)}" for key, samples in self._sets.items() if key != "train"]
        budget_bytes = options.memory.budget_bytes(self._precision.device.type)
        filled = f"; batches fill {1 - options.memory.margin:.0%} of it"
        return (
            ("device", str(self._precision.device)),
            ("model", f"{options.model.type}, {in_thousands(parameters)} parameters, {self._precision}"),
            ("samples", ", ".join([*(f"{name} {count}" for name, count in of_tasks), *validated])),
            ("tokenizer", f"{len(self._tokenizer)} tokens"),
            ("steps", _step_words(options)),
            ("memory", f"{size_text(budget_bytes)}{filled}" if budget_bytes else f"all there is{filled}"),
            ("trackers", tracker_words(options.logger, self.place.root)),
        )

    def train(self, directory: RunDirectory, signals: StopSignals, *, resumes: bool) -> Sequence[Pair]:
        """Train, count what is right in the validation sets, and write the model; return lines of the end.

        A run that a signal ends is saved, and nothing else is done.

        Raises:
            InputError: options do not go together with the samples.
            NothingFitsError: memory runs out, and there is no smaller plan.
        """
        start = time.monotonic()
        monitor = DynamicBatchingMonitor(directory.path, tensorboard=self.has_curves)
        try:
            trainer = self._trainer(directory, monitor)
            trainer.own_sinks, trainer.own_curves = self._tracker_sinks(directory), self.has_curves
            trainer.add_callback(SayChanges(self.changes))
            trainer.add_callback(StopOnSignal(signals))
            trainer.train(resume_from_checkpoint=True if resumes else None)
        finally:
            monitor.close()
        if signals.received:
            step = trainer.state.global_step
            return (("stopped", f"{signals.name} after step {step}, saved; --auto_resume goes on from there"),)
        folder = directory.path / MODEL_FOLDER
        trainer.save_model(str(folder))
        save_tokenizer(self._tokenizer, folder)
        progress = trainer.memory.progress if trainer.memory is not None else Progress()
        took = f"{counted(progress.steps, 'step')}, {counted(progress.samples, 'sample')} in"
        has_trained = trainer.memory is None or trainer.memory.trained_samples > 0
        return (
            _end_of(trainer) if has_trained else ("completed", already_over(trainer.memory)),
            ("trained", f"{took} {duration(time.monotonic() - start)}"),
            *self._accuracies(directory),
            ("metrics", str(monitor.folder)),
            ("model", str(folder)),
        )

    def _tracker_sinks(self, directory: RunDirectory) -> Sequence[Sink]:
        options = self._loaded.options
        return tracker_sinks(options.logger, directory, self.place.root, options.name, options.logger.print_freq)

    def try_steps(self, folder: Path, steps: int) -> Sequence[Pair]:
        """Train a few steps, and measure on the first validation set."""
        trainer = self._trainer(RunDirectory(folder), None, max_steps=steps, save_strategy="no")
        return try_trainer(trainer)

    def _accuracies(self, directory: RunDirectory) -> list[Pair]:
        """Count what is right in each validation set, and keep it."""
        accuracies: dict[str, dict[str, float]] = {}
        lines: list[Pair] = []
        for key, samples in self._sets.items():
            if key == "train":
                continue
            try:
                accuracies[key] = accuracy_by_task(self._model, samples, self._collate, self._table.tasks)
            except TypeError as error:  # a model from a plugin
                lines.append((key, str(error)))
            else:
                lines.append((key, f"accuracy {accuracy_text(accuracies[key])}"))
        if accuracies:
            write_json_atomically(directory.path / ACCURACY_FILE, accuracies)
        return lines

    def _trainer(
        self, directory: RunDirectory, monitor: DynamicBatchingMonitor | None, **others: Any
    ) -> DynamicBatchingTrainer:
        train = self._loaded.options.train
        weights = train.initial_task_loss_weights
        is_balanced = train.use_grad_norm_balancing and len(self._table.tasks) > 1
        trainer = ScheduledTrainer(
            self._loaded,
            self._model,
            self._arguments(directory, **others),
            self._sets["train"],
            memory_predictor=predictor_for(self._model, self._sets["train"], self._collate, self._precision.device),
            batch_size_normalizer=normalizer_of(train),
            task_loss_weights=None if is_balanced else weights,
            use_gradient_accumulation=train.use_gradient_accumulation,
            balancer=GradNormBalancer(weights, train.grad_norm_alpha) if is_balanced else None,
            monitor=monitor,
            mixing=TaskMixing(train.task_distribution or None, train.sampling, train.task_diversity_weight),
            data_collator=self._collate,
        )
        in_place_of_bars(trainer)
        return trainer

    def _arguments(self, directory: RunDirectory, **others: Any) -> MemoryAwareTrainingArguments:
        options = self._loaded.options
        train, memory, logger = options.train, options.memory, options.logger
        budget_bytes = memory.budget_bytes(self._precision.device.type)
        target = 1 - memory.margin
        return MemoryAwareTrainingArguments(
            str(directory.path),
            per_device_train_batch_size=train.base_batch_size,
            max_batch_size=None if train.use_gradient_accumulation else train.target_batch_size,
            memory_budget=f"{budget_bytes}B" if budget_bytes else None,
            training_automations=self._watchers,
            memory_settings={"target_vram_usage": target, "safety_margin": min(0.05, target / 2)},
            **{**self._length(), **others},
            learning_rate=train.learning_rate,
            weight_decay=train.weight_decay,
            max_grad_norm=train.grad_clip or 0.0,
            logging_steps=logger.print_freq,
            save_steps=logger.save_checkpoint_freq,
            save_total_limit=logger.keep_checkpoints,
            seed=options.manual_seed,
            use_cpu=self._precision.device.type == "cpu",
            bf16=self._precision.dtype == torch.bfloat16,
            fp16=self._precision.dtype == torch.float16,
            full_determinism=False,  # choose_precision has seen to it
            report_to=[],
            disable_tqdm=True,
            remove_unused_columns=False,
        )

    def _length(self) -> dict[str, Any]:
        """Return the length of the run, as arguments of a Trainer have it."""
        train = self._loaded.options.train
        if train.total_iter is not None:
            return {"max_steps": train.total_iter}
        if train.total_samples is not None:
            return {"num_train_epochs": train.total_samples / len(self._sets["train"])}
        return {"num_train_epochs": train.total_epochs or 1}


def normalizer_of(train: MultitaskTraining) -> EffectiveBatchSizeNormalizer:
    """Return what scales rates: they are written for the samples of a step that a run begins with."""
    samples = max(train.target_batch_size, train.base_batch_size)
    begins_with = samples if train.use_gradient_accumulation else train.base_batch_size
    return EffectiveBatchSizeNormalizer(
        train.base_batch_size, samples, train.learning_rate, reference_batch_size=begins_with
    )


def _end_of(trainer: DynamicBatchingTrainer) -> Pair:
    stopped = trainer.memory.stop_reason if trainer.memory is not None else ""
    return ("stopped", stopped) if stopped else ("completed", "the run has come to its length")


def _step_words(options: MultitaskOptions) -> str:
    train = options.train
    if train.use_gradient_accumulation:
        target = counted(train.target_batch_size, "sample")
        return f"{target}, in passes of {train.base_batch_size} at first; memory says in how many"
    return f"{counted(train.base_batch_size, 'sample')} in one pass at first, up to {train.target_batch_size} by memory"


def _check_precision(loaded: Loaded, precision: Precision) -> None:
    if precision.dtype == torch.float16 and precision.device.type == "cpu":
        with locate_errors(loaded, ("amp_bf16",)):
            raise InputError(Problem("float16 needs a card in a Trainer's run", advice="Write amp_bf16: true."))


def _check_tasks(loaded: Loaded, table: SampleTable) -> None:
    """Refuse weights and shares of tasks that no sample is of.

    Raises:
        InputError: names them, and the tasks there are.
    """
    for key in ("initial_task_loss_weights", "task_distribution"):
        for name in getattr(loaded.options.train, key):
            if name not in table.tasks:
                with locate_errors(loaded, ("train", key, name)):
                    message = f"no sample of the training set is of task '{name}'"
                    raise InputError(Problem(message, advice=f"Its tasks are {', '.join(table.tasks)}."))
    with locate_errors(loaded, ("train",)):
        task_shares(loaded.options.train.task_distribution or None, table, loaded.options.train.sampling)


def _tokenizer(loaded: Loaded, samples: Any) -> Any:
    """Train the tokenizer on the texts of the training set, or load it."""
    chosen = loaded.options.tokenizer
    if chosen.train is None:
        with locate_errors(loaded, ("tokenizer",)):
            return load_tokenizer(chosen.pretrained or "")
    texts = (samples[place].get("text") or "" for place in range(len(samples)))
    with locate_errors(loaded, ("tokenizer", "train")):
        return train_tokenizer(texts, chosen.train.vocab_size)


class ScheduledTrainer(DynamicBatchingTrainer):
    """Rates go by the schedule of an option file, whatever the arguments say of one.

    Args:
        loaded: the option file.
        arguments: of :class:`~trainauto.tasks.multitask.trainer.DynamicBatchingTrainer`.
        options: of it, too.
    """

    def __init__(self, loaded: LoadedOptions[MultitaskOptions], *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._loaded = loaded

    def own_schedule(self, total: int, unit: LengthUnit, step_samples: float) -> RateSchedule:
        """Return the schedule; its shape begins where the warm-up ends, as in transformers."""
        train = self._loaded.options.train
        step = step_samples if unit == "samples" else 1.0
        warmup = train.warmup_steps * step or train.warmup_ratio * total
        return RateSchedule(build_shape(self._loaded, total), total, unit, warmup, decays_after_warmup=True, step=step)
