"""The order of operations of Real-ESRGAN's two stages."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.random import PCG64, Generator, SeedSequence

from trainauto.tasks.sr.degradations.compression import compressed, drawn_quality
from trainauto.tasks.sr.degradations.draws import chosen, happens, odd_size
from trainauto.tasks.sr.degradations.image import Image
from trainauto.tasks.sr.degradations.kernels import drawn_cutoff, drawn_kernel, filtered, sinc_kernel
from trainauto.tasks.sr.degradations.noise import with_gaussian_noise, with_poisson_noise
from trainauto.tasks.sr.degradations.resizing import drawn_factor, resized
from trainauto.tasks.sr.degradations.settings import DegradationSettings, StageSettings
from trainauto.tasks.sr.degradations.sharpening import with_thick_lines

_STREAM = 0x6465_6772
"""Keeps these draws apart from others of the same seed."""


@dataclass(frozen=True)
class Drawn:
    """A step that was taken.

    Attributes:
        step: its name.
        values: what was drawn for it.
    """

    step: str
    values: dict[str, object]


def generator_of(seed: int, stream: int = _STREAM) -> Generator:
    """Return the generator of a sample, a function of its seed alone; another stream gives independent draws."""
    return Generator(PCG64(SeedSequence((seed, stream))))


def degrade(
    image: Image, settings: DegradationSettings, rng: Generator, height_px: int, width_px: int
) -> tuple[Image, list[Drawn]]:
    """Make a low-quality image.

    The order is: thick lines; blur, resize, noise, compression; blur, resize, noise; then the final resize with a sinc
    filter, before the compression or after it, equally often.

    Args:
        image: (H, W, C), the high-quality image.
        settings: what is drawn.
        rng: draws everything.
        height_px: rows of the result.
        width_px: its columns.

    Returns:
        (height_px, width_px, C) from 0 to 1, not rounded, and the steps in their order.
    """
    drawn: list[Drawn] = []
    if happens(rng, settings.thick_lines_prob):
        image = with_thick_lines(image)
        drawn.append(Drawn("thick lines", {}))
    image = _before_compression(image, settings.first, rng, image.shape[0], image.shape[1], drawn)
    image = _compressed(image, settings.first, rng, drawn)
    image = _before_compression(image, settings.second, rng, height_px, width_px, drawn)
    resizes_first = happens(rng, 0.5)
    if resizes_first:
        image = _final_size(image, settings, rng, height_px, width_px, drawn)
    image = _compressed(image, settings.second, rng, drawn)
    if not resizes_first:
        image = _final_size(image, settings, rng, height_px, width_px, drawn)
    return np.clip(image, 0, 1), drawn


def _before_compression(
    image: Image, stage: StageSettings, rng: Generator, height_px: int, width_px: int, drawn: list[Drawn]
) -> Image:
    """Blur, resize and add noise; the factor of the resize is one of the given size."""
    if happens(rng, stage.blur_prob):
        kernel, values = drawn_kernel(rng, stage.blur)
        image = filtered(image, kernel)
        drawn.append(Drawn("blur", values))
    factor, mode = drawn_factor(rng, stage.resize_weights, stage.resize_range), chosen(rng, stage.resize_modes)
    size = max(1, round(height_px * factor)), max(1, round(width_px * factor))
    image = resized(image, *size, mode)
    drawn.append(Drawn("resize", {"factor": factor, "mode": mode, "size": size}))
    return _with_noise(image, stage, rng, drawn)


def _with_noise(image: Image, stage: StageSettings, rng: Generator, drawn: list[Drawn]) -> Image:
    is_gaussian, gray = happens(rng, stage.gaussian_prob), happens(rng, stage.gray_prob)
    strength = float(rng.uniform(*(stage.noise_range if is_gaussian else stage.poisson_scale_range)))
    if not strength:
        return image
    name = "gaussian" if is_gaussian else "poisson"
    drawn.append(Drawn("noise", {"kind": name, "strength": strength, "gray": gray}))
    return (with_gaussian_noise if is_gaussian else with_poisson_noise)(rng, image, strength, gray=gray)


def _compressed(image: Image, stage: StageSettings, rng: Generator, drawn: list[Drawn]) -> Image:
    if not happens(rng, stage.compression_prob):
        return image
    codec = chosen(rng, stage.codecs)
    quality = drawn_quality(rng, *stage.quality[codec])
    drawn.append(Drawn("compression", {"codec": codec, "quality": quality}))
    return compressed(image, codec, quality)


def _final_size(
    image: Image, settings: DegradationSettings, rng: Generator, height_px: int, width_px: int, drawn: list[Drawn]
) -> Image:
    mode = chosen(rng, settings.final_modes)
    image = resized(image, height_px, width_px, mode)
    drawn.append(Drawn("final resize", {"mode": mode}))
    if happens(rng, settings.final_sinc_prob):
        size = odd_size(rng, *settings.final_sizes_px)
        cutoff = drawn_cutoff(rng, size, lowest=math.pi / 3)
        image = filtered(image, sinc_kernel(size, cutoff))
        drawn.append(Drawn("final sinc", {"size": size, "cutoff": cutoff}))
    return image
