"""Options of degradations during training, under the keys of BasicSR and traiNNer-redux."""

from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from trainauto.options.fields import NonNegativeInt, PositiveInt, Section, option, whole

KernelKind = Literal["iso", "aniso", "generalized_iso", "generalized_aniso", "plateau_iso", "plateau_aniso"]
ResizeMode = Literal["area", "bilinear", "bicubic", "nearest-exact", "lanczos", "bilinear-aliased", "bicubic-aliased"]
AugmentationKind = Literal["none", "mixup", "cutmix", "resizemix", "cutblur", "downup", "up"]
Codec = Literal["jpeg", "webp", "avif"]
PresetName = Literal["real-esrgan", "mild", "old-jpeg"]

Probability = Annotated[float, Field(ge=0.0, le=1.0)]
Weight = Annotated[float, Field(ge=0.0)]


def _ordered(bounds: list[float]) -> list[float]:
    if bounds[0] > bounds[1]:
        raise ValueError(f"the first is larger than the second: write [{bounds[1]:g}, {bounds[0]:g}]")
    return bounds


def _around_one(bounds: list[float]) -> list[float]:
    if not bounds[0] <= 1 <= bounds[1]:
        raise ValueError(f"1 must lie in the range, and [{bounds[0]:g}, {bounds[1]:g}] leaves it out")
    return bounds


def _odd(bounds: list[int]) -> list[int]:
    if even := [bound for bound in bounds if not bound % 2]:
        raise ValueError(f"sides of kernels are odd, and {even[0]} is even: write {even[0] - 1} or {even[0] + 1}")
    return bounds


def _some(weights: list[float]) -> list[float]:
    if not any(weights):
        raise ValueError("all weights are 0")
    return weights


_PAIR = Field(min_length=2, max_length=2)
Range = Annotated[list[Weight], _PAIR, AfterValidator(_ordered)]
Factors = Annotated[list[Annotated[float, Field(gt=0.0)]], _PAIR, AfterValidator(_ordered), AfterValidator(_around_one)]
Shapes = Annotated[list[Annotated[float, Field(gt=0.0)]], _PAIR, AfterValidator(_ordered), AfterValidator(_around_one)]
Sigmas = Annotated[list[Annotated[float, Field(gt=0.0)]], _PAIR, AfterValidator(_ordered)]
Sides = Annotated[list[Annotated[int, Field(ge=3)]], _PAIR, AfterValidator(_ordered), AfterValidator(_odd)]
Qualities = Annotated[
    list[Annotated[int, Field(ge=1, le=100), BeforeValidator(whole)]], _PAIR, AfterValidator(_ordered)
]
_SOME = Field(min_length=1)
Kernels = Annotated[list[KernelKind], _SOME]
Modes = Annotated[list[ResizeMode], _SOME]
Codecs = Annotated[list[Codec], _SOME]
Radii = Annotated[list[PositiveInt], _PAIR, AfterValidator(_ordered)]
Directions = Annotated[list[Weight], Field(min_length=3, max_length=3), AfterValidator(_some)]
Weights = Annotated[list[Weight], Field(min_length=1), AfterValidator(_some)]

_PRESET = "null: the preset's"


class DegradationOptions(Section):
    """How a RealESRGANDataset makes low-quality images. Keys of the second stage end in 2."""

    degradation_preset: PresetName = option(
        "real-esrgan",
        "Defaults of the keys below: real-esrgan (BasicSR's ranges), mild (light resizing and JPEG, as in "
        "traiNNer-redux's templates) or old-jpeg (strong JPEG compression, twice).",
    )
    high_order_degradation: bool = option(
        True, "Accepted for traiNNer-redux's files: there is only one pipeline, with two stages."
    )
    high_order_degradations_debug: bool = option(False, "Accepted and ignored: `degrade` shows what is drawn.")
    high_order_degradations_debug_limit: NonNegativeInt = option(100, "Accepted and ignored.")
    gt_usm: bool = option(
        False,
        "Sharpen the high-quality image. Low-quality images are made from the sharpened image, which is also the "
        "target.",
    )
    l1_gt_usm: bool | None = option(
        None,
        "Sharpen the target of losses that compare pixels. If the file sets l1_gt_usm, percep_gt_usm or gan_gt_usm, "
        "low-quality images are made from the sharpened image, as in BasicSR.",
        reason="null: no sharpening",
    )
    percep_gt_usm: bool | None = option(
        None, "Sharpen the target of losses that compare features.", reason="null: no sharpening"
    )
    gan_gt_usm: bool | None = option(
        None, "Sharpen the images that the discriminator sees as real.", reason="null: no sharpening"
    )
    lq_usm: bool = option(False, "Make low-quality images from the sharpened image; the target is not sharpened.")
    lq_usm_radius_range: Radii = option(
        [1, 25], "Range of the radius of lq_usm's Gaussian; even radii become odd.", unit="px"
    )
    thicklines_prob: Probability = option(0.0, "Probability of thickening dark lines before all other degradations.")
    blur_prob: Probability | None = option(None, "Probability of blur.", reason=_PRESET)
    resize_prob: Directions | None = option(
        None, "Weights of enlarging, shrinking and keeping the size, in this order.", reason=_PRESET
    )
    resize_mode_list: Modes | None = option(
        None,
        "Resize modes. bilinear and bicubic are antialiased, as in traiNNer-redux; the -aliased ones are BasicSR's.",
        reason=_PRESET,
    )
    resize_mode_prob: Weights | None = option(None, "Weights of resize_mode_list.", reason="null: all equal")
    resize_range: Factors | None = option(None, "Smallest and largest resize factor.", unit="times", reason=_PRESET)
    gaussian_noise_prob: Probability | None = option(
        None,
        "Probability that the noise is Gaussian. Otherwise it is Poisson noise, also where the probability is 0.",
        reason=_PRESET,
    )
    noise_range: Range | None = option(
        None, "Range of the standard deviation of Gaussian noise; 0 adds no noise.", unit="1/255", reason=_PRESET
    )
    poisson_scale_range: Range | None = option(
        None, "Range of the factor of Poisson noise; 0 adds no noise.", reason=_PRESET
    )
    gray_noise_prob: Probability | None = option(
        None, "Probability that all channels get the same noise.", reason=_PRESET
    )
    jpeg_prob: Probability | None = option(None, "Probability of compression.", reason=_PRESET)
    jpeg_range: Qualities | None = option(None, "Lowest and highest JPEG quality, as integers.", reason=_PRESET)
    codec_list: Codecs = option(["jpeg"], "Codecs of the compression in both stages.", reason="as in Real-ESRGAN")
    codec_prob: Weights | None = option(None, "Weights of codec_list.", reason="null: all equal")
    webp_range: Qualities | None = option(None, "As jpeg_range, for WebP in both stages.", reason="null: jpeg_range")
    avif_range: Qualities | None = option(None, "As jpeg_range, for AVIF in both stages.", reason="null: jpeg_range")
    second_blur_prob: Probability | None = option(None, "As blur_prob, under BasicSR's name.", reason=_PRESET)
    blur_prob2: Probability | None = option(None, "As blur_prob, under traiNNer-redux's name.", reason=_PRESET)
    resize_prob2: Directions | None = option(None, "As resize_prob.", reason=_PRESET)
    resize_mode_list2: Modes | None = option(None, "As resize_mode_list.", reason=_PRESET)
    resize_mode_prob2: Weights | None = option(None, "As resize_mode_prob.", reason="null: all equal")
    resize_range2: Factors | None = option(
        None, "As resize_range, relative to the size of the low-quality image.", unit="times", reason=_PRESET
    )
    gaussian_noise_prob2: Probability | None = option(None, "As gaussian_noise_prob.", reason=_PRESET)
    noise_range2: Range | None = option(None, "As noise_range.", unit="1/255", reason=_PRESET)
    poisson_scale_range2: Range | None = option(None, "As poisson_scale_range.", reason=_PRESET)
    gray_noise_prob2: Probability | None = option(None, "As gray_noise_prob.", reason=_PRESET)
    jpeg_prob2: Probability | None = option(None, "As jpeg_prob.", reason=_PRESET)
    jpeg_range2: Qualities | None = option(None, "As jpeg_range.", reason=_PRESET)
    resize_mode_list3: Modes | None = option(None, "As resize_mode_list, for the last resizing.", reason=_PRESET)
    resize_mode_prob3: Weights | None = option(None, "Weights of resize_mode_list3.", reason="null: all equal")
    dataroot_lq_prob: Probability | None = option(
        None,
        "datasets.train.dataroot_lq_prob, at the place where traiNNer-redux's files have it.",
        reason="null: the value in datasets.train",
    )
    queue_size: NonNegativeInt = option(
        180, "Accepted and ignored: each sample is degraded on its own, so no queue has to mix batches."
    )


class KernelOptions(Section):
    """Blur kernels. As in BasicSR, they belong to the training set. Keys of the second stage end in 2."""

    blur_kernel_size: PositiveInt = option(
        21, "Accepted and ignored: kernels are as large as kernel_range draws them.", unit="px"
    )
    kernel_list: Kernels | None = option(None, "Kinds of blur kernels.", reason=_PRESET)
    kernel_prob: Weights | None = option(None, "Weights of kernel_list.", reason="null: the preset's, or all equal")
    kernel_range: Sides | None = option(None, "Smallest and largest kernel size, both odd.", unit="px", reason=_PRESET)
    sinc_prob: Probability | None = option(
        None, "Probability that the kernel is a sinc filter instead.", reason=_PRESET
    )
    blur_sigma: Sigmas | None = option(
        None, "Range of the standard deviation of the kernels.", unit="px", reason=_PRESET
    )
    betag_range: Shapes | None = option(
        None, "Range of the shape parameter of generalized Gaussian kernels; 1 is Gaussian.", reason=_PRESET
    )
    betap_range: Shapes | None = option(None, "Range of the shape parameter of plateau kernels.", reason=_PRESET)
    blur_kernel_size2: PositiveInt = option(21, "Accepted and ignored, as blur_kernel_size.", unit="px")
    kernel_list2: Kernels | None = option(None, "As kernel_list.", reason=_PRESET)
    kernel_prob2: Weights | None = option(None, "As kernel_prob.", reason="null: the preset's, or all equal")
    kernel_range2: Sides | None = option(None, "As kernel_range.", unit="px", reason=_PRESET)
    sinc_prob2: Probability | None = option(None, "As sinc_prob.", reason=_PRESET)
    blur_sigma2: Sigmas | None = option(None, "As blur_sigma.", unit="px", reason=_PRESET)
    betag_range2: Shapes | None = option(None, "As betag_range.", reason=_PRESET)
    betap_range2: Shapes | None = option(None, "As betap_range.", reason=_PRESET)
    final_sinc_prob: Probability | None = option(
        None, "Probability of a sinc filter together with the last resizing.", reason=_PRESET
    )
    final_kernel_range: Sides | None = option(
        None, "Smallest and largest size of that sinc filter, both odd.", unit="px", reason=_PRESET
    )


WEIGHTED = {
    "aug_prob": "augmentation",
    "moa_probs": "moa_augs",
    "kernel_prob": "kernel_list",
    "kernel_prob2": "kernel_list2",
    "resize_mode_prob": "resize_mode_list",
    "resize_mode_prob2": "resize_mode_list2",
    "resize_mode_prob3": "resize_mode_list3",
    "codec_prob": "codec_list",
}
"""Keys of weights, and what they weigh."""

MOA_NOT_USED = ("moa_debug", "moa_debug_limit")
NOT_USED = ("queue_size", "high_order_degradations_debug", "high_order_degradations_debug_limit")
KERNEL_SIZES_NOT_USED = ("blur_kernel_size", "blur_kernel_size2")
