"""Who writes into a run's folder: one at a time, and a dead owner is no obstacle."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from trainauto.core import run_lock
from trainauto.core.errors import TrainautoError
from trainauto.core.run_lock import Owner, RunLock, RunTaken

HOLDS = """
import sys, time
from pathlib import Path
from trainauto.core.run_lock import RunLock
lock = RunLock()
lock.take(Path(sys.argv[1]))
print("taken", flush=True)
time.sleep(60)
"""

linux = pytest.mark.skipif(sys.platform != "linux", reason="processes are known by /proc")


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


def owned_by(folder: Path, owner: Owner, number: int = 1) -> Path:
    file = folder / f"owner_{number}.json"
    file.write_text(json.dumps(asdict(owner)))
    return file


def test_one_at_a_time_and_given_back_at_once(tmp_path: Path) -> None:
    with RunLock() as first:
        first.take(tmp_path)
        with pytest.raises(RunTaken, match=rf"in use by process {os.getpid()} on .*, since 20\d\d-.*\n.*kill"):
            RunLock().take(tmp_path)
        first.check()
    with RunLock() as second:
        second.take(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["owner_2.json"]


@linux
def test_killed_owner_is_no_obstacle_even_before_its_parent_has_noticed(
    tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    with pytest.raises(RunTaken, match=f"process {holder.pid} "):
        RunLock().take(tmp_path)
    holder.kill()
    start = time.monotonic()
    with RunLock() as lock:
        while True:
            try:
                lock.take(tmp_path)
                break
            except RunTaken:  # the signal is on its way
                assert time.monotonic() < start + 5


@linux
def test_another_process_under_the_same_number_is_another(tmp_path: Path) -> None:
    owned_by(tmp_path, replace(Owner.me(), started="1"))
    with RunLock() as lock:
        lock.take(tmp_path)


@linux
def test_stopped_process_keeps_its_folder(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    os.kill(holder.pid, 19)  # SIGSTOP, as Ctrl-Z does: no signs of life, and yet it may go on
    time.sleep(1)
    with pytest.raises(RunTaken):
        RunLock().take(tmp_path)


def test_owner_elsewhere_is_judged_by_its_signs_of_life(tmp_path: Path) -> None:
    far = Owner("far", 7, "2026-11-22 10:00:00", "another machine", "5")
    file = owned_by(tmp_path, far)
    with ThreadPoolExecutor(1) as beside, RunLock() as lock:

        def beat() -> None:
            for _ in range(5):
                time.sleep(0.1)
                os.utime(file)

        beating = beside.submit(beat)
        with pytest.raises(RunTaken, match="process 7 on far, since 2026-11-22 10:00:00"):
            lock.take(tmp_path)
        beating.result()
        start = time.monotonic()
        lock.take(tmp_path)  # silent now
        assert time.monotonic() - start > 0.3
    long_silent = time.time() - 60
    file = owned_by(tmp_path, far, 5)
    os.utime(file, (long_silent, long_silent))
    start = time.monotonic()
    with RunLock() as lock:
        lock.take(tmp_path)
    assert time.monotonic() - start < 0.3


def test_damaged_file_of_an_owner_is_judged_by_its_age(tmp_path: Path) -> None:
    (tmp_path / "owner_3.json").write_text('{"host": "fa')
    with RunLock() as lock:
        lock.take(tmp_path)
        assert [file.name for file in tmp_path.iterdir()] == ["owner_4.json"]


def test_who_was_silent_for_too_long_writes_no_more(tmp_path: Path) -> None:
    with RunLock() as lock:
        lock.take(tmp_path)
        owned_by(tmp_path, Owner("far", 7, "2026-11-22 10:00:00"), 2)  # as another one that took it over does
        time.sleep(1)
        with pytest.raises(TrainautoError, match="taken over by process 7 on far"):
            lock.check()
    assert (tmp_path / "owner_2.json").stat().st_mtime > 1e9, "it gives back what is its own only"


def test_many_at_once_after_a_dead_one_have_one_owner(tmp_path: Path) -> None:
    owned_by(tmp_path, Owner("far", 7, "2026-11-22 10:00:00"))
    os.utime(tmp_path / "owner_1.json", (0, 0))

    def take(_number: int) -> RunLock | None:
        lock = RunLock()
        try:
            lock.take(tmp_path)
        except RunTaken:
            return None
        return lock

    with ThreadPoolExecutor(16) as threads:
        taken = [lock for lock in threads.map(take, range(64)) if lock is not None]
    assert len(taken) == 1
    taken[0].give_back()


def test_file_system_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_names: object) -> None:
        raise PermissionError("no links here")

    monkeypatch.setattr(os, "link", refuse)
    with RunLock() as lock:
        lock.take(tmp_path)
        with pytest.raises(RunTaken):
            RunLock().take(tmp_path)
