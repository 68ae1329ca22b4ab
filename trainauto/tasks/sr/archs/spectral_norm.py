"""Convolution whose weight is divided by its largest singular value."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainauto.tasks.sr.archs.autocast import without_autocast

EPSILON = 1e-12
FIRST_ITERATIONS = 15
"""Steps of the power method at the start; torch's own parametrization takes as many."""
_PARAMETRIZED = {
    "parametrizations.weight.original": "weight_orig",
    "parametrizations.weight.0._u": "weight_u",
    "parametrizations.weight.0._v": "weight_v",
}
"""Names that ``torch.nn.utils.parametrizations.spectral_norm`` gives, and those here."""


class SpectralNormConv2d(nn.Module):
    """A convolution whose weight, as a matrix, has a spectral norm of about 1.

    It computes what ``torch.nn.utils.spectral_norm(nn.Conv2d(...))`` computes, under the same names (``weight_orig``,
    ``weight_u``, ``weight_v``), which published weights have; it also loads those of the newer
    ``torch.nn.utils.parametrizations``. Unlike torch's, it keeps no normalised weight as an attribute, so that it can
    be copied at any time, and it finds the norm in float32 under autocast too.

    In training, every forward pass takes one step of the power method. Between :meth:`begin_pass`, which takes one, and
    :meth:`end_pass` none does, so that a batch in pieces, and blocks that gradient checkpointing runs again, are
    computed with the same weight as the whole batch.

    Args:
        in_channels: channels of the input.
        out_channels: channels of the output.
        kernel_size: side of the kernel.
        stride: pixels from one place of the kernel to the next.
        padding: zeros added on every side.
        bias: add a learned value to each channel of the output.

    References:
        T. Miyato et al., "Spectral Normalization for Generative Adversarial Networks", ICLR 2018,
        https://arxiv.org/abs/1802.05957.
    """

    weight_u: Tensor
    weight_v: Tensor

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: int, stride: int, padding: int, bias: bool = False
    ) -> None:
        super().__init__()
        self.stride = stride
        self.padding = padding
        conv = nn.Conv2d(in_channels, out_channels, kernel_size, bias=bias)
        self.weight_orig = conv.weight
        self.bias = conv.bias
        self._is_in_pass = False
        matrix = self.weight_orig.detach().flatten(1)
        for name, size in zip(("weight_u", "weight_v"), matrix.shape, strict=True):
            self.register_buffer(name, F.normalize(torch.randn(size), dim=0, eps=EPSILON))
        for _ in range(FIRST_ITERATIONS):
            self._improve(matrix)

    def forward(self, features: Tensor) -> Tensor:
        """Map (N, in_channels, H, W) to (N, out_channels, H', W')."""
        return F.conv2d(features, self._normalized_weight(), self.bias, stride=self.stride, padding=self.padding)

    def begin_pass(self) -> None:
        """Take a step of the power method in training, and none in forward passes from now on."""
        if self.training:
            self._improve(self.weight_orig.detach().flatten(1))
        self._is_in_pass = True

    def end_pass(self) -> None:
        """Take a step in every forward pass in training again."""
        self._is_in_pass = False

    def _normalized_weight(self) -> Tensor:
        with without_autocast(self.weight_orig.device.type):
            matrix = self.weight_orig.flatten(1)
            if self.training and not self._is_in_pass:
                self._improve(matrix.detach())
            # Copies, for the next forward pass may come before the backward pass of this one.
            u, v = self.weight_u.clone(), self.weight_v.clone()
            return self.weight_orig / torch.dot(u, torch.mv(matrix, v))

    @torch.no_grad()
    def _improve(self, matrix: Tensor) -> None:
        """Take a step of the power method, in place: the buffers stay the ones that are saved and rewound."""
        self.weight_v.copy_(F.normalize(torch.mv(matrix.t(), self.weight_u), dim=0, eps=EPSILON))
        self.weight_u.copy_(F.normalize(torch.mv(matrix, self.weight_v), dim=0, eps=EPSILON))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *arguments: Any) -> None:
        for theirs, ours in _PARAMETRIZED.items():
            if prefix + theirs in state_dict:
                state_dict[prefix + ours] = state_dict.pop(prefix + theirs)
        super()._load_from_state_dict(state_dict, prefix, *arguments)


def plain_name(key: str) -> str:
    """Return the name here of a weight that torch's newer parametrization names; other names stay."""
    for theirs, ours in _PARAMETRIZED.items():
        if key == theirs or key.endswith(f".{theirs}"):
            return key.removesuffix(theirs) + ours
    return key
