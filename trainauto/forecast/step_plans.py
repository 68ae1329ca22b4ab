"""Which plans of an option file's steps fit on which card, whatever the task."""

from collections.abc import Mapping
from typing import Any

from trainauto.core.errors import InputError, Problem
from trainauto.core.plan import Axis
from trainauto.core.units import GIB
from trainauto.forecast.card_answer import CardPlans
from trainauto.forecast.card_plan import with_memory, within_budget
from trainauto.forecast.code_plans import plan_traced
from trainauto.forecast.task import CardsRequest
from trainauto.forecast.trace_process import TRACE_TIMEOUT_S, TraceProcess
from trainauto.memory.cuda_allocator.segments import planned_segments
from trainauto.options.load import LoadedOptions
from trainauto.options.run_options import FileOptions
from trainauto.options.tasks import kind_of

INSTEAD = "Leave it out; `validate` trains a real step on its samples and says what it took."


def plan_steps(
    loaded: LoadedOptions[FileOptions],
    request: CardsRequest,
    network: str,
    axes: tuple[Axis, ...],
    target_vram_usage: float | None = None,
    *,
    known: Mapping[str, Any] | None = None,
    timeout_s: float = TRACE_TIMEOUT_S,
    **how: Any,
) -> CardPlans:
    """Trace the steps of an option file and say what fits on each card.

    Args:
        loaded: the option file.
        request: the cards.
        network: what is trained, in words.
        axes: what grows, in its order.
        target_vram_usage: share of a card that peaks may reach; ``None`` for what suits each.
        known: what the process that traces cannot know by the option file alone.
        timeout_s: of a trace.
        how: further arguments of :func:`~trainauto.forecast.code_plans.plan_traced`.

    Raises:
        InputError: the options cannot be used, or plans are to be measured.
        TraceError: the model cannot be traced.
    """
    if request.measure:
        message = f"--measure tries crops of images, and this file is of {kind_of(loaded.options).words}"
        raise InputError(Problem(message, advice=INSTEAD))
    chosen, bounded_by = within_budget(request.cards, loaded.options)
    with TraceProcess(
        loaded.path,
        loaded.overrides,
        segments=planned_segments(),
        worker=request.child,
        world_size=request.ranks,
        timeout_s=timeout_s,
        known=known or {},
    ) as tracer:
        answer = plan_traced(
            loaded.options.name,
            network,
            tracer,
            axes,
            chosen,
            target_vram_usage,
            bounded_by=bounded_by,
            memory_bytes={card.name: int(card.memory_gib * GIB) for card in request.cards},
            **how,
        )
        return with_memory(answer, tracer) if request.closely else answer
