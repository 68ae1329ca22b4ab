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
    """Where training samples come from and how many are drawn."""

    type: str = option(
        "PairedImageDataset",
        "PairedImageDataset (gt + lq folders), GTImageDataset (lq is made from gt by antialiased bicubic), "
        "RealESRGANDataset (lq is made from gt by random degradations) or RealESRGANPairedDataset (either, at random).",
    )
    name: str = option("train", "Name of the set in messages.")
    dataroot_gt: Roots = option(
        ...,
        "Folder of high-quality images (searched recursively), an image file, an LMDB database as BasicSR makes them "
        "(NAME.lmdb, with the package lmdb), or a list of these. `package:NAME/PATH` "
        "means PATH inside the installed Python package NAME.",
    )
    dataroot_lq: Roots | None = option(
        None, "Folder(s) of low-quality images, paired with dataroot_gt by relative path without the extension."
    )
    dataroot_lq_prob: Probability | None = option(
        None,
        "How often a sample of a RealESRGANPairedDataset is a pair of files; otherwise its lq is made from gt.",
        reason="null: always a pair",
    )
    lq_resize_mode: ResizeMode | None = option(
        None, "How a GTImageDataset shrinks, under the names of resize_mode_list.", reason="null: antialiased bicubic"
    )
    augmentation: list[AugmentationKind] | None = option(
        None,
        "neosr's name of train.moa_augs; each sample draws one of these, by the weights of aug_prob.",
        reason="null: none",
    )
    aug_prob: Weights | None = option(None, "Weights of augmentation, one for each.", reason="null: no augmentation")
    lq_size: Side = option(
        64, "Side of a training crop of the low-quality image.", unit="px", reason="fits 12 GB for most networks at x4"
    )
    batch_size_per_gpu: Samples = option(
        8, "Samples in one forward pass at the start of the run.", unit="samples", reason="fits 12 GB for most networks"
    )
    accum_iter: Samples = option(
        1,
        "Micro-batches in one optimizer step; a step draws batch_size_per_gpu * accum_iter samples.",
        unit="micro-batches",
        reason="1: no accumulation",
    )
    num_worker_per_gpu: Processes = option(
        2, "Processes that decode images; 0 decodes in the training process.", unit="processes", reason="two cores"
    )
    lookahead: Lookahead = option(
        8,
        "Batches drawn ahead of the step, the same for any number of workers: a larger plan acts after so many steps.",
        unit="batches",
        reason="hides decoding hiccups of 8 workers; at least num_worker_per_gpu",
    )
    use_hflip: bool = option(True, "Flip crops left to right at random.", reason="doubles the data at no cost")
    use_rot: bool = option(
        True, "Flip and rotate crops by quarter turns at random.", reason="eightfold data with hflip"
    )
    cache_dir: PathText | None = option(
        None,
        "Folder for a memory-mapped cache of decoded pixels, relative to the working directory; needs width * height * "
        "channels bytes an image. Without it, decoded pixels stay in memory where they fit a quarter of what is free.",
        reason="off: it costs disk",
    )
    decode_all: bool = option(
        False,
        "Decode every image before the run and refuse damaged ones. Without it, a JPEG that is damaged in its middle "
        "is named in the log when it is first read.",
        reason="off: it takes as long as reading the set once",
    )
    meta_info: PathText | None = option(
        None,
        "A text file that names the high-quality images to use, a path below its root on each line, with or without "
        "BasicSR's size behind it (`0001_s001.png (480,480,3)`).",
        reason="null: all of them",
    )
    root_weights: RootWeights | None = option(
        None,
        "How often each root of dataroot_gt is drawn from, in proportion. An epoch holds every image at least "
        "once, and repeats those of smaller roots.",
        reason="null: every image as often as any other",
    )
    bit_depth: Literal[8, 16] = option(
        8, "Bits of a sample that images are read with; images of the other depth are converted.", unit="bits"
    )
    color: Literal["rgb", "y"] | None = option(
        None,
        "y reads images as the Y of BT.601, 16 to 235 in 8 bits, for a network of one channel (BasicSR's meaning).",
        reason="null: input_pixel_format",
    )
    filename_tmpl: str | None = option(
        None,
        "Name of a low-quality image without its extension, where `{}` is that of its partner (BasicSR's meaning): "
        "'{}x4' pairs 0001.png with 0001x4.png. Without it, names are the same, or end in x2 to x9.",
        reason="DIV2K's names pair without it",
    )


class ValDataset(Section):
    """A set of whole images to validate on."""

    type: str = option("PairedImageDataset", "PairedImageDataset or GTImageDataset, as for training.")
    name: FolderName = option("val", "Name of the set in logs, curves and folders.")
    dataroot_gt: Roots = option(..., "As for training.")
    dataroot_lq: Roots | None = option(None, "As for training.")
    lq_resize_mode: ResizeMode | None = option(None, "As for training.")
    cache_dir: PathText | None = option(None, "As for training.")
    decode_all: bool = option(False, "As for training.")
    meta_info: PathText | None = option(None, "As for training.")
    bit_depth: Literal[8, 16] = option(8, "As for training; metrics compare pixels of 8 bits.", unit="bits")
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
