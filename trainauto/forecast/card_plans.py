"""Which crops and batches fit on which card, without one: what ``plan`` answers, on the command line and in scripts."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from trainauto.builders.automations import CONTROLLER, choose_automation, is_controller
from trainauto.builders.data import build_axes, build_train_set, first_plan
from trainauto.builders.load_plugins import load_plugins
from trainauto.builders.model import build_network
from trainauto.control.controller import Controller, controllers_of
from trainauto.control.jump_policy import JumpInput, decide, frontier
from trainauto.core.decisions import RunFacts
from trainauto.core.errors import InputError
from trainauto.core.plan import Axis, Plan, count_axis, shape_of
from trainauto.core.process import unknown_to_predictions
from trainauto.core.units import GIB
from trainauto.core.worker_process import WorkerProcess
from trainauto.data.dynamic_dataset import DatasetScan
from trainauto.forecast.benchmark_plans import DeviceBenchmark, benchmark_plans
from trainauto.forecast.trace_process import TraceProcess
from trainauto.memory.cost.cost_model import UPPER, CostModel
from trainauto.memory.cost.memory_forecast import MemoryForecast, forecast_memory
from trainauto.options.cards import CardPreset, card_by_words, find_card
from trainauto.options.load import LoadedOptions

USUAL_CARDS = ("RTX 3060 12GB", "T4", "RTX 4090", "L40S", "A100 80GB", "H200")

CONTEXT_BYTES = 700 * 1024**2
"""What CUDA itself holds of a card beside the allocator: published reports say 290 to 670 MiB; not measured by us."""

UNBOUNDED_PX = 2**15


@dataclass(frozen=True)
class CardPlan:
    """What a run would do on a card.

    Attributes:
        preset: the card and its bounds; its memory is no more than the option file's budget.
        memory_bytes: of the whole card.
        target: share of the memory that peaks may reach: the option file's, else the card's.
        plan: the best plan; ``None`` where not even the smallest fits.
        reason: why this one, and why none larger.
        expected_bytes: its expected peak of allocated bytes.
        most_bytes: what the peak stays within with 99 % probability.
        reserved_bytes: the least that the allocator is expected to reserve, with expandable segments.
        frontier: for each size the largest batch that is admitted as the plan is.
        largest_batch: bound of batches, whatever would fit.
    """

    preset: CardPreset
    memory_bytes: int
    target: float
    plan: Plan | None
    reason: str
    expected_bytes: int
    most_bytes: int
    reserved_bytes: int
    frontier: tuple[Plan, ...]
    largest_batch: int

    @property
    def limit_bytes(self) -> int:
        """Memory that the run may use of the card."""
        return int(self.preset.memory_gib * GIB)

    @property
    def target_bytes(self) -> int:
        """What peaks stay within with 99 % probability."""
        return int(self.target * self.limit_bytes)


@dataclass(frozen=True)
class CardPlans:
    """What fits where.

    Attributes:
        name: of the run.
        network: type of its network.
        notes: what the answer does not know.
        forecast: what was traced.
        axes: of the run, before a card bounds them.
        cards: one answer a card.
        trials: plans that were tried on the device at hand, where that was asked for.
    """

    name: str
    network: str
    notes: tuple[str, ...]
    forecast: MemoryForecast
    axes: tuple[Axis, ...]
    cards: tuple[CardPlan, ...]
    trials: DeviceBenchmark | None = None


def plan_for_cards(
    loaded: LoadedOptions, cards: Sequence[CardPreset], *, measure: bool = False, child: WorkerProcess | None = None
) -> CardPlans:
    """Trace the run of an option file and say what fits on each card.

    Args:
        loaded: the option file.
        cards: the cards.
        measure: try a few plans on the device at hand, too.
        child: a process that traces as on CUDA, where one was started already.

    Raises:
        InputError: the options cannot be used.
        TraceError: the model cannot be traced.
    """
    notes = []
    with TraceProcess(loaded.path, loaded.overrides, worker=child) as tracer:
        tracer.start()  # torch is loaded there while the network is built here
        load_plugins(loaded)
        network = build_network(loaded, pretrained=False)
        try:
            train_set, scans = build_train_set(loaded, network)
            scan = scans[train_set.name]
        except InputError:
            scan = DatasetScan(1, UNBOUNDED_PX, "", 0)
            notes.append("The training images were not found: crops are not bounded by the smallest one.")
        axes = build_axes(loaded, network, scan)
        whole = {card.name: int(card.memory_gib * GIB) for card in cards}
        budget_bytes = loaded.options.memory.budget_bytes("cuda")
        if budget_bytes:
            notes.append(f"The option file's budget of {budget_bytes / GIB:.2f} GiB holds on larger cards, too.")
            cards = [_under_budget(card, budget_bytes) for card in cards]
        controllers = {card.name: _controller(loaded, card, axes) for card in cards}
        bounds = {name: controller.bounded(axes) for name, controller in controllers.items()}
        hull = _hull(axes, list(bounds.values()))
        forecast = forecast_memory(tracer, hull)
    notes.append(
        f"CUDA's own {CONTEXT_BYTES / GIB:.1f} GiB are left free; the prediction was not checked on a GPU yet."
    )
    notes += [f"{text[0].upper()}{text[1:]}." for text in unknown_to_predictions(os.environ, torch.__version__)]
    answers = tuple(
        _on_card(loaded, card, whole[card.name], controllers[card.name], bounds[card.name], forecast) for card in cards
    )
    trials = benchmark_plans(loaded, hull, forecast) if measure else None
    return CardPlans(loaded.options.name, loaded.options.network_g.type, tuple(notes), forecast, axes, answers, trials)


def chosen_cards(words: Sequence[str], vram: Sequence[int]) -> list[CardPreset]:
    """Return the cards a person means; the usual ones where nothing is said.

    Args:
        words: names of cards.
        vram: memory sizes in bytes, of cards without a name.

    Raises:
        InputError: no card is called so, or several are.
    """
    named = [card_by_words(text) for text in (words or ([] if vram else USUAL_CARDS))]
    sized = [replace(find_card("", size), name=f"{size / GIB:g} GiB", memory_gib=size / GIB) for size in vram]
    return [*named, *sized]


def _controller(loaded: LoadedOptions, card: CardPreset, axes: tuple[Axis, ...]) -> Controller:
    """Return the controller a run on this card would have: the option file's settings, else the card's.

    Raises:
        InputError: it does not take these settings.
    """
    active = loaded.options.training_automations.active
    name = next((name for name in active if is_controller(name)), CONTROLLER)
    arguments = active[name].arguments if name in active else {}
    facts = RunFacts(axes, first_plan(loaded.options))
    (controller,) = controllers_of([choose_automation(loaded, name, arguments, card, facts).build(loaded)])
    return controller


def _under_budget(card: CardPreset, budget_bytes: int) -> CardPreset:
    """Return the preset that a run has on a card of which it may use so much."""
    if card.memory_gib * GIB <= budget_bytes:
        return card
    return replace(find_card(card.name, budget_bytes), name=card.name, memory_gib=budget_bytes / GIB)


def _hull(axes: tuple[Axis, ...], by_card: Sequence[tuple[Axis, ...]]) -> tuple[Axis, ...]:
    """Return axes that span the bounds of all cards."""
    hull = []
    for axis in axes:
        same = [next(other for other in card_axes if other.name == axis.name) for card_axes in by_card]
        low, high = min(other.minimum for other in same), max(other.maximum for other in same)
        hull.append(replace(axis, minimum=low, maximum=high))
    return tuple(hull)


def _on_card(
    loaded: LoadedOptions,
    card: CardPreset,
    memory_bytes: int,
    controller: Controller,
    axes: tuple[Axis, ...],
    forecast: MemoryForecast,
) -> CardPlan:
    limit_bytes = int(card.memory_gib * GIB)
    cost = CostModel(*forecast.peaks_on("cuda"))
    reserved = CostModel(*(forecast.least_reserved() or forecast.peaks_on("cuda")))
    first = controller.effective.forward(first_plan(loaded.options))
    now = JumpInput(
        plan=first,
        limit_bytes=limit_bytes,
        target=controller.settings.target_vram_usage,
        margin=controller.settings.safety_margin,
        axes=axes,
        configured_batch=first.batch_size,
        cost=cost,
        reserved=reserved,
        available_bytes=min(limit_bytes, memory_bytes - CONTEXT_BYTES),
    )
    decision = decide(now)
    shape = shape_of(decision.plan)
    expected, most = cost.predict(shape), cost.predict(shape, UPPER)
    fits = most <= now.target_bytes
    return CardPlan(
        card,
        memory_bytes,
        controller.settings.target_vram_usage,
        decision.plan if fits else None,
        decision.reason,
        expected,
        most,
        max(expected, reserved.predict(shape)),
        tuple(frontier(cost, axes, now.target_bytes, micro_batches=first.micro_batches, admits=now.admits)),
        count.maximum if (count := count_axis(axes)) else 1,
    )
