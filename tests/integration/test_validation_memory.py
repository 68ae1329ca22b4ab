"""Validation beside a controller under a real budget: its peaks are nobody's but its own."""

import json
import platform
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest

from tests.integration.commands import run_directory, step_records, tiny_options, train, write_options

pytestmark = pytest.mark.skipif(platform.system() != "Linux", reason="reads the system's own high-water mark")

MIB = 2**20
BUDGET, TARGET = 100 * MIB, 0.5

WATCHER = """
import json
from pathlib import Path
from trainauto.automations import AUTOMATIONS, Automation
from trainauto.memory.monitor.budget import status_bytes

@AUTOMATIONS.register("Watcher")
class Watcher(Automation):
    highest = []
    def on_validation_end(self, record):
        found = status_bytes("VmHWM", "VmRSS")
        self.highest.append(found["VmHWM"] - found["VmRSS"])
        Path("highest.json").write_text(json.dumps(self.highest))
"""


def test_peaks_of_validation_are_not_those_of_training(
    tmp_path: Path, write_images: Callable[..., Path], photograph: np.ndarray
) -> None:
    """Fault 7: validation peaks were counted as training peaks.

    Every period has a validation in it that takes more than the target, which no step comes near.
    """
    gt = write_images("gt", 4, (130, 130))
    cv2.imwrite(str(tmp_path / "large.png"), cv2.resize(photograph, (800, 800)))
    (tmp_path / "watcher.py").write_text(WATCHER)
    controller = {"target_vram_usage": TARGET, "safety_margin": 0.1, "adjustment_frequency": 3, "max_lq_size": 32}
    bounds = {"min_lq_size": 8, "min_batch_size": 2, "max_batch_size": 4, "policy": "step"}
    options = tiny_options(
        gt,
        plugins=["watcher"],
        network_g={"type": "compact", "num_feat": 32, "num_conv": 1},
        datasets={"train": {"lookahead": 1}, "val": {"dataroot_gt": str(tmp_path / "large.png")}},
        train={"total_iter": 9},
        val={"val_freq": 2, "save_img": False},
        memory={"budget": f"{BUDGET // MIB}MiB"},
        training_automations={"DynamicBatchSizeOptimizer": {**controller, **bounds}, "Watcher": {}},
    )
    done = train(write_options(tmp_path / "run.yml", options))
    assert done.returncode == 0, done.stderr
    run = run_directory(tmp_path / "run.yml")

    highest = json.loads((tmp_path / "highest.json").read_text())
    assert len(highest) == 5
    assert min(highest) > TARGET * BUDGET  # validation did take it, in one piece
    assert "Out of memory" not in done.stdout
    validations = [json.loads(line) for line in (run / "validation.jsonl").read_text().splitlines()]
    assert len(validations) == 5
    assert all(validation["peak"]["allocated"] > TARGET * BUDGET for validation in validations)

    records = step_records(run)
    peaks = [record["peak"]["allocated"] for record in records]
    assert max(peaks) < (TARGET - 0.1) * BUDGET
    decided = [json.loads(line) for line in (run / "decisions.jsonl").read_text().splitlines()]
    assert [decision["plan"]["lq_size"] for decision in decided] == [24, 32]
    assert all(decision["measured"] in peaks for decision in decided)
    assert records[-1]["plan"]["lq_size"] == 32
