"""Traces in a process of their own: its answers, its death and its end."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch

from tests.traced_networks import PLAN, loaded, write_traced_options
from trainauto.forecast.trace_process import TraceProcess
from trainauto.forecast.traced_run import FakeRun
from trainauto.memory.tracing.trace import TraceError


@pytest.fixture
def options(tmp_path: Path) -> Callable[..., Path]:
    return partial(write_traced_options, tmp_path)


def test_the_process_answers_as_a_trace_in_this_one(options: Callable[..., Path]) -> None:
    """And goes on after requests that it refuses, whatever networks print, until it does not answer in time."""
    file = options("talkative")
    here = FakeRun.of(loaded(file), world_size=2).trace(PLAN)
    with TraceProcess(file, ["use_amp=false"], segments=None, world_size=2, timeout_s=200) as process:
        answer = process.trace(PLAN)
        assert (answer.peak_bytes, answer.persistent_bytes) == (here.peak_bytes, here.held_bytes)
        assert answer.phase_peaks_bytes == here.phase_peaks_bytes
        assert answer.reserved_bytes is None
        for segments in ("native", "expandable"):
            process._segments = segments
            expected = here.needed_bytes(expandable=segments == "expandable").least_bytes
            assert process.trace(PLAN).reserved_bytes == expected
        process._segments = None
        torch.backends.cudnn.benchmark = True
        try:
            assert process.trace(PLAN).kernels == "usual"  # on a CPU it is nobody's business
        finally:
            torch.backends.cudnn.benchmark = False
        assert process.trace(PLAN.changed(batch_size=8)).peak_bytes > answer.peak_bytes
        file.write_text(file.read_text().replace("l1loss", "l7loss"))
        process._overrides = []  # another request than before: the file is read again
        with pytest.raises(TraceError, match=r"run\.yml:\d+:\d+: .*l7loss"):
            process.trace(PLAN)
        file.write_text(file.read_text().replace("l7loss", "l1loss"))
        assert process.trace(PLAN) != answer
        assert process.trace(PLAN).peak_bytes == answer.peak_bytes

        child, process._timeout_s = process._worker, 0.5
        assert child is not None
        with pytest.raises(TraceError, match=r"gave no answer within 0\.5 s"):
            process.trace(PLAN.changed(lq_size=128))
        assert child._process.poll() is not None
    with TraceProcess(file, segments=None, world_size=2, timeout_s=200, worker=child) as process:
        assert process.trace(PLAN).peak_bytes == here.peak_bytes, "one that was ended is replaced"


def test_a_process_that_dies_is_told_and_not_started_for_ever(options: Callable[..., Path]) -> None:
    with TraceProcess(options("aborts"), segments="expandable", timeout_s=200) as process:
        for _ in range(2):
            with pytest.raises(TraceError) as caught:
                process.trace(PLAN)
            assert "was ended by SIGABRT" in str(caught.value)
            assert "these are my last words" in str(caught.value)
        assert process._worker is None
        with pytest.raises(TraceError, match="SIGABRT"):
            process.trace(PLAN)  # at once
        assert process._worker is None


@pytest.mark.usefixtures("children_covered")
def test_the_process_ends_with_its_parent(options: Callable[..., Path]) -> None:
    program = (
        "import sys, time; from pathlib import Path; from trainauto.forecast.trace_process import TraceProcess\n"
        "process = TraceProcess(Path(sys.argv[1]), segments='expandable'); process.start()\n"
        "print(process._worker._process.pid, flush=True)\n"
        "time.sleep(600)"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
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
