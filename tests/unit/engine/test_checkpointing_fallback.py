"""What gradient checkpointing costs, and what a resumed run makes of it."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from trainauto.core.plan import BatchShape, Plan
from trainauto.core.records import StepRecord
from trainauto.engine.checkpointing_fallback import CheckpointingFallback
from trainauto.models import SRModel
from trainauto.optim.precision import Precision
from trainauto.tasks.sr.archs import ARCHS

CPU = torch.device("cpu")
PLAN = Plan.of(batch_size=1, lq_size=8)


def small_model(num_conv: int = 3) -> SRModel:
    network = ARCHS.get("compact")(num_feat=4, num_conv=num_conv, scale=2)
    return SRModel(network, {"l1": nn.L1Loss()}, lambda p: torch.optim.SGD(p, lr=0.1), Precision(CPU))


def record(seconds: float, units: int = 1000, ooms: int = 0) -> StepRecord:
    return StepRecord(1, PLAN, PLAN, BatchShape(1, 8), 0, {}, {}, {}, 0.0, seconds, units=units, ooms=ooms)


def told(resort: CheckpointingFallback, seconds: list[float], caplog: pytest.LogCaptureFixture) -> list[str]:
    caplog.clear()
    for one in seconds:
        resort.see(record(one))
    return [line for line in caplog.messages if line.startswith("with gradient checkpointing a step takes")]


@pytest.fixture(autouse=True)
def _all_levels(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="trainauto")


def test_the_cost_is_measured_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """For as much work; steps that were run again are left out, as is the first one."""
    resort, model = CheckpointingFallback(allowed=True), small_model()
    for seconds in (0.2, 0.2, 0.6):
        resort.see(record(seconds, units=2000))
    resort.see(record(60.0, ooms=3))
    assert resort.take(SimpleNamespace(model=model), "one crop does not fit") is None
    assert "a step takes about a third longer" in caplog.text
    assert (
        resort.take(SimpleNamespace(model=model), "it still does not fit")
        == "Gradient checkpointing is already enabled."
    )
    resort.see(record(60.0, ooms=3))
    (line,) = told(resort, [9.0, 0.13, 0.13, 0.12, 0.14, 0.15, 0.13, 0.13], caplog)
    assert line == (
        "with gradient checkpointing a step takes 0.130 s (median of 5); without it, steps took 0.100 s for as much "
        "(+30 %)"
    )


def test_where_no_step_fitted_before_it_says_so(caplog: pytest.LogCaptureFixture) -> None:
    resort, model = CheckpointingFallback(allowed=True), small_model()
    resort.take(SimpleNamespace(model=model), "")
    (line,) = told(resort, [9.0, *[0.13] * 9], caplog)
    assert line.endswith("0.130 s (median of 5); none without it was measured")


def test_a_run_that_was_set_so_is_not_told_what_it_costs(caplog: pytest.LogCaptureFixture) -> None:
    resort, model = CheckpointingFallback(), small_model()
    model.checkpoint_gradients()
    assert told(resort, [0.1] * 20, caplog) == []
    assert resort.state_dict() == {"taken": False}


def test_a_resume_goes_on_as_the_options_allow(caplog: pytest.LogCaptureFixture) -> None:
    before, model = CheckpointingFallback(allowed=True), small_model()
    assert before.state_dict() == {"taken": False}
    before.take(SimpleNamespace(model=model), "")
    state = before.state_dict()
    for allowed in (True, False):
        after, model = CheckpointingFallback(allowed=allowed), small_model()
        after.load_state_dict(state, model)
        assert model.checkpoints_gradients is allowed
        assert after.state_dict() == {"taken": allowed}
        after.load_state_dict({}, model)  # of a checkpoint that knows nothing of it
        assert model.checkpoints_gradients is allowed
    assert "its options no longer allow it, so it is disabled" in caplog.text
    after = CheckpointingFallback(allowed=True)
    after.load_state_dict(state, small_model(num_conv=1))  # too short a chain
    assert "no longer possible: net_g: SRVGGNetCompact has no list of repeated blocks" in caplog.text
