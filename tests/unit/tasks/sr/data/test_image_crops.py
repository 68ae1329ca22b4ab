"""Crops as a workload: what a person is shown of a batch."""

import torch

from trainauto.core.workload import ShowableSamples
from trainauto.tasks.sr.data.image_crops import SHOWN_PX, ImageCrops


def test_the_first_crops_are_shown_beside_their_references() -> None:
    crops = ImageCrops(3, 4)
    assert isinstance(crops, ShowableSamples)
    side = SHOWN_PX // 4 + 10
    batch = {
        name: torch.randint(0, 256, (5, 3, side * by, side * by), dtype=torch.uint8)
        for name, by in (("lq", 1), ("gt", 4))
    }
    shown = crops.shown(batch, 2)
    assert len(shown) == 2
    for number, sample in enumerate(shown):
        assert (sample["lq"].shape, sample["gt"].shape) == ((SHOWN_PX // 4,) * 2 + (3,), (SHOWN_PX, SHOWN_PX, 3))
        for name, image in sample.items():
            corner = batch[name][number, :, : len(image), : len(image)].permute(1, 2, 0)
            assert (image == corner.numpy()).all()


def test_only_pictures_are_shown() -> None:
    """Sets of a person's own may hold labels and pixels that are no whole numbers."""
    crops = ImageCrops(1, 2)
    lq = torch.zeros(2, 1, 8, 8, dtype=torch.uint8)
    labels = {"label": torch.zeros(2), "matrix": torch.zeros(2, 3, 3), "weight": torch.zeros(2, 1, 8, 8)}
    assert [set(sample) for sample in crops.shown({"lq": lq, **labels}, 4)] == [{"lq"}] * 2
    assert crops.shown({"lq": lq.float(), "gt": lq.float()}, 4) == []
