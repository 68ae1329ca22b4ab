"""Crops, flips and shrinking."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainauto.tasks.sr.data.geometry import crop_corner_px, flipped, padded_to, shrunk, shrunk_crop


@given(st.integers(0, 2**64 - 1), st.integers(1, 200), st.integers(1, 200), st.integers(1, 64))
def test_crop_lies_within(seed: int, height: int, width: int, side: int) -> None:
    top, left = crop_corner_px(seed, height, width, side)
    assert 0 <= top <= max(0, height - side)
    assert 0 <= left <= max(0, width - side)


def test_every_place_is_reached_evenly() -> None:
    counts = np.zeros(5)
    for seed in range(5000):
        counts[crop_corner_px(seed, 12, 9, 8)[0]] += 1
    assert counts.min() > 850
    assert counts.max() < 1150


@settings(max_examples=40, deadline=None)
@given(
    st.integers(2, 4),
    st.integers(20, 40),
    st.integers(20, 40),
    st.integers(1, 20),
    st.integers(0, 2**32),
    st.integers(0, 9),
)
def test_crop_of_shrunk_equals_shrunk_crop(
    scale: int, height: int, width: int, side: int, seed: int, noise: int
) -> None:
    """The crop of the lazily shrunk image is the one a folder of shrunk images would give, to the bit."""
    pixels = np.random.default_rng(noise).integers(0, 256, (height * scale, width * scale, 3), dtype=np.uint8)
    top, left = crop_corner_px(seed, height, width, side)
    whole = shrunk(pixels, scale)[top : top + side, left : left + side]
    np.testing.assert_array_equal(shrunk_crop(pixels, top, left, side, scale), whole)


def test_shrinking_agrees_with_pillow(photograph: np.ndarray) -> None:
    """Pillow's reducing bicubic is another implementation of the kernel; it rounds and clips after each axis."""
    from PIL import Image

    height, width = photograph.shape[0] // 2, photograph.shape[1] // 2
    other = np.asarray(Image.fromarray(photograph).resize((width, height), Image.Resampling.BICUBIC)).astype(int)
    ours = shrunk(photograph, 2).astype(int)
    difference = np.abs(ours - other)
    assert (difference > 1).mean() < 1e-3
    assert difference.max() <= 8


@pytest.mark.parametrize("size", [(1, 1), (1, 7), (5, 3), (9, 9)])
def test_padding_mirrors_any_size(size: tuple[int, int]) -> None:
    pixels = np.arange(size[0] * size[1] * 3, dtype=np.uint8).reshape(*size, 3)
    padded = padded_to(pixels, 8, 8)
    assert padded.shape[0] >= 8
    assert padded.shape[1] >= 8
    np.testing.assert_array_equal(padded[: size[0], : size[1]], pixels)
    if size == (5, 3):
        np.testing.assert_array_equal(padded[5, :3], pixels[4])


def test_all_eight_symmetries_occur_and_no_others() -> None:
    pixels = np.arange(16 * 3, dtype=np.uint8).reshape(4, 4, 3)
    seen = {flipped(pixels, seed, use_hflip=True, use_rot=True).tobytes() for seed in range(200)}
    assert len(seen) == 8
    assert {flipped(pixels, s, use_hflip=False, use_rot=False).tobytes() for s in range(50)} == {pixels.tobytes()}
    assert len({flipped(pixels, s, use_hflip=True, use_rot=False).tobytes() for s in range(50)}) == 2
    assert len({flipped(pixels, s, use_hflip=False, use_rot=True).tobytes() for s in range(50)}) == 4
