"""A generator against a discriminator, through the door."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.integration.commands import (
    command,
    gan_options,
    latest_weights,
    run_directory,
    step_records,
    tiny_options,
    train,
    write_options,
)

KEPT = ("left_out", "step", "losses", "lr", "grad_norm", "plan", "first_sample", "samples")


def test_a_resumed_gan_equals_one_that_was_never_stopped(tmp_path: Path, write_images: Callable[..., Path]) -> None:
    """Under a memory budget, whose first step (on 1 px) must leave no trace in the discriminator's buffers either."""
    changes = gan_options(
        datasets={"train": {"lq_size": 15, "accum_iter": 2}},  # references of 30 px: no multiple of 8
        train={
            "total_iter": 7,
            "net_d_iters": 2,
            "net_d_init_iters": 1,
            "scheduler": {"type": "multistep", "milestones": [3]},
        },
        val={"val_freq": 7},
        logger={"save_checkpoint_freq": 4},
        memory={"budget": "2GiB"},
    )
    file = write_options(tmp_path / "run.yml", tiny_options(write_images("gt", 5, (60, 70)), **changes))
    done = train(file, afresh=False)  # its budget is far away
    assert done.returncode == 0, done.stderr
    assert "compact x2 against unetdiscriminatorsn" in done.stdout
    assert "l_d_fake" in done.stdout
    run = run_directory(file)
    records, scores, weights = whole = outcome(run)
    assert [record["step"] for record in records] == list(range(1, 8))
    of_both = {"l_g_l1loss", "l_g_gan", "l_d_real", "l_d_fake"}
    for record in records:
        has_both = record["step"] in (2, 4, 6)
        assert set(record["losses"]) == (of_both if has_both else {"l_d_real", "l_d_fake"})
        assert set(record["grad_norm"]) == ({"g", "d"} if has_both else {"d"})
        assert record.get("left_out", []) == ([] if has_both else ["g"])
        assert set(record["lr"]) == {"g", "d"}
    assert [record["lr"]["d"] for record in records] == [1e-3] * 3 + [5e-4] * 4
    assert set(weights) == {"net_d.safetensors", "net_g.safetensors", "net_g_ema.safetensors"}
    assert scores["psnr"] > 0

    # As if the power had gone after step 4.
    (run / "checkpoints" / "latest.json").unlink()
    shutil.rmtree(run / "checkpoints" / "step_00000007")
    done = train(file, "--auto_resume", afresh=False)
    assert done.returncode == 0, done.stderr
    assert "after step 4" in done.stdout
    assert outcome(run) == whole

    done = command("replay", str(run), cwd=tmp_path, afresh=True)
    assert done.returncode == 0, done.stderr
    print(done.stdout)


def outcome(run: Path) -> tuple[list[dict[str, Any]], dict[str, float], dict[str, bytes]]:
    """Return what the steps were, what the last validation measured, and the last weights."""
    steps = [{key: record[key] for key in KEPT if key in record} for record in step_records(run)]
    scores = json.loads((run / "validation.jsonl").read_text().splitlines()[-1])["metrics"]
    return steps, scores, latest_weights(run)
