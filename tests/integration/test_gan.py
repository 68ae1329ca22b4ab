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
    done = train(file)
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
    done = train(file, "--auto_resume")
    assert done.returncode == 0, done.stderr
    assert "after step 4" in done.stdout
    assert outcome(run) == whole

    done = command("replay", str(run), cwd=tmp_path, own_process=True)
    assert done.returncode == 0, done.stderr
    assert "7 steps, every loss equals the log's" in done.stdout


VGG = {"type": "vggstylediscriminator", "num_feat": 2}


def test_a_discriminator_of_one_size_keeps_crops_at_it(tmp_path: Path, write_images: Callable[..., Path]) -> None:
    """A controller grows batches only, and crops of another size are refused before the run."""
    changes = gan_options(
        network_d=VGG,
        datasets={"train": {"lq_size": 64, "batch_size_per_gpu": 2, "lookahead": 1}},
        train={"total_iter": 5},
        val={"val_enabled": False},
        memory={"budget": "2GiB", "calibration": False},
        training_automations={"DynamicBatchSizeOptimizer": {"policy": "step", "adjustment_frequency": 2}},
    )
    file = write_options(tmp_path / "run.yml", tiny_options(write_images("gt", 3, (200, 210)), **changes))
    done = train(file)
    assert done.returncode == 0, done.stderr
    plans = [record["plan"] for record in step_records(run_directory(file))]
    assert {plan["lq_size"] for plan in plans} == {64}
    assert plans[-1]["batch_size"] > 2
    done = train(file, "--force_yml", "datasets:train:lq_size=32")
    assert done.returncode == 2
    assert "crops are 64 px (lq_size 32 at scale 2), and vggstylediscriminator judges images" in done.stderr
    assert "Write lq_size: 64." in done.stderr
    schedule = 'training_automations={"PlanSchedule":{"changes":[{"step":2,"lq_size":80}]}}'
    done = train(file, "--force_yml", schedule)
    assert done.returncode == 2
    assert "lq_size 80 at step 2 is not admissible" in done.stderr


def outcome(run: Path) -> tuple[list[dict[str, Any]], dict[str, float], dict[str, bytes]]:
    """Return what the steps were, what the last validation measured, and the last weights."""
    steps = [{key: record[key] for key in KEPT if key in record} for record in step_records(run)]
    scores = json.loads((run / "validation.jsonl").read_text().splitlines()[-1])["metrics"]
    return steps, scores, latest_weights(run)
