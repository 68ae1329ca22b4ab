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
    """How samples are put into steps, how losses of tasks are weighed, how the model learns, and for how long."""

    total_epochs: Positive | None = option(
        None, "Length of the run; schedules count samples.", unit="passes over the training set"
    )
    learning_rate: Positive = option(5e-5, "Learning rate.", reason="for models that were trained before")
    scheduler: Component = option(
        Component(type="constant"),
        "constant, linear, cosine, cosine_with_restarts or multistep, after the warm-up; counted in steps with "
        "total_iter, else in samples.",
    )
    weight_decay: NonNegative = option(
        0.0, "Weight decay; biases and norms have none.", reason="that of transformers' Trainer"
    )
    optim: Component | None = OPTIMIZER_BESIDE_RATE
    base_batch_size: Samples = option(
        16, "Samples of a forward pass at the start; memory decides from there.", unit="samples"
    )
    target_batch_size: Samples = option(
        32,
        "Samples of an optimizer step, of all ranks together, in as many forward passes as memory asks for.",
        unit="samples",
        reason="two passes of base_batch_size",
    )
    use_gradient_accumulation: bool = option(
        True, "Steps have target_batch_size samples; false: a step is one pass, and grows up to target_batch_size."
    )
    task_distribution: dict[str, NonNegative] = option(
        {},
        "Share of each task in what is drawn, e.g. `{T1: 0.5, T2: 0.5}`. Within an epoch it says which come first.",
        reason="{}: those of the training set",
    )
    sampling: Literal["epoch", "replacement"] = option(
        "epoch", "`epoch`: every sample once an epoch. `replacement`: the shares of tasks are kept to."
    )
    task_diversity_weight: UpToOne = option(
        0.5, "0 packs samples of like size together, 1 has each batch hold tasks as the whole set does."
    )
    initial_task_loss_weights: dict[str, Positive] = option(
        {}, "Weights of the losses of tasks, e.g. `{T1: 1.0, T2: 0.5}`.", reason="{}: 1 each"
    )
    use_grad_norm_balancing: bool = option(
        True, "GradNorm (Chen et al., 2018): weights follow the gradients of each task's loss."
    )
    grad_norm_alpha: NonNegative = option(
        1.5, "With it: how strongly tasks that learn slower are pulled along.", reason="the paper's value"
    )


class MultitaskMemory(MemoryOptions):
    """How much memory a run may take."""

    margin: Fraction = option(
        0.10, "Share of the memory that batches leave free.", unit="share of the memory", reason="the allocator's part"
    )


class MultitaskOptions(RunOptions):
    """One training run of a model on samples of several tasks."""

    steered_by_default: ClassVar[bool] = True

    task: Literal["multitask"] = option(..., "What is learned: several tasks by one model.")
    model: Component = option(..., "The model to train, with its arguments, e.g. `{type: DigitsModel}`.")
    tokenizer: TokenizerOptions = option(..., "What cuts texts of samples into tokens.")
    datasets: SampleSets = option(..., "Training and validation samples.")
    train: MultitaskTraining = option(..., "Batches, losses, rate, length.")
    memory: MultitaskMemory = option(MultitaskMemory(), "Memory budget.")
