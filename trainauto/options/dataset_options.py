"""Options of training and validation sets."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from trainauto.options.degradation_options import AugmentationKind, KernelOptions, Probability, ResizeMode, Weights
from trainauto.options.fields import (
    FolderName,
    Lookahead,
    PathText,
    Processes,
    Roots,
    Samples,
    Section,
    Side,
    option,
)

RootWeights = Annotated[list[Annotated[float, Field(gt=0.0, allow_inf_nan=False)]], Field(min_length=1)]


class TrainDataset(KernelOptions):
    """Training images, crops, batches and loading."""

    type: str = option(
        "PairedImageDataset",
        "PairedImageDataset reads pairs from gt and lq folders. GTImageDataset shrinks gt by antialiased bicubic to "
        "make lq. RealESRGANDataset makes lq from gt by random degradations. RealESRGANPairedDataset takes a pair "
        "or makes lq, at random.",
    )
    name: str = option("train", "Name of the set in messages.")
    dataroot_gt: Roots = option(
        ...,
        "Folder of high-quality images (searched recursively), an image file, an LMDB database in BasicSR's layout "
        "(NAME.lmdb, needs the package lmdb), or a list of these. `package:NAME/PATH` means PATH inside the "
        "installed Python package NAME.",
    )
    dataroot_lq: Roots | None = option(
        None, "Folder or folders of low-quality images, paired with dataroot_gt by relative path without the extension."
    )
    dataroot_lq_prob: Probability | None = option(
        None,
        "Probability that a RealESRGANPairedDataset takes a pair of files. Otherwise it makes lq from gt.",
        reason="null: it always takes a pair",
    )
    lq_resize_mode: ResizeMode | None = option(
        None,
        "Resize mode by which a GTImageDataset shrinks, one of those in resize_mode_list.",
        reason="null: antialiased bicubic",
    )
    augmentation: list[AugmentationKind] | None = option(
        None,
        "neosr's name of train.moa_augs. Each sample draws one of these, with the weights in aug_prob.",
        reason="null: none",
    )
    aug_prob: Weights | None = option(
        None, "Weights of the entries in augmentation, one for each.", reason="null: no augmentation"
    )
    lq_size: Side = option(
        64,
        "Crop size: side of a training crop of the low-quality image.",
        unit="px",
        reason="fits 12 GB for most networks at x4",
    )
    batch_size_per_gpu: Samples = option(
        8, "Samples in one forward pass at the start of the run.", unit="samples", reason="fits 12 GB for most networks"
    )
    accum_iter: Samples = option(
        1,
        "Micro-batches in one optimizer step (gradient accumulation). A step draws batch_size_per_gpu * accum_iter "
        "samples.",
        unit="micro-batches",
        reason="1: no accumulation",
    )
    num_worker_per_gpu: Processes = option(
        2,
        "Worker processes that decode images; 0 decodes in the training process.",
        unit="processes",
        reason="suits two CPU cores",
    )
    lookahead: Lookahead = option(
        8,
        "Batches drawn ahead of the step, whatever the number of workers. A larger plan takes effect after this "
        "many steps.",
        unit="batches",
        reason="hides delays in decoding with 8 workers; at least num_worker_per_gpu",
    )
    use_hflip: bool = option(True, "Flip crops horizontally at random.", reason="doubles the data at no cost")
    use_rot: bool = option(
        True,
        "Flip and rotate crops by multiples of 90 degrees at random.",
        reason="eight times the data with use_hflip",
    )
    cache_dir: PathText | None = option(
        None,
        "Folder of a memory-mapped cache of decoded pixels, relative to the working directory. An image needs width "
        "* height * channels bytes there. Without a cache, decoded pixels stay in memory if they fit into a quarter "
        "of the free memory.",
        reason="off: it needs disk space",
    )
    decode_all: bool = option(
        False,
        "Decode every image before the run and reject damaged ones. Without it, the log names a JPEG that is "
        "damaged in its middle when the run first reads it.",
        reason="off: it takes as long as reading the set once",
    )
    meta_info: PathText | None = option(
        None,
        "Text file that lists the high-quality images to use, one path relative to its root per line. BasicSR's "
        "size may follow the path (`0001_s001.png (480,480,3)`).",
        reason="null: all images",
    )
    root_weights: RootWeights | None = option(
        None,
        "Relative frequency with which samples are drawn from each root of dataroot_gt. An epoch holds every image "
        "at least once, and repeats images of smaller roots.",
        reason="null: all images equally often",
    )
    bit_depth: Literal[8, 16] = option(
        8, "Bit depth to read images with. Images of the other depth are converted.", unit="bits"
    )
    color: Literal["rgb", "y"] | None = option(
        None,
        "`y` reads images as the Y channel of BT.601 (16 to 235 in 8 bits), for a network of one channel, as in "
        "BasicSR.",
        reason="null: input_pixel_format",
    )
    filename_tmpl: str | None = option(
        None,
        "Name of a low-quality image without its extension, where `{}` is the name of its high-quality image, as in "
        "BasicSR: '{}x4' pairs 0001.png with 0001x4.png. Without it, both names are equal, or the low-quality one "
        "ends in x2 to x9.",
        reason="names of DIV2K pair without it",
    )


class ValDataset(Section):
    """A set of whole images for validation."""

    type: str = option("PairedImageDataset", "PairedImageDataset or GTImageDataset, as for training.")
    name: FolderName = option("val", "Name of the set in logs, curves and folders.")
    dataroot_gt: Roots = option(..., "As for training.")
    dataroot_lq: Roots | None = option(None, "As for training.")
    lq_resize_mode: ResizeMode | None = option(None, "As for training.")
    cache_dir: PathText | None = option(None, "As for training.")
    decode_all: bool = option(False, "As for training.")
    meta_info: PathText | None = option(None, "As for training.")
    bit_depth: Literal[8, 16] = option(8, "As for training. Metrics compare pixels of 8 bits.", unit="bits")
    color: Literal["rgb", "y"] | None = option(None, "As for training.")
    filename_tmpl: str | None = option(None, "As for training.")


class Datasets(BaseModel):
    """Training set and validation sets (`val`, and any number of `val_*`)."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)
    __pydantic_extra__: dict[str, ValDataset]

    train: TrainDataset = option(..., "Training set.")
    val: ValDataset | None = option(None, "First validation set.")

    @property
    def validation_sets(self) -> dict[str, ValDataset]:
        """All validation sets by key, in file order."""
        sets = {"val": self.val} if self.val else {}
        return {**sets, **(self.__pydantic_extra__ or {})}
