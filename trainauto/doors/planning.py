"""What ``python -m trainauto plan`` answers: which crops and batches fit on which card, without one."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch

from trainauto.assembly.automating import CONTROLLER, choose_automation, is_controller
from trainauto.assembly.child import Child
from trainauto.assembly.data import build_axes, build_train_set, first_plan
from trainauto.assembly.foresight import Foresight, foresee
from trainauto.assembly.model import build_network
from trainauto.assembly.plugins import load_plugins
from trainauto.assembly.trace_process import TraceProcess
from trainauto.assembly.trial import Trial, Trials, try_plans
from trainauto.automations import DynamicBatchSizeOptimizer
from trainauto.core.decisions import RunFacts
from trainauto.core.errors import InputError
from trainauto.core.plan import LQ_SIZE, Axis, Plan
from trainauto.core.process import unknown_to_predictions
from trainauto.data.dynamic_dataset import Survey
from trainauto.doors.tables import aligned
from trainauto.memory.jump_policy import Situation, choose, frontier
from trainauto.memory.surface import UPPER, CostModel, shape_of
from trainauto.options.cards import CardPreset, card_by_words, find_card
from trainauto.options.load import LoadedOptions
from trainauto.reporting.figures import size_text
from trainauto.reporting.heat_map import draw_heat_map

MIB, GIB = 1024**2, 1024**3
USUAL_CARDS = ("RTX 3060 12GB", "T4", "RTX 4090", "L40S", "A100 80GB", "H200")

CONTEXT_BYTES = 700 * 1024**2
"""What CUDA itself holds of a card beside the allocator: published reports say 290 to 670 MiB; not measured by us."""

UNBOUNDED_PX = 2**15


@dataclass(frozen=True)
class CardAnswer:
    """What a run would do on a card.

    Attributes:
        card: the card and its bounds.
        target: share of its memory that peaks may reach: the option file's, else the card's.
        plan: the best plan; ``None`` where not even the smallest fits.
        reason: why this one, and why none larger.
        expected_bytes: its expected peak of allocated bytes.
        most_bytes: what the peak stays within with 99 % probability.
        reserved_bytes: the least that the allocator is expected to reserve, with expandable segments.
        frontier: for each crop the largest batch that fits.
    """

    card: CardPreset
    target: float
    plan: Plan | None
    reason: str
    expected_bytes: int
    most_bytes: int
    reserved_bytes: int
    frontier: tuple[Plan, ...]

    @property
    def limit_bytes(self) -> int:
        """Memory of the card."""
        return int(self.card.memory_gib * GIB)


@dataclass(frozen=True)
class Answer:
    """What fits where.

    Attributes:
        name: of the run.
        network: type of its network.
        notes: what the answer does not know.
        foresight: what was traced.
        axes: of the run, before a card bounds them.
        cards: one answer a card.
        trials: plans that were tried on the device at hand, where that was asked for.
    """

    name: str
    network: str
    notes: tuple[str, ...]
    foresight: Foresight
    axes: tuple[Axis, ...]
    cards: tuple[CardAnswer, ...]
    trials: Trials | None = None


def answer(
    loaded: LoadedOptions, cards: Sequence[CardPreset], *, measure: bool = False, child: Child | None = None
) -> Answer:
    """Trace the run of an option file and say what fits on each card.

    Args:
        loaded: the option file.
        cards: the cards.
        measure: try a few plans on the device at hand, too.
        child: a process that traces as on CUDA, where one was started already.

    Raises:
        InputError: the options cannot be used.
        CannotTrace: the model cannot be traced.
    """
    notes = []
    with TraceProcess(loaded.path, loaded.overrides, child=child) as tracer:
        tracer.start()  # torch is loaded there while the network is built here
        load_plugins(loaded)
        network = build_network(loaded, pretrained=False)
        try:
            train_set, surveys = build_train_set(loaded, network)
            survey = surveys[train_set.name]
        except InputError:
            survey = Survey(1, UNBOUNDED_PX, "", 0)
            notes.append("The training images were not found: crops are not bounded by the smallest one.")
        axes = build_axes(loaded, network, survey)
        controllers = {card.name: _controller(loaded, card, axes) for card in cards}
        bounds = {name: controller.bounded(axes) for name, controller in controllers.items()}
        hull = _hull(axes, list(bounds.values()))
        foresight = foresee(tracer, hull)
    notes.append(
        f"CUDA's own {CONTEXT_BYTES / GIB:.1f} GiB are left free; the prediction was not checked on a GPU yet."
    )
    notes += [f"{text[0].upper()}{text[1:]}." for text in unknown_to_predictions(os.environ, torch.__version__)]
    answers = tuple(_on_card(loaded, card, controllers[card.name], bounds[card.name], foresight) for card in cards)
    trials = try_plans(loaded, hull, foresight) if measure else None
    return Answer(loaded.options.name, loaded.options.network_g.type, tuple(notes), foresight, axes, answers, trials)


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


def table(found: Answer) -> str:
    """Return the answer in words, within 80 columns but for the reasons."""
    rows = []
    for one in found.cards:
        if one.plan is None:
            rows.append((one.card.name, "-", "-", "-", "-", "nothing fits"))
            continue
        share = f"{one.expected_bytes / one.limit_bytes:.0%}"
        rows.append(
            (
                one.card.name,
                f"{one.plan[LQ_SIZE]} px",
                str(one.plan.batch_size),
                size_text(one.expected_bytes),
                share,
                size_text(one.most_bytes),
            )
        )
    lines = [
        f"{found.name}: {found.network}, traced {len(found.foresight.traced)} plans in {found.foresight.seconds:.1f} s",
        f"weights, optimizer and averages hold {size_text(found.foresight.persistent_bytes)}",
        "",
        *aligned(("card", "lq_size", "batch", "expected peak", "of card", "99 % within"), rows),
        "",
        *_frontiers(found),
        *(_tried(found.trials) if found.trials else []),
        *found.notes,
    ]
    return "\n".join(lines)


def as_json(found: Answer) -> str:
    """Return the answer for machines: bytes throughout."""
    cards: list[dict[str, Any]] = [
        {
            "card": one.card.name,
            "memory_bytes": one.limit_bytes,
            "target_vram_usage": one.target,
            "plan": one.plan.to_dict() if one.plan else None,
            "reason": one.reason,
            "expected_peak_bytes": one.expected_bytes,
            "upper_peak_bytes": one.most_bytes,
            "least_reserved_bytes": one.reserved_bytes,
            "frontier": [plan.to_dict() for plan in one.frontier],
        }
        for one in found.cards
    ]
    traced = [
        {"batch": size[0], "lq_size": size[1], "live_bytes": one.peak_bytes, "phases": dict(one.phase_peaks_bytes)}
        for size, one in found.foresight.traced.items()
    ]
    answered = {"name": found.name, "network": found.network, "notes": found.notes, "traced": traced, "cards": cards}
    return json.dumps({**answered, **({"measured": _as_dict(found.trials)} if found.trials else {})}, indent=2)


def draw(found: Answer, path: Path) -> None:
    """Write the heat map of the answer."""
    plans = [plan for one in found.cards for plan in one.frontier]
    crop = next(axis for axis in found.axes if axis.name == LQ_SIZE)
    crops = sorted({plan[LQ_SIZE] for plan in plans}) or [crop.clamp(crop.minimum)]
    crops = crops[:: max(1, len(crops) // 64)]
    most = max((plan.batch_size for plan in plans), default=1)
    batches = list(range(1, most + 1, max(1, most // 64)))
    cost = CostModel(*found.foresight.peaks_on("cuda"))
    draw_heat_map(
        path,
        f"{found.name}: {found.network}, expected peak of a step",
        crops,
        batches,
        lambda batch, side: cost.predict(shape_of(Plan.of(batch_size=batch, lq_size=side))),
        {one.card.name: [(plan[LQ_SIZE], plan.batch_size) for plan in one.frontier] for one in found.cards},
        {one.card.name: (one.plan[LQ_SIZE], one.plan.batch_size) for one in found.cards if one.plan},
    )


def _controller(loaded: LoadedOptions, card: CardPreset, axes: tuple[Axis, ...]) -> DynamicBatchSizeOptimizer:
    """Return the controller a run on this card would have: the option file's settings, else the card's.

    Raises:
        InputError: it does not take these settings.
    """
    active = loaded.options.training_automations.active
    name = next((name for name in active if is_controller(name)), CONTROLLER)
    given = active[name].arguments if name in active else {}
    facts = RunFacts(axes, first_plan(loaded.options), loaded.options.scale)
    return cast(DynamicBatchSizeOptimizer, choose_automation(loaded, name, given, card, facts).build(loaded))


def _hull(axes: tuple[Axis, ...], bounds: Sequence[tuple[Axis, ...]]) -> tuple[Axis, ...]:
    """Return axes that span the bounds of all cards."""
    hull = []
    for axis in axes:
        same = [next(one for one in bound if one.name == axis.name) for bound in bounds]
        low, high = min(one.minimum for one in same), max(one.maximum for one in same)
        hull.append(replace(axis, minimum=low, maximum=high))
    return tuple(hull)


def _on_card(
    loaded: LoadedOptions,
    card: CardPreset,
    controller: DynamicBatchSizeOptimizer,
    axes: tuple[Axis, ...],
    foresight: Foresight,
) -> CardAnswer:
    limit_bytes = int(card.memory_gib * GIB)
    cost = CostModel(*foresight.peaks_on("cuda"))
    reserved = CostModel(*(foresight.least_reserved() or foresight.peaks_on("cuda")))
    first = controller.effective.forward(first_plan(loaded.options))
    judgement = choose(
        Situation(
            plan=first,
            limit_bytes=limit_bytes,
            target=controller.target_vram_usage,
            margin=controller.safety_margin,
            axes=axes,
            configured_batch=first.batch_size,
            cost=cost,
            reserved=reserved,
            available_bytes=limit_bytes - CONTEXT_BYTES,
        )
    )
    shape = shape_of(judgement.plan)
    expected, most = cost.predict(shape), cost.predict(shape, UPPER)
    target_bytes = int(controller.target_vram_usage * limit_bytes)
    fits = most <= target_bytes
    return CardAnswer(
        card,
        controller.target_vram_usage,
        judgement.plan if fits else None,
        judgement.reason,
        expected,
        most,
        max(expected, reserved.predict(shape)),
        tuple(frontier(cost, axes, target_bytes, micro_batches=first.micro_batches)),
    )


def _frontiers(found: Answer) -> list[str]:
    """Return a table of the largest batch for some crops."""
    crops = sorted({plan[LQ_SIZE] for one in found.cards for plan in one.frontier})
    some = [crop for crop in crops if crop % 32 == 0] or crops
    some = sorted({*some[:: max(1, -(-len(some) // 7))], *crops[-1:]})
    if not some:
        return []
    rows = []
    for one in found.cards:
        largest = {plan[LQ_SIZE]: plan.batch_size for plan in one.frontier}
        rows.append((one.card.name, *(str(largest.get(crop, "-")) for crop in some)))
    return ["largest batch that fits, by crop:", *aligned(("card", *(f"{crop} px" for crop in some)), rows), ""]


def _tried(trials: Trials) -> list[str]:
    """Return a table of what was tried, failures below it."""
    bound = f", up to {trials.limit_bytes / GIB:.2f} GiB" if trials.limit_bytes is not None else ""
    rows = [
        (*_plan_cells(one.plan), f"{one.predicted_bytes / MIB:.0f} MiB", *_measured_cells(one)) for one in trials.trials
    ]
    failures = [f"{one.plan}: {one.failed}" for one in trials.trials if one.failed]
    headings = ("lq_size", "batch", "predicted", "measured", "off by", "s a step")
    return [f"tried on {trials.device}{bound}:", *aligned(headings, rows), *failures, ""]


def _plan_cells(plan: Plan) -> tuple[str, str]:
    return f"{plan[LQ_SIZE]} px", str(plan.batch_size)


def _measured_cells(one: Trial) -> tuple[str, str, str]:
    if one.failed:
        return "-", "-", "-"
    return f"{one.measured_bytes / MIB:.0f} MiB", f"{one.error:+.1%}", f"{one.seconds:.2f}"


def _as_dict(trials: Trials) -> dict[str, Any]:
    plans = [
        {
            "plan": one.plan.to_dict(),
            "predicted_peak_bytes": one.predicted_bytes,
            "upper_peak_bytes": one.upper_bytes,
            "measured_peak_bytes": None if one.failed else one.measured_bytes,
            "seconds_a_step": None if one.failed else one.seconds,
            "failed": one.failed or None,
        }
        for one in trials.trials
    ]
    return {"device": trials.device, "limit_bytes": trials.limit_bytes, "plans": plans}
