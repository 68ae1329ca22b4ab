"""Who writes into a run's folder: one at a time, and a dead owner is no obstacle."""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from threading import Event

import pytest

from trainauto.core.errors import TrainautoError
from trainauto.storage import run_lock
from trainauto.storage.run_lock import Owner, RunLock, RunLockedError

linux = pytest.mark.skipif(sys.platform != "linux", reason="processes are known by /proc")


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in {"BEAT_S": 0.1, "SILENT_S": 0.8, "_POLL_S": 0.02}.items():
        monkeypatch.setattr(run_lock, name, seconds)


def owned_by(folder: Path, owner: Owner, number: int = 1) -> Path:
    file = folder / f"owner_{number}.json"
    file.write_text(json.dumps(asdict(owner)))
    return file


def test_one_at_a_time_and_given_back_at_once(tmp_path: Path) -> None:
    with RunLock() as first:
        first.take(tmp_path)
        with pytest.raises(RunLockedError, match=rf"in use by process {os.getpid()} on .*, since 20\d\d-.*\n.*kill"):
            RunLock().take(tmp_path)
        first.check()
    with RunLock() as second:
        second.take(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["owner_2.json"]


@linux
def test_another_process_under_the_same_number_is_another(tmp_path: Path) -> None:
    owned_by(tmp_path, replace(Owner.me(), started="1"))
    with RunLock() as lock:
        lock.take(tmp_path)


FAR = Owner("far", 7, "2026-11-22 10:00:00", "another machine", "5")


@contextmanager
def living(file: Path, behind_s: float = 0.0) -> Iterator[None]:
    """Give signs of life as an owner elsewhere does, by a clock that may be behind."""
    done = Event()

    def beat() -> None:
        while not done.wait(0.05):
            now = time.time() - behind_s
            os.utime(file, (now, now))

    with ThreadPoolExecutor(1) as beside:
        beating = beside.submit(beat)
        try:
            yield
        finally:
            done.set()
            beating.result()


def taken_after_s(folder: Path) -> float:
    start = time.monotonic()
    with RunLock() as lock:
        lock.take(folder)
        return time.monotonic() - start


def test_owner_elsewhere_is_judged_by_its_signs_of_life(tmp_path: Path) -> None:
    file = owned_by(tmp_path, FAR)
    with living(file), pytest.raises(RunLockedError, match="process 7 on far, since 2026-11-22 10:00:00"):
        RunLock().take(tmp_path)
    assert taken_after_s(tmp_path) >= 0.3, "silent now"


def test_clock_of_another_machine_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = owned_by(tmp_path, FAR)
    behind = time.time() - 60
    os.utime(file, (behind, behind))
    with living(file, behind_s=60), pytest.raises(RunLockedError, match="process 7 on far"):
        RunLock().take(tmp_path)
    os.utime(file, (behind, behind))
    assert taken_after_s(tmp_path) >= 0.3, "however old it looks, it is watched"
    file = owned_by(tmp_path, FAR, 5)
    os.utime(file, (time.time() + 3600, time.time() + 3600))
    naps = iter(range(200))

    def nap(_seconds: float, real: Callable[[float], None] = time.sleep) -> None:
        next(naps)  # raises once it has been watched for far longer than silence takes
        real(_seconds)

    monkeypatch.setattr(run_lock.time, "sleep", nap)
    with RunLock() as lock:
        lock.take(tmp_path)


def test_damaged_file_of_an_owner_is_judged_by_its_age(tmp_path: Path) -> None:
    (tmp_path / "owner_3.json").write_text('{"host": "fa')
    with RunLock() as lock:
        lock.take(tmp_path)
        assert [file.name for file in tmp_path.iterdir()] == ["owner_4.json"]


def refused(lock: RunLock, match: str) -> None:
    def ask() -> None:
        end = time.monotonic() + 10
        while time.monotonic() < end:
            lock.check()
            time.sleep(0.01)

    with pytest.raises(TrainautoError, match=match):
        ask()


def test_who_was_silent_for_too_long_writes_no_more(tmp_path: Path) -> None:
    with RunLock() as lock:
        lock.take(tmp_path)
        owned_by(tmp_path, FAR, 2)  # as another one that took it over does
        refused(lock, "taken over by process 7 on far")
    assert (tmp_path / "owner_2.json").stat().st_mtime > 1e9, "it gives back what is its own only"


def test_who_wakes_up_finds_out_before_the_next_beat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_lock, "BEAT_S", 60.0)
    with RunLock() as lock:
        lock.take(tmp_path)
        owned_by(tmp_path, FAR, 2)
        lock.check()
        monkeypatch.setattr(run_lock, "BEAT_S", 0.01)  # nothing beats for another minute
        time.sleep(0.03)
        with pytest.raises(TrainautoError, match="taken over by process 7 on far"):
            lock.check()


def test_file_that_was_tidied_away_is_made_again(tmp_path: Path) -> None:
    with RunLock() as lock:
        lock.take(tmp_path)
        file = tmp_path / "owner_1.json"
        written = file.read_text()
        file.unlink()
        end = time.monotonic() + 10
        while not file.exists() and time.monotonic() < end:
            lock.check()
            time.sleep(0.01)
        assert file.read_text() == written
        lock.check()
        file.unlink()
        owned_by(tmp_path, FAR)  # one that came meanwhile has the same number
        refused(lock, "taken over by process 7 on far")


def test_many_at_once_after_a_dead_one_have_one_owner(tmp_path: Path) -> None:
    owned_by(tmp_path, Owner("far", 7, "2026-11-22 10:00:00"))
    os.utime(tmp_path / "owner_1.json", (0, 0))

    def take(_number: int) -> RunLock | None:
        lock = RunLock()
        try:
            lock.take(tmp_path)
        except RunLockedError:
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
        with pytest.raises(RunLockedError):
            RunLock().take(tmp_path)
