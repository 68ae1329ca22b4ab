"""What option files share: keys at the top of all of them, and of those whose runs lie below ``experiments/``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from trainauto.core.registry import in_one_word
from trainauto.options.fields import (
    Component,
    FolderName,
    Fraction,
    NonNegativeInt,
    PathText,
    PositiveInt,
    Section,
    Threads,
    option,
    whole,
)
from trainauto.options.resource_options import AUTO, DistributedOptions, MemoryOptions
from trainauto.options.tracker_options import TrackerOptions

CONTROLLER = "DynamicBatchSizeOptimizer"
"""The automation that steers batches by memory."""


OPTIMIZER_BESIDE_RATE = option(
    None,
    "Optimizer with its arguments, e.g. `{type: Lion, betas: [0.9, 0.99]}`: Adam, AdamW, NAdam or SGD of torch, "
    "or an optimizer of the package pytorch_optimizer by its name there. Set its learning rate and weight decay "
    "by learning_rate and weight_decay.",
    reason="null: AdamW with the defaults of transformers' Trainer",
)
"""Option of tasks that name the rate as transformers' Trainer does."""


class RunPaths(Section):
    """Where runs are written."""

    experiments_root: PathText = option("experiments", "Folder that holds the runs, relative to the working directory.")


class RunFiles(Section):
    """What the run writes, and how often."""

    print_freq: PositiveInt = option(100, "Steps between two lines on the console.", unit="optimizer steps")
    save_checkpoint_freq: PositiveInt = option(
        1000, "Steps between two checkpoints; the run writes another one when it ends.", unit="optimizer steps"
    )
    keep_checkpoints: PositiveInt = option(
        3,
        "Number of newest checkpoints to keep, in addition to the best.",
        unit="checkpoints",
        reason="an earlier one is left if the newest is bad",
    )
    use_tb_logger: bool = option(True, "Write TensorBoard curves.")


class RunLogger(TrackerOptions, RunFiles):
    """What the run writes, how often, and which trackers it logs to."""


class RunTraining(Section):
    """Length of the run and learning rate schedule."""

    total_iter: PositiveInt | None = option(
        None, "Length of the run in steps. The schedule then counts steps too.", unit="optimizer steps"
    )
    total_samples: PositiveInt | None = option(
        None,
        "Length of the run in samples. The schedule then counts samples too, so that a changing batch size does not "
        "distort it.",
        unit="samples",
    )
    scheduler: Component = option(
        Component(type="constant"),
        "Learning rate schedule: constant, linear, cosine, cosine_with_restarts, multistep, step, polynomial, "
        "OneCycleLR and others. Its lengths count steps with total_iter, otherwise samples.",
    )
    warmup_steps: NonNegativeInt = option(
        0, "Steps of linear learning rate warmup.", unit="optimizer steps", reason="off"
    )
    warmup_ratio: Fraction = option(
        0.0, "Length of linear learning rate warmup, as a share of the run.", unit="share of the run", reason="off"
    )
    grad_clip: Annotated[float, Field(gt=0.0)] | None = option(
        None, "Maximum gradient norm. Gradients with a larger norm are scaled down to it.", reason="off"
    )


def is_schedule_free(optimizer: str) -> bool:
    """Return whether an optimizer of that name keeps the average that is its result, beside the weights in training."""
    return in_one_word(optimizer).endswith(("schedulefree", "adamwsf", "adansf"))


class AveragedTraining(RunTraining):
    """Warmup of the moving average of weights."""

    ema_power: Annotated[float, Field(gt=0.0)] | None = option(
        None,
        "Warmup of the averaged weights: their decay at step k is at most 1 - (1 + k) ** -ema_power, and rises to "
        "ema_decay. With 0.75 it reaches 0.999 after 9,999 steps.",
        reason="null: ema_decay from the first step on",
    )
    ema_update_after_step: NonNegativeInt = option(
        0,
        "Until this step the averaged weights are a copy of the weights. ema_power counts from here.",
        unit="optimizer steps",
    )
    ema_switch_iter: NonNegativeInt = option(
        0,
        "Every so many steps, copy the averaged weights into the trained weights; 0 never does.",
        unit="optimizer steps",
    )


class AutomationSwitch(BaseModel):
    """An automation's own switch, with its arguments beside it."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    enabled: bool = option(True, "Run this automation.")

    @property
    def arguments(self) -> dict[str, Any]:
        """Everything beside ``enabled``."""
        return dict(self.model_extra or {})


class Automations(BaseModel):
    """Automations by registered name, e.g. `PlanSchedule: {changes: [...]}`."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)
    __pydantic_extra__: dict[str, AutomationSwitch]

    enabled: bool = option(True, "Master switch of all automations.")

    @property
    def active(self) -> dict[str, AutomationSwitch]:
        """The automations to run, in file order."""
        if not self.enabled:
            return {}
        return {name: switch for name, switch in (self.__pydantic_extra__ or {}).items() if switch.enabled}

    def written(self, name: str) -> tuple[str, AutomationSwitch | None]:
        """Return how the file writes an automation, and its switch; ``None`` where it does not."""
        for written, switch in (self.__pydantic_extra__ or {}).items():
            if in_one_word(written) == in_one_word(name):
                return written, switch
        return name, None


class FileOptions(Section):
    """What every option file has, whatever is trained and wherever its runs go.

    Attributes:
        steered_by_default: runs have a controller of their batches where the file names none.
    """

    steered_by_default: ClassVar[bool] = False

    name: FolderName = option(..., "Name of the experiment and of its folder: letters, digits, space, . _ -")
    task: str = option(..., "Task to train for.")
    device: Literal["auto", "cpu", "cuda"] = option(
        "auto", "Device to train on. `auto` takes CUDA if it is available, otherwise the CPU."
    )
    num_threads: Threads | None = option(
        None,
        "Threads that one CPU operation uses (torch.set_num_threads). CPU results are repeatable for a fixed number.",
        unit="threads",
        reason="null: PyTorch decides",
    )
    manual_seed: Annotated[int, Field(ge=0, lt=2**63), BeforeValidator(whole)] = option(
        0, "Seed of the initial weights, the order of samples, crops and flips."
    )
    deterministic: bool = option(False, "Use deterministic kernels only. They are slower on CUDA.", reason="speed")
    use_amp: bool = option(
        False, "Run the forward pass and the loss under autocast.", reason="float32 is the safe start"
    )
    amp_bf16: bool = option(
        True,
        "With use_amp: true selects bfloat16, false selects float16 with loss scaling.",
        reason="bfloat16 does not overflow",
    )
    fast_matmul: bool = option(
        False,
        "Compute float32 matrix products in a shorter internal format (torch's float32 matmul precision `medium`), "
        "also on CPUs that support one. It is faster on GPUs from Ampere on, unless use_amp already shortens these "
        "products.",
        reason="precision",
    )
    plugins: list[PathText] = option(
        [], "Python modules to import first, beside this file or installed. They register your own components."
    )
    memory: MemoryOptions = option(MemoryOptions(), "Memory budget.")
    distributed: DistributedOptions = option(DistributedOptions(), "Training on several GPUs or machines.")
    training_automations: Automations = option(Automations(), "Automations that adjust the run while it trains.")

    @property
    def folder_of_runs(self) -> str:
        """Folder that holds its runs."""
        return RunPaths().experiments_root

    @property
    def kept_checkpoints(self) -> int:
        """Most checkpoints on disk at a time: the newest, the best and the one being written; 0 if unknown."""
        return 0

    @property
    def caches(self) -> list[str]:
        """Folders in which decoded samples are kept."""
        return []

    @property
    def compiles(self) -> bool:
        """Whether the network runs through ``torch.compile``."""
        return False

    @property
    def loading(self) -> tuple[int, int]:
        """Processes that make samples, and batches that are drawn ahead of the step; zeros if unknown."""
        return 0, 0

    @property
    def settings(self) -> "RunSettings":
        """How a run of the engine is kept and told of; each task reads that from options of its own."""
        raise NotImplementedError

    @property
    def is_traced(self) -> bool:
        """Whether the memory of a run is traced before its first step, as far as options say."""
        is_bounded, automations = self.memory.has_budget or self.device != "cpu", self.training_automations
        _, switch = automations.written(CONTROLLER)
        if switch is None:
            is_steered = self.steered_by_default
        else:
            is_steered = switch.enabled and switch.arguments.get("policy") != "step"
        return self.memory.gradient_checkpointing == AUTO or (is_bounded and automations.enabled and is_steered)

    def of_steps(self, world_size: int) -> dict[str, Any]:
        """Return the options that the memory of a step depends on, for so many ranks: here all that might be."""
        aside = {"name", "path", "logger", "training_automations", "memory", "device", "num_threads", "manual_seed"}
        return self.model_dump(mode="json", exclude={*aside, "distributed"}) | self.of_sums(world_size)

    def of_sums(self, world_size: int) -> dict[str, Any]:
        """Return how gradients are summed: one rank holds no room for it, two hold as much as any other number.

        With ``fully_shard`` each holds a share of weights, so that their number counts.
        """
        chosen = self.distributed
        meeting = [name for name in ("ddp_overlap", "fully_shard") if getattr(chosen, name)]
        ranks = {"ranks": world_size} if chosen.fully_shard else {}
        return {"sums": meeting or True, **ranks} if world_size > 1 else {}


@dataclass(frozen=True)
class RunSettings:
    """How a run of the engine is kept, told of and clipped, whatever the option file of its task calls that.

    Attributes:
        root: folder of runs.
        root_key: option that names it.
        name: of the experiment.
        prints_every: steps between lines on the console, and points of trackers.
        saves_every: steps between checkpoints.
        keeps: newest checkpoints to keep.
        has_curves: TensorBoard curves are written.
        trackers: which experiment trackers are told.
        max_norm: gradient norm to clip at; ``None`` does not clip.
        saves_epochs: a checkpoint is written after each epoch too.
    """

    root: Path
    root_key: tuple[str, ...]
    name: str
    prints_every: int
    saves_every: int
    keeps: int
    has_curves: bool
    trackers: TrackerOptions
    max_norm: float | None
    saves_epochs: bool = False


class RunOptions(FileOptions):
    """One training run below ``experiments/``; each task has its own keys beside these."""

    path: RunPaths = option(RunPaths(), "Folders.")
    train: RunTraining = option(..., "Optimizer, schedule, length.")
    logger: RunLogger = option(RunLogger(), "Console, checkpoints, curves.")

    @property
    def loading(self) -> tuple[int, int]:
        """Processes that make samples, and batches that are drawn ahead of the step; a task has options for them."""
        return 0, 2

    @property
    def settings(self) -> RunSettings:
        """How its run is kept and told of; options under other names answer for themselves."""
        logger = self.logger
        return RunSettings(
            root=Path(self.path.experiments_root),
            root_key=("path", "experiments_root"),
            name=self.name,
            prints_every=logger.print_freq,
            saves_every=logger.save_checkpoint_freq,
            keeps=logger.keep_checkpoints,
            has_curves=logger.use_tb_logger,
            trackers=logger,
            max_norm=self.train.grad_clip,
        )

    @property
    def folder_of_runs(self) -> str:
        """Folder that holds its runs."""
        return str(self.settings.root)

    @property
    def kept_checkpoints(self) -> int:
        """Most checkpoints on disk at a time: the newest, the best and the one being written."""
        return self.settings.keeps + 2


OF_STEPS = ("use_amp", "amp_bf16", "deterministic", "plugins")
"""Options of every task that the memory of a step depends on."""
