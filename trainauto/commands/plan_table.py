"""What ``python -m trainauto plan`` prints: the plan of each card, the largest batches, what was tried."""

from trainauto.commands.run_plan import Answer, CardAnswer
from trainauto.commands.tables import aligned
from trainauto.core.plan import LQ_SIZE, Plan
from trainauto.core.units import size_text
from trainauto.core.words import counted
from trainauto.forecast.benchmark_plans import DeviceBenchmark, PlanBenchmark
from trainauto.reporting.formatting import WIDTH, wrapped
from trainauto.reporting.step_stats import error_text

MOST_CROPS = 8
"""Columns that fit beside the name of a card."""


def table(found: Answer) -> str:
    """Return the answer in words, within 80 columns."""
    rows = []
    whole = "budget" if any(one.limit_bytes < one.memory_bytes for one in found.cards) else "card"
    for one in found.cards:
        if one.plan is None:
            rows.append((one.card.name, "-", "-", "-", "-", "nothing fits", size_text(one.target_bytes)))
            continue
        share = f"{one.expected_bytes / one.limit_bytes:.0%}"
        rows.append(
            (
                one.card.name,
                f"{one.plan[LQ_SIZE]} px",
                _batch(one, one.plan),
                size_text(one.expected_bytes),
                share,
                size_text(one.most_bytes),
                size_text(one.target_bytes),
            )
        )
    traced = counted(len(found.foresight.traced), "size")
    lines = [
        *wrapped(f"{found.name}: {found.network}, {traced} followed in {found.foresight.seconds:.1f} s", WIDTH, ""),
        f"weights, optimizer state and averages hold {size_text(found.foresight.persistent_bytes)} between steps",
        "",
        "the plan that a run would take: its 99 % bound stays within the target",
        *aligned(("card", "lq_size", "batch", "expected", f"of {whole}", "99 % bound", "target"), rows),
        *_explained(
            "lq_size: side of a crop of the input. expected: likely peak of a step's memory, and its share of the "
            f"{whole}. 99 % bound: the peak stays within it with a probability of 99 %. target: what may be filled."
        ),
        "",
        *_frontiers(found),
        *_marks(found),
        *(_tried(found.trials) if found.trials else []),
        *(line for note in found.notes for line in wrapped(note, WIDTH, "  ")),
    ]
    return "\n".join(lines)


def _frontiers(found: Answer) -> list[str]:
    """Return a table of the largest batch for some crops."""
    crops = sorted({plan[LQ_SIZE] for one in found.cards for plan in one.frontier})
    some = [crop for crop in crops if crop % 32 == 0] or crops
    chosen = {one.plan[LQ_SIZE] for one in found.cards if one.plan}.intersection(crops)
    spaced = some[:: max(1, -(-len(some) // 7))]
    some = sorted([*chosen, *(crop for crop in [*crops[-1:], *spaced] if crop not in chosen)][:MOST_CROPS])
    if not some:
        return []
    rows = []
    for one in found.cards:
        largest = {plan[LQ_SIZE]: _batch(one, plan) for plan in one.frontier}
        rows.append((one.card.name, *(largest.get(crop, "-") for crop in some)))
    return [
        "largest batch by crop, within the same target:",
        *aligned(("card", *(f"{crop} px" for crop in some)), rows),
        "",
    ]


def _tried(trials: DeviceBenchmark) -> list[str]:
    """Return a table of what was tried, failures below it."""
    bound = f", which may use {size_text(trials.limit_bytes)}" if trials.limit_bytes is not None else ""
    rows = [(*_plan_cells(one.plan), size_text(one.predicted_bytes), *_measured_cells(one)) for one in trials.plans]
    failures = [f"{one.plan}: {one.failed}" for one in trials.plans if one.failed]
    headings = ("lq_size", "batch", "predicted", "measured", "off by", "s a step")
    return [
        *wrapped(f"tried on {trials.device}{bound}:", WIDTH, "  "),
        *aligned(headings, rows),
        *(line for failure in failures for line in wrapped(failure, WIDTH, "  ")),
        *_explained(
            "predicted, measured: peak of memory in a step. off by: predicted less measured, as a share of what was "
            "measured, or in MiB where that is little. s a step: seconds that a step took here, on noise."
        ),
        "",
    ]


def _explained(text: str) -> list[str]:
    """Return lines below a table, on what its columns mean."""
    return wrapped(text, WIDTH, "")


def _plan_cells(plan: Plan) -> tuple[str, str]:
    return f"{plan[LQ_SIZE]} px", str(plan.batch_size)


def _measured_cells(one: PlanBenchmark) -> tuple[str, str, str]:
    if one.failed:
        return "-", "-", "-"
    off_by = error_text(one.predicted_bytes, one.measured_bytes)
    return size_text(one.measured_bytes), off_by, f"{one.seconds:.2f}"


def _batch(card: CardAnswer, plan: Plan) -> str:
    """Return the batch of a plan, marked where it is no memory that bounds it."""
    return f"{plan.batch_size}{'*' if plan.batch_size >= card.largest_batch else ''}"


def _marks(found: Answer) -> list[str]:
    marked = any(plan.batch_size >= one.largest_batch for one in found.cards for plan in one.frontier)
    return ["* bounded by max_batch_size, not by memory", ""] if marked else []
