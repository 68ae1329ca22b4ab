"""Every key of an option file: type, default, unit, and why the default is what it is.

The top level is here, larger sections are in modules by subject; all of them can be imported from here. The JSON Schema
for editors and docs/options.md are generated from them. Arguments of components (networks, losses, optimizers, ...) are
not among them: they are checked against the signature of the component that ``type`` names.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from trainauto.options.dataset_options import Datasets, TrainDataset, ValDataset
from trainauto.options.fields import (
    Component,
    FolderName,
    Fraction,
    NonNegativeInt,
    PositiveInt,
    Roots,
    Section,
    Whole,
    option,
    whole,
)
from trainauto.options.resource_options import DistributedOptions, MemoryOptions
from trainauto.options.training_options import TILE_OVERLAP, TILE_SIZE, TrainOptions, ValOptions

__all__ = [
    "TILE_OVERLAP",
    "TILE_SIZE",
    "AutomationSwitch",
    "Automations",
    "Component",
    "Datasets",
    "DistributedOptions",
    "FolderName",
    "Fraction",
    "LoggerOptions",
    "MemoryOptions",
    "NonNegativeInt",
    "Options",
    "PathOptions",
    "PositiveInt",
    "Roots",
    "Section",
    "TrainDataset",
    "TrainOptions",
    "ValDataset",
    "ValOptions",
    "Whole",
    "option",
    "whole",
]


class PathOptions(Section):
    """Where weights come from and where runs go."""

    experiments_root: str = option("experiments", "Folder of runs, relative to the working directory.")
    pretrain_network_g: str | None = option(None, "Weights to start from: .safetensors, .pth or .pt (no pickled code).")
    param_key_g: str | None = option(
        None,
        "Key of the weights inside a .pth that holds several.",
        reason="null tries params_ema, params, then the file itself",
    )
    strict_load_g: bool = option(
        True, "Refuse weights whose names or shapes differ; false loads what fits and lists the rest."
    )
    pretrain_network_d: str | None = option(None, "As pretrain_network_g, for the discriminator.")
    param_key_d: str | None = option(None, "As param_key_g.")
    strict_load_d: bool = option(True, "As strict_load_g.")


class LoggerOptions(Section):
    """What is written, and how often."""

    print_freq: PositiveInt = option(100, "Steps between lines on the console.", unit="optimizer steps")
    save_checkpoint_freq: PositiveInt = option(
        1000, "Steps between checkpoints; one more is written at the end.", unit="optimizer steps"
    )
    keep_checkpoints: PositiveInt = option(
        3, "Newest checkpoints to keep, beside the best.", unit="checkpoints", reason="room for one that went wrong"
    )
    best_metric: str | None = option(
        None, "Name under val.metrics that decides which checkpoint is the best.", reason="null takes the first metric"
    )
    use_tb_logger: bool = option(True, "Write TensorBoard curves.")


class AutomationSwitch(BaseModel):
    """An automation's own switch, with its arguments beside it."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    enabled: bool = option(True, "Whether this automation runs.")

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


class Options(Section):
    """One training run."""

    name: FolderName = option(..., "Name of the experiment and of its folder: letters, digits, space, . _ -")
    model_type: str = option(
        "SRModel", "Registered model: what is minimised. SRModel trains network_g alone, SRGANModel against network_d."
    )
    scale: Annotated[int, Field(ge=1, le=16), BeforeValidator(whole)] = option(4, "Enlargement factor.", unit="times")
    device: Literal["auto", "cpu", "cuda"] = option("auto", "Where to train; auto takes CUDA where there is one.")
    num_threads: PositiveInt | None = option(
        None,
        "Threads of one CPU operation; CPU results are repeatable for a fixed number.",
        unit="threads",
        reason="null: torch decides",
    )
    manual_seed: Annotated[int, Field(ge=0, lt=2**63), BeforeValidator(whole)] = option(
        0, "Seed of weights, order, crops and flips."
    )
    deterministic: bool = option(False, "Only deterministic kernels; slower on CUDA.", reason="speed")
    use_amp: bool = option(False, "Run forward and loss under autocast.", reason="fp32 is the safe start")
    amp_bf16: bool = option(
        True, "With use_amp: bfloat16; false takes float16 with loss scaling.", reason="no overflow"
    )
    use_channels_last: bool = option(False, "Keep images as NHWC in memory; faster with autocast on recent GPUs.")
    use_compile: bool = option(
        False, "Run network_g through torch.compile with dynamic shapes.", reason="compiling costs minutes"
    )
    plugins: list[str] = option(
        [], "Python modules to import first (beside this file, or installed); they register components of your own."
    )
    datasets: Datasets = option(..., "Training and validation sets.")
    network_g: Component = option(..., "The network to train, with its arguments; scale is filled in.")
    network_d: Component | None = option(
        None,
        "The discriminator of SRGANModel, with its arguments, e.g. `{type: unetdiscriminatorsn}`.",
        reason="null: there is none",
    )
    path: PathOptions = option(PathOptions(), "Weights in, runs out.")
    train: TrainOptions = option(..., "Losses, optimizer, schedule, length.")
    val: ValOptions = option(ValOptions(), "Validation.")
    logger: LoggerOptions = option(LoggerOptions(), "Console, checkpoints, curves.")
    memory: MemoryOptions = option(MemoryOptions(), "Memory budget.")
    distributed: DistributedOptions = option(DistributedOptions(), "Several cards or machines.")
    training_automations: Automations = option(Automations(), "What steers the run while it goes.")
