"""LoRA around stand-ins of layers in 4 bits: what peft's own does around real ones, where there is no bitsandbytes.

Imported where peft is needed anyway.
"""

from typing import Any

import torch
from peft.tuners.lora import Linear
from torch import Tensor


class AdaptedFourBits(Linear):
    """The adapters of a :class:`~trainauto.memory.tracing.four_bit_linear.FourBitLinear`.

    Around other layers peft adds without copying, and in the adapters' format.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., M) to (..., N)."""
        (adapter,) = self.active_adapters
        result: Tensor = self.base_layer(x).clone()
        casts = not torch.is_autocast_enabled()
        if casts:
            learned: Any = self.lora_A[adapter]
            x = self._cast_input_dtype(x, learned.weight.dtype)
        added = self.lora_B[adapter](self.lora_A[adapter](self.lora_dropout[adapter](x))) * self.scaling[adapter]
        if casts:
            added = added.to(result.dtype)
        return torch.add(result, added)
