"""What must have happened before the first measured step."""

import logging
from collections.abc import Iterable

import torch
from torch.optim import Optimizer

from trainauto.core.batch import Batch
from trainauto.core.plan import LQ_SIZE, Plan
from trainauto.core.process import limit_private_memory
from trainauto.data.dynamic_dataset import SampleKey
from trainauto.engine.recovery import Rewind, release_memory
from trainauto.engine.run import Run
from trainauto.engine.step import parameters_of
from trainauto.memory import budget

logger = logging.getLogger(__name__)

MIB = 1024**2


def prepare_memory(run: Run) -> None:
    """Have all ranks start from the same weights, optimizer state allocated, and the budget of the run in force.

    Without a budget on the CPU there is nothing to steer by; on CUDA the limit is the card.
    """
    _share_start(run)
    make_optimizer_state(run.model.optimizers.values())
    if run.budget_bytes is None:
        return
    on_cpu = run.model.device.type == "cpu"
    if on_cpu:
        budget.calm_allocator()
        _smallest_step(run)
        for validator in run.validators:
            validator.warm_up()
        release_memory(run.model.device)
    how = "enforced" if run.meter.set_budget(run.budget_bytes) else "watched"
    logger.info("memory budget of %.0f MiB, %s", run.budget_bytes / MIB, how)


def lift_budget(run: Run) -> None:
    """Take the budget off the process again."""
    if run.budget_bytes is not None and run.model.device.type == "cpu":
        limit_private_memory(None)


def make_optimizer_state(optimizers: Iterable[Optimizer]) -> None:
    """Allocate what optimizers keep for each weight, as zeros at step 0, and change no weight.

    They allocate it in their first step, after the peak of the backward pass was measured; running out of memory there
    could not be repeated. A step with zero gradients at rate 0 does it, then what it left is zeroed. Optimizers that
    hold state already (a resumed run) are left alone.
    """
    for optimizer in optimizers:
        if optimizer.state:
            continue
        rates = [group["lr"] for group in optimizer.param_groups]
        for group in optimizer.param_groups:
            group["lr"] = 0.0
            for parameter in group["params"]:
                parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        for state in optimizer.state.values():
            for name, value in state.items():
                if isinstance(value, torch.Tensor):
                    value.zero_()
                elif name == "step":
                    state[name] = 0


def _share_start(run: Run) -> None:
    """Give every rank the first one's weights: machines of another make may have drawn or rounded others."""
    if run.ranks.count == 1 or run.ranks.reduces_in_backward:
        return  # alone, or done when the network was made one of several
    averages = (average.network for average in run.model.averages.values())
    for network in (*run.model.networks.values(), *averages):
        run.ranks.take_from_first(network.state_dict().values())
    run.ranks.prepare(parameter for one in run.model.passes() for parameter in parameters_of(one))


def _smallest_step(run: Run) -> None:
    """Run forward and backward of the smallest plan once: kernels, threads and scratch space are then in place."""
    floors = {axis.name: axis.clamp(axis.minimum) for axis in run.axes}
    plan = Plan.of(**floors)
    dataset = run.loader.dataset
    tensors = {name: tensor[None] for name, tensor in dataset[SampleKey(0, plan[LQ_SIZE], 0)].items()}
    batch = Batch(tensors, (dataset.sample_name(0),), 0, plan, plan, dataset.shape(tensors))
    rewind = Rewind(run.model.networks.values(), run.model.device)
    rewind.mark()
    micro_batch = run.model.feed_data(batch)
    for one in run.model.passes():
        terms = one.loss(micro_batch)
        torch.stack(list(terms.values())).sum().backward()  # type: ignore[no-untyped-call]
        one.optimizer.zero_grad(set_to_none=True)
    rewind.back()
