"""What a set draws when it makes low-quality images, from options."""

import inspect
import logging
from typing import Any

from trainauto.builders.components import locate_errors
from trainauto.core.errors import InputError, Problem
from trainauto.data.registry import DATASETS
from trainauto.options.degradation_options import (
    KERNEL_SIZES_NOT_USED,
    NOT_USED,
    DegradationOptions,
    KernelOptions,
)
from trainauto.options.load import LoadedOptions
from trainauto.options.schema import Options
from trainauto.tasks.sr.degradations import DegradationSettings
from trainauto.tasks.sr.degradations.compression import can_encode
from trainauto.tasks.sr.degradations.presets import settings_of
from trainauto.tasks.sr.degradations.sharpening import Sharpening

logger = logging.getLogger(__name__)

TARGETS = ("l1_gt_usm", "percep_gt_usm", "gan_gt_usm")


def makes_degradations(name: str) -> bool:
    """Say whether a set of this type degrades images by itself."""
    return name in DATASETS and "degradations" in inspect.signature(DATASETS.get(name)).parameters


def degradation_arguments(loaded: LoadedOptions) -> dict[str, Any]:
    """Return what a set that degrades images is built with beside its files; says which keys are not used.

    Raises:
        InputError: Pillow lacks an encoder that is asked for.
    """
    options = loaded.options
    settings = degradation_settings(options)
    for codec in settings.first.codecs:
        if not can_encode(codec):
            message = f"the installed Pillow has no encoder of {codec}"
            with locate_errors(loaded, ("codec_list",)):
                raise InputError(Problem(message, advice="Install a newer one: pillow>=11.3."))
    train = options.datasets.train
    unused = [key for key in NOT_USED if key in options.model_fields_set]
    unused += [key for key in KERNEL_SIZES_NOT_USED if key in train.model_fields_set]
    if unused:
        logger.info(
            "%s %s read and not used: kernels are as large as they are drawn, samples are degraded one by one, and "
            "`degrade` shows them",
            ", ".join(unused),
            "is" if len(unused) == 1 else "are",
        )
    return {"degradations": settings, "sharpening": sharpening(options)}


def degradation_settings(options: Options) -> DegradationSettings:
    """Return what is drawn: what the file sets, and the preset's for the rest."""
    written = {**_written(options, DegradationOptions), **_written(options.datasets.train, KernelOptions)}
    return settings_of(options.degradation_preset, **written)


def sharpening(options: Options) -> Sharpening:
    """Return what is sharpened."""
    flags = [getattr(options, name) for name in TARGETS]
    return Sharpening(
        degraded=options.gt_usm or any(flag is not None for flag in flags),
        target=options.gt_usm,
        radii_px=(options.lq_usm_radius_range[0], options.lq_usm_radius_range[1]) if options.lq_usm else None,
    )


def _written(section: Any, keys: type[Any]) -> dict[str, Any]:
    """Return the keys of a section that the file sets."""
    names = section.model_fields_set & keys.model_fields.keys()
    return {name: value for name in sorted(names) if (value := getattr(section, name)) is not None}
