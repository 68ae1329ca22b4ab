"""The largest tile that fits is found, and nothing larger."""

import pytest

from trainauto.core.plan import SizeRequirements
from trainauto.memory.cost.tile_policy import extent_px, largest_tile

ANY = SizeRequirements()
WINDOWS = SizeRequirements(8, 8)


def need(side_px: int) -> int:
    return 1000 + 100 * side_px**2


@pytest.mark.parametrize("requirements", [ANY, WINDOWS])
@pytest.mark.parametrize("overlap_px", [0, 7, 24])
@pytest.mark.parametrize("room_bytes", [400_000, 3_000_000, 90_000_000])
def test_it_fits_and_the_next_larger_one_does_not(
    room_bytes: int, overlap_px: int, requirements: SizeRequirements
) -> None:
    size = (3000, 4000)
    found = largest_tile(need, size, overlap_px, requirements, room_bytes)
    assert found
    assert found % requirements.multiple == 0
    reach_px = -(-overlap_px // requirements.multiple) * requirements.multiple

    def taken(side: int) -> int:
        return need(extent_px(*(min(length, side + 2 * reach_px) for length in size)))

    assert taken(found) <= room_bytes < taken(found + requirements.multiple)


def test_an_image_that_fits_runs_whole() -> None:
    assert largest_tile(need, (300, 400), 16, ANY, need(extent_px(300, 400))) == 0
    assert largest_tile(need, (300, 400), 16, ANY, need(extent_px(300, 400)) - 1) != 0


def test_strips_of_a_narrow_image_are_longer_than_square_tiles() -> None:
    room_bytes = need(200)
    assert largest_tile(need, (50, 4000), 0, ANY, room_bytes) == 200 * 200 // 50
    assert largest_tile(need, (4000, 4000), 0, ANY, room_bytes) == 200


def test_nothing_fits() -> None:
    assert largest_tile(need, (300, 400), 100, ANY, need(150)) is None
    assert largest_tile(need, (300, 400), 0, ANY, need(7)) is None
    assert largest_tile(need, (300, 400), 0, ANY, need(8)) == 8
