"""Runs of option files on fake tensors, in this process and in one of their own."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from tests.integration.commands import tiny_options, write_options
from trainauto.builders.data import first_plan
from trainauto.builders.load_plugins import load_plugins
from trainauto.core.errors import InputError
from trainauto.core.plan import Plan
from trainauto.distributed.bucketed_all_reduce import BucketedAllReduce
from trainauto.forecast.trace_process import TraceProcess
from trainauto.forecast.traced_run import FakeRun
from trainauto.memory.tracing.trace import TraceError
from trainauto.options.load import LoadedOptions, load_options

PLAN = Plan.of(batch_size=4, lq_size=16)
NETWORKS = textwrap.dedent(
    """
    import os, sys, time
    import numpy as np
    import torch
    from torch import nn
    from trainauto.archs import ARCHS

    class Net(nn.Module):
        def __init__(self, scale=2):
            super().__init__()
            self.layers = nn.Sequential(nn.Conv2d(3, 3 * scale**2, 3, padding=1), nn.PixelShuffle(scale))
            self.begin()
        def begin(self): pass
        def forward(self, image): return self.layers(image)

    @ARCHS.register("talkative")
    class Talkative(Net):
        def forward(self, image):
            print('{"peak_bytes": 7}')
            if image.shape[-1] > 100:
                time.sleep(600)
            return self.layers(image)

    @ARCHS.register("aborts")
    class Aborts(Net):
        def forward(self, image):
            if self.training:
                print("these are my last words", file=sys.stderr, flush=True)
                os.abort()
            return self.layers(image)

    @ARCHS.register("starts_from_numbers")
    class StartsFromNumbers(Net):
        def begin(self):
            self.spread = float(np.asarray(self.layers[0].weight.detach()).std())
            assert 0.01 < self.spread < 1
        def forward(self, image): return self.layers(image) * self.spread
    """
)


@pytest.fixture
def options(tmp_path: Path) -> Callable[..., Path]:
    """Write an option file beside a plugin of networks; its data set does not exist."""

    def write(network: str = "compact", **changes: Any) -> Path:
        (tmp_path / "tracing_networks.py").write_text(NETWORKS)
        arguments = {"num_feat": 8, "num_conv": 1} if network == "compact" else {}
        chosen = {"network_g": {"type": network, **arguments}, "plugins": ["tracing_networks"]}
        changes = {**chosen, "train": {"grad_clip": 0.5}, **changes}
        return write_options(tmp_path / "run.yml", tiny_options(tmp_path / "no_images", **changes))

    return write


def loaded(file: Path) -> LoadedOptions:
    found = load_options(file)
    load_plugins(found)
    return found


def test_the_first_plan_of_a_run_without_its_data(options: Callable[..., Path]) -> None:
    file = loaded(options())
    found = FakeRun.of(file).trace(first_plan(file.options))
    assert found == FakeRun.of(loaded(options())).trace(Plan.of(batch_size=4, lq_size=16))
    assert found.peak_bytes > found.persistent_bytes
    gradients = found.persistent_bytes - found.held_bytes
    assert gradients == 4 * sum(p.numel() for p in _compact_parameters())


def test_what_the_run_is_set_to_is_what_is_traced(options: Callable[..., Path]) -> None:
    """Averages, optimizer state, number format and pieces each change the bytes as they should."""
    plain = FakeRun.of(loaded(options(train={"ema_decay": 0.0}))).trace(PLAN)
    averaged = FakeRun.of(loaded(options(train={"ema_decay": 0.9}))).trace(PLAN)
    weights_bytes = averaged.persistent_bytes - plain.persistent_bytes
    assert weights_bytes == 4 * sum(p.numel() for p in _compact_parameters())
    stateless = FakeRun.of(loaded(options(train={"ema_decay": 0.0, "optim_g": {"type": "SGD", "lr": 0.1}}))).trace(PLAN)
    steps_bytes = 4 * len(_compact_parameters())
    assert plain.persistent_bytes - stateless.persistent_bytes == 2 * weights_bytes + steps_bytes
    low = FakeRun.of(loaded(options(use_amp=True))).trace(PLAN)
    assert low.peak_bytes < averaged.peak_bytes
    pieces = FakeRun.of(loaded(options())).trace(PLAN.with_micro_batches(4))
    assert pieces.peak_bytes < averaged.peak_bytes
    assert pieces.persistent_bytes == averaged.persistent_bytes


def test_ranks_hold_room_for_the_sum_of_gradients(options: Callable[..., Path]) -> None:
    file = options()
    alone = FakeRun.of(loaded(file)).trace(PLAN)
    buffer_bytes = sum(buffer.nbytes for buffer in BucketedAllReduce(_compact_parameters()).buffers)
    together = FakeRun.of(loaded(file), world_size=2).trace(PLAN)
    assert together.held_bytes - alone.held_bytes == together.peak_bytes - alone.peak_bytes == buffer_bytes
    sharded = FakeRun.of(loaded(options(distributed={"fully_shard": True})), world_size=2).trace(PLAN)
    assert sharded.peak_bytes == alone.peak_bytes


def test_a_step_for_every_plan_is_enough(options: Callable[..., Path]) -> None:
    """It is what an answer about cards costs: half of what two steps would."""
    run = FakeRun.of(loaded(options()))
    steps: list[object] = []
    hook = register_optimizer_step_pre_hook(lambda *_: steps.append(None))
    try:
        for side in (16, 24, 32):
            run.trace(Plan.of(batch_size=2, lq_size=side))
    finally:
        hook.remove()
    assert len(steps) == 3


def _compact_parameters() -> list[torch.nn.Parameter]:
    from trainauto.archs import ARCHS

    return list(ARCHS.get("compact")(num_feat=8, num_conv=1, scale=2).parameters())


def test_a_network_that_computes_with_its_first_weights_is_built_for_real(
    options: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", logger="trainauto"):
        found = FakeRun.of(loaded(options("starts_from_numbers"))).trace(PLAN)
    assert "the network is built for real" in caplog.text
    assert found.peak_bytes > found.persistent_bytes > 0


def test_a_compiled_network_is_not_traced(options: Callable[..., Path]) -> None:
    with pytest.raises(TraceError, match="use_compile is set"):
        FakeRun.of(loaded(options(use_compile=True))).trace(PLAN)


def test_options_that_cannot_be_used_are_input_errors(options: Callable[..., Path]) -> None:
    with pytest.raises(InputError, match="nothing"):
        FakeRun.of(loaded(options("nothing"))).trace(PLAN)


@pytest.mark.parametrize("benchmark", [False, True])
def test_what_convolutions_work_in_counts_where_cudnn_takes_the_fastest(
    options: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, benchmark: bool
) -> None:
    file = options(network_g={"type": "compact", "num_feat": 24, "num_conv": 6})
    usual = FakeRun.of(loaded(file), like_cuda=True)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", benchmark)
    run = FakeRun.of(loaded(file), like_cuda=True)
    found = run.trace(PLAN)
    assert run.kernels(found) == ("benchmarked" if benchmark else "usual")
    assert (found.peak_bytes > usual.trace(PLAN).peak_bytes) is benchmark


# --- the process ---


def test_the_process_answers_as_a_trace_in_this_one(options: Callable[..., Path]) -> None:
    """And goes on after requests that it refuses, whatever networks print, until it does not answer in time."""
    file = options("talkative")
    here = FakeRun.of(loaded(file), world_size=2).trace(PLAN)
    with TraceProcess(file, ["use_amp=false"], segments=None, world_size=2, timeout_s=200) as process:
        found = process.trace(PLAN)
        assert (found.peak_bytes, found.persistent_bytes) == (here.peak_bytes, here.held_bytes)
        assert found.phase_peaks_bytes == here.phase_peaks_bytes
        assert found.reserved_bytes is None
        for segments in ("native", "expandable"):
            process._segments = segments
            expected = here.least_reserved_bytes(expandable=segments == "expandable")
            assert process.trace(PLAN).reserved_bytes == expected
        process._segments = None
        torch.backends.cudnn.benchmark = True
        try:
            assert process.trace(PLAN).kernels == "usual"  # on a CPU it is nobody's business
        finally:
            torch.backends.cudnn.benchmark = False
        assert process.trace(PLAN.changed(batch_size=8)).peak_bytes > found.peak_bytes
        file.write_text(file.read_text().replace("l1loss", "l7loss"))
        process._overrides = []  # another request than before: the file is read again
        with pytest.raises(TraceError, match=r"run\.yml:\d+:\d+: .*l7loss"):
            process.trace(PLAN)
        file.write_text(file.read_text().replace("l7loss", "l1loss"))
        assert process.trace(PLAN) != found
        assert process.trace(PLAN).peak_bytes == found.peak_bytes

        child, process._timeout_s = process._worker, 0.5
        assert child is not None
        with pytest.raises(TraceError, match=r"gave no answer within 0\.5 s"):
            process.trace(PLAN.changed(lq_size=128))
        assert child._process.poll() is not None


def test_a_process_that_dies_is_told_and_not_started_for_ever(options: Callable[..., Path]) -> None:
    with TraceProcess(options("aborts"), timeout_s=200) as process:
        for _ in range(2):
            with pytest.raises(TraceError) as caught:
                process.trace(PLAN)
            assert "was ended by SIGABRT" in str(caught.value)
            assert "these are my last words" in str(caught.value)
        assert process._worker is None
        with pytest.raises(TraceError, match="SIGABRT"):
            process.trace(PLAN)  # at once
        assert process._worker is None


def test_the_process_ends_with_its_parent(options: Callable[..., Path]) -> None:
    program = (
        "import sys, time; from pathlib import Path; from trainauto.forecast.trace_process import TraceProcess\n"
        "process = TraceProcess(Path(sys.argv[1])); process.start(); print(process._worker._process.pid, flush=True)\n"
        "time.sleep(600)"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    command = [sys.executable, "-c", program, str(options())]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        os.kill(child, 0)  # it lives
        parent.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 120
    while _lives(child):
        assert time.monotonic() < deadline, "the process outlives its parent"
        time.sleep(0.1)


def _lives(process: int) -> bool:
    try:
        # An orphan that has ended stays in the table until somebody collects it.
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
