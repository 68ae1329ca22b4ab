"""LPIPS: how far two images differ to people, by features of a tower and heads learned from their judgements.

Source: Zhang et al., "The Unreasonable Effectiveness of Deep Features as a Perceptual Metric", CVPR 2018, version 0.1.
"""

from pathlib import Path
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from trainauto.tasks.sr.towers.fixed_weights import read_fixed_weights
from trainauto.tasks.sr.towers.load_tower import load_tower
from trainauto.tasks.sr.towers.package_data import file_of_package
from trainauto.tasks.sr.towers.tower import ALEXNET, VGG16

Net = Literal["alex", "vgg"]
TOWERS = {
    "alex": (ALEXNET, ("relu1", "relu2", "relu3", "relu4", "relu5")),
    "vgg": (VGG16, ("relu1_2", "relu2_2", "relu3_3", "relu4_3", "relu5_3")),
}
SHIFT, SCALE = (-0.030, -0.088, -0.188), (0.458, 0.448, 0.450)
"""Of images from -1 to 1, by channel."""
EPS = 1e-10


class Lpips(nn.Module):
    """LPIPS of images from 0 to 1; 0 for equal ones.

    Args:
        net: tower whose features are compared, ``alex`` or ``vgg``.
        weights: file of its weights; ``None`` looks into torch.hub's folder.

    Raises:
        InputError: the tower's weights, or the heads of the package lpips, are not there.
        ValueError: another tower.
    """

    def __init__(self, net: Net = "alex", weights: str | Path | None = None) -> None:
        super().__init__()
        if net not in get_args(Net):
            raise ValueError(f"LPIPS: net must be one of {', '.join(get_args(Net))}, not '{net}'")
        design, layers = TOWERS[net]
        # Images from 0 to 1: 2 x - 1, then the shift and scale of LPIPS.
        mean, deviation = [(1 + shift) / 2 for shift in SHIFT], [scale / 2 for scale in SCALE]
        self.tower = load_tower(design, layers, weights, mean=mean, deviation=deviation)
        heads = read_fixed_weights(file_of_package("lpips", f"weights/v0.1/{net}.pth", "lpips", "LPIPS"))
        for number, layer in enumerate(layers):
            head = heads[f"lin{number}.model.1.weight"].flatten()
            self.register_buffer(
                f"head_{layer}", head[: len(head) // self.tower.divisor].view(1, -1, 1, 1), persistent=False
            )

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Return LPIPS of each pair of images (N, 3, H, W), (N,)."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and y.requires_grad):
            wanted = {name: _unit(features) for name, features in self.tower(y).items()}
        score = torch.zeros(len(x), device=x.device)
        for name, features in self.tower(x).items():
            squares = (_unit(features) - wanted[name]).square()
            score = score + (squares * self.get_buffer(f"head_{name}")).sum(dim=1).mean(dim=(1, 2))
        return score


def _unit(features: Tensor) -> Tensor:
    """Return features of length 1 at each place. All can be 0 behind ReLU, where the slope of a root is kept finite."""
    squares = features.square().sum(dim=1, keepdim=True)
    length = torch.where(squares > 0, squares, torch.finfo(squares.dtype).tiny).sqrt()
    return features / (torch.where(squares > 0, length, 0.0) + EPS)
