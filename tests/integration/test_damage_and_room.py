"""Checkpoints that are damaged, and disks that are full: what is whole stays whole, and the run goes on."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from tests.integration.commands import run_directory, step_records, tiny_options, train, write_options
from trainauto.core.batch import Batch
from trainauto.core.records import StepRecord
from trainauto.engine import loop
from trainauto.engine.run import Run

MIB = 2**20


def test_a_damaged_newest_checkpoint_is_replaced_by_the_one_before(
    tmp_path: Path, write_images: Callable[..., Path]
) -> None:
    options = write_options(tmp_path / "run.yml", tiny_options(write_images("gt", 2)))
    assert train(options).returncode == 0
    run = run_directory(options)
    weights = run / "checkpoints" / "step_00000012" / "net_g.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1  # one bit: the file can be read, and is not what was trained
    weights.write_bytes(content)
    done = train(options, "--auto_resume", "--force_yml", "train:total_iter=14")
    assert done.returncode == 0, done.stderr
    flat = " ".join(done.stdout.split())
    for words in (
        "step_00000012 is damaged (net_g.safetensors has changed since it was written",
        "from step_00000010 instead",
    ):
        assert words in flat
    assert [record["step"] for record in step_records(run)] == list(range(1, 15))
    assert json.loads((run / "checkpoints" / "latest.json").read_text())["step"] == 14

    for checkpoint in (run / "checkpoints").glob("step_*"):
        os.truncate(checkpoint / "state.pt", 100)
    before = step_records(run)
    done = train(options, "--auto_resume")
    assert done.returncode == 2
    assert "step_00000014 is damaged: state.pt has 100 of" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert step_records(run) == before


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
            "memory ran out: CUDA out of memory",
        ),
        (
            torch.AcceleratorError("CUDA error: device-side assert triggered\nSearch"),
            "the device failed: CUDA error: dev",
        ),
        (RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR"), "the device failed: cuDNN error"),
    ],
)
def test_what_is_not_run_again_ends_in_one_block_that_names_the_last_checkpoint(
    tmp_path: Path, write_images: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, error: Exception, said: str
) -> None:
    options = write_options(tmp_path / "run.yml", tiny_options(write_images("gt", 1)))
    train_step = loop.train_step

    def failing(run: Run, batch: Batch, data_seconds: float) -> StepRecord | None:
        if run.progress.steps == 7:
            raise error
        return train_step(run, batch, data_seconds)

    monkeypatch.setattr(loop, "train_step", failing)
    done = train(options)
    assert done.returncode == 1
    assert "Traceback" not in done.stdout + done.stderr
    assert done.stderr.strip().startswith(said)
    assert "step_00000006 is the last intact checkpoint: continue from it with" in " ".join(done.stderr.split())
    assert "in failing" in (run_directory(options) / "training.log").read_text()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 1 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = shutil.which("mount")
    if sys.platform != "linux" or os.geteuid() != 0 or mount is None:
        pytest.skip("only root can mount a small disk, on Linux")
    command = [mount, "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("nothing can be mounted here")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_full_disk(tmp_path: Path, write_images: Callable[..., Path], small_disk: Path) -> None:
    """Old checkpoints make room first; then the run ends with one block, and goes on once there is room."""
    given = tiny_options(
        write_images("gt", 2),
        path={"experiments_root": str(small_disk / "experiments")},
        train={"total_iter": 30},
        val={"val_enabled": False, "metrics": {}},
        logger={"save_checkpoint_freq": 1, "keep_checkpoints": 1000},
    )
    options = write_options(tmp_path / "run.yml", given)
    done = train(options)
    assert done.returncode == 0, done.stderr
    run = (small_disk / "experiments" / "tiny" / "current").resolve()
    kept = sorted((run / "checkpoints").glob("step_*"))
    assert 1 < len(kept) < 30
    assert kept[-1].name == "step_00000030"
    assert "the disk is full: the checkpoint of step 1 is deleted to make room for that of" in " ".join(
        done.stdout.split()
    )

    for old in kept[:-1]:
        shutil.rmtree(old)
    size_bytes = sum(file.stat().st_size for file in kept[-1].iterdir())
    filler = small_disk / "filler"
    filler.write_bytes(bytes(shutil.disk_usage(small_disk).free - size_bytes // 2))
    more = ["--auto_resume", "--force_yml", "train:total_iter=33"]
    done = train(options, *more)
    assert done.returncode == 1, done.stdout + done.stderr
    said = " ".join(done.stderr.split())
    assert "not enough disk space for the checkpoint of step 31 in " in said
    assert "MiB are free; one takes " in said
    assert "step 30 is intact: make room, then resume with --auto_resume" in said
    assert "Traceback" not in done.stdout + done.stderr
    assert [folder.name for folder in (run / "checkpoints").glob("[!.]*_*")] == ["step_00000030"]

    filler.write_bytes(bytes(shutil.disk_usage(small_disk).free + filler.stat().st_size - 100))
    done = train(options, *more)  # not even a log can be written
    assert done.returncode in {1, 2}
    assert "Traceback" not in done.stdout + done.stderr

    filler.unlink()
    done = train(options, *more)
    assert done.returncode == 0, done.stderr
    assert [record["step"] for record in step_records(run)] == list(range(1, 34))
