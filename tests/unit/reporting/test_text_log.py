import io
import logging
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.unit.reporting.builders import GIB, a_progress, a_step, a_summary, a_validation
from trainauto.core.decisions import ClipAt, Decision, KeepPlan, PlanChange, RateFactor, Stop
from trainauto.core.plan import BatchShape, Plan
from trainauto.core.records import ImageScore, PeakReading, Progress
from trainauto.core.run_events import DETAIL, RunEnd
from trainauto.reporting.console import LiveConsole, PlainConsole, console_sink
from trainauto.reporting.formatting import (
    decision_lines,
    duration,
    in_thousands,
    plan_text,
    prediction_lines,
    standing_line,
)
from trainauto.reporting.plan_peaks import PlanPeaks
from trainauto.reporting.reporter import Reporter
from trainauto.reporting.step_stats import StepWindow
from trainauto.reporting.text_log import TextSink, TrainingLog

REASON = "the peak of 5.91 GiB lies below the band of 80 to 85 % of 79.1 GiB, so there is room for larger crops"
MIB = 2**20
GROW = PlanChange(Plan.of(batch_size=16, lq_size=72), REASON, predicted=7 * GIB, measured=int(5.91 * GIB))


def run_through(sink: TextSink, first: int = 1, last: int = 20, **summary: Any) -> None:
    sink.start(a_summary(progress=a_progress(first - 1), **summary))
    for step in range(first, last + 1):
        sink.step(a_step(step), [GROW] if step == 15 else (), a_progress(step))
    sink.validation(a_validation(20), (), ())
    sink.message("saved checkpoint 20", logging.INFO)
    sink.end(RunEnd("completed", "all 20 steps done", a_progress(20), checkpoint="checkpoints/20"))
    sink.close()


def plain(**summary: Any) -> str:
    stream = io.StringIO()
    run_through(PlainConsole(10, stream), **summary)
    return stream.getvalue()


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
        "plan        batch_size 4, lq_size 48 (4x48)",
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
        "1/100000  loss 0.5  lr 0.0002  5 it/s  data 10%  4x48  mem 25%  ETA 5h33m",
        "10/100000  loss 0.1072  lr 0.0002  5 it/s  data 10%  4x48  mem 25%  ETA 5h33m",
        "20/100000  loss 0.03344  lr 0.0002  5 it/s  data 10%  4x48  mem 25%  ETA 5h33m",
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
        "100000/500000  loss 0.01235  lr 0.00012  12.3 it/s  16x128  mem 25%  ETA 9h01m"
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
        "    5 it/s  data 10%  4x48  mem 25%  ETA 5h33m  skipped 1",
    ]


def test_a_run_counted_in_samples_shows_both() -> None:
    text = plain(unit="samples", total=4000)
    assert "step 20  80/4000 samples  loss 0.03344  lr 0.0002  5 it/s  data 10%  4x48\n    mem 25%  ETA 3m16s" in text


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
    assert [line.split("4x48")[1] for line in stream.getvalue().splitlines()[-4:]] == [
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
        "  plan  steps  predicted   measured    highest  error",
        "  4x48      1          -   90.0 MiB   90.0 MiB      -",
        "  4x64      4  100.0 MiB  104.0 MiB  130.0 MiB  -3.8%",
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
    assert [line.split()[0] for line in lines[2:-1]] == [
        "1x48",
        "2x48",
        "3x48",
        "4x48",
        "5x48",
        "6x48",
        "9x48",
        "12x48",
    ]
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
        "error: trained     3 steps, 12 samples in 2h00m",
        "error: checkpoint  checkpoints/2",
        "error: peak        5.9 GiB",
    ]


def test_training_log_has_the_same_lines_with_timestamps_unwrapped(tmp_path: Path) -> None:
    path = tmp_path / "training.log"
    run_through(TrainingLog(path, 10))
    stamped = path.read_text().splitlines()
    assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} ", line) for line in stamped)
    bare = [line[24:] for line in stamped]
    stream = io.StringIO()
    run_through(PlainConsole(10, stream, width=0))
    assert bare == stream.getvalue().splitlines()
    assert any(REASON in line for line in bare)


def test_training_log_is_opened_by_its_first_line(tmp_path: Path) -> None:
    sink = TrainingLog(tmp_path / "training.log", 10)
    assert not (tmp_path / "training.log").exists()
    sink.close()


def test_training_log_is_appended_to_and_closed(tmp_path: Path) -> None:
    path = tmp_path / "training.log"
    for text in ("first\nsecond", "third größer"):
        sink = TrainingLog(path, 10)
        sink.message(text, logging.WARNING)
        sink.close()
    assert [line[24:] for line in path.read_text(encoding="utf-8").splitlines()] == [
        "WARNING first",
        "WARNING second",
        "WARNING third größer",
    ]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_training_log_on_a_full_disk_raises() -> None:
    sink = TrainingLog(Path("/dev/full"), 10)
    with pytest.raises(OSError, match="No space left"):
        sink.message("hello", logging.INFO)
    with pytest.raises(OSError, match="No space left"):
        sink.close()


def test_a_plain_console_survives_letters_its_encoding_lacks() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii", newline="\n")
    PlainConsole(1, stream).message("größer", logging.WARNING)
    stream.seek(0)
    assert stream.read() == "warning: gr\\xf6\\xdfer\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch) -> LiveConsole:
    monkeypatch.setenv("TERM", "xterm")
    return LiveConsole(10, Console(file=Terminal(), force_terminal=True, width=80, height=20, legacy_windows=False))


def shown_by(sink: LiveConsole) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", sink.console.file.getvalue())  # type: ignore[attr-defined]


def is_given_back(sink: LiveConsole) -> bool:
    cursor_shown = "\x1b[?25h"
    return cursor_shown in sink.console.file.getvalue()  # type: ignore[attr-defined]


def test_a_terminal_gets_a_bar_and_lines_above_it(live: LiveConsole, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainauto.reporting.console._REDRAW_S", 0.0)
    run_through(live, total=20)
    shown = shown_by(live)
    assert "network     SRResNet x4" in shown
    assert shown.count("plan -> batch_size 16") == 1
    assert " 7/20  loss 0.0714   5 it/s       data 10%  4x48   mem 25%  ETA 2.6s" in shown
    assert "saved checkpoint 20" in shown
    assert shown.rstrip().endswith("checkpoint  checkpoints/20")
    assert is_given_back(live)


def test_a_terminal_is_redrawn_seldom_and_ends_with_the_last_step(live: LiveConsole) -> None:
    run_through(live, total=20)
    assert "7/20" not in shown_by(live)
    assert "20/20" in shown_by(live)


def test_a_terminal_is_given_back_when_the_run_breaks_off(live: LiveConsole) -> None:
    live.start(a_summary())
    live.message("oops", logging.ERROR)
    live.close()
    live.close()
    assert is_given_back(live)
    assert "error: oops" in shown_by(live)


def test_the_console_suits_its_stream(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(console_sink(10, Terminal()), LiveConsole)
    assert isinstance(console_sink(10, io.StringIO()), PlainConsole)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(console_sink(10, Terminal()), PlainConsole)
    monkeypatch.setenv("FORCE_COLOR", "1")
    sink = console_sink(10)
    sink.message("hello", logging.INFO)
    assert capsys.readouterr().out == "hello\n"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0s"),
        (9.94, "9.9s"),
        (59.4, "59s"),
        (59.6, "1m00s"),
        (3599.7, "1h00m"),
        (7980, "2h13m"),
        (273600, "3d04h"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_counts_and_plans() -> None:
    assert [in_thousands(n) for n in (999, 12_345, 1_517_571, 7_600_000_000)] == ["999", "12.3 K", "1.52 M", "7.6 G"]
    assert plan_text(Plan.of(batch_size=16, lq_size=64, micro_batches=2)) == "16/2x64"
    assert plan_text(Plan.of(tokens=4096)) == "tokens 4096"
    assert plan_text(Plan.of(batch_size=8, max_pixels=512, micro_batches=4)) == "8/4x512"


def test_what_is_said_is_wrapped_on_the_console_only(tmp_path: Path) -> None:
    text = "DynamicBatchSizeOptimizer: " + ", ".join(f"min_batch_size {number} (preset)" for number in range(6))
    stream, log = io.StringIO(), TrainingLog(tmp_path / "training.log", 1)
    console = PlainConsole(1, stream)
    for sink in (console, log):
        sink.message(text, logging.INFO)
        sink.start(a_summary())
        sink.message(text, logging.WARNING)
        sink.message(f"to be copied:\n{text}", logging.INFO)
        sink.close()
    lines = stream.getvalue().splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("run "))
    warning = next(number for number, line in enumerate(lines) if line.startswith("warning: "))
    for shown, said in ((lines[:start], text), (lines[warning : warning + 3], f"warning: {text}")):
        assert len(shown) == 3
        assert all(len(line) <= 80 for line in shown)
        assert " ".join(" ".join(shown).split()) == said
    assert lines[-2:] == ["to be copied:", text]
    kept = (tmp_path / "training.log").read_text()
    assert kept.count(text) == 3
    assert f" WARNING {text}\n" in kept


def test_details_are_for_the_log_alone(tmp_path: Path, live: LiveConsole) -> None:
    stream, log = io.StringIO(), TrainingLog(tmp_path / "training.log", 1)
    plain_console = PlainConsole(1, stream)
    logger = logging.getLogger("trainauto.test")
    with Reporter([log, plain_console, live]):
        logger.log(DETAIL, "a bound and where it comes from")
        logger.debug("of no use")
        logger.info("of use")
    assert [line[24:] for line in (tmp_path / "training.log").read_text().splitlines()] == [
        "a bound and where it comes from",
        "of use",
    ]
    assert stream.getvalue() == "of use\n"
    assert shown_by(live).strip() == "of use"


@pytest.mark.parametrize("total", [600, 100_000])
def test_what_is_drawn_again_and_again_has_one_line_whose_columns_stay(total: int) -> None:
    summary, found = a_summary(total=total), []
    for step, data_s, step_s, batch in ((1, 0.0, 1.6, 4), (325, 0.19, 1.3, 13), (600, 0.02, 0.0123, 64)):
        window = StepWindow()
        plan = Plan.of(batch_size=batch, lq_size=48)
        rates = {"g": 0.003 / step}
        window.add(a_step(step, data_seconds=data_s, step_seconds=step_s, plan=plan, learning_rates=rates))
        found.append(standing_line(window.figures(), summary, a_progress(step), 80))
    assert max(map(len, found)) <= 80
    assert len({line.index("loss ") for line in found}) == 1
    assert len({line.index("data ") for line in found}) == 1
    assert len({line.index("ETA") for line in found[:2]}) == 1


def test_no_plan_has_more_pieces_than_samples() -> None:
    plan = Plan.of(batch_size=9, lq_size=18, micro_batches=3).changed(batch_size=2)
    assert (plan_text(plan), str(plan)) == ("2/2x18", "batch_size 2, lq_size 18, in 2 micro-batches")
    assert plan.changed(batch_size=9).micro_batches == 3
