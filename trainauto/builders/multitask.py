"""Runs on samples of several tasks: what they consist of, from options."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from trainauto.builders.components import locate_errors
from trainauto.builders.multitask_data import TRAIN, TaskData, build_task_data
from trainauto.builders.multitask_networks import (
    build_network,
    build_task_model,
    draws_of,
    facts_of,
    first_step_samples,
    largest_step,
    shared_names,
)
from trainauto.builders.own_controller import controller_settings, switches_with_controller
from trainauto.builders.schedules import build_shape, length_of
from trainauto.builders.task_parts import PartsRequest, TaskParts
from trainauto.builders.texts import kept_model
from trainauto.core.errors import InputError, Problem
from trainauto.core.files import errors_naming, write_json_atomically
from trainauto.core.json_text import step_of_line
from trainauto.core.plan import BATCH_SIZE, TOKENS, Axis, Plan
from trainauto.core.records import Progress
from trainauto.core.sharding import SINGLE_PROCESS, SampleSharding
from trainauto.core.words import counted
from trainauto.data.batcher import Batcher, DividedEpochs
from trainauto.data.packed_stream import PackedDraws
from trainauto.data.sampler import ShuffledStream
from trainauto.engine.validation_set import ValidationSet
from trainauto.models.base_model import BaseModel
from trainauto.models.parallel import Parallel
from trainauto.optim.precision import Precision
from trainauto.optim.schedules import RateSchedule
from trainauto.options.load import LoadedOptions
from trainauto.options.multitask_options import MultitaskOptions
from trainauto.options.nested import SECTION
from trainauto.options.run_options import Automations
from trainauto.reporting.sinks import Sink
from trainauto.reporting.tensorboard import TensorBoard
from trainauto.storage.run_directory import RunDirectory
from trainauto.tasks.multitask.monitoring.metrics_sink import MetricsSink
from trainauto.tasks.multitask.monitoring.monitor import DynamicBatchingMonitor
from trainauto.tasks.multitask.task_model import LOSS
from trainauto.tasks.multitask.task_sets import ACCURACY, TaskSampleSet, TaskValidation, accuracies, accuracy_text
from trainauto.tasks.text.training.tokenizers import save_tokenizer

Loaded = LoadedOptions[MultitaskOptions]
Pair = tuple[str, str]

ACCURACY_FILE = "accuracy.json"
"""Of a run: the accuracy of each task in each validation set, at its end."""


class MultitaskParts(TaskParts):
    """A model, its tokenizer, and samples of several tasks.

    Args:
        loaded: the option file.
        request: how its parts are to be built.

    Raises:
        InputError: model, tokenizer or samples cannot be used.
    """

    validates_every = 0
    validates_end = True
    rates_follow_plans = True
    metrics = (LOSS, ACCURACY)
    best_metric = None

    def __init__(self, loaded: Loaded, request: PartsRequest) -> None:
        self.loaded, options = loaded, loaded.options
        self._ranks = request.ranks.world_size
        _check_shares(loaded, self._ranks)
        if request.earlier is not None:
            _check_earlier(loaded, request.earlier)
        build_shape(loaded, 1)  # what is wrong with it is said before samples are read
        self._precision = request.precision
        self._data = data = build_task_data(loaded, request.earlier, request.ranks)
        self.network = build_network(loaded, data).to(request.precision.device)
        self._shared = shared_names(options, data, self.network)
        self._drawn = draws_of(loaded, data, self.network, self._ranks)
        self._train_set = self.train_set = TaskSampleSet(
            TRAIN, data.sets[TRAIN], data.table, data.collate, data.largest, self._drawn
        )
        if not options.train.use_gradient_accumulation:
            self.train_set.bounding_option = "target_batch_size"
        request.check_samples(self.train_set)
        self._share, self._most = first_step_samples(options, self._ranks), largest_step(options, self._ranks)
        self._validations = [
            TaskValidation(_val_set(data, key), self._most, data.samples.tasks) for key in data.sets if key != TRAIN
        ]
        self.datasets = [self.train_set, *(validation.dataset for validation in self._validations)]
        self.scans = {dataset.name: dataset.scan() for dataset in self.datasets}
        self.network_words = options.model.type
        self.length, self.length_key = (
            length_of(options.train, options.train.total_epochs, len(self.train_set)),
            _length_key(options),
        )
        self.rate_scaling = "none" if options.train.use_gradient_accumulation else "sqrt"

    def axes(self) -> tuple[Axis, ...]:
        """Return what grows: the samples of a pass, up to those of a step; where batches are packed, what they cost."""
        most, packed = self._most, self._drawn.costs
        if packed is None:
            return (Axis(BATCH_SIZE, "samples", 1, most),)
        largest = int(packed.max())
        return (Axis(TOKENS, "tokens", largest, most * largest, largest),)

    def first_plan(self) -> Plan:
        """Return a rank's samples of a step, in the passes of the option file."""
        train, packed = self.loaded.options.train, self._drawn.costs
        if packed is not None:
            return Plan.of(**{TOKENS: self._share * int(packed.max())})
        return Plan.of(batch_size=self._share, micro_batches=math.ceil(self._share / train.base_batch_size))

    def automations(self) -> Loaded:
        """Return the option file with the controller of its batches, which leaves the margin free."""
        options, settings = self.loaded.options, settings_of_controller(self.loaded)
        (axis,), target = self.axes(), 1 - self.loaded.options.memory.margin
        own: dict[str, Any] = {f"min_{axis.name}": axis.minimum, f"max_{axis.name}": axis.maximum}
        own |= {"target_vram_usage": target, "safety_margin": min(0.05, target / 2)}
        if options.train.use_gradient_accumulation:
            own["target_batch_size"] = self._share * self._ranks
        switches = switches_with_controller(self.loaded, self._precision.device.type, settings, own)
        return replace(self.loaded, options=options.model_copy(update={SECTION: Automations(**switches)}))

    def build_model(self, precision: Precision, *, pretrained: bool, parallel: Parallel | None = None) -> BaseModel:
        """Return the model with its optimizer and the weights of its tasks."""
        del pretrained
        samples = self._data.samples
        of_tasks = samples.tasks, samples.present, self._shared
        return build_task_model(self.loaded, self.network, precision, *of_tasks, parallel)

    def build_schedule(self, model: BaseModel, sharding: SampleSharding = SINGLE_PROCESS) -> RateSchedule:
        """Return how rates go; their shape begins where the warm-up ends."""
        for optimizer in model.optimizers.values():
            RateSchedule.remember_rates(optimizer)
        train, (total, unit) = self.loaded.options.train, self.length
        of_a_rank = self.train_set.mean_samples(self.first_plan())
        step = sharding.equivalent_ranks * of_a_rank if unit == "samples" else 1.0
        return RateSchedule(
            build_shape(self.loaded, total),
            total,
            unit,
            train.warmup_ratio * total,
            decays_after_warmup=True,
            step=step,
            warmup_steps=train.warmup_steps,
        )

    def draws(self, sharding: SampleSharding) -> tuple[ShuffledStream, Batcher]:
        """Return mixed batches: packed where they may grow, in their order where steps are counted."""
        self._drawn.stream.sharding = sharding
        packed = self._drawn.packed
        if packed is not None:
            return packed, PackedDraws(packed)
        return self._drawn.stream, DividedEpochs(len(self.train_set), sharding)

    def build_validators(
        self, directory: RunDirectory, device: torch.device, *, in_step: bool = False
    ) -> Sequence[ValidationSet]:
        """Return what measures loss and accuracy of each task on the validation sets."""
        del directory, device, in_step
        return self._validations

    def measured(self) -> tuple[str, ...]:
        """Return nothing: the only validation is at the end, too late for what watches a run."""
        return ()

    def sinks(self, directory: RunDirectory, curves: TensorBoard | None) -> Sequence[Sink]:
        """Return what writes the metric files, pictures and curves of tasks."""
        monitor = DynamicBatchingMonitor(directory.path, tensorboard=curves is not None)
        return [MetricsSink(monitor, len(self.train_set), curves)]

    def trace_facts(self) -> Mapping[str, Any]:
        """Return what samples and tokenizer have come to."""
        return facts_of(self._data, self._shared, self._drawn)

    def facts(self) -> Sequence[Pair]:
        """Return lines on tasks, tokenizer, steps and weights of tasks."""
        options, table = self.loaded.options, self._data.table
        of_tasks = zip(table.tasks, table.counts.tolist(), strict=True)
        compared = [("balancing", f"gradients of tasks are compared at {', '.join(self._shared)}")]
        return (
            ("tasks", ", ".join(f"{name} {count}" for name, count in of_tasks)),
            ("tokenizer", f"{len(self._data.tokenizer)} tokens"),
            ("steps", _step_words(options)),
            *(compared if self._shared else ()),
        )

    def keep(self, directory: RunDirectory) -> None:
        """Keep the tokenizer, which a resume does not train again."""
        save_tokenizer(self._data.tokenizer, kept_model(directory))

    def finish(self, directory: RunDirectory, progress: Progress) -> Sequence[Pair]:
        """Write the model, and the accuracy of each task in the validation sets; return what they came to."""
        folder = kept_model(directory)
        with errors_naming(folder):
            self.write_network(self.network, folder)
        metrics = directory.path / "training_metrics"
        return (*self._accuracies(directory, progress.steps), ("metrics", str(metrics)), ("model", str(folder)))

    def write_network(self, network: nn.Module, folder: Path) -> str:
        """Write the model and its tokenizer: by its own method, where it has one."""
        save_tokenizer(self._data.tokenizer, folder)
        own: Any = network
        if not hasattr(own, "save_pretrained"):
            return super().write_network(network, folder)
        own.save_pretrained(str(folder))
        return f"{type(own).__name__}.from_pretrained('{{}}')"

    def _accuracies(self, directory: RunDirectory, step: int) -> list[Pair]:
        """Keep how often the model is right at its last step, also where an earlier process measured it; say it."""
        logged, found, lines = _logged_metrics(directory, step), {}, []
        for validation in self._validations:
            last = validation.last
            metrics = last.metrics if last is not None else logged.get(validation.name)
            if metrics is None:
                continue
            if of_tasks := accuracies(metrics, self._data.samples.tasks):
                found[validation.name] = of_tasks
                lines.append((validation.name, f"accuracy {accuracy_text(of_tasks)}"))
            else:
                why = f"{type(self.network).__name__} gives no predictions: its accuracy is not counted"
                lines.append((validation.name, f"loss {metrics[LOSS]:.4g}; {why}"))
        if found:
            write_json_atomically(directory.path / ACCURACY_FILE, found)
        return lines


def _check_shares(loaded: Loaded, ranks: int) -> None:
    """Refuse steps that ranks cannot share equally.

    Raises:
        InputError: says how many samples they could.
    """
    train = loaded.options.train
    if train.target_batch_size % ranks:
        with locate_errors(loaded, ("train", "target_batch_size")):
            message = f"steps of {train.target_batch_size} samples cannot be shared equally by {ranks} ranks"
            advice = f"Write {max(1, round(train.target_batch_size / ranks)) * ranks}."
            raise InputError(Problem(message, advice=advice))


def settings_of_controller(loaded: Loaded) -> Mapping[str, Any] | None:
    """Return what the file gives the controller of its batches; ``None`` where it is switched off.

    Raises:
        InputError: it bounds batches, which ``train`` does, or steers to another share of the memory than the margin.
    """
    settings = controller_settings(
        loaded, "a run of several tasks", "base_batch_size and target_batch_size under train say what batches hold."
    )
    if "target_vram_usage" in (settings or {}) and "margin" in loaded.options.memory.model_fields_set:
        with locate_errors(loaded, ("memory", "margin")):
            message = "margin and target_vram_usage both say how much memory steps may take"
            raise InputError(Problem(message, advice="Remove one of them."))
    return settings


def _val_set(data: TaskData, key: str) -> TaskSampleSet:
    table = data.tables[key]
    largest = int((table.images * (1 + int(table.sizes.tokens.max())) + table.sizes.tokens).argmax())
    return TaskSampleSet(key, data.sets[key], table, data.collate, largest)


def _check_earlier(loaded: Loaded, directory: RunDirectory) -> None:
    """Refuse to resume a run that a Trainer wrote.

    Raises:
        InputError: says what to do.
    """
    found = [folder for folder in directory.path.glob("checkpoint-*") if folder.name.rpartition("-")[2].isdecimal()]
    old = sorted(found, key=lambda folder: int(folder.name.rpartition("-")[2]))
    if old and not list(directory.checkpoints.glob("step_*")):
        with locate_errors(loaded, ("path", "experiments_root")):
            message = f"{old[-1]} was written by an earlier version, whose runs cannot be resumed"
            advice = "Begin a new run without --auto_resume; a model of a plugin can load the weights of that folder."
            raise InputError(Problem(message, advice=advice))


def _length_key(options: MultitaskOptions) -> str:
    return "total_epochs under train" if options.train.total_epochs is not None else ""


def _step_words(options: MultitaskOptions) -> str:
    train = options.train
    if train.use_gradient_accumulation:
        target = counted(train.target_batch_size, "sample")
        return f"{target}, in passes of {train.base_batch_size} at first; memory says in how many"
    return f"{counted(train.base_batch_size, 'sample')} in one pass at first, up to {train.target_batch_size} by memory"


def _logged_metrics(directory: RunDirectory, step: int) -> dict[str, dict[str, float]]:
    """Return what validations of a step have measured, by set."""
    try:
        lines = directory.validations.read_bytes().splitlines()
    except OSError:
        return {}
    records = [json.loads(line) for line in lines if step_of_line(line) == step]
    return {record["dataset"]: record["metrics"] for record in records}
