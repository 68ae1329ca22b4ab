"""The page of jumps: how often they go too far, with bounds on the rates."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from trainauto.engine.probe import MOST_PROBES

DOUBT = 0.05
WORLDS = "simulated worlds"
PROBED = "first batch, after probes"

REMARKS = (
    "Single plans may pass the target: it is a quantile, and 15 % of the memory lie beyond it. On the CPU, a first",
    "plan counts the largest of the peaks of its first dozen steps.",
    "",
    "Until figures of real cards were known, worlds and workspaces were drawn from 0 to 25 %, and the belief was as",
    "wide: a first jump then used 79 % of the target (median), 68 % with native segments.",
    "",
    "No GPU of ours has run any of this: what kernels take follows what others measured.",
)


@dataclass(frozen=True)
class Jump:
    """A jump and its outcome: bytes of the plan, of the target, and whether it went beyond the limit."""

    above: bool
    beyond: bool
    use: float
    error: float


def highest_rate(misses: int, count: int, doubt: float = DOUBT) -> float:
    """Return Clopper and Pearson's upper bound: the rate at which so few misses would come with ``doubt``."""

    def chance(rate: float) -> float:
        return sum(math.comb(count, k) * rate**k * (1 - rate) ** (count - k) for k in range(misses + 1))

    if misses >= count:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if chance(middle) > doubt else (low, middle)
    return high


def row(name: str, what: str, jumps: Sequence[Jump]) -> str:
    """Return one line of the table."""
    count = len(jumps)
    if not count:
        return f"| {name} | {what} | 0 | - | - | - | - |"
    counts = [sum(jump.above for jump in jumps), sum(jump.beyond for jump in jumps)]
    rates = [f"{misses} (at most {highest_rate(misses, count):.2%})" for misses in counts]
    errors = sorted(jump.error for jump in jumps)
    p95 = f"{errors[min(count - 1, int(0.95 * count))]:.2%}" if any(errors) else "-"
    return f"| {name} | {what} | {count} | {rates[0]} | {rates[1]} | {median(jump.use for jump in jumps):.0%} | {p95} |"


def page(places: dict[str, dict[str, list[Jump]]], known: dict[str, str]) -> str:
    """Return the page in Markdown."""
    lines = [
        "# How often a jump goes too far",
        "",
        f"`{known['command']}`, {known['date']}: {known['machine']}.",
        "",
        "A jump is a plan chosen before anything was measured, by its 99 % quantile: what a run begins with where it",
        f"cannot measure plans before it trains one. Elsewhere it begins with the row `{PROBED}`: up to {MOST_PROBES}",
        "plans are measured first, the first one chosen by its median. In brackets: Clopper and",
        "Pearson's upper bound at 95 %. Use: the largest peak over the target, median. Error: of the expected peak,",
        "95th percentile. How worlds, workspaces and limits were drawn stands at the top of the script and of",
        "`tests/unit/worlds.py`.",
        "",
        "| where | what | jumps | above target | beyond the limit | use | error, p95 |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for name, kinds in places.items():
        lines += [row(name, what, jumps) for what, jumps in kinds.items()]
    firsts = {name: kinds[PROBED] for name, kinds in places.items()}
    lines.append(row("all", PROBED, [jump for jumps in firsts.values() for jump in jumps]))
    beside = [jump for name, jumps in firsts.items() if name != WORLDS for jump in jumps]
    lines += [row("all but simulated worlds", PROBED, beside), "", *REMARKS]
    return "\n".join(lines) + "\n"
