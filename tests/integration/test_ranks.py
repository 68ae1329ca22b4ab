"""C43: several ranks train as one would: the same samples, plans, losses and weights (gloo, on a CPU)."""

import json
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.acceptance import ACCEPTANCE, only_in_acceptance
from tests.documents import ROOT
from tests.integration import rank_worker
from tests.integration.commands import (
    command,
    gan_options,
    merged,
    run_directory,
    step_records,
    tiny_options,
    train,
    write_options,
)
from tests.integration.ranks import finish, train_ranks, worker
from tests.seeded_towers import write_seeded_tower
from trainauto.tasks.sr.towers.tower import VGG19

SAMPLES, STEPS, EFFECTIVE = 24, 50, 8
MANY = (2, 4) if ACCEPTANCE else (2,)

NO_PLANS = {"PlanSchedule": {"enabled": False}}

WriteImages = Callable[..., Path]


def options_for(gt: Path, ranks: int, **changes: Any) -> dict[str, Any]:
    """Return options of the same effective batch on any number of ranks, with plans that change in mid-run."""
    planned = [
        {"step": 10, "lq_size": 24, "batch_size": 2 * EFFECTIVE // ranks},
        {"step": 26, "lq_size": 12, "batch_size": EFFECTIVE // 2 // ranks},
        {"step": 38, "batch_size": EFFECTIVE // ranks},
    ]
    base = tiny_options(
        gt,
        name=f"ranks_{ranks}",
        datasets={"train": {"batch_size_per_gpu": EFFECTIVE // ranks}},
        train={"total_iter": STEPS, "ema_decay": 0.9, "grad_clip": 0.5},
        val={"val_freq": 25},
        logger={"save_checkpoint_freq": 20},
        training_automations={"PlanSchedule": {"changes": planned}},
    )
    return merged(base, changes)


def alone(options: Path) -> dict[str, Any]:
    """Train in this process, as one rank; return what it saw."""
    with chdir(options.parent):
        rank_worker.main(options.name, "seen_0.json", "--alone")
    return json.loads(Path(options.parent, "seen_0.json").read_text())


def steps_of(seen: list[dict[str, Any]]) -> list[tuple[dict[str, Any], ...]]:
    """Return the batches of each step, one for each rank."""
    return list(zip(*(rank["batches"] for rank in seen), strict=True))


def test_several_ranks_train_as_one_does(tmp_path: Path, write_images: WriteImages) -> None:
    """Of more than two, an acceptance run has four; the test of a run that goes on has three beside one."""
    gt = write_images("gt", SAMPLES)
    seen: dict[int, list[dict[str, Any]]] = {}
    logged: dict[int, list[dict[str, Any]]] = {}
    for ranks in (1, *MANY):
        options = write_options(tmp_path / f"{ranks}.yml", options_for(gt, ranks))
        seen[ranks] = worker(options, ranks) if ranks > 1 else [alone(options)]
        logged[ranks] = step_records(run_directory(options, f"ranks_{ranks}"))
        assert len(logged[ranks]) == STEPS

    for ranks in MANY:
        for ours, theirs in zip(logged[ranks], logged[1], strict=True):
            assert abs(sum(ours["losses"].values()) - sum(theirs["losses"].values())) <= 1e-5, ours["step"]
            assert (ours["samples"], ours["first_sample"]) == (theirs["samples"], theirs["first_sample"])
            assert ours["plan"]["batch_size"] * ranks == theirs["plan"]["batch_size"]
            assert ours["plan"]["lq_size"] == theirs["plan"]["lq_size"]
        # To the bit the same weights and averages on all ranks, and the same plan in every step.
        assert len({rank["weights"] for rank in seen[ranks]}) == 1
        for step in steps_of(seen[ranks]):
            assert len({json.dumps([batch["plan"], batch["drawn"], batch["first"]]) for batch in step}) == 1

    (only,) = seen[1]
    for ranks in (1, *MANY):
        together = [[name for batch in step for name in batch["names"]] for step in steps_of(seen[ranks])]
        assert [sorted(step) for step in together] == [sorted(batch["names"]) for batch in only["batches"]]
        # The crops are the same ones, not only the files.
        crops = [sorted(crop for batch in step for crop in batch["crops"]) for step in steps_of(seen[ranks])]
        assert crops == [sorted(batch["crops"]) for batch in only["batches"]], ranks
    # Every sample once an epoch, epoch after epoch.
    stream = [name for batch in only["batches"] for name in batch["names"]]
    for first in range(0, len(stream) - SAMPLES, SAMPLES):
        assert len(set(stream[first : first + SAMPLES])) == SAMPLES


def test_batches_by_memory_train_what_one_rank_would(tmp_path: Path, write_images: WriteImages) -> None:
    """Ranks of 60 and 30 MiB: losses weighted by samples, in micro-batches, two passes, spectral norm's buffers.

    The losses, discriminator and optimizers are those of options/train/gan_stage.yml.
    """
    gt = write_images("gt", SAMPLES)
    write_seeded_tower(VGG19, tmp_path / "vgg19.pth", divisor=32)
    recipe = yaml.safe_load((ROOT / "options" / "train" / "gan_stage.yml").read_text(encoding="utf-8"))
    losses = [loss | ({"weights": "vgg19.pth"} if "weights" in loss else {}) for loss in recipe["train"]["losses"]]
    changes = gan_options(
        datasets={"train": {"batch_size_per_gpu": 4, "accum_iter": 2}},
        network_d={**recipe["network_d"], "num_feat": 4},
        train={"total_iter": 8, "losses": losses, **{key: recipe["train"][key] for key in ("optim_g", "optim_d")}},
        distributed={"batches": "memory"},
        training_automations=NO_PLANS,
    )
    options = write_options(tmp_path / "gan.yml", options_for(gt, 1, name="gan", **changes))
    processes = train_ranks(options, 2, "--force_yml", "memory:budget={each}", each=["60MiB", "30MiB"])
    codes = finish(processes)
    assert [code for code, _ in codes] == [0, 0], codes
    steps = step_records(run_directory(options, "gan"))
    assert [step["samples"] for step in steps] == [12] * 8
    assert {step["peak"]["limit"] for step in steps} == {60 * 1024**2}
    repeated = command("replay", str(run_directory(options, "gan")), cwd=tmp_path)
    assert repeated.returncode == 0, repeated.stderr
    assert "replayed" in repeated.stdout, repeated.stdout
    copy = step_records((tmp_path / "experiments" / "gan_replay" / "current").resolve())
    for ours, theirs in zip(steps[:8], copy, strict=False):
        assert ours["losses"] == pytest.approx(theirs["losses"], abs=1e-6)

    alone = merged(options_for(gt, 1, name="alone", **changes), {"datasets": {"train": {"batch_size_per_gpu": 6}}})
    file = write_options(tmp_path / "alone.yml", alone)
    assert train(file).returncode == 0
    for ours, theirs in zip(steps, step_records(run_directory(file, "alone")), strict=True):
        for name, loss in theirs["losses"].items():  # later on, Adam makes rounding large
            assert abs(ours["losses"][name] - loss) < 1e-6, (ours["step"], name)


def test_a_validation_image_that_fails_on_one_rank_saves_and_ends_all(
    tmp_path: Path, write_images: WriteImages
) -> None:
    gt, val = write_images("gt", SAMPLES), write_images("val", 3)
    broken = val / "image_001.png"
    content = broken.read_bytes()
    broken.write_bytes(content[: len(content) // 2] + bytes(64) + content[len(content) // 2 + 64 :])
    changes = {
        "name": "val",
        "training_automations": NO_PLANS,
        "datasets": {"val": {"dataroot_gt": str(val)}},
        "val": {"val_freq": 3},
        "logger": {"save_checkpoint_freq": 1000},
    }
    options = write_options(tmp_path / "val.yml", options_for(gt, 2, **changes))
    done = finish(train_ranks(options, 2))
    assert sorted(code for code, _ in done) == [1, 2], done
    assert any("image_001.png" in text for _, text in done)
    run = run_directory(options, "val")
    assert json.loads((run / "checkpoints" / "latest.json").read_text())["step"] == 3


def test_a_run_goes_on_on_another_number_of_ranks(tmp_path: Path, write_images: WriteImages) -> None:
    """No sample is lost or comes twice, and the log says what changed."""
    gt = write_images("gt", SAMPLES)

    def options(steps: int, name: str) -> Path:
        changes = {
            "name": name,
            "train": {"total_iter": steps},
            "training_automations": NO_PLANS,
            "val": {"val_enabled": False},
        }
        return write_options(tmp_path / f"{name}.yml", options_for(gt, 2, **changes))

    worker(options(9, "other"), 2)
    third = worker(options(15, "other"), 3, "--auto_resume")
    run = run_directory(tmp_path / "other.yml", "other")
    steps = step_records(run)
    assert [step["step"] for step in steps] == list(range(1, 16))
    ends = [step["first_sample"] + step["samples"] for step in steps]
    assert [step["first_sample"] for step in steps] == [0, *ends[:-1]]
    assert [step["samples"] for step in steps] == [8] * 9 + [12] * 6
    stream = [name for step in steps_of(third) for batch in step for name in batch["names"]]
    assert Counter(Counter(stream).values()) == {3: SAMPLES}, "72 samples of 24: each three times"
    assert "ranks: 2 -> 3" in (run / "training.log").read_text()
    assert json.loads((run / "origin.json").read_text())["ranks"] == 3

    # One process repeats what two and then three have trained: their samples, in as many pieces.
    replayed = command("replay", str(run), cwd=tmp_path)
    assert replayed.returncode == 0, replayed.stderr
    again = step_records(run_directory(tmp_path / "other.yml", "other_replay"))
    assert [step["plan"]["batch_size"] for step in again] == [8] * 9 + [12] * 6
    assert [step["plan"]["micro_batches"] for step in again] == [2] * 9 + [3] * 6
    for ours, theirs in zip(again, steps, strict=True):
        assert abs(ours["losses"]["l1loss"] - theirs["losses"]["l1loss"]) < 1e-6


def test_a_signal_to_one_rank_stops_all_after_the_same_step(tmp_path: Path, write_images: WriteImages) -> None:
    gt = write_images("gt", SAMPLES)
    changes = {
        "name": "stop",
        "train": {"total_iter": 100000},
        "training_automations": NO_PLANS,
        "val": {"val_enabled": False},
    }
    options = write_options(tmp_path / "stop.yml", options_for(gt, 2, **changes))
    processes = train_ranks(options, 2)
    records = tmp_path / "experiments" / "stop" / "current" / "training_log.jsonl"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (records.is_file() and records.read_text().count("\n") > 5):
        time.sleep(0.1)
    processes[1].send_signal(signal.SIGTERM)
    done = finish(processes)
    assert [code for code, _ in done] == [143, 143], done
    run = run_directory(options, "stop")
    last = step_records(run)[-1]["step"]
    assert json.loads((run / "checkpoints" / "latest.json").read_text())["step"] == last
    assert "SIGTERM received" in done[0][1]


def test_an_unreadable_image_on_one_rank_saves_and_ends_all(tmp_path: Path, write_images: WriteImages) -> None:
    gt = write_images("gt", SAMPLES)
    changes = {
        "name": "bad",
        "training_automations": NO_PLANS,
        "val": {"val_enabled": False},
        "logger": {"save_checkpoint_freq": 1000},
    }
    options = write_options(tmp_path / "bad.yml", options_for(gt, 2, **changes))
    broken = gt / "image_007.png"
    content = broken.read_bytes()
    middle = len(content) // 2
    broken.write_bytes(content[:middle] + bytes(64) + content[middle + 64 :])  # begins and ends as it should
    done = finish(train_ranks(options, 2))
    assert sorted(code for code, _ in done) == [1, 2], done
    assert any("image_007.png" in text for _, text in done)
    run = run_directory(options, "bad")
    saved = json.loads((run / "checkpoints" / "latest.json").read_text())["step"]
    assert saved == len(step_records(run)) > 0


def test_other_options_on_a_rank_are_refused(tmp_path: Path, write_images: WriteImages) -> None:
    gt = write_images("gt", 4)
    options = write_options(tmp_path / "differ.yml", options_for(gt, 2, name="differ"))
    done = finish(train_ranks(options, 2, "--force_yml", "manual_seed={rank}"))
    assert {code for code, _ in done} == {2}, done
    assert "rank 1 has other options than rank 0" in done[0][1]


def test_the_launcher_says_how_to_start_it(tmp_path: Path, write_images: WriteImages) -> None:
    options = write_options(tmp_path / "plain.yml", options_for(write_images("gt", 4), 1))
    done = train(options, "--launcher", "pytorch")
    assert done.returncode == 2
    assert "torchrun --nproc-per-node" in done.stderr


@only_in_acceptance
def test_target_batch_size_is_that_of_all_ranks(tmp_path: Path, write_images: WriteImages) -> None:
    gt = write_images("gt", SAMPLES)
    controller = {"target_batch_size": 8, "adjustment_frequency": 3, "max_lq_size": 16}
    changes = {
        "name": "target",
        "memory": {"budget": "60MiB"},
        "train": {"total_iter": 6},
        "val": {"val_enabled": False},
        "training_automations": {"PlanSchedule": {"enabled": False}, "DynamicBatchSizeOptimizer": controller},
    }
    options = write_options(tmp_path / "target.yml", options_for(gt, 2, **changes))
    done = finish(train_ranks(options, 2))
    assert [code for code, _ in done] == [0, 0], done
    steps = step_records(run_directory(options, "target"))
    assert {step["samples"] for step in steps} == {8}


TOUCHES = """
from pathlib import Path
from trainauto.automations import AUTOMATIONS, Automation
@AUTOMATIONS.register("Touches")
class Touches(Automation):
    priority = 1
    def on_run_start(self, facts):
        self.folder = Path(facts.folder)
    def on_step_end(self, record):
        if record.step == 450:
            (self.folder / "STOP_TRAINING").touch()
"""


@only_in_acceptance
def test_the_first_rank_decides_and_the_others_do_the_same(tmp_path: Path, write_images: WriteImages) -> None:
    """Each automation that watches a run, at a rate of nothing; every checkpoint sees that weights are the same."""
    gt = write_images("gt", SAMPLES)
    (tmp_path / "touches.py").write_text(TOUCHES)
    stands = {"IntelligentLearningRateScheduler": {"plateau_patience": 100}, "AdaptiveGradientClipping": {}}
    cases = {
        "low": ({"StopAtLowLoss": {"loss": 1e9, "patience": 5}}, 5, "auto_low_loss"),
        "early": ({"IntelligentEarlyStopping": {"patience": 2}}, 6, "auto_no_improvement"),
        "file": ({"StopFile": {}, "Touches": {}, **stands}, 450, "user_stop"),
    }
    for name, (section, last, termination) in cases.items():
        changes = {
            "name": name,
            "plugins": ["touches"],
            "train": {"total_iter": 600, "optim_g": {"type": "SGD", "lr": 1e-30}},
            "val": {"val_freq": 2} if name == "early" else {"val_enabled": False},
            "training_automations": {**NO_PLANS, **section},
        }
        done = finish(train_ranks(write_options(tmp_path / f"{name}.yml", options_for(gt, 2, **changes)), 2))
        assert [code for code, _ in done] == [0, 0], done
        run = run_directory(tmp_path / f"{name}.yml", name)
        assert step_records(run)[-1]["step"] == last
        decided = [json.loads(line) for line in (run / "decisions.jsonl").read_text().splitlines()]
        assert decided[-1]["termination"] == termination
        assert json.loads((run / "checkpoints" / "latest.json").read_text())["step"] == last
    steps = step_records(run)
    halved = [line for line in decided if line["kind"] == "rate_factor"]
    assert [line["by"] for line in halved][:1] == ["IntelligentLearningRateScheduler"]
    assert steps[-1]["lr"]["g"] / steps[0]["lr"]["g"] == pytest.approx(halved[-1]["factor"])
    assert {line["by"] for line in decided if line["kind"] == "clip_at"} == {"AdaptiveGradientClipping"}


FAILS = """
from trainauto.automations import AUTOMATIONS, Automation
@AUTOMATIONS.register("Fails")
class Fails(Automation):
    def on_step_end(self, record):
        return {}[record.step] if record.step == 3 else None
"""


@only_in_acceptance
def test_an_error_of_the_first_ranks_automation_ends_all(tmp_path: Path, write_images: WriteImages) -> None:
    (tmp_path / "fails.py").write_text(FAILS)
    changes = {"name": "fails", "plugins": ["fails"], "training_automations": {**NO_PLANS, "Fails": {}}}
    options = write_options(tmp_path / "fails.yml", options_for(write_images("gt", SAMPLES), 2, **changes))
    done = finish(train_ranks(options, 2), timeout_s=60)
    assert all(code == 1 for code, _ in done), done
    assert "KeyError: 3" in done[0][1]
    assert "the first rank ends the run with an error of its own: KeyError: 3" in done[1][1]


BLOCKS = {"type": "rrdbnet", "num_feat": 8, "num_block": 2, "num_grow_ch": 4}


@only_in_acceptance
@pytest.mark.parametrize("again", [False, True], ids=["kept", "checkpointing"])
@pytest.mark.parametrize("kind", ["ddp_overlap", "fully_shard", "none"])
def test_a_loss_that_runs_the_average_is_that_of_one_rank(
    tmp_path: Path, write_images: WriteImages, kind: str, again: bool
) -> None:
    """LDL compares with what the averaged network makes, which fully_shard spreads over the ranks, too."""
    options = tiny_options(
        write_images("gt", 12),
        name="two",
        datasets={"train": {"batch_size_per_gpu": 2}},
        train={"total_iter": 6, "losses": [{"type": "l1loss"}, {"type": "ldlloss"}], "ema_decay": 0.9},
        val={"val_freq": 2},
        distributed={} if kind == "none" else {kind: True},
        **({"memory": {"gradient_checkpointing": True}, "network_g": BLOCKS} if again else {}),
    )
    file = write_options(tmp_path / "two.yml", options)
    assert [code for code, _ in finish(train_ranks(file, 2))] == [0, 0]
    alone = {"name": "one", "distributed": {"ddp_overlap": False, "fully_shard": False}}
    single = write_options(
        tmp_path / "one.yml", merged(options, {**alone, "datasets": {"train": {"batch_size_per_gpu": 4}}})
    )
    assert train(single).returncode == 0
    records = zip(step_records(run_directory(file, "two")), step_records(run_directory(single, "one")), strict=True)
    for ours, theirs in records:
        assert ours["losses"] == pytest.approx(theirs["losses"], abs=2e-6), ours["step"]
