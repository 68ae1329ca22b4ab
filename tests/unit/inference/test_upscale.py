"""Pictures in tiles: by what is foreseen, by what is measured, and what happens where neither holds."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import cv2
import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from trainauto.core.errors import InputError
from trainauto.core.records import PeakReading
from trainauto.inference.load_network import LoadedNetwork
from trainauto.inference.upscale import Upscaler, as_pixels
from trainauto.memory.monitor.meter import MemoryMeter
from trainauto.tasks.sr.archs import ARCHS
from trainauto.tasks.sr.data.large_images import Decoded, ImageWriter

MIB = 2**20


@dataclass
class Taken:
    """Bytes a forward pass takes beside what is held, by pixels; ``limit`` is what there is."""

    of_pixels: Callable[[int], int]
    limit: int
    held: int = 5 * MIB


class PlayedMeter(MemoryMeter):
    """Reads what was agreed upon, and refuses what is more than there is."""

    def __init__(self, taken: Taken) -> None:
        super().__init__(torch.device("cpu"))
        self.limit_bytes = taken.limit
        self.taken = taken
        self.pixels: list[int] = []

    def now_bytes(self) -> int:
        return self.taken.held

    def window(self) -> Any:
        meter = self

        class Window:
            reading: PeakReading | None = None

            def __enter__(self) -> "Window":
                return self

            def __exit__(self, kind: object, *_: object) -> None:
                if kind is None:
                    peak = meter.taken.held + meter.taken.of_pixels(meter.pixels[-1])
                    self.reading = PeakReading(allocated=peak, limit=meter.taken.limit)

        return Window()


class Watched(nn.Module):
    """A small network that runs out of memory as the meter says."""

    def __init__(self, meter: PlayedMeter, *, is_traceable: bool = True) -> None:
        super().__init__()
        self.body = ARCHS.get("compact")(num_feat=8, num_conv=1, scale=2)
        self.size_requirements = self.body.size_requirements
        self.meter, self.is_traceable = [meter], is_traceable

    def forward(self, image: Tensor) -> Tensor:
        meter = self.meter[0]
        if not self.is_traceable and type(image) is not Tensor:
            raise RuntimeError("this network cannot be traced")
        if type(image) is Tensor:
            meter.pixels.append(image.shape[-2] * image.shape[-1])
            if meter.taken.held + meter.taken.of_pixels(meter.pixels[-1]) > meter.taken.limit:
                raise MemoryError
        return cast(Tensor, self.body(image))


def upscaler_of(meter: PlayedMeter, say: Callable[[str], None] = lambda _: None, **how: Any) -> Upscaler:
    torch.manual_seed(0)
    network = Watched(meter, is_traceable=how.pop("is_traceable", True)).eval().requires_grad_(False)
    trained = SimpleNamespace(network=network, channels=3, scale=2)
    return Upscaler(cast(LoadedNetwork, trained), meter, say=say, **how)


def enlarged(upscaler: Upscaler, picture: Decoded, folder: Path) -> np.ndarray:
    height, width = picture.pixels.shape[:2]
    with ImageWriter(folder, 2 * height, 2 * width, 3, has_alpha=picture.alpha is not None) as canvas:
        upscaler.enlarge(picture, canvas, lambda pixels: None)
        canvas.save(folder / "out.png")
    return np.asarray(Image.open(folder / "out.png"))


def whole(upscaler: Upscaler, pixels: np.ndarray) -> np.ndarray:
    image = torch.from_numpy(pixels.transpose(2, 0, 1).copy())[None]
    with torch.no_grad():
        return as_pixels(cast(Watched, upscaler._network).body, image)[0].permute(1, 2, 0).numpy()


@pytest.mark.parametrize("ratio", [0.9, 1.0, 1.34])
@pytest.mark.parametrize("is_traceable", [True, False])
def test_tiles_fill_the_target_and_no_more(
    tmp_path: Path, photograph: np.ndarray, ratio: float, is_traceable: bool
) -> None:
    # Eight features before and after, and what becomes pixels: about 150 bytes a pixel, as traced.
    meter = PlayedMeter(Taken(lambda pixels: int(ratio * 150 * pixels), 10 * MIB))
    upscaler = upscaler_of(meter, is_traceable=is_traceable)
    found = enlarged(upscaler, Decoded(photograph), tmp_path)
    assert np.abs(found.astype(int) - whole(upscaler, photograph)).max() <= 1
    figures = upscaler.figures
    assert figures.tiles > 4
    assert not figures.is_whole
    assert 0.6 * meter.taken.limit < figures.measured_bytes <= 0.9 * meter.taken.limit
    assert figures.predicted_bytes == pytest.approx(figures.measured_bytes, rel=0.05)


def test_a_picture_that_fits_runs_whole(tmp_path: Path, photograph: np.ndarray) -> None:
    said: list[str] = []
    upscaler = upscaler_of(PlayedMeter(Taken(lambda pixels: 150 * pixels, 500 * MIB)), said.append)
    found = enlarged(upscaler, Decoded(photograph[:100, :100]), tmp_path)
    assert np.array_equal(found, whole(upscaler, photograph[:100, :100]))
    assert (upscaler.figures.tiles, upscaler.figures.is_whole) == (1, True)
    assert not said  # no overlap was needed, and none was measured


def test_lack_of_memory_that_nobody_foresaw_halves_the_tile(tmp_path: Path, photograph: np.ndarray) -> None:
    # Ten times as much as traced from 100 x 100 pixels on.
    meter = PlayedMeter(Taken(lambda pixels: 150 * pixels * (10 if pixels > 10_000 else 1), 10 * MIB))
    upscaler = upscaler_of(meter)
    found = enlarged(upscaler, Decoded(photograph), tmp_path)
    assert np.abs(found.astype(int) - whole(upscaler, photograph)).max() <= 1
    tried_and_failed = [pixels for pixels in meter.pixels if 5 * MIB + 1500 * pixels > 10 * MIB and pixels > 10_000]
    assert 1 <= len(tried_and_failed) <= 3  # and not tried again


def test_where_nothing_fits_it_says_so(tmp_path: Path, photograph: np.ndarray) -> None:
    upscaler = upscaler_of(PlayedMeter(Taken(lambda pixels: 20 * MIB if pixels > 64 else 0, 10 * MIB)))
    with pytest.raises(InputError, match="--budget"):
        enlarged(upscaler, Decoded(photograph), tmp_path)
    # What fits before, but not beside what is held now.
    upscaler = upscaler_of(PlayedMeter(Taken(lambda pixels: 150 * pixels, 10 * MIB, held=9 * MIB)))
    with pytest.raises(InputError, match="--budget"):
        enlarged(upscaler, Decoded(photograph), tmp_path)


def test_a_tile_that_was_asked_for_stays(tmp_path: Path, photograph: np.ndarray) -> None:
    meter = PlayedMeter(Taken(lambda pixels: 150 * pixels, 500 * MIB))
    upscaler = upscaler_of(meter, tile_px=100, overlap_px=3)
    found = enlarged(upscaler, Decoded(photograph), tmp_path)
    assert np.abs(found.astype(int) - whole(upscaler, photograph)).max() <= 1
    assert upscaler.figures.tiles == 24
    assert upscaler.figures.tile_px == 106


def test_alpha_in_tiles_is_alpha_whole(tmp_path: Path, photograph: np.ndarray) -> None:
    alpha = np.ascontiguousarray(photograph[:200, :150, 1])
    upscaler = upscaler_of(PlayedMeter(Taken(lambda pixels: 0, 500 * MIB)), tile_px=64, overlap_px=3)
    found = enlarged(upscaler, Decoded(photograph[:200, :150], alpha), tmp_path)
    assert np.array_equal(found[..., 3], cv2.resize(alpha, (300, 400), interpolation=cv2.INTER_CUBIC))
