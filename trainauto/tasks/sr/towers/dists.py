"""DISTS: how far two images differ in structure and texture, by VGG16's features.

Source: Ding et al., "Image Quality Assessment: Unifying Structure and Texture Similarity", 2020.
"""

from pathlib import Path

import torch
from torch import Tensor, nn

from trainauto.tasks.sr.towers.fixed_weights import read_fixed_weights
from trainauto.tasks.sr.towers.load_tower import load_tower
from trainauto.tasks.sr.towers.package_data import file_of_package
from trainauto.tasks.sr.towers.tower import DEVIATION, MEAN, VGG16

LAYERS = ("relu1_2", "relu2_2", "relu3_3", "relu4_3", "relu5_3")
C1 = C2 = 1e-6


class Dists(nn.Module):
    """DISTS of images from 0 to 1; 0 for equal ones.

    Args:
        weights: file of VGG16's weights; ``None`` looks into torch.hub's folder.
        use_input_norm: normalise images as VGG was trained on them.

    Raises:
        InputError: VGG16's weights, or the file of the package DISTS-pytorch, are not there.
    """

    alpha: Tensor
    beta: Tensor

    def __init__(self, weights: str | Path | None = None, use_input_norm: bool = True) -> None:
        super().__init__()
        mean, deviation = (MEAN, DEVIATION) if use_input_norm else ((0.0,) * 3, (1.0,) * 3)
        self.tower = load_tower(VGG16, LAYERS, weights, pooling="l2", mean=mean, deviation=deviation)
        factors = read_fixed_weights(file_of_package("DISTS_pytorch", "weights.pt", "DISTS-pytorch", "DISTS"))
        total = factors["alpha"].sum() + factors["beta"].sum()
        self._channels = [3, *(layer.channels for layer in VGG16.convolutions() if f"relu{layer.name[4:]}" in LAYERS)]
        for name in ("alpha", "beta"):
            self.register_buffer(name, self._thinned((factors[name] / total).flatten()), persistent=False)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Return DISTS of each pair of images (N, 3, H, W), (N,)."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and y.requires_grad):
            wanted = [y, *self.tower(y).values()]
        score = torch.zeros(len(x), device=x.device)
        alphas, betas = (factors.split(self._here) for factors in (self.alpha, self.beta))  # type: ignore[no-untyped-call]
        for f, w, alpha, beta in zip([x, *self.tower(x).values()], wanted, alphas, betas, strict=True):
            x_mean, y_mean = f.mean(dim=(2, 3)), w.mean(dim=(2, 3))
            x_spread = (f - x_mean[..., None, None]).square().mean(dim=(2, 3))
            y_spread = (w - y_mean[..., None, None]).square().mean(dim=(2, 3))
            together = (f * w).mean(dim=(2, 3)) - x_mean * y_mean
            texture = (2 * x_mean * y_mean + C1) / (x_mean.square() + y_mean.square() + C1)
            structure = (2 * together + C2) / (x_spread + y_spread + C2)
            score = score + (alpha * texture + beta * structure).sum(dim=1)
        return 1 - score

    def _thinned(self, factors: Tensor) -> Tensor:
        """Return the factors of the channels that are there: the first of each layer where the tower has fewer."""
        parts = factors.split(self._channels)  # type: ignore[no-untyped-call]
        self._here = [3, *(channels // self.tower.divisor for channels in self._channels[1:])]
        kept = torch.cat([part[:here] for part, here in zip(parts, self._here, strict=True)])
        return kept / kept.sum() * factors.sum()
