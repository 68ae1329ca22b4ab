"""ONNX files compute what the network computes, for any size, or are not kept."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import Tensor, nn

from tests.acceptance import only_in_acceptance
from trainauto.core.plan import SizeRequirements
from trainauto.tasks.sr.archs import ARCHS
from trainauto.tasks.sr.archs.span_arch import Conv3XC
from trainauto.tasks.sr.models.onnx_file import (
    LIMIT,
    OPSET,
    ExportError,
    shapes_compared,
    with_merged_convolutions,
    write_onnx,
)

TINY: dict[str, dict[str, Any]] = {
    "compact": {"scale": 3, "num_feat": 4, "num_conv": 1},
    "span": {"scale": 2, "feature_channels": 4, "img_range": 1.0},
    "swinir": {
        "scale": 1,
        "upsampler": "",
        "embed_dim": 8,
        "depths": (2,),
        "num_heads": (2,),
        "window_size": 4,
    }  # pads odd images
    | {"img_size": 8},
}


def photographs(channels: int = 3) -> list[np.ndarray]:
    from trainauto.commands.run_export import _photographs

    return _photographs(channels)


def network(name: str) -> nn.Module:
    torch.manual_seed(4)
    return ARCHS.get(name)(**TINY[name]).eval()


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=only_in_acceptance) if name == "swinir" else name for name in TINY]
)
def test_any_size(tmp_path: Path, name: str) -> None:
    net, file, scale = network(name), tmp_path / "net.onnx", TINY[name]["scale"]
    written = write_onnx(net, file, photographs(), scale=scale, facts={"scale": str(scale)})
    assert written.takes == ("batch", 3, "height", "width")
    assert written.gives == ("batch", 3, f"{scale}*height", f"{scale}*width")
    assert len({one.shape for one in written.differences}) == 2
    assert 0 <= max(one.largest for one in written.differences) <= LIMIT == written.limit

    kept = onnx.load(file)
    onnx.checker.check_model(kept, full_check=True)
    assert {entry.key: entry.value for entry in kept.metadata_props}["scale"] == str(scale)
    assert [one.version for one in kept.opset_import if one.domain in ("", "ai.onnx")] == [OPSET]
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    for shape in ((1, 3, 3, 5), (3, 3, 17, 8), (1, 3, 31, 70)):
        image = torch.rand(shape)
        with torch.no_grad():
            wanted = net(image).numpy()
        (got,) = session.run(["enlarged"], {"image": image.numpy()})
        np.testing.assert_allclose(got, wanted, atol=LIMIT)


def test_merged_convolutions_do_what_the_modules_did() -> None:
    net = network("span")
    merged = with_merged_convolutions(net)
    assert sum(p.numel() for p in merged.parameters()) < 0.4 * sum(p.numel() for p in net.parameters())
    image = torch.rand(2, 3, 9, 12)
    with torch.no_grad():
        assert torch.equal(merged(image), net(image))
    assert not any(isinstance(module, Conv3XC) for module in merged.modules())
    assert any(isinstance(module, Conv3XC) for module in net.modules())


def test_one_size_and_half_precision(tmp_path: Path) -> None:
    net, file = ARCHS.get("rrdbnet")(scale=2, num_feat=8, num_block=1, num_grow_ch=4).eval(), tmp_path / "net.onnx"
    written = write_onnx(net, file, photographs(), scale=2, half=True, size_px=(21, 700))  # wider than a photograph
    assert (written.takes, written.gives, written.dtype) == ((1, 3, 21, 700), (1, 3, 42, 1400), "float16")
    assert 0 < max(one.largest for one in written.differences) <= written.limit
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    assert [one.type for one in (*session.get_inputs(), *session.get_outputs())] == ["tensor(float16)"] * 2
    assert session.get_inputs()[0].shape == [1, 3, 21, 700]
    assert next(net.parameters()).dtype is torch.float32  # the network itself is as it was


class Enlarging(nn.Module):
    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(factor))

    def forward(self, image: Tensor) -> Tensor:
        return self.factor * nn.functional.interpolate(image, scale_factor=2, mode="nearest")


class OtherWhenExported(Enlarging):
    def forward(self, image: Tensor) -> Tensor:
        return super().forward(image) + (2 * LIMIT if torch.compiler.is_compiling() else 0.0)


class ReadsItsImage(Enlarging):
    def forward(self, image: Tensor) -> Tensor:
        return super().forward(image) * (2.0 if float(image.mean()) > 0.5 else 1.0)


class InBlocks(Enlarging):
    size_requirements = SizeRequirements(minimum=8, multiple=8)

    def forward(self, image: Tensor) -> Tensor:
        n, channels, height, width = image.shape
        blocks = image.reshape(n, channels, height // 8, 8, width // 8, 8)
        return super().forward(blocks.reshape(n, channels, height, width))


@pytest.mark.parametrize(
    ("net", "half", "words"),
    [
        (OtherWhenExported(), False, ["differs from the network by 0.0002", "limit", "not kept"]),
        (Enlarging(float("nan")), False, ["differs from the network by nan"]),
        (Enlarging(1e5), True, ["leave --half out"]),
        (ReadsItsImage(), False, ["torch cannot export this network", "--size HxW"]),
    ],
    ids=["another result", "nan", "beyond half precision", "not to be exported"],
)
def test_a_file_that_differs_is_not_kept(tmp_path: Path, net: nn.Module, half: bool, words: list[str]) -> None:
    with pytest.raises(ExportError) as caught:
        write_onnx(net.eval(), tmp_path / "net.onnx", photographs(), scale=2, half=half)
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_network_that_does_not_pad_is_compared_on_sizes_that_it_takes() -> None:
    net = InBlocks().eval()
    assert shapes_compared(net, 1, None) == [(2, 1, 64, 88), (1, 1, 48, 56)]
    assert all(net(torch.zeros(shape)).shape[2] == 2 * shape[2] for shape in shapes_compared(net, 1, None))
    assert shapes_compared(Enlarging(), 3, None) == [(2, 3, 60, 84), (1, 3, 45, 53)]
