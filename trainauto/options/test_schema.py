"""Every key of a test file: what is measured, on which images, with which weights. It shares sections with runs."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from trainauto.options.fields import Threads
from trainauto.options.schema import (
    TILE_OVERLAP,
    TILE_SIZE,
    Component,
    Datasets,
    FolderName,
    NonNegativeInt,
    Options,
    PathOptions,
    Section,
    ValDataset,
    ValOptions,
    option,
    whole,
)


class SetsToMeasure(BaseModel):
    """The sets: `test` and any number of `test_*`. The names of runs' validation sets work too."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)
    __pydantic_extra__: dict[str, ValDataset]

    @property
    def sets(self) -> dict[str, ValDataset]:
        """All sets by key, in file order; a set without a name is called by its key."""
        sets = self.__pydantic_extra__ or {}
        return {
            key: test_set if "name" in test_set.model_fields_set else test_set.model_copy(update={"name": key})
            for key, test_set in sets.items()
        }


class WeightsToMeasure(Section):
    """Where weights come from and where results are written."""

    results_root: str = option("results", "Folder that holds the results, relative to the working directory.")
    pretrain_network_g: str | None = option(
        None,
        "Weights: a .safetensors, .pth or .pt file (pickled code is not run), or the folder of a run. Required "
        "unless the command names a run.",
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


class Measuring(Section):
    """Metrics, and how images are processed."""

    save_img: bool = option(True, "Save the upscaled images.")
    metrics: dict[str, Component] = option(
        {}, "Metrics by the name to show them under, e.g. `psnr: {type: calculate_psnr}`."
    )
    tile_size: NonNegativeInt = TILE_SIZE
    tile_overlap: NonNegativeInt = TILE_OVERLAP


class OptionsToMeasure(Section):
    """One test: a trained network on sets of images."""

    name: FolderName = option(..., "Name of the test and of the folder that holds its results.")
    scale: Annotated[int, Field(ge=1, le=16), BeforeValidator(whole)] = option(4, "Enlargement factor.", unit="times")
    device: Literal["auto", "cpu", "cuda"] = option(
        "auto", "Device to run on. `auto` takes CUDA if it is available, otherwise the CPU."
    )
    num_threads: Threads | None = option(
        None,
        "Threads that one CPU operation uses (torch.set_num_threads).",
        unit="threads",
        reason="null: PyTorch decides",
    )
    plugins: list[str] = option(
        [], "Python modules to import first, beside this file or installed. They register your own components."
    )
    datasets: SetsToMeasure = option(..., "Sets of images.")
    network_g: Component | None = option(
        None, "The network, with its arguments. Its scale is filled in. Required unless the command names a run."
    )
    path: WeightsToMeasure = option(WeightsToMeasure(), "Where weights come from and where results are written.")
    val: Measuring = option(..., "Metrics, images and tiles.")

    def as_of_a_run(self) -> Options:
        """Return the options of a run that validates so; what only training reads is not there."""
        sets: dict[str, Any] = {**self.datasets.sets}
        options: dict[str, Any] = {
            key: getattr(self, key) for key in ("name", "scale", "device", "num_threads", "plugins")
        }
        options |= {
            "network_g": self.network_g,
            "datasets": Datasets.model_construct(set(sets), **sets),
            "path": PathOptions(**self.path.model_dump(exclude={"results_root"})),
            "val": ValOptions.model_construct(**{key: getattr(self.val, key) for key in Measuring.model_fields}),
        }
        return Options.model_construct(**options)
