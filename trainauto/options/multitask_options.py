"""Every key of an option file of `task: multitask`: type, default, unit, and why the default is what it is."""

from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from trainauto.options.fields import Component, Fraction, Samples, option
from trainauto.options.resource_options import MemoryOptions
from trainauto.options.run_options import OPTIMIZER_BESIDE_RATE, RunOptions, RunTraining
from trainauto.options.text_options import TokenizerOptions

Positive = Annotated[float, Field(gt=0.0)]
NonNegative = Annotated[float, Field(ge=0.0)]
UpToOne = Annotated[float, Field(ge=0.0, le=1.0)]


class SampleSets(BaseModel):
    """Training set and validation sets (`val`, and any number of `val_*`), each a registered set of samples."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)
    __pydantic_extra__: dict[str, Component]

    train: Component = option(..., "Training set, e.g. `{type: DigitTasks, samples: 6000}`.")
    val: Component | None = option(None, "First validation set.")

    @property
    def validation_sets(self) -> dict[str, Component]:
        """All validation sets by key, in file order."""
        sets = {"val": self.val} if self.val else {}
        return {**sets, **(self.__pydantic_extra__ or {})}


class MultitaskTraining(RunTraining):
    """Batches, loss weights of the tasks, optimizer, schedule and length."""

    total_epochs: Positive | None = option(
        None, "Length of the run in epochs. The schedule then counts samples.", unit="passes over the training set"
    )
    learning_rate: Positive = option(5e-5, "Learning rate.", reason="suits pretrained models")
    scheduler: Component = option(
        Component(type="constant"),
        "Learning rate schedule after the warmup: constant, linear, cosine, cosine_with_restarts or multistep. It "
        "counts steps with total_iter, otherwise samples.",
    )
    weight_decay: NonNegative = option(
        0.0, "Weight decay; biases and normalization layers have none.", reason="default of transformers' Trainer"
    )
    optim: Component | None = OPTIMIZER_BESIDE_RATE
    base_batch_size: Samples = option(
        16,
        "Samples in one forward pass at the start of the run. The controller then adjusts this number to the memory.",
        unit="samples",
    )
    target_batch_size: Samples = option(
        32,
        "Samples of an optimizer step over all ranks, run in as many micro-batches as the memory requires.",
        unit="samples",
        reason="two micro-batches of base_batch_size",
    )
    use_gradient_accumulation: bool = option(
        True,
        "true: every step has target_batch_size samples, by gradient accumulation. false: a step is one forward "
        "pass, which grows up to target_batch_size.",
    )
    task_distribution: dict[str, NonNegative] = option(
        {},
        "Share of each task among the samples drawn, e.g. `{T1: 0.5, T2: 0.5}`. With `sampling: epoch` it decides "
        "which samples come first.",
        reason="{}: shares as in the training set",
    )
    sampling: Literal["epoch", "replacement"] = option(
        "epoch",
        "`epoch` draws every sample once per epoch. `replacement` draws with replacement and keeps to the shares of "
        "tasks.",
    )
    task_diversity_weight: UpToOne = option(
        0.5,
        "0 batches samples of similar size together. 1 makes each batch hold tasks in the proportions of the whole "
        "set.",
    )
    initial_task_loss_weights: dict[str, Positive] = option(
        {}, "Initial loss weight of each task, e.g. `{T1: 1.0, T2: 0.5}`.", reason="{}: 1 for each"
    )
    use_grad_norm_balancing: bool = option(
        True, "Adjust the weights by the gradient norms of each task's loss: GradNorm (Chen et al., 2018)."
    )
    grad_norm_alpha: NonNegative = option(
        1.5,
        "With use_grad_norm_balancing: how strongly GradNorm favours tasks that learn more slowly.",
        reason="the paper's value",
    )


class MultitaskMemory(MemoryOptions):
    """How much memory a run may use."""

    margin: Fraction = option(
        0.10,
        "Share of the memory that batches leave free.",
        unit="share of the memory",
        reason="for the caching allocator",
    )


class MultitaskOptions(RunOptions):
    """One training run of a model on samples of several tasks."""

    steered_by_default: ClassVar[bool] = True

    task: Literal["multitask"] = option(..., "Task to train for: several tasks with one model.")
    model: Component = option(..., "The model to train, with its arguments, e.g. `{type: DigitsModel}`.")
    tokenizer: TokenizerOptions = option(..., "Tokenizer of the samples' texts, trained here or loaded.")
    datasets: SampleSets = option(..., "Training and validation samples.")
    train: MultitaskTraining = option(..., "Batches, losses, learning rate and length.")
    memory: MultitaskMemory = option(MultitaskMemory(), "Memory budget.")
