"""PatchGAN: discriminators that judge overlapping patches, on one scale or several."""

from collections.abc import Callable
from typing import ClassVar, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainauto.tasks.sr.archs.argument_checks import require_choice, require_positive_integers
from trainauto.tasks.sr.archs.padding import pad_to
from trainauto.tasks.sr.archs.registry import ARCHS
from trainauto.tasks.sr.archs.spectral_norm import SpectralNormConv2d

NormType = Literal["none", "batch", "batchnorm2d", "instance"]
MOST_DOUBLINGS = 8
"""Most times as many channels as the first convolution has; the published networks stop at eight, or 512 channels."""
LEAST_AT_END = 3
"""Side of the features that the last two convolutions make one judgement of."""


@ARCHS.register("patchgan")
class PatchGAN(nn.Module):
    """neosr's PatchGAN: convolutions that halve, and a judgement of each patch that the last of them sees.

    Sides below ``3 * 2 ** num_layers`` px are mirrored up to that; the published code fails on them.

    Args:
        num_in_ch: channels of the images it judges.
        num_feat: channels of the first convolution; doubled with each further one.
        num_layers: convolutions that halve the sides.
        max_nf_mult: most times as many channels as the first convolution has.
        norm_type: ``none``, ``instance``, or ``batch`` (also ``batchnorm2d``), which couples the samples of a batch.
        use_sigmoid: return probabilities; a GAN loss takes logits, so that this suits a loss of your own.
        use_sn: spectral norm of every convolution.

    Raises:
        ValueError: an argument is out of its range.

    References:
        P. Isola et al., "Image-to-Image Translation with Conditional Adversarial Networks", CVPR 2017,
        https://arxiv.org/abs/1611.07004; T. Wang et al., "pix2pixHD", CVPR 2018, https://arxiv.org/abs/1711.11585.
    """

    is_discriminator: ClassVar[bool] = True
    num_in_ch: int
    """Channels of the input."""

    def __init__(
        self,
        num_in_ch: int = 3,
        num_feat: int = 64,
        num_layers: int = 3,
        max_nf_mult: int = MOST_DOUBLINGS,
        norm_type: NormType = "none",
        use_sigmoid: bool = False,
        use_sn: bool = True,
    ) -> None:
        super().__init__()
        require_positive_integers(
            num_in_ch=num_in_ch, num_feat=num_feat, num_layers=num_layers, max_nf_mult=max_nf_mult
        )
        require_choice("norm_type", norm_type, get_args(NormType))
        self.num_in_ch = num_in_ch
        self.smallest_px = smallest_side(num_layers)
        widths = [num_feat * min(2**doublings, max_nf_mult) for doublings in range(num_layers + 1)]
        self.model = _patch_judge(num_in_ch, widths, use_sigmoid, use_sn, lambda width: [_norm(norm_type, width)])

    def forward(self, image: Tensor) -> Tensor:
        """Judge the patches of (N, num_in_ch, H, W): logits, (N, 1, H', W') with about 1/2**num_layers of the sides."""
        judgements: Tensor = self.model(pad_to(image, self.smallest_px, self.smallest_px))
        return judgements


@ARCHS.register("patchgandiscriminatorsn")
class PatchGANDiscriminatorSN(nn.Module):
    """traiNNer-redux's PatchGAN: that of :class:`PatchGAN` with spectral norm, under other names.

    Args:
        input_nc: channels of the images it judges.
        ndf: channels of the first convolution; doubled with each further one up to 512.
        n_layers: convolutions that halve the sides.
        use_sigmoid: return probabilities; a GAN loss takes logits, so that this suits a loss of your own.

    Raises:
        ValueError: an argument is out of its range.
    """

    is_discriminator: ClassVar[bool] = True
    num_in_ch: int
    """Channels of the input."""

    def __init__(self, input_nc: int = 3, ndf: int = 64, n_layers: int = 3, use_sigmoid: bool = False) -> None:
        super().__init__()
        require_positive_integers(input_nc=input_nc, ndf=ndf, n_layers=n_layers)
        self.num_in_ch = input_nc
        self.smallest_px = smallest_side(n_layers)
        self.model = _patch_judge(input_nc, redux_widths(ndf, n_layers), use_sigmoid, True, lambda _: [])

    def forward(self, image: Tensor) -> Tensor:
        """Judge the patches of (N, input_nc, H, W): logits, (N, 1, H', W') with about 1/2**n_layers of the sides."""
        judgements: Tensor = self.model(pad_to(image, self.smallest_px, self.smallest_px))
        return judgements


@ARCHS.register("multiscalepatchgandiscriminatorsn")
class MultiscalePatchGANDiscriminatorSN(nn.Module):
    """traiNNer-redux's PatchGAN on several scales, which judges a batch as a whole: one logit for all of it.

    The mean over the batch is taken before the loss, so that its samples are coupled: such a batch runs whole.

    Args:
        input_nc: channels of the images it judges.
        ndf: channels of the first convolution; doubled with each further one up to 512.
        n_layers: convolutions that halve the sides.
        use_sigmoid: judge by probabilities; a GAN loss takes logits, so that this suits a loss of your own.
        num_d: scales; each has half the sides of the one before.

    Raises:
        ValueError: an argument is out of its range.
    """

    is_discriminator: ClassVar[bool] = True
    couples_samples: ClassVar[bool] = True
    num_in_ch: int
    """Channels of the input."""

    def __init__(
        self, input_nc: int = 3, ndf: int = 64, n_layers: int = 3, use_sigmoid: bool = False, num_d: int = 3
    ) -> None:
        super().__init__()
        require_positive_integers(input_nc=input_nc, ndf=ndf, n_layers=n_layers, num_d=num_d)
        self.num_in_ch = input_nc
        self.smallest_px = smallest_side(n_layers)
        widths = redux_widths(ndf, n_layers)
        self.layers = nn.ModuleList(
            _patch_judge(input_nc, widths, use_sigmoid, True, lambda _: []) for _ in range(num_d)
        )

    def forward(self, image: Tensor) -> Tensor:
        """Judge a batch (N, input_nc, H, W): one logit, the mean over scales of the means over patches."""
        judgements = []
        for number, layer in enumerate(self.layers):
            if number:
                image = F.avg_pool2d(image, 3, stride=2, padding=1, count_include_pad=False)
            judgements.append(layer(pad_to(image, self.smallest_px, self.smallest_px)).mean())
        return torch.stack(judgements).mean()


def smallest_side(num_layers: int) -> int:
    """Return the smallest side of an image of which so many halvings leave a patch to judge."""
    return LEAST_AT_END * 2**num_layers


def redux_widths(ndf: int, n_layers: int) -> list[int]:
    """Return the channels of each convolution but the last: doubled up to 512."""
    widths = [ndf]
    for _ in range(n_layers):
        widths.append(min(widths[-1] * 2, 512))
    return widths


def _patch_judge(
    channels: int, widths: list[int], use_sigmoid: bool, use_sn: bool, norm: Callable[[int], list[nn.Module]]
) -> nn.Sequential:
    """Return the convolutions: all but the last two halve the sides. Their places in it name the weights."""
    modules: list[nn.Module] = []
    for place, width in enumerate(widths):
        halves, is_first = place < len(widths) - 1, not place
        norms = [] if is_first else norm(width)
        has_bias = not any(isinstance(module, nn.BatchNorm2d) for module in norms)
        modules += [_conv(channels, width, 2 if halves else 1, has_bias, use_sn), *norms, nn.LeakyReLU(0.2, True)]
        channels = width
    modules.append(_conv(channels, 1, 1, True, use_sn))
    return nn.Sequential(*modules, *([nn.Sigmoid()] if use_sigmoid else []))


def _conv(in_channels: int, out_channels: int, stride: int, bias: bool, use_sn: bool) -> nn.Module:
    if use_sn:
        return SpectralNormConv2d(in_channels, out_channels, kernel_size=4, stride=stride, padding=1, bias=bias)
    return nn.Conv2d(in_channels, out_channels, 4, stride, padding=1, bias=bias)


def _norm(norm_type: NormType, channels: int) -> nn.Module:
    if norm_type == "none":
        return nn.Identity()
    return nn.InstanceNorm2d(channels) if norm_type == "instance" else nn.BatchNorm2d(channels)
