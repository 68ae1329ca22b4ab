"""Degradations by name, under the keys of option files."""

from collections.abc import Mapping, Sequence
from typing import Any

from trainauto.tasks.sr.degradations.kernels import KINDS
from trainauto.tasks.sr.degradations.settings import BlurSettings, DegradationSettings, StageSettings

_ALIASED_MODES = ("area", "bilinear-aliased", "bicubic-aliased")
_REDUX_MODES = ("bilinear", "bicubic", "nearest-exact", "lanczos")

_KERNELS = {
    "kernel_list": KINDS,
    "kernel_prob": (0.45, 0.25, 0.12, 0.03, 0.12, 0.03),
    "betag_range": (0.5, 4.0),
    "betap_range": (1.0, 2.0),
}

REAL_ESRGAN: Mapping[str, Any] = {
    **_KERNELS,
    **{f"{key}2": value for key, value in _KERNELS.items()},
    "kernel_range": (7, 21),
    "sinc_prob": 0.1,
    "blur_sigma": (0.2, 3.0),
    "kernel_range2": (7, 21),
    "sinc_prob2": 0.1,
    "blur_sigma2": (0.2, 1.5),
    "final_sinc_prob": 0.8,
    "final_kernel_range": (7, 21),
    "blur_prob": 1.0,
    "resize_prob": (0.2, 0.7, 0.1),
    "resize_mode_list": _ALIASED_MODES,
    "resize_range": (0.15, 1.5),
    "gaussian_noise_prob": 0.5,
    "noise_range": (1.0, 30.0),
    "poisson_scale_range": (0.05, 3.0),
    "gray_noise_prob": 0.4,
    "jpeg_prob": 1.0,
    "jpeg_range": (30, 95),
    "blur_prob2": 0.8,
    "resize_prob2": (0.3, 0.4, 0.3),
    "resize_mode_list2": _ALIASED_MODES,
    "resize_range2": (0.3, 1.2),
    "gaussian_noise_prob2": 0.5,
    "noise_range2": (1.0, 25.0),
    "poisson_scale_range2": (0.05, 2.5),
    "gray_noise_prob2": 0.4,
    "jpeg_prob2": 1.0,
    "jpeg_range2": (30, 95),
    "resize_mode_list3": _ALIASED_MODES,
}
"""The ranges of BasicSR's files of Real-ESRGAN."""

MILD: Mapping[str, Any] = {
    **REAL_ESRGAN,
    **{f"{key}{stage}": 0.0 for key in ("blur_prob", "gaussian_noise_prob", "gray_noise_prob") for stage in ("", "2")},
    **{f"{key}{stage}": (0.0, 0.0) for key in ("noise_range", "poisson_scale_range") for stage in ("", "2")},
    **{f"resize_mode_list{stage}": _REDUX_MODES for stage in ("", "2", "3")},
    **{f"jpeg_range{stage}": (75, 95) for stage in ("", "2")},
    **{f"{key}{stage}": value for key, value in (("kernel_range", (5, 17)), ("sinc_prob", 0.0)) for stage in ("", "2")},
    "blur_sigma": (0.2, 2.0),
    "blur_sigma2": (0.2, 1.0),
    "resize_range": (0.4, 1.5),
    "resize_range2": (0.6, 1.2),
    "final_sinc_prob": 0.0,
    "final_kernel_range": (5, 17),
}
"""The ranges of traiNNer-redux's templates: resizing and light JPEG."""

OLD_JPEG: Mapping[str, Any] = {
    **MILD,
    "blur_prob": 0.3,
    "blur_sigma": (0.2, 1.0),
    "jpeg_range": (20, 70),
    "jpeg_range2": (40, 90),
    "resize_range": (0.7, 1.1),
    "resize_range2": (0.8, 1.1),
}
"""Ours: pictures that were saved hard, shrunk and saved again, as those of old sites; little blur, no noise."""

PRESETS: Mapping[str, Mapping[str, Any]] = {"real-esrgan": REAL_ESRGAN, "mild": MILD, "old-jpeg": OLD_JPEG}


def settings_of(name: str = "real-esrgan", **keys: Any) -> DegradationSettings:
    """Return what a preset draws, with other values for some keys.

    Args:
        name: one of :data:`PRESETS`.
        keys: keys of option files with their values, those of the training set among them.
    """
    preset = PRESETS[name]
    values = {"codec_list": ("jpeg",), "thicklines_prob": 0.0, **preset, **keys}
    if "second_blur_prob" in values:
        values["blur_prob2"] = values["second_blur_prob"]
    return DegradationSettings(
        first=_stage(values, "", preset),
        second=_stage(values, "2", preset),
        final_modes=_weighed(values, "resize_mode_list3", "resize_mode_prob3", preset),
        final_sinc_prob=values["final_sinc_prob"],
        final_sizes_px=_pair(values["final_kernel_range"]),
        thick_lines_prob=values["thicklines_prob"],
    )


def _stage(values: Mapping[str, Any], end: str, preset: Mapping[str, Any]) -> StageSettings:
    codecs = _weighed(values, "codec_list", "codec_prob", preset)
    jpeg = values[f"jpeg_range{end}"]
    return StageSettings(
        blur_prob=values[f"blur_prob{end}"],
        blur=BlurSettings(
            kinds=_weighed(values, f"kernel_list{end}", f"kernel_prob{end}", preset),
            sizes_px=_pair(values[f"kernel_range{end}"]),
            sinc_prob=values[f"sinc_prob{end}"],
            sigma_px=_pair(values[f"blur_sigma{end}"]),
            beta_generalized=_pair(values[f"betag_range{end}"]),
            beta_plateau=_pair(values[f"betap_range{end}"]),
        ),
        resize_weights=tuple(values[f"resize_prob{end}"]),
        resize_range=_pair(values[f"resize_range{end}"]),
        resize_modes=_weighed(values, f"resize_mode_list{end}", f"resize_mode_prob{end}", preset),
        gaussian_prob=values[f"gaussian_noise_prob{end}"],
        noise_range=_pair(values[f"noise_range{end}"]),
        poisson_scale_range=_pair(values[f"poisson_scale_range{end}"]),
        gray_prob=values[f"gray_noise_prob{end}"],
        compression_prob=values[f"jpeg_prob{end}"],
        codecs=codecs,
        quality={codec: _pair(jpeg if codec == "jpeg" else values.get(f"{codec}_range", jpeg)) for codec in codecs},
    )


def _weighed(values: Mapping[str, Any], listed: str, key: str, preset: Mapping[str, Any]) -> dict[str, float]:
    """Return names with their weights; those of a preset do not weigh a list that the file writes."""
    names: Sequence[str] = values[listed]
    weights = values.get(key)
    if weights is preset.get(key) and names is not preset.get(listed):
        weights = None
    found = dict.fromkeys(names, 0.0)
    for name, weight in zip(names, weights or [1.0] * len(names), strict=True):
        found[name] += weight
    return found


def _pair(bounds: Sequence[Any]) -> tuple[Any, Any]:
    lowest, highest = bounds
    return lowest, highest
