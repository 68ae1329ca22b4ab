"""What a run knows of its memory before its first step: presets, target, limit."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace

import torch

from trainauto.automations import Automation, DynamicBatchSizeOptimizer
from trainauto.core.plan import LQ_SIZE, Plan
from trainauto.core.reports import RunSummary
from trainauto.options.cards import CardPreset, cpu_preset, find_card

logger = logging.getLogger(__name__)


def preset_for(device: torch.device, budget_bytes: int | None) -> CardPreset | None:
    """Return the preset of the card, or of a budget on the CPU; ``None`` where there is neither."""
    if device.type == "cuda":  # pragma: no cuda
        properties = torch.cuda.get_device_properties(device)
        return find_card(properties.name, min(budget_bytes or properties.total_memory, properties.total_memory))
    return cpu_preset(budget_bytes) if budget_bytes else None


def controller_defaults(preset: CardPreset | None, plan: Plan) -> Mapping[str, float]:
    """Return what a preset gives a controller where the option file is silent; the first plan lies within."""
    if preset is None:
        return {}
    logger.info("memory preset: %s (%s)", preset.name, preset.rule)
    return {
        "target_vram_usage": preset.target_vram_usage,
        "safety_margin": preset.safety_margin,
        "min_batch_size": min(preset.min_batch_size, plan.batch_size),
        "max_batch_size": max(preset.max_batch_size, plan.batch_size),
        "min_lq_size": min(preset.min_lq_size, plan[LQ_SIZE]),
        "max_lq_size": max(preset.max_lq_size, plan[LQ_SIZE]),
    }


def with_memory(summary: RunSummary, limit_bytes: int | None, automations: Iterable[Automation]) -> RunSummary:
    """Return the summary with the limit of the run and the peak its controller steers to, for curves and lines.

    Args:
        summary: what else is known.
        limit_bytes: memory the run may use; ``None`` where nobody says, and then there is nothing to steer to.
        automations: of the run; the lowest target of the controllers among them is the one that holds.
    """
    shares = [one.target_vram_usage for one in automations if isinstance(one, DynamicBatchSizeOptimizer)]
    target_bytes = int(limit_bytes * min(shares)) if limit_bytes is not None and shares else None
    return replace(summary, memory_limit_bytes=limit_bytes, memory_target_bytes=target_bytes)
