"""A signal during validation is heard at once, nothing trained is lost by it, and the last validation is made up."""

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.commands import merged, run_directory, started, step_records, tiny_options, train, write_options
from tests.integration.ranks import finish, train_ranks

SLOW_METRIC = """
import os, time
from pathlib import Path
from trainauto.tasks.sr.metrics import METRICS

@METRICS.register("slow_metric")
def slow_metric(image, reference):
    rank, here = os.environ.get("RANK", "0"), Path(__file__).parent
    is_slow = image.shape[0] == int(os.environ.get("SLOW_ROWS", image.shape[0]))
    if rank == os.environ.get("SLOW_RANK", rank) and is_slow and image.any() and not (here / "fast").exists():
        (here / f"validating_{rank}").touch()
        time.sleep(60)  # as a large photograph would take
    return 1.0
"""
HEARD_S = 5 + 10  # of which some are for saving, and for the processes' end on a busy machine


def options_for(gt: Path, **changes: Any) -> dict[str, Any]:
    base = tiny_options(
        gt,
        plugins=["slow_metrics"],
        train={"total_iter": 4},
        val={"val_freq": 1000, "metrics": {"slow": {"type": "slow_metric"}}},
        logger={"save_checkpoint_freq": 1000},
    )
    return merged(base, changes)


def wait_for(file: Path) -> None:
    deadline = time.monotonic() + 90
    while not file.exists():
        assert time.monotonic() < deadline, file
        time.sleep(0.02)


def latest_step(run: Path) -> int:
    return int(json.loads((run / "checkpoints" / "latest.json").read_text())["step"])


def validations(run: Path) -> list[int]:
    file = run / "validation.jsonl"
    return [json.loads(line)["step"] for line in file.read_text().splitlines()] if file.exists() else []


@pytest.mark.parametrize(("every", "stopped_at"), [(1000, 4), (2, 2)])
def test_a_signal_in_validation(tmp_path: Path, write_images: Callable[..., Path], every: int, stopped_at: int) -> None:
    (tmp_path / "slow_metrics.py").write_text(SLOW_METRIC)
    options = write_options(tmp_path / "run.yml", options_for(write_images("gt", 3), val={"val_freq": every}))
    process = started(options)
    wait_for(tmp_path / "validating_0")
    run = run_directory(options)
    if stopped_at == 4:
        assert latest_step(run) == 4, "the checkpoint comes before the last validation"
    start = time.monotonic()
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=60)
    assert time.monotonic() - start < HEARD_S
    assert process.returncode == 143, said
    assert "leaving this validation, then saving" in " ".join(said.split())
    assert "Traceback" not in said
    assert (latest_step(run), validations(run)) == (stopped_at, [])

    (tmp_path / "fast").touch()
    done = train(options, "--auto_resume")
    assert done.returncode == 0, done.stderr
    assert [record["step"] for record in step_records(run)] == [1, 2, 3, 4]
    assert validations(run) == [step for step in (2, 4) if step % every == 0 or step == 4]
    pointer = json.loads((run / "checkpoints" / "latest.json").read_text())
    assert pointer["best"]["metric"] == "val/psnr"
    assert train(options, "--auto_resume").returncode == 0
    assert validations(run) == [step for step in (2, 4) if step % every == 0 or step == 4], "once is enough"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_first_set_counts_though_the_second_was_left(
    tmp_path: Path, write_images: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    (tmp_path / "slow_metrics.py").write_text(SLOW_METRIC)
    monkeypatch.setenv("SLOW_ROWS", "48")
    second = {"type": "GTImageDataset", "name": "second", "dataroot_gt": str(write_images("second", 1, (48, 48)))}
    options = write_options(tmp_path / "run.yml", options_for(write_images("gt", 3), datasets={"val_2": second}))
    process = started(options)
    wait_for(tmp_path / "validating_0")
    process.send_signal(number)
    process.communicate(timeout=60)
    run = run_directory(options)
    best = json.loads((run / "checkpoints" / "latest.json").read_text())["best"]
    assert (best["step"], best["metric"]) == (4, "val/psnr")
    assert validations(run) == [4]

    pointer = json.loads((run / "checkpoints" / "latest.json").read_text())
    (run / "checkpoints" / "latest.json").write_text(json.dumps(pointer | {"best": None}))  # killed a moment before
    (tmp_path / "fast").touch()
    done = train(options, "--auto_resume")
    assert done.returncode == 0, done.stderr
    assert validations(run) == [4, 4]
    assert json.loads((run / "checkpoints" / "latest.json").read_text())["best"] == best


def test_validation_under_another_interval_is_not_made_up(tmp_path: Path, write_images: Callable[..., Path]) -> None:
    gt = write_images("gt", 3)
    options = write_options(tmp_path / "run.yml", tiny_options(gt, train={"total_iter": 4}, val={"val_enabled": False}))
    assert train(options).returncode == 0
    changed = {"train": {"total_iter": 5}, "val": {"val_freq": 4}}
    longer = write_options(tmp_path / "longer.yml", tiny_options(gt, **changed))
    assert train(longer, "--auto_resume").returncode == 0
    assert validations(run_directory(options)) == [5]


def test_ranks_agree_on_leaving(
    tmp_path: Path, write_images: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only one of two ranks has a slow image and hears the signal; the other one waits for it and learns of it."""
    (tmp_path / "slow_metrics.py").write_text(SLOW_METRIC)
    gt = write_images("gt", 4)
    options = write_options(tmp_path / "run.yml", options_for(gt, datasets={"val": {"dataroot_gt": str(gt)}}))
    monkeypatch.setenv("SLOW_RANK", "1")
    processes = train_ranks(options, 2)
    wait_for(tmp_path / "validating_1")
    start = time.monotonic()
    processes[1].send_signal(signal.SIGTERM)
    done = finish(processes, 60)
    assert time.monotonic() - start < HEARD_S
    assert [code for code, _ in done] == [143, 143], done
    run = run_directory(options)
    assert (latest_step(run), validations(run)) == (4, [])
    (tmp_path / "fast").touch()
    done = finish(train_ranks(options, 2, "--auto_resume"))
    assert [code for code, _ in done] == [0, 0], done
    assert validations(run) == [4]
