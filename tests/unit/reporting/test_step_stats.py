import math

import pytest

from tests.unit.reporting.builders import GIB, a_step, a_validation
from trainauto.core.records import PeakReading
from trainauto.reporting.step_stats import StepWindow, gain_over_baseline


def test_means_rates_and_peaks_over_a_window() -> None:
    window = StepWindow()
    peaks = [
        PeakReading(3 * GIB, 4 * GIB, None, 8 * GIB, 1, 2 * GIB),
        PeakReading(GIB, 5 * GIB, 6 * GIB, 8 * GIB, 2, 7),
    ]
    window.add(a_step(1, losses={"l1": 1.0}, data_seconds=0.3, step_seconds=0.7, peak=peaks[0], skipped=("g",), ooms=2))
    window.add(a_step(2, losses={"l1": 3.0, "gan": 5.0}, data_seconds=0.1, step_seconds=0.9, peak=peaks[1]))
    window.add(a_step(3, losses={"l1": 2.0}, data_seconds=0.2, step_seconds=0.8, peak=None, ooms=1))
    figures = window.figures()
    assert figures.losses == {"l1": 2.0, "gan": 5.0}
    assert figures.loss == 7.0
    assert figures.steps_per_s == pytest.approx(1.0)
    assert figures.samples_per_s == pytest.approx(4.0)
    assert figures.waiting == pytest.approx(0.2)
    assert (figures.data_s, figures.step_s) == (pytest.approx(0.2), pytest.approx(0.8))
    assert figures.peak == PeakReading(3 * GIB, 5 * GIB, 6 * GIB, 8 * GIB, 3, current=7)
    assert (figures.last.step, figures.skipped, figures.ooms) == (3, 1, 3)
    assert figures.memory_share == pytest.approx(3 / 8)


@pytest.mark.parametrize("peak", [None, PeakReading(GIB)])
def test_without_a_limit_there_is_no_share_of_it(peak: PeakReading | None) -> None:
    window = StepWindow()
    window.add(a_step(peak=peak))
    assert window.figures().memory_share is None


def test_a_cleared_window_has_no_figures() -> None:
    window = StepWindow()
    window.add(a_step())
    window.clear()
    assert len(window) == 0
    with pytest.raises(ValueError, match="no step"):
        window.figures()


def test_steps_without_time_have_no_rate() -> None:
    window = StepWindow()
    window.add(a_step(data_seconds=0.0, step_seconds=0.0))
    figures = window.figures()
    assert (figures.steps_per_s, figures.samples_per_s, figures.waiting) == (0.0, 0.0, 0.0)


def test_a_gain_is_positive_where_better() -> None:
    record = a_validation()
    assert gain_over_baseline(record, "psnr") == pytest.approx(0.5)
    assert gain_over_baseline(record, "lpips") == pytest.approx(0.05)
    assert gain_over_baseline(a_validation(baseline={}), "psnr") is None
    identical = a_validation(metrics={"psnr": math.inf}, baseline={"psnr": math.inf})
    assert gain_over_baseline(identical, "psnr") == 0.0
    assert gain_over_baseline(a_validation(metrics={"psnr": math.inf}), "psnr") == math.inf
