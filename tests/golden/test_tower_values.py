"""Losses and metrics of towers have the values of traiNNer-redux, and of the packages lpips and DISTS-pytorch.

The towers' weights come from a formula, see scripts/seeded_tower.py. Values are traiNNer-redux's own, of 2026-06-09 in
float32 on a CPU. The packages import torchvision for nothing but the layers of their towers: two are made here.
"""

import importlib
import sys
import types
from collections.abc import Iterator, Sequence
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
VGG19 = (64, 64, "pool", 128, 128, "pool", *[256] * 4, "pool", *[512] * 4, "pool", *[512] * 4, "pool")
MEAN, DEVIATION = (
    torch.tensor(values, dtype=torch.float64).view(1, 3, 1, 1)
    for values in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
)


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


def test_perceptual_is_the_sum_over_layers() -> None:
    """Before ReLU, the border continued for the first convolution alone."""
    layers = _sequential(VGG19)
    x, y = (image[:, :, :32, :32] for image in sines())
    at = {2: 0.1, 7: 0.1, 16: 1.0, 25: 1.0, 34: 1.0}
    network = _filled(layers, "vgg19-dcbb9e9d.pth").features.double()

    def features(image: Tensor) -> dict[int, Tensor]:
        image = nn.functional.pad((image - MEAN) / DEVIATION, (1, 1, 1, 1), mode="replicate")
        found = {}
        for number, layer in enumerate(network):
            image = nn.functional.conv2d(image, layer.weight, layer.bias) if number == 0 else layer(image)
            if number in at:
                found[number] = image.clone()
        return found

    found, wanted = features(x), features(y)
    expected = sum(weight * (found[n] - wanted[n]).abs().mean() for n, weight in at.items())
    mine = LOSSES.get("perceptual")(criterion="l1").double().compute(x, y)
    assert mine.item() == pytest.approx(expected.item(), rel=1e-6)


@pytest.mark.parametrize("criterion", ["l1", "l2", "fro"])
def test_basicsr_s_perceptual_loss_and_style(criterion: str) -> None:
    network = _vgg16().features.double()
    x, y = (image[:, :, :32, :32] for image in sines())
    found, wanted = (network[:29]((image - MEAN) / DEVIATION) for image in (x, y))  # up to conv5_3
    compare = {
        "l1": lambda a, b: (a - b).abs().mean(),
        "l2": lambda a, b: (a - b).square().mean(),
        "fro": lambda a, b: (a - b).square().sum().sqrt(),
    }[criterion]
    grams = [torch.einsum("nchw,ndhw->ncd", f, f) / f[0].numel() for f in (found, wanted)]
    loss = LOSSES.get("vggperceptualloss")(vgg_type="vgg16", criterion=criterion, style_weight=2.0).double()
    parts = loss.compute(x, y)
    assert parts["percep"].item() == pytest.approx(compare(found, wanted).item(), rel=1e-6)
    assert parts["style"].item() == pytest.approx(2 * compare(*grams).item(), rel=1e-6)
    assert loss.couples_samples == (criterion == "fro")


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
    return _filled(_sequential(VGG16), "vgg16-397923af.pth")


def _sequential(design: Sequence[int | str]) -> list[nn.Module]:
    layers: list[nn.Module] = []
    before = 3
    for channels in design:
        if isinstance(channels, str):
            layers.append(nn.MaxPool2d(2, 2))
        else:
            layers += [nn.Conv2d(before, channels, 3, padding=1), nn.ReLU()]
            before = channels
    return layers


def _filled(layers: list[nn.Module], file: str) -> nn.Module:
    network = nn.Module()
    network.features = nn.Sequential(*layers)
    weights: dict[str, Tensor] = torch.load(f"{torch.hub.get_dir()}/checkpoints/{file}", weights_only=True)
    network.load_state_dict(weights)
    return network
