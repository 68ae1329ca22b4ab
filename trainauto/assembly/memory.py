"""What a run says of its memory before its first step."""

from collections.abc import Iterable
from dataclasses import replace

from trainauto.automations import Automation, DynamicBatchSizeOptimizer
from trainauto.core.reports import RunSummary


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
