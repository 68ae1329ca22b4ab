"""Number format of forward and loss."""

from dataclasses import dataclass

import torch
from torch.amp.grad_scaler import GradScaler


@dataclass(frozen=True)
class Precision:
    """How a step computes.

    Attributes:
        device: where.
        dtype: float32, or the autocast type: bfloat16 or float16.
        keeps_casts: autocast keeps weights in its type from their first use to the end of the forward pass. Where
            weights are sharded, these copies would be whole weights of the whole network.
    """

    device: torch.device
    dtype: torch.dtype = torch.float32
    keeps_casts: bool = True

    def autocast(self) -> torch.autocast:
        """Return the context for forward and loss; it does nothing in float32."""
        enabled = self.dtype != torch.float32
        dtype = self.dtype if enabled else None
        return torch.autocast(self.device.type, dtype=dtype, enabled=enabled, cache_enabled=self.keeps_casts)

    def new_scaler(self) -> GradScaler | None:
        """Return loss scaling for one optimizer: float16 gradients underflow without it, the others need none."""
        return GradScaler(self.device.type) if self.dtype == torch.float16 else None

    def __str__(self) -> str:
        return {torch.float32: "fp32", torch.bfloat16: "bf16 autocast", torch.float16: "fp16 autocast"}[self.dtype]
