"""Runs of fine-tuning: the model, its conversations, and what trains it, from options."""

import json
import logging
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from trainauto.builders.components import locate_errors
from trainauto.builders.finetune_automations import controller_settings, watching
from trainauto.builders.finetune_data import FinetuneData, build_finetune_data, processor_of
from trainauto.builders.finetune_words import (
    measured,
    memory_words,
    model_words,
    packed_words,
    rate_words,
    step_words,
    trained_words,
)
from trainauto.builders.trackers import tracker_sinks, tracker_words
from trainauto.builders.trainer_lines import SayChanges, StopOnSignal, already_over, in_place_of_bars
from trainauto.builders.trainer_run import Pair, RunPlace, TrainerRun
from trainauto.builders.trainer_trial import try_trainer
from trainauto.core.errors import InputError, Problem
from trainauto.core.program import program_words
from trainauto.core.run_events import LengthUnit
from trainauto.core.words import counted
from trainauto.engine.signals import StopSignals
from trainauto.integrations.huggingface.arguments import MemoryAwareTrainingArguments
from trainauto.integrations.huggingface.step_rates import RateOfStep
from trainauto.integrations.huggingface.train_data import MOST_STEP_SAMPLES, STEP_SAMPLES
from trainauto.optim.batch_scaling import BatchScaling
from trainauto.optim.precision import Precision
from trainauto.optim.registry import SCHEDULES
from trainauto.optim.schedules import RateSchedule
from trainauto.options.finetune_options import FinetuneOptions, FinetuneTraining, step_conversations, warmup_of
from trainauto.options.load import LoadedOptions
from trainauto.storage.run_directory import RunDirectory
from trainauto.tasks.finetune.endings import MeasureAtTheEnd
from trainauto.tasks.finetune.epoch_models import EpochModels
from trainauto.tasks.finetune.four_bits import FourBits
from trainauto.tasks.finetune.models import (
    ModelSettings,
    adapted,
    checkpoint_activations,
    load_model,
    most_positions,
)
from trainauto.tasks.finetune.processors import keep_other_parts
from trainauto.tasks.finetune.trainer import FinetuneTrainer
from trainauto.tasks.text.training.hub import without_library_noise

logger = logging.getLogger(__name__)

Loaded = LoadedOptions[FinetuneOptions]


class FinetuneRun(TrainerRun):
    """A vision-language model and the conversations it is taught.

    Args:
        loaded: the option file.
        precision: number format, and the device.

    Raises:
        InputError: model, processor or conversations cannot be used.
    """

    has_curves = True

    def __init__(self, loaded: Loaded, precision: Precision) -> None:
        self._loaded, self._precision = loaded, precision
        training = loaded.options.training
        self.place = RunPlace(Path(training.output_dir), "", ("training", "output_dir"))
        self.checkpoint_words = f"a checkpoint every {counted(training.save_steps, 'step')}, and after each epoch"
        self._settings = controller_settings(loaded)
        self._watchers = watching(loaded)
        _check_precision(loaded, precision)
        self._processor = processor_of(loaded)
        self._model = build_model(loaded, precision)
        self._data: FinetuneData = build_finetune_data(loaded, self._processor, most_positions(self._model))

    def checkpoints(self, directory: RunDirectory) -> Path:
        """Return the run's own folder of checkpoints."""
        return directory.checkpoints

    def curves(self, directory: RunDirectory) -> Path:
        """Return the folder of event files beside the runs."""
        return directory.tensorboard

    def check_earlier(self, directory: RunDirectory) -> None:
        """Refuse to resume a run of another name, model or adapters.

        Raises:
            InputError: says what differs, and what to do.
        """
        try:
            config = json.loads(directory.config.read_text(encoding="utf-8"))
            model = config["model"]
            before = config["name"], model["name"], model["load_in_4bit"], config["lora"]
        except (OSError, ValueError, KeyError, TypeError):
            return
        now = self._loaded.options.model_dump(mode="json")
        names = {key: now["model"][key] for key in ("name", "load_in_4bit")}
        names = {"name": now["name"], **{f"model.{key}": value for key, value in names.items()}, "lora": now["lora"]}
        for (key, value), earlier in zip(names.items(), before, strict=True):
            if value != earlier:
                with locate_errors(self._loaded, self.place.option):
                    message = f"the newest run there, {directory.path}, has {key} {earlier}, and this file {value}"
                    advice = "Give each file an output_dir of its own, or begin a new run without --auto_resume."
                    raise InputError(Problem(message, advice=advice))

    def facts(self) -> Sequence[Pair]:
        """Return lines of the start."""
        options = self._loaded.options
        budget_bytes = options.memory.budget_bytes(self._precision.device.type)
        return (
            ("device", str(self._precision.device)),
            ("model", f"{options.model.name}, {model_words(self._model, self._precision)}"),
            *packed_words(self._model),
            *self._data.facts(),
            ("steps", step_words(options.training)),
            ("rates", rate_words(options.training)),
            ("memory", memory_words(budget_bytes, self._precision)),
            ("trackers", tracker_words(options.logger, self.place.root)),
        )

    def train(self, directory: RunDirectory, signals: StopSignals, *, resumes: bool) -> Sequence[Pair]:
        """Train, and return lines of the end: why it ended, how long it took, where the model is.

        Raises:
            NothingFitsError: memory runs out, and there is no smaller plan.
            NonFiniteError: a loss or a gradient is no number.
        """
        start = time.monotonic()
        trainer = self._trainer(self._arguments(self.checkpoints(directory)), directory)
        options = self._loaded.options
        every = options.training.logging_steps
        trainer.own_sinks = tracker_sinks(options.logger, directory, self.place.root, options.name, every)
        epochs = EpochModels(directory.checkpoints, trainer, self.write_model)
        trainer.add_callback(epochs)
        trainer.add_callback(SayChanges(self.changes))
        if self._data.val is not None:
            trainer.add_callback(MeasureAtTheEnd(trainer))
        trainer.add_callback(StopOnSignal(signals, lambda: trainer.end.interrupt(f"stopped by {signals.name}")))
        with without_library_noise():
            trainer.train(resume_from_checkpoint=True if resumes else None)
        step = trainer.state.global_step
        if signals.received:
            return (("stopped", f"{signals.name} after step {step}, saved; --auto_resume goes on from there"),)
        folder = epochs.finish()
        has_trained = trainer.session.trained_samples > 0
        return (
            ("ended", trainer.ending().reason if has_trained else already_over(trainer.session)),
            ("trained", trained_words(trainer.session, time.monotonic() - start, resumes=resumes)),
            *measured(trainer),
            ("model", str(folder)),
            (
                "to try it",
                f"{program_words()} test {directory.path}{'' if self._data.val is not None else ' OTHER.jsonl'}",
            ),
        )

    def try_steps(self, folder: Path, steps: int) -> Sequence[Pair]:
        """Train a few steps, and measure."""
        given = {"max_steps": steps, "save_strategy": "no", "eval_strategy": "no"}
        return try_trainer(self._trainer(self._arguments(folder, **given), None))

    def write_model(self, folder: Path) -> None:
        """Write adapters or weights, and the processor, as transformers and peft load them."""
        with without_library_noise():
            self._model.save_pretrained(str(folder))  # type: ignore[operator]
        self._processor.save_pretrained(str(folder))
        keep_other_parts(self._loaded.options.model.name, folder)

    def _trainer(self, arguments: MemoryAwareTrainingArguments, directory: RunDirectory | None) -> FinetuneTrainer:
        data, training = self._data, self._loaded.options.training
        trainer = FinetuneTrainer(
            self._model,
            arguments,
            data.train,
            data.val,
            data.collate,
            pictures=data.pictures,
            make_schedule=partial(schedule_of, training, len(data.train)),
            directory=directory,
        )
        in_place_of_bars(trainer)
        if training.lr_scaling != "none":
            scaling = BatchScaling(training.lr_scaling, step_conversations(training))
            trainer.add_callback(RateOfStep(trainer, scaling, by_plan=False))
        return trainer

    def _arguments(self, output_dir: Path, **others: Any) -> MemoryAwareTrainingArguments:
        options = self._loaded.options
        training, memory = options.training, options.memory
        budget_bytes = memory.budget_bytes(self._precision.device.type)
        length = {"max_steps": training.max_steps} if training.max_steps else {}
        measures = self._data.val is not None and training.eval_every_epoch
        given: dict[str, Any] = {
            "per_device_train_batch_size": training.per_device_train_batch_size,
            "per_device_eval_batch_size": training.per_device_train_batch_size,
            "gradient_accumulation_steps": training.gradient_accumulation_steps,
            "max_batch_size": None if self._settings is not None else training.per_device_train_batch_size,
            "memory_budget": f"{budget_bytes}B" if budget_bytes else None,
            "memory_settings": self._settings or {},
            "training_automations": self._watchers,
            "num_train_epochs": training.num_train_epochs,
            **length,
            "learning_rate": training.learning_rate,
            "weight_decay": training.weight_decay,
            "max_grad_norm": training.max_grad_norm or 0.0,
            "logging_steps": training.logging_steps,
            "save_steps": training.save_steps,
            "save_total_limit": training.save_total_limit,
            "eval_strategy": "epoch" if measures else "no",
            "prediction_loss_only": True,
            "label_names": ["labels"],
            "seed": options.manual_seed,
            "use_cpu": self._precision.device.type == "cpu",
            "bf16": self._precision.dtype == torch.bfloat16,
            "fp16": self._precision.dtype == torch.float16,
            "dataloader_num_workers": training.dataloader_num_workers,
            "report_to": [],
            "run_name": options.name,
            "disable_tqdm": True,
            "remove_unused_columns": False,
        }
        arguments = MemoryAwareTrainingArguments(str(output_dir), **{**given, **others})
        # Of one pass as well: what does not fit runs in several, and a step keeps its conversations.
        setattr(arguments, STEP_SAMPLES, step_conversations(training))
        setattr(arguments, MOST_STEP_SAMPLES, training.max_batch_size)
        return arguments


def build_model(loaded: Loaded, precision: Precision) -> torch.nn.Module:
    """Return the model of an option file, with adapters where it wants some.

    Raises:
        InputError: it cannot be loaded, or adapters match no layer.
    """
    options = loaded.options
    with locate_errors(loaded, ("model",)):
        dtype = weights_dtype(options, precision)
        four_bits = four_bits_of(options, precision)
        model = load_model(ModelSettings(options.model.name, options.model.attention, dtype, four_bits))
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
    length = warmup * step if warmup >= 1 else warmup * total
    return RateSchedule(shape, total, unit, length, decays_after_warmup=True, step=step)


def _check_precision(loaded: Loaded, precision: Precision) -> None:
    if precision.dtype == torch.float16 and precision.device.type == "cpu":
        with locate_errors(loaded, ("amp_bf16",)):
            raise InputError(Problem("float16 needs a card in a Trainer's run", advice="Write amp_bf16: true."))
