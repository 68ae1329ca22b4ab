"""Runs with something planted, and runs in which nothing is wrong, without and with the automation that watches for it.

    python scripts/bench/watching.py [--write FOLDER] [--note TEXT] [--pictures FOLDER]

The tasks are those of watched_tasks.py, on one thread of a CPU; each pair of runs has the same seed, and differs in
nothing but the automation. ``--write docs/benchmarks`` writes automations.md there, ``--pictures docs/automations``
the curves of each pair.
"""

import argparse
import os
import platform
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from math import cos, pi
from pathlib import Path
from typing import Any

import torch
from curve_pictures import curve_picture
from watched_tasks import SQUARED, TASKS, Course, Task, clipped_share, run

from trainauto.automations import AUTOMATIONS
from trainauto.automations.stop_file import STOP_FILE
from trainauto.core.decisions import ClipAt, GoBack, RateFactor, RunFacts, Stop
from trainauto.core.files import write_text_atomically
from trainauto.core.plan import BatchShape, Plan
from trainauto.core.records import StepRecord

BYTES = TASKS["bytes"]
SEED = 0
POINTS = 6
"""Steps at which a table shows both runs."""

MEASURED_STEPS = 5000
"""Of the cost of an automation."""


@dataclass(frozen=True)
class Case:
    """Two runs.

    Attributes:
        title: what is planted, or that nothing is.
        section: the automation of the second run.
        task: what is trained.
        steps: length.
        options: of both runs.
        every: steps between validations.
        plant: makes what does harm on the way; each run has its own.
        picture: name of the file with its curves, without the ending.
    """

    title: str
    section: Mapping[str, Any]
    task: Task
    steps: int
    options: Mapping[str, Any] = field(default_factory=dict)
    every: int = 50
    plant: Callable[[], Callable[[int, torch.nn.Module], object]] | None = None
    picture: str = ""


def jump(step: int, at: int = 600, by: float = 60.0) -> float:
    """Return a rate that jumps up, as of a schedule whose restart was mistyped."""
    return by if step >= at else 1.0


def jump_for_a_while(step: int) -> float:
    """Return a rate that jumps up for 40 steps: what that does to a run takes far longer to mend."""
    return jump(step) if step < 640 else 1.0


def too_high(_step: int) -> float:
    """Return a rate that is eight times what suits the task."""
    return 8.0


def annealed(step: int, total: int = 3000) -> float:
    """Return half a cosine down to 0."""
    return 0.5 * (1 + cos(pi * step / total))


RATES, CLIPPING = {"IntelligentLearningRateScheduler": {}}, {"AdaptiveGradientClipping": {}}
STOPPING, GUARD = {"IntelligentEarlyStopping": {}}, {"SpikeGuard": {}}
LOW_LOSS = {"StopAtLowLoss": {"loss": 0.05}}


class Planted:
    """Harm that is done once, as long as the process lives: a rollback does not bring it back.

    Args:
        at: steps that were trained before it.
        harm: does it to a network.
    """

    def __init__(self, at: int, harm: Callable[[torch.nn.Module], object]) -> None:
        self._at, self._harm = at, harm
        self._is_done = False

    def __call__(self, step: int, model: torch.nn.Module) -> None:
        """Do it where it is time to."""
        if step == self._at and not self._is_done:
            self._is_done = True
            self._harm(model)


def flip_bits(model: torch.nn.Module) -> None:
    """Have the weights of a layer be a thousand times as large, as flipped bits of their exponents make them."""
    with torch.no_grad():
        list(model.parameters())[-2].mul_(1000.0)


def spoil_one_gradient(model: torch.nn.Module) -> None:
    """Have the next gradient of a weight be no number."""
    weight = list(model.parameters())[-1]

    def spoil(gradient: torch.Tensor) -> torch.Tensor:
        handle.remove()
        return gradient * torch.nan

    handle = weight.register_hook(spoil)


def flipped() -> Planted:
    """Return what is planted by :func:`flip_bits`."""
    return Planted(1030, flip_bits)


def spoilt() -> Planted:
    """Return what is planted by :func:`spoil_one_gradient`."""
    return Planted(1030, spoil_one_gradient)


CASES = (
    Case("The rate jumps to 60 times its value at step 600", RATES, BYTES, 3000, {"rate": jump}, picture="rate_jumps"),
    Case(
        "The rate jumps to 60 times its value for 40 steps",
        RATES,
        BYTES,
        3000,
        {"rate": jump_for_a_while},
        picture="rate_jumps_for_a_while",
    ),
    Case(
        "Half of the samples are noise from step 1000 on, for good",
        RATES,
        BYTES,
        4000,
        {"worse": (1000, 0.5)},
        picture="rate_other_data",
    ),
    Case(
        "Not needed: batches are 32 times as large from step 300 on",
        RATES,
        BYTES,
        1200,
        {"grown": (300, 32)},
        picture="rate_larger_batches",
    ),
    Case(
        "The rate is 8 times too high from the start",
        RATES,
        BYTES,
        7000,
        {"rate": too_high},
        every=100,
        picture="rate_too_high",
    ),
    Case("Not needed: a cosine schedule", RATES, BYTES, 3000, {"rate": annealed}, picture="rate_not_needed"),
    Case(
        "2 of 1000 targets are damaged, 50 times too bright; squared error",
        CLIPPING,
        SQUARED,
        1500,
        {"damaged": 0.002},
        picture="clipping",
    ),
    Case("Not needed: the same photographs, none damaged", CLIPPING, SQUARED, 1500, picture="clipping_not_needed"),
    Case("400 samples, which the model memorises", STOPPING, BYTES, 3000, {"samples": 400}, picture="stopping"),
    Case("Not needed: 100 000 samples", STOPPING, BYTES, 3000, picture="stopping_not_needed"),
    Case(
        "The weights of the last layer are multiplied by a thousand after step 1030",
        GUARD,
        BYTES,
        2000,
        plant=flipped,
        picture="guard_leap",
    ),
    Case("The gradients of step 1031 are NaN", GUARD, BYTES, 2000, plant=spoilt, picture="guard_nan"),
    Case("Not needed: nothing is planted", GUARD, BYTES, 2000, picture="guard_not_needed"),
    Case("16 samples, which the model should memorise", LOW_LOSS, BYTES, 3000, {"samples": 16}, picture="low_loss"),
    Case("Not needed: 100 000 samples", LOW_LOSS, BYTES, 3000, picture="low_loss_not_needed"),
)


def lines_of(case: Case, off: Course, on: Course) -> list[str]:
    """Return the table of a case, and what was decided."""
    steps = [round(case.steps * (number + 1) / POINTS / case.every) * case.every for number in range(POINTS)]
    name = next(iter(case.section))
    return [
        f"### {case.title}",
        "",
        f"| loss on held-out samples, after step | {' | '.join(map(str, steps))} | best |",
        f"|---|{'---:|' * (len(steps) + 1)}",
        *(_row(title, course, steps) for title, course in (("without", off), (f"with `{name}`", on))),
        "",
        *_decided(on),
        "",
    ]


def _row(title: str, course: Course, steps: Sequence[int]) -> str:
    cells = [f"{course.measured[step]:.4f}" if step in course.measured else "" for step in steps]
    best = min(course.measured, key=course.measured.__getitem__)
    ended = f"; ended after step {len(course.trained)}: {course.reason}" if course.reason else ""
    return f"| {title} | {' | '.join(cells)} | {course.measured[best]:.4f} (step {best}){ended} |"


def _decided(course: Course) -> list[str]:
    lines = []
    for step, decision in course.decisions:
        if isinstance(decision, RateFactor):
            lines.append(f"- step {step}: rates times {decision.factor:g}: {decision.reason}")
        if isinstance(decision, GoBack):
            lines.append(f"- went back, undoing the steps after {step}: {decision.reason}")
        if isinstance(decision, Stop):
            lines.append(f"- step {step}: stop: {decision.reason}")
    clips = [decision for _, decision in course.decisions if isinstance(decision, ClipAt)]
    if clips:
        lines.append(
            f"- {len(clips)} clipping norms, the last {clips[-1].max_norm:.3g}; {clipped_share(course):.1%} of all "
            f"steps were clipped, {clipped_share(course, 2):.1%} to less than half"
        )
    return lines or ["- no decisions"]


def stopped_by_file(pictures: Path | None) -> list[str]:
    """Return what a file does that appears in mid-run, beside a run without it."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)

        def appears(step: int) -> float:
            if step == 300:
                (root / "current").resolve().joinpath(STOP_FILE).touch()
            return 1.0

        course = run(BYTES, SEED, 600, {"StopFile": {}}, rate=appears, folder=root)
    title = "The file appears before step 301"
    if pictures is not None:
        case = Case(title, {"StopFile": {}}, BYTES, 600)
        write_text_atomically(pictures / "stop_file.svg", picture_of(case, run(BYTES, SEED, 600), course))
    return [f"- {title} of 600: the run ends after step {len(course.trained)}: {course.reason}"]


def cost_lines() -> list[str]:
    """Return what each automation takes of a step, in microseconds."""
    plan = Plan.of(batch_size=8, lq_size=24)
    draw = torch.Generator().manual_seed(0)
    losses = (1 + 0.1 * torch.randn(MEASURED_STEPS, generator=draw)).tolist()
    records = [
        StepRecord(step, plan, plan, BatchShape(8, 24), 8 * step, {"l1": loss}, {"g": 1e-3}, {"g": loss}, 0.0, 0.1)
        for step, loss in enumerate(losses, 1)
    ]
    lines = ["| automation | microseconds a step |", "|---|---:|"]
    with tempfile.TemporaryDirectory() as folder:
        for name in ("AdaptiveGradientClipping", "IntelligentLearningRateScheduler", "SpikeGuard", "StopFile"):
            automation = AUTOMATIONS.get(name)()
            automation.on_run_start(RunFacts((), plan, folder=folder))
            start = time.process_time()
            for record in records:
                automation.on_step_end(record)
            lines.append(f"| `{name}` | {(time.process_time() - start) / MEASURED_STEPS * 1e6:.1f} |")
    return lines


def pair_of(case: Case) -> tuple[Course, Course]:
    """Train without and with the automation."""
    trained: Callable[..., Course] = partial(run, case.task, SEED, case.steps, every=case.every, **case.options)
    if case.plant is None:
        return trained(None), trained(case.section)
    return trained(None, plant=case.plant()), trained(case.section, plant=case.plant())


def picture_of(case: Case, off: Course, on: Course) -> str:
    """Return the curves of both runs, with marks where something was decided."""
    marks = [step for step, decision in on.decisions if not isinstance(decision, ClipAt)]
    return curve_picture(case.title, off.measured, on.measured, next(iter(case.section)), marks)


def page(note: str, pictures: Path | None) -> str:
    """Train all cases; return the page in Markdown, and write the curves where somebody wants them."""
    lines = [
        "# Automations that watch a run: when they helped, and when they were not needed",
        "",
        f"`python scripts/bench/watching.py --write docs/benchmarks`, {date.today().isoformat()}: {os.cpu_count()} "
        f"cores, {platform.machine()}, Python {platform.python_version()}, torch {torch.__version__}, one thread, "
        f"seed {SEED}.",
        *([note] if note else []),
        "",
        "The runs train two small tasks on real data. One predicts the next byte of Python's help (a GRU, Adam at "
        "3e-3, batches of 8 times 32 bytes; nats a byte). The other upscales scikit-image's photographs twofold "
        "(three convolutions, Adam at 1e-3, batches of 8 crops). Each pair of runs differs only in the "
        "automation.",
        "",
    ]
    for case in CASES:
        print(case.title, flush=True)
        off, on = pair_of(case)
        lines += lines_of(case, off, on)
        if pictures is not None:
            pictures.mkdir(parents=True, exist_ok=True)
            write_text_atomically(pictures / f"{case.picture}.svg", picture_of(case, off, on))
    return "\n".join([*lines, "### StopFile", "", *stopped_by_file(pictures), "", "## Overhead", "", *cost_lines(), ""])


def main() -> None:
    """Measure, print, and write where asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, metavar="FOLDER", help="write automations.md there")
    parser.add_argument("--note", default="", help="of circumstances, for the page")
    parser.add_argument("--pictures", type=Path, metavar="FOLDER", help="write the curves there")
    parsed = parser.parse_args()
    torch.set_num_threads(1)
    text = page(parsed.note, parsed.pictures)
    print(text)
    if parsed.write is not None:
        write_text_atomically(parsed.write / "automations.md", text)


if __name__ == "__main__":
    main()
