"""Losses and metrics of towers have the values of traiNNer-redux, and of the packages lpips and DISTS-pytorch.

The towers' weights come from a formula, see scripts/seeded_tower.py. Values are traiNNer-redux's own, of 2026-06-09 in
float32 on a CPU. The packages import torchvision for nothing but the layers of their towers: two are made here.
"""

import importlib
import sys
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.acceptance import only_in_acceptance
from tests.golden.test_loss_values import sines
from tests.seeded_towers import needs_metrics, write_seeded_towers
from trainauto.tasks.sr.losses import LOSSES
from trainauto.tasks.sr.metrics import METRICS, better_is_higher

VGG16 = (64, 64, "pool", 128, 128, "pool", 256, 256, 256, "pool", 512, 512, 512, "pool", 512, 512, 512, "pool")


@pytest.fixture(scope="module", autouse=True)
def _towers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    home = tmp_path_factory.mktemp("towers")
    write_seeded_towers(home, divisor=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCH_HOME", str(home))
        yield


@only_in_acceptance
@pytest.mark.parametrize(
    ("name", "arguments", "value", "norm", "at"),
    [
        ("perceptual", {"criterion": "l1"}, 0.8040513, 0.100523, 2.3089e-4),
        ("perceptual", {"criterion": "charbonnier"}, 0.8040513, 0.100523, 2.3089e-4),
        pytest.param("dists", {}, 0.01413858, 0.0042112, -9.933e-7, marks=needs_metrics),
    ],
)
def test_value_and_gradient(name: str, arguments: dict[str, Any], value: float, norm: float, at: float) -> None:
    target, prediction = (image.float() for image in sines())
    prediction = prediction.requires_grad_()
    found = LOSSES.get(name)(loss_weight=1.0, **arguments)(prediction, target)
    (gradient,) = torch.autograd.grad(found, prediction)
    assert found.item() == pytest.approx(value, rel=1e-5)
    assert gradient.norm().item() == pytest.approx(norm, rel=1e-4)
    # One pixel's slope jumps where a feature passes ReLU's kink, which float32 does elsewhere on each machine.
    assert gradient[0, 0, 50, 60].item() == pytest.approx(at, rel=5e-3)


@pytest.fixture
def packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the packages find towers where they look for torchvision's, and forget them afterwards."""
    models = types.ModuleType("torchvision.models")
    models.alexnet, models.vgg16 = _alexnet, _vgg16  # type: ignore[attr-defined]
    torchvision = types.ModuleType("torchvision")
    torchvision.models, torchvision.__version__ = models, "0.20"  # type: ignore[attr-defined]
    torchvision.transforms = types.ModuleType("torchvision.transforms")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torchvision", torchvision)
    monkeypatch.setitem(sys.modules, "torchvision.models", models)
    monkeypatch.setitem(sys.modules, "torchvision.transforms", torchvision.transforms)
    for name in ("lpips", "lpips.lpips", "lpips.pretrained_networks", "DISTS_pytorch", "DISTS_pytorch.DISTS_pt"):
        monkeypatch.delitem(sys.modules, name, raising=False)


@needs_metrics
@pytest.mark.parametrize("net", ["alex", "vgg"])
def test_lpips_is_that_of_its_package(packages: None, net: str) -> None:
    reference = importlib.import_module("lpips").LPIPS(net=net, verbose=False)
    mine = LOSSES.get("lpips")(net=net)
    _compare(lambda x, y: reference.double()(x, y, normalize=True).flatten(), mine.double().distance)


@needs_metrics
def test_dists_is_that_of_its_package(packages: None) -> None:
    reference = importlib.import_module("DISTS_pytorch").DISTS()
    _compare(lambda x, y: reference.double()(x, y, require_grad=True), LOSSES.get("dists")().double().distance)


@needs_metrics
def test_metrics_are_those_of_the_packages(packages: None) -> None:
    target, prediction = ((image[:1, :, :64, :64] * 255).round() for image in sines())
    pixels = [image[0].permute(1, 2, 0).numpy().astype(np.uint8) for image in (prediction, target)]
    lpips = importlib.import_module("lpips").LPIPS(net="alex", verbose=False)
    dists = importlib.import_module("DISTS_pytorch").DISTS()
    x, y = (image.float() / 255 for image in (prediction, target))
    assert METRICS.get("calculate_lpips")(*pixels) == pytest.approx(lpips(x, y, normalize=True).item(), rel=1e-4)
    assert METRICS.get("calculate_dists")(*pixels) == pytest.approx(dists(x, y).item(), abs=1e-5)
    for name in ("calculate_lpips", "calculate_dists"):
        assert METRICS.get(name)(pixels[0], pixels[0]) == pytest.approx(0, abs=1e-6)
        assert not better_is_higher(name)
        with pytest.raises(ValueError, match="takes uint8 images of shape"):
            METRICS.get(name)(pixels[0][..., :1], pixels[0][..., :1])


def _compare(reference: Any, mine: Any) -> None:
    target, prediction = (image[:, :, :64, :64] for image in sines())
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        slopes = []
        for distance in (reference, mine):
            x = prediction.clone().requires_grad_()
            value = distance(x, target)
            (slope,) = torch.autograd.grad(value.mean(), x)
            slopes.append((value.detach(), slope))
    finally:
        torch.set_default_dtype(before)
    (value, slope), (found, slope_found) = slopes
    torch.testing.assert_close(found, value, rtol=1e-5, atol=1e-8)
    assert ((slope_found - slope).norm() / slope.norm()).item() < 1e-5


def _alexnet(pretrained: bool = False, **_: Any) -> nn.Module:
    layers = [nn.Conv2d(3, 64, 11, 4, 2), nn.ReLU(), nn.MaxPool2d(3, 2), nn.Conv2d(64, 192, 5, padding=2), nn.ReLU()]
    layers += [nn.MaxPool2d(3, 2), nn.Conv2d(192, 384, 3, padding=1), nn.ReLU(), nn.Conv2d(384, 256, 3, padding=1)]
    layers += [nn.ReLU(), nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3, 2)]
    return _filled(layers, "alexnet-owt-7be5be79.pth")


def _vgg16(pretrained: bool = False, **_: Any) -> nn.Module:
    layers: list[nn.Module] = []
    before = 3
    for channels in VGG16:
        if isinstance(channels, str):
            layers.append(nn.MaxPool2d(2, 2))
        else:
            layers += [nn.Conv2d(before, channels, 3, padding=1), nn.ReLU()]
            before = channels
    return _filled(layers, "vgg16-397923af.pth")


def _filled(layers: list[nn.Module], file: str) -> nn.Module:
    network = nn.Module()
    network.features = nn.Sequential(*layers)
    weights: dict[str, Tensor] = torch.load(f"{torch.hub.get_dir()}/checkpoints/{file}", weights_only=True)
    network.load_state_dict(weights)
    return network
