"""What a validation says of its memory."""

from collections.abc import Callable
from pathlib import Path

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
