"""``objective: goodput`` in whole runs: what is logged, resumed and repeated."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.integration.commands import latest_weights, merged, run_directory, step_records, tiny_options, write_options
from trainauto.build import build_run
from trainauto.commands.run_replay import logged_run, replay
from trainauto.core.noise_scale import NoiseSample
from trainauto.core.record_json import step_from_dict
from trainauto.engine.loop import train as train_run
from trainauto.integrations.adaptive_loop import AdaptiveLoop
from trainauto.integrations.loop_axes import Range
from trainauto.integrations.loop_model import ModelObjective
from trainauto.options.load import load_options
from trainauto.reporting.dashboard.run_history import NOISE, RunHistory

CONTROLLER = {"objective": "goodput", "adjustment_frequency": 30, "max_batch_size": 16, "max_lq_size": 32}


@pytest.fixture
def options(tmp_path: Path, write_images: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.chdir(tmp_path)
    return tiny_options(
        write_images("gt", 4, (80, 80)),
        datasets={"train": {"batch_size_per_gpu": 4, "lq_size": 16}},
        train={"total_iter": 70},
        val={"val_enabled": False, "metrics": {}},
        memory={"budget": "400MiB", "calibration": False},
        training_automations={"DynamicBatchSizeOptimizer": CONTROLLER},
    )


def test_a_run_samples_the_noise_says_what_batches_are_worth_and_is_repeated(
    options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    def trained(name: str, total_iter: int) -> Path:
        changes = {"name": name, "train": {"total_iter": total_iter}}
        with build_run(load_options(write_options(Path("run.yml"), merged(options, changes))), auto_resume=True) as run:
            train_run(run)
            (noise,) = [one.controller.noise for one in run.journal.automations if hasattr(one, "controller")]
            assert noise is not None
            assert noise.scales["g"].samples == sum("noise" in step for step in step_records(directory(name)))
        return directory(name)

    def directory(name: str) -> Path:
        return run_directory(Path("run.yml").resolve(), name)

    run = trained("good", 40)
    run = trained("good", 70)  # what is known of the noise is kept
    steps = step_records(run)
    sampled = [step for step in steps if "noise" in step]
    assert [step["step"] for step in sampled[:8]] == list(range(4, 33, 4))
    assert all(step["step"] % 8 == 0 for step in sampled[8:])
    for step in sampled:
        noise = NoiseSample(**step["noise"]["g"])
        assert (noise.parts, noise.amount) == (2, step["samples"])
        assert step["pieces"]["g"]["micro_batches"] == 2
        assert noise.square == pytest.approx(step["grad_norm"]["g"] ** 2, rel=1e-5)
    assert {step["plan"]["lq_size"] for step in steps} == {16}, "crops stay as the file has them"
    assert all(step["plan"]["batch_size"] >= 4 for step in steps)
    assert "noise scale" in caplog.text
    assert "is worth" in caplog.text

    history = RunHistory()
    for step in steps:
        history.step(step_from_dict(step), None)
    assert f"{NOISE}g" in history.curves.names

    logged = logged_run(run)
    assert replay(logged, [part.load([]) for part in logged.parts]) == 0
    again = step_records(directory("good_replay"))
    assert [step["losses"] for step in again] == [step["losses"] for step in steps]
    assert latest_weights(directory("good_replay")) == latest_weights(run)


def test_an_own_loop_goes_by_it() -> None:
    torch.manual_seed(1)
    inputs = torch.randn(4096, 8)
    data = [(row, row.sum()) for row in inputs]
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def loss(network: torch.nn.Module, batch: Any) -> torch.Tensor:
        rows, targets = batch
        return (network(rows).squeeze(-1) - targets).square().mean()

    settings = {"objective": "goodput", "adjustment_frequency": 20}
    loop = AdaptiveLoop(
        model,
        ModelObjective("train", optimizer, loss),
        data,
        batch_size=Range(4, 64),
        memory_budget="300MiB",
        settings=settings,
    )
    noted = []
    with loop:
        for batch in loop.batches(epochs=1):
            loop.step(batch)
            if loop.progress.steps == 100:
                break
        noise = loop.state_dict()["automations"]
    scales = json.loads(json.dumps(noise, default=str))
    noted = [value["noise"]["scales"]["train"]["samples"] for value in scales.values() if value.get("noise")]
    assert noted
    assert noted[0] >= 8
