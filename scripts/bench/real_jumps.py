"""First plans of many real runs on the CPU under enforced budgets, for ``jump_coverage.py``.

    python scripts/bench/real_jumps.py [--jumps 300] [--processes 2] [--results build/real_jumps.jsonl]

Networks are autobatch's; budgets (32 to 160 MiB, evenly in the logarithm), seeds and whether the crop is free are drawn
from the number of the jump. Every run goes through ``train.py`` for a period and a half, in a process of its own on one
thread, and starts from nothing learned. A file of results is continued: its jumps are not run again.
"""

import argparse
import json
import math
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

from autobatch_cases import (
    CROPS_PX,
    NETWORKS,
    PERIOD_STEPS,
    ROOT,
    Case,
    child_environment,
    controller,
    write_images,
    write_options,
)

SMALLEST_MIB, LARGEST_MIB = 32, 160
STEPS = PERIOD_STEPS * 3 // 2
PATIENCE_S = 300


def drawn(number: int) -> tuple[Case, bool]:
    """Return the case of a jump, and whether its crop is free."""
    random = Random(number)
    budget = math.exp(random.uniform(math.log(SMALLEST_MIB), math.log(LARGEST_MIB)))
    return Case(random.choice(list(NETWORKS)), round(budget), number), random.random() < 0.5


def jump(number: int, images: Path, folder: Path) -> dict[str, Any]:
    """Run one; return what was predicted of its first plan and what its steps took."""
    case, free = drawn(number)
    crops = CROPS_PX[case.network] if free else (case.lq_size, case.lq_size)
    file = write_options(folder, case, images, STEPS, controller("jump", crops))
    command = [sys.executable, str(ROOT / "train.py"), "-opt", file.name]
    record = {"method": "jump", "network": case.network, "budget_mib": case.budget_mib, "seed": number, "free": free}
    with (folder / "output.txt").open("w") as output:
        ended = subprocess.run(
            command, cwd=folder, env=child_environment(), stdout=output, stderr=subprocess.STDOUT, timeout=PATIENCE_S
        )
    log = folder / "experiments" / "run" / "current" / "training_log.jsonl"
    if ended.returncode:
        return {**record, "failure": (folder / "output.txt").read_text()[-300:]}
    steps = [record for record in map(json.loads, log.read_text().splitlines()) if "step_s" in record]
    first = [step for step in steps if step["plan"] == steps[0]["plan"]]
    ooms = sum(step["ooms"] for step in steps)
    peaks = [step["peak"]["allocated"] for step in first]
    return {
        **record,
        "plan": steps[0]["plan"],
        "first_jump": {"expected": steps[0]["predicted"], "peaks": peaks},
        "ooms": ooms,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jumps", type=int, default=300)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--results", type=Path, default=ROOT / "build" / "real_jumps.jsonl")
    arguments = parser.parse_args()
    arguments.results.parent.mkdir(parents=True, exist_ok=True)
    lines = arguments.results.read_text().splitlines() if arguments.results.exists() else []
    known = {result["seed"] for result in map(json.loads, lines)}
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(arguments.processes) as pool:
        images = write_images(Path(folder) / "images")
        wanted = [number for number in range(1, arguments.jumps + 1) if number not in known]
        for result in pool.map(lambda number: jump(number, images, Path(folder) / str(number)), wanted):
            with arguments.results.open("a") as results:
                results.write(json.dumps(result) + "\n")
            print(
                result["seed"],
                result["network"],
                result["budget_mib"],
                result.get("plan"),
                result.get("ooms"),
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
