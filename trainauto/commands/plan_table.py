"""What ``python -m trainauto plan`` prints: the plan of each card, the largest batches, what was tried."""

from trainauto.commands.tables import aligned
from trainauto.core.plan import Plan
from trainauto.core.units import size_text
from trainauto.core.words import counted
from trainauto.forecast.benchmark_plans import DeviceBenchmark, PlanBenchmark
from trainauto.forecast.card_plan import CardPlan, CardPlans
from trainauto.reporting.formatting import WIDTH, wrapped
from trainauto.reporting.step_stats import error_text

MOST_CROPS = 8
"""Columns that fit beside the name of a card."""


def table(answer: CardPlans) -> str:
    """Return the answer in words, within 80 columns."""
    rows = []
    whole = "budget" if any(card.limit_bytes < card.memory_bytes for card in answer.cards) else "card"
    for card in answer.cards:
        if card.plan is None:
            rows.append((card.preset.name, "-", "-", "-", "-", "nothing fits", size_text(card.target_bytes)))
            continue
        share = f"{card.expected_bytes / card.limit_bytes:.0%}"
        rows.append(
            (
                card.preset.name,
                f"{card.plan.size} px",
                _batch(card, card.plan),
                size_text(card.expected_bytes),
                share,
                size_text(card.most_bytes),
                size_text(card.target_bytes),
            )
        )
    traced = counted(len(answer.forecast.traced), "size")
    lines = [
        *wrapped(f"{answer.name}: {answer.network}, {traced} followed in {answer.forecast.seconds:.1f} s", WIDTH, ""),
        f"weights, optimizer state and averages hold {size_text(answer.forecast.persistent_bytes)} between steps",
        "",
        "the plan that a run would take: its 99 % bound stays within the target",
        *aligned(("card", "lq_size", "batch", "expected", f"of {whole}", "99 % bound", "target"), rows),
        *_explained(
            "lq_size: side of a crop of the input. expected: likely peak of a step's memory, and its share of the "
            f"{whole}. 99 % bound: the peak stays within it with a probability of 99 %. target: what may be filled."
        ),
        "",
        *_frontiers(answer),
        *_marks(answer),
        *(_tried(answer.trials) if answer.trials else []),
        *(line for note in answer.notes for line in wrapped(note, WIDTH, "  ")),
    ]
    return "\n".join(lines)


def _frontiers(answer: CardPlans) -> list[str]:
    """Return a table of the largest batch for some crops."""
    crops = sorted({plan.size for card in answer.cards for plan in card.frontier})
    some = [crop for crop in crops if crop % 32 == 0] or crops
    chosen = {card.plan.size for card in answer.cards if card.plan}.intersection(crops)
    spaced = some[:: max(1, -(-len(some) // 7))]
    some = sorted([*chosen, *(crop for crop in [*crops[-1:], *spaced] if crop not in chosen)][:MOST_CROPS])
    if not some:
        return []
    rows = []
    for card in answer.cards:
        largest = {plan.size: _batch(card, plan) for plan in card.frontier}
        rows.append((card.preset.name, *(largest.get(crop, "-") for crop in some)))
    return [
        "largest batch by crop, within the same target:",
        *aligned(("card", *(f"{crop} px" for crop in some)), rows),
        "",
    ]


def _tried(trials: DeviceBenchmark) -> list[str]:
    """Return a table of what was tried, failures below it."""
    bound = f", which may use {size_text(trials.limit_bytes)}" if trials.limit_bytes is not None else ""
    rows = [
        (*_plan_cells(benchmark.plan), size_text(benchmark.predicted_bytes), *_measured_cells(benchmark))
        for benchmark in trials.plans
    ]
    failures = [f"{benchmark.plan}: {benchmark.failed}" for benchmark in trials.plans if benchmark.failed]
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
    return f"{plan.size} px", str(plan.batch_size)


def _measured_cells(benchmark: PlanBenchmark) -> tuple[str, str, str]:
    if benchmark.failed:
        return "-", "-", "-"
    off_by = error_text(benchmark.predicted_bytes, benchmark.measured_bytes)
    return size_text(benchmark.measured_bytes), off_by, f"{benchmark.seconds:.2f}"


def _batch(card: CardPlan, plan: Plan) -> str:
    """Return the batch of a plan, marked where it is no memory that bounds it."""
    return f"{plan.batch_size}{'*' if plan.batch_size >= card.largest_batch else ''}"


def _marks(answer: CardPlans) -> list[str]:
    marked = any(plan.batch_size >= card.largest_batch for card in answer.cards for plan in card.frontier)
    return ["* bounded by max_batch_size, not by memory", ""] if marked else []
