"""Logs that are read in blocks of steps give the figures of logs that are read line by line, to the bit."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainauto.core import step_blocks
from trainauto.core.json_text import to_json
from trainauto.core.plan import BatchShape, Plan
from trainauto.core.record_json import step_to_dict
from trainauto.core.records import PeakReading, StepRecord
from trainauto.core.step_blocks import StepBlock, blocks_in
from trainauto.reporting.dashboard.run_reader import RunReader
from trainauto.reporting.runs.figures import figures_of
from trainauto.reporting.runs.memory_report import as_json, memory_report
from trainauto.storage.run_directory import RunDirectory

STEPS = 1200


def lines_of(generator: random.Random) -> list[str]:
    """Return the lines of a run of whose steps some are unlike the others in each way there is."""
    lines = []
    for step in range(1, STEPS + 1):
        if 700 <= step < 703:
            continue  # a power cut
        plan = Plan.of(batch_size=4 if step < 500 else 6, lq_size=32)
        shape = BatchShape(plan.batch_size if step != 640 else 2, 32, 0, plan.batch_size)
        peak = PeakReading(int(1e6 + 1e5 * generator.random()), 2_000_000, limit=4_000_000 if step < 900 else None)
        losses = {"l1loss": 10 ** generator.uniform(-6, 1), "told": -generator.random()}
        if step == 300:
            losses["l1loss"] = float("nan")
        record = StepRecord(
            step,
            plan,
            plan,
            shape,
            4 * step,
            losses,
            {"g": 10 ** generator.uniform(-7, -1)},
            {"g": 10 ** generator.uniform(-3, 9)},
            generator.choice([2e-6, 0.03, generator.random() / 1e4]),
            generator.random(),
            units=4096,
            peak=peak if step % 400 else None,
            ooms=int(step == 450),
            predicted=None if step < 200 else 1_050_000,
            told=("told",),
            skipped=("g",) if step == 820 else (),
        )
        lines.append(to_json({**step_to_dict(record), "time": 1e9 + step}))
    lines[150] = lines[150][:80]  # killed while it was written
    return lines


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    run = RunDirectory(tmp_path)
    run.config.write_text("{}")
    run.records.write_text("".join(f"{line}\n" for line in lines_of(random.Random(5))))
    run.validations.write_text(
        "".join(
            to_json({"step": step, "dataset": "val", "metrics": {"psnr": step / 100}, "seconds": 1.5, "time": 1.0})
            + "\n"
            for step in (100, 101, 550, STEPS)
        )
    )
    return run


def page_of(run: RunDirectory) -> str:
    reader = RunReader(run)
    reader.update()
    found, curves = reader.history, reader.history.curves
    values = [
        (name, curves.means(name), curves.least(name), curves.greatest(name), curves.sums(name))
        for name in curves.names
    ]
    plans = {name: changes.points() for name, changes in found.plan.items()}
    events = [(event.step, event.kind, event.title, event.text, event.time) for event in found.events]
    course = found.course
    figures = [
        course.samples,
        course.seconds,
        course.ooms,
        course.limit_bytes,
        course.latest_loss,
        course.typical_bytes,
    ]
    said = [str(course.last), str(course.speed), str(found.plans.rows())]
    return json.dumps([curves.steps, values, plans, events, figures, said, found.left_s])


READ: list[Callable[[RunDirectory], Any]] = [
    lambda run: as_json(memory_report(run)),
    lambda run: str(figures_of(run)),
    page_of,
]


@pytest.mark.parametrize("chunk_bytes", [2**12, 2**20])
def test_figures_are_those_of_single_lines(
    run: RunDirectory, chunk_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("trainauto.core.json_text", "trainauto.reporting.dashboard.run_reader"):
        monkeypatch.setattr(f"{module}.CHUNK_BYTES", chunk_bytes)
    in_blocks = [read(run) for read in READ]
    monkeypatch.setattr(step_blocks, "_FEWEST", 10**9)
    assert [read(run) for read in READ] == in_blocks


def test_most_lines_are_in_blocks() -> None:
    lines = [f"{line}\n".encode() for line in lines_of(random.Random(5))]
    parts = list(blocks_in([lines]))
    assert sum(len(part) for part in parts if isinstance(part, StepBlock)) > 0.8 * STEPS


@pytest.mark.parametrize(
    ("good", "damaged"),
    [('"samples": 4', '"samples": 4.4.4'), ('"data_s": 0', '"data_s": --'), ('"step": 9', '"step": 19')],
)
def test_lines_that_lie_about_numbers_are_read_alone(good: str, damaged: str) -> None:
    lines = [
        line.replace(good, damaged) if place == 8 else line
        for place, line in enumerate(lines_of(random.Random(5))[:20])
    ]
    assert any(damaged in line for line in lines)
    parts = list(blocks_in([[f"{line}\n".encode() for line in lines]]))
    assert not any(isinstance(part, StepBlock) and part.first.step <= 9 <= part.last_step for part in parts)


def test_steps_that_are_missing_part_blocks() -> None:
    """Else all steps around them would be read line by line."""
    lines = [f"{line}\n".encode() for line in lines_of(random.Random(5))[600:]]
    blocks = [block for block in blocks_in([lines]) if isinstance(block, StepBlock)]
    assert [block.last_step for block in blocks if block.last_step < 750] == [639, 699]
    assert [step.step for step in blocks[1].records(2)] == [698, 699]
    assert list(blocks[1].records(0)) == []
