"""The results of the comparison as a page: figures, targets, and where a peer is ahead."""

import re
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
    "Every cell is a process of its own on one thread: same network, Adam, L1 loss, crops of the same images, same",
    "budget. The system enforces the budget (`RLIMIT_DATA`, renewed before every step); beyond it torch's allocator",
    "raises. The crop is fixed, because the peers change only the batch. `--only 'jump, crop free'` runs ours as it",
    "is used, with its own reference.",
    "",
    f"- **Ours** runs through `train.py`: periods of {PERIOD_STEPS} steps (default 100), target {TARGET:.0%} of the",
    "  budget, 4 samples in the option file. `jump` measures up to four plans before the first batch, two untrained",
    "  steps each. Seconds include these; changes do not. A plan that runs out of memory there is not counted. The",
    "  target leaves memory for later needs, such as validation or another program.",
    "- **Peers** have no target, and fill the whole budget; the second row shows whether that lasts. By their own",
    "  defaults, Lightning starts from 2, Accelerate from 128 in steps of a tenth. Doubling and bisection start from",
    "  4, with three steps a trial.",
    f"- **Settled:** ours has held a plan for a period and {STEADY_STEPS} more steps; a peer's search is over",
    f"  (Accelerate: three steps succeeded). The seconds until {ENOUGH_STEPS} steps of the last plan treat all alike.",
    "- **Steps lost** were trained, and then discarded with the weights of a trial. **Seconds** count from the start",
    "  of the process, with imports and traces.",
    "- **Use** is the median peak after settling. The best plan is the largest whose peaks all stay within our target,",
    "  found by training one plan after another. Above 100 % a plan is above our target, or its peaks exceeded the",
    "  target once in that search.",
    "- **oneDNN** says only `could not create a primitive` without memory, a fatal error to Lightning and Accelerate.",
    "  Here it became the message of torch's allocator (last row). Where oneDNN stayed broken, they continued without",
    "  it, as ours does.",
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
                ahead.append(f"{peer} ({column.text.format(theirs)})")
        if ahead:
            any_ahead = True
            lines.append(f"- {column.title}: {', '.join(ahead)}")
    return [*lines, *([] if any_ahead else ["- in no column"])]


def _each(cells: Sequence[Record]) -> list[str]:
    """List the cases: batch (crop), changes, OOMs, share of the best."""
    lines = [
        "## Every cell",
        "",
        "Batch (and crop where it is free); changes or trials; real OOMs; use of the best plan. Where the two seeds",
        "differ, each has its figure.",
        "",
    ]
    present = [method for method in METHODS if any(cell["method"] == method for cell in cells)]
    lines += ["| case | " + " | ".join(present) + " |", "|---|" + "---|" * len(present)]
    for network, budget in dict.fromkeys((cell["network"], cell["budget_mib"]) for cell in cells):
        case = [cell for cell in cells if (cell["network"], cell["budget_mib"]) == (network, budget)]
        row = [_seeds([cell for cell in case if cell["method"] == method]) for method in present]
        lines.append(f"| {network} {budget} MiB | " + " | ".join(row) + " |")
    errors = _errors(cells)
    return [*lines, *(["", "Errors:", "", *(f"- {error}" for error in errors)] if errors else [])]


def _errors(cells: Sequence[Record]) -> list[str]:
    """Return each error once, whatever sizes it names."""
    sizes: dict[str, list[int]] = {}
    for cell in cells:
        if cell["failure"]:
            text = f"{cell['method']}: {cell['failure']}"
            found = sizes.setdefault(re.sub(r"\d{5,}", "N", text), [])
            found += map(int, re.findall(r"\d{5,}", text))
    return sorted(f"{text}{f' (N: {min(of)} to {max(of)})' if of else ''}" for text, of in sizes.items())


def _seeds(cells: Sequence[Record]) -> str:
    """Return the figures of a case, once where its seeds agree."""
    columns = zip(*map(_figures_of, sorted(cells, key=lambda cell: cell["seed"])), strict=True)
    figures = [", ".join(of[:1] if len(set(of)) == 1 else of) for of in columns]
    failed = [f"{cell['seed']}" for cell in cells if cell["failure"]]
    of_seeds = "" if len(failed) == len(cells) else f" in seed {' and '.join(failed)}"
    return "; ".join([*filter(None, figures), *([f"error{of_seeds}"] if failed else [])])


def _figures_of(cell: Record) -> tuple[str, ...]:
    if cell.get("use_of_best") is None or "changes" not in cell:
        return ("", "", "", "")
    size = f"{cell['batch']}x{cell['lq_size']}" if cell["method"] in REFERENCES else f"{cell['batch']}"
    return size, f"{cell['changes']}", f"{cell['ooms'] + cell['ooms_after']}", f"{cell['use_of_best']:.0%}"
