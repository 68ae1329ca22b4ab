"""Which batches and sizes of code fit on which card, without one."""

from collections.abc import Sequence

from trainauto.core.plan import Axis, Plan
from trainauto.core.units import GIB
from trainauto.forecast.card_plan import CardPlans, CardTarget, plan_on_card, what_is_unknown
from trainauto.forecast.plan_request import PlanRequest
from trainauto.forecast.traced_code import CodeTracer
from trainauto.memory.cost.memory_forecast import PlanTracer, forecast_memory
from trainauto.options.cards import CardPreset


def plan_code(request: PlanRequest, cards: Sequence[CardPreset]) -> CardPlans:
    """Trace a request in this process and say what fits on each card.

    Raises:
        InputError: the request cannot be used.
        TraceError: its steps cannot be traced.
    """
    tracer = CodeTracer(request)
    return plan_traced("code", tracer.network, tracer, request.axes(), cards, request.target_vram_usage)


def plan_traced(
    name: str,
    network: str,
    tracer: PlanTracer,
    axes: tuple[Axis, ...],
    cards: Sequence[CardPreset],
    target_vram_usage: float | None = None,
) -> CardPlans:
    """Say what fits on each card.

    Args:
        name: of what is planned.
        network: type of its model.
        tracer: traces its steps.
        axes: what grows, in its order.
        cards: the cards.
        target_vram_usage: share of their memory that peaks may reach; ``None`` for what suits each.

    Raises:
        InputError, TraceError: as the tracer does.
    """
    forecast = forecast_memory(tracer, axes)
    smallest = Plan.of(**{axis.name: axis.clamp(axis.minimum) for axis in axes})
    targets = [
        CardTarget(card, int(card.memory_gib * GIB), target_vram_usage or card.target_vram_usage, card.safety_margin)
        for card in cards
    ]
    answers = tuple(plan_on_card(target, axes, smallest, forecast) for target in targets)
    return CardPlans(name, network, tuple(what_is_unknown()), forecast, axes, answers)
