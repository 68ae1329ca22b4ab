import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import processes
import pytest

SCRIPTS = Path(__file__).parents[3] / "scripts"
posix_only = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no signals between processes")

DRIVER = """
import os, pathlib, sys, processes
sys.exit(processes.run_in_foreground([sys.executable, "child.py"], cwd=pathlib.Path.cwd(), env=os.environ))
"""

CHILD = """
import pathlib, signal, sys, time
heard = []
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, lambda number, _: heard.append(number))
pathlib.Path("ready").touch()
deadline = time.monotonic() + 30
while not heard and time.monotonic() < deadline:
    time.sleep(0.01)
time.sleep(0.3)  # a second signal of the same cause would come now
sys.exit(10 * len(heard) + heard[0])
"""


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 30
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@posix_only
@pytest.mark.parametrize("number", [2, 15, 1])
@pytest.mark.parametrize("to_group", [False, True])
def test_a_signal_reaches_the_child_once_and_its_exit_code_comes_back(tmp_path: Path, number: int, to_group: bool):
    (tmp_path / "child.py").write_text(CHILD)
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(SCRIPTS)},
        process_group=0,
        start_new_session=False,
    )
    wait_for(tmp_path / "ready")
    (os.killpg if to_group else os.kill)(driver.pid, number)  # a terminal signals the group, a supervisor the process
    assert driver.wait(timeout=30) == 10 + number


@posix_only
def test_a_child_ended_by_a_signal_gives_the_code_a_shell_would(tmp_path: Path):
    kill_oneself = [sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]
    assert processes.run_in_foreground(kill_oneself, cwd=tmp_path, env=os.environ) == 128 + 9


def test_exit_codes_and_handlers_are_left_as_they_were(tmp_path: Path):
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    assert processes.run_in_foreground([sys.executable, "-c", "exit(5)"], cwd=tmp_path, env=os.environ) == 5
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


@posix_only
def test_a_signal_that_is_ignored_stays_ignored(tmp_path: Path):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        command = [sys.executable, "-c", "import signal; exit(signal.getsignal(signal.SIGHUP) == signal.SIG_IGN)"]
        assert processes.run_in_foreground(command, cwd=tmp_path, env=os.environ) == 1
    finally:
        signal.signal(signal.SIGHUP, before)
