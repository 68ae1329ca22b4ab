"""VGG and AlexNet without their classifiers, as torchvision's files hold them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Of ImageNet's images, 0 to 1, by channel: what these networks were trained on."""
POOL = "pool"


@dataclass(frozen=True)
class Convolution:
    """A convolution of a tower; ReLU follows it.

    Attributes:
        name: as in ``conv3_2``: second of the third block.
        index: its number among ``features`` in torchvision's file.
        channels: of its output.
        kernel: side of its kernel; stride and padding follow.
    """

    name: str
    index: int
    channels: int
    kernel: int = 3
    stride: int = 1
    padding: int = 1


@dataclass(frozen=True)
class Design:
    """How a tower is built, and the file that it comes from.

    Attributes:
        name: ``vgg16``, ``vgg19`` or ``alexnet``.
        file: torchvision's, as torch.hub keeps it.
        mib: its size.
        layers: convolutions and poolings (``pool``), in their order.
        pool: side and stride of poolings.
    """

    name: str
    file: str
    mib: float
    layers: tuple[Convolution | str, ...]
    pool: tuple[int, int] = (2, 2)

    def convolutions(self) -> Iterator[Convolution]:
        """Yield the convolutions in their order."""
        yield from (layer for layer in self.layers if isinstance(layer, Convolution))

    def layer_names(self) -> list[str]:
        """Return what features can be asked for: ``conv1_1``, ``relu1_1``, ..."""
        return [name for layer in self.convolutions() for name in (layer.name, relu_of(layer))]


def _vgg(name: str, file: str, mib: float, depths: Iterable[int]) -> Design:
    layers: list[Convolution | str] = []
    index = 0
    for block, (depth, channels) in enumerate(zip(depths, (64, 128, 256, 512, 512), strict=True), start=1):
        for number in range(1, depth + 1):
            layers.append(Convolution(f"conv{block}_{number}", index, channels))
            index += 2  # ReLU has a number, too
        layers.append(POOL)
        index += 1
    return Design(name, file, mib, tuple(layers))


VGG16 = _vgg("vgg16", "vgg16-397923af.pth", 528, (2, 2, 3, 3, 3))
VGG19 = _vgg("vgg19", "vgg19-dcbb9e9d.pth", 548, (2, 2, 4, 4, 4))
ALEXNET = Design(
    "alexnet",
    "alexnet-owt-7be5be79.pth",
    233,
    (
        Convolution("conv1", 0, 64, 11, 4, 2),
        POOL,
        Convolution("conv2", 3, 192, 5, 1, 2),
        POOL,
        Convolution("conv3", 6, 384),
        Convolution("conv4", 8, 256),
        Convolution("conv5", 10, 256),
    ),
    pool=(3, 2),
)
DESIGNS = {design.name: design for design in (VGG16, VGG19, ALEXNET)}


class Tower(nn.Module):
    """The features of images at chosen layers; its weights are fixed, and nothing behind the last layer is built.

    Args:
        design: which tower.
        wanted: names of layers, as in :meth:`Design.layer_names`.
        divisor: all layers have so many times fewer channels than the published tower.
        replicated: pad the first convolution with the image's border instead of zeros.
        pooling: what poolings do: ``max``, or ``l2`` as DISTS does.
        mean: taken off images by channel; with ``deviation``, ImageNet's unless given, of images from 0 to 1.
        deviation: divides what is left.

    Raises:
        ValueError: a layer that the tower does not have, or none.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(
        self,
        design: Design,
        wanted: Iterable[str],
        *,
        divisor: int = 1,
        replicated: bool = False,
        pooling: Literal["max", "l2"] = "max",
        mean: Sequence[float] = MEAN,
        deviation: Sequence[float] = DEVIATION,
    ) -> None:
        super().__init__()
        self.design, self.wanted, self.divisor = design, tuple(wanted), divisor
        names = design.layer_names()
        if not self.wanted:
            raise ValueError(f"no layer of {design.name} is asked for")
        if unknown := [name for name in self.wanted if name not in names]:
            before, after = ([name for name in names if name.startswith(kind)] for kind in ("conv", "relu"))
            there = f"{', '.join(before)}, and behind them {after[0]} to {after[-1]}"
            raise ValueError(f"{design.name} has no layer {unknown[0]}; it has {there}")
        self._replicated, self._pooling = replicated, pooling
        self._built = list(design.convolutions())[: 1 + max(names.index(name) // 2 for name in self.wanted)]
        self.register_buffer("mean", torch.tensor(mean).view(1, 3, 1, 1), persistent=False)
        self.register_buffer("deviation", torch.tensor(deviation).view(1, 3, 1, 1), persistent=False)
        self.convolutions = nn.ModuleDict()
        channels = 3
        for layer in self._built:
            out = layer.channels // divisor
            self.convolutions[layer.name] = nn.Conv2d(channels, out, layer.kernel, layer.stride, layer.padding)
            channels = out
        self.requires_grad_(False)
        super().train(False)

    def train(self, mode: bool = True) -> "Tower":  # noqa: ARG002  it never trains
        """Stay as it is."""
        return self

    def forward(self, image: Tensor) -> dict[str, Tensor]:
        """Return the features of images (N, 3, H, W), each (N, C', H', W') by the name of its layer."""
        image = (image - self.mean) / self.deviation
        features: dict[str, Tensor] = {}
        for layer in self.design.layers:
            if isinstance(layer, str):
                image = _pooled(image, *self.design.pool, self._pooling)
                continue
            image = self._convolved(image, layer)
            if layer.name in self.wanted:
                features[layer.name] = image
            image = F.relu(image)
            if (name := relu_of(layer)) in self.wanted:
                features[name] = image
            if layer is self._built[-1]:
                break
        return features

    @property
    def smallest_px(self) -> int:
        """Shortest side of images that leaves a pixel at every layer."""
        return next(side for side in count(1) if self._is_enough(side))

    def _is_enough(self, side: int) -> bool:
        for layer in self.design.layers:
            if isinstance(layer, str):
                pool_side, stride = self.design.pool
                # Of l2, windows of 3 at every second pixel, padded by one.
                side = (side - pool_side) // stride + 1 if self._pooling == "max" else (side - 1) // 2 + 1
            else:
                side = (side + 2 * layer.padding - layer.kernel) // layer.stride + 1
            if side < 1:
                return False
            if layer is self._built[-1]:
                break
        return True

    def _convolved(self, image: Tensor, layer: Convolution) -> Tensor:
        weight = self.get_parameter(f"convolutions.{layer.name}.weight")
        bias = self.get_parameter(f"convolutions.{layer.name}.bias")
        if self._replicated and layer is self._built[0]:
            return F.conv2d(F.pad(image, [layer.padding] * 4, mode="replicate"), weight, bias, layer.stride)
        return F.conv2d(image, weight, bias, layer.stride, layer.padding)

    def published_names(self) -> Mapping[str, str]:
        """Return the key in torchvision's file of each of this tower's weights."""
        return {
            f"convolutions.{layer.name}.{part}": f"features.{layer.index}.{part}"
            for layer in self._built
            for part in ("weight", "bias")
        }


def relu_of(layer: Convolution) -> str:
    """Return the name of what ReLU makes of a convolution's output."""
    return f"relu{layer.name.removeprefix('conv')}"


def _pooled(image: Tensor, side: int, stride: int, pooling: str) -> Tensor:
    """Return maxima, or roots of Hann-weighted mean squares of 3 x 3 values at every second one."""
    if pooling == "max":
        return F.max_pool2d(image, side, stride)
    hann = torch.tensor([0.25, 0.5, 0.25], device=image.device, dtype=image.dtype)
    channels = image.shape[1]
    weights = torch.outer(hann, hann).expand(channels, 1, 3, 3)
    squares = F.conv2d(image.square(), weights, stride=2, padding=1, groups=channels)
    return (squares + 1e-12).sqrt()
