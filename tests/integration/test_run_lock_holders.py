"""Processes that hold the folder of a run: killed, or stopped."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainauto.storage import run_lock
from trainauto.storage.run_lock import RunLock, RunLockedError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are known by /proc")

HOLDS = """
import sys, time
from pathlib import Path
from trainauto.storage.run_lock import RunLock
lock = RunLock()
lock.take(Path(sys.argv[1]))
print("taken", flush=True)
time.sleep(60)
"""


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in {"BEAT_S": 0.1, "SILENT_S": 0.8, "_POLL_S": 0.02}.items():
        monkeypatch.setattr(run_lock, name, seconds)


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([sys.executable, "-c", HOLDS, tmp_path], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "taken\n"
        yield process
        process.kill()


def test_killed_owner_is_no_obstacle_even_before_its_parent_has_noticed(
    tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    with pytest.raises(RunLockedError, match=f"process {holder.pid} "):
        RunLock().take(tmp_path)
    holder.kill()
    start = time.monotonic()
    with RunLock() as lock:
        while True:
            try:
                lock.take(tmp_path)
                break
            except RunLockedError:  # the signal is on its way
                assert time.monotonic() < start + 5


def test_stopped_process_keeps_its_folder(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    holder.send_signal(signal.SIGSTOP)  # as Ctrl-Z does: no signs of life, and yet it may go on
    time.sleep(1)
    with pytest.raises(RunLockedError):
        RunLock().take(tmp_path)
