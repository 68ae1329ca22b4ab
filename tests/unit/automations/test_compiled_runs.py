"""Growth of runs whose network is compiled anew for each size of crops: each change costs seconds."""

from itertools import pairwise

import pytest

from tests.unit.automations.played import LIMIT, PlayedRun, controller, need
from trainauto.automations import DynamicBatchSizeOptimizer
from trainauto.control.compile_cost import CompileCost

PERIOD, STEP_S, COMPILE_S = 10, 1.0, 20.0


class CompiledRun(PlayedRun):
    """Compiles in the first step of each size that it has not had, and in the first one of all."""

    known: frozenset[int] = frozenset()

    def seconds(self) -> float:
        return STEP_S

    def compile_seconds(self) -> float:
        new = self.plan["lq_size"] not in self.known
        self.known |= {self.plan["lq_size"]}
        return COMPILE_S if new else 0.0


def steered(**arguments: object) -> DynamicBatchSizeOptimizer:
    return controller("step", adjustment_frequency=PERIOD, warmup_period=0, **arguments)


def growth_of_crops(run: PlayedRun) -> list[int]:
    changes = [(step, change.plan["lq_size"]) for step, change in run.changes]
    sizes = [run.first["lq_size"], *(size for _, size in changes)]
    return [step for (step, after), before in zip(changes, sizes, strict=False) if after > before]


def test_growth_waits_until_a_tenth_of_the_time_is_spent_on_compiling(caplog: pytest.LogCaptureFixture) -> None:
    plain, compiled = PlayedRun(steered()).run(600), CompiledRun(steered())
    with caplog.at_level("INFO", logger="trainauto"):
        compiled.run(600)
    quick, slow = growth_of_crops(plain), growth_of_crops(compiled)
    assert max(after - before for before, after in pairwise(quick[:4])) <= 3 * PERIOD
    waits = [after - before for before, after in pairwise(slow)]
    assert waits
    assert min(waits) >= 10 * COMPILE_S / STEP_S
    assert slow[0] == quick[0] + 1  # the first step is none of a plan; what it compiles says nothing of a change
    assert "torch.compile took 20 s for this plan, so growth waits" in caplog.text


def test_memory_is_given_back_whatever_that_costs() -> None:
    run = CompiledRun(steered()).run(40)
    before = run.plan
    run.spike = lambda _step: 0.99 * LIMIT / need(before)
    run.run(3 * PERIOD)
    assert need(run.plan) < need(before)


def test_a_resume_waits_on() -> None:
    """What the process that resumes compiles first is no change's."""
    run = CompiledRun(steered()).run(40)
    before = run.automation.controller._compile_cost.seconds_to_wait
    assert before > 100
    resumed = CompiledRun(steered(), start=run.plan)
    resumed.automation.load_state_dict(run.automation.state_dict())
    resumed.one_step()
    assert resumed.automation.controller._compile_cost.seconds_to_wait == before - STEP_S


def test_a_change_that_compiles_nothing_ends_no_wait() -> None:
    cost = CompileCost()
    cost.see(COMPILE_S, STEP_S)
    assert cost.seconds_to_wait == 0
    cost.change()
    cost.see(COMPILE_S, STEP_S)
    assert cost.seconds_to_wait == 10 * COMPILE_S
    cost.change()
    cost.see(0.0, STEP_S)
    assert (cost.seconds_to_wait, cost.last_s) == (10 * COMPILE_S - STEP_S, COMPILE_S)
