"""What export writes of our networks, read by spandrel: recognised as the same architecture, with the same outputs."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.contract.small_archs import SMALL
from tests.made_runs import make_run, options_of
from trainauto.cli import main
from trainauto.inference.load_network import load_network
from trainauto.tasks.sr.spandrel_archs.library import library_module

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("spandrel") is None, reason="spandrel is not installed"),
    pytest.mark.filterwarnings("ignore:torch.meshgrid:UserWarning"),
]
PAIRS = {"type": "PairedImageDataset", "dataroot_gt": "gt", "dataroot_lq": "lq"}  # scale 1 makes no images of its own

SWINIR = {"embed_dim": 12, "depths": [2, 2], "num_heads": [2, 2], "img_size": 16}
CASES: list[tuple[dict[str, Any], int, str]] = [
    ({"type": "rrdbnet", "num_feat": 8, "num_block": 2}, 4, "ESRGAN"),  # spandrel knows no num_grow_ch but 32
    ({"type": "rrdbnet", "num_feat": 8, "num_block": 2}, 2, "ESRGAN"),
    ({"type": "rrdbnet", "num_feat": 8, "num_block": 2}, 1, "ESRGAN"),
    ({"type": "rrdbnet", "num_feat": 8, "num_block": 2}, 8, "ESRGAN"),
    ({"type": "rrdbnet", "num_feat": 8, "num_block": 2, "use_pixel_unshuffle": False}, 2, "ESRGAN"),
    ({"type": "rrdbnet", "num_feat": 8, "num_block": 2, "use_pixel_unshuffle": False}, 1, "ESRGAN"),
    ({"type": "compact", "num_feat": 8, "num_conv": 2}, 3, "Compact"),
    ({"type": "ultracompact"}, 1, "Compact"),
    ({"type": "superultracompact"}, 8, "Compact"),
    ({"type": "span", "feature_channels": 8}, 4, "SPAN"),
    ({"type": "span", "feature_channels": 8, "norm": False}, 1, "SPAN"),
    ({"type": "swinir", **SWINIR}, 3, "SwinIR"),
    ({"type": "swinir", **SWINIR, "upsampler": "nearest+conv", "resi_connection": "3conv"}, 8, "SwinIR"),
    ({"type": "swinir_light", **SWINIR}, 2, "SwinIR"),
]


@pytest.mark.parametrize("suffix", ["pth", "safetensors"])
@pytest.mark.parametrize(("network", "scale", "architecture"), CASES)
def test_spandrel_reads_what_was_exported(
    tmp_path: Path, network: dict[str, Any], scale: int, architecture: str, suffix: str
) -> None:
    datasets = {"train": {**PAIRS, "lq_size": 16, "batch_size_per_gpu": 2}}
    run = make_run(tmp_path, options_of(network, scale, datasets=datasets))
    out = tmp_path / f"out.{suffix}"
    assert main(["export", str(run.path), str(out)]) == 0
    read = library_module("spandrel").ModelLoader(torch.device("cpu")).load_from_file(out)
    assert (str(read.architecture.id), read.scale) == (architecture, scale)
    own = load_network(run.path, "best", torch.device("cpu")).network
    image = torch.rand(1, 3, 24, 32, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        torch.testing.assert_close(read.model.eval()(image), own(image), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("network", "scale"),
    [
        ({"type": "rrdbnet", "num_feat": 8, "num_block": 2, "num_grow_ch": 16}, 4),
        ({"type": "compact", "num_feat": 8, "num_conv": 2, "act_type": "relu"}, 2),
        *(pytest.param({"type": name, **SMALL[name]}, 2, id=name) for name in ("ecbsr", "edsr", "man", "msrresnet")),
        pytest.param({"type": "spanplus", **SMALL["spanplus"]}, 2, id="spanplus"),
    ],
)
def test_what_spandrel_cannot_read(
    tmp_path: Path, network: dict[str, Any], scale: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """The documentation says so; where spandrel learns it, the documentation should follow."""
    run = make_run(tmp_path, options_of(network, scale))
    assert main(["export", str(run.path), str(tmp_path / "out.pth")]) == 0
    has_it = network["type"] in ("rrdbnet", "compact")
    assert ("does not know this network" in capsys.readouterr().out) is not has_it
    spandrel = library_module("spandrel")
    with pytest.raises((RuntimeError, spandrel.UnsupportedModelError)):
        spandrel.ModelLoader(torch.device("cpu")).load_from_file(tmp_path / "out.pth")


def test_spandrel_takes_esrgan_of_scale_3_for_scale_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path, options_of({"type": "rrdbnet", "num_feat": 8, "num_block": 2}, 3))
    assert main(["export", str(run.path), str(tmp_path / "out.pth")]) == 0
    assert "takes this file for scale 2" in " ".join(capsys.readouterr().out.split())
    assert library_module("spandrel").ModelLoader(torch.device("cpu")).load_from_file(tmp_path / "out.pth").scale == 2
