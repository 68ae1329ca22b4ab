"""What the console says at the end of a run."""

import io
import json
import math
from pathlib import Path

from tests.unit.reporting.builders import GIB, a_progress, a_step, a_summary, a_validation
from trainauto.core.plan import Plan
from trainauto.core.record_json import validation_to_dict
from trainauto.core.records import PeakReading
from trainauto.core.run_events import RunEnd
from trainauto.reporting.console import PlainConsole
from trainauto.reporting.final_table import FinalMetrics
from trainauto.storage.run_directory import RunDirectory

END = RunEnd("completed", "all steps", a_progress(3), "checkpoints/3", (("curves", "tensorboard"),))


def ended(**summary: object) -> list[str]:
    stream = io.StringIO()
    sink = PlainConsole(100, stream)
    sink.start(a_summary(**summary))
    for step, psnr in ((1, 28.5), (2, 29.25), (3, 29.0)):
        sink.step(a_step(step, ooms=int(step == 2)), (), a_progress(step))
        sink.validation(a_validation(step, metrics={"psnr": psnr, "lpips": 0.25 + step / 100}), (), ())
    stream.seek(0)
    stream.truncate()
    sink.end(END)
    return stream.getvalue().splitlines()


def test_metrics_beside_the_baseline_then_how_it_ended_its_plan_its_memory_and_the_way_on() -> None:
    assert ended() == [
        "validated: the last value of each metric, and the best",
        "  metric     last     best  after step  bicubic     gain",
        "  psnr    29.0000  29.2500           2  28.0000  +1.0000",
        "  lpips    0.2800   0.2600           1   0.3000  +0.0200",
        "completed   all steps",
        "trained     3 steps, 12 samples in 0.6s",
        "checkpoint  checkpoints/3",
        "plan        batch_size 4, lq_size 48 (4@48)",
        "memory      typical peak 1.00 GiB (25%), highest 1.00 GiB (25%) of 4.00 GiB",
        "OOM         1 pass of training did not fit",
        "curves      tensorboard",
    ]


def test_of_a_resumed_run_metrics_are_those_of_its_whole_log(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    logged = a_validation(1, metrics={"psnr": 30.0, "lpips": 0.5})
    run.validations.write_text(json.dumps(validation_to_dict(logged)) + "\n")
    lines = ended(progress=a_progress(1), run_directory=str(tmp_path))
    assert lines[2].split() == ["psnr", "29.0000", "30.0000", "1", "28.0000", "+1.0000"]
    assert "OOM         1 pass of training did not fit, since it was resumed" in lines


def test_a_best_that_was_measured_otherwise_is_none() -> None:
    kept = FinalMetrics()
    for step, psnr, border in ((1, 30.0, 4), (2, 28.0, 0), (3, 27.0, 0)):
        kept.add(a_validation(step, metrics={"psnr": psnr}, measured_by={"psnr": f"psnr(crop_border={border})"}))
    assert kept.lines(80)[2].split()[1:4] == ["27.0000", "28.0000", "2"]


def test_sets_without_baseline_and_metrics_that_nobody_can_judge() -> None:
    kept = FinalMetrics()
    kept.add(a_validation(1, dataset="eval", metrics={"loss": math.nan, "own": 3.0}, baseline={}))
    kept.add(a_validation(2, dataset="val"))
    assert kept.lines(80)[1:] == [
        "  metric        last     best  after step  bicubic     gain",
        "  eval loss      nan        -           -        -        -",
        "  eval own    3.0000        -           -        -        -",
        "  val psnr   28.5000  28.5000           2  28.0000  +0.5000",
        "  val lpips   0.2500   0.2500           2   0.3000  +0.0500",
    ]
    assert FinalMetrics().lines(80) == []


def test_memory_is_that_of_the_last_plan_and_left_out_where_none_was_read() -> None:
    for peak, memory in ((PeakReading(GIB), ["memory      typical peak 1.00 GiB, highest 1.00 GiB"]), (None, [])):
        stream = io.StringIO()
        sink = PlainConsole(100, stream)
        sink.start(a_summary())
        sink.step(a_step(1, peak=PeakReading(9 * GIB), plan=Plan.of(batch_size=9, lq_size=48)), (), a_progress(1))
        sink.step(a_step(2, peak=peak), (), a_progress(2))
        sink.end(END)
        lines = stream.getvalue().splitlines()
        assert [line for line in lines if line.startswith("memory")] == memory
        assert lines[-2] == "OOM         none"
