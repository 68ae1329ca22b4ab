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
    """The pretrained vision-language model."""

    name: PathText = option(
        ...,
        "Folder of a saved model with its processor, or its name on the Hugging Face Hub, e.g. "
        "Qwen/Qwen3-VL-2B-Instruct. A folder never accesses the network.",
    )
    load_in_4bit: bool = option(
        False,
        "Quantize the linear layers of the model, all but the head, to 4 bits (NF4), and train adapters beside them "
        "(QLoRA). Needs lora and the package bitsandbytes.",
        reason="off",
    )
    max_pixels: Pixels | None = option(
        None,
        "Maximum pixels of an image. Larger images are reduced and keep their aspect ratio (262144 is 512x512).",
        unit="pixels",
        reason="null: as the processor says",
    )
    chat_template: str | None = option(
        None,
        "File of a chat template (Jinja), relative to this file, which replaces the processor's own. {% generation "
        "%} marks the text to learn.",
        reason="null: the processor's",
    )
    attention: Literal["sdpa", "eager"] = option(
        "sdpa", "Attention implementation.", reason="the fastest that every device has"
    )
    dtype: Literal["float32", "bfloat16"] | None = option(
        None,
        "Data type of the weights; with load_in_4bit, of those that are not quantized. Adapters are always float32.",
        reason="null: the saved dtype with lora on a GPU, else float32, since small steps vanish in bfloat16",
    )


class FinetuneDataset(Section):
    """Conversations for training and validation."""

    path: Roots = option(
        ...,
        'A file of chats (.jsonl, {"messages": [...]} per line), a folder of images with captions (a.png beside '
        "a.txt, or metadata.jsonl), a dataset that `datasets` saved, or a list of these.",
    )
    val: Roots | None = option(
        None, "Conversations to validate on after each epoch, as in path.", reason="null: val_share decides"
    )
    val_share: Annotated[float, Field(gt=0.0, lt=1.0)] | None = option(
        None,
        "Share of the conversations that is held out for validation. manual_seed decides which.",
        unit="share of the conversations",
        reason="null: none",
    )
    prompt: str = option(
        "Describe the picture.", "Question to ask about each image in a folder of images with captions."
    )
    max_length: Tokens | None = option(
        None, "Maximum tokens of a conversation, images included.", unit="tokens", reason="null: the model's maximum"
    )
    too_long: Literal["drop", "cut", "refuse"] = option(
        "drop",
        "Treatment of longer conversations. `drop` leaves them out, `cut` keeps the turns that fit, and `refuse` "
        "ends the command with an error. The start of the run reports how many there were.",
    )


class SchedulerArguments(Section):
    """Arguments of single schedules."""

    milestones: list[Positive] = option(
        [], "multistep: when to multiply the learning rate by gamma.", unit="epochs; with max_steps optimizer steps"
    )
    gamma: Annotated[float, Field(gt=0.0, lt=1.0)] = option(0.1, "multistep: the factor.", reason="torch's default")
    num_cycles: PositiveInt = option(
        1, "cosine_with_restarts: how often the learning rate falls to 0.", reason="transformers' default"
    )


class FinetuneTraining(Section):
    """Batches, learning rate, length and folder of the run, under the names of transformers' Trainer."""

    num_train_epochs: Positive = option(1.0, "Length of the run in epochs.", unit="passes over the conversations")
    max_steps: PositiveInt | None = option(
        None,
        "Length of the run in steps; replaces num_train_epochs.",
        unit="optimizer steps",
        reason="null: epochs count",
    )
    per_device_train_batch_size: Samples = option(
        1,
        "Conversations in one forward pass of a rank at the start of the run. The controller then adjusts this "
        "number to the memory.",
        unit="conversations",
    )
    gradient_accumulation_steps: Samples = option(
        1,
        "A step always has gradient_accumulation_steps * per_device_train_batch_size conversations per rank, "
        "however many micro-batches the memory requires.",
    )
    max_batch_size: Samples | None = option(
        None,
        "Maximum conversations of a step per rank. With it, a step may grow beyond gradient_accumulation_steps * "
        "per_device_train_batch_size if memory allows; one forward pass then holds all its conversations.",
        unit="conversations",
        reason="null: steps keep the size in the file, and only forward passes grow",
    )
    lr_scaling: Literal["none", "sqrt", "linear"] = option(
        "none",
        "Scale the learning rate of steps that max_batch_size lets grow. The factor is the ratio of their "
        "conversations to those of the file (linear), or its square root (sqrt, for Adam).",
        reason="none: learning rates stay as in the file, whatever the batch size",
    )
    learning_rate: Positive = option(
        2e-4, "Learning rate.", reason="for adapters; to train all weights of a pretrained model, take a tenth of it"
    )
    lr_scheduler_type: Literal["linear", "cosine", "constant", "none", "multistep", "cosine_with_restarts"] = option(
        "linear", "Learning rate schedule after the warmup. linear and cosine end at 0; none is constant."
    )
    lr_scheduler_kwargs: SchedulerArguments = option(SchedulerArguments(), "Arguments of the schedule.")
    warmup_ratio: Fraction | None = option(
        None,
        "Share of the run over which the learning rate rises to learning_rate.",
        unit="share of the run",
        reason=f"null: {DEFAULT_WARMUP_RATIO} where no warmup_steps are given, and 0 of constant and none",
    )
    warmup_steps: NonNegativeInt = option(
        0, "Steps of warmup; replaces warmup_ratio.", unit="optimizer steps", reason="0: warmup_ratio decides"
    )
    weight_decay: NonNegative = option(
        0.0, "Weight decay; biases and normalization layers have none.", reason="transformers' default"
    )
    optim: Component | None = OPTIMIZER_BESIDE_RATE
    max_grad_norm: Positive | None = option(
        1.0, "Maximum gradient norm; null disables clipping.", reason="transformers' default"
    )
    logging_steps: PositiveInt = option(10, "Steps between two lines on the console.", unit="optimizer steps")
    save_steps: PositiveInt = option(
        500, "Steps between two checkpoints to resume from; each epoch ends with another one.", unit="optimizer steps"
    )
    save_total_limit: PositiveInt = option(
        2,
        "Number of newest checkpoints to keep, in addition to the best. The models saved after each epoch are all "
        "kept.",
        unit="checkpoints",
    )
    eval_every_epoch: bool = option(True, "After each epoch, validate on the held-out conversations, if there are any.")
    early_stop_loss: NonNegative | None = option(
        None,
        "End the run once the training loss stays at or below this value.",
        reason="null: the loss never ends the run",
    )
    early_stop_patience: PositiveInt = option(
        20, "With early_stop_loss: number of consecutive steps at or below it.", unit="optimizer steps"
    )
    output_dir: PathText = option(
        "training_output", "Folder that holds the runs. Each run gets a subfolder, and `current` points to the newest."
    )
    dataloader_num_workers: Processes = option(
        0, "Worker processes that read and prepare images; 0 prepares them in the training process."
    )


class FinetuneMemory(MemoryOptions):
    """How much memory a run may use."""

    shrink_pictures_to: Pixels | None = option(
        None,
        "Minimum pixels that images are reduced to if not even one conversation fits. The run halves max_pixels as "
        "often as needed, but not below this value. The log and decisions.jsonl report it, and a resumed run keeps "
        "it.",
        unit="pixels",
        reason="null: images are never reduced, since the model sees less; the run ends and says what would help",
    )
    calibration: Literal[False] = option(False, "Always false: fine-tuning does not reuse what earlier runs learned.")
    gradient_checkpointing: bool = option(
        False,
        "Recompute the activations of a network's repeated blocks in the backward pass: less memory, the same "
        "results, about a third more time.",
        reason="off: it costs time",
    )
    allow_gradient_checkpointing: Literal[False] = option(
        False, "Always false: if not even one conversation fits, fine-tuning ends and says so."
    )


class FinetuneLogger(TrackerOptions):
    """Experiment trackers; logging_steps under training sets how often the run logs to them and to the console."""


class FinetuneOptions(FileOptions):
    """One run of fine-tuning a vision-language model."""

    steered_by_default: ClassVar[bool] = True

    name: FolderName = option("finetune", "Name of the run in logs and reports.")
    task: Literal["finetune"] = option("finetune", "Task to train for. A file with a section training need not set it.")
    model: FinetunedModel = option(..., "The model to train, e.g. `{name: Qwen/Qwen3-VL-2B-Instruct}`.")
    lora: LoraOptions | None = option(
        None, "Train LoRA adapters instead of the model's weights.", reason="null: train all weights"
    )
    dataset: FinetuneDataset = option(..., "Conversations to learn from, e.g. `{path: chats.jsonl}`.")
    training: FinetuneTraining = option(..., "Batches, learning rate and length.")
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
