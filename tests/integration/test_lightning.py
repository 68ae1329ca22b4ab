"""Batches that grow within Lightning's own ``fit``; skipped where lightning is not installed (extra `lightning`)."""

import json
import os
import platform
import subprocess
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest

from trainauto.core.errors import InputError

pytestmark = [
    pytest.mark.skipif(find_spec("lightning") is None, reason="lightning is not installed"),
    pytest.mark.skipif(platform.system() != "Linux", reason="the CPU budget is enforced on Linux only"),
]

ROOT = Path(__file__).parents[2]


def test_a_batch_grows_in_mid_epoch_without_reloading_the_loader(tmp_path: Path) -> None:
    """Each sample once an epoch, one loader; what runs out of memory ends ``fit`` and leaves a smaller plan."""
    result = tmp_path / "result.json"
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("lightning_worker.py")), str(result)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(result.read_text())
    assert seen["reloads"] == 1
    assert set(Counter(seen["samples"]).values()) == {seen["epochs"]}
    assert len(set(seen["samples"])) == seen["dataset"]
    first, last = seen["batches"][0], max(seen["batches"])
    assert first == 8
    assert last > 4 * first
    assert 0.75 * seen["target_bytes"] < max(seen["peaks"]) < 1.1 * seen["target_bytes"]
    grew_at = next(number for number, batch in enumerate(seen["batches"]) if batch > first)
    assert sum(seen["batches"][: grew_at + 1]) < seen["dataset"]  # in the first epoch
    assert seen["failed"].startswith("OutOfMemory")
    assert seen["plan_after_failure"] < seen["plan_before_failure"]
    assert seen["batch_after_failure"] <= seen["plan_after_failure"]
    assert "ends this fit" in done.stderr
    assert done.stderr.count("neither the place in the stream of samples nor random generators") == 1


def test_what_watches_a_run_is_refused_with_what_to_take() -> None:
    from trainauto.integrations.lightning_callback import GrowingBatches

    with pytest.raises(InputError, match=r"StopFile cannot watch a fit of Lightning's\n.*or AdaptiveLoop around"):
        GrowingBatches([0.0], batch_size=1, automations={"StopFile": {}})
