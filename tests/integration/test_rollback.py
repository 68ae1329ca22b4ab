"""Going back to a checkpoint in mid-run: the same as by hand, through kills, in replays, on ranks, in what is read."""

import errno
import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.acceptance import ACCEPTANCE
from tests.integration.commands import (
    Ended,
    command,
    latest_weights,
    merged,
    plugins_forgotten,
    run_directory,
    step_records,
    tiny_options,
    train,
    write_options,
)
from tests.integration.ranks import worker
from tests.integration.text_runs import text_options, write_texts
from trainauto.engine.checkpoint import Checkpoints

PLUGIN = Path(__file__).parents[1] / "assets" / "plugins" / "undoing.py"
Write = Callable[..., Path]


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "replace", os.replace)  # the plugin changes both, in runs of this process
    monkeypatch.setattr(Path, "rename", Path.rename)


def placed(folder: Path, gt: Path, planned: dict[str, Any], **changes: Any) -> Path:
    """Write an option file and the plugin with its plan into a folder of their own."""
    folder.mkdir()
    shutil.copy(PLUGIN, folder / "undoing.py")
    (folder / "planned.json").write_text(json.dumps(planned))
    options = tiny_options(
        gt,
        train={"total_iter": 24, "losses": [{"type": "spoilt_l1"}], "scheduler": {"type": "cosine"}},
        datasets={"train": {"batch_size_per_gpu": 3}},
        val={"val_freq": 8},
        plugins=["undoing"],
        training_automations={"Undoing": {}},
    )
    return write_options(folder / "run.yml", merged(options, changes))


def decisions(run: Path) -> list[dict[str, Any]]:
    log = run / "decisions.jsonl"
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def positions(run: Path) -> list[int]:
    return [record["first_sample"] + place for record in step_records(run) for place in range(record["samples"])]


def test_weights_are_those_of_a_run_that_was_started_so_by_hand(tmp_path: Path, write_images: Write) -> None:
    """At step 13, in the middle of the second epoch, back to step 10."""
    gt = write_images("gt", 11, (90, 100))
    back = placed(tmp_path / "back", gt, {"back": [[13, 11]]})
    done = train(back)
    assert done.returncode == 0, done.stderr
    run = run_directory(back)

    hand = placed(tmp_path / "hand", gt, {"stop": 10})
    assert train(hand).returncode == 0
    by_hand = run_directory(hand)
    assert resumed_in_another_order(hand, 1).progress.steps == 24
    assert latest_weights(run) == latest_weights(by_hand)
    kept = ("step", "losses", "lr", "grad_norm", "first_sample", "samples")
    steps, same = ([{key: one[key] for key in kept} for one in step_records(of)] for of in (run, by_hand))
    assert steps == same

    # Other samples than those of a run that never went back, and each still once an epoch.
    plain = placed(tmp_path / "plain", gt, {})
    assert train(plain).returncode == 0
    assert [one["losses"] for one in step_records(run_directory(plain))][:10] == [one["losses"] for one in steps][:10]
    assert [one["losses"] for one in step_records(run_directory(plain))][10:] != [one["losses"] for one in steps][10:]
    assert positions(run) == list(range(24 * 3))

    # What is read of it.
    (made,) = [one for one in decisions(run) if one["kind"] == "rollback"]
    assert (made["step"], made["from_step"], made["to_step"], made["order"], made["position"]) == (10, 13, 10, 1, 30)
    said = " ".join(done.stdout.split())
    assert "step 13: back to a checkpoint of step 11 or before: the plugin asks at step 13" in said
    assert "step 10: back from step 13 to 10, samples in another order (no. 1)" in said
    assert "undone 3 of 27 steps, by 1 rollback" in said
    undone = [json.loads(line)["step"] for line in (run / "undone" / "1_training_log.jsonl").read_text().splitlines()]
    assert undone == [11, 12, 13]
    assert "back from step 13 to 10 (3 steps undone)" in (run / "dashboard.html").read_text()


def resumed_in_another_order(options: Path, number: int) -> Any:
    """Resume a run as a person would who changes nothing but the order of the samples; return it as it ended."""
    from trainauto.build import build_run
    from trainauto.engine.loop import train as train_run
    from trainauto.options.load import load_options

    before = Path.cwd()
    os.chdir(options.parent)
    try:
        with (
            plugins_forgotten(options.parent),
            build_run(load_options(Path(options.name), []), auto_resume=True) as run,
        ):
            run.loader.reorder(number)
            run.journal.automations = [a for a in run.journal.automations if a.name != "Undoing"]
            train_run(run)
            return run
    finally:
        os.chdir(before)


@pytest.mark.timeout(600)
def test_killed_in_a_rollback_it_ends_as_if_nothing_had_been(tmp_path: Path, write_images: Write) -> None:
    """At every file that is put in place and every folder that is deleted on the way back."""
    gt = write_images("gt", 11, (90, 100))
    whole = placed(tmp_path / "whole", gt, {"back": [[13, 6]]})
    assert train(whole).returncode == 0
    expected, steps = latest_weights(run_directory(whole)), step_records(run_directory(whole))
    moments = range(1, 99) if ACCEPTANCE else (1, 2, 4, 8)
    for moment in moments:
        killed = placed(tmp_path / f"killed_{moment}", gt, {"back": [[13, 6]], "kill": moment})
        done = train(killed, own_process=True)
        run = run_directory(killed)
        if done.returncode == 0:
            assert moment > 8, "all that is written on the way back lies before"
            break
        assert done.returncode == -signal.SIGKILL, done.stderr
        done = train(killed, "--auto_resume", own_process=True)
        assert done.returncode == 0, f"moment {moment}: {done.stderr}"
        assert latest_weights(run) == expected, moment
        assert [one["losses"] for one in step_records(run)] == [one["losses"] for one in steps], moment
        assert len([one for one in decisions(run) if one["kind"] == "rollback"]) == 1, moment
        assert json.loads((run / "training_log.json").read_text())["step"] == 24
    else:
        assert not ACCEPTANCE


def test_a_replay_follows(tmp_path: Path, write_images: Write) -> None:
    """Two rollbacks, the second one a checkpoint further back, since it leads to where the first one led."""
    gt = write_images("gt", 11, (90, 100))
    options = placed(tmp_path / "back", gt, {"back": [[13, 11], [14, 11], [20, 18]]})
    assert train(options).returncode == 0
    run = run_directory(options)
    assert [one["to_step"] for one in decisions(run) if one["kind"] == "rollback"] == [10, 8, 16]
    assert positions(run) == list(range(24 * 3))
    again = command("replay", str(run), cwd=tmp_path / "back")
    assert again.returncode == 0, again.stderr
    assert "24 steps, every loss equals the log's" in " ".join(again.stdout.split())
    repeated = run_directory(options, "tiny_replay")
    assert latest_weights(repeated) == latest_weights(run)
    assert [one["to_step"] for one in decisions(repeated) if one["kind"] == "rollback"] == [10, 8, 16]


def test_what_a_resume_has_changed_stays_so(tmp_path: Path, write_images: Write) -> None:
    """A run that was ended continues without what had halved its rates; it goes back to the checkpoint of its end."""
    gt = write_images("gt", 11, (90, 100))
    constant = {"train": {"scheduler": {"type": "multistep", "milestones": [1000]}}}
    watching = {"training_automations": {"StopAtLowLoss": {"loss": 100.0, "patience": 12}}}
    ended_so = placed(tmp_path / "run", gt, {"halve": 5}, **merged(constant, watching))
    assert train(ended_so).returncode == 0
    run = run_directory(ended_so)
    assert len(step_records(run)) == 12
    write_options(ended_so, without_automations(ended_so) | {"training_automations": {"SpikeGuard": {}}})
    (tmp_path / "run" / "planned.json").write_text(json.dumps({"nan": [2]}))
    done = train(ended_so, "--auto_resume")
    assert done.returncode == 0, done.stderr
    assert [(one["from_step"], one["to_step"]) for one in decisions(run) if one["kind"] == "rollback"] == [(14, 12)]
    steps = step_records(run)
    assert len(steps) == 24
    assert [one["lr"]["g"] for one in steps[5:12]] == [0.0005] * 7
    assert [one["lr"]["g"] for one in steps[12:]] == [0.001] * 12


def without_automations(options: Path) -> dict[str, Any]:
    given: dict[str, Any] = yaml.safe_load(options.read_text())
    return {name: section for name, section in given.items() if name != "training_automations"}


def test_a_stop_that_a_person_asks_for_in_the_step_that_is_undone_is_heard(tmp_path: Path, write_images: Write) -> None:
    gt = write_images("gt", 11, (90, 100))
    planned = {"back": [[13, 11]], "stop_file": 13}
    options = placed(tmp_path / "run", gt, planned, training_automations={"StopFile": {}})
    done = train(options)
    assert done.returncode == 0, done.stderr
    assert len(step_records(run_directory(options))) == 10
    assert "STOP_TRAINING requested it after step 13" in ended(done)
    (tmp_path / "run" / "planned.json").write_text("{}")
    assert train(options, "--auto_resume").returncode == 0
    assert len(step_records(run_directory(options))) == 24


def test_logs_are_cut_on_a_full_disk_too(tmp_path: Path, write_images: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no room to put undone lines aside, nor for a copy of what is kept."""

    def full(*_arguments: Any, **_options: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("trainauto.storage.run_directory._copy", full)
    options = placed(tmp_path / "run", write_images("gt", 11, (90, 100)), {"back": [[13, 11]]})
    done = train(options)
    assert done.returncode == 0, done.stderr
    run = run_directory(options)
    assert [one["step"] for one in step_records(run)] == list(range(1, 25))
    assert [(one["kind"], one["step"]) for one in decisions(run)] == [("rollback", 10)]


def guarded(
    folder: Path, gt: Path, planned: dict[str, Any], changes: dict[str, Any] | None = None, **arguments: Any
) -> Path:
    """Write the option file of a run of 80 steps with SpikeGuard and its arguments."""
    base = {"train": {"total_iter": 80}, "val": {"val_freq": 40}, "logger": {"save_checkpoint_freq": 20}}
    base["training_automations"] = {"SpikeGuard": arguments}
    return placed(folder, gt, planned, **merged(base, changes or {}))


def test_a_nan_is_left_out_or_undone(tmp_path: Path, write_images: Write) -> None:
    gt = write_images("gt", 11, (90, 100))
    skipping = guarded(tmp_path / "skip", gt, {"nan": [30, 31]}, skip_nonfinite=2)
    done = train(skipping)
    assert done.returncode == 0, done.stderr
    run = run_directory(skipping)
    records = step_records(run)
    assert [one["step"] for one in records if one.get("non_finite")] == [30, 31]
    assert not any(one["kind"] == "rollback" for one in decisions(run))
    assert "loss term 'spoilt_l1' of pass 'g' is nan" in " ".join(done.stdout.split())
    again = command("replay", str(run), cwd=tmp_path / "skip")
    assert again.returncode == 0, again.stderr
    assert "every loss equals" in " ".join(again.stdout.split())

    undone = guarded(tmp_path / "undo", gt, {"nan": [30]})
    done = train(undone)
    assert done.returncode == 0, done.stderr
    (made,) = [one for one in decisions(run_directory(undone)) if one["kind"] == "rollback"]
    assert (made["from_step"], made["to_step"]) == (30, 20)
    assert "loss spoilt_l1 is not finite" in made["reason"]


def test_a_leap_is_undone(tmp_path: Path, write_images: Write) -> None:
    """One step of a millionfold loss at a high rate spoils the weights; steps 62 to 64 show it."""
    gt = write_images("gt", 11, (90, 100))
    plain = {"train": {"optim_g": {"type": "SGD", "lr": 0.01}}}
    spoilt = placed(tmp_path / "spoilt", gt, {"leap": 61}, **merged(plain, {"train": {"total_iter": 80}}))
    assert train(spoilt).returncode == 0
    options = guarded(tmp_path / "leap", gt, {"leap": 61}, plain)
    done = train(options)
    assert done.returncode == 0, done.stderr
    (made,) = [one for one in decisions(run_directory(options)) if one["kind"] == "rollback"]
    assert made["to_step"] == 40
    assert "the loss spikes" in made["reason"]
    worst = max(sum(one["losses"].values()) for one in step_records(run_directory(options))[40:])
    assert worst < 1 < sum(step_records(run_directory(spoilt))[-1]["losses"].values())


def ended(done: Ended) -> str:
    return " ".join((done.stdout + done.stderr).split())


def test_it_ends_clearly_where_it_goes_wrong_too_often(tmp_path: Path, write_images: Write) -> None:
    gt = write_images("gt", 11, (90, 100))
    options = guarded(tmp_path / "up", gt, {"nan": [30]}, max_rollbacks=0)
    done = train(options)
    assert done.returncode == 1
    said = ended(done)
    assert "loss spoilt_l1 is not finite" in said
    assert "The checkpoint of step 20 is the last good one" in said
    assert "Traceback" not in said
    run = run_directory(options)
    assert json.loads((run / "checkpoints" / "latest.json").read_text())["step"] == 20
    assert json.loads((run / "training_log.json").read_text())["status"] == "failed"

    # Before the first checkpoint of its own there is that of the beginning.
    early = guarded(tmp_path / "early", gt, {"nan": [3]})
    done = train(early)
    assert done.returncode == 0, done.stderr
    (made,) = [one for one in decisions(run_directory(early)) if one["kind"] == "rollback"]
    assert (made["step"], made["to_step"], made["from_step"], made["position"]) == (0, 0, 3, 0)
    assert positions(run_directory(early)) == list(range(80 * 3))


def test_ranks_go_back_together(tmp_path: Path, write_images: Write) -> None:
    gt = write_images("gt", 11, (90, 100))
    seen: dict[int, list[dict[str, Any]]] = {}
    for ranks in (1, 2):
        folder = tmp_path / f"{ranks}"
        sizes = {
            "datasets": {"train": {"batch_size_per_gpu": 4 // ranks}},
            "val": {"val_enabled": False, "metrics": {}},
        }
        options = placed(folder, gt, {"back": [[13, 11]]}, **sizes)
        if ranks == 1:
            assert train(options).returncode == 0
        else:
            seen[ranks] = worker(options, ranks)
            assert len({rank["weights"] for rank in seen[ranks]}) == 1
    one, two = (step_records(run_directory(tmp_path / f"{ranks}" / "run.yml")) for ranks in (1, 2))
    assert [step["first_sample"] for step in one] == [step["first_sample"] for step in two]
    for mine, theirs in zip(one, two, strict=True):
        assert abs(sum(mine["losses"].values()) - sum(theirs["losses"].values())) < 1e-5
    assert [rank["progress"]["undone_steps"] for rank in seen[2]] == [3, 3]


def test_texts_come_in_another_order_too(tmp_path: Path) -> None:
    """Packed batches of a language model: the rest of the epoch is packed anew, as when it is done by hand."""
    back, hand = (tmp_path / name for name in ("back", "hand"))
    for folder, planned in ((back, {"back": [[13, 11]]}), (hand, {"stop": 10})):
        folder.mkdir()
        shutil.copy(PLUGIN, folder / "undoing.py")
        (folder / "planned.json").write_text(json.dumps(planned))
        changes = {"plugins": ["undoing"], "training_automations": {"Undoing": {}}}
        options = write_options(folder / "run.yml", text_options(write_texts(folder), **changes))
        done = train(options)
        assert done.returncode == 0, done.stderr
    resumed_in_another_order(hand / "run.yml", 1)
    mine, theirs = (run_directory(folder / "run.yml") for folder in (back, hand))
    assert latest_weights(mine) == latest_weights(theirs)
    drawn = [(one["first_sample"], one["samples"], one["losses"]) for one in step_records(mine)]
    assert drawn == [(one["first_sample"], one["samples"], one["losses"]) for one in step_records(theirs)]
    assert [(made["to_step"], made["order"]) for made in decisions(mine) if made["kind"] == "rollback"] == [(10, 1)]


def test_a_damaged_checkpoint_is_passed_over_and_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    checkpoints = Checkpoints(tmp_path, keep=3)
    for step in (5, 10):
        checkpoints.save(step, {}, lambda folder: (folder / "weights").write_bytes(b"weights") and None)
    (checkpoints.path(10) / "weights").write_bytes(b"others.")
    assert checkpoints.newest_whole_until(11) == 5
    assert "step_00000010 is damaged" in caplog.text


def test_one_checkpoint_is_old_enough_to_go_back_to(tmp_path: Path, write_images: Write) -> None:
    """One is kept, and one is written every two steps: beside it stays one that is a hundred steps older."""
    gt = write_images("gt", 11, (90, 100))
    frequencies = {"train": {"total_iter": 140}, "logger": {"save_checkpoint_freq": 2, "keep_checkpoints": 1}}
    changes = {**frequencies, "val": {"val_enabled": False, "metrics": {}}, "datasets": {"val": None}}
    options = guarded(tmp_path / "few", gt, {"nan": [131]}, changes)
    done = train(options)
    assert done.returncode == 0, done.stderr
    (made,) = [one for one in decisions(run_directory(options)) if one["kind"] == "rollback"]
    assert (made["from_step"], made["to_step"]) == (131, 98)
    said = " ".join(command("report", str(run_directory(options)), cwd=tmp_path).stdout.split())
    assert "decided by automations step 98: back from step 131 to 98, samples in another order (no. 1)" in said
