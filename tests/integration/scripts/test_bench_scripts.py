"""The bench scripts that need no card, run as people run them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance import only_in_acceptance

ROOT = Path(__file__).parents[3]


def run(script: str, *arguments: str, timeout_s: float | None = None) -> subprocess.CompletedProcess[str]:
    """Run a script of scripts/bench/ in the repository."""
    command = [sys.executable, str(ROOT / "scripts" / "bench" / script), *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=timeout_s, check=False)


@only_in_acceptance
def test_eight_recordings_are_foretold() -> None:
    """Traced steps against the recordings of a real card."""
    done = run("recorded_steps.py")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line for line in done.stdout.splitlines() if line.startswith("| forward")]
    assert len(rows) == 8
    live = [row.split("|")[4].strip() for row in rows]
    assert set(live) <= {"+0.00%", "-0.00%"}  # live bytes are equal


@pytest.mark.skipif(not os.environ.get("TRAINAUTO_ACCEPTANCE"), reason="traces 72 networks: two minutes")
def test_the_constants_of_belief_are_the_fits_and_hold_on_published_figures() -> None:
    done = run("fit_belief.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 of 88 published peaks lie above" in done.stdout
    assert "of as many that did not fit, 0 are admitted" in done.stdout


@only_in_acceptance
def test_predictions_and_steps_run_here_without_a_card(tmp_path: Path) -> None:
    """The same children as on a card; what only a card can tell is null."""
    results = tmp_path / "dry.json"
    chosen = ("--dry", "--no-training", "--networks", "Compact", "--formats", "fp32")
    done = run("gpu_memory.py", *chosen, "--json", str(results), timeout_s=300)
    assert done.returncode == 0, done.stderr
    native, expandable = json.loads(results.read_text())["memory"]
    assert (native["segments"], expandable["segments"]) == ("native", "expandable")
    for group in (native, expandable):
        assert group["plans"][0]["live_bytes"] > 0
        assert group["plans"][0]["simulated_bytes"] >= group["plans"][0]["live_bytes"]
        assert group["plans"][0]["allocated_bytes"] is None
        assert "live_error" not in group
