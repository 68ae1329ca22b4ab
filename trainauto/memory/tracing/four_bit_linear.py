"""Linear layers with weights in 4 bits, as bytes: what those of bitsandbytes keep, and what they take while they run.

The real layers call kernels that know nothing of fake tensors, and their weights cannot be copied to such. Where
memory is followed, a :class:`FourBitLinear` takes the place of each. Blocks and quantised statistics are those of
T. Dettmers et al., "QLoRA: Efficient Finetuning of Quantized LLMs", https://arxiv.org/abs/2305.14314.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

BLOCK = 64
"""How many weights share a largest one."""

BLOCKS = 256
"""How many blocks share one of theirs; 8 bits tell as many numbers apart."""

PACKED = "packed"


class FourBitLinear(nn.Linear):
    """Keeps and takes the bytes of a layer in 4 bits; what it gives has the right shape and no meaning.

    Nothing of an input or of the unpacked weights is kept for the backward pass, which unpacks them again.

    Attributes:
        weight: (ceil(N * M / 2), 1) uint8, frozen. The statistics of :func:`empty_weights` are buffers.
        absmax: (B,), see :func:`kept_tensors`.
        offset: (), where statistics are quantised.
        compute_dtype: the format of both passes; ``None``: that of the input.

    Args:
        rows: outputs, N.
        columns: inputs, M.
        kept: see :func:`kept_tensors`.
        bias: (N,), or ``None``. It is turned into ``compute_dtype``, as the first batch would do for good.
        compute_dtype: the input is turned into it, and the output back.
        backward_dtype: into which the backward pass unpacks before it turns that into the gradient's.
    """

    absmax: Tensor
    offset: Tensor

    def __init__(
        self,
        rows: int,
        columns: int,
        kept: Mapping[str, Tensor],
        bias: nn.Parameter | None,
        compute_dtype: torch.dtype | None,
        backward_dtype: torch.dtype,
    ) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = columns, rows
        self.weight = nn.Parameter(kept[PACKED], requires_grad=False)
        for name, tensor in kept.items():
            if name != PACKED:
                self.register_buffer(name, tensor, persistent=False)
        self.register_parameter("bias", bias)
        if bias is not None and compute_dtype is not None:
            bias.data = bias.data.to(compute_dtype)
        self.compute_dtype, self.backward_dtype = compute_dtype, backward_dtype

    def forward(self, inputs: Tensor) -> Tensor:
        """Map (..., M) to (..., N)."""
        computed = inputs if self.compute_dtype is None else inputs.to(self.compute_dtype)
        turned: Tensor = _Product.apply(computed, self.bias, self).to(inputs.dtype)  # type: ignore[no-untyped-call]
        return turned

    def statistics(self) -> Tensor:
        """Return the largest weight of each block, as a number: (B,) float32."""
        if not hasattr(self, "offset"):
            return self.absmax
        return torch.empty_like(self.absmax, dtype=torch.float32).add_(self.offset)

    def copied_statistics(self) -> Tensor:
        """Return :meth:`statistics` with a copy in between, as the forward pass makes them."""
        if not hasattr(self, "offset"):
            return self.absmax
        return torch.empty_like(self.absmax, dtype=torch.float32) + self.offset

    def unpacked(self, dtype: torch.dtype) -> Tensor:
        """Return room for the weights: (N, M) of ``dtype``."""
        return torch.empty(self.out_features, self.in_features, dtype=dtype, device=self.weight.device)


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, inputs: Tensor, bias: Tensor | None, layer: FourBitLinear) -> Tensor:
        ctx.layer = layer
        _statistics = layer.copied_statistics()  # live until the product is made
        weights = layer.unpacked(inputs.dtype)
        return nn.functional.linear(inputs, weights, bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        layer: FourBitLinear = ctx.layer
        of_bias = gradient.flatten(0, -2).sum(0) if ctx.needs_input_grad[1] else None
        if not ctx.needs_input_grad[0]:
            return None, of_bias, None
        return torch.matmul(gradient, _unpacked_alone(layer).to(gradient.dtype)), of_bias, None


def _unpacked_alone(layer: FourBitLinear) -> Tensor:
    """Return the weights, when the statistics that they were unpacked by are no more."""
    statistics = layer.statistics()
    weights = layer.unpacked(layer.backward_dtype)
    del statistics
    return weights


def empty_weights(rows: int, columns: int, like: Tensor) -> dict[str, Tensor]:
    """Return what N x M weights consist of, under the names of :func:`kept_tensors`, without values.

    Args:
        rows: N.
        columns: M.
        like: where they are, and whether they are fake.
    """
    blocks = -(-rows * columns // BLOCK)

    def made(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return like.new_empty(shape, dtype=dtype, requires_grad=False)

    return {
        PACKED: made(-(-rows * columns // 2), 1, dtype=torch.uint8),
        "absmax": made(blocks, dtype=torch.uint8),
        "nested_absmax": made(-(-blocks // BLOCKS)),
        "offset": made(),
        "code": made(16),
        "nested_code": made(BLOCKS),
    }


def four_bit_layers(module: nn.Module) -> Iterator[Any]:
    """Yield the linear layers in 4 bits, real ones and stand-ins; peft's around them have none of their weights."""
    for layer in module.modules():
        if isinstance(layer, FourBitLinear) or _state_of(layer) is not None:
            yield layer


def kept_tensors(layer: Any) -> dict[str, Tensor]:
    """Return what the weights of a layer in 4 bits consist of, for N x M weights in B = ceil(N * M / 64) blocks.

    ``packed`` (ceil(N * M / 2), 1) uint8; ``absmax`` (B,) uint8, the largest weight of each block, by ``nested_code``;
    ``nested_absmax`` (ceil(B / 256),) float32, the largest of each 256 of these; ``offset`` () float32, their mean;
    ``code`` (16,) and ``nested_code`` (256,) float32. Statistics that are not quantised themselves are ``absmax`` (B,)
    float32 and ``code``.
    """
    if isinstance(layer, FourBitLinear):
        return {PACKED: layer.weight.data, **dict(layer.named_buffers(recurse=False))}
    state = _state_of(layer)
    kept: dict[str, Tensor] = {PACKED: layer.weight.data, "absmax": state.absmax, "code": state.code}
    if state.state2 is not None:
        nested = state.state2
        kept |= {"nested_absmax": nested.absmax, "offset": state.offset, "nested_code": nested.code}
    return kept


def stand_in_of(layer: Any, copied: Callable[[Any], Any]) -> FourBitLinear:
    """Return what takes the place of a real layer.

    Args:
        layer: of bitsandbytes.
        copied: copies tensors, and ``None``; the same of one that it has copied before.
    """
    rows, columns = _state_of(layer).shape
    packed = torch.empty(layer.weight.shape, dtype=layer.weight.dtype, device=layer.weight.device)
    # The weights themselves are of a class that copies itself.
    kept = {name: packed if name == PACKED else copied(tensor) for name, tensor in kept_tensors(layer).items()}
    stand_in = FourBitLinear(rows, columns, kept, copied(layer.bias), layer.compute_dtype, _state_of(layer).dtype)
    return stand_in.train(layer.training)


def _state_of(layer: nn.Module) -> Any:
    """Return the statistics of a real layer; ``None`` of any other."""
    if not isinstance(layer, nn.Linear):
        return None
    return getattr(layer._parameters.get("weight"), "quant_state", None)
