"""HSLuv of sRGB images: hue, saturation and lightness that are even to the eye.

Source: Boronine, hsluv.org, revision 4: CIELUV (D65) in polar coordinates, with chroma as a share of the largest that
sRGB can show at that lightness and hue. Thresholds are those that traiNNer-redux found float32 to need.
"""

import math

import torch
from torch import Tensor

from trainauto.tasks.sr.losses.color_spaces import linear

FROM_XYZ = (
    (3.240969941904521, -1.537383177570093, -0.498610760293),
    (-0.96924363628087, 1.87596750150772, 0.041555057407175),
    (0.055630079696993, -0.20397695888897, 1.056971514242878),
)
TO_XYZ = (
    (0.41239079926595, 0.35758433938387, 0.18048078840183),
    (0.21263900587151, 0.71516867876775, 0.072192315360733),
    (0.019330818715591, 0.11919477979462, 0.95053215224966),
)
WHITE_U, WHITE_V = 0.19783000664283, 0.46831999493879
KAPPA, EPSILON = 903.2962962, 0.0088564516
GREY_CHROMA = 0.028972067
"""Chroma below which float32 sees no hue: between the largest of greys and the smallest of colours."""
LEAST_DIVISOR = 1e-3
LEAST_CHROMA = 1e-2


def hsluv(image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return hue (degrees, 0 to 360), saturation and lightness (0 to 100) of (N, 3, H, W), each (N, H, W)."""
    lightness, u, v = _luv(linear(image))
    chroma = torch.sqrt(u.square() + v.square())
    hue = torch.atan2(v, u) * (180 / math.pi)
    hue = torch.where(hue < 0, hue + 360, hue)
    hue = torch.where(chroma < GREY_CHROMA, 0.0, hue)
    saturation = chroma / _largest_chroma(lightness, hue).clamp_min(LEAST_CHROMA) * 100
    saturation = torch.where((lightness > 99.99) | (lightness < 0.01), 0.0, saturation).clamp(0, 100)
    return hue, saturation, lightness.clamp(0, 100)


def _luv(light: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return CIELUV of linear RGB; u and v are never exactly zero, where their root and angle have no slope."""
    red, green, blue = light.unbind(dim=1)
    x, y, z = (row[0] * red + row[1] * green + row[2] * blue for row in TO_XYZ)
    lightness = torch.where(y > EPSILON, 116 * y ** (1 / 3) - 16, y * KAPPA)
    divisor = (x + 15 * y + 3 * z).clamp_min(1e-6)
    black = lightness < 1e-4
    u = torch.where(black, 0.0, 13 * lightness * (4 * x / divisor - WHITE_U))
    v = torch.where(black, 0.0, 13 * lightness * (9 * y / divisor - WHITE_V))
    return lightness, torch.where(u == 0, 1e-12, u), torch.where(v == 0, 1e-12, v)


def _largest_chroma(lightness: Tensor, hue: Tensor) -> Tensor:
    """Return how far a ray of this hue goes within sRGB: to the nearest of the six lines that bound it."""
    angle = hue * (math.pi / 180)
    sine, cosine = angle.sin(), angle.cos()
    cube = (lightness + 16) ** 3 / 1560896
    light = torch.where(cube > EPSILON, cube, lightness / KAPPA)
    lengths = []
    for m1, m2, m3 in FROM_XYZ:
        for limit in (0, 1):
            bottom = _away_from_zero((632260 * m3 - 126452 * m2) * light + 126452 * limit)
            slope = (284517 * m1 - 94839 * m3) * light / bottom
            top = (838422 * m3 + 769860 * m2 + 731718 * m1) * lightness * light - 769860 * limit * lightness
            lengths.append(top / bottom / _away_from_zero(sine - slope * cosine))
    stacked = torch.stack(lengths)
    return torch.where(stacked >= 0, stacked, math.inf).amin(dim=0)


def _away_from_zero(divisor: Tensor) -> Tensor:
    """Return a divisor whose size is at least 0.001."""
    return torch.where(divisor >= 0, divisor.clamp_min(LEAST_DIVISOR), divisor.clamp_max(-LEAST_DIVISOR))
