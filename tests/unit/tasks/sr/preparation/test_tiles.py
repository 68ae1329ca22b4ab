"""Where images are cut: everywhere covered, at BasicSR's places."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from trainauto.tasks.sr.preparation.tiles import Grid, cut, tile_name


def places_of_basicsr(length: int, tile: int, step: int) -> list[int]:
    """As extract_subimages counts them, with thresh_size 0."""
    places = list(np.arange(0, length - tile + 1, step))
    if length - (places[-1] + tile) > 0:
        places.append(length - tile)
    return [int(place) for place in places]


@given(st.integers(1, 6), st.integers(1, 12), st.data())
def test_tiles_cover_an_image_and_lie_on_multiples_of_the_scale(scale: int, tile: int, data: st.DataObject) -> None:
    overlap = data.draw(st.integers(0, tile - 1))
    height, width = data.draw(st.tuples(st.integers(scale, 90), st.integers(scale, 90)))
    grid = Grid(tile * scale, overlap * scale, scale)
    covered = np.zeros((height, width), bool)
    for box in grid.boxes(height, width):
        assert all(side % scale == 0 for side in box)
        assert box[2:] == tuple(min(side // scale * scale, grid.tile_px) for side in (height, width))
        part = cut(covered, box)
        assert part.shape == box[2:]
        part[...] = True
    used = covered[: height // scale * scale, : width // scale * scale]
    assert used.all()
    assert covered.sum() == used.size


@given(st.integers(5, 20), st.integers(0, 4), st.integers(20, 80), st.integers(20, 80))
def test_places_are_those_of_basicsr(tile: int, overlap: int, height: int, width: int) -> None:
    rows, columns = (places_of_basicsr(length, tile, tile - overlap) for length in (height, width))
    expected = [(top, left, tile, tile) for top in rows for left in columns]
    assert Grid(tile, overlap).boxes(height, width) == expected


def test_a_small_image_is_kept_whole_and_a_tiny_one_is_none() -> None:
    assert Grid(480, 0, 4).boxes(103, 1001) == [(0, 0, 100, 480), (0, 480, 100, 480), (0, 520, 100, 480)]
    assert Grid(480, 0, 4).boxes(3, 100) == []


def test_names_are_those_of_basicsr() -> None:
    assert [tile_name("sub/photo", number) for number in (1, 1000)] == ["sub/photo_s001.png", "sub/photo_s1000.png"]
