"""Whatever steers a run, crops stay on the sides its network takes."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tests.contract.small_archs import WHOLE, build
from trainauto.automations import DynamicBatchSizeOptimizer
from trainauto.automations.dynamic_batch_size import LQ_SIZE
from trainauto.builders.data import build_axes
from trainauto.control.step_policy import shrunk_after_oom
from trainauto.core.decisions import PlanChange, RunFacts
from trainauto.core.errors import InputError
from trainauto.core.plan import Axis, BatchShape, Plan, SizeRequirements
from trainauto.core.records import OutOfMemory, PeakReading, StepRecord
from trainauto.data import DatasetScan
from trainauto.options.load import LoadedOptions, load_options

OPTIONS = load_options(Path(__file__).parents[1] / "assets" / "valid_options.yml")
LIMIT = 10**9

usages = st.floats(0.01, 1.2)
wishes = st.tuples(st.integers(1, 40), st.integers(1, 300))
events = st.lists(st.one_of(usages, wishes, st.just("out of memory")), min_size=1, max_size=12)
bounds = st.tuples(st.integers(1, 100), st.integers(1, 300)).map(sorted)


class Asking(nn.Module):
    """A network of which only its wishes matter."""

    def __init__(self, minimum: int, multiple: int) -> None:
        super().__init__()
        self.size_requirements = SizeRequirements(minimum, multiple)


networks = st.builds(Asking, st.integers(1, 40), st.integers(1, 24))


def axes_of(network: nn.Module, lq_size: int, smallest_px: int) -> tuple[Axis, ...]:
    """Return the axes as a run has them, of a file that begins with this crop."""
    options, train = OPTIONS.options, OPTIONS.options.datasets.train.model_copy(update={"lq_size": lq_size})
    options = options.model_copy(update={"datasets": options.datasets.model_copy(update={"train": train})})
    loaded = LoadedOptions(options, OPTIONS.places, OPTIONS.path, OPTIONS.tree)
    return build_axes(loaded, network, DatasetScan(4, smallest_px, "small.png", 1))


def asked_plans(controller: DynamicBatchSizeOptimizer, facts: RunFacts, happening: list[object]) -> list[Plan]:
    """Return all plans that a controller, and the engine after it, ask for while this happens."""
    plan, asked = facts.plan, []
    controller.on_run_start(facts)
    for event in happening:
        shape, change = BatchShape(plan.batch_size, plan[LQ_SIZE]), None
        if isinstance(event, float):
            reading = PeakReading(int(event * LIMIT), limit=LIMIT)
            change = controller.on_step_end(StepRecord(1, plan, plan, shape, 0, {}, {}, {}, 0.0, 0.0, peak=reading))
        elif isinstance(event, tuple):
            controller.set_target_parameters(*event)
        else:
            asked += [smaller] if (smaller := shrunk_after_oom(plan, facts.axes)) else []
            change = controller.on_out_of_memory(OutOfMemory(1, plan, shape, "g", "none left", 2, LIMIT))
        if isinstance(change, PlanChange):
            plan = change.plan
            asked.append(plan)
    return asked


def check_all(network: nn.Module, multiples: int, smallest_px: int, between: list[int], happening: list[object]) -> int:
    needs = network.size_requirements
    assert isinstance(needs, SizeRequirements)
    first = -(-needs.minimum // needs.multiple) * needs.multiple + multiples * needs.multiple
    axes, plan = axes_of(network, first, smallest_px), Plan.of(batch_size=6, lq_size=first)
    low, high = between
    controller = DynamicBatchSizeOptimizer(
        adjustment_frequency=1, min_lq_size=low, max_lq_size=high, min_batch_size=2, max_batch_size=40
    )
    try:
        controller.check(RunFacts(axes, plan))
    except InputError:
        return 0
    asked = asked_plans(controller, RunFacts(controller.apply_minima(axes, plan), plan), happening)
    for wanted in asked:
        assert wanted[LQ_SIZE] % needs.multiple == 0, wanted
        assert wanted[LQ_SIZE] >= needs.minimum, wanted
    return len(asked)


@pytest.mark.parametrize("name", WHOLE)
@settings(max_examples=25, deadline=None)
@given(st.integers(0, 8), st.integers(1, 200), bounds, events)
def test_registered_networks_get_multiples_of_their_window(
    name: str, multiples: int, smallest_px: int, between: list[int], happening: list[object]
) -> None:
    """Fault 14: crops grew and shrank by steps that ignored the network's window."""
    check_all(NETWORKS[name], multiples, smallest_px, between, happening)


@settings(max_examples=100, deadline=None)
@given(networks, st.integers(0, 8), st.integers(1, 200), bounds, events)
def test_any_network_gets_multiples_of_its_window(
    network: Asking, multiples: int, smallest_px: int, between: list[int], happening: list[object]
) -> None:
    """Fault 14: windows that no network here has, such as 7 of Swin or a plugin's 12."""
    check_all(network, multiples, smallest_px, between, happening)


NETWORKS = {name: build(name) for name in WHOLE}


def test_some_networks_have_windows_and_are_steered_through_them() -> None:
    """The properties above do see growth and shrinking, on a network whose window is not 1."""
    windowed = [network for network in NETWORKS.values() if network.size_requirements.multiple > 1]
    assert len(windowed) >= 2
    for network in windowed:
        assert check_all(network, 3, 90, [9, 99], [0.1, 0.1, "out of memory", 0.99, 0.99, (30, 50), *[0.1] * 5]) >= 4
