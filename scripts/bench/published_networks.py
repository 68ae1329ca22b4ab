"""The networks of the published peaks, written after their papers: ResNet with the heads of five segmenters.

ResNet (He et al. 2015) with a stem of three convolutions or of one, dilated to an eighth of the image where it says d8;
FCN (Long et al. 2015) with two convolutions and the backbone's features beside them, PSPNet (Zhao et al. 2017),
DeepLabV3 and DeepLabV3+ (Chen et al. 2017, 2018), UPerNet (Xiao et al. 2018). Each has the auxiliary head of training,
a small FCN on the third stage.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

BLOCKS = {18: (2, 2, 2, 2), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3)}
BINS = (1, 2, 3, 6)
DILATIONS = (1, 12, 24, 36)
DROPOUT = 0.1


def resized(x: Tensor, like: Tensor) -> Tensor:
    """Enlarge to the size of another."""
    return F.interpolate(x, like.shape[2:], mode="bilinear", align_corners=False)


class Unit(nn.Sequential):
    """Convolution, norm and activation."""

    def __init__(self, inputs: int, outputs: int, size: int = 1, *, active: bool = True, **settings: Any) -> None:
        dilation = settings.get("dilation", 1)
        settings.setdefault("padding", dilation * (size // 2))
        parts = [nn.Conv2d(inputs, outputs, size, bias=False, **settings), nn.BatchNorm2d(outputs)]
        super().__init__(*parts, *([nn.ReLU(inplace=True)] if active else []))


def separable(inputs: int, outputs: int, dilation: int = 1) -> nn.Sequential:
    """Return a convolution of each channel and one across them."""
    return nn.Sequential(Unit(inputs, inputs, 3, dilation=dilation, groups=inputs), Unit(inputs, outputs))


class Residual(nn.Module):
    """A block of ResNet: two convolutions, or three through a bottleneck."""

    def __init__(self, inputs: int, width: int, *, stride: int, dilation: int, deep: bool) -> None:
        super().__init__()
        outputs = 4 * width if deep else width
        middle = {"stride": stride, "dilation": dilation}
        if deep:
            units = [Unit(inputs, width), Unit(width, width, 3, **middle), Unit(width, outputs, active=False)]
        else:
            units = [Unit(inputs, width, 3, **middle), Unit(width, outputs, 3, active=False, dilation=dilation)]
        self.units = nn.Sequential(*units)
        changes = inputs != outputs or stride != 1
        self.shortcut = Unit(inputs, outputs, stride=stride, active=False) if changes else None

    def forward(self, x: Tensor) -> Tensor:
        """Compute."""
        out = self.units(x)
        out += x if self.shortcut is None else self.shortcut(x)
        return F.relu(out, inplace=True)


class ResNet(nn.Module):
    """The backbone; gives the features of its four stages.

    Args:
        depth: 18, 50 or 101.
        dilated: keep the last two stages at an eighth of the image.
        plain_stem: one convolution of 7 x 7 instead of three of 3 x 3.
    """

    def __init__(self, depth: int, *, dilated: bool, plain_stem: bool) -> None:
        super().__init__()
        stem = [Unit(3, 64, 7, stride=2)]
        if not plain_stem:
            stem = [Unit(3, 32, 3, stride=2), Unit(32, 32, 3), Unit(32, 64, 3)]
        self.stem = nn.Sequential(*stem, nn.MaxPool2d(3, 2, 1))
        strides, dilations = ((1, 2, 1, 1), (1, 1, 2, 4)) if dilated else ((1, 2, 2, 2), (1, 1, 1, 1))
        deep, inputs = depth >= 50, 64
        stages = []
        for stage, number in enumerate(BLOCKS[depth]):
            width = 64 << stage
            blocks = []
            for place in range(number):
                first = place == 0
                dilation = max(1, dilations[stage] // 2) if first else dilations[stage]
                stride = strides[stage] if first else 1
                blocks.append(Residual(inputs, width, stride=stride, dilation=dilation, deep=deep))
                inputs = 4 * width if deep else width
            stages.append(nn.Sequential(*blocks))
        self.stages = nn.ModuleList(stages)

    def forward(self, x: Tensor) -> list[Tensor]:
        """Compute."""
        x = self.stem(x)
        features = []
        for stage in self.stages:
            x = stage(x)
            features.append(x)
        return features


class Classifier(nn.Sequential):
    """Dropout of channels, and a class for every pixel."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__(nn.Dropout2d(DROPOUT), nn.Conv2d(inputs, classes, 1))


class Pyramid(nn.Module):
    """Averages over grids of several sizes, and the features themselves."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.levels = nn.ModuleList([nn.Sequential(nn.AdaptiveAvgPool2d(bins), Unit(inputs, width)) for bins in BINS])
        self.join = Unit(inputs + len(BINS) * width, width, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Compute."""
        parts = [x]
        parts.extend([resized(level(x), x) for level in self.levels])
        return self.join(torch.cat(parts, 1))


class FCN(nn.Module):
    """Convolutions; the features go beside them into the last one where they are asked for."""

    def __init__(self, inputs: int, width: int, classes: int, *, units: int = 2, beside: bool = True) -> None:
        super().__init__()
        self.units = nn.Sequential(*(Unit(inputs if place == 0 else width, width, 3) for place in range(units)))
        self.join = Unit(inputs + width, width, 3) if beside else None
        self.classify = Classifier(width, classes)

    def forward(self, features: Sequence[Tensor]) -> Tensor:
        """Compute."""
        out = self.units(features[-1])
        if self.join is not None:
            out = self.join(torch.cat([features[-1], out], 1))
        return self.classify(out)


class PSPNet(nn.Module):
    """A pyramid."""

    def __init__(self, inputs: int, width: int, classes: int) -> None:
        super().__init__()
        self.pyramid, self.classify = Pyramid(inputs, width), Classifier(width, classes)

    def forward(self, features: Sequence[Tensor]) -> Tensor:
        """Compute."""
        return self.classify(self.pyramid(features[-1]))


class Atrous(nn.Module):
    """Convolutions of several dilations beside an average of the image."""

    def __init__(self, inputs: int, width: int, convolution: Callable[[int, int, int], nn.Module]) -> None:
        super().__init__()
        self.average = nn.Sequential(nn.AdaptiveAvgPool2d(1), Unit(inputs, width))
        self.branches = nn.ModuleList(
            [Unit(inputs, width) if dilation == 1 else convolution(inputs, width, dilation) for dilation in DILATIONS]
        )
        self.join = Unit((1 + len(DILATIONS)) * width, width, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Compute."""
        parts = [resized(self.average(x), x)]
        parts.extend([branch(x) for branch in self.branches])
        return self.join(torch.cat(parts, 1))


class DeepLabV3(nn.Module):
    """Dilated convolutions."""

    def __init__(self, inputs: int, width: int, classes: int) -> None:
        super().__init__()
        self.atrous = Atrous(
            inputs, width, lambda channels_in, other, dilation: Unit(channels_in, other, 3, dilation=dilation)
        )
        self.classify = Classifier(width, classes)

    def forward(self, features: Sequence[Tensor]) -> Tensor:
        """Compute."""
        return self.classify(self.atrous(features[-1]))


class DeepLabV3Plus(nn.Module):
    """The same by channels, then at a quarter of the image, with the first stage's features."""

    def __init__(self, inputs: int, width: int, classes: int, *, first: int, reduced: int) -> None:
        super().__init__()
        self.atrous = Atrous(inputs, width, separable)
        self.reduce = Unit(first, reduced)
        self.refine = nn.Sequential(separable(width + reduced, width), separable(width, width))
        self.classify = Classifier(width, classes)

    def forward(self, features: Sequence[Tensor]) -> Tensor:
        """Compute."""
        out, fine = self.atrous(features[-1]), self.reduce(features[0])
        return self.classify(self.refine(torch.cat([resized(out, fine), fine], 1)))


class UPerNet(nn.Module):
    """A pyramid on the last stage, and a feature pyramid over all four."""

    def __init__(self, inputs: Sequence[int], width: int, classes: int) -> None:
        super().__init__()
        self.pyramid = Pyramid(inputs[-1], width)
        self.sides = nn.ModuleList([Unit(channels, width) for channels in inputs[:-1]])
        self.smooth = nn.ModuleList([Unit(width, width, 3) for _ in inputs[:-1]])
        self.join = Unit(len(inputs) * width, width, 3)
        self.classify = Classifier(width, classes)

    def forward(self, features: Sequence[Tensor]) -> Tensor:
        """Compute."""
        levels = [side(feature) for side, feature in zip(self.sides, features[:-1], strict=True)]
        levels.append(self.pyramid(features[-1]))
        for place in range(len(levels) - 1, 0, -1):
            levels[place - 1] = levels[place - 1] + resized(levels[place], levels[place - 1])
        levels[:-1] = [smooth(level) for smooth, level in zip(self.smooth, levels[:-1], strict=True)]
        levels[1:] = [resized(level, levels[0]) for level in levels[1:]]
        return self.classify(self.join(torch.cat(levels, 1)))


class Segmenter(nn.Module):
    """A backbone with its two heads, and the loss of both.

    Args:
        head: ``fcn``, ``pspnet``, ``deeplabv3``, ``deeplabv3plus`` or ``upernet``.
        depth: of ResNet.
        classes: of pixels.
        plain_stem: see :class:`ResNet`.
    """

    def __init__(self, head: str, depth: int, classes: int, *, plain_stem: bool) -> None:
        super().__init__()
        self.backbone = ResNet(depth, dilated=head != "upernet", plain_stem=plain_stem)
        widths = [64, 128, 256, 512] if depth < 50 else [256, 512, 1024, 2048]
        width = widths[-1] // 4
        heads: dict[str, Callable[[], nn.Module]] = {
            "fcn": lambda: FCN(widths[-1], width, classes),
            "pspnet": lambda: PSPNet(widths[-1], width, classes),
            "deeplabv3": lambda: DeepLabV3(widths[-1], width, classes),
            "deeplabv3plus": lambda: DeepLabV3Plus(
                widths[-1], width, classes, first=widths[0], reduced=48 if depth >= 50 else 12
            ),
            "upernet": lambda: UPerNet(widths, width, classes),
        }
        self.head = heads[head]()
        self.auxiliary = FCN(widths[2], widths[2] // 4, classes, units=1, beside=False)
        # Up to torch 1.10, backward of log_softmax kept its input beside its result.
        self.kept: list[Tensor] = []

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of images (b, 3, h, w) and labels (b, h, w)."""
        self.kept.clear()
        features = self.backbone(images)
        losses = []
        for head, seen, share in ((self.head, features, 1.0), (self.auxiliary, features[:3], 0.4)):
            scores = head(seen)
            scores = F.interpolate(scores, labels.shape[1:], mode="bilinear", align_corners=False)
            self.kept.append(scores)
            losses.append(share * F.cross_entropy(scores, labels, reduction="none", ignore_index=255).mean())
        return losses[0] + losses[1]
