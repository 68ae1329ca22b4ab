"""The overlap that is measured hides seams, and a smaller one does not: four networks on a photograph."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.acceptance import only_in_acceptance
from trainauto.builders.image_model import requirements_of
from trainauto.core.plan import SizeRequirements
from trainauto.tasks.sr.archs import ARCHS
from trainauto.tasks.sr.models.receptive_field import TOLERANCE, measure_receptive_field
from trainauto.tasks.sr.models.tiles import Box, Enlarge, TiledEnlarger

PROMISED = 1e-3
"""Largest difference of a tiled picture, of 1.0."""

NETWORKS: dict[str, dict[str, Any]] = {
    "compact": {"num_feat": 16, "num_conv": 4, "scale": 2},
    "rrdbnet": {"num_feat": 16, "num_grow_ch": 8, "num_block": 2, "scale": 2},
    "span": {"feature_channels": 16, "scale": 2},
    "swinir_light": {"embed_dim": 24, "depths": [2, 2], "num_heads": [3, 3], "scale": 2},
}


def as_trained(network: nn.Module, image: Tensor) -> nn.Module:
    """Scale the last convolution so that pictures have the contrast of pictures."""
    network = network.eval().requires_grad_(False)
    last = [module for module in network.modules() if isinstance(module, nn.Conv2d)][-1]
    last.weight.mul_(0.25 / float(network(image).std()))
    return network


@pytest.fixture
def cut(photograph: np.ndarray) -> Tensor:
    """Pixels (1, 3, 93, 125) of detail: no side is a multiple of a window."""
    return torch.from_numpy(photograph[100:193, 150:275].transpose(2, 0, 1).copy())[None]


def seam(enlarge: Enlarge, image: Tensor, network: nn.Module, overlap_px: int, tile_px: int = 40) -> float:
    """Return the largest difference between the picture in tiles and whole."""
    tiled = TiledEnlarger(2, tile_px, overlap_px, requirements_of(network))(enlarge, image)
    return float((tiled - enlarge(image)).abs().max())


@pytest.mark.parametrize(
    "name",
    ["compact", "swinir_light", *(pytest.param(name, marks=only_in_acceptance) for name in ("rrdbnet", "span"))],
)
def test_the_measured_overlap_hides_seams_everywhere(name: str, cut: Tensor) -> None:
    torch.manual_seed(4)
    network = as_trained(ARCHS.get(name)(**NETWORKS[name]), cut / 255)

    def enlarge(pixels: Tensor) -> Tensor:
        return network(pixels / 255)

    tiles = TiledEnlarger(2, requirements=requirements_of(network))
    found = measure_receptive_field(enlarge, tiles, (93, 125), lambda box: box.of(cut), 160)
    assert found.is_certain
    assert found.difference <= TOLERANCE
    assert found.px % requirements_of(network).multiple == 0
    assert seam(enlarge, cut, network, found.px) < PROMISED
    assert seam(enlarge, cut, network, 0) > 5 * PROMISED  # the comparison can fail


def test_windows_must_lie_where_those_of_the_whole_image_do(cut: Tensor) -> None:
    torch.manual_seed(4)
    network = as_trained(ARCHS.get("swinir_light")(**NETWORKS["swinir_light"]), cut / 255)

    def enlarge(pixels: Tensor) -> Tensor:
        return network(pixels / 255)

    astray = TiledEnlarger(2, 50, 20)  # told nothing of windows
    assert float((astray(enlarge, cut) - enlarge(cut)).abs().max()) > PROMISED
    assert seam(enlarge, cut, network, 20, 50) < PROMISED  # rounded up to windows


def test_the_reach_of_two_convolutions_is_two(cut: Tensor) -> None:
    torch.manual_seed(0)
    convolutions = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 3, 3, padding=1))
    found = measure_receptive_field(
        lambda pixels: convolutions(pixels / 255).detach(), TiledEnlarger(1), (93, 125), lambda box: box.of(cut), 100
    )
    assert (found.px, found.is_certain) == (2, True)


def test_a_network_that_sees_the_whole_image_is_told_apart(cut: Tensor) -> None:
    def enlarge(pixels: Tensor) -> Tensor:
        return pixels / 255 - (pixels / 255).mean((2, 3), keepdim=True)

    found = measure_receptive_field(enlarge, TiledEnlarger(1), (93, 125), lambda box: box.of(cut), 100)
    assert not found.is_certain
    assert found.difference > TOLERANCE


def test_no_part_is_larger_than_allowed(cut: Tensor) -> None:
    sides: list[int] = []

    def enlarge(pixels: Tensor) -> Tensor:
        sides.append(max(pixels.shape[-2:]))
        return (pixels / 255).cumsum(-1)

    def read(box: Box) -> Tensor:
        return box.of(cut)

    for largest_px in (8, 24, 64, 120):
        tiles = TiledEnlarger(1, requirements=SizeRequirements(8, 8))
        assert not measure_receptive_field(enlarge, tiles, (93, 125), read, largest_px).is_certain
        assert max(sides, default=0) <= largest_px
