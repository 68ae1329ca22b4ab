"""Every key of an option file of fine-tuning: type, default, unit, and why the default is what it is."""

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from trainauto.options.fields import (
    Component,
    FolderName,
    Fraction,
    NonNegativeInt,
    PathText,
    PositiveInt,
    Processes,
    Roots,
    Samples,
    Section,
    Tokens,
    option,
    whole,
)
from trainauto.options.resource_options import MemoryOptions
from trainauto.options.run_options import OF_STEPS, OPTIMIZER_BESIDE_RATE, FileOptions, RunSettings
from trainauto.options.text_options import LoraOptions
from trainauto.options.tracker_options import TrackerOptions

Pixels = Annotated[int, Field(ge=1, le=2**32), BeforeValidator(whole)]
Positive = Annotated[float, Field(gt=0.0)]
NonNegative = Annotated[float, Field(ge=0.0)]

WITHOUT_DECAY = ("constant", "none")
"""Schedules whose rate stays, and which warm up only where a file says so."""

DEFAULT_WARMUP_RATIO = 0.03
"""Share of the run in which the rates of other schedules rise where a file does not say."""


class FinetunedModel(Section):
    """The vision-language model, as it was trained before."""

    name: PathText = option(
        ...,
        "Folder of a saved model with its processor, or its name on Hugging Face's hub, e.g. "
        "Qwen/Qwen3-VL-2B-Instruct; a folder never asks the network.",
    )
    load_in_4bit: bool = option(
        False,
        "Keep the linear layers of the model, all but the head, in 4 bits (NF4), and train adapters beside them: needs "
        "lora and the package bitsandbytes.",
        reason="off",
    )
    max_pixels: Pixels | None = option(
        None,
        "Most pixels of a picture; larger ones are reduced, keeping their shape (262144 is 512x512).",
        unit="pixels",
        reason="null: what its processor says",
    )
    chat_template: str | None = option(
        None,
        "File of a chat template (Jinja), relative to this one, in place of the processor's own; "
        "{% generation %} marks what is learned.",
        reason="null: the processor's",
    )
    attention: Literal["sdpa", "eager"] = option(
        "sdpa", "How attention is computed.", reason="the fastest that every device has"
    )
    dtype: Literal["float32", "bfloat16"] | None = option(
        None,
        "Number format in which weights are kept, with load_in_4bit the others; adapters are float32 in any case.",
        reason="null: with lora on a card as they were saved, else float32, since small steps vanish in bfloat16",
    )


class FinetuneDataset(Section):
    """Conversations to learn from, and to measure on."""

    path: Roots = option(
        ...,
        'A file of chats (.jsonl: {"messages": [...]} a line), a folder of pictures with captions (a.png beside a.txt, '
        "or metadata.jsonl), a dataset that `datasets` saved, or a list of them.",
    )
    val: Roots | None = option(None, "As path, to measure on after each epoch.", reason="null: val_share says which")
    val_share: Annotated[float, Field(gt=0.0, lt=1.0)] | None = option(
        None,
        "Share of the conversations that is set aside to measure on; manual_seed says which.",
        unit="share of the conversations",
        reason="null: none",
    )
    prompt: str = option("Describe the picture.", "What is asked of each picture of a folder of captions.")
    max_length: Tokens | None = option(
        None, "Most tokens of a conversation, pictures included.", unit="tokens", reason="null: what the model takes"
    )
    too_long: Literal["drop", "cut", "refuse"] = option(
        "drop",
        "What becomes of longer conversations: left out, cut to the turns that fit, or the run is refused; "
        "the start says how many there were.",
    )


class SchedulerArguments(Section):
    """What single schedules take."""

    milestones: list[Positive] = option(
        [], "multistep: where the rate is multiplied by gamma.", unit="epochs; with max_steps optimizer steps"
    )
    gamma: Annotated[float, Field(gt=0.0, lt=1.0)] = option(0.1, "multistep: the factor.", reason="torch's")
    num_cycles: PositiveInt = option(1, "cosine_with_restarts: how often the rate falls to 0.", reason="transformers'")


class FinetuneTraining(Section):
    """Batches, rates, length, and where the run goes, in the words of transformers' Trainer."""

    num_train_epochs: Positive = option(1.0, "Length of the run.", unit="passes over the conversations")
    max_steps: PositiveInt | None = option(
        None, "Length of the run in place of num_train_epochs.", unit="optimizer steps", reason="null: epochs count"
    )
    per_device_train_batch_size: Samples = option(
        1, "Conversations of a forward pass of one rank at the start; memory decides from there.", unit="conversations"
    )
    gradient_accumulation_steps: Samples = option(
        1,
        "Passes of a step: a step has this many times per_device_train_batch_size conversations a rank, whatever fits.",
    )
    max_batch_size: Samples | None = option(
        None,
        "Most conversations of a step, of one rank, where memory has room for more than those two make; a pass then "
        "holds them all.",
        unit="conversations",
        reason="null: steps stay as large as the file says, and only passes grow",
    )
    lr_scaling: Literal["none", "sqrt", "linear"] = option(
        "none",
        "Factor of the rate of steps that max_batch_size lets grow: how many times the file's conversations they have "
        "(linear), or the square root of it (sqrt, for Adam).",
        reason="none: rates stay those of the file, whatever the batch",
    )
    learning_rate: Positive = option(
        2e-4, "Learning rate.", reason="for adapters; all weights of a trained model want a tenth of it"
    )
    lr_scheduler_type: Literal["linear", "cosine", "constant", "none", "multistep", "cosine_with_restarts"] = option(
        "linear", "How the rate goes after the warm-up; linear and cosine end at 0, none is constant."
    )
    lr_scheduler_kwargs: SchedulerArguments = option(SchedulerArguments(), "What the schedule takes.")
    warmup_ratio: Fraction | None = option(
        None,
        "Share of the run in which the rate rises to learning_rate.",
        unit="share of the run",
        reason=f"null: {DEFAULT_WARMUP_RATIO} where no warmup_steps are given, and 0 of constant and none",
    )
    warmup_steps: NonNegativeInt = option(
        0, "As warmup_ratio, in steps.", unit="optimizer steps", reason="0: the ratio"
    )
    weight_decay: NonNegative = option(0.0, "Weight decay; biases and norms have none.", reason="transformers' value")
    optim: Component | None = OPTIMIZER_BESIDE_RATE
    max_grad_norm: Positive | None = option(1.0, "Largest gradient norm; null is off.", reason="transformers' value")
    logging_steps: PositiveInt = option(10, "Steps between lines on the console.", unit="optimizer steps")
    save_steps: PositiveInt = option(
        500, "Steps between checkpoints to resume from; one more ends each epoch.", unit="optimizer steps"
    )
    save_total_limit: PositiveInt = option(
        2, "Newest checkpoints to keep, beside the best; the models of epochs are all kept.", unit="checkpoints"
    )
    eval_every_epoch: bool = option(True, "Measure on the conversations set aside after each epoch, if there are some.")
    early_stop_loss: NonNegative | None = option(
        None, "End the run once the loss has been at or below this.", reason="null: it is never ended by its loss"
    )
    early_stop_patience: PositiveInt = option(
        20, "With early_stop_loss: so many steps one after another.", unit="optimizer steps"
    )
    output_dir: PathText = option(
        "training_output", "Folder of runs; each gets one in it, and `current` is the newest."
    )
    dataloader_num_workers: Processes = option(
        0, "Processes that read and prepare pictures; 0 does it in the training process."
    )


class FinetuneMemory(MemoryOptions):
    """How much memory a run may take."""

    shrink_pictures_to: Pixels | None = option(
        None,
        "Fewest pixels to which pictures are reduced where not even one conversation fits: below max_pixels by halves, "
        "and no further than this. The log and decisions.jsonl say so, and resumes keep it.",
        unit="pixels",
        reason="null: never, since a model sees less; the run then ends and says what would help",
    )
    calibration: Literal[False] = option(False, "Fine-tuning learns anew each time.")
    gradient_checkpointing: bool = option(
        False,
        "Keep only what goes into the repeated blocks of a network, and run them again in the backward pass: less "
        "memory, the same results, about a third more time.",
        reason="off: it costs time",
    )
    allow_gradient_checkpointing: Literal[False] = option(
        False, "Fine-tuning ends where not even one conversation fits, and says so."
    )


class FinetuneLogger(TrackerOptions):
    """Experiment trackers; how often there is a line, and a point of theirs, says logging_steps under training."""


class FinetuneOptions(FileOptions):
    """One run of fine-tuning a vision-language model."""

    steered_by_default: ClassVar[bool] = True

    name: FolderName = option("finetune", "Name of the run in logs and reports.")
    task: Literal["finetune"] = option("finetune", "What is learned; a file with a section training need not say it.")
    model: FinetunedModel = option(..., "The model to train, e.g. `{name: Qwen/Qwen3-VL-2B-Instruct}`.")
    lora: LoraOptions | None = option(None, "Train adapters instead of the model.", reason="null: all weights learn")
    dataset: FinetuneDataset = option(..., "Conversations, e.g. `{path: chats.jsonl}`.")
    training: FinetuneTraining = option(..., "Batches, rates, length.")
    memory: FinetuneMemory = option(FinetuneMemory(), "Memory budget.")
    logger: FinetuneLogger = option(FinetuneLogger(), "Experiment trackers.")

    @property
    def settings(self) -> RunSettings:
        """How its run is kept and told of: runs lie right in ``output_dir``."""
        training = self.training
        return RunSettings(
            root=Path(training.output_dir),
            root_key=("training", "output_dir"),
            name="",
            prints_every=training.logging_steps,
            saves_every=training.save_steps,
            keeps=training.save_total_limit,
            has_curves=True,
            trackers=self.logger,
            max_norm=training.max_grad_norm,
            saves_epochs=True,
        )

    @property
    def folder_of_runs(self) -> str:
        """Folder that holds its runs."""
        return self.training.output_dir

    @property
    def kept_checkpoints(self) -> int:
        """Most checkpoints on disk at a time: the newest, the best and the one being written."""
        return self.training.save_total_limit + 2

    @property
    def loading(self) -> tuple[int, int]:
        """Processes that make samples, and batches that are drawn ahead of the step."""
        return self.training.dataloader_num_workers, max(2, self.training.dataloader_num_workers)

    def of_steps(self, world_size: int) -> dict[str, Any]:
        """Return the options that the memory of a step depends on."""
        training = {"per_device_train_batch_size", "gradient_accumulation_steps", "max_batch_size", "max_grad_norm"}
        included: dict[str, Any] = {
            **dict.fromkeys(("task", "model", "lora", "dataset", *OF_STEPS), True),
            "training": {*training, "weight_decay", "optim"},
        }
        return self.model_dump(mode="json", include=included) | self.of_sums(world_size)


def step_conversations(training: FinetuneTraining) -> int:
    """Return the conversations of a step, as the file has them."""
    return training.per_device_train_batch_size * training.gradient_accumulation_steps


def warmup_of(training: FinetuneTraining) -> float:
    """Return the warm-up as transformers has it: steps from 1 on, below that a share of the run."""
    if training.warmup_steps:
        return float(training.warmup_steps)
    if training.warmup_ratio is not None:
        return training.warmup_ratio
    return 0.0 if training.lr_scheduler_type in WITHOUT_DECAY else DEFAULT_WARMUP_RATIO
