"""What a network keeps from its forward pass for its backward pass, as it is and through ``torch.compile``."""

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.autograd.graph import saved_tensors_hooks

from trainauto.memory.tracing.trace import TraceError


@dataclass(frozen=True)
class KeptBytes:
    """What a network keeps between its passes, beside its weights, its input and its output.

    Attributes:
        eager_bytes: as it is.
        compiled_bytes: through ``torch.compile``.
    """

    eager_bytes: int
    compiled_bytes: int


def kept_bytes(network: nn.Module, image: Tensor) -> KeptBytes:
    """Return what a network on fake tensors keeps of one forward pass, under the autocast that is on.

    ``torch.compile`` chooses what to keep where AOTAutograd cuts the joint graph of both passes in two: a minimum cut
    (``torch._functorch.partitioners.min_cut_rematerialization_partition``) after inductor's own passes over it. This
    makes that graph and cuts it, and compiles nothing. What inductor's code adds for layouts is not in it.

    Args:
        network: on fake tensors, whose mode is on.
        image: its input, in the same mode.

    Raises:
        TraceError: the network cannot be traced so.
    """
    weights = {**dict(network.named_parameters()), **dict(network.named_buffers())}
    own = {tensor.untyped_storage()._cdata for tensor in (*weights.values(), image)}
    saved: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        saved.append(tensor)
        return tensor

    try:
        with saved_tensors_hooks(pack, lambda tensor: tensor):
            output = network(image)
        compiled = _with_joint_graph(network, weights, image)
    except Exception as error:
        first_line = next(iter(str(error).splitlines()), "")
        raise TraceError(f"no joint graph of both passes: {type(error).__name__}: {first_line}") from error
    kept = getattr(compiled.grad_fn, "saved_tensors", None)
    if kept is None:
        raise TraceError("the output of the network is not that of its joint graph")
    return KeptBytes(_bytes_of(saved, own, output), _bytes_of(kept, own, compiled))


def _with_joint_graph(network: nn.Module, weights: dict[str, Tensor], image: Tensor) -> Tensor:
    """Return the output of a network whose graph of both passes was cut as inductor does."""
    with warnings.catch_warnings():  # loaded here, which takes a second; torch warns of what it is made of itself
        warnings.simplefilter("ignore", DeprecationWarning)
        from torch._functorch.aot_autograd import aot_function
        from torch._guards import active_fake_mode
        from torch._inductor.compile_fx import partition_fn
        from torch._inductor.decomposition import select_decomp_table
        from torch._inductor.virtualized import V

    def called(weights: dict[str, Tensor], image: Tensor) -> Any:
        return torch.func.functional_call(network, weights, (image,))

    compiled = aot_function(
        called,
        fw_compiler=_unchanged,
        bw_compiler=_unchanged,
        partition_fn=partition_fn,
        decompositions=select_decomp_table(),
        num_params_buffers=len(weights),
    )
    # Inductor's passes over random operators ask for the mode of the fake tensors.
    with V.set_fake_mode(active_fake_mode()):
        result: Tensor = compiled(weights, image)
    return result


def _unchanged(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> fx.GraphModule:
    del example_inputs
    return gm


def _bytes_of(tensors: Iterable[object], own: set[int], output: Tensor) -> int:
    """Return the bytes of all storages that are not the network's own, its input's or its output's."""
    storages = [tensor.untyped_storage() for tensor in tensors if isinstance(tensor, Tensor)]
    left_out = own | {output.untyped_storage()._cdata}
    return sum({one._cdata: one.nbytes() for one in storages if one._cdata not in left_out}.values())
