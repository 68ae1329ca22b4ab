"""Output that nobody reads to its end: ``| head``."""

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.commands import environment, run_directory, tiny_options, train, write_options

Write = Callable[..., Path]


@pytest.fixture
def run(tmp_path: Path, write_images: Write) -> Path:
    file = write_options(tmp_path / "run.yml", tiny_options(write_images("gt", 2)))
    done = train(file)
    assert done.returncode == 0, done.stderr
    return run_directory(file)


@pytest.mark.skipif(os.name != "posix", reason="pipes break so on POSIX")
@pytest.mark.usefixtures("children_covered")
def test_report_ends_quietly_and_weights_follow_the_umask(run: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)  # gone before the first line: no race with its buffer
    command = [sys.executable, "-m", "trainauto", "report", str(run)]
    done = subprocess.run(command, env=environment(), stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert done.stderr == ""
    assert done.returncode == 141
    beside = run / "made_now"
    beside.touch()
    modes = {stat.S_IMODE(file.stat().st_mode) for file in [beside, *run.glob("checkpoints/step_*/*")]}
    assert len(modes) == 1, "weights are as readable as any other file of the run"
