"""Metrics against the published formulas, on photographs, with the values pinned.

`python -m tests.golden.test_metrics` writes tests/golden/metrics.json anew from the formulas below, which share no code
with trainauto: luma as BT.601 gives it, SSIM by cv2.filter2D with the Gaussian of OpenCV, cut to where the window fits.
"""

import json
import math
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from skimage import color, data

from trainauto.core.errors import InputError
from trainauto.tasks.sr.metrics import METRICS, better_is_higher, register_metric
from trainauto.tasks.sr.metrics.psnr_ssim import calculate_psnr, calculate_ssim

PINNED = Path(__file__).with_name("metrics.json")
PHOTOGRAPHS = ("astronaut", "chelsea", "coffee", "camera")
SETTINGS = ((0, False), (4, False), (4, True), (3, True))
CASES = [(name, crop, luma) for name in PHOTOGRAPHS for crop, luma in SETTINGS]


def photograph(name: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return 160 x 192 px of a photograph after a quarter of its size and back by bicubic, and as it was."""
    whole = getattr(data, name)()
    reference = np.ascontiguousarray(whole[40:200, 60:252].reshape(160, 192, -1))
    # In float64, so that rounding to pixels comes out alike on every machine.
    pixels = torch.from_numpy(reference).permute(2, 0, 1)[None].double()
    small = torch.nn.functional.interpolate(pixels, scale_factor=0.25, mode="bicubic", antialias=True)
    large = torch.nn.functional.interpolate(small.round().clamp(0, 255), scale_factor=4, mode="bicubic")
    return large.round().clamp(0, 255)[0].permute(1, 2, 0).to(torch.uint8).contiguous().numpy(), reference


def as_compared(pixels: NDArray[np.uint8], crop: int, luma: bool) -> NDArray[np.float64]:
    kept = pixels[crop : pixels.shape[0] - crop, crop : pixels.shape[1] - crop].astype(np.float64)
    if luma and kept.shape[2] == 3:
        red, green, blue = (kept[..., channel] / 255 for channel in range(3))
        kept = (65.481 * red + 128.553 * green + 24.966 * blue + 16)[..., None]
    return kept


def psnr_by_formula(image: NDArray[np.uint8], reference: NDArray[np.uint8], crop: int, luma: bool) -> float:
    difference = as_compared(image, crop, luma) - as_compared(reference, crop, luma)
    return float(20 * np.log10(255 / np.sqrt(np.mean(difference**2))))


def ssim_by_formula(image: NDArray[np.uint8], reference: NDArray[np.uint8], crop: int, luma: bool) -> float:
    one, other = as_compared(image, crop, luma), as_compared(reference, crop, luma)
    return float(np.mean([ssim_of_channel(one[..., c], other[..., c]) for c in range(one.shape[2])]))


def ssim_of_channel(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    kernel = cv2.getGaussianKernel(11, 1.5)
    window = kernel @ kernel.T

    def mean(values: NDArray[np.float64]) -> Any:
        return cv2.filter2D(values, -1, window)[5:-5, 5:-5]

    c1, c2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
    mu_x, mu_y = mean(x), mean(y)
    var_x, var_y, cov = mean(x * x) - mu_x**2, mean(y * y) - mu_y**2, mean(x * y) - mu_x * mu_y
    similarity = (2 * mu_x * mu_y + c1) * (2 * cov + c2) / ((mu_x**2 + mu_y**2 + c1) * (var_x + var_y + c2))
    return float(similarity.mean())


def computed() -> dict[str, dict[str, float]]:
    values = {}
    for name, crop, luma in CASES:
        image, reference = photograph(name)
        values[key(name, crop, luma)] = {
            "psnr": round(psnr_by_formula(image, reference, crop, luma), 6),
            "ssim": round(ssim_by_formula(image, reference, crop, luma), 8),
        }
    return values


def key(name: str, crop: int, luma: bool) -> str:
    return f"{name}, crop {crop}, {'luma' if luma else 'all channels'}"


@pytest.mark.parametrize(("name", "crop", "luma"), CASES)
def test_values_are_the_pinned_ones(name: str, crop: int, luma: bool) -> None:
    pinned = json.loads(PINNED.read_text())[key(name, crop, luma)]
    image, reference = photograph(name)
    settings: dict[str, Any] = {"crop_border": crop, "test_y_channel": luma}
    assert calculate_psnr(image, reference, **settings) == pytest.approx(pinned["psnr"], abs=1e-4)
    assert calculate_ssim(image, reference, **settings) == pytest.approx(pinned["ssim"], abs=1e-6)
    assert psnr_by_formula(image, reference, crop, luma) == pytest.approx(pinned["psnr"], abs=1e-5)
    assert ssim_by_formula(image, reference, crop, luma) == pytest.approx(pinned["ssim"], abs=1e-7)


def test_pinned_values_tell_the_settings_apart() -> None:
    pinned = json.loads(PINNED.read_text())
    assert len(pinned) == len(CASES)
    colour = [value["psnr"] for name, value in pinned.items() if not name.startswith("camera")]
    assert len(set(colour)) == len(colour)
    assert all(15 < value["psnr"] < 40 and 0.3 < value["ssim"] < 0.99 for value in pinned.values())


def test_luma_is_that_of_scikit_image() -> None:
    image, reference = photograph("coffee")
    luma = [color.rgb2ycbcr(pixels)[..., 0] for pixels in (image, reference)]
    expected = 10 * math.log10(255**2 / np.mean((luma[0] - luma[1]) ** 2))
    assert calculate_psnr(image, reference, test_y_channel=True) == pytest.approx(expected, abs=1e-9)


def test_identical_images() -> None:
    _, reference = photograph("chelsea")
    assert calculate_psnr(reference, reference) == math.inf
    assert calculate_psnr(reference, reference, test_y_channel=True) == math.inf
    assert calculate_ssim(reference, reference) == pytest.approx(1.0, abs=1e-12)


def test_black_and_white() -> None:
    black, white = np.zeros((16, 16, 3), np.uint8), np.full((16, 16, 3), 255, np.uint8)
    assert calculate_psnr(black, white) == 0.0
    assert calculate_psnr(black, white, test_y_channel=True) == pytest.approx(20 * math.log10(255 / 219))
    assert calculate_ssim(black, white) == pytest.approx(1e-4, rel=1e-3)  # c1 / (255^2 + c1)


def test_grey_images_have_no_luma_to_take() -> None:
    image, reference = photograph("camera")
    assert image.shape == (160, 192, 1)
    for metric in (calculate_psnr, calculate_ssim):
        assert metric(image, reference, test_y_channel=True) == metric(image, reference)


def test_the_smallest_image_that_ssim_takes() -> None:
    image, reference = (pixels[:19, :23] for pixels in photograph("chelsea"))
    value = calculate_ssim(image, reference, crop_border=4)
    assert value == pytest.approx(ssim_by_formula(image, reference, 4, False), abs=1e-9)
    with pytest.raises(ValueError, match=r"needs at least 11x11 px; an image of 19x23 px leaves 9x13 px .* 5 px"):
        calculate_ssim(image, reference, crop_border=5)


@pytest.mark.parametrize("metric", [calculate_psnr, calculate_ssim])
def test_what_cannot_be_compared_is_refused(metric: Any) -> None:
    image = np.zeros((20, 30, 3), np.uint8)
    with pytest.raises(ValueError, match="the image is 20x30x3, its reference 20x28x3"):
        metric(image, image[:, :28])
    with pytest.raises(ValueError, match="crop_border 10 leaves nothing of an image of 20x30 px"):
        metric(image, image, crop_border=10)
    with pytest.raises(ValueError, match="crop_border -1"):
        metric(image, image, crop_border=-1)
    for wrong in (image.astype(np.float32), image[..., 0], image[..., :2]):
        with pytest.raises(ValueError, match="uint8 images of shape"):
            metric(wrong, wrong)


def test_names_and_directions() -> None:
    assert list(METRICS) == ["calculate_dists", "calculate_lpips", "calculate_psnr", "calculate_ssim"]
    assert METRICS.get("PSNR") is calculate_psnr
    assert METRICS.get("ssim") is calculate_ssim
    assert better_is_higher("Calculate_PSNR")
    assert better_is_higher("ssim")
    with pytest.raises(InputError, match="calculate_psnr"):
        better_is_higher("calculate_psn")


def test_a_metric_of_ones_own_points_where_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    for table in ("_entries", "_shown"):
        monkeypatch.setattr(METRICS, table, dict(getattr(METRICS, table)))
    monkeypatch.setattr(METRICS, "_aliases", set(METRICS._aliases))

    @register_metric("mean_error", better_is_higher=False)
    def mean_error(image: NDArray[np.uint8], reference: NDArray[np.uint8]) -> float:
        return float(np.mean(np.abs(image.astype(float) - reference)))

    @METRICS.register("said_nothing")
    def said_nothing(image: NDArray[np.uint8], reference: NDArray[np.uint8]) -> float:
        return 0.0

    assert not better_is_higher("mean_error")
    assert better_is_higher("said_nothing")


if __name__ == "__main__":
    PINNED.write_text(json.dumps(computed(), indent=2) + "\n")
