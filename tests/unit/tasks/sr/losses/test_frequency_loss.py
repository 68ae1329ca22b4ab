"""Spectra of patches, whatever the size of the images."""

import pytest
import torch
import torch.nn.functional as F

from trainauto.tasks.sr.losses.frequency_loss import FFLoss


@pytest.mark.parametrize("size", [(9, 11), (8, 9), (2, 3)])
def test_images_that_cannot_be_cut_are_continued_at_their_border(size: tuple[int, int]) -> None:
    torch.manual_seed(0)
    images = torch.rand(2, 2, 3, *size)
    loss = FFLoss(patch_factor=4)
    longer = [F.pad(image, (0, -size[1] % 4, 0, -size[0] % 4), mode="replicate") for image in images]
    assert loss(*images) == loss(*longer) > 0


def test_no_patches_are_refused() -> None:
    with pytest.raises(ValueError, match="patch_factor must be at least 1, got 0"):
        FFLoss(patch_factor=0)
