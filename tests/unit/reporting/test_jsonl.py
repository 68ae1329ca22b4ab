import errno
import json
import math
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.reporting.builders import a_progress, a_step, a_validation
from trainauto.core import line_file
from trainauto.core.decisions import (
    USER_STOP,
    ClipAt,
    Decision,
    KeepPlan,
    MissingSteps,
    PlanChange,
    RateFactor,
    Stop,
    decision_from_dict,
    decision_to_dict,
)
from trainauto.core.json_text import read_lines, to_json
from trainauto.core.plan import Plan
from trainauto.core.record_json import step_from_dict, step_to_dict
from trainauto.core.records import MicrobatchSplit
from trainauto.reporting import jsonl
from trainauto.reporting.jsonl import JsonLines
from trainauto.storage.run_directory import RunDirectory
from trainauto.storage.run_log import logged_decisions


def refuse_constant(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


def strict(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line, parse_constant=refuse_constant) for line in path.read_text().splitlines()]


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory.create(tmp_path, "demo")


def test_one_line_a_step_with_stable_names(run: RunDirectory) -> None:
    sink = JsonLines(run, clock=lambda: 1234.5678)
    sink.step(a_step(1), (), a_progress(1))
    sink.step(a_step(2, peak=None, skipped=("g",)), (), a_progress(2))
    sink.close()
    first, second = strict(run.records)
    assert first == {
        "step": 1,
        "phase": "train",
        "first_sample": 0,
        "samples": 4,
        "extent": 48,
        "tokens": 0,
        "images": 4,
        "units": 147456,
        "plan": {"batch_size": 4, "lq_size": 48, "micro_batches": 1},
        "drawn": {"batch_size": 4, "lq_size": 48, "micro_batches": 1},
        "losses": {"l1": 0.5},
        "lr": {"g": 0.0002},
        "grad_norm": {"g": 1.25},
        "data_s": 0.02,
        "step_s": 0.18,
        "peak": {
            "allocated": 2**30,
            "reserved": 2**31,
            "device_used": 3 * 2**30,
            "limit": 2**32,
            "alloc_retries": 0,
            "current": 2**29,
            "available": None,
        },
        "skipped": [],
        "ooms": 0,
        "predicted": None,
        "time": 1234.568,
    }
    assert (second["peak"], second["skipped"]) == (None, ["g"])
    assert not run.decisions.exists()


@pytest.mark.parametrize(
    "step",
    [
        a_step(3),
        a_step(3, peak=None, skipped=("g",), ooms=2, predicted=3),
        a_step(3, ooms=2, pieces={"g": MicrobatchSplit(4, 40), "d": MicrobatchSplit(1, 48, without_onednn=True)}),
    ],
)
def test_a_step_is_read_back_as_it_was(step: Any) -> None:
    assert step_from_dict(json.loads(to_json(step_to_dict(step)))) == step


def test_a_line_from_before_the_newest_fields_is_read() -> None:
    line = {**step_to_dict(a_step()), "phase": "warm-up"}
    del line["ooms"], line["predicted"], line["peak"]["current"]
    back = step_from_dict(line)
    assert (back.ooms, back.predicted) == (0, None)
    assert back.peak is not None
    assert (back.peak.current, back.peak.limit) == (None, 2**32)


def test_numbers_that_json_lacks_become_strings(run: RunDirectory) -> None:
    sink = JsonLines(run)
    sink.step(a_step(losses={"l1": math.nan, "gan": math.inf}, grad_norms={"g": -math.inf}), (), a_progress(1))
    sink.validation(a_validation(metrics={"psnr": math.inf}), (), ())
    sink.close()
    (line,) = strict(run.records)
    assert line["losses"] == {"l1": "NaN", "gan": "Infinity"}
    assert line["grad_norm"] == {"g": "-Infinity"}
    back = step_from_dict(line)
    assert math.isnan(back.losses["l1"])
    assert (back.losses["gan"], back.grad_norms["g"]) == (math.inf, -math.inf)
    assert strict(run.validations)[0]["metrics"] == {"psnr": "Infinity"}


@pytest.mark.parametrize(
    ("decision", "expected"),
    [
        (
            PlanChange(Plan.of(batch_size=8), "room left", predicted=7, measured=5, predicted_before=6),
            {
                "kind": "plan_change",
                "plan": {"batch_size": 8, "micro_batches": 1},
                "predicted": 7,
                "measured": 5,
                "predicted_before": 6,
            },
        ),
        (
            KeepPlan(Plan.of(batch_size=8), "it had held"),
            {"kind": "keep_plan", "plan": {"batch_size": 8, "micro_batches": 1}},
        ),
        (RateFactor(0.5, "batch halved"), {"kind": "rate_factor", "factor": 0.5}),
        (ClipAt(None, "calm"), {"kind": "clip_at", "max_norm": None}),
        (ClipAt(2.0, "spikes", pass_name="d"), {"kind": "clip_at", "max_norm": 2.0, "pass_name": "d"}),
        (Stop("low loss"), {"kind": "stop"}),
        (MissingSteps(5, 7, "a power cut"), {"kind": "missing_steps", "first": 5, "last": 7}),
        (Stop("a file", termination=USER_STOP), {"kind": "stop", "termination": "user_stop"}),
    ],
)
def test_decisions_hold_every_field(decision: Decision, expected: dict[str, Any]) -> None:
    assert decision_to_dict(7, decision) == {
        "step": 7,
        "plan": None,
        "predicted": None,
        "measured": None,
        "predicted_before": None,
        "reason": decision.reason,
        "early": False,
        **expected,
    }
    for one in (decision, replace(decision, early=True)):
        assert decision_from_dict(json.loads(to_json(decision_to_dict(7, one)))) == one


def test_a_decision_of_a_kind_nobody_knows_is_refused() -> None:
    with pytest.raises(ValueError, match="'dance' is no kind of decision"):
        decision_from_dict({"step": 7, "kind": "dance", "reason": "music"})


def test_decisions_of_a_step_go_into_their_own_file(run: RunDirectory) -> None:
    sink = JsonLines(run)
    sink.step(a_step(5), (RateFactor(0.5, "why"), Stop("done")), a_progress(5))
    sink.step(a_step(6), (Stop("done"),), a_progress(6))
    sink.close()
    assert [(line["step"], line["kind"]) for line in strict(run.decisions)] == [
        (5, "rate_factor"),
        (5, "stop"),
        (6, "stop"),
    ]


def test_a_validation_is_a_line_of_its_own_file(run: RunDirectory) -> None:
    sink = JsonLines(run)
    sink.validation(a_validation(tile_px=64), (), [Stop("good enough")])
    (line,) = strict(run.validations)
    assert (line["kind"], line["step"], line["dataset"], line["tile_px"]) == ("validation", 10, "val", 64)
    assert line["scores"][0]["bicubic"] == {"psnr": 28.0, "lpips": 0.3}
    assert [(line["step"], line["kind"]) for line in strict(run.decisions)] == [(10, "stop")]
    assert not run.records.exists()
    sink.close()


def test_each_line_is_one_write_and_a_resumed_run_appends(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[bytes] = []
    real = os.write

    def counting(handle: int, data: bytes) -> int:
        writes.append(data)
        return real(handle, data)

    monkeypatch.setattr(line_file.os, "write", counting)
    for step in (1, 2):
        sink = JsonLines(run)
        sink.step(a_step(step), (), a_progress(step))
        assert len(strict(run.records)) == step  # readable before it is closed
        sink.close()
        sink.close()
    assert len(writes) == 2
    assert all(data.endswith(b"\n") and data.count(b"\n") == 1 for data in writes)


def test_a_line_the_disk_took_in_part_is_an_error(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = JsonLines(run)
    real_write = os.write
    sink.step(a_step(1), (), a_progress(1))
    monkeypatch.setattr(line_file.os, "write", lambda handle, data: real_write(handle, data[:3]))
    with pytest.raises(OSError, match="only 3 of"):
        sink.step(a_step(2), (), a_progress(2))
    monkeypatch.undo()
    sink.step(a_step(3), (), a_progress(3))
    sink.close()
    assert [line["step"] for line in strict(run.records)] == [1, 2, 3], (
        "what found no room comes before what follows it"
    )


def test_decisions_wait_for_room_with_their_step(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_handle: int, _data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    sink = JsonLines(run)
    for step in (1, 2):
        with monkeypatch.context() as patch:
            patch.setattr(line_file.os, "write", full)
            with pytest.raises(OSError, match="No space"):
                sink.step(a_step(step), (Stop("enough"),), a_progress(step))
    sink.close()
    assert [line["step"] for line in strict(run.records)] == [1, 2]
    assert [line["step"] for line in strict(run.decisions)] == [1, 2]


def test_reading_passes_over_unfinished_lines(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    assert list(read_lines(path)) == []
    path.write_text('{"step": 1}\n{"step\n[1]\n{"step": 2}\n{"st')
    assert [line["step"] for line in read_lines(path)] == [1, 2]


@pytest.mark.skipif(sys.platform != "linux", reason="/dev/full is Linux's")
def test_one_error_in_writing_ends_no_log(run: RunDirectory) -> None:
    """The kernel refuses writes by a real handle; once it takes them, everything is there in order."""
    sink = JsonLines(run)
    sink.step(a_step(1), (), a_progress(1))
    assert sink._steps is not None
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, sink._steps._handle)
    os.close(full)
    with pytest.raises(OSError, match="No space left"):
        sink.step(a_step(2), (Stop("enough"),), a_progress(2))
    assert sink.lacking() == "2 lines not written"
    sink.step(a_step(3), (), a_progress(3))  # by a handle of its own
    sink.close()
    assert [line["step"] for line in strict(run.records)] == [1, 2, 3]
    assert [line["step"] for line in strict(run.decisions)] == [2]
    assert sink.lacking() == ""


def test_a_handle_that_has_gone_bad_is_opened_anew(run: RunDirectory) -> None:
    sink = JsonLines(run)
    sink.step(a_step(1), (), a_progress(1))
    assert sink._steps is not None
    os.close(sink._steps._handle)
    with pytest.raises(OSError, match="Bad file descriptor"):
        sink.step(a_step(2), (), a_progress(2))
    sink.step(a_step(3), (), a_progress(3))
    sink.close()
    assert [line["step"] for line in strict(run.records)] == [1, 2, 3]


def test_a_file_that_cannot_be_opened_is_written_when_it_can(run: RunDirectory) -> None:
    run.records.mkdir()  # what opens no file for anyone, root included
    sink = JsonLines(run)
    for step in (1, 2):
        with pytest.raises(OSError, match=r"directory|denied"):
            sink.step(a_step(step), (), a_progress(step))
    run.records.rmdir()
    sink.sync()
    sink.close()
    assert [line["step"] for line in strict(run.records)] == [1, 2]


def test_half_a_line_on_a_disk_that_takes_nothing_back_stays_alone(run: RunDirectory) -> None:
    run.records.write_text('{"step": 1, "pl')
    sink = JsonLines(run)
    sink.step(a_step(2), (), a_progress(2))
    sink.close()
    assert [line["step"] for line in read_lines(run.records)] == [2]


def test_steps_that_find_no_room_in_memory_either_are_noted(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    run.records.mkdir()
    sink = JsonLines(run, clock=lambda: 7.0)
    with pytest.raises(OSError, match=r"directory|denied"):
        sink.step(a_step(1), (), a_progress(1))
    monkeypatch.setattr(jsonl, "MOST_WAITING_BYTES", len(sink._waiting[run.records]) * 2 + 20)
    for step in range(2, 6):
        with pytest.raises(OSError, match=r"directory|denied"):
            sink.step(a_step(step), (), a_progress(step))
    assert sink.lacking() == "steps 3 to 5 are missing, 2 lines not written"
    run.records.rmdir()
    sink.step(a_step(6), (), a_progress(6))
    sink.close()
    assert [line["step"] for line in strict(run.records)] == [1, 2, 6]
    ((step, gap),) = logged_decisions(run)
    assert (step, gap) == (5, MissingSteps(3, 5, jsonl.NOT_WRITTEN))


def test_what_waits_of_undone_steps_is_not_written(run: RunDirectory) -> None:
    run.records.mkdir()
    sink = JsonLines(run)
    for step in (1, 2, 3):
        with pytest.raises(OSError, match=r"directory|denied"):
            sink.step(a_step(step), (), a_progress(step))
    sink._forget_after(2)
    run.records.rmdir()
    sink.close()
    assert [line["step"] for line in strict(run.records)] == [1, 2]
