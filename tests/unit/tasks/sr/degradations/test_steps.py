"""Each step of a degradation against closed forms, or against an independent implementation."""

import math

import cv2
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numpy.random import Generator

from trainauto.tasks.sr.degradations import generator_of
from trainauto.tasks.sr.degradations.compression import CODECS, compressed, drawn_quality
from trainauto.tasks.sr.degradations.draws import around_one, chosen, odd_size
from trainauto.tasks.sr.degradations.image import to_image, to_pixels
from trainauto.tasks.sr.degradations.kernels import (
    filtered,
    gaussian_kernel,
    generalized_kernel,
    plateau_kernel,
    sinc_kernel,
)
from trainauto.tasks.sr.degradations.noise import with_gaussian_noise, with_poisson_noise
from trainauto.tasks.sr.degradations.resizing import MODES, drawn_factor, resized
from trainauto.tasks.sr.degradations.sharpening import sharpened, with_thick_lines


@pytest.fixture
def rng() -> Generator:
    return generator_of(7)


def second_moments(kernel: np.ndarray) -> np.ndarray:
    axis = np.arange(len(kernel)) - len(kernel) // 2
    y, x = np.meshgrid(axis, axis, indexing="ij")
    return np.array(
        [[(kernel * x * x).sum(), (kernel * x * y).sum()], [(kernel * x * y).sum(), (kernel * y * y).sum()]]
    )


def test_moments_of_gaussian_kernels_are_their_covariance(rng: Generator) -> None:
    for _ in range(20):
        sigma_x, sigma_y, angle = rng.uniform(0.8, 3), rng.uniform(0.8, 3), rng.uniform(-math.pi, math.pi)
        kernel = gaussian_kernel(41, sigma_x, sigma_y, angle)
        turn = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
        covariance = turn @ np.diag([sigma_x**2, sigma_y**2]) @ turn.T
        assert second_moments(kernel) == pytest.approx(covariance, rel=2e-3, abs=2e-3)
        assert kernel.sum() == pytest.approx(1, abs=1e-5)


def test_generalized_kernels_have_the_variance_of_their_shape() -> None:
    """Of exp(-r^(2 beta) / 2) in two dimensions: E[r^2] = 2^(1/beta) G(2/beta) / G(1/beta), half on each axis."""
    for beta in (0.7, 1.0, 2.0, 4.0):
        kernel = generalized_kernel(121, 6.0, 6.0, 0.0, beta)
        expected = 36 * 2 ** (1 / beta) * math.gamma(2 / beta) / math.gamma(1 / beta) / 2
        assert second_moments(kernel)[0, 0] == pytest.approx(expected, rel=0.02)
    assert np.allclose(generalized_kernel(21, 2, 1, 0.3, 1.0), gaussian_kernel(21, 2, 1, 0.3))


def test_plateau_kernels_fall_to_half_at_one_sigma() -> None:
    kernel = plateau_kernel(21, 4.0, 2.0, 0.0, 1.7)
    assert kernel[10, 14] == pytest.approx(kernel[10, 10] / 2, rel=1e-5)
    assert kernel[12, 10] == pytest.approx(kernel[10, 10] / 2, rel=1e-5)


def test_a_sinc_filter_lets_low_frequencies_pass_alone() -> None:
    kernel = sinc_kernel(101, math.pi / 3)
    response = np.abs(np.fft.fft2(kernel, (360, 360)))
    assert response[0, 0] == pytest.approx(1, abs=1e-5)
    assert response[0, 40] == pytest.approx(1, abs=0.1)  # 2 pi 40 / 360 is below the cutoff, 80 above it
    assert response[0, 80] == pytest.approx(0, abs=0.1)


@pytest.mark.parametrize("gray", [False, True])
def test_gaussian_noise_has_the_variance_drawn(rng: Generator, gray: bool) -> None:
    image = np.full((200, 200, 3), 0.5, np.float32)
    noise = with_gaussian_noise(rng, image, 10.0, gray=gray) - image
    assert noise.std() * 255 == pytest.approx(10, rel=0.02)
    between = np.corrcoef(noise[..., 0].ravel(), noise[..., 1].ravel())[0, 1]
    assert between == pytest.approx(1 if gray else 0, abs=0.02)


def test_poisson_noise_has_mean_and_variance_of_its_level(rng: Generator) -> None:
    ramp = to_image(np.tile(np.arange(256, dtype=np.uint8)[None, :, None], (1500, 1, 3)))
    noise = with_poisson_noise(rng, ramp, 0.3, gray=False) - ramp
    inside = noise[:, 30:200]  # away from the clipped ends: deviations are below 0.3 / 16
    level = ramp[0, 30:200, 0]
    assert inside.mean((0, 2)) == pytest.approx(np.zeros(170), abs=0.0015)
    assert np.median(inside.var((0, 2)) / (level / 256 * 0.09)) == pytest.approx(1, rel=0.02)
    assert np.abs(inside.var((0, 2)) / (level / 256 * 0.09) - 1).max() < 0.12
    assert not noise[:, 0].any()  # black has none


def test_poisson_draws_are_those_of_the_distribution(rng: Generator) -> None:
    """Of two levels, v is 2: what is drawn at level 0.4 are Poisson numbers of mean 0.8, over 2."""
    image = np.zeros((1, 40000, 1), np.float32)
    image[:, ::2] = 0.4
    image[:, 1::2] = 102 / 255 / 2
    drawn = (with_poisson_noise(rng, image, 1e-3, gray=True) - image)[0, ::2, 0] * 1e3
    counts = np.bincount(np.rint((drawn + 0.4) * 2).astype(int), minlength=6)[:6] / 20000
    expected = [math.exp(-0.8) * 0.8**k / math.factorial(k) for k in range(6)]
    assert counts == pytest.approx(expected, abs=0.012)


def test_grey_poisson_noise_is_one_plane(rng: Generator) -> None:
    image = rng.uniform(0.3, 0.7, (64, 64, 3)).astype(np.float32)
    noise = with_poisson_noise(rng, image, 0.5, gray=True) - image
    assert np.abs(noise - noise[..., :1]).max() < 1e-6
    assert noise.std() > 0.01


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("size", [(20, 33), (70, 50)])
def test_modes_keep_a_ramp_in_its_middle(mode: str, size: tuple[int, int]) -> None:
    ramp = np.tile(np.linspace(0.2, 0.8, 50, dtype=np.float32)[None, :, None], (40, 1, 3))
    made = resized(ramp, *size, mode)
    assert made.shape == (*size, 3)
    assert made.dtype == np.float32
    centres = (np.arange(size[1]) + 0.5) * 50 / size[1] - 0.5
    middle = slice(8, -8)
    step = 0.6 / 49
    tolerance = 0.55 * step if mode in ("area", "nearest-exact") else 0.1 * step
    assert np.abs(made[size[0] // 2, middle, 0] - (0.2 + step * centres[middle])).max() < tolerance


def test_area_is_the_mean_and_aliased_modes_are_opencvs(rng: Generator) -> None:
    image = rng.random((48, 60, 3), np.float32)
    assert np.allclose(
        resized(image, 16, 20, "area"), cv2.resize(image, (20, 16), interpolation=cv2.INTER_AREA), atol=1e-5
    )
    for mode, flag in (("bilinear", cv2.INTER_LINEAR), ("bicubic", cv2.INTER_CUBIC)):
        expected = np.clip(cv2.resize(image, (25, 31), interpolation=flag), 0, 1)
        assert np.abs(resized(image, 31, 25, f"{mode}-aliased") - expected).max() < 1e-4
        assert np.abs(resized(image, 31, 25, mode) - expected).max() > 0.05


def test_draws_keep_to_their_distributions(rng: Generator) -> None:
    draws = 3000
    factors = np.array([drawn_factor(rng, (0.2, 0.7, 0.1), (0.15, 1.5)) for _ in range(draws)])
    shares = [(factors > 1).mean(), (factors < 1).mean(), (factors == 1).mean()]
    assert shares == pytest.approx([0.2, 0.7, 0.1], abs=0.03)
    assert factors[factors < 1].mean() == pytest.approx(0.575, abs=0.02)
    qualities = np.array([drawn_quality(rng, 30, 95) for _ in range(draws)])
    assert (qualities.min(), qualities.max()) == (30, 95)
    assert qualities.mean() == pytest.approx(62.5, abs=1.5)
    sizes = np.bincount([odd_size(rng, 7, 21) for _ in range(draws)]) / draws
    assert sizes[7::2] == pytest.approx([1 / 8] * 8, abs=0.03)
    assert not sizes[::2].any()
    betas = np.array([around_one(rng, 0.5, 4) for _ in range(draws)])
    assert (betas < 1).mean() == pytest.approx(0.5, abs=0.03)
    kinds = [chosen(rng, {"a": 3, "b": 0, "c": 1}) for _ in range(draws)]
    assert (kinds.count("a") / draws, kinds.count("b")) == (pytest.approx(0.75, abs=0.03), 0)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("channels", [1, 3])
def test_higher_quality_is_nearer(rng: Generator, codec: str, channels: int) -> None:
    smooth = resized(rng.random((6, 6, channels), np.float32), 64, 64, "bicubic")
    errors = [float(np.square(compressed(smooth, codec, quality) - smooth).mean()) for quality in (5, 40, 95)]
    assert errors[0] > errors[1] > errors[2] > 0
    assert compressed(smooth, codec, 40).shape == smooth.shape


def test_jpeg_is_what_opencv_makes_of_the_same_quality(rng: Generator) -> None:
    smooth = resized(rng.random((9, 9, 3), np.float32), 64, 64, "bicubic")
    _, encoded = cv2.imencode(".jpg", to_pixels(smooth)[:, :, ::-1], [cv2.IMWRITE_JPEG_QUALITY, 40])
    expected = cv2.imdecode(encoded, cv2.IMREAD_COLOR)[:, :, ::-1]
    assert np.abs(to_pixels(compressed(smooth, "jpeg", 40)).astype(int) - expected).mean() < 0.5


def test_filters_mirror_without_the_outermost_pixel(rng: Generator) -> None:
    image, kernel = rng.random((30, 26, 3), np.float32), gaussian_kernel(9, 2.0, 1.0, 0.4)
    padded = F.pad(torch.from_numpy(image.transpose(2, 0, 1))[None], [4] * 4, mode="reflect")
    expected = F.conv2d(padded, torch.from_numpy(kernel)[None, None].expand(3, 1, 9, 9), groups=3)[0]
    assert np.allclose(filtered(image, kernel), expected.numpy().transpose(1, 2, 0), atol=1e-5)
    assert filtered(image[:, :, :1], kernel).shape == (30, 26, 1)


def test_sharpening_is_basicsrs_with_a_dense_kernel(rng: Generator) -> None:
    image = resized(rng.random((12, 12, 3), np.float32), 90, 90, "bicubic")
    line = cv2.getGaussianKernel(51, 0)
    dense = (line @ line.T).astype(np.float32)
    detail = image - filtered(image, dense)
    soft = filtered((np.abs(detail) * 255 > 10).astype(np.float32), dense)
    expected = soft * np.clip(image + 0.5 * detail, 0, 1) + (1 - soft) * image
    assert np.abs(sharpened(image) - expected).max() < 0.02  # pixels at the threshold may fall on either side
    assert np.abs(sharpened(image) - expected).mean() < 1e-4
    flat = np.full((60, 60, 1), 0.4, np.float32)
    assert np.allclose(sharpened(flat), flat, atol=1e-6)


def test_thick_lines_darken_the_neighbours_of_a_line() -> None:
    image = np.ones((9, 9, 1), np.float32)
    image[:, 4] = 0
    assert with_thick_lines(image)[4, :, 0].tolist() == [1, 1, 1, 0.75, 0, 0.75, 1, 1, 1]
