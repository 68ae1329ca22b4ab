"""Logs that end before their checkpoint, and disks that take nothing for a while."""

import errno
import io
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.integration.begun_runs import MORE, copied, trained_in, words_of
from tests.integration.commands import command, latest_weights, run_directory, step_records, train
from trainauto.core import line_file
from trainauto.core.records import StepRecord
from trainauto.engine import loop
from trainauto.engine.run import Run


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, photograph: np.ndarray) -> Path:
    return trained_in(tmp_path_factory.mktemp("trained"), photograph, 3, datasets={"val": {"dataroot_gt": "gt"}})


@pytest.fixture
def begun(trained: Path, tmp_path: Path) -> Path:
    return copied(trained, tmp_path / "run")


def zeros_from(file: Path, line: int) -> None:
    """Leave what a power cut leaves: the size of the file, and zeros where the last lines were to come."""
    lines = file.read_bytes().splitlines(keepends=True)
    kept = b"".join(lines[:line]) + lines[line][:20]
    file.write_bytes(kept + b"\0" * (file.stat().st_size - len(kept)))


def cut_from(file: Path, line: int) -> None:
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:line]) + b'{"st')


@pytest.mark.parametrize("damage", [zeros_from, cut_from])
def test_a_log_that_ends_before_its_checkpoint_is_said_and_marked(
    begun: Path, damage: Callable[[Path, int], None]
) -> None:
    run = run_directory(begun)
    damage(run / "training_log.jsonl", 8)
    done = train(begun, "--auto_resume", *MORE)
    assert done.returncode == 0, done.stderr
    assert "steps 9 to 12 are missing in training_log.jsonl" in words_of(done)
    assert [record["step"] for record in step_records(run)] == [*range(1, 9), 13, 14, 15]
    (gap,) = (json.loads(line) for line in (run / "decisions.jsonl").read_text().splitlines())
    assert (gap["kind"], gap["step"], gap["first"], gap["last"]) == ("missing_steps", 12, 9, 12)

    report = command("report", "experiments/tiny", cwd=begun.parent)
    assert "steps 11 in the log; plan changes: 0 missing the log lacks steps 9 to 12" in words_of(report)
    assert json.loads(command("report", "experiments/tiny", "--json", cwd=begun.parent).stdout)["missing"] == [[9, 12]]
    refused = command("replay", "experiments/tiny", cwd=begun.parent)
    assert refused.returncode == 2
    assert "steps 9 to 12 are missing" in refused.stderr
    assert "--until 8 repeats the steps before." in refused.stderr
    assert command("replay", "experiments/tiny", "--until", "8", cwd=begun.parent).returncode == 0

    again = train(begun, "--auto_resume", "--force_yml", "train:total_iter=16")
    assert "missing" not in again.stdout  # it was said, and the line stays
    assert '"missing_steps"' in (run / "decisions.jsonl").read_text()


def test_a_log_that_is_gone_lacks_all_steps(begun: Path) -> None:
    run = run_directory(begun)
    for name in ("training_log.jsonl", "validation.jsonl"):
        (run / name).unlink()
    done = train(begun, "--auto_resume", *MORE)
    assert "steps 1 to 12 are missing in training_log.jsonl" in words_of(done)
    assert "validation.jsonl may lack more" in words_of(done)
    assert "Nothing can be repeated." in command("replay", "experiments/tiny", cwd=begun.parent).stderr


@pytest.mark.parametrize("damage", [zeros_from, cut_from])
def test_lost_validations_are_said_where_the_steps_are_there(begun: Path, damage: Callable[[Path, int], None]) -> None:
    damage(run_directory(begun) / "validation.jsonl", 0)
    done = train(begun, "--auto_resume", *MORE)
    assert "the end of validation.jsonl is missing" in words_of(done)
    assert "missing in" not in words_of(done)


def test_validations_that_were_never_due_are_not_missed(begun: Path) -> None:
    (run_directory(begun) / "validation.jsonl").unlink()
    done = train(begun, "--auto_resume", *MORE, "val:val_freq=3")
    assert done.returncode == 0, done.stderr
    assert "validation.jsonl" not in words_of(done)


def test_a_disk_that_fails_for_some_steps_costs_no_line(
    tmp_path: Path, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From step 4 to 6 the file of steps takes nothing."""
    shutil.copytree(trained.parent / "gt", tmp_path / "gt")
    shutil.copy(trained, tmp_path / "run.yml")
    write, steps = os.write, iter(range(1, 100))

    def refusing(handle: int, text: bytes) -> int:
        if b'"phase"' in text and next(steps) in (4, 5, 6):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return write(handle, text)

    monkeypatch.setattr(line_file.os, "write", refusing)
    done = train(tmp_path / "run.yml")
    monkeypatch.undo()
    assert done.returncode == 0
    run = run_directory(tmp_path / "run.yml")
    assert [record["step"] for record in step_records(run)] == list(range(1, 13))
    said = words_of(done)
    assert said.count("JsonLines cannot write: Input/output error") == 1
    assert "JsonLines could not write" in said
    assert "all of it was written later" in said
    assert latest_weights(run) == latest_weights(run_directory(trained))


def refusing(real: Callable[..., Any], part: str, number: int, log: list[str]) -> Callable[..., Any]:
    """Return a function of the system that refuses paths with a part, and notes them."""

    def call(path: Any, *rest: Any, **named: Any) -> Any:
        if part in os.fsdecode(path) and (real is not io.open or {"w", "a", "x"} & {*str(rest[:1])}):
            log.append(os.fsdecode(path))
            raise OSError(number, os.strerror(number), path)
        return real(path, *rest, **named)

    return call


@pytest.mark.parametrize(
    ("part", "number", "what", "saved"),
    [
        ("validation/val/", errno.EROFS, "validation/val/image_000: Read-only file system Make the disk writable", 6),
        ("checkpoints/", errno.EACCES, "checkpoints/step_00000005: Permission denied Give this user the right", 0),
        ("config.json", errno.EMFILE, "config.json: Too many open files Allow more open files (ulimit -n 65536)", 0),
    ],
)
def test_what_cannot_be_written_is_named_with_a_remedy(
    tmp_path: Path, trained: Path, monkeypatch: pytest.MonkeyPatch, part: str, number: int, what: str, saved: int
) -> None:
    shutil.copytree(trained.parent / "gt", tmp_path / "gt")
    options = shutil.copy(trained, tmp_path / "run.yml")
    refused: list[str] = []
    with monkeypatch.context() as patched:
        for module, name in ((io, "open"), (os, "mkdir"), (os, "replace")):
            patched.setattr(module, name, refusing(getattr(module, name), part, number, refused))
        done = train(options, "--force_yml", "val:save_img=true")
    assert refused
    assert done.returncode == 1
    assert what in words_of(done)
    assert "then resume with --auto_resume." in words_of(done)
    assert "Traceback" not in done.stdout + done.stderr
    checkpoints = sorted((run_directory(options) / "checkpoints").glob("step_*"))
    assert [folder.name for folder in checkpoints][-1:] == ([f"step_{saved:08d}"] if saved else [])
    log = run_directory(options) / "training.log"
    assert ("in _write_picture" in log.read_text()) == (saved > 0), "the traceback, for authors of plugins"


def test_a_run_that_was_moved_while_it_trained_is_named_and_not_begun_twice(
    tmp_path: Path, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(trained.parent / "gt", tmp_path / "gt")
    options = shutil.copy(trained, tmp_path / "run.yml")
    take_in, experiments = loop.take_in, tmp_path / "experiments"

    def moving(run: Run, record: StepRecord) -> None:
        take_in(run, record)
        if record.step == 5:
            experiments.rename(tmp_path / "moved")

    with monkeypatch.context() as patched:
        patched.setattr(loop, "take_in", moving)
        done = train(options, "--force_yml", "val:save_img=true", "val:val_freq=5")
    assert done.returncode == 1
    assert "No such file or directory Put back what was moved, renamed or deleted, then resume" in words_of(done)
    assert "Traceback" not in done.stdout + done.stderr
    assert not experiments.exists()
    (tmp_path / "moved").rename(experiments)
    os.utime(run_directory(options) / "owner_1.json", (0, 0))  # its process would have gone by now
    done = train(options, "--auto_resume")
    assert done.returncode == 0, done.stderr
    assert latest_weights(run_directory(options)) == latest_weights(run_directory(trained))


def test_what_a_kill_leaves_half_written_is_swept_at_the_resume(begun: Path) -> None:
    run = run_directory(begun)
    (run / "validation" / "val").mkdir(exist_ok=True)
    places = [run, run / "validation" / "val", run / "checkpoints", run / "checkpoints" / "step_00000012"]
    for place in places:
        (place / f".half.json.{'0f' * 16}.tmp").write_text("{")
    done = train(begun, "--auto_resume", *MORE)
    assert done.returncode == 0, done.stderr
    assert not list(run.rglob(".*.tmp"))


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for the names of open files")
def test_logs_are_on_the_disk_before_the_checkpoint_is_in_its_place(
    tmp_path: Path, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(trained.parent / "gt", tmp_path / "gt")
    shutil.copy(trained, tmp_path / "run.yml")
    done: list[str] = []
    fsync, put = os.fsync, os.replace

    def noting_fsync(handle: int) -> None:
        done.append(Path(f"/proc/self/fd/{handle}").readlink().name)
        fsync(handle)

    def noting_put(source: Path, target: Path) -> None:
        done.append(f"put {Path(target).name}")
        put(source, target)

    monkeypatch.setattr(os, "fsync", noting_fsync)
    monkeypatch.setattr(os, "replace", noting_put)
    assert train(tmp_path / "run.yml").returncode == 0
    monkeypatch.undo()
    for step in (5, 10, 12):
        before = done[: done.index(f"put step_{step:08d}")]
        last = len(before) - 1 - before[::-1].index("training_log.jsonl")
        assert not [one for one in before[last:] if one.startswith("put step_")], "since the checkpoint before"
    assert "validation.jsonl" in done
