"""The results of the comparison as a page: figures, targets, and where a peer is ahead."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from autobatch_cases import ENOUGH_STEPS, MIB, PERIOD_STEPS, STEADY_STEPS, TARGET

Record = dict[str, Any]
HIGH_TARGET = 0.95
HIGH = f"jump, target {HIGH_TARGET:.0%}"
OURS = ("jump", HIGH, "step", "jump, crop free")
PEERS = ("lightning power", "lightning binsearch", "accelerate", "bisection")
METHODS = (*OURS, *PEERS)
REFERENCES = {"jump, crop free": "best, crop free"}


@dataclass(frozen=True)
class Column:
    """A figure of a cell; ``better`` is -1 where less is better, 1 where more is, 0 where neither is."""

    title: str
    of: Callable[[Record], float]
    better: int
    text: str = "{:.1f}"
    mean: bool = False


def _target_of(record: Record) -> float:
    return HIGH_TARGET if record["method"] == HIGH else TARGET


COLUMNS = (
    Column("real OOMs, mean", lambda r: r["ooms"], -1, "{:.2f}", mean=True),
    Column(f"OOMs in {STEADY_STEPS} steps after, mean", lambda r: r["ooms_after"], -1, "{:.2f}", mean=True),
    Column("changes or trials", lambda r: r["changes"], -1, "{:.0f}"),
    Column("steps until settled", lambda r: r["steps"], -1, "{:.0f}"),
    Column("seconds until settled", lambda r: r["seconds"], -1, "{:.1f}"),
    Column(f"seconds until {ENOUGH_STEPS} steps of the last plan", lambda r: r["trained_seconds"], -1, "{:.1f}"),
    Column("steps lost", lambda r: r["lost_steps"], -1, "{:.0f}"),
    Column("use of the budget", lambda r: r["typical_bytes"] / r["limit"], 1, "{:.1%}"),
    Column("use of the best", lambda r: r["use_of_best"], 1, "{:.1%}"),
    Column("highest peak after, of the target", lambda r: r["largest_bytes"] / r["limit"] / _target_of(r), 0, "{:.1%}"),
)


def with_references(results: Sequence[Record]) -> list[Record]:
    """Return the cells of the methods, each with the use of the best admissible plan of its case."""
    best = {(r["network"], r["budget_mib"], r["method"]): r for r in results if r["method"].startswith("best")}
    cells = []
    for result in results:
        if result["method"] not in METHODS:
            continue
        reference = best.get((result["network"], result["budget_mib"], REFERENCES.get(result["method"], "best")))
        share = None
        if reference and not reference.get("failure") and result.get("typical_bytes"):
            share = result["typical_bytes"] / reference["typical_bytes"]
        cells.append({**result, "use_of_best": share, "limit": result["budget_mib"] * MIB})
    return cells


def targets(cells: Sequence[Record], method: str = "jump") -> list[tuple[str, str, bool]]:
    """Return each target with what was found and whether it was met."""
    mine = [cell for cell in cells if cell["method"] == method]
    whole = [cell for cell in mine if not cell["failure"] and cell["use_of_best"] is not None]
    if not whole:
        return [("cells that settled", "0", False)]
    changes = [cell["changes"] for cell in whole]
    shares = [cell["use_of_best"] for cell in whole]
    steps = [cell["steps"] for cell in whole]
    ooms = sum(cell["ooms"] + cell["ooms_after"] for cell in whole)
    seconds = next(column for column in COLUMNS if column.title == "seconds until settled")
    ours = _value(cells, method, seconds) or 0.0
    least = min((value for peer in PEERS if (value := _value(cells, peer, seconds)) is not None), default=float("inf"))
    return [
        ("every case settles", f"{len(whole)} of {len(mine)}", len(whole) == len(mine)),
        ("within 12 steps (median)", f"{median(steps):g}", median(steps) <= 12),
        ("at most 1 change after the first batch (median)", f"{median(changes):g}", median(changes) <= 1),
        ("at most 2 changes (worst)", f"{max(changes)}", max(changes) <= 2),
        ("at least 98 % of the best plan's use (median)", f"{median(shares):.1%}", median(shares) >= 0.98),
        ("at least 95 % of it (worst)", f"{min(shares):.1%}", min(shares) >= 0.95),
        ("no OOM", f"{ooms}", ooms == 0),
        (
            "fewer seconds until settled than every peer (median)",
            f"{ours:.1f} s, peers from {least:.1f} s",
            ours < least,
        ),
    ]


def page(results: Sequence[Record], facts: Record) -> str:
    """Return the page in Markdown."""
    cells = with_references(results)
    parts = [
        "# Finding the batch size: jump and step compared with other tools",
        "",
        f"`{facts['command']}`, {facts['date']}: {facts['machine']}, torch {facts['torch']}, lightning "
        f"{facts['lightning']}, accelerate {facts['accelerate']}.",
        f"{facts['note']}" if facts.get("note") else "",
        "",
        *INTRODUCTION,
        "",
        *_summary(cells),
        "",
        *_ahead(cells),
        "",
        "## Targets of `policy: jump`",
        "",
    ]
    for method in ("jump", "jump, crop free"):
        if method != "jump" and not any(cell["method"] == method for cell in cells):
            continue
        parts += [f"| {method} | found | |", "|---|---|---|"]
        parts += [
            f"| {name} | {figure} | {'met' if met else 'missed'} |" for name, figure, met in targets(cells, method)
        ]
        parts.append("")
    parts += _each(cells)
    return "\n".join(parts) + "\n"


INTRODUCTION = (
    "Every cell is a separate process on one thread: same network, Adam, L1 loss, crops of the same images, and",
    "the same budget. The system enforces the budget (`RLIMIT_DATA`, renewed before every step); beyond it",
    "torch's own allocator raises. The crop is fixed, because the peers change only the batch. `--only 'jump,",
    "crop free'` runs ours as it is used, with its own reference.",
    "",
    f"- Ours runs through `train.py`: periods of {PERIOD_STEPS} steps (default 100), target {TARGET:.0%} of the",
    f"  budget, 4 samples in the option file. Settled: a plan has held for a period and {STEADY_STEPS} more steps.",
    "  `jump` measures up to four plans before the first batch, two untrained steps each. These count in the",
    "  seconds; changes are those after the first batch. A plan that runs out of memory there is neither logged",
    "  nor counted.",
    "- The peers have no target: they search what fits the whole budget, and therefore use more of it. The second",
    "  row shows whether that lasts. They use their own defaults: Lightning starts from 2, Accelerate from 128 in",
    "  steps of a tenth. Doubling and bisection start from 4, with three steps a trial. Settled: the search is",
    "  over (Accelerate: three training steps succeeded). Ours settles after a period of training, a search",
    f"  without any; the seconds until {ENOUGH_STEPS} steps of the last plan are trained measure all by the same",
    "  rule.",
    f"- `{HIGH}` is ours with `target_vram_usage: {HIGH_TARGET}`. The target is a choice; the rest is reserved for",
    "  later needs, such as validation or another program.",
    "- Trials: batches tried. Steps lost: trained, and then discarded with the weights of the trial. Seconds:",
    "  from the start of the process, including imports and traces.",
    "- Use: median peak of the steps after settling. The best plan is the largest whose peaks all stay within our",
    "  target, found by training plans one after another. A share above 100 % is a plan above our target, or one",
    "  whose peaks exceeded it once during that search.",
    "- Without memory, oneDNN reports only `could not create a primitive`, which Lightning and Accelerate treat",
    "  as a fatal error. Here this was translated into the message of torch's allocator (last row). Where oneDNN",
    "  stayed broken, they continued without it, as our runs do.",
)


def _figures(cells: Sequence[Record], method: str, column: Column) -> list[float]:
    mine = [cell for cell in cells if cell["method"] == method]
    values = []
    for cell in mine:
        try:
            values.append(float(column.of(cell)))
        except (KeyError, TypeError):
            continue  # the method failed before it had such a figure
    return values


def _value(cells: Sequence[Record], method: str, column: Column) -> float | None:
    values = _figures(cells, method, column)
    if not values:
        return None
    return sum(values) / len(values) if column.mean else median(values)


def _summary(cells: Sequence[Record]) -> list[str]:
    present = [method for method in METHODS if any(cell["method"] == method for cell in cells)]
    lines = ["| median of the cells (worst) | " + " | ".join(present) + " |", "|---|" + "---:|" * len(present)]
    for column in COLUMNS:
        row = []
        for method in present:
            values = _figures(cells, method, column)
            middle = _value(cells, method, column)
            if middle is None:
                row.append("-")
            else:
                worst = min(values) if column.better > 0 else max(values)
                row.append(f"{column.text.format(middle)} ({column.text.format(worst)})")
        lines.append(f"| {column.title} | " + " | ".join(row) + " |")
    counts = [[cell for cell in cells if cell["method"] == method] for method in present]
    lines.append("| cells | " + " | ".join(str(len(mine)) for mine in counts) + " |")
    failed = [sum(bool(cell["failure"]) for cell in mine) for mine in counts]
    lines.append("| of them ended by an error | " + " | ".join(str(count) for count in failed) + " |")
    translated = [sum(cell.get("told", 0) for cell in mine) for mine in counts]
    lines.append(
        "| oneDNN's failures among the OOMs, translated | " + " | ".join(str(count) for count in translated) + " |"
    )
    return lines


def _ahead(cells: Sequence[Record]) -> list[str]:
    """Say column by column which peers are ahead of jump; written by comparison, not by hand."""
    lines = ["Where a peer is ahead of `jump` (same crop for all):", ""]
    any_ahead = False
    for column in COLUMNS:
        ours = _value(cells, "jump", column)
        if ours is None:
            continue
        ahead = []
        for peer in ("step", *PEERS):
            theirs = _value(cells, peer, column)
            if theirs is not None and column.better * (theirs - ours) > 0:
                ahead.append(f"{peer} ({column.text.format(theirs)} against {column.text.format(ours)})")
        if ahead:
            any_ahead = True
            lines.append(f"- {column.title}: {', '.join(ahead)}")
    return [*lines, *([] if any_ahead else ["- in no column"])]


def _each(cells: Sequence[Record]) -> list[str]:
    """List the cells: batch (crop), changes, OOMs, share of the best."""
    lines = [
        "## Every cell",
        "",
        "Batch (and crop where it is free); changes or trials; real OOMs; use of the best plan.",
        "",
    ]
    present = [method for method in METHODS if any(cell["method"] == method for cell in cells)]
    lines += ["| case | " + " | ".join(present) + " |", "|---|" + "---|" * len(present)]
    keys = list(dict.fromkeys((cell["network"], cell["budget_mib"], cell["seed"]) for cell in cells))
    for key in keys:
        row = []
        for method in present:
            cell = next(
                (c for c in cells if (c["network"], c["budget_mib"], c["seed"]) == key and c["method"] == method), None
            )
            row.append(_cell(cell))
        lines.append(f"| {key[0]} {key[1]} MiB, seed {key[2]} | " + " | ".join(row) + " |")
    errors = sorted({f"{cell['method']}: {cell['failure']}" for cell in cells if cell["failure"]})
    return [*lines, *(["", "Errors:", "", *(f"- {error}" for error in errors)] if errors else [])]


def _cell(cell: Record | None) -> str:
    if cell is None:
        return ""
    if cell.get("use_of_best") is None or "changes" not in cell:
        return "error"
    size = f"{cell['batch']}x{cell['lq_size']}" if cell["method"] in REFERENCES else f"{cell['batch']}"
    ended = ", then error" if cell["failure"] else ""
    ooms = cell["ooms"] + cell["ooms_after"]
    return f"{size}; {cell['changes']}; {ooms}; {cell['use_of_best']:.0%}{ended}"
