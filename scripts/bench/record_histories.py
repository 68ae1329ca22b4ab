"""Records what torch's CUDA allocator does in training steps of this project, as tables that the simulation replays.

    python scripts/bench/record_histories.py FOLDER

Each history is a process of its own: a network of ``trace_cases.py`` is built on the card and steps under plans that
grow, shrink and come back, with native or expandable segments; the cache is emptied once. The tables have the columns
of ``torch.cuda.memory._snapshot``: event, size, address, stream, and the bytes allocated (as asked for) and reserved
after the event. ``machine.json`` beside them names the card, the driver and torch.
"""

import argparse
import csv
import gzip
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gpu_control
import torch
from allocator_histories import GROWS
from gpu_memory import FORMATS
from segment_kinds import with_segments
from trace_cases import all_cases, spaced

from trainauto.core.files import write_json_atomically
from trainauto.core.plan import Plan

CROPS = spaced((2, 32), (4, 32), (4, 48), (2, 64), (4, 48), (4, 32))
"""Growth, the largest, and back: blocks that are cached from one plan serve the next."""
ROWS = spaced((8, 8), (16, 8), (16, 12), (8, 16), (16, 12), (16, 8))
EMPTIED_BEFORE = 4
STEPS = 2
HISTORIES = [
    ("Compact", "fp32", "native"),
    ("Compact", "bf16", "expandable"),
    ("RRDBNet-6", "fp32", "native"),
    ("RRDBNet-6", "bf16", "expandable"),
    ("SwinIR-light", "fp32", "native"),
    ("SwinIR-light", "bf16", "expandable"),
    ("GPT", "bf16", "native"),
    ("GPT", "fp32", "expandable"),
    ("GAN", "fp32", "native"),
    ("GAN", "bf16", "expandable"),
]


def record(network: str, dtype_name: str) -> Sequence[Mapping[str, Any]]:
    """Train in this process, in which nothing has been reserved yet; return the allocator's trace."""
    torch.cuda.memory._record_memory_history(max_entries=1_000_000, context=None)
    with tempfile.TemporaryDirectory() as folder:
        case = next(case for case in all_cases(Path(folder), "cuda") if case.name == network)
        model = case.real(FORMATS[dtype_name])
        plans: Sequence[Plan] = ROWS if network == "GPT" else CROPS
        for number, plan in enumerate(plans):
            if number == EMPTIED_BEFORE:
                torch.cuda.empty_cache()
            for _ in range(STEPS):
                model.step(plan)
    torch.cuda.synchronize()
    return torch.cuda.memory._snapshot()["device_traces"][0]


def write(trace: Sequence[Mapping[str, Any]], file: Path) -> int:
    """Write a trace as a table; return its number of events."""
    allocated = reserved = 0
    with gzip.open(file, "wt", newline="", compresslevel=9) as stream:
        table = csv.writer(stream)
        table.writerow(["event", "size", "address", "stream", "recorded_allocated", "recorded_reserved"])
        for entry in trace:
            action, size = entry["action"], entry["size"]
            reserved += GROWS.get(action, 0) * size
            allocated += {"alloc": size, "free_completed": -size}.get(action, 0)
            table.writerow([action, size, entry.get("addr", 0), entry["stream"], allocated, reserved])
    return len(trace)


def main() -> int:
    """Record each history in a child whose allocator is set before torch is loaded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--networks", nargs="+", choices=sorted({network for network, _, _ in HISTORIES}))
    parser.add_argument("--child", nargs=2, metavar=("NETWORK", "FORMAT"), help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        torch.manual_seed(1)
        print(f"{arguments.file.name}: {write(record(*arguments.child), arguments.file)} events", flush=True)
        return 0
    if not torch.cuda.is_available():
        parser.error("there is no CUDA device here")
    arguments.folder.mkdir(parents=True, exist_ok=True)
    write_json_atomically(arguments.folder / "machine.json", gpu_control.machine_of("cuda"))
    codes = []
    version = ".".join(torch.__version__.split(".")[:2])  # it decides which of equal blocks is taken
    for network, dtype_name, segments in HISTORIES:
        if arguments.networks and network not in arguments.networks:
            continue
        file = arguments.folder / f"torch{version}_{network.lower()}_{dtype_name}_{segments}.csv.gz"
        command = [sys.executable, __file__, str(arguments.folder), "--child", network, dtype_name, "--file", str(file)]
        codes.append(subprocess.run(command, env=with_segments(segments), check=False).returncode)
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main())
