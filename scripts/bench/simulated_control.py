"""How the controller fills cards that are not there, with PyTorch's real CUDA allocator: no figure is of a GPU.

    python scripts/simulated_card.py run -- python scripts/bench/simulated_control.py

Four parts; each row is a process of its own, and rows that are there are kept:

a. Worlds: six networks, fp32 and bf16, native and expandable segments, each on a card of a size drawn between 4
   and 16 GiB. ``train.py`` trains 120 steps; the controller starts from batch 2 and crops of 32 px.
   The same by ``objective: throughput`` and ``goodput``, with noise drawn by ``simulated_noise.py``.
b. A neighbour: another process takes 30 % of the card at step 300 and gives it back 500 steps later.
c. Fragmentation: 5,000 steps of one model whose plan changes every ten steps among those predicted to fit the target.

``python`` sees the variables of ``simulated_card.py``; each child gets a card of its own size.
"""

import argparse
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
from gpu_control import CONTROLLER
from segment_kinds import SEGMENTS, with_segments
from trace_cases import option_case

from trainauto.core.files import write_json_atomically, write_text_atomically
from trainauto.core.json_text import read_lines
from trainauto.core.plan import Plan
from trainauto.core.units import MIB
from trainauto.memory.tracing.fake_tensors import warm_up
from trainauto.storage.run_directory import RunDirectory

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs/benchmarks/simulated_control.json"
NEIGHBOUR = ROOT / "tests/simulated_card/neighbour.py"
TARGET = 0.85
PERIOD = 20
NETWORKS: dict[str, dict[str, Any]] = {
    "compact": {"num_feat": 128, "num_conv": 48},
    "rrdbnet": {"num_feat": 64, "num_block": 6, "num_grow_ch": 32},
    "span": {"feature_channels": 96},
    "swinir": {"embed_dim": 96, "depths": [4, 4], "num_heads": [6, 6], "window_size": 8, "img_size": 32},
    "mosr": {"dim": 96, "n_block": 12},
    "dat": {"embed_dim": 96, "depth": [4], "num_heads": [4], "split_size": [8, 16], "img_size": 32},
}
FORMATS = ("fp32", "bf16")
BESIDE = ("compact", "rrdbnet", "swinir")
"""Networks of parts b and c."""
ARRIVES, STAYS, AFTER = 300, 500, 300
FRAGMENTED_STEPS, STEPS_A_PLAN = 5000, 10


def card_bytes(*key: str) -> int:
    """Return the size of the card of a world, the same each time."""
    return int(2 ** random.Random(" ".join(key)).uniform(32, 34)) // MIB * MIB


def options_of(network: str, number_format: str, folder: Path, steps: int, objective: str = "memory") -> dict[str, Any]:
    """Return the option file of a run."""
    controller = {
        "objective": objective,
        "adjustment_frequency": PERIOD,
        "target_vram_usage": TARGET,
        "min_batch_size": 1,
        "max_batch_size": 512,
        "min_lq_size": 16,
        "max_lq_size": 64,
        "max_adjustments": steps,
    }
    photographs = [f"package:skimage/data/{name}" for name in ("astronaut.png", "hubble_deep_field.jpg")]
    return {
        "name": "world",
        "scale": 4,
        "manual_seed": 1,
        "plugins": ["simulated_noise"] if objective == "goodput" else [],
        "use_amp": number_format == "bf16",
        "datasets": {
            "train": {
                "type": "GTImageDataset",
                "dataroot_gt": photographs,
                "lq_size": 32,
                "batch_size_per_gpu": 2,
                "num_worker_per_gpu": 0,
                "cache_dir": str(folder.parent / "cache"),
            }
        },
        "network_g": {"type": network, **NETWORKS[network]},
        "path": {"experiments_root": str(folder)},
        "train": {
            "total_iter": steps,
            "losses": [{"type": "l1loss"}],
            "optim_g": {"type": "Adam", "lr": 1e-4},
        },
        "val": {"val_enabled": False},
        "memory": {"calibration": False},  # or a world would start where one before it settled
        "logger": {"print_freq": 100, "save_checkpoint_freq": steps, "use_tb_logger": False},
        "training_automations": {CONTROLLER: controller},
    }


# --- (a) worlds, (b) a neighbour


def world(network: str, number_format: str, segments: str) -> dict[str, Any]:
    """Train on a card of its own size; return what the log says."""
    return _world(network, number_format, segments, "memory")


def fastest(network: str, number_format: str, segments: str) -> dict[str, Any]:
    """The same by ``objective: throughput``."""
    return _world(network, number_format, segments, "throughput")


def most_learned(network: str, number_format: str, segments: str) -> dict[str, Any]:
    """The same by ``objective: goodput``."""
    return _world(network, number_format, segments, "goodput")


def _world(network: str, number_format: str, segments: str, objective: str) -> dict[str, Any]:
    size = card_bytes("world", network, number_format, segments)
    return trained(network, number_format, segments, size, 120, objective=objective)


def beside(network: str, number_format: str, segments: str) -> dict[str, Any]:
    """Train while another process comes and goes."""
    size = 6 * 2**30
    steps = ARRIVES + STAYS + AFTER
    return trained(network, number_format, segments, size, steps, neighbour=int(0.3 * size))


def trained(
    network: str,
    number_format: str,
    segments: str,
    size: int,
    steps: int,
    neighbour: int = 0,
    objective: str = "memory",
) -> dict[str, Any]:
    """Run ``train.py`` on a card of so many bytes; return the figures of its log."""
    with tempfile.TemporaryDirectory() as name, tempfile.NamedTemporaryFile(prefix="holders-") as table:
        folder = Path(name) / "runs"
        folder.mkdir()
        options = folder / "options.yml"
        options.write_text(json.dumps(options_of(network, number_format, folder, steps, objective)))  # JSON is YAML
        environment = {
            **with_segments(segments),
            "SIMULATED_CARD_BYTES": str(size),
            "SIMULATED_CARD_TABLE": table.name,
            "SIMULATED_CARD_NAME": "card (simulated)",
            "PYTHONPATH": str(Path(__file__).parent),  # of plugins
        }
        with (folder / "output.txt").open("w+") as output:
            run = subprocess.Popen(
                [sys.executable, str(ROOT / "train.py"), "-opt", str(options)],
                cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT,
            )  # fmt: skip
            if neighbour:
                come_and_go(run, folder, neighbour, environment)
            code = run.wait()
            output.seek(0)
            text = output.read()
        found = RunDirectory.current(folder, "world")
        records = list(read_lines(found.records)) if found else []
        row: dict[str, Any] = {"card": size, "exit_code": code}
        if code:
            return row | {"error": text.strip().splitlines()[-6:]}
        return row | (phases_of(records) if neighbour else figures_of(records))


def come_and_go(run: subprocess.Popen[bytes], folder: Path, size: int, environment: Mapping[str, str]) -> None:
    """Hold memory of the card between two steps of the run."""
    other = subprocess.Popen(
        [sys.executable, str(NEIGHBOUR)], env=dict(environment), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
        text=True,
    )  # fmt: skip
    with other:
        assert other.stdin is not None  # noqa: S101 - it is a pipe
        for step, held in ((ARRIVES, size), (ARRIVES + STAYS, 0)):
            while run.poll() is None and steps_of(folder) < step:
                time.sleep(0.02)
            if run.poll() is None:
                other.stdin.write(f"{held}\n")
                other.stdin.flush()
        other.stdin.close()


def steps_of(folder: Path) -> int:
    """Return how many steps the run has trained, as its log says."""
    found = RunDirectory.current(folder, "world")
    if not found or not found.records.exists():
        return 0
    with found.records.open("rb") as file:
        return sum(1 for _ in file)


def share(record: Mapping[str, Any]) -> float:
    """Return the step's peak over the target."""
    return record["peak"]["allocated"] / (TARGET * record["peak"]["limit"])


def figures_of(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what became of the first plan, and where the run settled."""
    first = list(itertools.takewhile(lambda record: record["plan"] == records[0]["plan"], records))
    last = [record for record in records[-PERIOD:] if record["plan"] == records[-1]["plan"]]
    return {
        "first_plan": records[0]["plan"],
        "first_use": max(map(share, first)),
        "settled_plan": records[-1]["plan"],
        "settled_use": max(map(share, last)),
        "out_of_memory_first_period": sum(record["ooms"] for record in records[:PERIOD]),
        "out_of_memory_after": sum(record["ooms"] for record in records[PERIOD:]),
        "retries_after": records[-1]["peak"]["alloc_retries"] - records[PERIOD]["peak"]["alloc_retries"],
    }


def phases_of(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return use and failures before the neighbour, beside it, and after it; the first period of each apart."""
    cuts = [0, ARRIVES, ARRIVES + STAYS, len(records)]
    row: dict[str, Any] = {}
    for name, (start, end) in zip(("before", "beside", "after"), itertools.pairwise(cuts), strict=True):
        part = records[start:end]
        available = part[-1]["peak"]["available"]
        row[name] = {
            "plan": part[-1]["plan"],
            "use": median(map(share, part[-PERIOD:])),
            "of_available": part[-1]["peak"]["allocated"] / available if available else None,
            "arriving": sum(record["ooms"] for record in part[: 2 * PERIOD]),
            "settled": sum(record["ooms"] for record in part[2 * PERIOD :]),
        }
    return row


# --- (c) fragmentation


def fragmented(network: str, number_format: str, segments: str) -> dict[str, Any]:
    """Return what a process that changes plans for long reserves and how often memory runs out, by tenths."""
    done = subprocess.run(
        [sys.executable, __file__, "--child", network, number_format, segments],
        env={**with_segments(segments), "SIMULATED_CARD_BYTES": str(24 * 2**30)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        return {"exit_code": done.returncode, "error": done.stderr.strip().splitlines()[-6:]}
    return {"exit_code": 0, **json.loads(done.stdout.splitlines()[-1])}


def child(network: str, number_format: str, segments: str) -> None:
    """Step under changing plans; the figures are the last line."""
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[number_format]
    warm_up()
    with tempfile.TemporaryDirectory() as folder:
        options = {"scale": 4, "network_g": {"type": network, **NETWORKS[network]}}
        case = option_case(network, Path(folder), options, (), device="cuda")
        traced = {
            plan: case.fake(dtype).trace(plan)
            for plan in (Plan.of(batch_size=batch, lq_size=side) for side in (32, 48, 64) for batch in (4, 7, 10, 16))
        }
        limit = int(max(trace.peak_bytes for trace in traced.values()) / TARGET)
        torch.cuda.set_per_process_memory_fraction(limit / torch.cuda.mem_get_info()[1])
        model = case.real(dtype)
        expandable = segments == "expandable"
        plans = [
            plan for plan, trace in traced.items() if trace.needed_bytes(expandable=expandable).least_bytes <= limit
        ]
        draw, tenths = random.Random(1), []
        for _ in range(10):
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_stats()
            for _ in range(FRAGMENTED_STEPS // 10 // STEPS_A_PLAN):
                plan = draw.choice(plans)
                for _ in range(STEPS_A_PLAN):
                    model.step(plan)
            after = torch.cuda.memory_stats()
            tenths.append(
                {
                    "allocated": after["allocated_bytes.all.peak"],
                    "reserved": after["reserved_bytes.all.peak"],
                    "flushes": after["num_alloc_retries"] - before["num_alloc_retries"],
                    "out_of_memory": after["num_ooms"] - before["num_ooms"],
                }
            )
    print(json.dumps({"limit": limit, "plans": len(plans), "tenths": tenths}))


# --- together

PARTS = {
    "world": world,
    "throughput": fastest,
    "goodput": most_learned,
    "beside": beside,
    "fragmented": fragmented,
}
WORLDS_OF = ("world", "throughput", "goodput")
"""Parts that train in all worlds."""


def cases() -> Iterator[tuple[str, str, str, str]]:
    """Yield part, network, format and segments of each row."""
    for part in PARTS:
        networks, formats = (list(NETWORKS), FORMATS) if part in WORLDS_OF else (BESIDE, ("fp32",))
        yield from itertools.product([part], networks, formats, SEGMENTS)


def main() -> int:
    """Measure what is missing, print and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(*arguments.child)
        return 0
    if not os.environ.get("SIMULATED_CARD_NAME"):
        parser.error("this is for a simulated card: python scripts/simulated_card.py run -- python ...")
    rows: list[dict[str, Any]] = json.loads(arguments.results.read_text())["rows"] if arguments.results.exists() else []
    known = {tuple(row["case"]) for row in rows}
    for case in cases():
        if case in known or case[0] not in arguments.parts:
            continue
        rows.append({"case": case, **PARTS[case[0]](*case[1:])})
        print(json.dumps(rows[-1]), flush=True)
        write_json_atomically(arguments.results, {"torch": torch.__version__, "rows": rows})
    write_text_atomically(arguments.results.with_suffix(".md"), page_of(rows, torch.__version__))
    return 0


HEAD = """# The controller on PyTorch's real allocator

`python scripts/simulated_card.py run -- python scripts/bench/simulated_control.py`, torch {torch}: without a GPU
([what a simulated GPU proves](../simulated_card.md)). The allocator, its errors and its figures are PyTorch's own;
cuDNN's workspaces are 0 on both sides.
"""
WORLDS = """## 24 worlds

`train.py` runs on a GPU of random size at x4 and starts with batch 2 x 32 px. Crops grow up to 64 px and batches up
to 512, with target 0.85, for 120 steps in periods of 20. Plans are batch x crop in px. Use is the highest peak of
allocated bytes over the target.

`objective: memory` is the default. Its first plans use {least:.1%} to {most:.1%} of the target, {middle:.1%} in the
median. The other two show whether plans that are tried for speed and worth stay within memory. Kernels of a simulated
GPU take no time but loading does, so these runs settle where loading keeps up. Gradients are not computed: `goodput`
gets random noise scales around 256 samples. {changed} runs changed their plan.

Memory ran out {failures} times in {runs} runs ({first} in the first period).

| network | format | segments | GPU | first plan, use | settled | `throughput`, settled | `goodput`, settled |
|---|---|---|---:|---|---|---|---|"""
BESIDE_HEAD = """## Beside another program

On a GPU of 6 GiB another process allocates 30 % before step 300 and releases it at step 800. Use is the median of the
last 20 steps' peaks over the target, and beside the other program over the memory left to the run. Failures: steps that
ran out of memory among the first 40 after a change, and others; a step during which the other process allocates may
fail. The simulated GPU lets a program take memory that another one uses; a run that has all it needs keeps its plan.

| network | segments | before: batch x px, use | beside the other program: of the memory left | after | failures |
|---|---|---|---|---|---|"""
FRAGMENTS = """## 5,000 steps of changing plans

The plan of one model changes every ten steps, among plans of 4 to 16 crops of 32 to 64 px that are predicted to fit a
limit; the largest fills 85 % of it. Shares are the highest, of the limit. Two figures are those of the first and of the
last 500 steps.

| network | segments | plans | allocated | reserved | cache released | out of memory |
|---|---|---:|---:|---:|---|---:|"""


def page_of(rows: Sequence[Mapping[str, Any]], torch_version: str) -> str:
    """Return the page in Markdown."""
    by_part = {part: [row for row in rows if row["case"][0] == part] for part in PARTS}
    failed = [f"- {' '.join(row['case'])}: {' '.join(row['error'])}" for row in rows if row["exit_code"]]
    whole = {part: [row for row in found if not row["exit_code"]] for part, found in by_part.items()}
    tables = [
        _of_worlds(whole),
        [BESIDE_HEAD, *map(_beside_row, whole["beside"])],
        [FRAGMENTS, *map(_fragmented_row, whole["fragmented"])],
    ]
    parts = [HEAD.format(torch=torch_version), *("\n".join(table) + "\n" for table in tables)]
    return "\n".join([*parts, *(["Failed:", "", *failed, ""] if failed else [])])


def _plan(plan: Mapping[str, int]) -> str:
    return f"{plan['batch_size']} x {plan['lq_size']}"


def _of_worlds(whole: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[str]:
    rows = [row for part in WORLDS_OF for row in whole[part]]
    others = [row for part in WORLDS_OF[1:] for row in whole[part]]
    uses = [row["first_use"] for row in whole["world"]]
    first = sum(row["out_of_memory_first_period"] for row in rows)
    head = WORLDS.format(
        least=min(uses),
        most=max(uses),
        middle=median(uses),
        changed=f"{sum(row['settled_plan'] != row['first_plan'] for row in others)} of the {len(others)}",
        failures=first + sum(row["out_of_memory_after"] for row in rows),
        runs=len(rows),
        first=first,
    )
    found = {tuple(row["case"]): row for row in rows}
    worlds = list(dict.fromkeys(tuple(row["case"][1:]) for row in rows))
    return [head, *(_world_row(*(found.get((part, *world)) for part in WORLDS_OF), world) for world in worlds)]


def _world_row(*found: Any) -> str:
    *rows, world = found
    size = next(row["card"] for row in rows if row)
    memory = rows[0]
    first = f"{_plan(memory['first_plan'])}, {memory['first_use']:.1%}" if memory else "failed"
    settled = [f"{_plan(row['settled_plan'])}, {row['settled_use']:.1%}" if row else "failed" for row in rows]
    settled[0] = "the same" if settled[0] == first else settled[0]
    return f"| {' | '.join([*world, f'{size / 2**30:.1f} GiB', first, *settled])} |"


def _beside_row(row: Mapping[str, Any]) -> str:
    _, network, _, segments = row["case"]
    before, beside, after = (row[name] for name in ("before", "beside", "after"))
    failures = (
        f"{sum(part['arriving'] for part in (beside, after))}, {sum(part['settled'] for part in (beside, after))}"
    )
    cells = [f"{_plan(part['plan'])}, {part['use']:.1%}" for part in (before, after)]
    left = f"{_plan(beside['plan'])}, {beside['of_available']:.1%}"
    return f"| {network} | {segments} | {cells[0]} | {left} | {cells[1]} | {failures} |"


def _fragmented_row(row: Mapping[str, Any]) -> str:
    _, network, _, segments = row["case"]
    first, last = row["tenths"][0], row["tenths"][-1]
    allocated, *reserved = (
        f"{value / row['limit']:.1%}" for value in (last["allocated"], first["reserved"], last["reserved"])
    )
    cells = f"{allocated} | {', '.join(reserved)}"
    failures = sum(tenth["out_of_memory"] for tenth in row["tenths"])
    return f"| {network} | {segments} | {row['plans']} | {cells} | {first['flushes']}, {last['flushes']} | {failures} |"


if __name__ == "__main__":
    sys.exit(main())
