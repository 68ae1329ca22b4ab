"""What a run begins with: an earlier run's plan, traces, or nothing; and a damaged file costs a line in the log."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from trainauto.automations import DynamicBatchSizeOptimizer
from trainauto.core.decisions import RunFacts
from trainauto.core.plan import Axis, Plan
from trainauto.core.records import PeakReading
from trainauto.forecast import warm_start
from trainauto.forecast.trace_process import ONE_BY_ONE, TraceProcess, TraceProcessDiedError
from trainauto.forecast.warm_start import WarmStart, kind_of_run, prepare_warm_start
from trainauto.memory.cost.memory_forecast import MemoryForecast, PlanBytes
from trainauto.memory.tracing.trace import TraceError
from trainauto.options.load import LoadedOptions, load_options
from trainauto.tasks.sr.archs import ARCHS

OPTIONS = Path(__file__).parents[2] / "assets" / "valid_options.yml"
CPU = torch.device("cpu")
LIMIT = 2**28
START = Plan.of(batch_size=2, lq_size=16)
SETTLED = Plan.of(batch_size=9, lq_size=64)
FACTS = RunFacts((Axis("lq_size", "px", 8, 64, power=2), Axis("batch_size", "samples", 1, 64)), START)


def live(batch: int, side: int) -> int:
    return 2**20 + 3000 * batch * side**2


def traced() -> MemoryForecast:
    sizes = {(b, x): PlanBytes(2**20, live(b, x), {"step": live(b, x)}, None, 0.1) for b in (1, 64) for x in (8, 64)}
    return MemoryForecast.of(sizes, 1, 0.4)


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count traces; they are those of a network that is known in full."""
    seen: list[int] = []

    def forecast_memory(_tracer: Any, _axes: Any, _device: str) -> MemoryForecast:
        seen.append(1)
        return traced()

    monkeypatch.setattr(warm_start, "forecast_memory", forecast_memory)
    return seen


def controller(**arguments: Any) -> DynamicBatchSizeOptimizer:
    defaults = {"min_lq_size": 8, "max_lq_size": 64, "min_batch_size": 1, "adjustment_frequency": 2}
    return DynamicBatchSizeOptimizer(**{**defaults, **arguments})


def begun(
    automation: DynamicBatchSizeOptimizer, loaded: LoadedOptions, limit: int | None = LIMIT, *, calibrated: bool = True
) -> WarmStart:
    network = ARCHS.get("compact")(num_feat=8, num_conv=1, scale=2)
    return prepare_warm_start(
        loaded, kind_of_run(loaded, network, CPU), FACTS, CPU, limit, [automation], calibrated=calibrated
    )


def settle(automation: DynamicBatchSizeOptimizer, plan: Plan) -> None:
    automation.on_run_start(RunFacts(FACTS.axes, plan))
    for _ in range(2):
        automation.observe(PeakReading(int(0.84 * LIMIT), limit=LIMIT))
        automation.update_vram_monitoring()


def test_without_limit_or_jump_nothing_is_traced(traces: list[int]) -> None:
    loaded = load_options(OPTIONS)
    assert begun(controller(), loaded, limit=None).forecast is None
    assert begun(controller(policy="step"), loaded).forecast is None
    wanted = begun(controller(target_batch_size=16), loaded, limit=None)
    assert wanted.plan == Plan.of(batch_size=16, micro_batches=8, lq_size=16)
    assert wanted.configured_samples == 16
    assert traces == []


def test_what_one_run_learns_the_next_one_starts_with(traces: list[int], caplog: pytest.LogCaptureFixture) -> None:
    loaded = load_options(OPTIONS)
    automation = controller(warmup_period=True)  # it is told of the plan it is to settle at
    known = begun(automation, loaded)
    assert (len(traces), known.plan) == (1, START)
    known.keep()
    assert known.calibration is not None
    assert not known.calibration.path.exists()  # it has not settled yet
    settle(automation, SETTLED)
    known.keep()
    assert begun(controller(), loaded).plan == SETTLED
    assert len(traces) == 1
    anew = begun(controller(), loaded, calibrated=False)
    assert (anew.plan, anew.calibration, len(traces)) == (START, None, 2)
    assert begun(controller(max_lq_size=65, target_vram_usage=0.5), loaded).plan == START

    kept = json.loads(known.calibration.path.read_text())
    del kept["learned"]["controller"]["steering"]["cost"]["peaks"]
    known.calibration.path.write_text(json.dumps(kept))
    caplog.clear()
    assert begun(controller(), loaded).plan == START
    assert "is damaged and is ignored: KeyError('peaks')" in caplog.text
    del kept["learned"]["foresight"]["traced"][0]["batch"]
    known.calibration.path.write_text(json.dumps(kept))
    assert begun(controller(), loaded).plan == START
    assert "traces of an earlier run are damaged" in caplog.text


def test_traces_are_of_as_many_ranks_as_train(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def forecast_memory(tracer: TraceProcess, _axes: Any, _device: str) -> MemoryForecast:
        seen.append(tracer._world_size)
        return traced()

    monkeypatch.setattr(warm_start, "forecast_memory", forecast_memory)
    loaded = load_options(OPTIONS)
    for world_size in (1, 3):
        facts = replace(FACTS, world_size=world_size)
        prepare_warm_start(loaded, {}, facts, CPU, LIMIT, [controller()], calibrated=False)
    assert seen == [1, 3]


def test_optimizers_whose_temporaries_do_not_fit_go_weight_by_weight_in_this_run_and_the_next(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[bool] = []

    def forecast_memory(tracer: TraceProcess, _axes: Any, _device: str) -> MemoryForecast:
        seen.append(ONE_BY_ONE in tracer._known)
        optimizer = 2**22 if seen[-1] else LIMIT
        forecast = traced()
        more = {
            size: replace(known, phase_peaks_bytes={"step": known.peak_bytes, "optimizer": optimizer})
            for size, known in forecast.traced.items()
        }
        return MemoryForecast.of(more, 1, 0.4)

    monkeypatch.setattr(warm_start, "forecast_memory", forecast_memory)
    loaded = load_options(OPTIONS)
    automation = controller(warmup_period=True)
    start = begun(automation, loaded)
    assert (seen, start.one_by_one) == ([False, True], True)
    assert start.forecast is not None
    assert start.forecast.live.bytes(1, 8) < LIMIT / 2
    assert "the optimizer's step would need" in caplog.text
    settle(automation, SETTLED)
    start.keep()
    assert begun(controller(), loaded).one_by_one
    assert len(seen) == 2
    assert not begun(controller(), loaded, 2**40, calibrated=False).one_by_one


@pytest.mark.parametrize(("version", "times"), [("2.13.0", 0), ("2.99.0", 1)])
def test_a_torch_that_predictions_were_not_checked_with_is_told_once(
    version: str, times: int, traces: list[int], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(torch, "__version__", version)
    begun(controller(), load_options(OPTIONS), calibrated=False)
    warnings = [message for message in caplog.messages if message.startswith("predictions were checked with torch")]
    assert len(warnings) == times
    assert all(version in message for message in warnings)


def learns_while_tracing_fails(
    error: TraceError, traces: list[int], monkeypatch: pytest.MonkeyPatch
) -> Callable[[], WarmStart]:
    """Have a run settle and keep that, while traces end with the error; return how the next run begins."""

    def failing(_tracer: Any, _axes: Any, _device: str) -> MemoryForecast:
        traces.append(1)
        raise error

    monkeypatch.setattr(warm_start, "forecast_memory", failing)
    loaded = load_options(OPTIONS)
    automation = controller(warmup_period=True)  # it is told of the plan it is to settle at
    known = begun(automation, loaded)
    settle(automation, SETTLED)
    known.keep()
    return lambda: begun(controller(), loaded)


def test_a_network_that_cannot_be_traced_still_learns(
    traces: list[int], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    begin_again = learns_while_tracing_fails(TraceError("its sizes follow data"), traces, monkeypatch)
    assert "falling back to measured peaks" in caplog.text
    assert begin_again().plan == SETTLED
    assert len(traces) == 1


def test_a_process_that_died_says_nothing_of_the_model(traces: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine or a full card may stop a trace once; the next run tries again."""
    died = TraceProcessDiedError("the process that traces gave no answer")
    learns_while_tracing_fails(died, traces, monkeypatch)()
    assert len(traces) == 2


@pytest.mark.parametrize(
    "changed",
    ["network_g:type=compact", "use_amp=true", "train:optim_g:type=SGD", "train:ema_decay=0", "use_channels_last=true"],
)
def test_kinds_differ_by_what_memory_depends_on(changed: str) -> None:
    network = ARCHS.get("compact")(num_feat=8, num_conv=1, scale=2)
    loaded, same = load_options(OPTIONS), load_options(OPTIONS, ["train:total_iter=77", "manual_seed=5"])
    assert kind_of_run(loaded, network, CPU) == kind_of_run(same, network, CPU)
    assert kind_of_run(loaded, network, CPU) != kind_of_run(load_options(OPTIONS, [changed]), network, CPU)
    wider = ARCHS.get("compact")(num_feat=16, num_conv=1, scale=2)
    assert kind_of_run(loaded, network, CPU) != kind_of_run(loaded, wider, CPU)


def test_how_ranks_sum_gradients_is_part_of_the_kind_of_run() -> None:
    network = ARCHS.get("compact")(num_feat=8, num_conv=1, scale=2)
    plain, overlaps = load_options(OPTIONS), load_options(OPTIONS, ["distributed:ddp_overlap=true"])
    alone, together = (kind_of_run(plain, network, CPU, world_size) for world_size in (1, 2))
    assert alone != together
    assert together == kind_of_run(plain, network, CPU, 4)
    assert together != kind_of_run(overlaps, network, CPU, 2)
    assert alone == kind_of_run(overlaps, network, CPU, 1)


def test_samples_of_a_step_are_part_of_the_kind_of_run() -> None:
    """They are held beside the forward passes: what a run with 64 samples a step learned spoilt runs without."""
    network = ARCHS.get("compact")(num_feat=8, num_conv=1, scale=2)
    name = "training_automations:DynamicBatchSizeOptimizer"
    kinds = [
        warm_start.kind_of_run(load_options(OPTIONS, overrides), network, CPU)
        for overrides in ([], ["datasets:train:accum_iter=2"], [f"{name}:target_batch_size=64"])
    ]
    assert kinds[0] != kinds[1]
    assert kinds[0] != kinds[2]
