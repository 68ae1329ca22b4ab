"""What surrounds a step."""

from pathlib import Path

import pytest

from tests.token_runs import token_run
from trainauto.core.plan import Plan
from trainauto.engine import train_step


@pytest.mark.parametrize(("budget_bytes", "trims"), [(2**30, 1), (None, 0)])
def test_what_samples_leave_in_the_heap_is_given_back_before_a_step_under_a_budget(
    budget_bytes: int | None, trims: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Peaks of the same plan were 5 MiB apart by it."""
    calls: list[bool] = []
    monkeypatch.setattr(train_step, "trim_heap", lambda: calls.append(True))
    with token_run(tmp_path, Plan.of(batch_size=4), 3, budget_bytes=budget_bytes) as run:
        assert run.loader.loads_here
        assert len(train_step.next_batch(run, iter(run.loader))) == 4
    assert len(calls) == trims
