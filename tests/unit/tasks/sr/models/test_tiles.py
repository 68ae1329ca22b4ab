"""Tiles give what the whole image gives, and shrink when memory runs out."""

import pytest
import torch
from torch import Tensor, nn

from trainauto.core.plan import SizeRequirements
from trainauto.tasks.sr.models.tiles import Box, TiledEnlarger


def network(reach: int = 2) -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 12, 3, padding=1), nn.PixelShuffle(2)]
    return nn.Sequential(*layers).eval().requires_grad_(False)


@pytest.mark.parametrize("tile_px", [8, 17, 40])
@pytest.mark.parametrize("size", [(40, 40), (33, 57), (9, 100)])
def test_tiles_equal_the_whole_image(tile_px: int, size: tuple[int, int]) -> None:
    net, image = network(), torch.rand(1, 3, *size)
    tiled = TiledEnlarger(2, tile_px, overlap_px=2)(net, image)
    torch.testing.assert_close(tiled, net(image), atol=1e-6, rtol=0)


def test_sizes_are_padded_to_what_the_network_needs() -> None:
    seen: list[tuple[int, int]] = []

    def enlarge(image: Tensor) -> Tensor:
        seen.append((image.shape[-2], image.shape[-1]))
        return image.repeat_interleave(2, -1).repeat_interleave(2, -2)

    image = torch.rand(1, 1, 13, 21)
    result = TiledEnlarger(2, requirements=SizeRequirements(minimum=16, multiple=8))(enlarge, image)
    assert seen == [(16, 24)]
    assert torch.equal(result, image.repeat_interleave(2, -1).repeat_interleave(2, -2))


def test_parts_begin_on_multiples_and_cover_every_pixel_once() -> None:
    kept = torch.zeros(100, 75)
    seen: list[Box] = []
    enlarger = TiledEnlarger(1, 40, overlap_px=9, requirements=SizeRequirements(8, 8))

    def read(box: Box) -> Tensor:
        seen.append(box)
        return box.of(torch.zeros(1, 1, 100, 75))

    def keep(box: Box, enlarged: Tensor) -> None:
        assert enlarged.shape == (1, 1, box.height, box.width)
        box.of(kept).add_(1)
        enlarger.tile_px = 24  # of the next row on

    enlarger.run(lambda image: image, (100, 75), read, keep)
    assert torch.equal(kept, torch.ones(100, 75))
    assert all(box.top % 8 == box.left % 8 == 0 for box in seen)
    assert max(box.height for box in seen) == 40 + 16  # two multiples hold the overlap


def refuse_above(pixels: int, error: Exception) -> tuple[nn.Module, list[int]]:
    net, sides = network(), []

    class Limited(nn.Module):
        def forward(self, image: Tensor) -> Tensor:
            sides.append(max(image.shape[-2:]))
            if image.shape[-1] * image.shape[-2] > pixels:
                raise error
            return net(image)

    return Limited(), sides


def test_running_out_of_memory_halves_the_tile_for_good(caplog: pytest.LogCaptureFixture) -> None:
    limited, sides = refuse_above(26 * 26, MemoryError())
    enlarger = TiledEnlarger(2, overlap_px=2)
    image = torch.rand(1, 3, 64, 48)
    torch.testing.assert_close(enlarger(limited, image), network()(image), atol=1e-6, rtol=0)
    assert (enlarger.tile_px, enlarger.ooms) == (16, 2)
    assert "Out of memory at 64 px: continuing in tiles of 32 px" in caplog.text
    sides.clear()
    enlarger(limited, image)
    assert max(sides) == 20  # 16 and twice the overlap: no second failure


def test_other_errors_and_hopeless_ones_are_raised() -> None:
    with pytest.raises(RuntimeError, match="size mismatch"):
        TiledEnlarger(2)(refuse_above(0, RuntimeError("size mismatch"))[0], torch.rand(1, 3, 64, 64))
    with pytest.raises(MemoryError):
        TiledEnlarger(2)(refuse_above(0, MemoryError())[0], torch.rand(1, 3, 64, 64))
