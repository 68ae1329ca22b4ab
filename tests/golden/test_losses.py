"""Losses on fixed inputs: the values that the formulas give in float64, and these values pinned."""

import cv2
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from tests.golden.test_loss_values import CASES
from tests.golden.test_metrics import photograph
from trainauto.tasks.sr.losses import LOSSES
from trainauto.tasks.sr.losses.ssim_loss import gaussian_window
from trainauto.tasks.sr.metrics.psnr_ssim import calculate_ssim

Images = NDArray[np.float64]


def fixed_images(height: int = 24, width: int = 20, channels: int = 3) -> tuple[Images, Images]:
    """Return two different (2, C, H, W) images made of waves, 0 to 1, the same on every machine."""
    n, c, y, x = np.meshgrid(*(np.arange(size) for size in (2, channels, height, width)), indexing="ij")
    target = 0.5 + 0.4 * np.sin(0.7 * x + 0.3 * y + c) * np.cos(0.2 * y * (n + 1))
    prediction = target + 0.08 * np.cos(1.9 * x - 0.8 * y + 2 * c + n)
    return prediction.clip(0, 1), target


def ssim(prediction: Images, target: Images, size: int = 11) -> float:
    kernel = cv2.getGaussianKernel(size, 1.5 * size / 11)
    window, edge = kernel @ kernel.T, size // 2

    def mean(image: NDArray[np.float64]) -> NDArray[np.float64]:
        filtered: NDArray[np.float64] = cv2.filter2D(image, -1, window)
        return filtered[edge : image.shape[0] - edge, edge : image.shape[1] - edge]

    values = []
    for p, t in zip(prediction.reshape(-1, *prediction.shape[2:]), target.reshape(-1, *target.shape[2:]), strict=True):
        mp, mt = mean(p), mean(t)
        vp, vt, cov = mean(p * p) - mp**2, mean(t * t) - mt**2, mean(p * t) - mp * mt
        values.append(((2 * mp * mt + 1e-4) * (2 * cov + 9e-4) / ((mp**2 + mt**2 + 1e-4) * (vp + vt + 9e-4))).mean())
    return float(np.mean(values))


def ldl(prediction: Images, target: Images) -> float:
    residual = np.abs(target - prediction).sum(axis=1)
    padded = np.pad(residual, ((0, 0), (3, 3), (3, 3)), mode="reflect")
    local = np.lib.stride_tricks.sliding_window_view(padded, (7, 7), axis=(1, 2)).var(axis=(3, 4), ddof=1)
    weights = local * residual.var(axis=(1, 2), ddof=1)[:, None, None] ** 0.2
    return float(np.abs(weights[:, None] * (prediction - target)).mean())


def zero_padded_mssim(prediction: Images, target: Images) -> float:
    kernel = cv2.getGaussianKernel(11, 1.5)

    def mean(image: NDArray[np.float64]) -> NDArray[np.float64]:
        filtered: NDArray[np.float64] = cv2.filter2D(image, -1, kernel @ kernel.T, borderType=cv2.BORDER_CONSTANT)
        return filtered

    def halved(image: NDArray[np.float64]) -> NDArray[np.float64]:
        rows, columns = (side % 2 for side in image.shape)
        whole = np.pad(image, ((rows, rows), (columns, columns)))[: (image.shape[0] + 2 * rows) // 2 * 2]
        whole = whole[:, : (image.shape[1] + 2 * columns) // 2 * 2]
        return whole.reshape(len(whole) // 2, 2, -1, 2).mean(axis=(1, 3))

    scores = []
    for sample_p, sample_t in zip(prediction, target, strict=True):
        pairs, score = list(zip(sample_p, sample_t, strict=True)), 1.0
        for scale, weight in enumerate((0.0448, 0.2856, 0.3001, 0.2363, 0.1333)):
            values = []
            for p, t in pairs:
                mp, mt = mean(p), mean(t)
                value = (2 * (mean(p * t) - mp * mt) + 9e-4) / (mean(p * p) - mp**2 + mean(t * t) - mt**2 + 9e-4)
                values.append(value * ((2 * mp * mt + 1e-4) / (mp**2 + mt**2 + 1e-4) if scale == 4 else 1))
            score *= np.mean(values) ** weight
            pairs = [(halved(p), halved(t)) for p, t in pairs]
        scores.append(score)
    return 1 - float(np.mean(scores))


def linear(image: Images) -> Images:
    return np.where(image <= 0.04045, image / 12.92, ((image + 0.055) / 1.055) ** 2.4)


def consistency(prediction: Images, target: Images) -> float:
    def lightness(image: Images) -> Images:
        blurred = np.stack([[cv2.GaussianBlur(c, (21, 21), 3) for c in sample] for sample in image])
        y = np.einsum("nchw,c->nhw", linear(blurred), [0.2126, 0.7152, 0.0722])
        return np.where(y <= 216 / 24389, y * y * 24389 / 27, 116 * np.cbrt(y) - 16) / 100

    def chroma(image: Images) -> Images:
        cones = [
            [0.4122214708, 0.5363325363, 0.0514459929],
            [0.2119034982, 0.6806995451, 0.1073969566],
            [0.0883024619, 0.2817188376, 0.6299787005],
        ]
        to_ab = [[1.9779984951, -2.4285922050, 0.4505937099], [0.0259040371, 0.7827717662, -0.8086757660]]
        return np.einsum("ac,nchw->nahw", to_ab, np.cbrt(np.einsum("kc,nchw->nkhw", cones, linear(image)))) + 0.5

    def cosine(x: Images, y: Images) -> Images:
        return (x * y).sum(axis=1) / np.linalg.norm(x, axis=1) / np.linalg.norm(y, axis=1)

    x, y = (image.clip(1 / 255, 1) for image in (prediction, target))
    light, colour = (lightness(x), lightness(y)), (chroma(x), chroma(y))
    each = sum(np.sqrt((a - b) ** 2 + 1e-12).reshape(len(x), -1).mean(axis=1) for a, b in (light, colour))
    cosines = 1 - cosine(*colour).mean(axis=(1, 2)) / 2 - cosine(*light).mean(axis=1) / 2
    return float((each + np.where(cosines < 1e-3, cosines, 0)).mean())


FORMULAS = {
    "L1Loss": lambda p, t: np.abs(p - t).mean(),
    "MSELoss": lambda p, t: ((p - t) ** 2).mean(),
    "CharbonnierLoss": lambda p, t: np.sqrt((p - t) ** 2 + 1e-12).mean(),
    "SSIMLoss": lambda p, t: 1 - ssim(p, t),
    "HuberLoss": lambda p, t: ((p - t) ** 2 / 2).mean(),
    "CHC_Loss": lambda p, t: np.sqrt((p - t) ** 2 + 1e-12).clip(0.003921, 0.996078).mean(),
    "LDL_Loss": ldl,
    "MSSIM_Loss": zero_padded_mssim,
    "Consistency_Loss": consistency,
}

PINNED = {
    "L1Loss": 0.050931311,
    "MSELoss": 0.003200042,
    "CharbonnierLoss": 0.050931311,
    "SSIMLoss": 0.064367141,
    "HuberLoss": 0.001600021,
    "CHC_Loss": 0.050991943,
    "LDL_Loss": 8.371399408e-07,
    "MSSIM_Loss": 0.004219723,
    "Consistency_Loss": 0.027624404,
}
LEAST_ERROR = {"MSSIM_Loss": 2e-7, "LDL_Loss": 0.0}
"""One less a number near one has float32's error of one; values that are all small have less."""


def tensors(*images: Images) -> list[Tensor]:
    return [torch.from_numpy(image).float() for image in images]


@pytest.mark.parametrize("name", PINNED)
def test_values_are_the_pinned_ones(name: str) -> None:
    images = fixed_images()
    least = LEAST_ERROR.get(name, 1e-8)
    assert FORMULAS[name](*images) == pytest.approx(PINNED[name], rel=2e-7, abs=least)
    assert LOSSES.get(name)()(*tensors(*images)).item() == pytest.approx(PINNED[name], rel=2e-6, abs=least)


def test_every_loss_is_pinned() -> None:
    pinned = set(PINNED) | {case["loss"] for case in CASES}
    of_towers = {"DISTSLoss", "LPIPSLoss", "PerceptualFP16Loss", "PerceptualLoss", "VGGPerceptualLoss"}
    of_judgements = {"GANLoss", "GAN_Loss"}
    # The former are in test_tower_values.py, the latter in tests/unit/tasks/sr/losses.
    assert set(LOSSES) - of_towers - of_judgements == pinned


def test_charbonnier_is_smooth_where_eps_is_large() -> None:
    prediction, target = fixed_images()
    expected = np.sqrt((prediction - target) ** 2 + 0.01).mean()
    loss = LOSSES.get("charbonnier")(eps=0.01)
    assert loss(*tensors(prediction, target)).item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("height", "width", "window"), [(11, 11, 11), (11, 40, 11), (10, 40, 9), (9, 9, 9), (6, 5, 5), (2, 9, 1), (1, 1, 1)]
)
@pytest.mark.parametrize("channels", [1, 3])
def test_ssim_of_small_images_takes_the_largest_odd_window_that_fits(
    height: int, width: int, window: int, channels: int
) -> None:
    images = fixed_images(height, width, channels)
    assert len(gaussian_window(min(height, width), torch.device("cpu"))) == window
    loss = LOSSES.get("ssim")()(*tensors(*images)).item()
    assert loss == pytest.approx(1 - ssim(*images, window), abs=2e-6)


@pytest.mark.parametrize("name", ["coffee", "camera"])
def test_ssim_loss_agrees_with_the_metric(name: str) -> None:
    pixels = photograph(name)
    image, reference = (torch.from_numpy(one).permute(2, 0, 1)[None] / 255 for one in pixels)
    assert 1 - LOSSES.get("ssim")()(image, reference).item() == pytest.approx(calculate_ssim(*pixels), abs=2e-6)
