"""What tells runs apart."""

import math
from pathlib import Path
from typing import Any

import pytest

from trainauto.core.errors import InputError
from trainauto.reporting.runs.comparison import compare, differing_options, find_runs, winners
from trainauto.reporting.runs.figures import RunFigures
from trainauto.reporting.runs.validation_totals import Metric, Value
from trainauto.storage.run_directory import RunDirectory


def a_run(name: str = "a", *metrics: Metric, **options: Any) -> RunFigures:
    dotted = {key.replace("__", "."): value for key, value in options.items()}
    return RunFigures(f"/experiments/{name}/20260101_101010", dotted, metrics=metrics)


def psnr(value: float, *, higher: bool | None = True, best: float | None = None) -> Metric:
    return Metric("val", "psnr", higher, Value(value, 20), Value(best, 10) if best is not None else None)


def test_options_that_differ_and_those_that_one_run_lacks() -> None:
    first = {"name": "a", "scale": 2, "lr": 1e-3, "tensorboard": "../tb/1", "warmup": None, "amp": True}
    second = {"name": "b", "scale": 2, "lr": 1e-4, "tensorboard": "../tb/2", "decay": 0.1}
    assert differing_options([first, second]) == {"lr": [1e-3, 1e-4], "amp": [True, None], "decay": [None, 0.1]}
    assert differing_options([first, first, second])["lr"] == [1e-3, 1e-3, 1e-4]
    assert differing_options([first, {**first, "name": "other"}]) == {}


def test_what_is_better_is_as_the_logs_say() -> None:
    values = [Value(1.0), None, Value(3.0), Value(3.0), Value(math.nan)]
    assert winners(values, better_is_higher=True) == [2, 3]
    assert winners(values, better_is_higher=False) == [0]
    assert winners(values, better_is_higher=None) == []
    assert winners([Value(1.0), None], better_is_higher=True) == []
    assert winners([Value(1.0), Value(1.0)], better_is_higher=True) == []
    assert winners([Value(math.nan), Value(math.nan)], better_is_higher=True) == []
    assert winners([Value(math.inf), Value(40.0)], better_is_higher=True) == [0]


def test_metrics_run_beside_run() -> None:
    loss = Metric("val", "loss", False, Value(2.0, 20))
    one, other = compare([a_run("a", psnr(28.0, best=31.0)), a_run("b", psnr(29.0, best=30.0), loss)]).metrics
    assert (one.name, one.better_is_higher, one.best_last, one.best_best) == ("psnr", True, [1], [0])
    assert one.best == [Value(31.0, 10), Value(30.0, 10)]
    assert (other.name, other.last, other.best_last) == ("loss", [None, Value(2.0, 20)], [])


def test_logs_that_disagree_on_what_is_better_make_no_run_the_best() -> None:
    (metric,) = compare([a_run("a", psnr(28.0)), a_run("b", psnr(29.0, higher=False))]).metrics
    assert (metric.better_is_higher, metric.best_last) == (None, [])
    (metric,) = compare([a_run("a", psnr(28.0)), a_run("b", psnr(29.0, higher=None))]).metrics
    assert (metric.better_is_higher, metric.best_last) == (True, [1])


@pytest.mark.parametrize(
    ("options", "differs"),
    [
        ({"datasets__val__dataroot_gt": "other"}, True),
        ({"datasets__val__cache_dir": "other"}, False),
        ({"datasets__train__dataroot_gt": "other"}, False),
        ({"val__metrics__psnr__crop_border": 4}, True),
        ({"val__metrics__ssim__crop_border": 4}, False),
        ({"datasets__test__name": "val", "datasets__test__dataroot_gt": "other"}, True),
        ({"datasets__test__name": "val", "datasets__test__dataroot_gt": "gt"}, False),
    ],
)
def test_figures_of_other_data_are_told(options: dict[str, Any], differs: bool) -> None:
    """Sets go by their names, wherever they stand in the file."""
    gt = {"datasets__val__dataroot_gt": "gt"}
    runs = [a_run("a", psnr(28.0), **gt), a_run("b", psnr(29.0), **{**gt, **options})]
    assert compare(runs).metrics[0].is_of_other_data == differs


def test_a_run_that_was_not_validated_is_of_no_other_data() -> None:
    runs = [a_run("a", psnr(28.0), datasets__val__dataroot_gt="gt"), a_run("b")]
    assert not compare(runs).metrics[0].is_of_other_data


def test_the_same_run_twice_is_refused(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path, "demo")
    run.write_config({})
    other = RunDirectory.create(tmp_path, "other")
    other.write_config({})
    assert [found.path.name for found in find_runs([tmp_path / "demo", other.path])] == [run.path.name, other.path.name]
    with pytest.raises(InputError) as caught:
        find_runs([tmp_path / "demo", other.path, run.path])
    message = caught.value.problems[0].message
    assert message.startswith(f"{tmp_path / 'demo'} and {run.path} are the same run, ")


def test_a_trainers_folder_within_its_run_is_the_same_run(tmp_path: Path) -> None:
    output = RunDirectory.create(tmp_path, "digits")
    output.write_config({"task": "multitask"})
    start = RunDirectory.create(output.path, "memory")
    start.write_config({})
    start.records.write_text("")
    with pytest.raises(InputError, match="are the same run"):
        find_runs([output.path, output.path / "memory"])
