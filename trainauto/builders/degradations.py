"""What a set draws when it makes low-quality images, from options."""

import inspect
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from trainauto.builders.components import locate_errors
from trainauto.core.errors import InputError, Problem
from trainauto.data.registry import DATASETS
from trainauto.options.degradation_options import (
    KERNEL_SIZES_NOT_USED,
    NOT_USED,
    WEIGHTED,
    DegradationOptions,
    KernelOptions,
)
from trainauto.options.load import LoadedOptions
from trainauto.options.schema import Options
from trainauto.tasks.sr.degradations import BlurSettings, DegradationSettings, StageSettings
from trainauto.tasks.sr.degradations.compression import can_encode
from trainauto.tasks.sr.degradations.presets import PRESETS
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
            "`python -m trainauto degrade` shows them",
            ", ".join(unused),
            "is" if len(unused) == 1 else "are",
        )
    return {"degradations": settings, "sharpening": sharpening(options)}


def degradation_settings(options: Options) -> DegradationSettings:
    """Return what is drawn: what the file sets, and the preset's for the rest."""
    preset = PRESETS[options.degradation_preset]
    values = {**preset, **_written(options, DegradationOptions), **_written(options.datasets.train, KernelOptions)}
    if "second_blur_prob" in values:
        values["blur_prob2"] = values["second_blur_prob"]
    return DegradationSettings(
        first=_stage(values, "", preset),
        second=_stage(values, "2", preset),
        final_modes=_weighed(values, "resize_mode_prob3", preset),
        final_sinc_prob=values["final_sinc_prob"],
        final_sizes_px=_pair(values["final_kernel_range"]),
        thick_lines_prob=options.thicklines_prob,
    )


def sharpening(options: Options) -> Sharpening:
    """Return what is sharpened."""
    flags = [getattr(options, name) for name in TARGETS]
    return Sharpening(
        degraded=options.gt_usm or any(flag is not None for flag in flags),
        target=options.gt_usm,
        radii_px=_pair(options.lq_usm_radius_range) if options.lq_usm else None,
    )


def _written(section: Any, keys: type[Any]) -> dict[str, Any]:
    """Return the keys of a section that the file sets."""
    names = section.model_fields_set & keys.model_fields.keys()
    return {name: value for name in sorted(names) if (value := getattr(section, name)) is not None}


def _stage(values: Mapping[str, Any], end: str, preset: Mapping[str, Any]) -> StageSettings:
    codecs = _weighed({"codec_list": ["jpeg"], **values}, "codec_prob", preset)
    jpeg = values[f"jpeg_range{end}"]
    return StageSettings(
        blur_prob=values[f"blur_prob{end}"],
        blur=BlurSettings(
            kinds=_weighed(values, f"kernel_prob{end}", preset),
            sizes_px=_pair(values[f"kernel_range{end}"]),
            sinc_prob=values[f"sinc_prob{end}"],
            sigma_px=_pair(values[f"blur_sigma{end}"]),
            beta_generalized=_pair(values[f"betag_range{end}"]),
            beta_plateau=_pair(values[f"betap_range{end}"]),
        ),
        resize_weights=tuple(values[f"resize_prob{end}"]),
        resize_range=_pair(values[f"resize_range{end}"]),
        resize_modes=_weighed(values, f"resize_mode_prob{end}", preset),
        gaussian_prob=values[f"gaussian_noise_prob{end}"],
        noise_range=_pair(values[f"noise_range{end}"]),
        poisson_scale_range=_pair(values[f"poisson_scale_range{end}"]),
        gray_prob=values[f"gray_noise_prob{end}"],
        compression_prob=values[f"jpeg_prob{end}"],
        codecs=codecs,
        quality={codec: _pair(jpeg if codec == "jpeg" else values.get(f"{codec}_range", jpeg)) for codec in codecs},
    )


def _weighed(values: Mapping[str, Any], key: str, preset: Mapping[str, Any]) -> dict[str, float]:
    """Return names with their weights; those of a preset do not weigh a list that the file writes."""
    names: Sequence[str] = values[WEIGHTED[key]]
    weights = values.get(key)
    if weights is preset.get(key) and names is not preset.get(WEIGHTED[key]):
        weights = None
    found = dict.fromkeys(names, 0.0)
    for name, weight in zip(names, weights or [1.0] * len(names), strict=True):
        found[name] += weight
    return found


def _pair(bounds: Sequence[Any]) -> tuple[Any, Any]:
    lowest, highest = bounds
    return lowest, highest
