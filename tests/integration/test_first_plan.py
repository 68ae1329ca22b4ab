"""A run begins where it will end: its first plan is foreseen, measured without being trained, and then left alone."""

import json
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import torch

from tests.acceptance import only_in_acceptance
from tests.integration.commands import (
    gan_options,
    latest_weights,
    merged,
    run_directory,
    step_records,
    tiny_options,
    train,
    write_options,
)
from trainauto.automations import Automation
from trainauto.build import build_run
from trainauto.core.decisions import PlanChange
from trainauto.core.plan import Plan
from trainauto.core.records import PeakReading, Probe
from trainauto.engine import probe
from trainauto.engine.probe import measure, untrained_step
from trainauto.engine.random_state import packed_state
from trainauto.engine.run import Run
from trainauto.options.load import load_options

pytestmark = pytest.mark.skipif(platform.system() != "Linux", reason="the CPU budget is enforced on Linux only")

Write = Callable[..., Path]
NAME = "DynamicBatchSizeOptimizer"
LIMIT = 48 * 2**20


def options(gt: Path, steps: int = 16, **changes: Any) -> dict[str, Any]:
    bounds = {"min_batch_size": 2, "max_batch_size": 64, "min_lq_size": 8, "max_lq_size": 32}
    base = tiny_options(
        gt,
        network_g={"type": "compact", "num_feat": 24, "num_conv": 6},
        datasets={"train": {"lq_size": 16, "batch_size_per_gpu": 4}},
        train={"total_iter": steps, "ema_decay": 0.9},
        val={"val_enabled": False},
        memory={"budget": "48MiB", "calibration": False},
        training_automations={NAME: {"target_vram_usage": 0.85, "adjustment_frequency": 8, **bounds}},
    )
    return merged(base, changes)


Lines = list[dict[str, Any]]


def trained(file: Path, given: dict[str, Any], *arguments: str) -> tuple[Lines, Lines, str]:
    done = train(write_options(file, given), *arguments)
    assert done.returncode == 0, done.stderr
    run = run_directory(file, given["name"])
    decisions = run / "decisions.jsonl"
    lines = decisions.read_text().splitlines() if decisions.exists() else []
    return step_records(run), [json.loads(line) for line in lines], (run / "training.log").read_text()


def test_the_first_batch_is_drawn_under_the_plan_the_run_ends_with(tmp_path: Path, write_images: Write) -> None:
    """No batch under the option file's plan, no sample lost, and the log says from what to what, and why."""
    records, decisions, log = trained(tmp_path / "run.yml", options(write_images("gt", 4, (100, 100)), steps=11))
    first = records[0]["plan"]
    assert first["lq_size"] == 32  # the bound
    assert first["batch_size"] > 4
    later = [decision for decision in decisions if not decision["early"]]
    assert len(later) <= 1
    samples = [record["first_sample"] + i for record in records for i in range(record["samples"])]
    assert samples == list(range(len(samples)))
    # Single steps read up to 5 % more here. A batch drawn under a plan before is cut, and takes less than either.
    uses = [record["peak"]["allocated"] / LIMIT for record in records if record["plan"] == record["drawn"]]
    assert 0.7 < median(uses) <= 0.88
    assert records[0]["predicted"] / LIMIT == pytest.approx(median(uses), rel=0.1)
    assert (decisions[0]["step"], decisions[0]["early"], decisions[0]["plan"]) == (1, True, first)
    assert "measured before the first batch: " in log
    (said,) = [line for line in log.splitlines() if "before the first batch: peak" in line]
    assert f"plan -> batch_size {first['batch_size']}, lq_size 32" in said, "once, with its reason"
    assert decisions[0]["reason"].startswith("before the first batch: peak ")
    # A run goes on with what it has: nothing is measured again.
    before = log.count("measured before the first batch")
    _, _, resumed = trained(tmp_path / "run.yml", options(tmp_path / "gt", steps=12), "--auto_resume")
    assert resumed.count("measured before the first batch") == before


@only_in_acceptance
@pytest.mark.parametrize("kind", ["sr", "gan"])
def test_measuring_plans_leaves_no_trace_in_the_run(tmp_path: Path, write_images: Write, kind: str) -> None:
    """The weights are those of a run that was given this plan and measured nothing, to the bit."""
    gt = write_images("gt", 4, (100, 100))
    base = options(gt, steps=4)
    if kind == "gan":
        base = merged(gan_options(), merged(base, {"training_automations": {NAME: {"max_batch_size": 8}}}))
        base = merged(base, gan_options())
    steered, _, log = trained(tmp_path / "steered.yml", merged(base, {"name": "steered"}))
    assert "measured before the first batch" in log
    plan = steered[0]["plan"]
    given = merged(base, {"name": "given"})
    given["training_automations"] = {}
    given["datasets"]["train"] |= {"lq_size": plan["lq_size"], "batch_size_per_gpu": plan["batch_size"]}
    plain, _, _ = trained(tmp_path / "given.yml", given)
    if any(record["plan"] != plan for record in steered):
        pytest.fail("the plan changed within four steps")
    assert [record["losses"] for record in steered] == [record["losses"] for record in plain]
    folders = [run_directory(tmp_path / "run.yml", name) for name in ("steered", "given")]
    weights = [latest_weights(folder) for folder in folders]
    assert weights[0] == weights[1] != {}


def test_a_warm_up_period_keeps_the_option_files_plan(tmp_path: Path, write_images: Write) -> None:
    """E06, E17 with ``policy: jump``: silent for the whole first period; then it jumps."""
    given = options(write_images("gt", 4, (100, 100)), training_automations={NAME: {"warmup_period": True}})
    records, decisions, log = trained(tmp_path / "run.yml", given)
    assert "measured before the first batch" not in log
    assert [record["plan"]["batch_size"] for record in records[:8]] == [4] * 8
    assert decisions[0]["step"] == 8
    assert records[-1]["plan"]["lq_size"] == 32


@contextmanager
def uncontrolled(tmp_path: Path, write_images: Write, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    monkeypatch.chdir(tmp_path)
    given = options(write_images("gt", 4, (100, 100)))
    given["training_automations"] = {}
    del given["memory"]
    with build_run(load_options(write_options(tmp_path / "run.yml", given))) as run:
        yield run


def test_a_probe_that_does_not_fit_costs_nothing(
    tmp_path: Path, write_images: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights, gradients, optimizer state and random generators are as before, whether it fits or not."""
    with uncontrolled(tmp_path, write_images, monkeypatch) as run:
        network = run.model.networks["net_g"]
        before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
        state, forward = packed_state(), type(network).forward

        def refuses(self: torch.nn.Module, image: torch.Tensor) -> torch.Tensor:
            if len(image) > 6:
                raise RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory")
            return forward(self, image)

        monkeypatch.setattr(type(network), "forward", refuses)
        assert measure(run, Plan.of(batch_size=7, lq_size=16)) is None
        untrained_step(run, Plan.of(batch_size=6, lq_size=16))
        untrained_step(run, Plan.of(batch_size=12, lq_size=16, micro_batches=2))
        for optimizer in run.model.optimizers.values():
            assert all(not value.any() for held in optimizer.state.values() for value in held.values())
        assert all(parameter.grad is None for parameter in network.parameters())
        assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())
        assert packed_state() == state
        peak = measure(run, Plan.of(batch_size=6, lq_size=16))
        assert peak is not None
        assert peak.allocated > 0


class Asks(Automation):
    """Asks for plans one after another, whatever is measured."""

    def __init__(self, *batches: int) -> None:
        self.batches = list(batches)
        self.probed: list[int] = []

    def begin(self, now: PeakReading, probes: int) -> PlanChange | None:
        return self._next()

    def on_probe(self, probe: Probe) -> PlanChange | None:
        self.probed.append(probe.plan.batch_size)
        return self._next()

    def _next(self) -> PlanChange | None:
        return PlanChange(Plan.of(batch_size=self.batches.pop(0), lq_size=16), "asked") if self.batches else None


@pytest.mark.parametrize(
    ("batches", "target", "probed", "steps"),
    [
        ((6, 8), None, [6, 8], 4),
        ((6, 8, 6), None, [6, 8], 4),  # what was measured is not measured again
        ((6, 8), 1, [6, 8], 2),  # above target, one step says enough
    ],
)
def test_no_more_is_measured_than_decides(
    batches: tuple[int, ...],
    target: int | None,
    probed: list[int],
    steps: int,
    tmp_path: Path,
    write_images: Write,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with uncontrolled(tmp_path, write_images, monkeypatch) as run:
        asks, made = Asks(*batches), []

        def counted(run: Run, plan: Plan) -> None:
            made.append(plan)
            untrained_step(run, plan)

        monkeypatch.setattr(probe, "untrained_step", counted)
        run.journal.automations = (asks,)
        run.memory_target_bytes = target
        probe.choose_first_plan(run)
        assert asks.probed == probed
        assert len(made) == steps
        assert run.loader.plan.batch_size == batches[-1]
