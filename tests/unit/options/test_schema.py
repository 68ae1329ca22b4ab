"""Sections of an option file that hold more than values."""

import pytest

from trainauto.options.schema import MemoryOptions


@pytest.mark.parametrize(
    ("given", "on_cpu", "on_cuda", "any_budget"),
    [
        ({}, None, None, False),
        ({"budget": "2MiB"}, 2 * 2**20, 2 * 2**20, True),
        ({"cpu_budget": "1MiB"}, 2**20, None, True),
        ({"budget": "2MiB", "cpu_budget": "1MiB"}, 2**20, 2 * 2**20, True),
    ],
)
def test_budgets_by_device(given: dict[str, str], on_cpu: int | None, on_cuda: int | None, any_budget: bool) -> None:
    memory = MemoryOptions(**given)
    assert memory.budget_bytes("cpu") == on_cpu
    assert memory.budget_bytes("cuda") == on_cuda
    assert memory.has_budget is any_budget
