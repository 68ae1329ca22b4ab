"""What a validation says of its memory."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from trainauto.data import GTImageDataset
from trainauto.tasks.sr.data import large_images
from trainauto.tasks.sr.metrics.psnr_ssim import calculate_psnr
from trainauto.tasks.sr.models.run_validator import RunValidator
from trainauto.tasks.sr.models.tiles import TiledEnlarger
from trainauto.tasks.sr.models.validation import NoRoomBesideTilesError, Validator


def test_running_out_of_memory_is_counted_where_it_happened(write_images: Callable[..., Path]) -> None:
    def enlarge(tile: torch.Tensor) -> torch.Tensor:
        if tile.shape[-1] * tile.shape[-2] > 30 * 30:
            raise MemoryError
        return F.interpolate(tile, scale_factor=2.0, mode="bicubic")

    dataset = GTImageDataset(str(write_images("val", 2, (96, 96))), scale=2, name="val")
    validator = Validator(
        dataset, {"one": lambda *_: 1.0}, {"one": True}, TiledEnlarger(2, overlap_px=2), torch.device("cpu")
    )
    first, second = (validator.run(enlarge, step) for step in (1, 2))
    assert first is not None
    assert second is not None
    assert (first[0].ooms, first[0].tile_px) == (1, 24)
    assert second[0].ooms == 0, "the tiles have shrunk for good"


def test_memory_that_is_short_beside_the_tiles_is_not_blamed_on_them(write_images: Callable[..., Path]) -> None:
    def measure(*_: object) -> float:
        raise MemoryError

    dataset = GTImageDataset(str(write_images("val", 1, (32, 32))), scale=2, name="val")
    validator = RunValidator(dataset, {"one": measure}, {"one": True}, TiledEnlarger(2), torch.device("cpu"))
    with pytest.raises(NoRoomBesideTilesError) as raised:
        validator.run(lambda tile: F.interpolate(tile, scale_factor=2.0), 1)
    said, advice = validator.if_too_large(raised.value, is_sharded=False)
    assert said == "memory ran out while image_000 was measured, beside the network"
    assert advice == "Take smaller validation images"
    assert "smallest tiles" in validator.if_too_large(MemoryError(), is_sharded=False)[0]


def test_large_pixels_lie_in_a_file_and_are_the_same(
    tmp_path: Path, write_images: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = GTImageDataset(str(write_images("val", 2, (96, 80))), scale=2, name="val")
    dataset.scan()
    found = []
    for scratch, from_bytes in ((None, large_images.MAPPED_FROM_BYTES), (tmp_path / "scratch", 1)):
        monkeypatch.setattr(large_images, "MAPPED_FROM_BYTES", from_bytes)
        validator = Validator(
            dataset,
            {"psnr": partial(calculate_psnr, crop_border=2)},
            {"psnr": True},
            TiledEnlarger(2, 24, overlap_px=2),
            torch.device("cpu"),
            scratch=scratch,
        )
        result = validator.run(lambda tile: F.interpolate(tile, scale_factor=2.0, mode="bilinear"), 1)
        assert result is not None
        found.append(result)
    assert found[0][0].scores == found[1][0].scores
    assert all(np.array_equal(one.output, other.output) for one, other in zip(found[0][1], found[1][1], strict=True))
    assert list((tmp_path / "scratch").iterdir()) == []
    measured_by = found[0][0].measured_by["psnr"]
    assert measured_by.startswith("calculate_psnr(crop_border=2, test_y_channel=False) on 2 images ")


def test_a_rehearsal_takes_the_largest_image(write_images: Callable[..., Path]) -> None:
    folder = write_images("val", 3, (32, 32))
    write_images("val/large", 1, (64, 48))
    dataset = GTImageDataset(str(folder), scale=2, name="val")
    dataset.scan()
    validator = Validator(dataset, {"one": lambda *_: 1.0}, {"one": True}, TiledEnlarger(2), torch.device("cpu"))
    validator.is_rehearsal = True
    result = validator.run(lambda tile: F.interpolate(tile, scale_factor=2.0), 1)
    assert result is not None
    assert [score.name for score in result[0].scores] == ["large/image_000"]


@pytest.mark.parametrize("by_step", [True, False])
def test_pictures_stay_in_the_folder_of_their_set_whatever_samples_are_called(
    tmp_path: Path, write_images: Callable[..., Path], by_step: bool
) -> None:
    class Named(GTImageDataset):
        def sample_key(self, index: int) -> str:
            return ("../../out", "x" * 300, "\N{ROCKET}<script>\x1b[31m")[index]

    pictures = tmp_path / "run" / "validation" / "val"
    validator = Validator(
        Named(str(write_images("val", 3, (16, 16))), scale=2, name="val"),
        {"one": lambda *_: 1.0},
        {"one": True},
        TiledEnlarger(2, overlap_px=2),
        torch.device("cpu"),
        pictures,
        by_step=by_step,
    )
    assert validator.run(lambda tile: F.interpolate(tile, scale_factor=2.0), 7) is not None
    inside = {str(path.relative_to(pictures)) for path in pictures.rglob("*.png")}
    end = "/00000007.png" if by_step else ".png"
    assert f"out{end}" in inside
    assert f"\N{ROCKET}<script>\x1b[31m{end}" in inside
    assert len(inside) == 3
    assert not (tmp_path / f"out{end}").exists()
    assert not (tmp_path / "run" / f"out{end}").exists()
