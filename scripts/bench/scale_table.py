"""The figures of scripts/bench/scale.py as tables for docs/benchmarks/scale.md.

python scripts/bench/scale_table.py docs/benchmarks/scale.json
"""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from trainauto.core.files import write_json_atomically
from trainauto.core.units import MIB

ASSUMED_HOP_S = 50e-6
"""A message between two machines with cores to spare. Nobody measured it here."""

STEP_S = 0.3
CALLS = {
    "sum_gradients": "sum_gradients, nothing to sum",
    "exchange": "exchange of a step's record",
    "decided": "decided, no decision",
    "gather": "gather of random states",
    "ring, largest": "gloo's ring, largest of all",
    "ring, records": "gloo's ring, all records",
}


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table whose columns but the first stand to the right."""
    lines = ["| " + " | ".join(head) + " |", "|---" + "|---:" * (len(head) - 1) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"


def messages(part: Mapping[str, Any]) -> str:
    """Latency by ranks."""
    rows = [
        [count, *(_both(figures["calls"][call]) for call in CALLS.values())]
        for count, figures in part["ranks"].items()
        if count != "1"
    ]
    return table(["ranks", *CALLS], rows)


def _both(figures: Mapping[str, float]) -> str:
    return f"{1000 * figures['median_s']:.1f} ({1000 * figures['p90_s']:.1f})"


def gradients(part: Mapping[str, Any]) -> str:
    """Sums of gradients by ranks and size."""
    rows = [
        [
            f"{count}, {size} MiB",
            f"{1000 * figures['median_s']:.0f} ({1000 * figures['p90_s']:.0f})",
            f"{1000 * figures['cpu_s_of_all']:.0f}",
            f"{figures['sent_bytes'] / MIB:.2f}",
        ]
        for count, sizes in part["ranks"].items()
        for size, figures in sizes.items()
    ]
    return table(["ranks, size", "ms, median (90 %)", "CPU ms of all ranks", "MiB a rank sends"], rows)


def overlap(part: Mapping[str, Any]) -> str:
    """Ratios with their noise."""
    rows = []
    for name in ("compact", "rrdbnet"):
        figures = part[name]
        for what in ("after / inside", "after / after again", "cpu, after / inside", "cpu, after / after again"):
            ratio = figures[what]
            rows.append([f"{name}: {what}", f"{ratio['median']:.3f}", f"{ratio['low']:.3f} to {ratio['high']:.3f}"])
        steps = ", ".join(f"{kind} {1000 * figures['step_s'][kind]:.0f}" for kind in ("after", "after again", "inside"))
        rows.append([f"{name}: ms a step", steps, f"{figures['weights'] / 1000:.0f} K weights"])
    return table(["", "median", "95 % interval"], rows)


def runs(part: Mapping[str, Any]) -> str:
    """Whole runs by ranks."""
    rows = []
    for count, some in part["ranks"].items():
        wall = [run["step_s"] for run in some]
        cpu = [run["cpu_s_of_all"] for run in some]
        shares = [sum(run["in_calls_s"].values()) / run["step_s"] for run in some]
        seconds = f"{1000 * median(wall):.0f} ({1000 * min(wall):.0f} to {1000 * max(wall):.0f})"
        of_all = f"{1000 * median(cpu):.0f} ({1000 * min(cpu):.0f} to {1000 * max(cpu):.0f})"
        rows.append([count, seconds, of_all, f"{median(shares):.0%}" if count != "1" else ""])
    return table(["ranks", "ms a step", "CPU ms of all ranks", "share in calls"], rows)


def locally(part: Mapping[str, Any]) -> str:
    """What one rank does by itself."""
    names = ("agreed_step_s", "division_s", "division_after_a_change_s")
    rows = [[count, *(f"{1000 * seconds[name]:.2f}" for name in names)] for count, seconds in part["ranks"].items()]
    return table(["ranks", "reading all records", "own samples", "own samples, new plan"], rows)


def reasoned(parts: Mapping[str, Any]) -> dict[str, Any]:
    """Return what follows for more ranks than were run: hops one after another in a step, and the time they take.

    A ring's all-reduce is 2 (W - 1) hops, its all-gather W - 1, a broadcast's tree log2 W (gloo/allreduce.cc,
    gloo/allgather.cc, gloo/broadcast.cc); by doubling, each is log2 W. The time of a hop is that of two ranks here, and
    one that is assumed.
    """
    calls = parts["messages"]["ranks"]["2"]["calls"]
    a_step_s = sum(calls[CALLS[name]]["median_s"] for name in ("sum_gradients", "exchange", "decided"))
    hop_s = a_step_s / _hops(2)["doubling"]
    state_bytes = parts["messages"]["ranks"]["2"]["state_bytes"]
    counts = {}
    for count in (2, 4, 16, 64, 256, 1024):
        hops = _hops(count)
        some = {f"{name}_hops": number for name, number in hops.items()}
        for name, each_s in (("measured_hop", hop_s), ("assumed_hop", ASSUMED_HOP_S)):
            some |= {f"{how}_s_by_{name}": number * each_s for how, number in hops.items()}
        some["share_of_step_by_assumed_hop"] = some["doubling_s_by_assumed_hop"] / STEP_S
        some["share_of_step_by_measured_hop"] = some["doubling_s_by_measured_hop"] / STEP_S
        some["exchange_bytes"] = (count - 1) * 1024
        some["random_states_to_first_bytes"] = (count - 1) * state_bytes
        counts[str(count)] = some
    return {"measured_hop_s": hop_s, "assumed_hop_s": ASSUMED_HOP_S, "step_s": STEP_S, "ranks": counts}


def _hops(count: int) -> dict[str, int]:
    doublings = (count - 1).bit_length()
    return {"ring": 3 * (count - 1) + doublings, "doubling": 3 * doublings}


def estimates(part: Mapping[str, Any]) -> str:
    """What :func:`reasoned` found."""
    rows = [
        [
            count,
            str(figures["doubling_hops"]),
            f"{1000 * figures['doubling_s_by_measured_hop']:.0f}",
            f"{1000 * figures['doubling_s_by_assumed_hop']:.1f} ({figures['share_of_step_by_assumed_hop']:.1%})",
            str(figures["ring_hops"]),
            f"{1000 * figures['ring_s_by_assumed_hop']:.1f}",
        ]
        for count, figures in part["ranks"].items()
    ]
    measured, assumed = 1000 * part["measured_hop_s"], 1000 * part["assumed_hop_s"]
    head = [
        "ranks",
        "hops a step",
        f"ms, {measured:.2f} ms a hop",
        f"ms, {assumed} ms (share)",
        "by rings",
        f"ms, {assumed} ms",
    ]
    return table(head, rows)


PARTS = {"messages": messages, "gradients": gradients, "overlap": overlap, "run": runs, "locally": locally}


def main(file: str) -> None:
    """Print all tables; what they let one expect of more ranks goes into the file."""
    parts = json.loads(Path(file).read_text(encoding="utf-8"))
    parts["reasoned"] = reasoned(parts)
    write_json_atomically(Path(file), parts)
    print(parts["machine"], "\n")
    for name, make in PARTS.items():
        print(name, parts[name]["about"], "\n", sep="\n", end="")
        print(make(parts[name]))
    print("reasoned", estimates(parts["reasoned"]), sep="\n\n")


if __name__ == "__main__":
    main(sys.argv[1])
