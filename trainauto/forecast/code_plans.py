"""Which batches and sizes of code fit on which card, without one."""

from collections.abc import Mapping, Sequence

from trainauto.core.plan import Axis, Plan
from trainauto.core.units import GIB
from trainauto.forecast.card_answer import CardPlan, CardPlans
from trainauto.forecast.card_plan import CardTarget, by_kernels, plan_on_card, what_is_unknown, with_memory
from trainauto.forecast.plan_request import PlanRequest
from trainauto.forecast.traced_code import CodeTracer
from trainauto.memory.cost.memory_forecast import LARGEST_TRACED, CardTracer, MemoryForecast, forecast_memory
from trainauto.options.cards import CardPreset

MOST_ROUNDS = 2
"""A plan beside one that was traced needs no trace of its own."""


def plan_code(request: PlanRequest, cards: Sequence[CardPreset], *, closely: bool = False) -> CardPlans:
    """Trace a request in this process and say what fits on each card.

    Args:
        request: what is asked.
        cards: the cards.
        closely: look at the first plan more closely, see ``PlanMemory``.

    Raises:
        InputError: the request cannot be used.
        TraceError: its steps cannot be traced.
    """
    tracer = CodeTracer(request)
    answer = plan_traced("code", tracer.network, tracer, request.axes(), cards, request.target_vram_usage)
    return with_memory(answer, tracer) if closely else answer


def plan_traced(
    name: str,
    network: str,
    tracer: CardTracer,
    axes: tuple[Axis, ...],
    cards: Sequence[CardPreset],
    target_vram_usage: float | None = None,
    *,
    notes: tuple[str, ...] = (),
    bounded_by: str = "",
    kept: Plan | None = None,
    memory_bytes: Mapping[str, int] | None = None,
    most_tokens: int | None = None,
    most_samples: int | None = None,
    largest_traced: int = LARGEST_TRACED,
) -> CardPlans:
    """Say what fits on each card.

    What is chosen by six traces is traced itself, and chosen anew where that tells otherwise. This network is unknown,
    and what a fit misses it misses most where plans are largest (a GPT's live bytes by 1.3 %, what the allocator has to
    reserve for large squares of attention by a fifth).

    Args:
        name: of what is planned.
        network: type of its model.
        tracer: traces its steps.
        axes: what grows, in its order.
        cards: the cards.
        target_vram_usage: share of their memory that peaks may reach; ``None`` for what suits each.
        notes: what else is to be said.
        bounded_by: what the option file's budget makes of cards.
        kept: the plan that the run stays with, where nothing steers by memory.
        memory_bytes: of whole cards, by name, where ``cards`` are what may be used of them.
        most_tokens: most that a batch may hold of the longest samples, whatever would fit.
        most_samples: most samples of a batch, whatever would fit.
        largest_traced: samples of the largest batch of the first traces.

    Raises:
        InputError, TraceError: as the tracer does.
    """
    smallest = Plan.of(**{axis.name: axis.clamp(axis.minimum) for axis in axes})

    def plans(some: Sequence[CardPreset], known: MemoryForecast | None) -> tuple[MemoryForecast, Sequence[CardPlan]]:
        forecast = known or forecast_memory(tracer, axes, largest_batch=largest_traced)
        if kept is not None and not forecast.knows(kept):
            forecast = forecast.extended({kept: tracer.trace(kept)})
        targets = [
            CardTarget(
                card,
                (memory_bytes or {}).get(card.name, int(card.memory_gib * GIB)),
                target_vram_usage or card.target_vram_usage,
                card.safety_margin,
            )
            for card in some
        ]

        def answered() -> list[CardPlan]:
            return [plan_on_card(to, axes, smallest, forecast, most_tokens, most_samples, kept=kept) for to in targets]

        answers = answered()
        for _ in range(MOST_ROUNDS):
            chosen = {card.plan for card in answers if card.plan and not forecast.knows(card.plan)}
            if not chosen:
                break
            forecast = forecast.extended({plan: tracer.trace(plan) for plan in chosen})
            answers = answered()
        return forecast, answers

    forecast, answers = by_kernels(cards, tracer, plans)
    return CardPlans(name, network, (*notes, *what_is_unknown()), forecast, axes, answers, bounded_by=bounded_by)
