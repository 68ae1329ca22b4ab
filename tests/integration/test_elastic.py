"""Ranks that are lost: torchrun starts the group again, and the run goes on where its checkpoint is (C43)."""

import json
import os
import platform
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance import ACCEPTANCE, only_in_acceptance
from tests.integration.commands import (
    TRAIN,
    latest_weights,
    merged,
    run_directory,
    step_records,
    tiny_options,
    write_options,
)
from tests.integration.ranks import finish, rank_environment, start, train_ranks, worker
from tests.integration.ready_processes import Started, begin

pytestmark = pytest.mark.skipif(platform.system() != "Linux", reason="looks up processes in /proc")

WriteImages = Callable[..., Path]
ROOT = Path(__file__).parents[2]
STEPS = 60
SHORT_STEPS, LEAST_SHORT = (75, 50) if ACCEPTANCE else (18, 8)


def options_for(gt: Path, name: str, **changes: Any) -> dict[str, Any]:
    base = tiny_options(
        gt,
        name=name,
        train={"total_iter": STEPS, "ema_decay": 0.9},
        val={"val_enabled": False},
        logger={"save_checkpoint_freq": 7},
    )
    return merged(base, changes)


def torchrun(options: Path, *arguments: str) -> Started:
    """Start two ranks under torchrun, which starts them again when one is lost."""
    command = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "3"]
    command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", str(TRAIN), "-opt", options.name]
    environment = rank_environment(0, 2, 0)
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        del environment[name]
    return begin([*command, "--launcher", "pytorch", *arguments], cwd=options.parent, env=environment)


def ranks_under(agent: int) -> list[int]:
    """Return the processes of the ranks, in their order."""
    children = Path(f"/proc/{agent}/task/{agent}/children").read_text().split()
    pids = {}
    for pid in children:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        ranks = [int(variable.split(b"=")[1]) for variable in variables if variable.startswith(b"RANK=")]
        pids.update(dict.fromkeys(ranks, int(pid)))
    return [pids[rank] for rank in sorted(pids)]


def wait_for_steps(records: Path, steps: int, timeout_s: float = 90) -> None:
    deadline = time.monotonic() + timeout_s
    while not (records.is_file() and records.read_text().count("\n") >= steps):
        assert time.monotonic() < deadline, f"no {steps} steps after {timeout_s} s"
        time.sleep(0.02)


@only_in_acceptance
def test_a_killed_rank_leaves_no_gap(tmp_path: Path, write_images: WriteImages) -> None:
    gt = write_images("gt", 11)
    slow = {"plugins": ["slow"], "training_automations": {"Slow": {"seconds": 0.02}}}
    (tmp_path / "slow.py").write_text((Path(__file__).parents[1] / "assets" / "plugins" / "slow.py").read_text())
    options = write_options(tmp_path / "killed.yml", options_for(gt, "killed", **slow))
    agent = torchrun(options)
    wait_for_steps(tmp_path / "experiments" / "killed" / "current" / "training_log.jsonl", 17)
    os.kill(ranks_under(agent.pid)[1], signal.SIGKILL)
    ((code, said),) = finish([agent], 200)
    assert code == 0, said
    run = run_directory(options, "killed")
    assert [step["step"] for step in step_records(run)] == list(range(1, STEPS + 1))
    ends = [step["first_sample"] + step["samples"] for step in step_records(run)]
    assert [step["first_sample"] for step in step_records(run)] == [0, *ends[:-1]]
    assert len(list((tmp_path / "experiments" / "killed").glob("2*"))) == 1, "it goes on in its own directory"

    whole = write_options(tmp_path / "whole.yml", options_for(gt, "whole", **slow))
    (first, second) = worker(whole, 2)
    assert first["weights"] == second["weights"]
    assert latest_weights(run) == latest_weights(run_directory(whole, "whole"))


@only_in_acceptance
@pytest.mark.parametrize("kind", ["ddp_overlap", "fully_shard"])
def test_out_of_memory_ends_the_group_which_goes_on_under_a_smaller_plan(
    tmp_path: Path, write_images: WriteImages, kind: str
) -> None:
    gt = write_images("gt", 11, (128, 144))
    changes = {
        "datasets": {"train": {"batch_size_per_gpu": 8, "lq_size": 64}},
        "network_g": {"num_feat": 24, "num_conv": 2},
        "distributed": {kind: True},
        "memory": {"budget": "24MiB"},
        "train": {"total_iter": 6},
    }
    options = write_options(tmp_path / "short.yml", options_for(gt, "short", **changes))
    ((code, said),) = finish([torchrun(options)], 200)
    assert code == 0, said
    assert "ranks synchronize inside the backward pass" in " ".join(said.split())
    run = run_directory(options, "short")
    steps = step_records(run)
    assert [step["step"] for step in steps] == list(range(1, 7))
    assert steps[0]["plan"]["batch_size"] < 8
    decisions = [json.loads(line) for line in (run / "decisions.jsonl").read_text().splitlines()]
    assert "out of memory" in decisions[0]["reason"]
    assert not list((run / "checkpoints").glob("out_of_memory*")), "forgotten once a smaller plan is saved"


@only_in_acceptance
def test_shards_go_on_on_the_same_and_on_another_number_of_ranks(tmp_path: Path, write_images: WriteImages) -> None:
    gt = write_images("gt", 11)

    def part(name: str, steps: int) -> Path:
        changes = {"distributed": {"fully_shard": True}, "train": {"total_iter": steps}, "val": {"val_enabled": True}}
        return write_options(tmp_path / f"{name}.yml", options_for(gt, name, **changes))

    def trained(name: str, steps: int, ranks: int, *arguments: str) -> Path:
        options = part(name, steps)
        done = finish(train_ranks(options, ranks, *arguments))
        assert [code for code, _ in done] == [0] * ranks, done
        return run_directory(options, name)

    whole = trained("whole", 16, 2)
    trained("parts", 9, 2)
    parts = trained("parts", 16, 2, "--auto_resume")
    assert latest_weights(parts) == latest_weights(whole)
    files = {file.name for file in (parts / "checkpoints" / "step_00000016").iterdir()}
    assert files == {
        "net_g.safetensors",
        "net_g_ema.safetensors",
        "state.pt",
        "sums.json",
        ".metadata",
        "__0_0.distcp",
        "__1_0.distcp",
    }
    more = trained("parts", 20, 1, "--auto_resume")
    assert [step["step"] for step in step_records(more)] == list(range(1, 21))


@only_in_acceptance
def test_one_short_rank_of_two_runs_out_of_memory_and_nobody_hangs(tmp_path: Path) -> None:
    """Steps in which rank 1 alone really fails, in forward and in backward, under half the budget."""
    command = ["-m", "tests.integration.rank_failures", "seen_{rank}.json", str(SHORT_STEPS)]
    done = finish(start(command, 2, tmp_path, afresh=True), 240)
    assert [code for code, _ in done] == [0, 0], done
    first, second = (json.loads((tmp_path / f"seen_{rank}.json").read_text()) for rank in (0, 1))
    print(first, second)
    assert first["failed"] == {}
    assert second["steps_in_pieces"] >= LEAST_SHORT
    assert min(second["failed"]["forward"], second["failed"]["backward"]) >= LEAST_SHORT // 8
    assert first["equal"]
    assert second["equal"]
    assert first["given_up"] == second["given_up"]
    assert first["furthest"] < 1e-5, "the weights are those of one rank that trained all samples"
