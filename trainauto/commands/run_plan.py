"""What ``python -m trainauto plan`` gives besides its table: JSON for machines, and a picture."""

import json
from pathlib import Path
from typing import Any

from trainauto.core.plan import plan_of, shape_of, size_axis
from trainauto.forecast.benchmark_plans import DeviceBenchmark
from trainauto.forecast.card_answer import FITTING, CardPlans, KeptPlan
from trainauto.memory.cost.cost_model import CostModel
from trainauto.reporting.heat_map import draw_heat_map


def as_json(answer: CardPlans) -> str:
    """Return the answer for machines: bytes throughout."""
    cards: list[dict[str, Any]] = [
        {
            "card": card.preset.name,
            "memory_bytes": card.memory_bytes,
            "limit_bytes": card.limit_bytes,
            "target_vram_usage": card.target,
            "target_bytes": card.target_bytes,
            "max_batch_size": card.largest_batch,
            **({} if card.most_tokens is None else {"max_tokens": card.most_tokens}),
            **({} if card.kept is None else {"kept": _kept_as_dict(card.kept)}),
            "plan": card.plan.to_dict() if card.plan else None,
            "reason": card.reason,
            "expected_peak_bytes": card.expected_bytes,
            "upper_peak_bytes": card.most_bytes,
            "least_reserved_bytes": card.reserved_bytes,
            "frontier": [plan.to_dict() for plan in card.frontier],
        }
        for card in answer.cards
    ]
    traced = [
        {"batch": size[0], "size": size[1], "live_bytes": trace.peak_bytes, "phases": dict(trace.phase_peaks_bytes)}
        for size, trace in answer.forecast.traced.items()
    ]
    notes = [*([answer.bounded_by] if answer.bounded_by else []), *answer.notes]
    answered: dict[str, Any] = {
        "name": answer.name,
        "network": answer.network,
        "notes": notes,
        "traced": traced,
        "cards": cards,
    }
    if answer.memory is not None:
        answered["memory"] = answer.memory.to_dict()
    if answer.losses is not None:
        answered["losses"] = {"plan": answer.losses.plan.to_dict(), "added_bytes": dict(answer.losses.added)}
    return json.dumps({**answered, **({"measured": _as_dict(answer.trials)} if answer.trials else {})}, indent=2)


def draw(answer: CardPlans, path: Path) -> None:
    """Write the heat map of the answer."""
    plans = [plan for card in answer.cards for plan in card.frontier]
    axis = size_axis(answer.axes)
    crops = sorted({plan.size for plan in plans}) or [axis.clamp(axis.minimum) if axis else 1]
    crops = crops[:: max(1, len(crops) // 64)]
    most = max((plan.batch_size for plan in plans), default=1)
    batches = list(range(1, most + 1, max(1, most // 64)))
    cost = CostModel(*answer.forecast.peaks_on("cuda"))
    draw_heat_map(
        path,
        f"{answer.name}: {answer.network}, expected peak of a step",
        crops,
        batches,
        lambda batch, side: cost.predict(shape_of(plan_of(answer.axes, batch, side))),
        {card.preset.name: [(plan.size, plan.batch_size) for plan in card.frontier] for card in answer.cards},
        {card.preset.name: (card.plan.size, card.plan.batch_size) for card in answer.cards if card.plan},
        **({} if axis is not None and axis.unit == "px" else {"across": axis.name if axis else "", "unit": ""}),
    )


def _kept_as_dict(kept: KeptPlan) -> dict[str, Any]:
    return {
        "plan": kept.plan.to_dict(),
        "expected_peak_bytes": kept.expected_bytes,
        "upper_peak_bytes": kept.most_bytes,
        "least_reserved_bytes": kept.reserved_bytes,
        "available_bytes": kept.available_bytes,
        "fits": FITTING[kept.fits],
    }


def _as_dict(trials: DeviceBenchmark) -> dict[str, Any]:
    plans = [
        {
            "plan": benchmark.plan.to_dict(),
            "predicted_peak_bytes": benchmark.predicted_bytes,
            "upper_peak_bytes": benchmark.upper_bytes,
            "measured_peak_bytes": None if benchmark.failed else benchmark.measured_bytes,
            "seconds_a_step": None if benchmark.failed else benchmark.seconds,
            "failed": benchmark.failed or None,
        }
        for benchmark in trials.plans
    ]
    return {"device": trials.device, "limit_bytes": trials.limit_bytes, "plans": plans}
