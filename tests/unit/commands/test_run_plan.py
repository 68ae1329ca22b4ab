"""What an answer about cards says beside its figures."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.integration.commands import tiny_options, write_options
from trainauto.commands.plan_table import table
from trainauto.commands.run_plan import as_json
from trainauto.core.plan import Plan
from trainauto.forecast import option_plans
from trainauto.forecast.benchmark_plans import DeviceBenchmark, PlanBenchmark
from trainauto.forecast.card_plan import chosen_cards
from trainauto.forecast.code_plans import plan_code
from trainauto.forecast.plan_request import PlanRequest
from trainauto.forecast.trace_process import TraceProcess
from trainauto.memory.cost.memory_forecast import MemoryForecast, PlanBytes
from trainauto.options.load import load_options

MIB, GIB = 2**20, 2**30


def step_of(batch: int, side: int) -> PlanBytes:
    peak = 2**20 + 3000 * batch * side**2
    return PlanBytes(2**20, peak, {"step": peak}, peak, 0.1)


def traced() -> MemoryForecast:
    return MemoryForecast.of({size: step_of(*size) for size in ((1, 8), (1, 64), (64, 8), (64, 64))}, 1, 0.4)


@pytest.fixture
def without_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(option_plans, "forecast_memory", lambda *_: traced())
    monkeypatch.setattr(TraceProcess, "start", lambda _: None)
    monkeypatch.setattr(TraceProcess, "trace", lambda _, plan: step_of(plan.forward_batch_size, plan.size))


CONTROLLED = {"training_automations": {"DynamicBatchSizeOptimizer": {}}}


def mean(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    return model(batch).mean()


@pytest.mark.usefixtures("without_traces")
@pytest.mark.parametrize(("version", "notes"), [("2.13.0", 0), ("2.99.0", 1)])
def test_a_torch_that_predictions_were_not_checked_with_is_a_note(
    version: str, notes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "__version__", version)
    loaded = load_options(write_options(tmp_path / "run.yml", tiny_options(tmp_path / "none")))
    found = option_plans.plan_for_cards(loaded, chosen_cards(["T4"], []))
    said = [note for note in found.notes if note.startswith("Predictions were checked with torch")]
    assert len(said) == notes
    assert all(version in note for note in said)


def test_the_table_of_code_has_its_words_and_says_why_nothing_fits() -> None:
    """Without pixels, and without a column where samples have no size."""
    request = PlanRequest(lambda: nn.Linear(64, 64), mean, ("batch", "tokens", 64), "SGD", {"tokens": (8, 64)})
    text = table(plan_code(request, chosen_cards([], [GIB, MIB])))
    assert max(map(len, text.splitlines())) <= 80, text
    assert text.startswith("code: Linear, 7 sizes followed in ")
    assert "largest batch by tokens, for the same target:" in text
    assert "* bounded by its bounds, not by memory" in text
    assert "0.000976562 GiB: batch_size 1, tokens 8 may need" in text
    assert "To use less memory: smaller minimum sizes, gradient checkpointing" in text
    assert " px" not in text
    alone = table(plan_code(PlanRequest(lambda: nn.Linear(64, 64), mean, ("batch", 64)), chosen_cards([], [GIB])))
    assert "largest batch by" not in alone
    assert "card   batch  expected" in alone


def test_a_card_on_which_all_fits_that_was_looked_at_is_marked() -> None:
    """More might fit there; on the other card that many and no more do."""
    found = plan_code(PlanRequest(lambda: nn.Linear(64, 64), mean, ("batch", 64)), chosen_cards([], [GIB, 2 * GIB]))
    (axis,) = found.axes
    fit = 100, axis.maximum
    cards = [
        replace(card, plan=Plan.of(batch_size=8), largest_batch=8, frontier=(Plan.of(batch_size=most),))
        for card, most in zip(found.cards, fit, strict=True)
    ]
    said = table(replace(found, cards=tuple(cards)))
    rows = [line.split() for line in said.splitlines() if " GiB " in line and "8*" in line]
    assert [row[row.index("8*") + 1] for row in rows] == ["100", f"{axis.maximum}+"]
    explained = f"{axis.maximum}+: that many fit, and more were not looked at."
    assert explained in " ".join(said.split())
    assert max(map(len, said.splitlines())) <= 80
    assert explained not in " ".join(table(replace(found, cards=(cards[0],))).split())


@pytest.mark.usefixtures("without_traces")
def test_the_tables_say_what_their_columns_mean(tmp_path: Path) -> None:
    loaded = load_options(write_options(tmp_path / "run.yml", tiny_options(tmp_path / "none")))
    found = option_plans.plan_for_cards(loaded, chosen_cards(["T4", "RTX 4090"], [GIB]))
    plans = [Plan.of(batch_size=samples, lq_size=16) for samples in (1, 2, 3)]
    long = "not tried, a step would take 31 s; this reason is so long that it does not fit into eighty columns"
    tried = (
        PlanBenchmark(plans[0], 3 * MIB, 4 * MIB, MIB, 0.5),
        PlanBenchmark(plans[1], 30 * MIB, 40 * MIB, 40 * MIB, 2),
        PlanBenchmark(plans[2], 3 * GIB, 4 * GIB, failed=long),
    )
    text = table(replace(found, trials=DeviceBenchmark("CPU (1 core, 1 thread)", 64 * MIB, tried)))
    lines = text.splitlines()
    assert max(len(line) for line in lines if str(tmp_path) not in line) <= 80, text  # a path is never broken
    words = " ".join(text.split())
    for heading in ("lq_size", "expected", "99 % bound", "target", "predicted, measured", "off by", "s a step"):
        assert f"{heading}: " in words
    assert "tried on CPU (1 core, 1 thread), which may use 64.0 MiB:" in lines
    rows = [line.split() for line in lines if line.startswith(("  16 px", "16 px"))]
    assert [row[2:] for row in rows] == [
        ["1", "3.0", "MiB", "1.0", "MiB", "+2.0", "MiB", "0.50"],
        ["2", "30.0", "MiB", "40.0", "MiB", "-25.0%", "2.00"],
        ["3", "3.00", "GiB", "-", "-", "-"],
    ]
    assert f"batch_size 3, lq_size 16: {long}" in words


@pytest.mark.usefixtures("without_traces")
def test_a_scale_that_is_not_written_is_a_note(tmp_path: Path) -> None:
    options = tiny_options(tmp_path / "none")
    del options["scale"]
    loaded = load_options(write_options(tmp_path / "run.yml", options))
    found = option_plans.plan_for_cards(loaded, chosen_cards([], [2 * GIB]))
    assert "No scale is written: the default, 4, is planned for." in found.notes


@pytest.mark.usefixtures("without_traces")
def test_a_run_without_a_controller_is_said_to_keep_its_plan_and_whether_that_fits(tmp_path: Path) -> None:
    """It was told "the plan that a run would take: 168 px 9", which no run took."""
    train = {"lq_size": 400, "batch_size_per_gpu": 4}  # 1832 MiB, and 13 that kernels take
    options = tiny_options(tmp_path / "none", datasets={"train": train})
    loaded = load_options(write_options(tmp_path / "run.yml", options))
    cards = chosen_cards([], [4 * GIB, int(2.55 * GIB), 2 * GIB])  # of which CUDA has 0.7 GiB
    found = option_plans.plan_for_cards(loaded, cards)
    kept = [card.kept for card in found.cards if card.kept is not None]
    assert [own.plan for own in kept] == [Plan.of(batch_size=4, lq_size=400)] * 3
    assert [own.expected_bytes // MIB for own in kept] == [1845] * 3
    assert [own.fits for own in kept] == [True, None, False]
    own, chosen = table(found).split("the plan that a controller would take: ")
    rows = [line.split() for line in own.splitlines() if " px " in line]
    assert [row[2:5] + row[-1:] for row in rows] == [["400", "px", "4", fits] for fits in ("yes", "likely", "no")]
    assert "no controller is enabled" in own
    enabled = "DynamicBatchSizeOptimizer in the file enables a controller, whose plan is below: docs/memory.md."
    assert enabled in " ".join(own.split())
    assert "docs/memory.md" not in chosen
    assert [card["kept"]["fits"] for card in json.loads(as_json(found))["cards"]] == ["yes", "likely", "no"]
    controlled = load_options(write_options(tmp_path / "run.yml", {**options, **CONTROLLED}))
    found = option_plans.plan_for_cards(controlled, cards)
    assert {card.kept for card in found.cards} == {None}
    assert "the plan that a run would take: the 99 % bound" in table(found)


@pytest.mark.usefixtures("without_traces")
def test_a_budget_bounds_cards_with_a_word_and_one_of_a_cpu_none(tmp_path: Path) -> None:
    options = tiny_options(tmp_path / "none", memory={"budget": "1GiB"})
    cards = chosen_cards(["T4"], [])

    def planned(**changes: object) -> tuple[int, str]:
        loaded = load_options(write_options(tmp_path / "run.yml", {**options, **changes}))
        found = option_plans.plan_for_cards(loaded, cards)
        return found.cards[0].limit_bytes, " ".join(table(found).split("the file's own plan")[0].split())

    limit, said = planned(device="auto")
    assert limit == GIB
    assert "Of each card the run may use 1.00 GiB, the file's `memory: budget`" in said
    limit, said = planned()
    assert limit == 16 * GIB
    assert "is of its `device: cpu`: cards are looked at whole" in said
    limit, said = planned(device="auto", memory={"cpu_budget": "1GiB"})
    assert limit == 16 * GIB
    assert "GiB, the file's" not in said


@pytest.mark.usefixtures("without_traces")
def test_no_size_has_two_columns_in_the_table_of_batches(tmp_path: Path) -> None:
    """The largest size is always shown, and may be one of those that are spread over all, too."""
    loaded = load_options(write_options(tmp_path / "run.yml", tiny_options(tmp_path / "none")))
    found = option_plans.plan_for_cards(loaded, chosen_cards(["T4"], []))
    frontier = tuple(Plan.of(batch_size=4, lq_size=side) for side in (32, 53, 64))
    text = table(replace(found, cards=(replace(found.cards[0], plan=frontier[1], frontier=frontier),)))
    lines = text.splitlines()
    heading = lines[next(number for number, line in enumerate(lines) if line.startswith("largest batch by")) + 1]
    assert heading.split() == ["card", "32", "px", "53", "px", "64", "px"]
