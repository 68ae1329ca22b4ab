"""Bytes by two measured steps, in a process of its own: what others left free in a heap would hide some of them."""

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MIB = 2**20

CHILD = """
import json
import numpy as np
import torch
from trainauto.data.packing import check_monotone
from trainauto.tasks.text.measured_cost import MeasuredCost

MIB = 2**20


def linear(samples, tokens):
    held = [torch.ones(2 * MIB), torch.ones(samples * tokens * 16 * 2**10)]  # 8 MiB, and 64 KiB a token
    del held


def faster(samples, tokens):
    torch.ones(samples * tokens * tokens * 64)


def predicted(cost, samples, tokens):
    return int(cost.cost(np.array([samples]), np.array([tokens]), np.zeros(1, np.int64))[0])


by_line = MeasuredCost.of_steps(linear, smaller=(2, 100), larger=(4, 200))
check_monotone(by_line, 512, 64)
through_the_larger = MeasuredCost.of_steps(faster, smaller=(2, 100), larger=(4, 200))
print(json.dumps({
    "line": [predicted(by_line, 8, 300), predicted(by_line, 1, 50)],
    "margins": [by_line.margin(0.025), by_line.margin(0.01)],
    "constant": through_the_larger.constant_bytes,
    "larger": predicted(through_the_larger, 4, 200),
}))
"""


@pytest.mark.skipif(platform.system() != "Linux", reason="peaks of a process are told on Linux only")
def test_bytes_follow_what_two_steps_took() -> None:
    """A line that would begin below nothing goes through the larger step."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", CHILD]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["line"] == pytest.approx([8 * MIB + 8 * 300 * 65536, 8 * MIB + 50 * 65536], rel=0.05)
    assert 1 < found["margins"][0] < found["margins"][1] < 1.1
    assert found["constant"] == 0
    assert found["larger"] == pytest.approx(4 * 200 * 200 * 256, rel=0.05)
