"""Steps of ranks whose weights are spread (fully_shard): predicted, real, and as PyTorch's FSDPMemTracker has them.

    python scripts/bench/sharded_steps.py

Two and four processes meet over gloo, and torch's profiler says which bytes the first of them takes in a step. Prints a
table in Markdown. What gloo itself copies messages to is left out: NCCL does not.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker

from tests.integration.commands import write_options
from tests.integration.ranks import finish, start
from tests.integration.sharded_cases import sharded_cases
from trainauto.core.plan import Plan
from trainauto.forecast.traced_run import fake_run
from trainauto.memory.tracing.fake_tensors import fake_world
from trainauto.memory.tracing.host_reads import AnsweredReads
from trainauto.options.load import load_options

WORKER = Path(__file__).parents[2] / "tests/integration/rank_memory.py"
RANKS = (2, 4)


def real_bytes(folder: Path, plans: dict[str, Any], ranks: int) -> dict[str, dict[str, int]]:
    """Return what the first of so many ranks takes in a step of each file."""
    done = finish(start([str(WORKER), "seen_{rank}.json", json.dumps(plans)], ranks, folder), timeout_s=1200)
    if any(code for code, _ in done):
        raise SystemExit("\n".join(text for _, text in done))
    found: dict[str, dict[str, int]] = json.loads((folder / "seen_0.json").read_text())
    return found


def tracked_bytes(file: Path, plan: Plan, ranks: int) -> int | None:
    """Return the peak that FSDPMemTracker finds in the same step on fake tensors; ``None`` where it fails."""
    run = fake_run(load_options(file), world_size=ranks)
    model = run._traced.model
    (network,), (optimizer,) = model.networks.values(), model.optimizers.values()
    try:
        with fake_world(run._mode), AnsweredReads():
            tracker = FSDPMemTracker(network, optimizer)
            tracker.track_inputs(())
            with tracker:
                run._traced.step(plan)
                tracker.reset_mod_stats()
                run._traced.step(plan)
        return max(one["Total"] for one in tracker.get_tracker_snapshot("peak").values())
    except Exception as error:
        print(f"{file.stem}: FSDPMemTracker fails: {type(error).__name__}: {error}", file=sys.stderr)
        return None


def main() -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cases = sharded_cases(folder)
        plans = {f"{case}.yml": plan for case, (_, plan) in cases.items()}
        for case, (options, _) in cases.items():
            write_options(folder / f"{case}.yml", options)
        print("| step | ranks | real, bytes | ours | FSDPMemTracker |\n|---|---:|---:|---:|---:|")
        for ranks in RANKS:
            for file, real in real_bytes(folder, plans, ranks).items():
                plan = Plan.from_dict(plans[file])
                ours = fake_run(load_options(folder / file), world_size=ranks).trace(plan).peak_bytes
                theirs = tracked_bytes(folder / file, plan, ranks)
                peak = real["own"] + real["rise"]
                others = "fails" if theirs is None else f"{theirs / peak:.4f}"
                print(f"| {file[:-4]} | {ranks} | {peak} | {ours / peak:.5f} | {others} |", flush=True)


if __name__ == "__main__":
    main()
