"""The bench of faults, of which a few are tried."""

import json
import sys
from pathlib import Path

import pytest

from tests.integration.scripts.test_bench_scripts import run


@pytest.mark.skipif(sys.platform != "linux", reason="forks, and asks Linux for names of open files")
def test_a_few_faults_are_survived_or_one_clear_block(tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    done = run("faults.py", "--task", "sr", "--thin", "20", "--json", str(results), timeout_s=120)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(results.read_text())
    assert len(found) >= 2
    assert {one["outcome"] for one in found.values()} <= {"survived", "one clear block"}
    assert f"| all | {len(found)} |" in done.stdout
