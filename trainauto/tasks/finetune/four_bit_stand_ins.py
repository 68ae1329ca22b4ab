"""A model in 4 bits to be planned with, where there are neither weights nor bitsandbytes."""

from typing import Any

import torch
from torch import nn

from trainauto.memory.tracing.four_bit_linear import FourBitLinear, empty_weights


def with_four_bit_stand_ins(model: nn.Module, compute_dtype: torch.dtype) -> nn.Module:
    """Put stand-ins of the same bytes in place of the linear layers that ``load_in_4bit: true`` packs.

    Which those are is transformers' rule: neither the head that makes words, nor what is tied to another layer, nor the
    last of all. Adapters come after (``models.adapted``), and so does gradient checkpointing, which packing does not
    switch on. Nothing may turn the model's numbers into another format from then on.

    Args:
        model: of transformers, its other weights in their format; on fake tensors or ``meta``. It is changed.
        compute_dtype: format into which layers unpack their weights, see ``four_bits.FourBits``.

    Returns:
        the model itself, to be traced: what it computes means nothing.
    """
    from transformers.pytorch_utils import Conv1D
    from transformers.quantizers.base import HfQuantizer
    from transformers.quantizers.quantizers_utils import should_convert_module

    whole: Any = model
    stays = HfQuantizer.get_modules_to_not_convert(whole, None, whole._keep_in_fp32_modules)
    for name, layer in list(model.named_modules()):
        if not (type(layer) is nn.Linear or isinstance(layer, Conv1D)) or not should_convert_module(name, stays):
            continue
        weight: torch.Tensor = layer.weight
        rows, columns = weight.shape if isinstance(layer, nn.Linear) else reversed(weight.shape)
        bias = None if layer.bias is None else nn.Parameter(layer.bias.detach(), requires_grad=False)
        kept = empty_weights(rows, columns, weight)
        model.set_submodule(name, FourBitLinear(rows, columns, kept, bias, compute_dtype, compute_dtype))
    return model
