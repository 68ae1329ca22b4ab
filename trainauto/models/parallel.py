"""Networks whose gradients are summed inside the backward pass, or whose weights are spread over the ranks.

Both meet other ranks in the middle of a pass, so that none of them can run it again by itself: a rank that runs out of
memory ends the group, and torchrun starts it again from the last checkpoint.
"""

import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from trainauto.core.errors import CheckpointError
from trainauto.core.units import MIB
from trainauto.models.activation_checkpointing import ActivationCheckpointingError, blocks_of
from trainauto.optim.optimizers import settings_of
from trainauto.optim.schedule_free import take_settings

# What shards are made and written with takes more than half a second to load: functions import it, most runs never do.

Networks = Mapping[str, nn.Module]
"""Networks and their averages by the names they are saved under."""

Optimizers = Mapping[str, tuple[nn.Module, Optimizer]]
"""Optimizers by name, each with the network it steps."""

BUCKET_BYTES = 25 * MIB
"""Bound of a bucket of ``DistributedDataParallel`` but the first, its default."""


FAKE = "fake"
"""Torch's back end of process groups that communicate nothing."""


@dataclass
class Parallel:
    """Makes a network one of several ranks, which meet in its backward pass.

    Attributes:
        wrap: takes a network, its averages, and whether passes leave weights out; may change networks in place, and
            returns what to run forward.
        is_used: whether a network was made so.
    """

    wrap: Callable[[nn.Module, Sequence[nn.Module], bool], nn.Module]
    is_used: bool = False

    def __call__(
        self, network: nn.Module, averages: Sequence[nn.Module] = (), *, leaves_weights_out: bool = False
    ) -> nn.Module:
        """Return what to run forward in place of a network.

        Args:
            network: on its device; its optimizer is made afterwards.
            averages: of its weights.
            leaves_weights_out: whether a pass may use some of its weights only.
        """
        self.is_used = True
        return self.wrap(network, averages, leaves_weights_out)


def overlapped(network: nn.Module, averages: Sequence[nn.Module], leaves_weights_out: bool) -> nn.Module:
    """Sum gradients while the backward pass runs, as ``DistributedDataParallel`` does."""
    from torch.nn.parallel import DistributedDataParallel

    del averages
    parameters = inspect.signature(DistributedDataParallel.__init__).parameters
    # Before torch 2.13 it is called broadcast_buffers.
    quiet = "forward_sync_buffers" if "forward_sync_buffers" in parameters else "broadcast_buffers"
    settings: dict[str, Any] = {quiet: False, "gradient_as_bucket_view": True}
    settings["find_unused_parameters"] = leaves_weights_out
    return DistributedDataParallel(network, **settings)


class Bucketed(nn.Module):
    """A network whose gradients lie where :func:`overlapped` keeps them, without other ranks: for traces.

    ``DistributedDataParallel`` holds buckets as large as all gradients from when it is made on (``initialize_buckets``,
    torch/csrc/distributed/c10d/reducer.cpp). With ``gradient_as_bucket_view`` a gradient is copied into its part of one
    as soon as backward has it, and is a view of that from then on (``mark_variable_ready_dense``); within ``no_sync``
    it stays where backward left it. Buckets are those of the second step and later, filled from the last weights to the
    first (``rebuild_buckets``): one of 1 MiB, others of 25 MiB.
    """

    def __init__(self, network: nn.Module) -> None:
        from torch._C._distributed_c10d import _DEFAULT_FIRST_BUCKET_BYTES, _compute_bucket_assignment_by_size

        super().__init__()
        self.module = network
        self._fills = True
        weights: list[Tensor] = [weight for weight in reversed([*network.parameters()]) if weight.requires_grad]
        for places in _compute_bucket_assignment_by_size(weights, [_DEFAULT_FIRST_BUCKET_BYTES, BUCKET_BYTES])[0]:
            chosen = [weights[place] for place in places]
            bucket = torch.zeros(
                sum(parameter.numel() for parameter in chosen), dtype=chosen[0].dtype, device=chosen[0].device
            )
            start = 0
            for weight in chosen:
                part = bucket.as_strided(weight.shape, weight.stride(), start)
                weight.register_post_accumulate_grad_hook(partial(self._fill, part))  # type: ignore[no-untyped-call]
                start += weight.numel()

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """Run the network."""
        return self.module(*inputs, **named)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Leave gradients where backward left them."""
        self._fills = False
        try:
            yield
        finally:
            self._fills = True

    def _fill(self, part: Tensor, weight: Tensor) -> None:
        gradient = weight.grad
        if self._fills and gradient is not None and gradient.untyped_storage()._cdata != part.untyped_storage()._cdata:
            part.copy_(gradient)
            weight.grad = part


def bucketed(network: nn.Module, averages: Sequence[nn.Module], leaves_weights_out: bool) -> nn.Module:
    """Keep gradients as :func:`overlapped` does, on a process of its own."""
    del averages, leaves_weights_out
    return Bucketed(network)


def sharded(network: nn.Module, averages: Sequence[nn.Module], leaves_weights_out: bool) -> nn.Module:
    """Spread weights, gradients and optimizer state over the ranks (FSDP2, ``fully_shard``), block by block.

    Each block's weights are gathered when it runs and let go of afterwards. Those of an average that are in no block,
    too: no backward pass follows its forward pass, and its next update finds shards only.
    """
    from torch.distributed.device_mesh import init_device_mesh

    del leaves_weights_out  # those have no gradient then, on any rank
    device = next(network.parameters()).device
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    for module in (network, *averages):
        with torch.no_grad():
            for tensor in module.state_dict().values():
                dist.broadcast(tensor, 0)
    _spread(network, averages, mesh)
    return network


def _spread(network: nn.Module, averages: Sequence[nn.Module], mesh: Any) -> None:
    from torch.distributed.fsdp import fully_shard

    # What networks give is often a view, and nothing here writes into it.
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor", category=UserWarning)
    for module in (network, *averages):
        with suppress(ActivationCheckpointingError):  # without repeated blocks it is one piece
            for block in blocks_of(module).modules:
                fully_shard(block, mesh=mesh)
        fully_shard(module, mesh=mesh, reshard_after_forward=None if module is network else True)


def sharded_in_trace(world_size: int) -> Parallel:
    """Return what spreads a network on fake tensors over so many ranks, of which this process traces the first.

    Torch's fake process group stands for the others: it communicates nothing. It stays for the process, which must
    train with no group of its own.
    """
    from torch._subclasses.fake_tensor import unset_fake_temporarily
    from torch.distributed.device_mesh import init_device_mesh
    from torch.testing._internal.distributed.fake_pg import FakeStore

    def spread(network: nn.Module, averages: Sequence[nn.Module], leaves_weights_out: bool) -> nn.Module:
        del leaves_weights_out
        device = next(network.parameters()).device
        with unset_fake_temporarily():
            if dist.is_initialized() and dist.get_backend() != FAKE:
                raise RuntimeError("this process is a rank itself, and cannot stand for one of others")
            if dist.is_initialized() and dist.get_world_size() != world_size:
                dist.destroy_process_group()
            if not dist.is_initialized():
                dist.init_process_group(FAKE, store=FakeStore(), rank=0, world_size=world_size)
            mesh = init_device_mesh(device.type, (world_size,))
        _spread(network, averages, mesh)
        return network

    return Parallel(spread)


def in_order_of_spreading(network: nn.Module) -> list[Any]:
    """Return the sharded weights of a network in the order in which they were spread: those of its blocks first."""
    weights: dict[int, Any] = {}
    with suppress(ActivationCheckpointingError):
        weights = {id(weight): weight for block in blocks_of(network).modules for weight in block.parameters()}
    return [*(weights | {id(weight): weight for weight in network.parameters()}).values()]


def is_sharded(network: nn.Module) -> bool:
    """Say whether a network's weights are spread over the ranks: then there is a whole to ask for."""
    return any(hasattr(parameter, "full_tensor") for parameter in network.parameters())


def whole_weights(network: nn.Module) -> dict[str, Any]:
    """Return all weights of a sharded network on the CPU of the first rank; every rank must ask."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

    return get_model_state_dict(network, options=StateDictOptions(full_state_dict=True, cpu_offload=True))


def save_shards(networks: Networks, optimizers: Optimizers, folder: Path) -> None:
    """Write each rank's part of weights, averages and optimizer state into a folder; every rank must ask."""
    from torch.distributed.checkpoint.state_dict_saver import save as save_parts

    save_parts(_parts(networks, optimizers), checkpoint_id=folder)


def has_shards(folder: Path) -> bool:
    """Say whether a checkpoint is one of :func:`save_shards`."""
    return (folder / ".metadata").is_file()


def load_shards(networks: Networks, optimizers: Optimizers, folder: Path) -> None:
    """Read what :func:`save_shards` wrote, on the same or another number of ranks; every rank must ask.

    What the option file sets of an optimizer (rates, betas, decay) stays as it sets it.

    Raises:
        CheckpointError: a part is missing or does not fit.
    """
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.state_dict import set_model_state_dict, set_optimizer_state_dict
    from torch.distributed.checkpoint.state_dict_loader import load as load_parts

    settings = {name: settings_of(optimizer) for name, (_, optimizer) in optimizers.items()}
    parts = _parts(networks, optimizers)
    try:
        with warnings.catch_warnings():  # one process may well read what several wrote
            warnings.filterwarnings("ignore", message="torch.distributed is disabled", category=UserWarning)
            load_parts(parts, checkpoint_id=folder)
    except (OSError, RuntimeError, ValueError, CheckpointException) as error:
        raise CheckpointError(f"cannot load {folder}: {error}") from error
    for name, network in networks.items():
        set_model_state_dict(network, parts[name])
    for name, (network, optimizer) in optimizers.items():
        set_optimizer_state_dict(network, optimizer, parts[f"optim_{name}"])
        take_settings(optimizer, settings[name])


def _parts(networks: Networks, optimizers: Optimizers) -> dict[str, Any]:
    from torch.distributed.checkpoint.state_dict import get_model_state_dict, get_optimizer_state_dict

    parts: dict[str, Any] = {name: get_model_state_dict(network) for name, network in networks.items()}
    for name, (network, optimizer) in optimizers.items():
        parts[f"optim_{name}"] = get_optimizer_state_dict(network, optimizer)
    return parts
