"""What a degradation draws, and from which ranges."""

from collections.abc import Mapping
from dataclasses import dataclass

Range = tuple[float, float]
"""Lowest and highest value of a uniform draw."""


@dataclass(frozen=True)
class BlurSettings:
    """The kernels a blur draws from.

    Attributes:
        kinds: names of :data:`~trainauto.tasks.sr.degradations.kernels.KINDS`, each with its weight.
        sizes_px: smallest and largest side of a kernel, both odd.
        sinc_prob: how often the kernel is a sinc filter instead.
        sigma_px: standard deviations of the Gaussian kernels.
        beta_generalized: shape of generalized Gaussian kernels; 1 lies in it.
        beta_plateau: shape of plateau-shaped kernels; 1 lies in it.
    """

    kinds: Mapping[str, float]
    sizes_px: tuple[int, int]
    sinc_prob: float
    sigma_px: Range
    beta_generalized: Range
    beta_plateau: Range


@dataclass(frozen=True)
class StageSettings:
    """One of the two stages.

    Attributes:
        blur_prob: how often the image is blurred.
        blur: with what.
        resize_weights: how often it is enlarged, shrunk, and kept.
        resize_range: smallest and largest factor, below and above 1.
        resize_modes: names of :data:`~trainauto.tasks.sr.degradations.resizing.MODES`, each with its weight.
        gaussian_prob: how often the noise is Gaussian; otherwise it is Poisson noise.
        noise_range: standard deviation of Gaussian noise, in 255ths.
        poisson_scale_range: factor of Poisson noise.
        gray_prob: how often noise is the same in all channels.
        compression_prob: how often the image is compressed.
        codecs: names of :data:`~trainauto.tasks.sr.degradations.compression.CODECS`, each with its weight.
        quality: lowest and highest quality by codec, whole numbers.
    """

    blur_prob: float
    blur: BlurSettings
    resize_weights: tuple[float, float, float]
    resize_range: Range
    resize_modes: Mapping[str, float]
    gaussian_prob: float
    noise_range: Range
    poisson_scale_range: Range
    gray_prob: float
    compression_prob: float
    codecs: Mapping[str, float]
    quality: Mapping[str, tuple[int, int]]


@dataclass(frozen=True)
class DegradationSettings:
    """The whole of it.

    Attributes:
        first: the first stage.
        second: the second one, whose compression comes last or before the last resize.
        final_modes: modes of the resize to the final size, each with its weight.
        final_sinc_prob: how often a sinc filter comes with that.
        final_sizes_px: smallest and largest side of that filter, both odd.
        thick_lines_prob: how often dark lines are made thicker before all else.
    """

    first: StageSettings
    second: StageSettings
    final_modes: Mapping[str, float]
    final_sinc_prob: float
    final_sizes_px: tuple[int, int]
    thick_lines_prob: float
