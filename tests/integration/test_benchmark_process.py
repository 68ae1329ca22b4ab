"""Plans tried in a process: what is said of those that do not fit, and of those that end it."""

import platform
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance import only_in_acceptance
from tests.integration.commands import tiny_options, write_options
from trainauto.core.plan import Plan
from trainauto.core.worker_process import WorkerProcess
from trainauto.forecast.benchmark_plans import SERVER, PlanBenchmarker
from trainauto.options.load import load_options

MIB = 1024**2
SMALL = Plan.of(batch_size=1, lq_size=16)
LARGE = Plan.of(batch_size=16, lq_size=64)
NETWORK = textwrap.dedent(
    """
    import os
    from torch import nn
    from trainauto.tasks.sr.archs import ARCHS

    @ARCHS.register("ends_on_large_crops")
    class EndsOnLargeCrops(nn.Module):
        def __init__(self, scale=2):
            super().__init__()
            self.layers = nn.Sequential(nn.Conv2d(3, 3 * scale**2, 3, padding=1), nn.PixelShuffle(scale))
        def forward(self, image):
            if image.shape[-1] > 32:
                os.abort()
            return self.layers(image)
    """
)


@pytest.fixture
def request_of(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    def write(**changes: Any) -> dict[str, Any]:
        file = write_options(tmp_path / "run.yml", tiny_options(tmp_path / "no_images", **changes))
        return {"options": str(file), "overrides": [], "smallest": SMALL.to_dict()}

    return write


@pytest.fixture
def worker() -> Iterator[WorkerProcess]:
    process = WorkerProcess(SERVER)
    yield process
    process.end()


@pytest.mark.skipif(platform.system() != "Linux", reason="the CPU budget is enforced on Linux only")
def test_a_plan_that_does_not_fit_is_told_and_the_next_is_tried(
    worker: WorkerProcess, request_of: Callable[..., dict[str, Any]]
) -> None:
    refused = worker.request(request_of(network_g={"type": "compact", "num_faet": 4}), 100)
    assert "num_feat" in refused["cannot"]
    network = {"type": "compact", "num_feat": 32, "num_conv": 2}
    device = worker.request(request_of(network_g=network, memory={"budget": "48MiB"}), 100)
    assert (device["kind"], device["limit_bytes"]) == ("cpu", 48 * MIB)
    assert worker.request({"plan": LARGE.to_dict()}, 100)["failed"].startswith("out of memory: ")
    small = worker.request({"plan": SMALL.to_dict()}, 100)
    assert 0 < small["measured_bytes"] <= 48 * MIB
    assert small["seconds"] > 0


@only_in_acceptance
def test_a_plan_that_ends_its_process_is_told_and_the_next_is_tried(tmp_path: Path) -> None:
    (tmp_path / "ending_networks.py").write_text(NETWORK)
    changes = {"network_g": {"type": "ends_on_large_crops"}, "plugins": ["ending_networks"]}
    file = write_options(tmp_path / "run.yml", tiny_options(tmp_path / "no_images", **changes))
    trier = PlanBenchmarker(load_options(file), SMALL)
    try:
        trier.build()
        assert "SIGABRT" in trier.measure(LARGE)["failed"]
        assert trier.measure(SMALL)["seconds"] > 0
    finally:
        trier.end()
