"""Going on: after a signal, after a change of options, after the end, from nothing."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.integration.commands import (
    command,
    environment,
    latest_weights,
    run_directory,
    started,
    step_records,
    tiny_options,
    train,
    write_options,
)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_signals_finish_the_step_save_and_leave(
    tmp_path: Path, write_images: Callable[..., Path], number: signal.Signals, code: int
) -> None:
    options = write_options(
        tmp_path / "run.yml",
        tiny_options(
            write_images("gt", 3, (90, 100)),
            train={"total_iter": 100_000},
            datasets={"train": {"num_worker_per_gpu": 1}},
            val={"val_enabled": False, "metrics": {}},
            logger={"save_checkpoint_freq": 100_000},
        ),
    )
    process = started(options, is_merged=False, in_new_session=True)
    records = tmp_path / "experiments" / "tiny" / "current" / "training_log.jsonl"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (records.exists() and len(records.read_text().splitlines()) > 3):
        time.sleep(0.05)
    # To the whole group, as a terminal's Ctrl-C, a scheduler's SIGTERM and a closed terminal do: workers get it too.
    import os

    os.killpg(process.pid, number)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == code, stderr
    assert "Traceback" not in stdout + stderr
    run = run_directory(options)
    last = step_records(run)[-1]["step"]
    assert json.loads((run / "checkpoints" / "latest.json").read_text())["step"] == last
    assert signal.Signals(number).name in (run / "training.log").read_text()
    assert "interrupted" in stdout
    if number != signal.SIGTERM:
        return
    # The command that resumes is printed, and is one.
    said = " ".join(stdout.split())
    command = shlex.split(re.search(r"to resume: (.*? -opt run\.yml --auto_resume)", said)[1])  # type: ignore[index]
    command += ["--force_yml", f"train:total_iter={last}"]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    # There is nothing to resume, which is said with what would change that.
    was_complete = f"completed it had finished before, at {last} steps: raise total_iter under train to continue"
    assert was_complete in " ".join(done.stdout.split())


def test_changed_options_win_and_are_printed(tmp_path: Path, write_images: Callable[..., Path]) -> None:
    gt = write_images("gt", 5, (90, 100))
    options = write_options(tmp_path / "run.yml", tiny_options(gt))
    assert train(options).returncode == 0
    run = run_directory(options)
    first = step_records(run)
    # Longer, at another rate, with a larger batch.
    done = train(
        options,
        "--auto_resume",
        "--force_yml",
        "train:total_iter=30",
        "train:optim_g:lr=5e-4",
        "datasets:train:batch_size_per_gpu=6",
    )
    assert done.returncode == 0, done.stderr
    assert run_directory(options) == run
    assert "train.total_iter: 12 -> 30" in " ".join(done.stdout.split())
    assert "train.optim_g.lr: 0.001 -> 0.0005" in " ".join(done.stdout.split())
    assert "datasets.train.batch_size_per_gpu: 4 -> 6" in " ".join(done.stdout.split())
    records = step_records(run)
    assert records[:12] == first
    assert [record["step"] for record in records] == list(range(1, 31))
    assert {record["lr"]["g"] for record in records[12:]} == {5e-4}
    assert [record["samples"] for record in records[12:]] == [6] * 18
    positions = [r["first_sample"] + i for r in records for i in range(r["samples"])]
    assert positions == list(range(len(positions)))
    assert json.loads((run / "config.json").read_text())["train"]["total_iter"] == 30


def test_option_file_that_was_replaced_stays_beside_the_new_one(
    tmp_path: Path, write_images: Callable[..., Path]
) -> None:
    gt = write_images("gt", 2)
    options = write_options(tmp_path / "run.yml", tiny_options(gt))
    before = options.read_text()
    assert train(options).returncode == 0
    write_options(options, tiny_options(gt, train={"total_iter": 14}))
    assert train(options, "--auto_resume").returncode == 0
    run = run_directory(options)
    assert (run / "options_until_step_12.yml").read_text() == before
    assert yaml.safe_load((run / "options.yml").read_text())["train"]["total_iter"] == 14


def test_resuming_a_finished_run_changes_nothing(tmp_path: Path, write_images: Callable[..., Path]) -> None:
    options = write_options(tmp_path / "run.yml", tiny_options(write_images("gt", 2)))
    begun = train(options, "--auto_resume")  # nothing to resume: a new run, which is said
    assert (begun.returncode, "there is no run of this name yet" in " ".join(begun.stdout.split())) == (0, True), begun
    run = run_directory(options)
    before = step_records(run), latest_weights(run)
    done = train(options, "--auto_resume")
    assert done.returncode == 0, done.stderr
    assert (step_records(run), latest_weights(run)) == before
    assert train(options).returncode == 0  # without --auto_resume: a run of its own
    assert run_directory(options) != run
    newer = run_directory(options)
    assert [record["losses"] for record in step_records(newer)] == [r["losses"] for r in before[0]]
    shutil.rmtree(newer / "checkpoints")
    (newer / "checkpoints").mkdir()
    begun = train(options, "--auto_resume", "--force_yml", "train:total_iter=1")
    command = re.search(
        r"has checkpoints: to resume that run, stop this one, then `(.*?)`", " ".join(begun.stdout.split())
    )
    assert command is not None, begun
    subprocess.run(shlex.split(command[1]), cwd=tmp_path, check=True)
    assert run_directory(options) == run


def test_another_network_is_refused_in_words(tmp_path: Path, write_images: Callable[..., Path]) -> None:
    options = write_options(tmp_path / "run.yml", tiny_options(write_images("gt", 2)))
    assert train(options).returncode == 0
    before = latest_weights(run_directory(options))
    done = train(options, "--auto_resume", "--force_yml", "network_g:num_feat=12", "train:total_iter=20")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    flat = " ".join(done.stderr.split())
    for words in (
        "is of another network: net_g has ",
        "(8, 3, 3, 3) in the file, (12, 3, 3, 3) here",
        "changed since: network_g.num_feat: 8 -> 12",
        "begin a new run without --auto_resume",
    ):
        assert words in flat
    done = train(options, "--auto_resume", "--force_yml", "network_g={type: span, feature_channels: 8}")
    assert done.returncode == 2
    assert "missing in the file" in done.stderr
    assert "changed since: network_g.type: compact -> span" in done.stderr
    assert "Traceback" not in done.stderr
    assert latest_weights(run_directory(options)) == before


def test_length_and_schedule_in_samples(tmp_path: Path, write_images: Callable[..., Path]) -> None:
    options = tiny_options(
        write_images("gt", 5),
        train={"total_samples": 60, "scheduler": {"type": "linear"}, "warmup_ratio": 0.1},
        datasets={"train": {"accum_iter": 2}},
    )
    del options["train"]["total_iter"]
    file = write_options(tmp_path / "run.yml", options)
    done = train(file)
    assert done.returncode == 0, done.stderr
    records = step_records(run_directory(file))
    assert len(records) == 8  # 8 samples a step, in two micro-batches
    assert records[0]["plan"] == {"batch_size": 8, "lq_size": 16, "micro_batches": 2}
    rates = [record["lr"]["g"] for record in records]
    assert rates[0] == pytest.approx(1e-3 / 6)
    assert rates[-1] == pytest.approx(1e-3 * (1 - 56 / 60))


def test_a_changed_batch_survives_a_kill_and_leaves_the_crop_alone(
    tmp_path: Path, write_images: Callable[..., Path]
) -> None:
    schedule = {"PlanSchedule": {"changes": [{"step": 1, "lq_size": 24}]}}
    options = tiny_options(write_images("gt", 5, (90, 100)), train={"total_iter": 8}, training_automations=schedule)
    file = write_options(tmp_path / "run.yml", options)
    assert train(file).returncode == 0
    more = ["--auto_resume", "--force_yml", "datasets:train:batch_size_per_gpu=6", "train:total_iter=30"]
    done = train(file, *more, "logger:save_checkpoint_freq=100", "plugins=[dies]")
    assert done.returncode == 2  # refused before anything was changed
    (tmp_path / "dies.py").write_text(DIES)
    dying = ["logger:save_checkpoint_freq=100", "plugins=[dies]", "training_automations={Dies: {}}"]
    done = train(file, *more, *dying, own_process=True)
    assert done.returncode == -signal.SIGKILL
    done = train(file, *more)
    assert done.returncode == 0, done.stderr
    run = run_directory(file)
    records = step_records(run)
    assert {record["plan"]["lq_size"] for record in records[8:]} == {24}
    assert {record["samples"] for record in records[8:]} == {6}
    decisions = [json.loads(line) for line in (run / "decisions.jsonl").read_text().splitlines()]
    assert [d["reason"] for d in decisions] == ["planned for step 1", "the option file has changed"]
    assert decisions[1]["plan"] == {"batch_size": 6, "lq_size": 24, "micro_batches": 1}


DIES = """
import os, signal
from trainauto.automations import AUTOMATIONS, Automation
@AUTOMATIONS.register("Dies")
class Dies(Automation):
    def on_step_end(self, record):
        if record.step == 11:
            os.kill(os.getpid(), signal.SIGKILL)
"""

STOPS = """
from trainauto.automations import AUTOMATIONS, Automation
from trainauto.core.decisions import ClipAt, Stop
@AUTOMATIONS.register("Stops")
class Stops(Automation):
    def on_step_end(self, record):
        if record.step == 3:
            return ClipAt(1e-3, "to see it kept")
        return Stop("enough") if record.step == 6 else None
"""


def test_a_stopped_run_stays_stopped_until_its_options_change(
    tmp_path: Path, write_images: Callable[..., Path]
) -> None:
    (tmp_path / "stops.py").write_text(STOPS)
    options = tiny_options(write_images("gt", 3), plugins=["stops"], training_automations={"Stops": {}})
    file = write_options(tmp_path / "run.yml", options)
    first = train(file)
    assert first.returncode == 0, first.stderr
    assert "enough" in first.stdout
    again = train(file, "--auto_resume")
    assert again.returncode == 0
    run = run_directory(file)
    assert [record["step"] for record in step_records(run)] == list(range(1, 7))
    done = train(file, "--auto_resume", "--force_yml", "train:total_iter=9")
    assert done.returncode == 0, done.stderr
    assert [record["step"] for record in step_records(run)] == list(range(1, 10))


def test_another_optimizer_starts_afresh_with_a_warning(tmp_path: Path, write_images: Callable[..., Path]) -> None:
    options = tiny_options(write_images("gt", 2), train={"optim_g": {"type": "SGD", "lr": 0.01, "momentum": 0.9}})
    file = write_options(tmp_path / "run.yml", options)
    assert train(file).returncode == 0
    done = train(file, "--auto_resume", "--force_yml", "train:optim_g={type: Adam, lr: 1e-3}", "train:total_iter=15")
    assert done.returncode == 0, done.stderr
    assert "was SGD and is Adam now" in " ".join(done.stdout.split())
    assert "was SGD" not in done.stderr
    assert len(step_records(run_directory(file))) == 15


def test_a_broken_validation_set_costs_no_step(tmp_path: Path, write_images: Callable[..., Path]) -> None:
    gt = write_images("gt", 3)
    breaks = f"""
from pathlib import Path
from trainauto.automations import AUTOMATIONS, Automation
@AUTOMATIONS.register("Breaks")
class Breaks(Automation):
    def on_step_end(self, record):
        if record.step == 2:
            Path({str(gt.parent / "val" / "image_000.png")!r}).write_bytes(b"gone")
"""
    write_images("val", 1)
    (tmp_path / "breaks.py").write_text(breaks)
    options = tiny_options(
        gt,
        plugins=["breaks"],
        training_automations={"Breaks": {}},
        datasets={"val": {"dataroot_gt": str(gt.parent / "val")}},
        logger={"save_checkpoint_freq": 100},
    )
    file = write_options(tmp_path / "run.yml", options)
    done = train(file)
    assert done.returncode == 2
    assert "image_000.png" in done.stderr
    pointer = json.loads((run_directory(file) / "checkpoints" / "latest.json").read_text())
    assert pointer["step"] == 6


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="FIFOs are Unix's")
def test_a_fifo_among_the_files_of_a_run_keeps_nothing_waiting(
    tmp_path: Path, write_images: Callable[..., Path]
) -> None:
    """Opening one waits for its other end, which no process has."""
    options = write_options(tmp_path / "run.yml", tiny_options(write_images("gt", 2)))
    assert train(options).returncode == 0
    run = run_directory(options)
    for name in ("training.log", "dashboard.html", "checkpoints/latest.json"):
        (run / name).unlink()
        os.mkfifo(run / name)
    done = train(options, "--auto_resume", "--force_yml", "train:total_iter=13")
    assert done.returncode == 0, done.stderr
    assert [record["step"] for record in step_records(run)] == list(range(1, 14))
    assert "TrainingLog cannot write" in " ".join(done.stdout.split())
    (run / "options.yml").unlink()
    os.mkfifo(run / "options.yml")
    replayed = command("replay", str(run), cwd=tmp_path)
    assert replayed.returncode == 2
    assert "this is a pipe" in replayed.stderr
