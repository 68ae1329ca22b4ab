"""Interpreters that are asked, and locks between processes."""

import subprocess
import sys
from pathlib import Path

from interpreter import is_usable
from locking import try_lock

SCRIPTS = Path(__file__).parents[3] / "scripts"
HOLD = """
import pathlib, time, locking
with locking.locked(pathlib.Path("lock"), "x"):
    print("held", flush=True)
    time.sleep(60)
"""


def test_the_interpreter_of_these_tests_is_usable():
    assert is_usable(Path(sys.executable), (3, 11))


def test_an_interpreter_can_be_too_old_missing_or_damaged(tmp_path: Path):
    assert not is_usable(Path(sys.executable), (99, 0))
    assert not is_usable(tmp_path / "python", (3, 11))
    damaged = tmp_path / "damaged"
    damaged.write_bytes(b"\x7fnot a program")
    damaged.chmod(0o755)
    assert not is_usable(damaged, (3, 11))


def test_a_lock_excludes_other_processes_and_dies_with_its_holder(tmp_path: Path):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD], cwd=tmp_path, env={"PYTHONPATH": str(SCRIPTS)}, stdout=subprocess.PIPE, text=True
    )
    with holder, (tmp_path / "lock").open("a") as file:
        try:
            assert holder.stdout.readline().strip() == "held"
            assert not try_lock(file.fileno())
        finally:
            holder.kill()
        holder.wait()
        assert try_lock(file.fileno())
