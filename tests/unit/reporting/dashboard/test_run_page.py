"""What stands on the page of a run: charts, figures, decisions and their reasons (D17, D23)."""

import math
import re
from pathlib import Path
from typing import Any

import pytest

from tests.unit.reporting.builders import GIB, a_step, a_validation
from trainauto.core.decisions import ClipAt, KeepPlan, PlanChange, RateFactor, Stop
from trainauto.core.plan import BatchShape, Plan
from trainauto.core.record_json import validation_to_dict
from trainauto.core.records import MicrobatchSplit
from trainauto.reporting.dashboard import run_page
from trainauto.reporting.dashboard.page_file import page_text
from trainauto.reporting.dashboard.run_history import About, RunHistory
from trainauto.reporting.dashboard.run_page import page_of
from trainauto.reporting.runs.course import NO_END

ABOUT = About(
    name="demo",
    folder="experiments/demo/1",
    total=100,
    target_bytes=3 * GIB,
    changed=[("train.optim_g.lr", "0.001", "0.0001")],
    options={"scale": 2},
    environment=[("torch", "2.13.0")],
)


def page(history: RunHistory, about: About = ABOUT) -> dict[str, Any]:
    return page_of(history, about, [], 1.0)


def block(shown: dict[str, Any], ident: str) -> dict[str, Any]:
    return next(one for section in shown["sections"] for one in section["blocks"] if one["id"] == ident)


def series(shown: dict[str, Any], ident: str) -> dict[str, Any]:
    return {one["name"]: one for one in block(shown, ident)["series"]}


def a_history(steps: int = 10) -> RunHistory:
    history = RunHistory()
    for step in range(1, steps + 1):
        history.step(a_step(step, losses={"l1": 1.0, "gan": 0.5}, predicted=2 * GIB), 1e9 + step)
    return history


def test_sections_come_in_the_order_of_the_questions() -> None:
    shown = page(a_history())
    assert [section["title"] for section in shown["sections"]] == [
        "Is it going well?", "Is the machine used?", "What did it do, and why?", "With what?",
    ]  # fmt: skip
    assert shown["grid"] == list(range(1, 11))
    assert set(series(shown, "loss")) == {"sum", "l1", "gan"}
    assert series(shown, "loss")["sum"]["y"] == [1.5] * 10
    assert series(shown, "rate")["g"]["y"] == [2e-4] * 10
    assert block(shown, "rate")["axis"] == "log"  # where a rate that decays to 6e-5 is told apart from 0


def test_memory_has_all_that_bounds_it() -> None:
    memory = series(page(a_history()), "memory")
    assert {name: one["y"][-1] for name, one in memory.items()} == {
        "peak": GIB, "predicted peak": 2 * GIB, "reserved": 2 * GIB, "current": GIB // 2,
        "in use on the device": 3 * GIB, "limit": 4 * GIB, "target": 3 * GIB,
    }  # fmt: skip
    assert memory["target"]["x"] == [1, 10]


def test_speed_is_that_of_whole_steps() -> None:
    shown = page(a_history())
    assert series(shown, "samples-rate")["samples/s"]["y"] == [20] * 10  # 4 samples in 0.2 s
    assert series(shown, "seconds")["wait for data"]["y"] == [0.02] * 10


def test_texts_have_tokens_and_padding() -> None:
    history = RunHistory()
    plan = Plan.of(tokens=1024)
    history.step(a_step(1, plan=plan, drawn=plan, shape=BatchShape(4, 200, tokens=800), units=600), None)
    shown = page(history)
    assert series(shown, "padding")["padding"]["y"] == [25]
    assert series(shown, "tokens-rate")["tokens/s"]["y"] == [4000]
    assert series(shown, "plan-tokens")["tokens"]["y"] == [1024]


def test_every_decision_is_told_with_its_reason() -> None:
    history = a_history(3)
    plan = Plan.of(batch_size=6, lq_size=48)
    decisions = [
        PlanChange(plan, "room for more", predicted=GIB, measured=GIB, predicted_before=GIB),
        KeepPlan(plan, "ran in pieces"), RateFactor(0.5, "a plateau"), ClipAt(1.0, "spikes"), ClipAt(None, "calm"),
        Stop("no better for long"),
    ]  # fmt: skip
    for decision in decisions:
        history.decision(3, decision, 2e9)
    history.step(a_step(4, ooms=2, pieces={"g": MicrobatchSplit(2, 48)}), None)
    history.resumed(4, ["train.total_iter: 10 -> 20"], None)
    history.status, history.reason = "failed", "<b>no room</b>\x1b[31m"
    shown = page(history)
    items = block(shown, "events")["items"]
    assert [item["kind"] for item in items] == ["plan", "plan", "rate", "rate", "rate", "stop", "oom", "resume", "fail"]
    text = "\n".join(f"{item['title']}: {item['text']}" for item in items)
    for words in ("batch_size 6, lq_size 48", "room for more (predicted 1.00 GiB", "ran in pieces", "0.5", "a plateau",
                  "norm 1", "no better for long", "out of memory, 2 times", "g in 2 of 48 px", "total_iter: 10 -> 20",
                  "failed: <b>no room</b>\\x1b[31m"):  # fmt: skip
        assert words in text
    assert shown["status"] == {"word": "failed", "tone": "bad", "text": "<b>no room</b>\\x1b[31m"}
    assert {mark["kind"] for mark in block(shown, "memory")["marks"]} == {"plan", "oom", "resume"}
    figures = {tile["label"]: tile for tile in shown["tiles"]}
    assert figures["out of memory"]["value"] == "2 times"


def test_validations_stand_beside_what_costs_nothing() -> None:
    history = a_history()
    for step, value in ((5, 27.0), (10, 28.5)):
        record = a_validation(step, metrics={"psnr": value}, baseline={"psnr": 28.0})
        history.validation(validation_to_dict(record))
    shown = page(history)
    curves = series(shown, "metric-0")
    assert (curves["val"]["x"], curves["val"]["y"]) == ([5, 10], [27, 28.5])
    assert (curves["val, bicubic"]["style"], curves["val, bicubic"]["y"]) == ("dash", [28, 28])
    assert block(shown, "metrics")["rows"] == [["val: psnr", "28.5000", "28.5000", "10", "28.0000"]]
    best = next(tile for tile in shown["tiles"] if tile["label"] == "psnr")
    assert (best["value"], best["tone"]) == ("28.5000", "good")
    assert best["note"].startswith("gain over bicubic +0.5")


def test_small_metrics_do_not_read_zero() -> None:
    history = a_history(1)
    history.validation(validation_to_dict(a_validation(1, metrics={"lpips": 6e-5}, baseline={"lpips": 2e-5})))
    assert block(page(history), "metrics")["rows"] == [["val: lpips", "6e-05", "6e-05", "1", "2e-05"]]


def test_a_run_that_memory_ended_claims_no_recovery() -> None:
    history = a_history(2)
    figures = {tile["label"]: tile for tile in page(history)["tiles"]}
    assert (figures["out of memory"]["value"], figures["out of memory"]["tone"]) == ("never", "good")
    history.status, history.reason = "failed", "OutOfMemoryError: nothing fits"
    figures = {tile["label"]: tile for tile in page(history)["tiles"]}
    assert (figures["out of memory"]["value"], figures["out of memory"]["tone"]) == ("in no step", "")
    history.step(a_step(3, ooms=2), None)
    figures = {tile["label"]: tile for tile in page(history)["tiles"]}
    assert (figures["out of memory"]["value"], figures["out of memory"]["note"]) == ("2 times", "")


def test_a_loop_of_ones_own_is_not_called_failed_while_nobody_knows() -> None:
    history = a_history(2)
    history.status, history.reason = NO_END, "it is still running, or was killed"
    shown = page(history)
    assert shown["status"] == {"word": "no end yet", "tone": "neutral", "text": history.reason}
    assert not [section for section in shown["sections"] if section["id"] == "why" and "events" in str(section)]


def test_padding_that_nobody_counted_is_not_shown() -> None:
    history = RunHistory()
    plan = Plan.of(tokens=1024)
    history.step(a_step(1, plan=plan, drawn=plan, shape=BatchShape(4, 200, tokens=800), units=800), None)
    assert not [one for section in page(history)["sections"] for one in section["blocks"] if one["id"] == "padding"]


def test_time_left_counts_validations_as_the_console_does() -> None:
    history = RunHistory(total=100)
    for step in range(1, 11):
        history.step(a_step(step), None)
    assert history.left_s == pytest.approx(90 * 0.2)
    history.validation({**validation_to_dict(a_validation(10)), "seconds": 2.0})
    assert history.left_s == pytest.approx(2 * 90 * 0.2)
    history.status = "completed"
    assert history.left_s is None


def test_a_lost_loss_is_told_once() -> None:
    history = RunHistory()
    for step in range(1, 6):
        history.step(a_step(step, losses={"l1": 1.0 if step < 3 else math.nan}), None)
    shown = page(history)
    assert series(shown, "loss")["loss"]["y"] == [1, 1, None, None, None]
    failures = [item for item in block(shown, "events")["items"] if item["kind"] == "fail"]
    assert [(item["step"], item["title"]) for item in failures] == [(3, "the loss is not finite")]


def test_a_run_without_a_step_has_a_page() -> None:
    shown = page(RunHistory())
    assert shown["tiles"][0]["value"] == "no step yet"
    assert [section["id"] for section in shown["sections"]] == ["what"]
    assert block(shown, "changed")["rows"] == [["train.optim_g.lr", "0.001", "0.0001"]]


def test_a_page_stays_small_whatever_a_run_has() -> None:
    """Many losses, optimizers, decisions and steps: below 1.5 MB without pictures, as after a million steps."""
    history = RunHistory()
    names = [f"a loss with a long name {number}" for number in range(1000)]
    for step in range(1, 1102):
        values = {name: 1 / (step + number) for number, name in enumerate(names)}
        record = a_step(step, losses=values, learning_rates=values, grad_norms=values, predicted=GIB + step)
        history.step(record, 1e9 + step / 3)
        history.decision(step, PlanChange(record.plan, f"{step} " + "причина " * 40), 1e9 + step / 3)
    metrics = [f"metric {number}" for number in range(200)]
    for step in range(1, 1102):
        validated = a_validation(step, metrics=dict.fromkeys(metrics, step / 7), baseline=dict.fromkeys(metrics, 1 / 3))
        history.validation(validation_to_dict(validated))
    shown = page(history)
    assert len(shown["grid"]) <= 1000
    assert len(page_text(shown).encode()) < 1_500_000


def test_events_and_texts_are_bounded() -> None:
    history = a_history(1)
    for step in range(2, 3002):
        history.decision(step, Stop("reason " * 1000), None)
    events = block(page(history), "events")
    assert (len(events["items"]), events["left_out"]) == (500, 2500)
    assert max(len(item["text"]) for item in events["items"]) <= 300
    assert history.events.count("stop") == 3000


def test_scripts_and_style_know_every_kind_of_event() -> None:
    """A kind that the scripts have a word for and no dashes would stop the whole page."""
    assets = Path(run_page.__file__).parent / "assets"
    text, scales, style = ((assets / name).read_text() for name in ("text.js", "scales.js", "page.css"))
    kinds = re.findall(r"(\w+): \"", re.search(r"const KINDS = \{(.*?)\};", text, re.DOTALL)[1])  # type: ignore[index]
    dashes = re.findall(r"(\w+): \[", re.search(r"const MARK_DASHES = \{(.*?)\};", scales)[1])  # type: ignore[index]
    assert set(kinds) == set(dashes) >= {"plan", "oom", "rate", "resume", "rollback", "stop", "end", "fail", "note"}
    assert all(style.count(f"--mark-{kind}:") == 2 for kind in kinds), "in light and in dark"
