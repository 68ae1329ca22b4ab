"""What a validation says of its memory."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from trainauto.data import GTImageDataset
from trainauto.tasks.sr.models.tiles import TiledEnlarger
from trainauto.tasks.sr.models.validation import Validator


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
