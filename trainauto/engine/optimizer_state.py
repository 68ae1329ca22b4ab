"""Optimizer state before the first step."""

import logging
from collections import OrderedDict, defaultdict
from collections.abc import Iterable
from contextlib import nullcontext
from copy import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.optim import Optimizer

from trainauto.engine.optimizer_form import take_loop_form
from trainauto.engine.run_errors import OptimizerOutOfMemoryError
from trainauto.memory.monitor.oom import allocator_message, is_out_of_memory
from trainauto.memory.monitor.release import release_memory

logger = logging.getLogger(__name__)

TRIED_STEPS = 3
"""Steps of a small weight after which what begins otherwise has moved otherwise."""

KNOWN_MODULES = ("torch.optim.", "transformers.")


def make_optimizer_state(optimizers: Iterable[Optimizer]) -> None:
    """Allocate what optimizers keep for each weight, as they begin with it, and change no weight.

    They allocate it in their first step, after the peak of the backward pass was measured; running out of memory there
    could not be repeated. Optimizers that hold state already (a resumed run) are left alone; of those whose state does
    not begin with zeros, and of others than torch's and transformers' (:func:`steps_as_known`), the first step of
    training makes it.

    Raises:
        OptimizerOutOfMemoryError: there is no room for it and gradients, not even one weight after another.
    """
    for optimizer in optimizers:
        if optimizer.state or not steps_as_known(optimizer):
            continue
        message = _lacks_room_for_state(optimizer)
        if message and take_loop_form([optimizer]):
            message = _lacks_room_for_state(optimizer)
            if not message:
                logger.warning(
                    "not enough memory for a step of %s that updates all weights at once: it updates one weight after "
                    "another (foreach=False)",
                    type(optimizer).__name__,
                )
        if message:
            raise OptimizerOutOfMemoryError(type(optimizer).__name__, message, is_whole=True)


def _lacks_room_for_state(optimizer: Optimizer) -> str:
    """Make the state of an optimizer; return what the allocator said if there is no room for it and gradients."""
    message = ""
    try:
        for parameter in _trained(optimizer):
            parameter.grad = torch.zeros_like(parameter)
        empty_step(optimizer)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        message = allocator_message(error)
    optimizer.zero_grad(set_to_none=True)
    if message:
        release_memory(next((weight.device for weight in _trained(optimizer)), torch.device("cpu")))
    return message


def empty_step(optimizer: Optimizer) -> None:
    """Step an optimizer that has not stepped yet, with zero gradients at learning rate 0: only memory is taken.

    One that has stepped is left alone: what it knows could only be put back from a copy, which takes memory as well. So
    is one of a library.
    """
    if not steps_as_known(optimizer):
        return
    if any(bool(value.any()) for value in _tensors(optimizer) if not isinstance(value, FakeTensor)):
        return
    rates = [group["lr"] for group in optimizer.param_groups]
    had_state = bool(optimizer.state)
    for group in optimizer.param_groups:
        group["lr"] = 0.0
        for parameter in group["params"]:
            if parameter.grad is not None:
                parameter.grad.zero_()
    try:
        optimizer.step()
    except BaseException:  # out of memory: what it has counted, or begun to make, is none of training's
        if had_state:
            _zero(optimizer)
        else:
            optimizer.state.clear()
        raise
    finally:
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
    if _starts_with_zeros(optimizer):
        _zero(optimizer)
    else:
        optimizer.state.clear()


def steps_as_known(optimizer: Optimizer) -> bool:
    """Say whether the step itself is torch's or transformers'.

    Only such an optimizer may be stepped before training, with its state set to zero, and only of such a step it is
    known in which order it writes. Others do more: bitsandbytes shares its quantisation maps through the state of all
    weights, schedule-free ones count steps in their groups, a class of one's own may write what it likes. Schedules and
    accelerate put a function of their own around a step; a compiled one writes as its compiler decides.
    """
    own = vars(optimizer).get("step", type(optimizer).step)
    functions = (type(optimizer).step, own)
    return not hasattr(own, "_torchdynamo_orig_callable") and all(
        str(getattr(function, "__module__", "")).startswith((*KNOWN_MODULES, "accelerate.")) for function in functions
    )


def _zero(optimizer: Optimizer) -> None:
    for state in optimizer.state.values():
        for name, value in state.items():
            if isinstance(value, Tensor):
                value.zero_()
            elif name == "step":
                state[name] = 0


def _starts_with_zeros(optimizer: Optimizer) -> bool:
    """Say whether state of zeros at step 0 is what an optimizer begins with, by trying it on a small weight.

    It is not so of NAdam, Rprop, ASGD, or momentum with dampening.
    """
    are_fake = any(isinstance(parameter, FakeTensor) for parameter in _trained(optimizer))
    with unset_fake_temporarily() if are_fake else nullcontext():
        fresh, zeroed = _with_small_weights(optimizer), _with_small_weights(optimizer)
        _step(zeroed, 0.0)
        _zero(zeroed)
        for parameter in _trained(zeroed):
            parameter.data.fill_(1.0)
        for place in range(1, TRIED_STEPS + 1):
            _step(fresh, 0.1 * place)
            _step(zeroed, 0.1 * place)
        return all(torch.equal(weight, other) for weight, other in zip(_trained(fresh), _trained(zeroed), strict=True))


def _with_small_weights(optimizer: Optimizer) -> Optimizer:
    """Return an optimizer of the same kind and options, with one small weight in place of each group's.

    It is on the CPU, so that the memory of a run's card never sees it.
    """
    small = copy(optimizer)
    small.state = defaultdict(dict)
    small._optimizer_step_pre_hooks, small._optimizer_step_post_hooks = OrderedDict(), OrderedDict()
    small.param_groups = []
    for group in optimizer.param_groups:
        like = next(iter(group["params"]), torch.ones(2))
        dtype = like.dtype if like.is_floating_point() else torch.float32
        parameter = nn.Parameter(torch.ones(2, 2, dtype=dtype, device="cpu"))
        numbers = {name: value.item() for name, value in group.items() if _is_number(value)}  # a rate on the card
        on_card = {"capturable": False} if "capturable" in group else {}
        small.param_groups.append({**group, **numbers, **on_card, "params": [parameter]})
    return small


def _is_number(value: Any) -> bool:
    return isinstance(value, Tensor) and value.numel() == 1 and not isinstance(value, FakeTensor)


def _step(optimizer: Optimizer, gradient: float) -> None:
    for parameter in _trained(optimizer):
        parameter.grad = torch.full_like(parameter, gradient)
    type(optimizer).step(optimizer)  # not its own attribute: a learning-rate schedule may have put one there


def _trained(optimizer: Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"] if parameter.requires_grad]


def _tensors(optimizer: Optimizer) -> Iterable[Tensor]:
    return (value for state in optimizer.state.values() for value in state.values() if isinstance(value, Tensor))
