"""Whether tensors of a file can be weights of a network: their layout, their kind of numbers, their values."""

from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from trainauto.core.errors import InputError, Problem
from trainauto.core.words import counted, visible

_SHOWN = 3
"""Tensors that an error names."""

_NOT_DENSE = "Save them as plain float tensors: state_dict() of the network before it is converted."
_NOT_FINITE = "The training they come from has diverged: take an earlier checkpoint, or fetch the file again."


def check_dense(file: Path, tensors: Mapping[str, Tensor]) -> None:
    """Refuse tensors that are not numbers side by side: sparse, quantised, nested ones, and those without data.

    Raises:
        InputError: names the file and the first of them.
    """
    _refuse(file, tensors, _layout_fault, _NOT_DENSE)


def check_values(file: Path, tensors: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> None:
    """Refuse tensors whose numbers a network cannot take.

    They are of another kind (integers or complex numbers where the network has real ones), NaN, or infinite. Where the
    network's own tensor is infinite, as masks may be, those of the file may be so, too. Tensors that have no place in
    the network are not looked at.

    Args:
        file: where they come from.
        tensors: what it holds; dense.
        own: the state of the network they are for.

    Raises:
        InputError: names the file and the first of them.
    """
    fitting = {name: tensor for name, tensor in tensors.items() if name in own and own[name].shape == tensor.shape}
    _refuse(file, fitting, lambda name, tensor: _kind_fault(tensor, own[name]), _NOT_DENSE)
    _refuse(file, fitting, lambda name, tensor: _value_fault(tensor, own[name]), _NOT_FINITE)


def _refuse(file: Path, tensors: Mapping[str, Tensor], fault_of: Callable[[str, Tensor], str], advice: str) -> None:
    faults = {name: fault for name, tensor in tensors.items() if (fault := fault_of(name, tensor))}
    if not faults:
        return
    shown = [f"{visible(name)} {fault}" for name, fault in list(faults.items())[:_SHOWN]]
    more = f", and {len(faults) - _SHOWN} more" if len(faults) > _SHOWN else ""
    count = f"{len(faults)} of {counted(len(tensors), 'tensor')}"
    what = f"the weights in {file} cannot be used: {count} ({', '.join(shown)}{more})"
    raise InputError(Problem(what, advice=advice))


def _layout_fault(_name: str, tensor: Tensor) -> str:
    if tensor.is_meta:
        return "has no data, only a shape (meta)"
    if tensor.is_quantized:
        return f"is quantised ({_word(tensor.dtype)})"
    if tensor.is_nested:
        return "is nested"
    return "" if tensor.layout == torch.strided else f"is sparse ({_word(tensor.layout)})"


def _kind_fault(tensor: Tensor, own: Tensor) -> str:
    is_same = tensor.is_complex() == own.is_complex() and tensor.is_floating_point() == own.is_floating_point()
    return "" if is_same else f"is {_word(tensor.dtype)}, and the network's is {_word(own.dtype)}"


def _value_fault(tensor: Tensor, own: Tensor) -> str:
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return ""
    values = tensor.float() if tensor.element_size() < torch.half.itemsize else tensor  # float8 knows no comparisons
    finite = values.isfinite()
    if bool(finite.all()):
        return ""
    wrong = ~finite & own.detach().to(tensor.device).isfinite() if not own.is_meta else ~finite
    number = int(wrong.sum())
    if not number:
        return ""
    kind = "NaN" if bool((wrong & values.isnan()).any()) else "infinite"
    return f"is {kind} in {number} of {counted(tensor.numel(), 'value')}"


def _word(thing: torch.dtype | torch.layout) -> str:
    return str(thing).removeprefix("torch.")
