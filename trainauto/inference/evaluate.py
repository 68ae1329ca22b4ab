"""Measuring a trained network on sets of images."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from trainauto.builders.data import LUMA, build_val_sets, trains_on_luma
from trainauto.builders.image_model import build_network, requirements_of
from trainauto.builders.load_plugins import load_plugins
from trainauto.builders.metrics import build_metrics, warn_of_left_out_metrics
from trainauto.core.errors import InputError, Problem
from trainauto.core.records import ValidationRecord
from trainauto.options.load import LoadedOptions
from trainauto.options.schema import Component, Datasets, ValDataset
from trainauto.tasks.sr.models.tiles import TiledEnlarger
from trainauto.tasks.sr.models.validation import Validator

_LONGEST_NAME = 50
"""Characters of a set that is called as its folder is: that many are no more bytes than folders take."""


def network_to_measure(loaded: LoadedOptions, device: torch.device) -> nn.Module:
    """Return the network of a test file with its weights, in evaluation mode.

    Raises:
        InputError: options or weights cannot be used.
    """
    load_plugins(loaded)
    return build_network(loaded).to(device).eval().requires_grad_(requires_grad=False)


def measure(
    loaded: LoadedOptions, network: nn.Module, device: torch.device, folder: Path, step: int = 0
) -> Iterator[ValidationRecord]:
    """Validate a network on every set, one after the other; pictures go to a folder of the set's name below ``folder``.

    Every file and metric is looked at before the first image is enlarged.

    Args:
        loaded: names sets, metrics and tiles; only these and what places them are read.
        network: on ``device``, in evaluation mode.
        device: where it runs.
        folder: of the results.
        step: of the weights, for the records.

    Raises:
        InputError: images or metrics cannot be used.
    """
    val = loaded.options.val
    datasets = build_val_sets(loaded, network, {})
    if not datasets:
        raise InputError(
            Problem("there is no set of images to measure on", advice="Name some in a file given with -opt.")
        )
    warn_of_left_out_metrics(loaded)
    metrics = build_metrics(loaded)
    for dataset in datasets:
        validator = Validator(
            dataset,
            {name: metric for name, (metric, _) in metrics.items()},
            {name: higher for name, (_, higher) in metrics.items()},
            TiledEnlarger(loaded.options.scale, val.tile_size, val.tile_overlap, requirements_of(network)),
            device,
            folder / dataset.name if val.save_img else None,
            by_step=False,
            scratch=folder,
        )
        result = validator.run(_enlarging(network), step)
        if result is not None:
            yield result[0]


def with_sets_of(run: LoadedOptions, test: LoadedOptions) -> LoadedOptions:
    """Return a test file's options for the network of a run; plugins are those of the run, imported already."""
    load_plugins(test)
    of_run: dict[str, Any] = {"scale": run.options.scale, "network_g": run.options.network_g}
    if trains_on_luma(run.options):
        of_run["input_pixel_format"] = LUMA
    options = test.options.model_copy(update=of_run)
    return replace(test, options=options)


def with_images(loaded: LoadedOptions, gt: str, lq: str | None) -> LoadedOptions:
    """Return a run's options with one set instead of its validation sets, called as its folder is.

    A run without metrics is measured by those that everybody prints.
    """
    name = re.sub(r"[^\w.-]", "_", Path(gt).resolve().name).lstrip(".-")[:_LONGEST_NAME] or "images"
    kind = "GTImageDataset" if lq is None else "PairedImageDataset"
    chosen = ValDataset(type=kind, name=name, dataroot_gt=gt, dataroot_lq=lq)
    options = loaded.options
    chosen = chosen.model_copy(update={"color": LUMA}) if trains_on_luma(options) else chosen
    datasets = Datasets.model_construct({"train", "val"}, train=options.datasets.train, val=chosen)
    metrics = options.val.metrics or {
        "psnr": Component(type="calculate_psnr", crop_border=options.scale),
        "ssim": Component(type="calculate_ssim", crop_border=options.scale),
    }
    val = options.val.model_copy(update={"metrics": metrics})
    return replace(loaded, options=options.model_copy(update={"datasets": datasets, "val": val}))


def always_validating(loaded: LoadedOptions) -> LoadedOptions:
    """Return options of a run that validate, whatever its file says of that."""
    val = loaded.options.val.model_copy(update={"val_enabled": True})
    return replace(loaded, options=loaded.options.model_copy(update={"val": val}))


def _enlarging(network: nn.Module) -> Callable[[Tensor], Tensor]:
    @torch.no_grad()
    def enlarge(lq: Tensor) -> Tensor:
        enlarged: Tensor = network(lq)
        return enlarged.float().clamp_(0, 1)

    return enlarge
