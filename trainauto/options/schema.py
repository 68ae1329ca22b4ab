"""Every key of an option file of super-resolution: type, default, unit, and why the default is what it is.

The top level is here, larger sections are in modules by subject, keys that files of all tasks share in run_options.py;
all of them can be imported from here. The JSON Schema
for editors and docs/options.md are generated from them. Arguments of components (networks, losses, optimizers, ...) are
not among them: they are checked against the signature of the component that ``type`` names.
"""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from trainauto.options.dataset_options import Datasets, TrainDataset, ValDataset
from trainauto.options.degradation_options import DegradationOptions
from trainauto.options.fields import (
    Component,
    FolderName,
    Fraction,
    NonNegativeInt,
    PathText,
    PositiveInt,
    Roots,
    Section,
    Whole,
    option,
    whole,
)
from trainauto.options.resource_options import DistributedOptions, MemoryOptions
from trainauto.options.run_options import OF_STEPS, Automations, AutomationSwitch, RunLogger, RunOptions, RunPaths
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


class PathOptions(RunPaths):
    """Where weights come from and where runs are written."""

    pretrain_network_g: PathText | None = option(
        None,
        "Weights to start from, of any project: a .safetensors, .pth, .pt or .ckpt file (pickled code is not run). "
        "Or the folder of a run, such as experiments/NAME, for the weights of its best checkpoint.",
    )
    param_key_g: str | None = option(
        None,
        "Key of the weights in a file that holds several sets.",
        reason="null takes the usual one: params_ema, params-ema, params, model_state_dict, state_dict, model, net",
    )
    strict_load_g: bool = option(
        True,
        "Reject weights whose names or shapes differ from the network's. false loads the weights that fit, also "
        "from a network of another scale, and lists the rest.",
    )
    pretrain_network_d: PathText | None = option(None, "As pretrain_network_g, for the discriminator.")
    param_key_d: str | None = option(None, "As param_key_g.")
    strict_load_d: bool = option(True, "As strict_load_g.")


class LoggerOptions(RunLogger):
    """What the run writes, and how often."""

    best_metric: str | None = option(
        None,
        "Name of the metric under val.metrics that decides which checkpoint is the best.",
        reason="null takes the first metric",
    )


class Options(DegradationOptions, RunOptions):
    """One training run of super-resolution."""

    task: Literal["super_resolution"] = Field(
        "super_resolution", description="What is learned; a file without it is of super-resolution.", exclude=True
    )
    model_type: str = option(
        "SRModel",
        "Registered model, which decides what is minimised. SRModel trains network_g alone. SRGANModel trains it "
        "against network_d. ESRGANModel compares real and generated images with each other (relativistic GAN).",
    )
    scale: Annotated[int, Field(ge=1, le=16), BeforeValidator(whole)] = option(4, "Enlargement factor.", unit="times")
    input_pixel_format: Literal["rgb", "y"] = option(
        "rgb", "`y` reads all sets as `color: y` does (traiNNer-redux's key)."
    )
    output_pixel_format: Literal["rgb", "y"] = option("rgb", "Same as input_pixel_format.")
    use_channels_last: bool = option(
        False, "Use the channels_last memory format (NHWC). It is faster with autocast on recent GPUs."
    )
    use_compile: bool = option(
        False,
        "Compile network_g with torch.compile, with dynamic numbers and sizes of images where the compiler supports "
        "them. docs/memory.md describes the effect on predictions and on the controller.",
        reason="compilation takes minutes",
    )
    compile_mode: Literal["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"] = option(
        "default",
        "With use_compile: mode of torch.compile. `reduce-overhead` and `max-autotune` record a CUDA graph for each "
        "batch and crop size and keep its memory, which no prediction includes.",
        reason="torch's",
    )
    datasets: Datasets = option(..., "Training and validation sets.")
    network_g: Component = option(..., "The network to train, with its arguments. Its scale is filled in.")
    network_d: Component | None = option(
        None,
        "Discriminator of SRGANModel or ESRGANModel, with its arguments, e.g. `{type: unetdiscriminatorsn}`.",
        reason="null: no discriminator",
    )
    path: PathOptions = option(PathOptions(), "Where weights come from and where runs are written.")
    train: TrainOptions = option(..., "Losses, optimizer, schedule and length.")
    val: ValOptions = option(ValOptions(), "Validation.")
    logger: LoggerOptions = option(LoggerOptions(), "Console, checkpoints and curves.")

    @property
    def caches(self) -> list[str]:
        """Folders in which decoded images are kept."""
        folders = [self.datasets.train.cache_dir, *(one.cache_dir for one in self.datasets.validation_sets.values())]
        return list(dict.fromkeys(folder for folder in folders if folder))

    @property
    def compiles(self) -> bool:
        """Whether the network runs through ``torch.compile``."""
        return self.use_compile

    @property
    def loading(self) -> tuple[int, int]:
        """Processes that make samples, and batches that are drawn ahead of the step."""
        return self.datasets.train.num_worker_per_gpu, self.datasets.train.lookahead

    def of_steps(self, world_size: int) -> dict[str, Any]:
        """Return the options that the memory of a step depends on, for so many ranks."""
        of_images = ("model_type", "scale", "use_channels_last", "use_compile", "network_g", "network_d")
        train = {"losses", "optim_g", "optim_d", "ema_decay", "grad_clip"}
        return {
            **self.model_dump(mode="json", include={**dict.fromkeys((*of_images, *OF_STEPS), True), "train": train}),
            # The samples of a step are held beside its largest forward pass, which plans are reasoned about by.
            "accum_iter": self.datasets.train.accum_iter,
            # One rank holds no room for sums, two hold as much as any other number, unless weights are spread.
            "sums": self.distributed.model_dump(mode="json", exclude={"batches"}) if world_size > 1 else None,
            **({"ranks": world_size} if world_size > 1 and self.distributed.fully_shard else {}),
        }
