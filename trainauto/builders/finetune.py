"""Runs of fine-tuning: the model, its conversations, and what trains it, from options."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from trainauto.builders.components import locate_errors
from trainauto.builders.finetune_automations import largest_step, with_own_automations
from trainauto.builders.finetune_data import build_finetune_data, processor_of
from trainauto.builders.finetune_words import Pair, measured_words, model_words, packed_words, rate_words, step_words
from trainauto.builders.optimizers import trainer_optimizer
from trainauto.builders.task_parts import PartsRequest, TaskParts
from trainauto.core.errors import InputError, Problem
from trainauto.core.files import read_text
from trainauto.core.plan import BATCH_SIZE, Axis, Plan
from trainauto.core.program import program_words
from trainauto.core.records import Progress
from trainauto.core.run_events import LengthUnit
from trainauto.core.sharding import SINGLE_PROCESS, SampleSharding
from trainauto.core.words import counted
from trainauto.data.batcher import Batcher, DividedEpochs
from trainauto.engine.training import LastResort
from trainauto.engine.validation_set import ValidationSet
from trainauto.models.activation_checkpointing import ActivationCheckpointingError, blocks_of
from trainauto.models.base_model import BaseModel
from trainauto.models.parallel import Parallel
from trainauto.optim.precision import Precision
from trainauto.optim.registry import SCHEDULES
from trainauto.optim.schedules import RateSchedule
from trainauto.options.finetune_options import FinetuneOptions, FinetuneTraining, step_conversations, warmup_of
from trainauto.options.load import LoadedOptions
from trainauto.storage.run_directory import RunDirectory
from trainauto.tasks.finetune.conversation_model import LOSS, ConversationModel
from trainauto.tasks.finetune.conversation_set import ConversationSet, ConversationValidation
from trainauto.tasks.finetune.epoch_models import write_epoch
from trainauto.tasks.finetune.four_bits import FourBits
from trainauto.tasks.finetune.largest_conversation import LargestConversation
from trainauto.tasks.finetune.models import ModelSettings, adapted, checkpoint_activations, load_model, most_positions
from trainauto.tasks.finetune.processors import keep_other_parts
from trainauto.tasks.finetune.smaller_pictures import SmallerPictures
from trainauto.tasks.text.training.hub import without_library_noise

Loaded = LoadedOptions[FinetuneOptions]

SAMPLE = "sample"
"""Of what is known beside an option file: the largest conversation."""


class FinetuneParts(TaskParts):
    """A vision-language model and the conversations it is taught.

    Args:
        loaded: the option file.
        request: how its parts are to be built.

    Raises:
        InputError: model, processor or conversations cannot be used, or the run that is resumed is of another model.
    """

    validates_every = 0
    validates_end = True
    writes_epochs = True

    def __init__(self, loaded: Loaded, request: PartsRequest) -> None:
        self.loaded = loaded
        self._model_folder, self._written_after = Path(), -1  # none of this process yet
        options, training = loaded.options, loaded.options.training
        self._ranks = request.ranks.world_size
        if request.earlier is not None:
            check_earlier(loaded, request.earlier)
        self._precision = request.precision
        self._processor = processor_of(loaded)
        self.network = build_network(loaded, request.precision)
        data = build_finetune_data(loaded, self._processor, most_positions(self.network))
        self._data = data
        self._train_set = ConversationSet("train", data.train, data.collate, data.pictures.longest)
        if largest_step(options) > step_conversations(training):
            self._train_set.bounding_option = "max_batch_size"
        self.train_set = self._train_set
        request.check_samples(self.train_set)
        self._validations: list[ConversationValidation] = []
        if data.val is not None:
            val_set, lengths = ConversationSet("val", data.val, data.collate, 0), data.looked_through["val"].lengths
            self._validations.append(ConversationValidation(val_set, training.per_device_train_batch_size, lengths))
        self.datasets = [self.train_set, *(validation.dataset for validation in self._validations)]
        self.scans = {dataset.name: dataset.scan() for dataset in self.datasets}
        lora = f", LoRA of rank {options.lora.r}" if options.lora is not None else ""
        self.network_words = f"{options.model.name}{lora}"
        self.length = _length(training, len(self.train_set))
        self.length_key = f"{'max_steps' if training.max_steps else 'num_train_epochs'} under training"
        self.validates_epochs = bool(self._validations) and training.eval_every_epoch
        self.metrics, self.best_metric = (LOSS,), LOSS if self._validations else None
        self.rate_scaling = training.lr_scaling

    def axes(self) -> tuple[Axis, ...]:
        """Return the conversations of a pass: up to those of a step, or to what steps may grow to."""
        return (Axis(BATCH_SIZE, "samples", 1, largest_step(self.loaded.options)),)

    def first_plan(self) -> Plan:
        """Return the conversations of a step, in the passes of the option file."""
        training = self.loaded.options.training
        passes = training.gradient_accumulation_steps
        return Plan.of(batch_size=step_conversations(training), micro_batches=passes)

    def automations(self) -> Loaded:
        """Return the option file with the controller of its steps, a stop file and the end at a low loss."""
        return with_own_automations(self.loaded, self._precision.device.type, self._ranks)

    def build_model(self, precision: Precision, *, pretrained: bool, parallel: Parallel | None = None) -> BaseModel:
        """Return the model with its optimizer."""
        del pretrained
        options = self.loaded.options
        if parallel is not None and options.distributed.fully_shard:
            sets = {name: looked.conversations for name, looked in self._data.looked_through.items()}
            has_pictures = {name: [bool(one.images) for one in some] for name, some in sets.items()}
            check_every_pass_uses_all(self.loaded, self.network, has_pictures)
        model = finetuned_model(self.network, self.loaded, precision, parallel)
        model.frozen_from = f"model.name {options.model.name}" if options.lora is not None else ""
        return model

    def build_schedule(self, model: BaseModel, sharding: SampleSharding = SINGLE_PROCESS) -> RateSchedule:
        """Return how rates go, in the words of transformers' Trainer."""
        for optimizer in model.optimizers.values():
            RateSchedule.remember_rates(optimizer)
        training = self.loaded.options.training
        step = sharding.total(step_conversations(training))
        return schedule_of(training, len(self.train_set), *self.length, step)

    def draws(self, sharding: SampleSharding) -> tuple[None, Batcher]:
        """Return how many conversations a draw holds: none goes beyond the end of an epoch."""
        return None, DividedEpochs(len(self.train_set), sharding)

    def build_validators(
        self, directory: RunDirectory, device: torch.device, *, in_step: bool = False
    ) -> Sequence[ValidationSet]:
        """Return what measures the loss on conversations that are set aside."""
        del directory, device, in_step
        return self._validations

    def last_resort(self, *, checkpointing_may_help: bool) -> LastResort:
        """Return what reduces pictures, as far as the file allows, where not even one conversation fits."""
        del checkpointing_may_help
        return SmallerPictures(self._data.pictures, self._train_set.learn_largest)

    def trace_facts(self) -> Mapping[str, Any]:
        """Return the largest conversation."""
        template = self._train_set.planned().template
        return {SAMPLE: LargestConversation(template.leaves, "").as_known()}

    def measured(self) -> tuple[str, ...]:
        """Return what validations will measure."""
        return tuple(f"{validation.name}/{LOSS}" for validation in self._validations)

    def facts(self) -> Sequence[Pair]:
        """Return lines on model, conversations, steps and rates."""
        training = self.loaded.options.training
        return (
            ("model", model_words(self.network, self._precision)),
            *packed_words(self.network),
            *self._data.facts(),
            ("steps", step_words(training)),
            ("rates", rate_words(training)),
        )

    def at_epoch_end(self, directory: RunDirectory, epoch: int, progress: Progress) -> None:
        """Write the model of the epoch that has ended, for transformers and peft."""
        self._model_folder = write_epoch(directory.checkpoints, epoch - 1, progress, self.write_model)
        self._written_after = progress.steps

    def finish(self, directory: RunDirectory, progress: Progress) -> Sequence[Pair]:
        """Write the model of the last step; return what it came to, and how to try it."""
        if self._written_after != progress.steps:
            self.at_epoch_end(directory, max(1, -(-progress.samples // len(self.train_set))), progress)
        others = "" if self._validations else " OTHER.jsonl"
        return (
            *measured_words(self._validations, directory, progress.steps),
            ("model", str(self._model_folder)),
            ("to try it", f"{program_words()} test {directory.path}{others}"),
        )

    def write_model(self, folder: Path) -> None:
        """Write adapters or weights, and the processor, as transformers and peft load them."""
        network: Any = self.network
        with without_library_noise():
            network.save_pretrained(str(folder), state_dict=self.whole_weights)
        self._processor.save_pretrained(str(folder))
        keep_other_parts(self.loaded.options.model.name, folder)


def check_earlier(loaded: Loaded, directory: RunDirectory) -> None:
    """Refuse to resume a run of another name, model or adapters, or one that a Trainer wrote.

    Raises:
        InputError: says what differs, and what to do.
    """
    old = sorted(directory.checkpoints.glob("checkpoint-*")) if directory.checkpoints.is_dir() else []
    if old and not list(directory.checkpoints.glob("step_*")):
        with locate_errors(loaded, ("training", "output_dir")):
            message = f"{old[-1]} was written by an earlier version, whose runs cannot be resumed"
            advice = "Begin a new run without --auto_resume, from the model of an epoch: model: {name: .../epoch_N}."
            raise InputError(Problem(message, advice=advice))
    try:
        config = json.loads(read_text(directory.config))
        model = config["model"]
        before = config["name"], model["name"], model["load_in_4bit"], config["lora"]
    except (OSError, ValueError, KeyError, TypeError):
        return
    now = loaded.options.model_dump(mode="json")
    names = {key: now["model"][key] for key in ("name", "load_in_4bit")}
    names = {"name": now["name"], **{f"model.{key}": value for key, value in names.items()}, "lora": now["lora"]}
    for (key, value), earlier in zip(names.items(), before, strict=True):
        if value != earlier:
            with locate_errors(loaded, ("training", "output_dir")):
                message = f"the newest run there, {directory.path}, has {key} {earlier}, and this file {value}"
                advice = "Give each file an output_dir of its own, or begin a new run without --auto_resume."
                raise InputError(Problem(message, advice=advice))


def finetuned_model(
    network: nn.Module, loaded: Loaded, precision: Precision, parallel: Parallel | None = None
) -> ConversationModel:
    """Return a network as the engine trains it; conversations without pictures leave weights out.

    Raises:
        InputError: there is no such optimizer, or it does not fit here.
    """
    training = loaded.options.training
    forward = parallel(network, leaves_weights_out=True) if parallel is not None else network
    path, rate, decay = ("training", "optim"), training.learning_rate, training.weight_decay
    optimizer = trainer_optimizer(loaded, path, training.optim, network, rate, decay)
    return ConversationModel(network, optimizer, precision, training.learning_rate, forward=forward)


def check_every_pass_uses_all(loaded: Loaded, network: nn.Module, has_pictures: Mapping[str, Sequence[bool]]) -> None:
    """Refuse weights that passes of some ranks would leave out where ranks wait for each other within each of them.

    Args:
        loaded: the option file.
        network: has repeated blocks, those of its language model, and of its vision tower perhaps.
        has_pictures: whether each conversation of a set has some, by the set's name.

    Raises:
        InputError: names such weights.
    """
    try:
        blocks = blocks_of(network).modules
    except ActivationCheckpointingError:
        blocks = ()
    are_of_language = len({type(block) for block in blocks}) == 1
    inside = {id(weight) for block in blocks if are_of_language for weight in block.parameters()}
    trained = ((name, weight) for name, weight in network.named_parameters() if weight.requires_grad)
    outside = next((name for name, weight in trained if id(weight) not in inside), "")
    for name, some in has_pictures.items():
        # Without gradients no rank waits for another but within blocks.
        if len(set(some)) < 2 or not outside or (name != "train" and are_of_language):
            continue
        with locate_errors(loaded, ("distributed", "fully_shard")):
            without = some.count(False)
            message = (
                f"{without} of {counted(len(some), 'conversation')} of {name} {'has' if without == 1 else 'have'} no "
                f"picture, and weights outside of the language model's blocks are trained, such as {outside}: a rank "
                "without pictures may leave some of them out, which others wait for"
            )
            advice = (
                "Train adapters of the language model's blocks alone (lora: target_modules), give each conversation a "
                "picture, or write ddp_overlap: true."
            )
            raise InputError(Problem(message, advice=advice))


def _length(training: FinetuneTraining, conversations: int) -> tuple[int, LengthUnit]:
    """Return the length of a run, and what it is counted in."""
    if training.max_steps is not None:
        return training.max_steps, "steps"
    return math.ceil(training.num_train_epochs * conversations), "samples"


def build_network(loaded: Loaded, precision: Precision) -> nn.Module:
    """Return the model of an option file, with adapters where it wants some.

    Raises:
        InputError: it cannot be loaded, or adapters match no layer.
    """
    options = loaded.options
    with locate_errors(loaded, ("model",)):
        dtype = weights_dtype(options, precision)
        four_bits = four_bits_of(options, precision)
        model = load_model(ModelSettings(options.model.name, options.model.attention, dtype, four_bits))
    if four_bits is None:
        model = model.to(precision.device)
    if options.memory.gradient_checkpointing:
        checkpoint_activations(model)
    lora = options.lora
    if lora is None:
        return model
    with locate_errors(loaded, ("lora",)):
        return adapted(model, lora.r, lora.lora_alpha, lora.lora_dropout, lora.target_modules)


def weights_dtype(options: FinetuneOptions, precision: Precision) -> torch.dtype | None:
    """Return the format in which weights are kept; ``None`` for that in which they were saved."""
    if options.model.dtype is not None:
        return {"float32": torch.float32, "bfloat16": torch.bfloat16}[options.model.dtype]
    return None if options.lora is not None and precision.device.type == "cuda" else torch.float32


def four_bits_of(options: FinetuneOptions, precision: Precision) -> FourBits | None:
    """Return how linear layers are kept in 4 bits; ``None`` where the file does not ask for it.

    They compute in the format of a step, or else in that of the weights beside them, so that nothing but the 4 bits
    rounds. On a card whose file names none it is bfloat16, as in QLoRA.
    """
    if not options.model.load_in_4bit:
        return None
    kept = weights_dtype(options, precision) or torch.bfloat16
    return FourBits(precision.device, kept if precision.dtype == torch.float32 else precision.dtype)


def schedule_of(
    training: FinetuneTraining, samples: int, total: int, unit: LengthUnit, step_samples: float
) -> RateSchedule:
    """Return the schedule of a run.

    Args:
        training: of the option file.
        samples: conversations of an epoch.
        total: length of the run, in ``unit``.
        unit: what it is counted in.
        step_samples: conversations of the steps it begins with.
    """
    step = step_samples if unit == "samples" else 1.0
    given, warmup = training.lr_scheduler_kwargs, warmup_of(training)
    milestones = [point * (samples if unit == "samples" else 1) for point in given.milestones]
    arguments: Mapping[str, Mapping[str, Any]] = {
        "multistep": {"milestones": milestones, "total": total, "gamma": given.gamma},
        "cosine_with_restarts": {"cycles": given.num_cycles},
    }
    shape = SCHEDULES.get(training.lr_scheduler_type)(**arguments.get(training.lr_scheduler_type, {}))
    steps, share = (warmup, 0.0) if warmup >= 1 else (0.0, warmup)
    return RateSchedule(shape, total, unit, share * total, decays_after_warmup=True, step=step, warmup_steps=steps)
