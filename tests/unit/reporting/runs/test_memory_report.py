"""The memory report, from logs as a run writes them."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from tests.unit.reporting.builders import GIB, a_progress, a_step, a_summary, a_validation
from trainauto.cli import main
from trainauto.core.decisions import KeepPlan, PlanChange, RateFactor
from trainauto.core.errors import InputError
from trainauto.core.plan import BatchShape, Plan
from trainauto.core.records import MicrobatchSplit, PeakReading
from trainauto.reporting.jsonl import JsonLines
from trainauto.reporting.text_log import TrainingLog
from trainauto.storage.resumes import CHANGED
from trainauto.storage.run_directory import RunDirectory

MIB = 2**20
SMALL, LARGE = Plan.of(batch_size=4, lq_size=48), Plan.of(batch_size=4, lq_size=64)


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """A run of 6 steps: one plan change, one lack of memory, two validations."""
    made = RunDirectory.create(tmp_path / "experiments", "demo")
    made.write_config({"name": "demo"})
    sink = JsonLines(made)
    grow = PlanChange(LARGE, "room", predicted=100 * MIB, measured=60 * MIB, predicted_before=None)
    peaks = [60, 61, 900, 104, 102, 108]
    for step, peak in enumerate(peaks, 1):
        large: dict[str, Any] = {"plan": LARGE, "drawn": LARGE, "shape": BatchShape(4, 64), "predicted": 100 * MIB}
        failed: dict[str, Any] = {"ooms": 2, "pieces": {"g": MicrobatchSplit(4, 64)}} if step == 3 else {}
        reading = PeakReading(peak * MIB, limit=200 * MIB)
        keep = KeepPlan(LARGE, "it had held for 12 periods")
        decided = {2: (grow, RateFactor(0.5, "why")), 3: (keep,)}.get(step, ())
        sink.step(a_step(step, peak=reading, **(large if step > 2 else {}), **failed), decided, a_progress(step))
    for step, size in ((3, GIB), (6, 3 * GIB)):
        more: dict[str, Any] = {"tile_px": 32, "ooms": 3} if step == 6 else {"tile_px": 0}
        sink.validation(a_validation(step, peak=PeakReading(size), **more), (), ())
    sink.close()
    return made


def foresight(device_type: str) -> dict[str, Any]:
    one = {
        "batch": 4,
        "lq_size": 64,
        "live_bytes": 110 * MIB,
        "phases": {"forward": 90 * MIB, "backward": 110 * MIB, "optimizer": 40 * MIB, "other": 20 * MIB},
        "reserved_bytes": 115 * MIB,
    }
    more = {**one, "batch": 64, "lq_size": 64}
    held = {"seconds": 2.5, "persistent_bytes": 10 * MIB, "device_type": device_type, "limit_bytes": 200 * MIB}
    return {**held, "traced": [one, more]}


def test_resumes_and_changed_options_are_listed(run: RunDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    log = TrainingLog(run.log, 10)
    log.start(a_summary())
    log.message(f"{CHANGED}train.total_iter: 12 -> 14", logging.WARNING)
    log.message(f"{CHANGED}ranks: 1 -> 2", logging.WARNING)
    log.start(a_summary(progress=a_progress(4)))
    log.start(a_summary(progress=a_progress(6)))
    log.close()
    assert main(["report", str(run.path)]) == 0
    blocks = capsys.readouterr().out.rstrip("\n").split("\n\n")
    heading, first, second = blocks[-1].replace("\n      ", " ").splitlines()
    assert heading == "resumes"
    assert first.startswith("  after step 4, 2")
    assert first.endswith(": train.total_iter: 12 -> 14; ranks: 1 -> 2")
    assert second.endswith(": no option was changed")
    assert main(["report", str(run.path), "--json"]) == 0
    resumes = json.loads(capsys.readouterr().out)["resumes"]
    assert [one["after_step"] for one in resumes] == [4, 6]
    assert resumes[0]["changes"] == ["train.total_iter: 12 -> 14", "ranks: 1 -> 2"]


@pytest.mark.parametrize("device_type", ["cpu", "cuda"])
def test_the_report_in_words(run: RunDirectory, capsys: pytest.CaptureFixture[str], device_type: str) -> None:
    run.forecast.write_text(json.dumps(foresight(device_type)))
    assert main(["report", str(run.path)]) == 0
    text = capsys.readouterr().out
    assert all(len(line) <= 80 or str(run.path) in line for line in text.splitlines())
    assert "step 3: plan stays batch_size 4, lq_size 64: it had held for 12 periods" in " ".join(text.split())
    blocks = [block.splitlines() for block in text.rstrip("\n").split("\n\n")]
    head = "\n".join(blocks[0]).replace("\n            ", " ").splitlines()  # as if never wrapped
    assert head[1].startswith("status      no end: it is still running, or was killed; last step 2")
    assert head[8:] == [
        "loss        0.2042, mean of the last steps",
        "validated   val psnr 28.5000, best 28.5000 after step 3",
        "validated   val lpips 0.2500, best 0.2500 after step 3",
    ]
    assert head[2:8] == [
        "steps       6; plan changes: 1",
        "OOM         2 passes of training, 3 tiles of validation did not fit",
        "limit       200.0 MiB",
        "last plan   batch_size 4, lq_size 64, since step 3 (4 steps)",
        "peak        typical 104.0 MiB (52.0% of the limit), highest 108.0 MiB (54.0% of the limit)",
        "speed       20 samples/s, 5 steps/s over the last 6",
    ]
    assert blocks[1][2:] == [
        "  batch 4 x 48 px      2          -   60.5 MiB   61.0 MiB      -",
        "  batch 4 x 64 px      4  100.0 MiB  104.0 MiB  108.0 MiB  -3.8%",
    ]
    whole = "100.0 MiB" if device_type == "cpu" else "110.0 MiB"
    assert blocks[2][0] == "traced before the first step: 2 plans in 2.5 s; peak of each phase"
    assert blocks[2][2].split("  ")[-2:] == [whole, "104.0 MiB"]
    assert blocks[2][3].split()[-1] == "-"  # never trained
    assert blocks[3][2].split() == ["val", "2", "2.00", "GiB", "3.00", "GiB", "32", "px", "3"]
    assert blocks[4][2].split() == ["3", "batch", "4", "x", "64", "px", "2", "g", "4", "of", "64", "px"]
    assert blocks[5][1].startswith("  step 2: plan -> batch_size 4, lq_size 64 (predicted 100.0 MiB; the plan")


def test_the_report_for_machines(run: RunDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(run.path.parent), "--json"]) == 0  # the folder of the experiment
    found = json.loads(capsys.readouterr().out)
    assert (found["steps"], found["limit_bytes"], found["foresight"]) == (6, 200 * MIB, {})
    assert found["plans"][1] == {
        "plan": LARGE.to_dict(),
        "steps": 4,
        "predicted_bytes": 100 * MIB,
        "typical_bytes": 104 * MIB,
        "highest_bytes": 108 * MIB,
        "ooms": 2,
    }
    assert found["settled"]["since_step"] == 3
    assert found["settled"]["samples_per_s"] == pytest.approx(20)
    assert [(one["step"], one["ooms"]) for one in found["shortages"]] == [(3, 2)]
    assert [(one["step"], one["predicted"], one["measured"]) for one in found["changes"]] == [(2, 100 * MIB, 60 * MIB)]


def test_a_run_without_predictions_or_readings_is_reported_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = RunDirectory.create(tmp_path, "plain")
    run.write_config({})
    sink = JsonLines(run)
    sink.step(a_step(1, peak=None), (), a_progress(1))
    sink.close()
    assert main(["report", str(run.path)]) == 0
    text = capsys.readouterr().out
    assert "OOM         none" in text
    assert "limit       none" in text
    assert "peak        not measured" in text
    assert "memory never ran out" in text
    assert "no plan changes" in text


def test_what_is_no_run_is_refused_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = RunDirectory.create(tmp_path / "experiments", "demo")
    file = tmp_path / "notes.txt"
    file.write_text("no run")
    broken = RunDirectory.create(tmp_path / "experiments", "broken")
    broken.write_config({})
    broken.records.write_text('{"step": 1}\n')
    cases = {
        tmp_path / "nowhere": "nowhere does not exist",
        file: "notes.txt is a file",
        made.path: "is no run",
        broken.path: "entry 1 cannot be read: it lacks 'samples'",
    }
    for path, words in cases.items():
        assert main(["report", str(path)]) == 2
        assert words in capsys.readouterr().err
    with pytest.raises(InputError, match=r"Experiments in it: broken, demo\."):
        RunDirectory.find(tmp_path / "experiments")  # as commands for one run ask
    made.write_config({})
    assert main(["report", str(made.path)]) == 2
    assert "has no steps yet" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("status", "reason", "line"),
    [
        ("failed", "no batch fits", "status      failed: no batch fits"),
        ("interrupted", "stopped by SIGTERM", "status      interrupted: stopped by SIGTERM"),
        ("completed", "", "status      completed"),
    ],
)
def test_the_report_says_at_the_top_how_the_run_ended(
    run: RunDirectory, capsys: pytest.CaptureFixture[str], status: str, reason: str, line: str
) -> None:
    run.log_object.write_text(json.dumps({"status": status, "reason": reason}))
    assert main(["report", str(run.path)]) == 0
    assert f"\n{line}\nsteps " in capsys.readouterr().out
    assert main(["report", str(run.path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["status"], found["reason"]) == (status, reason)


def test_a_run_that_failed_before_its_first_step_is_not_waited_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = RunDirectory.create(tmp_path, "demo")
    made.write_config({})
    made.log_object.write_text(json.dumps({"status": "failed", "reason": "one sample does not fit"}))
    assert main(["report", str(made.path)]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "has no steps; failed: one sample does not fit" in said
    assert "Ask again" not in said


def test_a_run_of_other_samples_has_no_pixels_and_no_tiles(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """B38: that of a Trainer, by its output directory."""
    made = RunDirectory.create(tmp_path / "output", "memory")
    made.write_config({"name": "memory"})
    sink, plan = JsonLines(made), Plan.of(batch_size=20)
    short = {
        "plan": plan,
        "drawn": plan,
        "shape": BatchShape(20, 1),
        "ooms": 2,
        "pieces": {"train": MicrobatchSplit(4, 1)},
    }
    sink.step(a_step(1, peak=PeakReading(GIB), **short), (), a_progress(1))
    sink.validation(a_validation(1, peak=PeakReading(GIB), tile_px=0, ooms=3), (), ())
    sink.close()
    assert main(["report", str(tmp_path / "output")]) == 0
    text = capsys.readouterr().out
    assert "2 passes of training, 3 batches of validation did not fit" in text
    assert "train 4 parts" in text
    assert " px" not in text
    assert "tiles" not in text
