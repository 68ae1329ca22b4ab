"""A logged run is repeated to the bit: plan changes, real lacks of memory, resumes under changed options."""

import json
import platform
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.acceptance import only_in_acceptance
from tests.integration.commands import (
    Ended,
    command,
    gan_options,
    latest_weights,
    merged,
    run_directory,
    step_records,
    tiny_options,
    train,
    write_options,
)
from tests.integration.finetune_runs import finetune_options, write_chats, write_model
from tests.integration.multitask_runs import multitask_options
from tests.integration.text_runs import text_options, write_texts
from trainauto.cli import main
from trainauto.engine.checkpoint import Checkpoints
from trainauto.tasks.sr.archs.unet_discriminator_arch import UNetDiscriminatorSN
from trainauto.tasks.sr.losses.pixel_loss import L1Loss

Write = Callable[..., Path]
CONTROLLER = {"policy": "step", "min_batch_size": 2, "max_batch_size": 16, "min_lq_size": 8, "max_lq_size": 64}


def replay(folder: Path, *arguments: str) -> Ended:
    return command("replay", *arguments, cwd=folder, own_process="budget=" in " ".join(arguments))


def test_a_torn_line_ends_the_log_and_nothing_behind_the_end_is_read(tmp_path: Path, write_images: Write) -> None:
    options = tiny_options(write_images("gt", 2), datasets={"train": {"lookahead": 1}})
    file = write_options(tmp_path / "run.yml", options)
    assert train(file).returncode == 0
    run = run_directory(file)
    log = run / "training_log.jsonl"
    whole = log.read_bytes()
    log.write_bytes(whole[:-100])
    done = replay(tmp_path, str(run), "--until", "8")
    assert done.returncode == 0, done.stderr
    assert "8 steps, every loss equals the log's" in done.stdout
    assert "run         tiny_replay, 8 steps\n" in done.stdout
    assert "\n8/8  loss" in done.stdout, "what is left is counted to the end of the replay"
    assert "1 thread, 0 workers, 1 batch ahead\n" in done.stdout
    all_of_it = replay(tmp_path, str(run))
    assert "11 steps, every loss equals the log's" in all_of_it.stdout
    # A step that another version wrote ends nothing that comes before it.
    lines = whole.splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:9]) + b'{"step": 10}\n')
    assert "9 steps, every loss" in replay(tmp_path, str(run), "--until", "9").stdout
    refused = replay(tmp_path, str(run))
    assert refused.returncode == 2
    assert "entry 10 cannot be read" in refused.stderr


def as_trained(records: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    names = ("step", "first_sample", "samples", "extent", "plan", "drawn", "losses", "lr", "grad_norm", "units")
    return [tuple(record[name] for name in names) for record in records]


def loader_state(run: Path) -> Any:
    pointer = json.loads((run / "checkpoints" / "latest.json").read_text())
    return Checkpoints.read_state(run / "checkpoints" / pointer["folder"])["loader"]


def decided(run: Path) -> list[dict[str, Any]]:
    file = run / "decisions.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return [{key: value for key, value in line.items() if key != "time"} for line in lines]


@pytest.mark.skipif(platform.system() != "Linux", reason="the CPU budget is enforced on Linux only")
def test_plan_changes_and_lacks_of_memory_are_repeated_to_the_bit(tmp_path: Path, write_images: Write) -> None:
    gt = write_images("gt", 4, (200, 200))
    options = tiny_options(
        gt,
        network_g={"type": "compact", "num_feat": 32, "num_conv": 4},
        datasets={"train": {"lq_size": 64, "batch_size_per_gpu": 12}},
        train={"total_iter": 16},
        val={"val_freq": 16},
        memory={"budget": "60MiB", "calibration": False},
        training_automations={"DynamicBatchSizeOptimizer": {**CONTROLLER, "adjustment_frequency": 3}},
    )
    file = write_options(tmp_path / "run.yml", options)
    done = train(file)
    assert done.returncode == 0, done.stderr
    run = run_directory(file)
    records = step_records(run)
    assert sum(record["ooms"] for record in records) >= 1  # real ones
    assert any(one["micro_batches"] > 1 for record in records for one in record.get("pieces", {}).values())
    assert len({json.dumps(record["plan"]) for record in records}) >= 2

    again = replay(tmp_path, "experiments/tiny")
    assert again.returncode == 0, again.stderr
    copy = run_directory(file, "tiny_replay")
    assert as_trained(step_records(copy)) == as_trained(records)
    assert latest_weights(copy) == latest_weights(run)
    assert sum(record["ooms"] for record in step_records(copy)) == 0
    assert decided(copy) == decided(run)
    assert loader_state(copy) == loader_state(run)
    assert "16 steps, every loss equals the log's" in again.stdout
    assert "differ" not in again.stdout


STEERS = """
from trainauto.automations import AUTOMATIONS, Automation
from trainauto.core.decisions import ClipAt, PlanChange, RateFactor, Stop
@AUTOMATIONS.register("ReplaySteers")
class ReplaySteers(Automation):
    def on_run_start(self, facts):
        self.plan = facts.plan
    def on_step_end(self, record):
        match record.step:
            case 2: return RateFactor(0.5, "half")
            case 3: return ClipAt(0.01, "clip")
            case 4: return PlanChange(self.plan.changed(lq_size=24, batch_size=6), "grow")
            case 11: return Stop("enough")
            case 14: return PlanChange(self.plan.changed(lq_size=12), "shrink in flight")
"""


@pytest.fixture
def resumed(tmp_path: Path, write_images: Write, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a run that was stopped at step 11 and went on to 20 with another rate, batch and discriminator."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "options").mkdir()
    (tmp_path / "options" / "replay_steers.py").write_text(STEERS)
    options = tiny_options(
        write_images("gt", 5, (90, 100)),
        **gan_options(train={"total_iter": 14, "lr_scaling": "sqrt"}),
        plugins=["replay_steers"],
        training_automations={"ReplaySteers": {}},
        datasets={"train": {"num_worker_per_gpu": 1}},
        val={"val_enabled": False, "metrics": {}},
    )
    file = write_options(tmp_path / "options" / "run.yml", options)
    assert main(["train", "-opt", str(file)]) == 0
    more = ["train:total_iter=20", "train:optim_g:lr=5e-4", "datasets:train:batch_size_per_gpu=5"]
    assert main(["train", "-opt", str(file), "--auto_resume", "--force_yml", *more]) == 0
    return (tmp_path / "experiments" / "tiny" / "current").resolve()


def test_a_resume_under_changed_options_is_repeated_too(resumed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = step_records(resumed)
    assert [record["step"] for record in records] == list(range(1, 21))
    assert {record["lr"]["g"] for record in records[:2]} != {record["lr"]["g"] for record in records[13:]}
    assert sorted(line["kind"] for line in decided(resumed))[:4] == [
        "clip_at",
        "plan_change",
        "plan_change",
        "plan_change",
    ]
    capsys.readouterr()

    assert main(["replay", "experiments/tiny"]) == 0
    out = capsys.readouterr().out
    copy = (Path("experiments") / "tiny_replay" / "current").resolve()
    assert as_trained(step_records(copy)) == as_trained(records)
    assert latest_weights(copy) == latest_weights(resumed)
    assert len(latest_weights(copy)) == 3  # generator, its average, discriminator
    assert loader_state(copy) == loader_state(resumed)
    assert "11 steps, every loss equals the log's" in out
    assert "9 steps, every loss equals the log's" in out

    # Up to a step in the second part, under a name of its own: as the checkpoint of then.
    assert main(["replay", str(resumed), "--until", "15", "--force_yml", "name=fifteen"]) == 0
    copy = (Path("experiments") / "fifteen" / "current").resolve()
    assert [record["step"] for record in step_records(copy)] == list(range(1, 16))
    for name in latest_weights(copy):
        then = resumed / "checkpoints" / "step_00000015"
        assert latest_weights(copy)[name] == (then / name).read_bytes()
    assert loader_state(copy) == Checkpoints.read_state(then)["loader"]
    assert "replayed up to step 15" in capsys.readouterr().out


def test_a_replay_of_other_samples_is_refused(resumed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def said(*arguments: str) -> str:
        assert main(["replay", *arguments]) == 2
        return capsys.readouterr().err

    capsys.readouterr()
    assert "manual_seed was 3 and would be 4" in said(str(resumed), "--force_yml", "manual_seed=4")
    text = said(str(resumed), "--force_yml", "datasets:train:lq_size=8", "datasets:train:use_rot=false")
    assert "datasets:train:lq_size was 16 and would be 8" in text
    assert "datasets:train:use_rot was True and would be False" in text
    assert "--until 0 is no step" in said(str(resumed), "--until", "0")
    moved = resumed.parents[2] / "moved"
    shutil.move(resumed.parents[2] / "gt", moved)
    assert f"Looked for {resumed.parents[2]}/gt" in " ".join(said(str(resumed)).split())
    # The same images elsewhere are the same samples, whatever lies beside them; one under another name is not.
    there = ["--force_yml", f"datasets:train:dataroot_gt={moved}", f"datasets:val:dataroot_gt={moved}"]
    shutil.copy(moved / "image_000.png", moved / "more.png")
    assert main(["replay", str(resumed), "--until", "2", *there]) == 0
    assert "2 steps, every loss equals the log's" in capsys.readouterr().out
    made = len(list(Path("experiments/tiny_replay").iterdir()))
    (moved / "image_000.png").unlink()
    assert "1 renamed: image_000.png is now more.png" in said(str(resumed), *there)
    for listed in resumed.glob("samples*.json"):  # as versions left a run that kept no list
        listed.unlink()
    assert "samples of other names" in said(str(resumed), *there)
    shutil.copy(moved / "more.png", moved / "image_000.png")
    assert "has 6 samples, the run was trained on 5" in said(str(resumed), *there)
    assert len(list(Path("experiments/tiny_replay").iterdir())) == made  # refused before anything was written
    (resumed / "given.yml").unlink()
    assert "has no given.yml" in said(str(resumed))


def test_images_that_have_changed_are_said_to_give_another_run(
    resumed: Path, capsys: pytest.CaptureFixture[str], write_images: Write
) -> None:
    write_images("gt", 5, (100, 90))  # other images under the same names
    capsys.readouterr()
    assert main(["replay", str(resumed), "--until", "3"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert out.count("this is another run of the same plans") == 1
    assert "replay: from step 1 on" in out
    assert "losses differ from step 1 on" in out


@only_in_acceptance
@pytest.mark.skipif(platform.system() != "Linux", reason="the CPU budget is enforced on Linux only")
def test_on_a_smaller_card_it_says_so_once_and_goes_on(tmp_path: Path, write_images: Write) -> None:
    gt = write_images("gt", 4, (200, 200))
    options = tiny_options(
        gt,
        network_g={"type": "compact", "num_feat": 32, "num_conv": 4},
        datasets={"train": {"lq_size": 64, "batch_size_per_gpu": 12}},
        train={"total_iter": 6},
        val={"val_enabled": False, "metrics": {}},
    )
    file = write_options(tmp_path / "run.yml", options)
    assert train(file).returncode == 0
    records = step_records(run_directory(file))
    done = replay(tmp_path, "experiments/tiny", "--force_yml", "memory:budget=60MiB")
    assert done.returncode == 0, done.stderr
    out = " ".join(done.stdout.split())
    assert out.count("did not fit here as it was logged") == 1
    assert "other micro-batches from step 1 on" in out
    here = step_records(run_directory(file, "tiny_replay"))
    assert [(r["step"], r["first_sample"], r["samples"], r["plan"]) for r in here] == [
        (r["step"], r["first_sample"], r["samples"], r["plan"]) for r in records
    ]
    assert here[0]["ooms"] >= 1
    assert sum(record["ooms"] for record in here[2:]) <= 1  # what fitted once is where later steps begin


def test_batches_given_back_and_crops_cut_are_repeated_to_the_bit(
    tmp_path: Path, write_images: Write, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Real errors of the allocator, each kind from some step on: pieces, a batch given back, the second pass cut."""
    options = tiny_options(
        write_images("gt", 5, (90, 100)),
        **gan_options(train={"total_iter": 12}),
        datasets={"train": {"num_worker_per_gpu": 0}},
        val={"val_enabled": False, "metrics": {}},
    )
    file = write_options(tmp_path / "run.yml", options)
    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as patched:
        seen: list[int] = []
        generator, discriminator = L1Loss.forward, UNetDiscriminatorSN.forward

        def l1(self: Any, output: torch.Tensor, gt: torch.Tensor) -> torch.Tensor:
            seen.append(output.shape[-1])
            if output.shape[0] > 2 or (len(seen) > 6 and output.shape[-1] > 24):
                torch.empty(2**60)
            return generator(self, output, gt)

        def judge(self: Any, image: torch.Tensor) -> torch.Tensor:
            if len(seen) > 14 and self.conv0.weight.requires_grad and image.shape[-1] > 20:
                torch.empty(2**60)
            return discriminator(self, image)

        patched.setattr(L1Loss, "forward", l1)
        patched.setattr(UNetDiscriminatorSN, "forward", judge)
        assert main(["train", "-opt", "run.yml"]) == 0
    run = run_directory(file)
    records = step_records(run)
    pieces = [(name, one["micro_batches"], one["extent"]) for r in records for name, one in r.get("pieces", {}).items()]
    assert pieces[0][:2] == ("g", 2)
    assert ("d", 2, 9) in [(name, min(micro, 2), extent) for name, micro, extent in pieces]
    assert any(line["early"] and line["kind"] == "plan_change" for line in decided(run))  # a batch was given back
    assert any(record["samples"] < record["drawn"]["batch_size"] for record in records)
    capsys.readouterr()

    assert main(["replay", "experiments/tiny"]) == 0
    assert "12 steps, every loss equals the log's" in capsys.readouterr().out
    copy = run_directory(file, "tiny_replay")
    assert as_trained(step_records(copy)) == as_trained(records)
    assert latest_weights(copy) == latest_weights(run)
    assert loader_state(copy) == loader_state(run)
    assert sum(record["ooms"] for record in step_records(copy)) == 0


UNDOES = """
from trainauto.automations import AUTOMATIONS, Automation
from trainauto.core.decisions import GoBack, PlanChange, RateFactor
@AUTOMATIONS.register("ReplayUndoes")
class ReplayUndoes(Automation):
    goes_back = True
    def on_run_start(self, facts):
        self.plan, self.rollbacks, (self.axis,) = facts.plan, len(facts.rollbacks), facts.axes
    def on_step_end(self, record):
        match record.step:
            case 2: return RateFactor(0.5, "half")
            case 3: return self.at(self.axis.clamp(self.plan[self.axis.name] // 2))
            case 7: return self.at(self.plan[self.axis.name])
            case 9 if not self.rollbacks: return GoBack(6, "it went wrong")
    def at(self, value):
        return PlanChange(self.plan.changed(**{self.axis.name: value}), "other batches")
"""


def of_texts(folder: Path) -> dict[str, Any]:
    return text_options(write_texts(folder), train={"total_epochs": None, "total_iter": 12})


def of_several_tasks(folder: Path) -> dict[str, Any]:
    del folder
    return multitask_options(train={"total_epochs": None, "total_iter": 12})


def of_packed_tasks(folder: Path) -> dict[str, Any]:
    return merged(of_several_tasks(folder), {"train": {"use_gradient_accumulation": False}})


def of_conversations(folder: Path) -> dict[str, Any]:
    training = {"max_steps": 12, "save_steps": 5}
    return finetune_options(write_model(folder / "model"), write_chats(folder / "chats.jsonl"), training=training)


@pytest.mark.parametrize(
    ("make", "longer"),
    [
        (of_texts, "train:total_iter=16"),
        # Its log of two ranks is repeated in test_ranks_of_tasks.py.
        pytest.param(of_several_tasks, "train:total_iter=16", marks=only_in_acceptance),
        (of_packed_tasks, "train:total_iter=16"),
        (of_conversations, "training:max_steps=16"),
    ],
)
def test_runs_of_other_tasks_are_repeated_to_the_bit(
    tmp_path: Path, make: Callable[[Path], dict[str, Any]], longer: str
) -> None:
    """With other batches on the way, a rollback, and a resume; each into a folder of its own."""
    (tmp_path / "replay_undoes.py").write_text(UNDOES)
    changes = {"plugins": ["replay_undoes"], "training_automations": {"ReplayUndoes": {}}}
    file = write_options(tmp_path / "run.yml", merged(make(tmp_path), changes))
    for more in ((), ("--auto_resume", "--force_yml", longer)):
        done = train(file, *more)
        assert done.returncode == 0, done.stderr
    root = tmp_path / ("training_output" if make is of_conversations else "experiments/tiny")
    run = (root / "current").resolve()
    kinds = [made["kind"] for made in decided(run)]
    assert "rollback" in kinds
    assert kinds.count("plan_change") >= 2

    again = replay(tmp_path, str(run))
    assert again.returncode == 0, again.stderr
    assert again.stdout.count("every loss equals the log's") == 2  # each part says it
    copy = (root.with_name(f"{root.name}_replay") / "current").resolve()
    assert as_trained(step_records(copy)) == as_trained(step_records(run))
    assert latest_weights(copy) == latest_weights(run)
    assert loader_state(copy) == loader_state(run)
    assert (root / "current").resolve() == run
