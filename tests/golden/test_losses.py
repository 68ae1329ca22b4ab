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


FORMULAS = {
    "L1Loss": lambda p, t: np.abs(p - t).mean(),
    "MSELoss": lambda p, t: ((p - t) ** 2).mean(),
    "CharbonnierLoss": lambda p, t: np.sqrt((p - t) ** 2 + 1e-12).mean(),
    "SSIMLoss": lambda p, t: 1 - ssim(p, t),
    "HuberLoss": lambda p, t: ((p - t) ** 2 / 2).mean(),
}

PINNED = {
    "L1Loss": 0.050931311,
    "MSELoss": 0.003200042,
    "CharbonnierLoss": 0.050931311,
    "SSIMLoss": 0.064367141,
    "HuberLoss": 0.001600021,
}


def tensors(*images: Images) -> list[Tensor]:
    return [torch.from_numpy(image).float() for image in images]


@pytest.mark.parametrize("name", PINNED)
def test_values_are_the_pinned_ones(name: str) -> None:
    images = fixed_images()
    assert FORMULAS[name](*images) == pytest.approx(PINNED[name], abs=1e-8)
    assert LOSSES.get(name)()(*tensors(*images)).item() == pytest.approx(PINNED[name], rel=2e-6)


def test_every_loss_is_pinned() -> None:
    pinned = set(PINNED) | {case["loss"] for case in CASES}
    assert set(LOSSES) - {"GANLoss"} == pinned  # GANLoss compares no images: see tests/unit/tasks/sr/losses


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
