"""Number formats, memory formats and compilation, through the door."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.acceptance import only_in_acceptance
from tests.integration.commands import run_directory, step_records, tiny_options, train, write_options
from trainauto.builders.image_model import build_model, build_network
from trainauto.builders.precision import choose_precision
from trainauto.options.load import load_options


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"use_amp": True}, "bf16 autocast"),
        ({"use_amp": True, "amp_bf16": False}, "fp16 autocast"),
        ({"use_channels_last": True, "deterministic": True, "fast_matmul": True}, "fp32"),
    ],
)
def test_a_run_trains(tmp_path: Path, write_images: Callable[..., Path], changes: dict[str, Any], word: str) -> None:
    options = tiny_options(write_images("gt", 3), train={"total_iter": 30, "grad_clip": 0.5}, **changes)
    file = write_options(tmp_path / "run.yml", options)
    done = train(file)
    assert done.returncode == 0, done.stderr
    assert word in done.stdout
    records = step_records(run_directory(file))
    losses = [record["losses"]["l1loss"] for record in records]
    assert sum(losses[-5:]) < sum(losses[:5])


def test_switches_reach_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_to: dict[str, Any] = {}
    precisions = ["highest"]
    monkeypatch.setattr(torch, "set_float32_matmul_precision", precisions.append)
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: precisions[-1])
    monkeypatch.setattr(torch, "compile", lambda network, **how: set_to.update(how) or network)
    for switches, expected in (
        ({"compile_mode": "max-autotune"}, {}),
        ({"fast_matmul": True}, {}),
        ({"use_compile": True}, {"dynamic": True, "mode": "default"}),
        ({"use_compile": True, "compile_mode": "reduce-overhead"}, {"dynamic": True, "mode": "reduce-overhead"}),
    ):
        set_to.clear()
        loaded = load_options(write_options(tmp_path / "run.yml", tiny_options(tmp_path, **switches)))
        build_model(loaded, build_network(loaded), choose_precision(loaded))
        assert set_to == expected
    assert precisions == ["highest", "medium", "highest"]


@only_in_acceptance
def test_compiled_with_dynamic_shapes(
    tmp_path: Path, write_images: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan change does not compile again, and the log says how many graphs there are."""
    monkeypatch.setenv(
        "TORCHINDUCTOR_COMPILE_THREADS", "1"
    )  # two graphs: a pool of processes, each with torch, no less
    options = tiny_options(
        write_images("gt", 3, (100, 100)),
        use_compile=True,
        network_g={"type": "compact", "num_feat": 4, "num_conv": 1},
        training_automations={
            "PlanSchedule": {
                "changes": [{"step": 2, "lq_size": 24, "batch_size": 6}, {"step": 8, "lq_size": 40, "batch_size": 3}]
            }
        },
    )
    file = write_options(tmp_path / "run.yml", options)
    done = train(file, timeout_s=280)
    assert done.returncode == 0, done.stderr
    log = (run_directory(file) / "training.log").read_text()
    counts = [
        line.split(" graphs compiled")[0].rsplit(" ", 1)[1] for line in log.splitlines() if "graphs compiled" in line
    ]
    assert len(counts) >= 2
    assert len(set(counts)) == 1, log
