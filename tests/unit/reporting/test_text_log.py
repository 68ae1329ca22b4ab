import io
import logging
import re

import pytest

from tests.unit.reporting.builders import GIB, a_progress, a_step, a_summary, a_validation
from tests.unit.reporting.shown_runs import GROW, REASON, plain
from trainauto.core.decisions import ClipAt, Decision, KeepPlan, PlanChange, RateFactor, Stop
from trainauto.core.plan import BatchShape, Plan
from trainauto.core.records import ImageScore, PeakReading, Progress
from trainauto.core.run_events import RunEnd
from trainauto.reporting.console import PlainConsole
from trainauto.reporting.formatting import (
    decision_lines,
    prediction_lines,
)
from trainauto.reporting.plan_peaks import PlanPeaks

MIB = 2**20


def test_plain_lines_fit_80_columns_and_hold_no_control_codes() -> None:
    for summary in ({}, {"total": 500_000, "facts": (("seed", "word " * 40),)}, {"unit": "samples"}):
        text = plain(**summary)
        assert max(len(line) for line in text.splitlines()) <= 80
        assert "\x1b" not in text
        assert "\r" not in text
        assert text.isascii()


def test_the_startup_block() -> None:
    assert plain(smallest_px=120).splitlines()[:6] == [
        "run         demo, 100000 steps",
        "directory   experiments/demo/20250102_030405",
        "network     SRResNet x4, 1.52 M parameters",
        "device      cuda:0 NVIDIA H100 (79.1 GiB), fp32",
        "data        train 800 (the smallest: 120 px of the input), val 5",
        "plan        batch_size 4, lq_size 48 (4@48)",
    ]


def test_a_resumed_run_says_so_and_its_facts_come_last() -> None:
    stream = io.StringIO()
    PlainConsole(10, stream).start(a_summary(progress=a_progress(7), facts=(("seed", "3"),)))
    assert stream.getvalue().splitlines()[-2:] == [
        "seed        3",
        "resumed     after step 7, 28 samples",
    ]


def test_a_path_is_never_broken() -> None:
    path = "/".join(["experiments"] * 12)
    stream = io.StringIO()
    PlainConsole(10, stream).start(a_summary(run_directory=path))
    assert path in stream.getvalue()


def test_the_first_step_and_every_tenth_have_a_line_of_means() -> None:
    steps = [line for line in plain().splitlines() if re.match(r"\d+/", line)]
    assert steps == [
        "1/100000  loss 0.5  lr 0.0002  5 it/s  data 10%  4@48  mem 25%  ETA 5h33m",
        "10/100000  loss 0.1072  lr 0.0002  5 it/s  data 10%  4@48  mem 25%  ETA 5h33m",
        "20/100000  loss 0.03344  lr 0.0002  5 it/s  data 10%  4@48  mem 25%  ETA 5h33m",
    ]


def test_a_usual_line_of_a_long_run_fits_in_one() -> None:
    stream = io.StringIO()
    sink = PlainConsole(100, stream)
    sink.start(a_summary(total=500_000))
    stream.truncate(0)
    stream.seek(0)
    record = a_step(
        100_000,
        losses={"l1": 0.012345678},
        learning_rates={"g": 1.2345678e-4},
        plan=Plan.of(batch_size=16, lq_size=128),
        data_seconds=0.001234,
        step_seconds=0.08,
    )
    sink.step(record, (), a_progress(100_000))
    assert stream.getvalue().splitlines() == [
        "100000/500000  loss 0.01235  lr 0.00012  12.3 it/s  16@128  mem 25%  ETA 9h01m"
    ]


def test_several_terms_and_optimizers_are_named_and_wrapped_between_words() -> None:
    stream = io.StringIO()
    sink = PlainConsole(10, stream)
    sink.start(a_summary())
    stream.truncate(0)
    stream.seek(0)
    sink.step(
        a_step(
            losses={"l1": 0.25, "perceptual": 1.0, "gan": 0.5}, learning_rates={"g": 1e-4, "d": 4e-4}, skipped=("d",)
        ),
        (),
        a_progress(1),
    )
    assert stream.getvalue().splitlines() == [
        "1/100000  loss 1.75  l1 0.25  perceptual 1  gan 0.5  lr_g 0.0001  lr_d 0.0004",
        "    5 it/s  data 10%  4@48  mem 25%  ETA 5h33m  skipped 1",
    ]


def test_a_run_counted_in_samples_shows_both() -> None:
    text = plain(unit="samples", total=4000)
    assert "step 20  80/4000 samples  loss 0.03344  lr 0.0002  5 it/s  data 10%  4@48\n    mem 25%  ETA 3m16s" in text


def test_steps_that_took_no_time_have_no_eta() -> None:
    stream = io.StringIO()
    sink = PlainConsole(10, stream)
    sink.start(a_summary())
    sink.step(a_step(data_seconds=0.0, step_seconds=0.0), (), a_progress(1))
    assert "ETA" not in stream.getvalue()


def test_memory_is_shown_where_a_limit_is_known_and_so_is_its_lack() -> None:
    stream = io.StringIO()
    sink = PlainConsole(1, stream)
    sink.start(a_summary(total=4))
    sink.step(a_step(1, peak=None), (), a_progress(1))
    sink.step(a_step(2, peak=PeakReading(GIB)), (), a_progress(2))
    sink.step(a_step(3, peak=PeakReading(int(0.846 * GIB), limit=GIB), ooms=2), (), a_progress(3))
    sink.step(a_step(4), (), a_progress(4))
    assert [line.split("4@48")[1] for line in stream.getvalue().splitlines()[-4:]] == [
        "  ETA 0.6s",
        "  ETA 0.4s",
        "  mem 85%  ETA 0.2s  OOM 2",
        "  mem 25%  ETA 0.0s",
    ]


def test_waiting_for_data_is_told_from_5_percent_on() -> None:
    stream = io.StringIO()
    sink = PlainConsole(1, stream)
    sink.start(a_summary())
    sink.step(a_step(1, data_seconds=0.049, step_seconds=0.951), (), a_progress(1))
    sink.step(a_step(2, data_seconds=0.051, step_seconds=0.949), (), a_progress(2))
    assert ["data 5%" in line for line in stream.getvalue().splitlines()[-2:]] == [False, True]


def test_steps_before_the_start_are_left_out() -> None:
    stream = io.StringIO()
    PlainConsole(1, stream).step(a_step(), (), a_progress(1))
    assert stream.getvalue() == ""


@pytest.mark.parametrize(
    ("decision", "text"),
    [
        (
            GROW,
            "step 15: plan -> batch_size 16, lq_size 72 (predicted 7.00 GiB; the plan before: measured 5.91 GiB): "
            + REASON,
        ),
        (PlanChange(Plan.of(batch_size=2), "asked"), "step 15: plan -> batch_size 2: asked"),
        (
            PlanChange(
                Plan.of(batch_size=2), "asked", predicted=45 * MIB, measured=50 * MIB, predicted_before=49 * MIB
            ),
            "step 15: plan -> batch_size 2 (predicted 45.0 MiB; the plan before: predicted 49.0 MiB, "
            "measured 50.0 MiB, off by -2.0%): asked",
        ),
        (
            KeepPlan(Plan.of(batch_size=4, lq_size=48), "it had held"),
            "step 15: plan stays batch_size 4, lq_size 48: it had held",
        ),
        (RateFactor(0.70711, "half the batch"), "step 15: learning rate -> 0.7071 x schedule: half the batch"),
        (ClipAt(2.5, "spikes"), "step 15: gradients clipped at norm 2.5: spikes"),
        (ClipAt(2.5, "spikes", pass_name="d"), "step 15: gradients clipped at norm 2.5 in pass d: spikes"),
        (ClipAt(None, "calm"), "step 15: clipping off: calm"),
        (Stop("loss is low"), "step 15: stop: loss is low"),
    ],
)
def test_a_decision_is_told_with_its_reason(decision: Decision, text: str) -> None:
    assert decision_lines(15, decision, 0) == [text]
    wrapped = decision_lines(15, decision, 80)
    assert " ".join(line.strip() for line in wrapped) == text
    assert max(len(line) for line in wrapped) <= 80


def test_what_was_predicted_of_plans_stands_at_the_end() -> None:
    """Of a plan the prediction before its first step counts; peaks of cut or failed steps are not the plan's."""
    stream = io.StringIO()
    sink = PlainConsole(100, stream)
    sink.start(a_summary())
    larger = Plan.of(batch_size=4, lq_size=64)
    peaks = [(None, 90, {}), (100, 100, {}), (100, 104, {}), (100, 130, {}), (99, 500, {"ooms": 1})]
    for step, (predicted, peak, more) in enumerate(peaks, 1):
        plan = {"plan": larger, "drawn": larger, "shape": BatchShape(4, 64)} if step > 1 else {}
        sink.step(
            a_step(step, predicted=predicted and predicted * MIB, peak=PeakReading(peak * MIB), **plan, **more),
            (),
            a_progress(step),
        )
    sink.end(RunEnd("completed", "done", a_progress(5)))
    lines = stream.getvalue().splitlines()
    at = lines.index("predicted against measured (of whole steps: the typical peak, and the highest)")
    assert lines[at + 1 : at + 4] == [
        "  plan             steps  predicted   measured    highest  error",
        "  batch 4 x 48 px      1          -   90.0 MiB   90.0 MiB      -",
        "  batch 4 x 64 px      4  100.0 MiB  104.0 MiB  130.0 MiB  -3.8%",
    ]
    assert lines[at + 4].startswith("completed")


def test_a_long_table_of_predictions_holds_the_plans_trained_longest() -> None:
    peaks = PlanPeaks()
    for samples in range(1, 13):
        plan = Plan.of(batch_size=samples, lq_size=48)
        for step in range(1 if samples % 3 else 2):
            peaks.add(a_step(step + 1, plan=plan, drawn=plan, shape=BatchShape(samples, 48), predicted=GIB))
    lines = prediction_lines(peaks, 80)
    assert len(lines) == 11
    plans = [f"batch {samples} x 48 px" for samples in (1, 2, 3, 4, 5, 6, 9, 12)]
    assert [line[2:19].rstrip() for line in lines[2:-1]] == plans
    assert lines[-1] == "  and 4 more plans, trained for fewer steps"
    assert max(len(line) for line in lines) <= 80


def test_the_validation_table() -> None:
    stream = io.StringIO()
    PlainConsole(1, stream).validation(a_validation(), (), [Stop("good enough")])
    assert stream.getvalue().splitlines() == [
        "validation of val after step 10: 1 image in 3.2s",
        "  metric    value  bicubic     gain",
        "  psnr    28.5000  28.0000  +0.5000",
        "  lpips    0.2500   0.3000  +0.0500",
        "step 10: stop: good enough",
    ]


def test_the_validation_table_without_bicubic_and_in_tiles() -> None:
    stream = io.StringIO()
    sink = PlainConsole(1, stream)
    scores = (ImageScore("a", {}), ImageScore("b", {}))
    sink.validation(a_validation(baseline={}, scores=scores, seconds=75.0, tile_px=64), (), ())
    sink.validation(a_validation(baseline={"psnr": 28.0}, peak=PeakReading(3 * GIB)), (), ())
    assert stream.getvalue().splitlines() == [
        "validation of val after step 10: 2 images in 1m15s, tiles of 64 px",
        "  metric    value",
        "  psnr    28.5000",
        "  lpips    0.2500",
        "validation of val after step 10: 1 image in 3.2s, peak 3.00 GiB",
        "  metric    value  bicubic     gain",
        "  psnr    28.5000  28.0000  +0.5000",
        "  lpips    0.2500        -        -",
    ]


def test_the_last_block() -> None:
    stream = io.StringIO()
    end = RunEnd("failed", "disk full", Progress(3, 12, 0, 0, 7200.0), "checkpoints/2", (("peak", "5.9 GiB"),))
    PlainConsole(1, stream).end(end)
    assert stream.getvalue().splitlines() == [
        "error: failed      disk full",
        "       trained     3 steps, 12 samples in 2h00m",
        "       checkpoint  checkpoints/2",
        "       peak        5.9 GiB",
    ]


def test_a_plain_console_survives_letters_its_encoding_lacks() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii", newline="\n")
    PlainConsole(1, stream).message("größer", logging.WARNING)
    stream.seek(0)
    assert stream.read() == "warning: gr\\xf6\\xdfer\n"
