"""What a run knows of its memory before its first step: presets, target, limit."""

import inspect
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import ceil
from typing import Any

import torch

from trainauto.automations import AUTOMATIONS, Automation
from trainauto.automations.dynamic_batch_size import LQ_SIZE
from trainauto.control.controller import Controller, controllers_of
from trainauto.core.decisions import RunFacts
from trainauto.core.plan import TOKENS, Axis
from trainauto.core.run_events import DETAIL, RunSummary
from trainauto.core.units import size_text
from trainauto.options.cards import CardPreset, cpu_preset, find_card

logger = logging.getLogger(__name__)

BAND = TARGET, MARGIN = "target_vram_usage", "safety_margin"
MAX_TOKENS = "max_tokens"
BOUNDS = (*BAND, "min_batch_size", "max_batch_size", "min_lq_size", "max_lq_size")
"""Arguments of a controller that presets know."""

GROWTH = 16
"""How many times the tokens of the first batch a controller goes up to by default: beyond, steps are few."""

_PARAMETERS = inspect.signature(AUTOMATIONS.get("DynamicBatchSizeOptimizer")).parameters


def preset_for(device: torch.device, budget_bytes: int | None) -> CardPreset | None:
    """Return the preset of the card, or of a budget on the CPU; ``None`` where there is neither."""
    if device.type == "cuda":  # pragma: no cuda
        properties = torch.cuda.get_device_properties(device)
        return find_card(properties.name, min(budget_bytes or properties.total_memory, properties.total_memory))
    return cpu_preset(budget_bytes) if budget_bytes else None


def controller_defaults(preset: CardPreset | None, facts: RunFacts, written: Mapping[str, Any]) -> dict[str, Any]:
    """Return a controller's bounds where the option file is silent: the preset's, else the controller's own defaults.

    They yield: the first plan lies within them, and none contradicts what is written. What is written may contradict
    itself or the run, which the controller refuses.

    Args:
        preset: of the card or the budget.
        facts: axes and first plan of the run.
        written: what the option file gives the controller.
    """
    suggested = bounds_of(preset)
    defaults = {**suggested, **_band(suggested, written)}
    if TOKENS in facts.plan:
        band = {name: defaults[name] for name in BAND if name not in written}
        return band if MAX_TOKENS in written else {**band, MAX_TOKENS: GROWTH * facts.plan[TOKENS]}
    for axis in facts.axes:
        low, high, first = f"min_{axis.name}", f"max_{axis.name}", facts.plan[axis.name]
        defaults[low] = min(suggested[low], first)
        defaults[high] = max(suggested[high], first)
        # Between the two lies a multiple that the network takes.
        if high in written:
            defaults[low] = max(1, min(defaults[low], written[high], axis.clamp(written[high])))
        if low in written:
            defaults[high] = max(defaults[high], ceil(written[low] / axis.multiple) * axis.multiple)
    return {name: value for name, value in defaults.items() if name not in written}


def bounds_of(preset: CardPreset | None) -> dict[str, Any]:
    """Return the bounds that a preset suggests; the controller's own defaults where there is none."""
    if preset is not None:
        return {name: getattr(preset, name) for name in BOUNDS}
    return {name: parameter.default for name, parameter in _PARAMETERS.items() if name in BOUNDS}


def _band(suggested: Mapping[str, Any], written: Mapping[str, Any]) -> dict[str, Any]:
    """Return target and margin of which the one that is not written leaves room for the other."""
    target, margin = ({**suggested, **written}[name] for name in BAND)
    if margin < target:
        return {}
    # Halfway, since nothing says how wide a band is wanted there.
    return {"safety_margin": target / 2, "target_vram_usage": min(1.0, (1 + margin) / 2)}


def log_bounds(name: str, preset: CardPreset | None, written: Mapping[str, Any], filled_in: Mapping[str, Any]) -> None:
    """Say in the log which bounds hold for a controller and where each comes from, or that nothing limits its memory.

    Args:
        name: of the controller.
        preset: of the card or the budget; ``None`` on a CPU without a budget.
        written: what the option file gives the controller.
        filled_in: what fills in where it is silent.
    """
    if preset is None:
        logger.warning(
            "%s has no memory limit to follow: on a CPU only a budget sets one. "
            "Write `memory: {cpu_budget: 2GiB}`, or `budget: 2GiB` for any device.",
            name,
        )
        return
    suggested, values = bounds_of(preset), {**filled_in, **written}
    shown = [bound for bound in (*BOUNDS, MAX_TOKENS, "target_batch_size") if values.get(bound) is not None]
    bounds_text = [f"{bound} {values[bound]} ({_source(bound, suggested, written, filled_in)})" for bound in shown]
    if filled_in.get(TARGET, 0.0) > suggested[TARGET]:
        logger.warning(
            "safety_margin %g must lie below target_vram_usage, so that is %g instead of %g, the preset's: "
            "write target_vram_usage beside it to set how much of the memory may be used",
            written[MARGIN],
            filled_in[TARGET],
            suggested[TARGET],
        )
    logger.log(DETAIL, "memory preset: %s (%s), for keys that the option file does not set", preset.name, preset.rule)
    logger.log(DETAIL, "%s: %s", name, ", ".join(bounds_text))


def _source(bound: str, suggested: Mapping[str, Any], written: Mapping[str, Any], filled_in: Mapping[str, Any]) -> str:
    if bound in written:
        return "file"
    if bound == MAX_TOKENS:
        return f"{GROWTH} times the first"
    return "preset" if filled_in[bound] == suggested[bound] else f"preset {suggested[bound]}, moved to suit the file"


def with_memory(
    summary: RunSummary,
    limit_bytes: int | None,
    automations: Iterable[Automation],
    axes: Sequence[Axis] = (),
    preset: CardPreset | None = None,
) -> RunSummary:
    """Return the summary with the limit of the run and the peak its controller steers to, for curves and lines.

    Args:
        summary: what else is known.
        limit_bytes: memory the run may use; ``None`` if unknown, and then there is nothing to steer to.
        automations: of the run; the lowest target of the controllers among them is the one that holds.
        axes: of the run.
        preset: what fills in for a controller where the option file is silent.
    """
    controllers = controllers_of(automations)
    lowest = min(controllers, key=lambda controller: controller.settings.target_vram_usage, default=None)
    target_bytes = int(limit_bytes * lowest.settings.target_vram_usage) if limit_bytes is not None and lowest else None
    facts = (*_memory_facts(limit_bytes, lowest, axes, preset), *summary.facts)
    return replace(summary, memory_limit_bytes=limit_bytes, memory_target_bytes=target_bytes, facts=facts)


def _memory_facts(
    limit_bytes: int | None,
    controller: Controller | None,
    axes: Sequence[Axis],
    preset: CardPreset | None,
) -> Iterator[tuple[str, str]]:
    """Yield lines on how much memory there is, what fills it, and between which bounds."""
    limit = "no limit is known" if limit_bytes is None else size_text(limit_bytes)
    if controller is None:
        yield "memory", f"{limit}; no controller is enabled, so {_knobs(axes)} stay as in the file"
        return
    if limit_bytes is None:
        yield "memory", f"{limit}, so {_knobs(axes)} stay as in the file"
        return
    settings = controller.settings
    target, low = settings.target_vram_usage, settings.target_vram_usage - settings.safety_margin
    band = f"{size_text(limit_bytes * low)} to {size_text(limit_bytes * target)} ({low:.0%} to {target:.0%})"
    yield "memory", f"{limit}; peaks are steered to {band}"
    bounds = ", ".join(_bounds_of(axis) for axis in controller.bounded(tuple(axes)))
    source = f" (file, else preset {preset.name})" if preset is not None else ""
    yield "bounds", f"{bounds}{source}"


def _knobs(axes: Sequence[Axis]) -> str:
    """Return in words what a controller changes."""
    return "batch size and crop size" if any(axis.name == LQ_SIZE for axis in axes) else "batch sizes"


def _bounds_of(axis: Axis) -> str:
    capped = f" ({axis.capped_by})" if axis.capped_by else ""
    return f"{axis.name} {axis.clamp(axis.minimum)} to {axis.clamp(axis.maximum)}{capped}"
