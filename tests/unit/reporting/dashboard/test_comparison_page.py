"""The page of several runs: over steps where a step is worth the same in all, else over samples."""

from typing import Any

from tests.unit.reporting.builders import a_step, a_validation
from trainauto.core.plan import BatchShape, Plan
from trainauto.core.record_json import validation_to_dict
from trainauto.reporting.dashboard.comparison_page import comparison_page
from trainauto.reporting.dashboard.run_history import RunHistory
from trainauto.reporting.runs.comparison import compare
from trainauto.reporting.runs.figures import RunFigures


def a_run(
    name: str,
    batch_size: int,
    psnr: float,
    steps: int = 10,
    losses: tuple[str, ...] = ("l1",),
    metrics: tuple[str, ...] = ("psnr",),
) -> tuple[RunHistory, RunFigures]:
    history = RunHistory()
    plan = Plan.of(batch_size=batch_size, lq_size=48)
    for step in range(1, steps + 1):
        shape = BatchShape(batch_size, 48, images=batch_size)
        history.step(a_step(step, plan=plan, drawn=plan, shape=shape, losses=dict.fromkeys(losses, psnr / step)), None)
    history.validation(validation_to_dict(a_validation(5, metrics=dict.fromkeys(metrics, psnr))))
    options = {"train.lr": psnr}
    return history, RunFigures(f"experiments/{name}/1", options, "completed", metrics=list(history.metrics.values()))


def shown(*batches: int, steps: tuple[int, ...] = (10, 10, 10)) -> dict[str, Any]:
    each = enumerate(zip(batches, steps, strict=False))
    runs = [a_run(f"run{number}", batch, 28 + number, last) for number, (batch, last) in each]
    return page_of_runs(*runs)


def page_of_runs(*runs: tuple[RunHistory, RunFigures]) -> dict[str, Any]:
    return comparison_page(compare([figures for _, figures in runs]), [history for history, _ in runs], [], 0.0)


def blocks(page: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {block["id"]: block for section in page["sections"] for block in section["blocks"]}


def series(page: dict[str, Any], ident: str) -> list[dict[str, Any]]:
    return list(blocks(page)[ident]["series"])


def charts(page: dict[str, Any], start: str) -> dict[str, list[int]]:
    """Return which runs the charts show whose ids begin so, by title."""
    found = [block for ident, block in blocks(page).items() if ident.startswith(start)]
    return {block["title"]: [one["run"] for one in block["series"]] for block in found}


def test_like_batches_are_compared_over_steps() -> None:
    page = shown(4, 4)
    assert (page["x_name"], page["title"]) == ("step", "run0 against run1")
    assert [one["x"] for one in series(page, "loss")] == [list(range(1, 11))] * 2
    assert [one["run"] for one in series(page, "loss")] == [0, 1]


def test_runs_of_another_length_are_compared_over_steps_all_the_same() -> None:
    assert shown(4, 4, steps=(10, 7))["x_name"] == "step"


def test_unlike_batches_are_compared_over_samples() -> None:
    page = shown(4, 8, 2)
    assert page["x_name"] == "sample"
    assert "over samples" in page["subtitle"]
    assert [one["x"][-1] for one in series(page, "loss")] == [40, 80, 20]
    assert [one["x"] for one in series(page, "metric-0")] == [[20], [40], [10]]  # after step 5
    assert [one["y"] for one in series(page, "plan-batch_size")] == [[4, 4], [8, 8], [2, 2]]


def test_the_best_is_marked_and_what_differs_is_told() -> None:
    page = shown(4, 4)
    tables = blocks(page)
    assert tables["options"]["rows"] == [["train.lr", "28", "29"]]
    metrics = tables["metrics"]
    assert [0, 2] in metrics["marked"]
    assert metrics["rows"][0] == ["val psnr, higher is better", "28.0000", "29.0000"]
    assert page["tiles"][0]["value"] == "run1"


def test_a_run_without_steps_has_its_place() -> None:
    history, figures = a_run("long", 4, 28.0)
    empty = RunFigures("experiments/short/1", {}, "failed", "no room")
    page = page_of_runs((history, figures), (RunHistory(), empty))
    assert [one["run"] for one in series(page, "loss")] == [0]
    assert page["title"] == "long against short"
    assert page["sections"][0]["lead"] == ""  # one that has nothing yet takes nothing away


def test_losses_and_metrics_that_one_run_alone_has_are_named_and_left_out() -> None:
    plain = a_run("plain", 4, 28.0, metrics=("psnr", "dists"))
    gan = a_run("gan", 4, 29.0, losses=("l1", "gan", "percep"), metrics=("psnr", "lpips"))
    page = page_of_runs(plain, gan)
    assert charts(page, "term-") == {"Loss: l1": [0, 1]}
    assert charts(page, "metric-") == {"Validation: val psnr": [0, 1]}
    assert "loss" not in blocks(page)  # sums of unlike losses
    assert blocks(page)["metrics"]["rows"][0][0] == "val psnr, higher is better"
    assert "lpips" not in str(blocks(page)["metrics"])
    assert page["sections"][0]["lead"] == (
        "Not compared, since only one run has it: loss gan (gan), loss percep (gan), metric val dists (plain), "
        "metric val lpips (gan). The sum of the losses is not compared: it is not of the same losses in all runs."
    )


def test_like_losses_are_compared_one_by_one_and_as_their_sum() -> None:
    runs = [a_run(name, 4, 28.0, losses=("l1", "gan")) for name in ("one", "two")]
    page = page_of_runs(*runs)
    assert charts(page, "term-") == {"Loss: gan": [0, 1], "Loss: l1": [0, 1]}
    assert series(page, "loss")[0]["y"][0] == 56
    assert series(page, "term-0")[0]["y"][0] == 28
    assert page["sections"][0]["lead"] == ""


def test_what_two_of_three_runs_have_is_compared() -> None:
    runs = [a_run(str(number), 4, 28.0, losses=losses) for number, losses in enumerate([("l1",), ("l2",), ("l1",)])]
    page = page_of_runs(*runs)
    assert charts(page, "term-") == {"Loss: l1": [0, 2]}
    assert "has it: loss l2 (1). The sum" in page["sections"][0]["lead"]


def test_a_sum_of_other_losses_is_not_compared_where_no_loss_is_left_out() -> None:
    runs = [a_run(str(number), 4, 28.0, losses=("l1", "gan")[: 1 + number % 2]) for number in range(4)]
    page = page_of_runs(*runs)
    assert charts(page, "term-") == {"Loss: gan": [1, 3], "Loss: l1": [0, 1, 2, 3]}
    assert "loss" not in blocks(page)
    assert page["sections"][0]["lead"].startswith("The sum of the losses is not compared")
