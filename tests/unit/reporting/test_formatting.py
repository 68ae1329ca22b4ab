import pytest

from tests.unit.reporting.builders import a_progress, a_step, a_summary
from trainauto.core.plan import Plan
from trainauto.reporting.formatting import duration, in_thousands, metric_text, plan_text, short_plan, standing_line
from trainauto.reporting.step_stats import StepWindow


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


def test_small_values_do_not_read_zero() -> None:
    texts = [metric_text(value) for value in (28.5, 0.00006, -0.0004, 0.001, 0.0, 123_456.0)]
    assert texts == ["28.5000", "6e-05", "-0.0004", "0.0010", "0.0000", "1.235e+05"]
    assert [metric_text(value, "+") for value in (0.5, -0.5, 0.00006)] == ["+0.5000", "-0.5000", "+6e-05"]


def test_counts_and_plans() -> None:
    assert [in_thousands(n) for n in (999, 12_345, 1_517_571, 7_600_000_000)] == ["999", "12.3 K", "1.52 M", "7.6 G"]
    for plan, words, short in (
        (Plan.of(batch_size=16, lq_size=64), "batch 16 x 64 px", "16@64"),
        (Plan.of(batch_size=16, lq_size=64, micro_batches=2), "batch 16/2 x 64 px", "16/2@64"),
        (Plan.of(tokens=4096), "tokens 4096", "tokens 4096"),
        (Plan.of(batch_size=8, max_pixels=512, micro_batches=4), "8/4@512", "8/4@512"),
    ):
        assert (plan_text(plan), short_plan(plan)) == (words, short)


@pytest.mark.parametrize("total", [600, 100_000])
def test_what_is_drawn_again_and_again_has_one_line_whose_columns_stay(total: int) -> None:
    summary, lines = a_summary(total=total), []
    for step, data_s, step_s, batch in ((1, 0.0, 1.6, 4), (325, 0.19, 1.3, 13), (600, 0.02, 0.0123, 64)):
        window = StepWindow()
        plan = Plan.of(batch_size=batch, lq_size=48)
        rates = {"g": 0.003 / step}
        window.add(a_step(step, data_seconds=data_s, step_seconds=step_s, plan=plan, learning_rates=rates))
        lines.append(standing_line(window.figures(), summary, a_progress(step), (data_s + step_s) * (total - step), 80))
    assert max(map(len, lines)) <= 80
    assert len({line.index("loss ") for line in lines}) == 1
    assert len({line.index("data ") for line in lines}) == 1
    assert len({line.index("ETA") for line in lines[:2]}) == 1


def test_no_plan_has_more_pieces_than_samples() -> None:
    plan = Plan.of(batch_size=9, lq_size=18, micro_batches=3).changed(batch_size=2)
    assert (plan_text(plan), str(plan)) == ("batch 2/2 x 18 px", "batch_size 2, lq_size 18, in 2 micro-batches")
    assert plan.changed(batch_size=9).micro_batches == 3
