"""Runs that end where they no longer become better."""

import logging
from dataclasses import replace

import pytest

from tests.unit.automations.watched import measured
from trainauto.automations.early_stopping import IntelligentEarlyStopping as EarlyStopping
from trainauto.core.decisions import RunFacts, Stop
from trainauto.core.errors import InputError
from trainauto.core.plan import Plan
from trainauto.core.records import ImageScore


def ended(
    stopping: EarlyStopping, values: list[float], *, higher: bool = True, first: int = 1
) -> tuple[int, Stop] | None:
    """Return after which validation, one each hundred steps, a run ends, and how."""
    for number, value in enumerate(values, first):
        if (stop := stopping.on_validation_end(measured(100 * number, value, higher=higher))) is not None:
            assert isinstance(stop, Stop)
            return number, stop
    return None


def test_a_run_ends_once_patience_is_over_and_its_best_is_named() -> None:
    number, stop = ended(EarlyStopping(patience=3), [20, 25, 24, 25, 24.5, 26]) or pytest.fail("it goes on")
    assert number == 5
    assert stop.reason == "val/psnr has not improved in 3 validations: best 25 after step 200, now 24.5"
    assert stop.termination == "auto_no_improvement"


@pytest.mark.parametrize(
    ("arguments", "values", "number"),
    [
        ({}, [20 + step for step in range(40)], None),
        ({"min_improvement": 0.5}, [20, 20.4, 20.8, 21.1, 21.2], 5),
        ({"min_iterations": 600}, [20, 19, 19, 19, 19, 19, 19], 6),
        ({"direction": "lower"}, [20, 21, 22], 3),
        ({}, [float("nan")] * 2, 2),
        ({}, [20, float("nan"), float("inf")], None),
    ],
)
def test_what_counts_as_an_improvement(arguments: dict, values: list[float], number: int | None) -> None:  # type: ignore[type-arg]
    found = ended(EarlyStopping(patience=2, **arguments), values)
    assert (found and found[0]) == (number if values[-1] != float("inf") else 3)


def test_a_name_from_outside_harms_no_terminal() -> None:
    stopping = EarlyStopping(patience=1)
    stopping.on_validation_end(measured(1, 1.0, "a\x1b[31m\nb"))
    stop = stopping.on_validation_end(measured(2, 1.0, "a\x1b[31m\nb"))
    assert stop is not None
    assert stop.reason.startswith("val/a\\x1b[31m\\nb has not improved in 1 validation: best 1 after step 1")


def test_less_may_be_better() -> None:
    assert ended(EarlyStopping(patience=2), [3, 2, 1, 0.5], higher=False) is None
    assert ended(EarlyStopping(patience=2), [3, 4, 5], higher=False) is not None


@pytest.mark.parametrize("name", [None, "val/psnr", "psnr", "val_psnr"])
def test_only_what_is_watched_counts(name: str | None) -> None:
    stopping = EarlyStopping(monitor_metric=name, patience=2)
    assert stopping.on_validation_end(measured(100, 30.0)) is None
    for step in (100, 200, 300, 400):
        assert stopping.on_validation_end(measured(step, 1.0, dataset="val_b")) is None
        assert stopping.on_validation_end(measured(step, 0.5, "ssim")) is None


def test_a_resume_goes_on_counting_and_a_validation_made_again_counts_once() -> None:
    first = EarlyStopping(patience=3)
    assert ended(first, [20, 25, 24]) is None
    second = EarlyStopping(patience=3)
    second.load_state_dict(first.state_dict())
    assert second.on_validation_end(measured(300, 24.0)) is None
    number, _ = ended(second, [24, 24], first=4) or pytest.fail("it goes on")
    assert number == 5
    other = EarlyStopping(monitor_metric="ssim", patience=3)
    other.load_state_dict(first.state_dict())
    assert other.state_dict()["best"] is None, "the best of another metric is none of this one"


def test_what_cannot_be_is_refused_before_the_run(caplog: pytest.LogCaptureFixture) -> None:
    facts = RunFacts((), Plan.of(batch_size=1), metrics=("val/psnr",))
    EarlyStopping(monitor_metric="psnr").check(facts)
    with pytest.raises(InputError, match=r"no validation measures 'val/psnrr'[\s\S]*val/psnr"):
        EarlyStopping(monitor_metric="val/psnrr").check(facts)
    with pytest.raises(InputError, match="needs validations, and this run makes none"):
        EarlyStopping().check(RunFacts((), Plan.of(batch_size=1), metrics=()))
    for arguments, words in (
        ({"patience": 0}, "patience must be 1"),
        ({"min_improvement": -1.0}, "min_improvement must"),
    ):
        with pytest.raises(ValueError, match=words):
            EarlyStopping(**arguments)  # type: ignore[arg-type]
    with caplog.at_level(logging.WARNING):
        EarlyStopping(patience=2000).check(facts)
    assert "patience counts validations, and 2000 of them are many" in caplog.text


def test_values_that_were_measured_otherwise_are_not_compared(caplog: pytest.LogCaptureFixture) -> None:
    stopping = EarlyStopping(patience=1)
    of_four = {"measured_by": {"psnr": "psnr(crop_border=4) on 3 images"}}
    assert stopping.on_validation_end(replace(measured(1, 30.0), **of_four)) is None  # type: ignore[arg-type]
    again = EarlyStopping(patience=1)
    again.load_state_dict(stopping.state_dict())
    of_none = {"measured_by": {"psnr": "psnr(crop_border=0) on 3 images"}}
    assert again.on_validation_end(replace(measured(2, 28.0), **of_none)) is None  # type: ignore[arg-type]
    assert "val/psnr is measured by psnr(crop_border=0) on 3 images now" in caplog.text
    assert again.on_validation_end(replace(measured(3, 27.0), **of_none)) is not None  # type: ignore[arg-type]


def test_a_set_whose_images_all_say_nothing_ends_no_run() -> None:
    stopping = EarlyStopping(patience=1)
    blank = replace(
        measured(1, float("nan")), scores=(ImageScore("blank", {"psnr": float("inf")}),), left_out={"psnr": 1}
    )
    assert [stopping.on_validation_end(replace(blank, step=step)) for step in range(1, 6)] == [None] * 5
