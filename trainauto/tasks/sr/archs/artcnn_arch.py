"""ArtCNN: residual blocks of plain convolutions, and one that makes the pixels of the output."""

import torch.nn.functional as F
from torch import Tensor, nn

from trainauto.core.plan import SizeRequirements
from trainauto.tasks.sr.archs.argument_checks import require_odd, require_positive_integers
from trainauto.tasks.sr.archs.registry import ARCHS, register_preset


def _conv(given: int, made: int, kernel_size: int) -> nn.Conv2d:
    return nn.Conv2d(given, made, kernel_size, padding=kernel_size // 2)


class ResidualConvs(nn.Module):
    """Three convolutions, the first two followed by ReLU, added to their input."""

    def __init__(self, filters: int, kernel_size: int) -> None:
        super().__init__()
        activated = [nn.Sequential(_conv(filters, filters, kernel_size), nn.ReLU(inplace=True)) for _ in range(2)]
        self.conv = nn.Sequential(*activated, _conv(filters, filters, kernel_size))

    def forward(self, features: Tensor) -> Tensor:
        return features + self.conv(features)


class PixelHead(nn.Module):
    """A convolution to all pixels that each pixel becomes."""

    def __init__(self, filters: int, num_out_ch: int, kernel_size: int, scale: int) -> None:
        super().__init__()
        self.upscale = nn.Sequential(_conv(filters, num_out_ch * scale**2, kernel_size))
        self.scale = scale

    def forward(self, features: Tensor) -> Tensor:
        return F.pixel_shuffle(self.upscale(features), self.scale)


@ARCHS.register("artcnn_r16f96", "artcnn")
class ArtCNN(nn.Module):
    """Residual network of plain convolutions, made for animation; defaults are those of the large size (R16F96).

    Args:
        num_in_ch: channels of the input.
        num_out_ch: channels of the output.
        scale: enlargement factor, any whole number.
        filters: channels between the convolutions.
        n_block: residual blocks, of three convolutions each.
        kernel_size: side of all convolutions, odd.

    Raises:
        ValueError: an argument is out of its range.

    References:
        https://github.com/Artoriuz/ArtCNN, and its form in PyTorch, https://github.com/umzi2/ArtCNN-PyTorch, whose
        names of weights these are.
    """

    num_in_ch: int
    """Channels of the input."""
    scale: int
    """Enlargement factor."""
    size_requirements: SizeRequirements
    """Any side will do."""

    def __init__(
        self,
        num_in_ch: int = 3,
        num_out_ch: int = 3,
        scale: int = 4,
        filters: int = 96,
        n_block: int = 16,
        kernel_size: int = 3,
    ) -> None:
        super().__init__()
        require_positive_integers(num_in_ch=num_in_ch, num_out_ch=num_out_ch, scale=scale)
        require_positive_integers(filters=filters, n_block=n_block)
        require_odd(kernel_size=kernel_size)
        self.num_in_ch = num_in_ch
        self.scale = scale
        self.size_requirements = SizeRequirements()
        self.conv0 = _conv(num_in_ch, filters, kernel_size)
        blocks = [ResidualConvs(filters, kernel_size) for _ in range(n_block)]
        self.res_block = nn.Sequential(*blocks, _conv(filters, filters, kernel_size))
        self.depth_to_space = PixelHead(filters, num_out_ch, kernel_size, scale)

    def forward(self, image: Tensor) -> Tensor:
        """Enlarge (N, num_in_ch, H, W) to (N, num_out_ch, H * scale, W * scale)."""
        shallow = self.conv0(image)
        return self.depth_to_space(self.res_block(shallow) + shallow)


register_preset(
    ArtCNN, "artcnn_r8f64", about="ArtCNN of half the depth and two thirds of the width", filters=64, n_block=8
)
