import pytest

from tests.unit.reporting.builders import GIB, a_summary
from trainauto.assembly.memory import with_memory
from trainauto.automations import Automation, DynamicBatchSizeOptimizer


@pytest.mark.parametrize(
    ("limit", "shares", "target"),
    [(10 * GIB, [0.8], 8 * GIB), (10 * GIB, [0.9, 0.5], 5 * GIB), (10 * GIB, [], None), (None, [0.8], None)],
)
def test_the_target_is_a_share_of_the_limit(limit: int | None, shares: list[float], target: int | None) -> None:
    automations: list[Automation] = [DynamicBatchSizeOptimizer(target_vram_usage=share) for share in shares]
    summary = with_memory(a_summary(), limit, [Automation(), *automations])
    assert (summary.memory_limit_bytes, summary.memory_target_bytes) == (limit, target)
    assert summary.name == a_summary().name
