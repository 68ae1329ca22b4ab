"""What a step allocates without observers: torch's own profiler tells, and no dispatch mode is open.

Traces follow operators through a dispatch mode, under which torch allocates more in places
(``in_place.py``). Only figures taken without one can say whether a trace shows what a run does.
"""

import gc
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from trainauto.memory.tracing.phases import BACKWARD, OPTIMIZER

REST = "forward or other"
"""Phase of what is in neither a backward pass nor an optimizer; the profiler's ranges tell no more."""

_CALL = "trainauto: profiled call"

_CALLING = frozenset({"autograd", "bitsandbytes", "torch"})
"""Of what calls torch's own operators, in Python or as a node of the backward pass (``torch::autograd::CopySlices``):
what those take and give are tensors like any other's."""


class MemoryEvent(NamedTuple):
    """Bytes that torch's CPU allocator gave, or took back.

    Attributes:
        size_bytes: as they were asked for; negative where they were freed.
        phase: ``backward``, ``optimizer``, or :data:`REST`.
        is_tensor: it is what a trace can see. Not so what the operator that allocated it also frees, which is a
            kernel's own, the state of the CPU's random generator, which no operator takes or gives, and what gloo
            copies messages to, which NCCL does not.
    """

    size_bytes: int
    phase: str
    is_tensor: bool


def profiled(*calls: Callable[[], object]) -> list[list[MemoryEvent]]:
    """Call one after the other on the CPU; return what torch allocated and freed in each.

    Blocks that were there before the first call are not known: their frees are left out. No other thread may allocate
    meanwhile.
    """
    settings = torch._C._profiler._ExperimentalConfig(capture_overload_names=True)
    gc.collect(0)
    was_enabled = gc.isenabled()
    gc.disable()  # what hangs in cycles would end at another moment each time
    try:
        with profile(
            activities=[ProfilerActivity.CPU],
            profile_memory=True,
            experimental_config=settings,
            acc_events=True,  # or torch warns that a second cycle, which there is none of, clears the first
        ) as profiler:
            for call in calls:
                with record_function(_CALL):
                    call()
                gc.collect(0)  # what it frees belongs to the call before
    finally:
        if was_enabled:
            gc.enable()
    results = profiler.profiler.kineto_results
    return _read(results.experimental_event_tree())


class _Block(NamedTuple):
    """A block that is given or taken back: when, where, how large, and in what (``None``: in no operator)."""

    time_ns: int
    address: int
    size_bytes: int
    phase: str
    operator: Any
    is_message: bool


def _read(roots: Sequence[Any]) -> list[list[MemoryEvent]]:
    begins = sorted(root.start_time_ns for root in roots if root.name == _CALL)
    calls: list[list[MemoryEvent]] = [[] for _ in begins]
    live: dict[int, tuple[list[MemoryEvent], int, Any]] = {}  # by address: where its event is, and its operator
    random_state_bytes = torch.get_rng_state().nbytes
    # Libraries free in threads of their own what was allocated here: only the time tells what came first.
    for block in sorted(_blocks(roots, REST, None, is_message=False), key=lambda block: block.time_ns):
        number = bisect_right(begins, block.time_ns) - 1
        if number < 0:
            continue
        events = calls[number]
        if block.size_bytes > 0:
            live[block.address] = events, len(events), block.operator
            is_state = block.operator is None and block.size_bytes == random_state_bytes
            events.append(MemoryEvent(block.size_bytes, block.phase, not (is_state or block.is_message)))
        elif block.address in live:
            made, place, maker = live.pop(block.address)
            if block.operator is not None and maker == block.operator:
                made[place] = made[place]._replace(is_tensor=False)
            events.append(MemoryEvent(block.size_bytes, block.phase, made[place].is_tensor))
    return calls


def _blocks(nodes: Iterable[Any], phase: str, operator: Any, *, is_message: bool) -> Iterator[_Block]:
    """Yield the blocks below ranges of the profiler."""
    for node in nodes:
        fields = node.extra_fields
        if isinstance(fields, torch._C._profiler._ExtraFields_Allocation):
            yield _Block(node.start_time_ns, fields.ptr, fields.alloc_size, phase, operator, is_message)
            continue
        now = phase
        if node.name.startswith("Optimizer.step#"):
            now = OPTIMIZER
        elif node.name.startswith("autograd::engine::evaluate_function"):
            now = BACKWARD
        within = node.id if operator is None and _is_one_operator(node) else operator
        sends = is_message or node.name.startswith("gloo:")
        yield from _blocks(node.children, now, within, is_message=sends)


def _is_one_operator(node: Any) -> bool:
    """Say whether a range is of an operator that a dispatch mode sees as one, not of one made up of others."""
    namespace, separator, _ = node.name.partition("::")
    if not separator or namespace in _CALLING:
        return False
    # Autocast casts the arguments, which a mode sees, and then calls the same operator once; kernels that call their
    # own operator (roll, a dimension at a time) do so more often.
    same = [child for child in node.children if (child.name, child.overload_name) == (node.name, node.overload_name)]
    is_cast = len(same) == 1
    whole = f"{node.name}.{node.overload_name}" if node.overload_name else node.name
    return not is_cast and whole not in _made_of_others()


@cache
def _made_of_others() -> frozenset[str]:
    """Return the operators that torch takes apart before a dispatch mode sees them."""
    return frozenset(torch._C._dispatch_get_registrations_for_dispatch_key("CompositeImplicitAutograd"))
