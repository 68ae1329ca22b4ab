"""FLIP: what an eye sees where two images are flipped between, from a given distance.

Source: Andersson et al., "FLIP: A Difference Evaluator for Alternating Images", HPG 2020.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from trainauto.tasks.sr.losses.base import WeightedLoss
from trainauto.tasks.sr.losses.color_spaces import linear, require_rgb
from trainauto.tasks.sr.losses.registry import LOSSES

PIXELS_PER_DEGREE = 67.02064327658226
"""Of a display of 0.7 m and 3840 px from 0.7 m away."""
COLOUR_EXPONENT, FEATURE_EXPONENT = 0.7, 0.5
KNEE_AT, KNEE_TO = 0.4, 0.95
"""Share of the largest colour difference that is mapped to that much of the whole range."""
FEATURE_WIDTH_DEG = 0.082
SMALLEST = 1e-4
"""Differences are taken to be no smaller, whose powers below one would have no bounded slope."""

# Contrast sensitivity: factors and widths of two Gaussians for brightness, red to green, blue to yellow.
SENSITIVITY = (((1.0, 0.0047),), ((1.0, 0.0053),), ((34.1, 0.04), (13.5, 0.025)))
WIDEST = 0.04

TO_XYZ = (
    (10135552 / 24577794, 8788810 / 24577794, 4435075 / 24577794),
    (2613072 / 12288897, 8788810 / 12288897, 887015 / 12288897),
    (1425312 / 73733382, 8788810 / 73733382, 70074185 / 73733382),
)
FROM_XYZ = torch.linalg.inv(torch.tensor(TO_XYZ, dtype=torch.float64)).tolist()
WHITE = (0.950428545, 1.0, 1.088900371)


@LOSSES.register("FLIPLoss", "flip")
class FLIPLoss(WeightedLoss):
    """Mean FLIP error of all pixels, from 0 to 1: colours as far as an eye resolves them, and edges and points.

    Of equal images it is 0.0001, since differences are taken to be no smaller than keeps slopes finite.

    Args:
        loss_weight: factor of this term in the sum that is minimised.
        pixels_per_degree: of the eye's field; more is a viewer further away, who sees less of fine differences.

    Raises:
        ValueError: ``pixels_per_degree`` is not positive.
    """

    def __init__(self, loss_weight: float = 1.0, pixels_per_degree: float = PIXELS_PER_DEGREE) -> None:
        super().__init__(loss_weight)
        if not pixels_per_degree > 0:
            raise ValueError(f"pixels_per_degree must be positive, not {pixels_per_degree}")
        self.pixels_per_degree = pixels_per_degree

    def compute(self, prediction: Tensor, target: Tensor) -> Tensor:
        """Return the mean over pixels."""
        require_rgb(prediction, "FLIPLoss")
        x, y = (_opponents(_mixed(linear(image), TO_XYZ)) for image in (prediction, target))
        # By channel, of both images: (N, 2, H, W) each.
        pairs = [torch.cat(pair, dim=1) for pair in zip(x.chunk(3, dim=1), y.chunk(3, dim=1), strict=True)]
        x, y = (
            torch.cat(parts, dim=1) for parts in zip(*(p.chunk(2, dim=1) for p in self._blurred(pairs)), strict=True)
        )
        colour = _redistributed(_hyab(_as_seen(x), _as_seen(y)))
        return (colour ** (1 - self._feature_difference((pairs[0] + 16) / 116))).mean()

    def _blurred(self, pairs: list[Tensor]) -> list[Tensor]:
        """Return opponent colours as blurred as the eye sees them."""
        radius = math.ceil(3 * math.sqrt(WIDEST / (2 * math.pi**2)) * self.pixels_per_degree)
        degrees = torch.arange(-radius, radius + 1, device=pairs[0].device) / self.pixels_per_degree
        channels = []
        for channel, gaussians in zip(pairs, SENSITIVITY, strict=True):
            blurred, total = torch.zeros_like(channel), torch.zeros((), device=channel.device)
            for factor, width in gaussians:
                window = torch.exp(-(math.pi**2) * degrees.square() / width)
                share = factor * math.sqrt(math.pi / width) * window.sum() ** 2
                blurred = blurred + share * _separable(channel, window / window.sum(), window / window.sum())
                total = total + share
            channels.append(blurred / total)
        return channels

    def _feature_difference(self, pair: Tensor) -> Tensor:
        """Return the difference of edges or points, whichever is larger (N, 1, H, W), 0 to 1, of brightness."""
        sigma = 0.5 * FEATURE_WIDTH_DEG * self.pixels_per_degree
        radius = math.ceil(3 * sigma)
        at = torch.arange(-radius, radius + 1, device=pair.device)
        window = torch.exp(-at.square() / (2 * sigma**2))
        differences = []
        for kernel in (-at * window, (at.square() / sigma**2 - 1) * window):
            # Positive values add up to one, and negative ones to minus one.
            kernel = kernel / torch.where(kernel < 0, -kernel.clamp_max(0).sum(), kernel.clamp_min(0).sum())
            x, y = _strength(pair, kernel, window).chunk(2, dim=1)
            differences.append((x - y).abs())
        larger = torch.maximum(*differences).clamp_min(SMALLEST)
        return (larger / math.sqrt(2)) ** FEATURE_EXPONENT


def _strength(image: Tensor, kernel: Tensor, window: Tensor) -> Tensor:
    """Return how strong a feature is, across and down together."""
    across, down = _separable(image, window / window.sum(), kernel), _separable(image, kernel, window / window.sum())
    squares = across.square() + down.square()
    return torch.where(squares > SMALLEST**2, squares, SMALLEST**2).sqrt()


def _separable(image: Tensor, down: Tensor, across: Tensor) -> Tensor:
    """Return (N, 2, H, W) filtered down and across, the border continued.

    Each of several channels is a group of its own: such convolutions never run in TF32.
    """
    channels = image.shape[1]
    image = F.pad(image, [len(across) // 2] * 2 + [len(down) // 2] * 2, mode="replicate")
    image = F.conv2d(image, down.view(1, 1, -1, 1).expand(channels, -1, -1, -1), groups=channels)
    return F.conv2d(image, across.view(1, 1, 1, -1).expand(channels, -1, -1, -1), groups=channels)


def _mixed(image: Tensor, rows: tuple[tuple[float, ...], ...] | list[list[float]]) -> Tensor:
    """Return sums of channels with these factors."""
    first, second, third = image.chunk(3, dim=1)
    return torch.cat([a * first + b * second + c * third for a, b, c in rows], dim=1)


def _opponents(xyz: Tensor) -> Tensor:
    """Return brightness, red to green and blue to yellow: linear in light, so that they can be blurred."""
    x, y, z = (part / white for part, white in zip(xyz.chunk(3, dim=1), WHITE, strict=True))
    return torch.cat((116 * y - 16, 500 * (x - y), 200 * (y - z)), dim=1)


def _as_seen(opponents: Tensor) -> Tensor:
    """Return CIELAB of opponent colours, less colourful where it is dark (Hunt)."""
    brightness, red_green, blue_yellow = opponents.chunk(3, dim=1)
    y = (brightness + 16) / 116
    parts = (red_green / 500 + y, y, y - blue_yellow / 200)
    xyz = torch.cat([part * white for part, white in zip(parts, WHITE, strict=True)], dim=1)
    return _hunt(_mixed(_mixed(xyz, FROM_XYZ).clamp(0, 1), TO_XYZ))


def _hunt(xyz: Tensor) -> Tensor:
    x, y, z = (_lab_curve(part / white) for part, white in zip(xyz.chunk(3, dim=1), WHITE, strict=True))
    lightness = 116 * y - 16
    return torch.cat((lightness, 5 * lightness * (x - y), 2 * lightness * (y - z)), dim=1)


def _lab_curve(light: Tensor) -> Tensor:
    knee = (6 / 29) ** 3
    root = torch.where(light > knee, light, knee) ** (1 / 3)
    return torch.where(light > knee, root, light / (3 * (6 / 29) ** 2) + 4 / 29)


def _hyab(x: Tensor, y: Tensor) -> Tensor:
    """Return the distance of lightness plus that of the other two, (N, 1, H, W)."""
    squares = (x[:, 1:] - y[:, 1:]).square().sum(dim=1, keepdim=True)
    of_colour = torch.where(squares > SMALLEST**2, squares, SMALLEST**2).sqrt()
    return (x[:, :1] - y[:, :1]).abs() + of_colour


def _redistributed(difference: Tensor) -> Tensor:
    """Return differences from 0 to 1, of which most of the range is for small ones."""
    largest = LARGEST**COLOUR_EXPONENT
    knee = KNEE_AT * largest
    powers = difference.clamp_min(SMALLEST) ** COLOUR_EXPONENT
    above = KNEE_TO + (powers - knee) / (largest - knee) * (1 - KNEE_TO)
    return torch.where(powers < knee, KNEE_TO / knee * powers, above)


def _of_primary(at: int) -> Tensor:
    return _hunt(torch.tensor([row[at] for row in TO_XYZ]).view(1, 3, 1, 1))


LARGEST = float(_hyab(_of_primary(1), _of_primary(2)))
"""Between pure green and pure blue."""
