"""Traced steps against the recordings of a real card, through the script that people run."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_eight_recordings_are_foretold() -> None:
    script = ROOT / "scripts" / "bench" / "recorded_steps.py"
    done = subprocess.run([sys.executable, str(script)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line for line in done.stdout.splitlines() if line.startswith("| forward")]
    assert len(rows) == 8
    assert all("+0.00%" in row or "-0.00%" in row for row in rows)  # live bytes are equal
