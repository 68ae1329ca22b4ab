"""Datasets, validation and the knobs of the plan from options."""

import inspect
import logging
import os
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from trainauto.automations.dynamic_batch_size import LQ_SIZE
from trainauto.builders.components import build_component, locate_errors
from trainauto.builders.degradations import degradation_arguments
from trainauto.builders.discriminator import crop_is_judged_alone
from trainauto.builders.image_model import channels_of, requirements_of
from trainauto.builders.kept_sets import KeptSets
from trainauto.builders.losses import check_targets, targets
from trainauto.builders.metrics import MetricsByName, build_metrics
from trainauto.core.errors import InputError, Problem
from trainauto.core.free_memory import free_memory_bytes
from trainauto.core.plan import BATCH_SIZE, Axis, Plan
from trainauto.core.units import size_text
from trainauto.core.words import counted
from trainauto.data import DatasetScan, DynamicDataset
from trainauto.data.sample_files import Kept
from trainauto.options.degradation_options import MOA_NOT_USED, KernelOptions
from trainauto.options.load import LoadedOptions
from trainauto.options.schema import Options, TrainDataset, ValDataset
from trainauto.options.source_locations import KeyPath
from trainauto.storage.run_directory import RunDirectory
from trainauto.tasks.sr.data import DATASETS
from trainauto.tasks.sr.data.augmentations import Augmentations
from trainauto.tasks.sr.data.image_crops import ImageCrops
from trainauto.tasks.sr.data.image_dataset import ImageDataset
from trainauto.tasks.sr.data.image_source import file_of, in_database
from trainauto.tasks.sr.data.reading import Reading
from trainauto.tasks.sr.models.run_validator import RunValidator
from trainauto.tasks.sr.models.tiles import TiledEnlarger

logger = logging.getLogger(__name__)

LARGEST_BATCH = 2**16

READ = frozenset({"cache_dir", "decode_all", "meta_info", "root_weights", "bit_depth", "color"})
"""Options of a set that its :class:`~trainauto.tasks.sr.data.reading.Reading` holds."""

LUMA = "y"

NOT_OF_THE_DATASET = frozenset(
    {"type", "name", "lq_size", "batch_size_per_gpu", "accum_iter", "num_worker_per_gpu", "lookahead"}
    | {"augmentation", "aug_prob"}
)
"""Options of a set that the plan and the loader read, whatever its dataset takes."""


def _dataset(
    loaded: LoadedOptions,
    key: str,
    chosen: TrainDataset | ValDataset,
    network: nn.Module,
    kept: Kept | None = None,
) -> DynamicDataset:
    path = ("datasets", key)
    with locate_errors(loaded, (*path, "type")):
        parameters = inspect.signature(DATASETS.get(chosen.type)).parameters
    arguments = _dataset_arguments(chosen, parameters.keys() - {"type"})
    filled_in: dict[str, Any] = {"scale": loaded.options.scale, "channels": channels_of(network), "kept": kept}
    if "reading" in parameters:
        filled_in["reading"] = reading = reading_of(loaded.options, chosen, kept)
        _check_channels(loaded, path, reading, channels_of(network))
        arguments = {name: value for name, value in arguments.items() if name not in READ}
    filled_in["crops_larger"] = key != "train"
    if key == "train":
        filled_in["references"] = targets(loaded.options)
        if loaded.options.dataroot_lq_prob is not None:
            filled_in["dataroot_lq_prob"] = loaded.options.dataroot_lq_prob
    if "degradations" in parameters:
        filled_in |= degradation_arguments(loaded)
    dataset: DynamicDataset = build_component(loaded, DATASETS, path, chosen.type, arguments, filled_in)()
    if not isinstance(dataset, ImageDataset):
        _refuse_what_it_ignores(loaded, key, chosen.type)
    elif key == "train":
        dataset.keeps_decoded = True
        dataset.augmentations = _augmentations(loaded.options)
    dataset.name = chosen.name  # whether it takes one or not: scans, curves and folders go by it
    return dataset


def _refuse_what_it_ignores(loaded: LoadedOptions, key: str, kind: str) -> None:
    """Refuse options that a dataset of a plugin would ignore.

    Raises:
        InputError: names the key.
    """
    options = loaded.options
    asked: dict[KeyPath, bool] = {("input_pixel_format",): options.input_pixel_format == LUMA}
    if key == "train":
        asked[("train", "use_moa")] = options.train.use_moa
        asked[("datasets", "train", "augmentation")] = options.datasets.train.augmentation is not None
    for path in (path for path, is_asked in asked.items() if is_asked):
        with locate_errors(loaded, path):
            raise InputError(Problem(f"{kind} makes its samples itself, and takes no {path[-1]}", advice="Remove it."))


def crops_of(options: Options, channels: int) -> ImageCrops:
    """Return the kind of the samples of an option file, whatever set they come from."""
    return ImageCrops(channels, options.scale, targets(options), bits=options.datasets.train.bit_depth)


def trains_on_luma(options: Options) -> bool:
    """Say whether a run's network is trained on BT.601's Y; options of weights alone may lack what says so."""
    sets = getattr(options, "datasets", None)
    of_set = sets.train.color if sets is not None and "train" in sets.model_fields_set else None
    return (of_set or getattr(options, "input_pixel_format", None)) == LUMA


def reading_of(options: Options, chosen: TrainDataset | ValDataset, kept: Kept | None) -> Reading:
    """Return which images of its folders a set reads, and how."""
    return Reading(
        cache_dir=chosen.cache_dir,
        decode_all=chosen.decode_all,
        meta_info=chosen.meta_info,
        root_weights=chosen.root_weights if isinstance(chosen, TrainDataset) else None,
        bits=chosen.bit_depth,
        is_luma=(chosen.color or options.input_pixel_format) == LUMA,
        kept=kept,
    )


def _augmentations(options: Options) -> Augmentations | None:
    """Return what is mixed into training samples, under the keys of traiNNer-redux or neosr."""
    of_set, train = options.datasets.train, options.train
    if unused := [f"train.{key}" for key in MOA_NOT_USED if key in train.model_fields_set]:
        logger.info("%s: read and not used; `degrade` shows samples", ", ".join(unused))
    if of_set.augmentation is not None and of_set.aug_prob is not None:
        return Augmentations(of_set.augmentation, of_set.aug_prob)
    return Augmentations(train.moa_augs, train.moa_probs) if train.use_moa else None


def _check_channels(loaded: LoadedOptions, path: KeyPath, reading: Reading, channels: int) -> None:
    if reading.is_luma and channels != 1:
        key = (*path, "color") if loaded.options.input_pixel_format != LUMA else ("input_pixel_format",)
        with locate_errors(loaded, key):
            message = f"images are read as luma, one channel, and the network takes {channels}"
            raise InputError(Problem(message, advice="Write num_in_ch: 1 and num_out_ch: 1 in network_g."))


def _dataset_arguments(chosen: TrainDataset | ValDataset, parameters: Set[str]) -> dict[str, Any]:
    """Return what the dataset takes, and what the file sets for it: what of that it does not take is then refused."""
    written = chosen.model_fields_set - NOT_OF_THE_DATASET - KernelOptions.model_fields.keys()
    names = [name for name in type(chosen).model_fields if name in parameters | written]
    return {name: value for name in names if (value := getattr(chosen, name)) is not None}


def build_train_set(
    loaded: LoadedOptions, network: nn.Module, sets: KeptSets | None = None
) -> tuple[DynamicDataset, dict[str, DatasetScan]]:
    """Return the training set, and what a look at its files found, by the name of the set.

    Args:
        loaded: the option file.
        network: what is trained.
        sets: which files of theirs a resumed run has; ``None`` takes all.
    """
    chosen = loaded.options.datasets.train
    with locate_errors(loaded, ("datasets", "train")):
        build = partial(_dataset, loaded, "train", chosen, network)
        dataset = (sets or KeptSets()).train_set(chosen.name, build)
    check_targets(loaded, dataset.workload.dummy(1, chosen.lq_size))
    _warn_of_many_workers(chosen)
    return dataset, {dataset.name: _scanned(loaded, "train", dataset)}


def _warn_of_many_workers(chosen: TrainDataset) -> None:
    cores = os.cpu_count() or 1
    if chosen.num_worker_per_gpu > cores:
        logger.warning("num_worker_per_gpu is %d, but this machine has %d cores", chosen.num_worker_per_gpu, cores)


def build_val_sets(
    loaded: LoadedOptions, network: nn.Module, scans: dict[str, DatasetScan], sets: KeptSets | None = None
) -> list[DynamicDataset]:
    """Return the validation sets in file order; what was found of them is added to ``scans``.

    Args:
        loaded: the option file.
        network: what is validated.
        scans: by the name of the set.
        sets: which files of theirs a resumed run has; ``None`` takes all.
    """
    if not loaded.options.val.val_enabled:
        return []
    metrics = build_metrics(loaded)
    datasets = []
    for key, chosen in loaded.options.datasets.validation_sets.items():
        build = partial(_dataset, loaded, key, chosen, network)
        dataset = (sets or KeptSets()).validation_set(chosen.name, build)
        scans[dataset.name] = scan = _scanned(loaded, key, dataset)
        _try_metrics(loaded, metrics, dataset, scan, channels_of(network))
        datasets.append(dataset)
    return datasets


def warn_of_shared_images(train_set: DynamicDataset, val_sets: Sequence[DynamicDataset]) -> None:
    """Say so where a set validates on files that are trained on, under whatever path: it praises what is remembered."""
    trained = {_identity(train_set, index) for index in range(len(train_set))} - {None} if val_sets else set()
    for dataset in val_sets:
        shared = [index for index in range(len(dataset)) if _identity(dataset, index) in trained]
        if shared:
            logger.warning(
                "dataset '%s' shares %d of its %s with the training set (%s%s): its metrics say little about other "
                "images",
                dataset.name,
                len(shared),
                counted(len(dataset), "image"),
                dataset.sample_key(shared[0]),
                ", ..." if len(shared) > 1 else "",
            )


def _identity(dataset: DynamicDataset, index: int) -> tuple[int, int, str] | None:
    """Return which file a sample is, whatever path leads to it; ``None`` of one that is no file."""
    name = dataset.sample_name(index)
    try:
        status = file_of(name).stat()
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino, Path(name).name if in_database(name) else ""


def _scanned(loaded: LoadedOptions, key: str, dataset: DynamicDataset) -> DatasetScan:
    with locate_errors(loaded, ("datasets", key)):
        return dataset.scan()


def _try_metrics(
    loaded: LoadedOptions, metrics: MetricsByName, dataset: DynamicDataset, scan: DatasetScan, channels: int
) -> None:
    """Measure an image of the smallest size: one that a metric's window does not fit into would end the run later."""
    side = scan.smallest_size * loaded.options.scale
    image = np.zeros((side, side, channels), np.uint8)
    for name, (metric, _) in metrics.items():
        with locate_errors(loaded, ("val", "metrics", name)):
            try:
                metric(image, image.copy())
            except ValueError as error:
                raise InputError(
                    Problem(
                        f"dataset '{dataset.name}': {name} cannot be computed for {scan.smallest_name}: {error}",
                        advice="Leave smaller images out of the set, or remove the metric.",
                    )
                ) from error


def build_axes(loaded: LoadedOptions, network: nn.Module, scan: DatasetScan) -> tuple[Axis, ...]:
    """Return the knobs of the plan, bounded by the network and the smallest image."""
    lq_size = loaded.options.datasets.train.lq_size
    needs = requirements_of(network)
    # Crops grow no further than the smallest image; a file that asks for more gets it, mirrored at the edge.
    largest = max(scan.smallest_size // needs.multiple * needs.multiple, lq_size, needs.minimum)
    capped_by = "the smallest image" if largest <= scan.smallest_size else ""
    axis = Axis(LQ_SIZE, "px", needs.minimum, largest, needs.multiple, capped_by, power=2)
    if judge := crop_is_judged_alone(loaded):
        axis = replace(axis, minimum=lq_size, maximum=lq_size, capped_by=f"the only crop that {judge} judges")
    if not axis.admits(lq_size):
        below = axis.clamp(lq_size)
        nearest = below if below >= lq_size else f"{below}, or {below + needs.multiple}"
        with locate_errors(loaded, ("datasets", "train", "lq_size")):
            raise InputError(
                Problem(
                    f"lq_size {lq_size} does not suit the network: it takes at least {needs.minimum} px, "
                    f"in multiples of {needs.multiple}",
                    advice=f"The nearest is {nearest}.",
                )
            )
    if scan.largest_size is not None and lq_size > scan.largest_size:
        with locate_errors(loaded, ("datasets", "train", "lq_size")):
            fitting = max(scan.largest_size // needs.multiple * needs.multiple, needs.minimum)
            message = f"lq_size {lq_size} is larger than every image: the largest holds crops of {scan.largest_size} px"
            raise InputError(Problem(message, advice=f"Take at most {fitting}; the smallest has {scan.smallest_size}."))
    if lq_size > scan.smallest_size:
        logger.warning(
            "lq_size %d is larger than the smallest image (%d px: %s); such images are mirrored at their edges",
            lq_size,
            scan.smallest_size,
            scan.smallest_name,
        )
    return axis, Axis(BATCH_SIZE, "samples", 1, LARGEST_BATCH)


def refuse_flood(loaded: LoadedOptions) -> None:
    """Refuse a first batch whose pixels alone, of a byte each, are more than the free memory.

    Raises:
        InputError: names what makes it large.
    """
    options, plan, free_bytes = loaded.options, first_plan(loaded.options), free_memory_bytes()
    pixels_bytes = plan.batch_size * 3 * plan[LQ_SIZE] ** 2 * (1 + options.scale**2)
    if free_bytes is None or pixels_bytes <= free_bytes:
        return
    one_bytes = pixels_bytes // plan.batch_size
    with locate_errors(loaded, ("datasets", "train", "lq_size" if one_bytes > free_bytes else "batch_size_per_gpu")):
        taken = f"{counted(plan.batch_size, 'crop')} of {plan[LQ_SIZE]} px and their targets take"
        message = f"{taken} {size_text(pixels_bytes)}, and {size_text(free_bytes)} are free here"
        raise InputError(Problem(message, advice="Write a smaller lq_size, or fewer samples."))


def first_plan(options: Options) -> Plan:
    """Return the plan a run starts with."""
    train = options.datasets.train
    return Plan.of(
        batch_size=train.batch_size_per_gpu * train.accum_iter, lq_size=train.lq_size, micro_batches=train.accum_iter
    )


def build_validator(
    loaded: LoadedOptions,
    dataset: DynamicDataset,
    metrics: Mapping[str, tuple[Callable[..., float], bool]],
    network: nn.Module,
    device: torch.device,
    directory: RunDirectory,
    *,
    in_step: bool = False,
) -> RunValidator:
    """Return what validates one set; ``in_step``: ranks run the network together, and none may change its tiles."""
    val = loaded.options.val
    tiles = TiledEnlarger(
        loaded.options.scale, val.tile_size, val.tile_overlap, requirements_of(network), may_shrink=not in_step
    )
    return RunValidator(
        dataset,
        {name: metric for name, (metric, _) in metrics.items()},
        {name: higher for name, (_, higher) in metrics.items()},
        tiles,
        device,
        directory.validation / dataset.name if val.save_img else None,
        scratch=directory.validation,
    )
