"""Logs are read by programs too: those of earlier versions, and those of today."""

from pathlib import Path

import pytest

from trainauto.storage.resumes import Resume, resumes_of
from trainauto.storage.run_directory import RunDirectory

START = """\
2025-01-02 03:04:05,678 run         demo, 200 steps
2025-01-02 03:04:05,678 plan        batch_size 4, lq_size 48 ({short})
2025-01-02 03:04:06,001 1/200  loss 0.5  lr 0.0002  5 it/s  {short}  mem 25%  ETA 39.8s
2025-01-02 03:05:00,002 interrupted SIGINT after step 100
"""
RESUME = """\
2025-01-02 04:00:00,000 WARNING changed since this run was last started: train.grad_clip: null -> 1.0
2025-01-02 04:00:01,000 resumed     after step 100, 400 samples
2025-01-02 04:00:02,000 101/200  loss 0.1  lr 0.0002  5 it/s  {short}  mem 25%  ETA 19.8s
"""


@pytest.mark.parametrize("short", ["4x48", "4@48"])
def test_resumes_are_read_from_logs_old_and_new(tmp_path: Path, short: str) -> None:
    (tmp_path / "training.log").write_text((START + RESUME).format(short=short))
    changes = ("train.grad_clip: null -> 1.0",)
    assert resumes_of(RunDirectory(tmp_path)) == [Resume(100, "2025-01-02 04:00:01", changes)]
