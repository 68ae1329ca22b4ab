"""Weights in 4 bits: the linear layers of a model as bitsandbytes keeps them, for adapters to be trained beside.

NF4 with quantised statistics, T. Dettmers et al., "QLoRA: Efficient Finetuning of Quantized LLMs",
https://arxiv.org/abs/2305.14314.
"""

import re
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from trainauto.core.errors import InputError, Problem
from trainauto.memory.monitor.oom import is_out_of_memory
from trainauto.memory.tracing.four_bit_linear import four_bit_layers, kept_tensors

NEEDED = (0, 50)
"""First version of bitsandbytes whose layers are trained on the CPU, too."""

INSTALL = 'pip install "trainauto[quantization]"'
KIND = "nf4"

ARGUMENT = "load_in_4bit"
"""What errors blame."""

FARTHEST = 0.2
"""Share of a block's largest weight by which a weight may be off: half the widest gap of NF4 is 0.15 of it."""


@dataclass(frozen=True)
class FourBits:
    """How linear layers are kept in 4 bits.

    Attributes:
        device: where they are packed, and stay.
        compute_dtype: format into which a layer unpacks its weights, each time it runs.
    """

    device: torch.device
    compute_dtype: torch.dtype

    def loading_arguments(self) -> dict[str, Any]:
        """Return what ``from_pretrained`` is given: it packs each weight as it reads it.

        Which layers stay as they are is transformers' choice: the head that makes words, and what is tied to another.
        """
        from transformers import BitsAndBytesConfig

        config = BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type=KIND,
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=self.compute_dtype,
        )
        return {"quantization_config": config, "device_map": {"": self.device}}


def check_four_bits(wanted: FourBits) -> None:
    """Refuse to go on where weights cannot be kept in 4 bits: nothing is kept otherwise in silence.

    A small matrix is packed, multiplied and gone back through once.

    Raises:
        InputError: the package is missing or too old, or what it cannot do here.
    """
    if find_spec("bitsandbytes") is None:
        raise _refused("weights in 4 bits need the package bitsandbytes", f"{INSTALL}, or write load_in_4bit: false.")
    found = _version()
    numbers = tuple(int(number) for number in re.findall(r"\d+", found)[:2])
    if numbers < NEEDED:
        needed, here = ".".join(str(number) for number in NEEDED), found or "one without a version"
        message = f"weights in 4 bits need bitsandbytes {needed} or newer, and {here} is installed"
        raise _refused(message, f"{INSTALL} --upgrade.")
    try:
        _check_library(wanted.device)
        _try_matrix(wanted)
    except Exception as error:
        if is_out_of_memory(error):
            raise
        lines = [line for line in str(error).splitlines() if line.strip()]
        raise _refused(
            f"bitsandbytes {found} cannot keep weights in 4 bits on {_name_of(wanted.device)}: "
            f"{lines[0].strip() if lines else type(error).__name__}",
            "python -m bitsandbytes says what it finds. Or write load_in_4bit: false, and dtype: bfloat16.",
        ) from error


def settle(model: nn.Module) -> None:
    """Keep layers in 4 bits as they were packed, and have both passes unpack them into the format they compute in.

    A backward pass would unpack into that in which the weights were loaded, and copy that. On CPUs with AVX512-BF16 a
    layer that is evaluated would pack its weights anew, round their statistics, and give no gradient from then on: what
    a run measures on would change what it learns, without a word.
    """
    for layer in four_bit_layers(model):
        layer.support_avx512bf16_for_cpu = False
        layer.weight.quant_state.dtype = layer.compute_dtype


def weights_of(parameter: Tensor) -> int:
    """Return how many weights a parameter holds: one of bytes that hold two says so in its statistics."""
    state = getattr(parameter, "quant_state", None)
    return parameter.numel() if state is None else int(state.shape.numel())


def bytes_in_four_bits(model: nn.Module) -> tuple[int, int]:
    """Return the bytes of weights that are kept in 4 bits, statistics included, and of all others, buffers included."""
    layers = list(four_bit_layers(model))
    inside = [tensor for layer in layers for tensor in kept_tensors(layer).values()]
    packed = {id(tensor) for layer in layers for tensor in (layer.weight, *layer.buffers(recurse=False))}
    beside = [tensor for tensor in (*model.parameters(), *model.buffers()) if id(tensor) not in packed]
    return _bytes(inside), _bytes(beside)


def _bytes(tensors: list[Tensor]) -> int:
    # By their address on the host, since what is fake or on ``meta`` has none of its own.
    storages = {tensor.untyped_storage()._cdata: tensor.untyped_storage().nbytes() for tensor in tensors}
    return sum(storages.values())


def _version() -> str:
    try:
        return version("bitsandbytes")
    except PackageNotFoundError:
        return ""


def _check_library(device: torch.device) -> None:
    """See that the package has kernels of its own for a device: without, slow ones of torch would stand in."""
    from bitsandbytes import cextension

    library = cextension.lib
    if isinstance(library, cextension.ErrorHandlerMockBNBNativeLibrary):
        message = f"its library cannot be loaded ({library.error_msg.strip().splitlines()[0]})"
        raise RuntimeError(message)  # noqa: TRY004
    if device.type == "cuda" and not library.compiled_with_cuda:
        raise RuntimeError("its library was built without kernels for cards")


def _try_matrix(wanted: FourBits) -> None:
    import bitsandbytes

    side = 64
    weight = torch.linspace(-1.0, 1.0, side * side).reshape(side, side).to(wanted.device, wanted.compute_dtype)
    packed, state = bitsandbytes.functional.quantize_4bit(weight, compress_statistics=True, quant_type=KIND)
    inputs = torch.eye(side, device=wanted.device, dtype=wanted.compute_dtype, requires_grad=True)
    outputs = bitsandbytes.matmul_4bit(inputs, packed, quant_state=state)
    (gradient,) = torch.autograd.grad(outputs, inputs, torch.eye(side, device=wanted.device, dtype=outputs.dtype))
    for what, came, exact in (("product", outputs.T, weight), ("gradient", gradient, weight)):
        distance = float((came.detach().float() - exact.float()).abs().max())
        if not distance <= FARTHEST:
            raise RuntimeError(f"the {what} of a small matrix of weights up to 1 is off by {distance:.3g}")


def _name_of(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "this CPU"


def _refused(message: str, advice: str) -> InputError:
    return InputError(Problem(message, advice=advice, argument=ARGUMENT))
