"""What fits on a card, by a forecast of what plans need: the same for option files and for code."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from trainauto.control.jump_policy import JumpInput, decide, frontier
from trainauto.core.plan import Axis, Plan, count_axis, shape_of, size_axis
from trainauto.core.process import unknown_to_predictions
from trainauto.core.units import GIB, size_text
from trainauto.forecast.card_answer import CONTEXT_BYTES, CardPlan, CardPlans, KeptPlan
from trainauto.forecast.plan_memory import memory_of
from trainauto.memory.cost.cost_model import UPPER, CostModel
from trainauto.memory.cost.memory_forecast import CardTracer, MemoryForecast
from trainauto.memory.cost.ratio_prior import RatioPrior
from trainauto.memory.cost.traced_fit import Prior
from trainauto.memory.cuda_allocator.segments import planned_segments
from trainauto.memory.tracing.libraries import LARGE_CARD, Hardware, attention_of, cublas_workspace_bytes
from trainauto.options.cards import CardPreset, card_by_words, card_of_memory, under_budget
from trainauto.options.run_options import FileOptions

USUAL_CARDS = ("RTX 3060 12GB", "T4", "RTX 4090", "L40S", "A100 80GB", "H200")


FIXED_SEGMENTS = (
    "The allocator's segments are taken as fixed, as its settings (PYTORCH_ALLOC_CONF) or the platform of this process "
    "say; runs on Linux without settings have expandable ones."
)


def chosen_cards(words: Sequence[str], vram: Sequence[int]) -> list[CardPreset]:
    """Return the cards a person means; the usual ones where nothing is said.

    Args:
        words: names of cards.
        vram: memory sizes in bytes, of cards without a name.

    Raises:
        InputError: no card is called so, or several are.
    """
    named = [card_by_words(text) for text in (words or ([] if vram else USUAL_CARDS))]
    return [*named, *map(card_of_memory, vram)]


@dataclass(frozen=True)
class CardTarget:
    """How a card is to be filled.

    Attributes:
        preset: the card; its memory is what may be used of it.
        memory_bytes: of the whole card.
        target: share of what may be used that peaks may reach.
        margin: width of the band below it that is left alone.
    """

    preset: CardPreset
    memory_bytes: int
    target: float
    margin: float


def plan_on_card(
    card: CardTarget,
    axes: tuple[Axis, ...],
    first: Plan,
    forecast: MemoryForecast,
    most_tokens: int | None = None,
    most_samples: int | None = None,
    *,
    kept: Plan | None = None,
) -> CardPlan:
    """Return the best plan on a card.

    Args:
        card: the card.
        axes: with their bounds there, in the order in which they grow.
        first: the plan to begin with; its batch is had before any size grows.
        forecast: what plans need.
        most_tokens: most that a batch may hold of the longest samples, whatever would fit.
        most_samples: most samples of a batch, whatever would fit: the frontier is of what would.
        kept: the plan that the run stays with, where nothing steers by memory.
    """
    axes_of_all, axes = axes, _within_samples(_within_tokens(axes, most_tokens), most_samples)
    limit_bytes = int(card.preset.memory_gib * GIB)
    more_bytes = _workspaces_beyond(forecast, card.preset)
    cost = _cost_of(forecast.peaks_on("cuda"), more_bytes)
    reserved = _cost_of(forecast.least_reserved() or forecast.peaks_on("cuda"), more_bytes)
    now = JumpInput(
        plan=first,
        limit_bytes=limit_bytes,
        target=card.target,
        margin=card.margin,
        axes=axes,
        configured_batch=first.batch_size,
        cost=cost,
        reserved=reserved,
        available_bytes=min(limit_bytes, card.memory_bytes - CONTEXT_BYTES),
    )
    decision = decide(now)
    shape = shape_of(decision.plan)
    expected, most = cost.predict(shape), cost.predict(shape, UPPER)
    of_any_batch = replace(now, axes=axes_of_all)

    def admits(plan: Plan) -> bool:
        return of_any_batch.admits(plan) and (
            most_tokens is None or plan.batch_size * plan.size <= max(most_tokens, plan.size)
        )

    return CardPlan(
        card.preset,
        card.memory_bytes,
        card.target,
        decision.plan if now.admits(decision.plan) else None,
        decision.reason,
        expected,
        most,
        max(expected, reserved.predict(shape)),
        tuple(frontier(cost, axes_of_all, now.target_bytes, micro_batches=first.micro_batches, admits=admits)),
        count.maximum if (count := count_axis(axes)) else 1,
        most_tokens,
        None if kept is None else _kept(now, kept),
    )


def by_kernels(
    cards: Sequence[CardPreset],
    tracer: CardTracer,
    plans: Callable[[Sequence[CardPreset], MemoryForecast | None], tuple[MemoryForecast, Sequence[CardPlan]]],
) -> tuple[MemoryForecast, tuple[CardPlan, ...]]:
    """Plan for cards, apart for those on which attention takes other kernels; return the first forecast, and the plans.

    Args:
        cards: the cards.
        tracer: is aimed at the newest of those that are planned for together.
        plans: of some cards, by what was forecast for others where no attention is computed, else by its own traces.
    """
    groups: dict[tuple[bool, bool], list[CardPreset]] = {}
    for card in cards:
        groups.setdefault(attention_of(_hardware_of(card).capability), []).append(card)
    first: MemoryForecast | None = None
    found: dict[str, CardPlan] = {}
    for group in groups.values():
        if first is None or first.attends:
            tracer.aim(newest_of(group))
            forecast, answers = plans(group, None)
        else:
            forecast, answers = plans(group, first)
        first = first or forecast
        found |= {card.name: answer for card, answer in zip(group, answers, strict=True)}
    assert first is not None  # noqa: S101 - there is a card
    return first, tuple(found[card.name] for card in cards)


def with_memory(answer: CardPlans, tracer: CardTracer) -> CardPlans:
    """Return the answer with what the plan of the first card that has one takes there, in detail.

    Raises:
        TraceError: it cannot be traced.
    """
    for number, card in enumerate(answer.cards):
        if (plan := card.kept.plan if card.kept else card.plan) is not None:
            tracer.aim(_hardware_of(card.preset))
            memory = memory_of(
                plan, tracer.step_trace(plan), answer.forecast.kernels, card.available_bytes, planned_segments()
            )
            cards = (*answer.cards[:number], replace(card, memory=memory), *answer.cards[number + 1 :])
            return replace(answer, cards=cards)
    return replace(answer, notes=("Nothing fits, so no plan was looked at more closely.", *answer.notes))


def newest_of(cards: Sequence[CardPreset]) -> Hardware:
    """Return what kernels ask of the newest of several cards."""
    return max((_hardware_of(card) for card in cards), key=lambda hardware: hardware.capability, default=LARGE_CARD)


def _hardware_of(card: CardPreset) -> Hardware:
    return Hardware.of(card.capability, card.multiprocessors)


def _workspaces_beyond(forecast: MemoryForecast, card: CardPreset) -> int:
    """Return by how much cuBLAS's workspaces on a card exceed those that were traced, which may be a newer card's."""
    each = cublas_workspace_bytes(_hardware_of(card).capability)
    return sum(each - traced for traced in forecast.workspaces_bytes)


def _cost_of(believed: tuple[Prior, RatioPrior], more_bytes: int) -> CostModel:
    prior, ratio = believed
    return CostModel(prior, replace(ratio, constant_bytes=ratio.constant_bytes + more_bytes))


def _kept(now: JumpInput, plan: Plan) -> KeptPlan:
    """Say what a plan takes, and whether it fits: there is no target, and all that is available may be had."""
    shape, available = shape_of(plan), now.available_bytes or now.limit_bytes
    expected, most = now.least_reserved(plan, 0.5), now.least_reserved(plan, UPPER)
    fits = True if most <= available else None if expected <= available else False
    return KeptPlan(plan, now.cost.predict(shape), now.cost.predict(shape, UPPER), expected, available, fits)


def _within_tokens(axes: tuple[Axis, ...], most_tokens: int | None) -> tuple[Axis, ...]:
    """Return the axes with as many samples at most as there are tokens for in the longest of them."""
    size = size_axis(axes)
    if most_tokens is None or size is None:
        return axes
    return _within_samples(axes, max(1, most_tokens // size.maximum))


def _within_samples(axes: tuple[Axis, ...], most: int | None) -> tuple[Axis, ...]:
    """Return the axes with so many samples at most."""
    if most is None:
        return axes
    return tuple(replace(axis, maximum=min(axis.maximum, most)) if axis.is_count else axis for axis in axes)


def what_is_unknown() -> list[str]:
    """Return notes on what no answer about cards knows."""
    context = f"CUDA's own {CONTEXT_BYTES / GIB:.1f} GiB are left free; predictions were compared with two GPUs so far."
    return [
        context,
        *([] if planned_segments() == "expandable" else [FIXED_SEGMENTS]),
        *(f"{text[0].upper()}{text[1:]}." for text in unknown_to_predictions(os.environ, torch.__version__)),
    ]


def within_budget(cards: Sequence[CardPreset], options: FileOptions) -> tuple[list[CardPreset], str]:
    """Return the cards as an option file's budget leaves them, and in words what it makes of them."""
    budget_bytes = options.memory.budget_bytes("cuda")
    if not budget_bytes:
        return list(cards), ""
    size = size_text(budget_bytes)
    if options.device == "cpu":
        return list(cards), f"The file's `memory: budget: {size}` is of its `device: cpu`: cards are looked at whole."
    bounded = [under_budget(card, budget_bytes) for card in cards]
    if not any(card.memory_gib * GIB > budget_bytes for card in cards):
        return bounded, ""
    return bounded, (
        f"Of each card the run may use {size}, the file's `memory: budget`, which holds on any device. "
        "Whole cards: --force_yml memory:budget=null; a budget of CPUs alone is `cpu_budget`."
    )
