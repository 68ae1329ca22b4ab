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
        ({"use_compile": True}, {"mode": "default"}),
        ({"use_compile": True, "compile_mode": "reduce-overhead"}, {"mode": "reduce-overhead"}),
    ):
        set_to.clear()
        loaded = load_options(write_options(tmp_path / "run.yml", tiny_options(tmp_path, **switches)))
        build_model(loaded, build_network(loaded), choose_precision(loaded))
        assert set_to == expected
    assert precisions == ["highest", "medium", "highest"]


STEPS, CHANGES = 60, [{"step": 20, "lq_size": 24, "batch_size": 8}, {"step": 40, "lq_size": 40, "batch_size": 5}]


def losses_of(folder: Path, gt: Path, **changes: Any) -> tuple[list[float], list[dict[str, Any]], str]:
    """Train under a budget with two changes of plans; return losses, records and the log."""
    options = tiny_options(
        gt,
        memory={"budget": "64MiB"},
        datasets={"train": {"lq_size": 16, "batch_size_per_gpu": 4}},
        train={"total_iter": STEPS, "optim_g": {"lr": 1e-4}},  # larger steps of Adam amplify what is rounded otherwise
        training_automations={"PlanSchedule": {"changes": CHANGES}},
        **changes,
    )
    file = write_options(folder / "run.yml", options)
    done = train(file, timeout_s=800)
    assert done.returncode == 0, done.stderr
    records = step_records(run_directory(file))
    log = (run_directory(file) / "training.log").read_text()
    return [record["losses"]["l1loss"] for record in records], records, log


@only_in_acceptance
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("network", "is_any_size", "most"),
    [
        ({"type": "compact", "num_feat": 4, "num_conv": 1}, True, 3),  # torch guards some sizes all the same
        ({"type": "rrdbnet", "num_feat": 8, "num_block": 1, "num_grow_ch": 4}, False, 2),
    ],
    ids=["any_size", "each_size"],
)
def test_a_compiled_run_learns_what_the_plain_one_does(
    tmp_path: Path,
    write_images: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    network: dict[str, Any],
    is_any_size: bool,
    most: int,
) -> None:
    """Never out of memory; what is compiled when plans change is told, and is none of what steps take."""
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")  # a pool of processes, each with torch, for two graphs
    gt = write_images("gt", 3, (100, 100))
    (tmp_path / "plain").mkdir()
    (tmp_path / "compiled").mkdir()
    plain, _, _ = losses_of(tmp_path / "plain", gt, network_g=network)
    compiled, records, log = losses_of(tmp_path / "compiled", gt, network_g=network, use_compile=True)
    assert compiled == pytest.approx(plain, rel=1e-4)
    assert not any(record["ooms"] for record in records)
    assert [records[step]["plan"]["lq_size"] for step in (0, 35, -1)] == [16, 24, 40]
    compiling = [record["step"] for record in records if record.get("compile_s")]
    assert len(compiling) <= most
    assert all(20 < step <= 50 for step in compiling)  # sizes of 24 and 40 px, some batches later
    assert log.count("torch.compile took") == len(compiling)
    assert ("torch.compile cannot compile the network for any size" in log) != is_any_size
    peaks = [record["peak"]["allocated"] for record in records if record["step"] not in compiling]
    assert max(peaks) < 64 * 2**20
