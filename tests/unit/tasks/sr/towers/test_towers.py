"""Towers: how small images may be, and packages whose data files they need."""

import pytest
import torch

from trainauto.core.errors import InputError
from trainauto.tasks.sr.towers.package_data import file_of_package
from trainauto.tasks.sr.towers.tower import ALEXNET, VGG16, VGG19, Design, Tower


@pytest.mark.parametrize(
    ("design", "layer", "pooling", "px"),
    [
        (VGG19, "conv1_2", "max", 1),
        (VGG19, "conv5_4", "max", 16),
        (VGG16, "relu5_3", "l2", 1),
        (ALEXNET, "relu5", "max", 31),
    ],
)
def test_the_smallest_image_leaves_a_pixel(design: Design, layer: str, pooling: str, px: int) -> None:
    tower = Tower(design, [layer], divisor=16, pooling=pooling)  # type: ignore[arg-type]
    assert tower.smallest_px == px
    assert tower(torch.zeros(1, 3, px, px))[layer].numel() > 0
    if px > 1:
        with pytest.raises(RuntimeError, match="too small"):
            tower(torch.zeros(1, 3, px - 1, px - 1))


def test_a_package_that_is_not_there_is_named_with_what_to_install() -> None:
    with pytest.raises(InputError, match=r"LPIPS needs the file heads\.pth of the package lpips") as refused:
        file_of_package("no_such_module", "heads.pth", "lpips", "LPIPS")
    (problem,) = refused.value.problems
    assert problem.advice.startswith("pip install --no-deps lpips: only this file of it is read")
