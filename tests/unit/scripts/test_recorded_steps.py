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
    live = [row.split("|")[4].strip() for row in rows]
    assert set(live) <= {"+0.00%", "-0.00%"}  # live bytes are equal
