"""Convolution whose weight is divided by its largest singular value."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainauto.tasks.sr.archs.autocast import without_autocast

EPSILON = 1e-12
FIRST_ITERATIONS = 15
"""Steps of the power method at the start; torch's own parametrization takes as many."""


class SpectralNormConv2d(nn.Module):
    """A convolution without bias whose weight, as a matrix, has a spectral norm of about 1.

    It computes what ``torch.nn.utils.spectral_norm(nn.Conv2d(..., bias=False))`` computes, under the same names
    (``weight_orig``, ``weight_u``, ``weight_v``), which published weights have; those of the newer
    ``torch.nn.utils.parametrizations`` differ. Unlike torch's, it keeps no normalised weight as an attribute, so that
    it can be copied at any time, and it finds the norm in float32 under autocast too.

    In training, every forward pass takes one step of the power method. A batch in pieces takes more of them than a
    whole one, so that the two differ by what the estimate of the norm still lacks.

    Args:
        in_channels: channels of the input.
        out_channels: channels of the output.
        kernel_size: side of the kernel.
        stride: pixels from one place of the kernel to the next.
        padding: zeros added on every side.

    References:
        T. Miyato et al., "Spectral Normalization for Generative Adversarial Networks", ICLR 2018,
        https://arxiv.org/abs/1802.05957.
    """

    weight_u: Tensor
    weight_v: Tensor

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int, stride: int, padding: int) -> None:
        super().__init__()
        self.stride = stride
        self.padding = padding
        self.weight_orig = nn.Conv2d(in_channels, out_channels, kernel_size, bias=False).weight
        matrix = self.weight_orig.detach().flatten(1)
        for name, size in zip(("weight_u", "weight_v"), matrix.shape, strict=True):
            self.register_buffer(name, F.normalize(torch.randn(size), dim=0, eps=EPSILON))
        for _ in range(FIRST_ITERATIONS):
            self._improve(matrix)

    def forward(self, features: Tensor) -> Tensor:
        """Map (N, in_channels, H, W) to (N, out_channels, H', W')."""
        return F.conv2d(features, self._normalized_weight(), stride=self.stride, padding=self.padding)

    def _normalized_weight(self) -> Tensor:
        with without_autocast(self.weight_orig.device.type):
            matrix = self.weight_orig.flatten(1)
            if self.training:
                self._improve(matrix.detach())
            # Copies, for the next forward pass may come before the backward pass of this one.
            u, v = self.weight_u.clone(), self.weight_v.clone()
            return self.weight_orig / torch.dot(u, torch.mv(matrix, v))

    @torch.no_grad()
    def _improve(self, matrix: Tensor) -> None:
        """Take a step of the power method, in place: the buffers stay the ones that are saved and rewound."""
        self.weight_v.copy_(F.normalize(torch.mv(matrix.t(), self.weight_u), dim=0, eps=EPSILON))
        self.weight_u.copy_(F.normalize(torch.mv(matrix, self.weight_v), dim=0, eps=EPSILON))
