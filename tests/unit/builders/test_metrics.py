"""Metrics of an option file: what is measured, which way is better, and what is left out."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.commands import tiny_options, write_options
from trainauto.builders.metrics import best_metric, build_metrics, warn_of_left_out_metrics
from trainauto.core.errors import InputError
from trainauto.options.load import LoadedOptions, load_options

PSNR, TOPIQ = {"type": "calculate_psnr", "crop_border": 2}, {"type": "calculate_topiq", "better": "higher"}
Load = Callable[..., LoadedOptions]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def loaded(best: str | None = None, **metrics: Any) -> LoadedOptions:
        changes = {"val": {"val_enabled": True, "metrics": metrics}, "logger": {"best_metric": best}}
        return load_options(write_options(tmp_path / "run.yml", tiny_options(tmp_path, **changes)))

    return loaded


def test_which_way_is_better(load: Load) -> None:
    metrics = build_metrics(
        load(psnr=PSNR, lpips={"type": "calculate_lpips", "better": "lower"}, dists={"type": "dists"})
    )
    assert {name: higher for name, (_, higher) in metrics.items()} == {"psnr": True, "lpips": False, "dists": False}


def test_a_file_that_says_the_other_way_is_refused(load: Load) -> None:
    with pytest.raises(InputError, match="of calculate_lpips, lower values are better, not 'higher'"):
        build_metrics(load(lpips={"type": "calculate_lpips", "better": "higher"}))


def test_borders_and_luma_are_no_arguments_of_metrics_of_towers(load: Load) -> None:
    with pytest.raises(InputError, match="has no argument 'crop_border'"):
        build_metrics(load(lpips={"type": "calculate_lpips", "crop_border": 4}))


def test_a_metric_that_is_left_out_is_said_and_the_next_one_decides(
    load: Load, caplog: pytest.LogCaptureFixture
) -> None:
    loaded = load(best="topiq", topiq=TOPIQ, psnr=PSNR)
    with caplog.at_level(logging.WARNING):
        warn_of_left_out_metrics(loaded)
    assert list(build_metrics(loaded)) == ["psnr"]
    assert best_metric(loaded) == "psnr"
    assert "metric 'topiq' (calculate_topiq) is not measured: its weights allow no commercial use" in caplog.text
    assert "best_metric 'topiq' is not measured: 'psnr' decides which checkpoint is the best" in caplog.text


def test_nothing_is_said_where_all_is_measured(load: Load, caplog: pytest.LogCaptureFixture) -> None:
    loaded = load(best="ssim", psnr=PSNR, ssim={"type": "calculate_ssim"})
    warn_of_left_out_metrics(loaded)
    assert (best_metric(loaded), caplog.text) == ("ssim", "")
