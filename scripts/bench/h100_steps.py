"""Training steps that others recorded on an H100, beside what is predicted of them and what PyTorch's MemTracker says.

    python scripts/bench/h100_steps.py [--networks hf_T5 ...] [--write docs/benchmarks]

The recordings are of others: TRAINAUTO_DATA names their folder (scripts/bench/data/README.md). The networks are built
from their public configurations (``h100_networks.py``) by the releases of the recordings' time, in an environment of
its own that is made under ``build``. No weights are made, and no GPU is used: a step is traced for an H100.

Active bytes are those of the allocator's blocks. Five steps are simulated, as many as were recorded, by the rule for
equal blocks of torch up to 2.11. What is predicted with 99 % probability follows from docs/benchmarks/belief.md.
"""

import argparse
import csv
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

import torch  # noqa: E402
from data_of_others import H100_STEPS, missing  # noqa: E402
from peers_env import python_beside  # noqa: E402

from trainauto.core.files import write_text_atomically  # noqa: E402
from trainauto.core.plan import Plan  # noqa: E402
from trainauto.core.units import MIB  # noqa: E402
from trainauto.engine.traced_training import kernels_of  # noqa: E402
from trainauto.forecast.plan_memory import likely  # noqa: E402
from trainauto.memory.cost.ratio_prior import ON_CARD, reserved_belief  # noqa: E402
from trainauto.memory.cuda_allocator.allocator import CachingAllocator, replay  # noqa: E402
from trainauto.memory.cuda_allocator.steps import repeated  # noqa: E402
from trainauto.memory.tracing.libraries import Hardware, card_libraries, planned_for  # noqa: E402

ENVIRONMENT = ROOT / "build" / "h100_environment"
RELEASES = ("transformers==4.46.2", "timm==1.0.11")
"""timm is installed alone: it asks for torchvision, which these networks do not use."""
H100 = Hardware.of((9, 0), 132)
STEPS = 5
RECORDED_TORCH = (2, 6)
"""Any up to 2.11: they take equal blocks by one rule."""
HEAD = """# Recorded training steps of an H100 compared with predictions

`python scripts/bench/h100_steps.py`, torch {torch}, {releases}, no GPU.

Others recorded steps of gemma-2b, Llama-3.2-1B, GPT-2 large, T5 large, CLIP, ViT-H and ConvNeXtV2-H on an H100 80GB.
They ran in float32 (FP), float16 (HP) or under autocast (MP), with or without checkpointing:
github.com/sanketpurandare/mem-run-estimator at e2955a1. The figures of PyTorch's MemTracker are theirs, too.

Active: the allocator's blocks in use at the peak. Reserved: what the allocator took from the GPU. Ratios are
predicted over measured; "99 %" is the 99 % quantile of the prediction over what was measured (`ON_CARD` and
`reserved_belief` of trainauto/memory/cost/ratio_prior.py).

The recordings' torch is older than the releases that run here. The predicted reserved bytes of gemma-2b at 4 x 1024
(FP) and GPT-2 at 16 x 1024 (HP) are 7 and 3 % too high. On a simulated GPU, PyTorch 2.11's own allocator reserves
what is predicted for them. Convolution kernels allocate memory that traces do not know: ConvNeXtV2's reserved bytes
are the least exact.
"""
TABLE = (
    "| network | batch x tokens or px | format | checkpointing | active, measured | ours | MemTracker | 99 % | "
    "reserved, measured | ours | 99 % |\n|---|---|---|---|---:|---:|---:|---:|---:|---:|---:|"
)


def main() -> int:
    """Trace every row in the environment, print and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", help="of these alone")
    parser.add_argument("--write", type=Path, metavar="FOLDER", help="write h100_steps.md there")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(predicted(json.loads(arguments.child))))
        return 0
    if why := missing(H100_STEPS):
        parser.error(why)
    with H100_STEPS.open(newline="") as lines:
        recorded = [
            row for row in csv.DictReader(lines) if not arguments.networks or row["network"] in arguments.networks
        ]
    python, rows, left_out = python_beside(ENVIRONMENT, RELEASES[:1], RELEASES[1:]), [], []
    for row in recorded:
        if row["network"] == "sd":
            left_out.append("- Stable Diffusion 1.5 (of a fork): diffusers is not among the releases.")
            continue
        done = subprocess.run(
            [python, __file__, "--child", json.dumps(row)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            left_out.append(f"- {_name(row)}: {done.stderr.strip().splitlines()[-1]}")
            continue
        rows.append({**row, **json.loads(done.stdout.splitlines()[-1])})
        print(line_of(rows[-1]), flush=True)
    if not rows:
        print(*left_out, sep="\n", file=sys.stderr)
        return 1
    page = page_of(rows, left_out)
    print(page)
    if arguments.write:
        write_text_atomically(arguments.write / "h100_steps.md", page)
    return 0


def predicted(row: Mapping[str, str]) -> dict[str, Any]:
    """Return what is predicted of a recorded step; the environment's interpreter runs it."""
    from h100_networks import Recorded

    from trainauto.forecast.plan_request import PlanRequest
    from trainauto.forecast.traced_code import CodeTracer
    from trainauto.memory.tracing.fake_tensors import warm_up

    torch.set_num_threads(1)
    warm_up()
    case = Recorded(
        row["network"], int(row["batch"]), int(row["seq"]), int(row["image"]), row["precision"], row["ac"] == "True"
    )
    request = PlanRequest(
        lambda: case.made("cuda:0"), case.loss, case.shapes(), case.optimizer, {"batch": (case.batch, case.batch)}
    )
    tracer = CodeTracer(request)
    tracer.aim(H100)
    start = time.process_time()
    found = tracer.step_trace(Plan.of(batch_size=case.batch))
    seconds = time.process_time() - start
    allocator = CachingAllocator(expandable=False, torch_version=RECORDED_TORCH)
    replay(repeated(found.events, STEPS, found.before, found.late), allocator)
    with planned_for(H100):
        kernels = kernels_of(found, card_libraries())
    active = likely(allocator.peak_allocated_bytes, ON_CARD[kernels])
    return {
        "active": allocator.peak_allocated_bytes,
        "reserved": allocator.peak_reserved_bytes,
        "most_active": active.most_bytes,
        "expected_active": active.expected_bytes,
        "most_reserved": likely(allocator.peak_reserved_bytes, reserved_belief(kernels)).most_bytes,
        "hides_memory": found.hides_memory,
        "seconds": seconds,
    }


def _name(row: Mapping[str, Any]) -> str:
    extent = row["seq"] if row["network"] not in ("timm_vit", "timm_convnext_v2", "hf_clip") else f"{row['image']} px"
    return f"{row['network']}, {row['batch']} x {extent}, {row['precision']}, {row['ac']}"


def line_of(row: Mapping[str, Any]) -> str:
    """Return a row as a line."""
    active, reserved = (row[name] / int(row[f"measured_{name}"]) for name in ("active", "reserved"))
    return f"{_name(row):48} active {active:.5f} reserved {reserved:.4f} in {row['seconds']:.1f} s"


def page_of(rows: Sequence[Mapping[str, Any]], left_out: Sequence[str]) -> str:
    """Return the page in Markdown."""
    active = [row["active"] / int(row["measured_active"]) for row in rows]
    reserved = [row["reserved"] / int(row["measured_reserved"]) for row in rows]
    tracker = [int(row["memtracker"]) / int(row["measured_active"]) for row in rows if row["memtracker"]]
    widths = {
        hidden: [row["most_active"] / row["expected_active"] - 1 for row in rows if row["hides_memory"] == hidden]
        for hidden in (False, True)
    }
    beyond = {
        name: [_name(row) for row in rows if row[f"most_{name}"] < int(row[f"measured_{name}"])]
        for name in ("active", "reserved")
    }
    summary = [
        f"- {len(rows)} steps. Active bytes: {_errors(active)}; MemTracker: {_errors(tracker)}.",
        f"- Reserved bytes: {_errors(reserved)}. MemTracker does not predict them.",
        *(f"- The 99 % quantile of {name} bytes is exceeded by {_listed(names)}." for name, names in beyond.items()),
        *(
            f"- {kind} convolutions the 99 % quantile of active bytes is {statistics.median(widths[hidden]):.1%} above "
            f"the expected value, in the median of {len(widths[hidden])} steps."
            for kind, hidden in (("Without", False), ("With", True))
            if widths[hidden]
        ),
        f"- A trace takes {statistics.median(row['seconds'] for row in rows):.1f} s of one core, in the median.",
    ]
    head = HEAD.format(torch=torch.__version__, releases=" and ".join(RELEASES))
    more = ["", "Left out:", "", *left_out] if left_out else []
    return "\n".join([head, *summary, "", TABLE, *map(_row, rows), *more, ""])


def _errors(ratios: Sequence[float]) -> str:
    errors = sorted(abs(ratio - 1) for ratio in ratios)
    near = errors[math.ceil(0.9 * len(errors)) - 1]
    return f"median error {statistics.median(errors):.3%}, nine of ten within {near:.2%}, worst {errors[-1]:.2%}"


def _listed(names: Sequence[str]) -> str:
    return "; ".join(names) or "none"


def _row(row: Mapping[str, Any]) -> str:
    network, extent, form, again = _name(row).split(", ")
    cells = []
    for name in ("active", "reserved"):
        measured = int(row[f"measured_{name}"])
        tracker = f"{int(row['memtracker']) / measured:.4f}" if row["memtracker"] else "-"
        cells += [f"{measured / MIB:.0f} MiB", f"{row[name] / measured:.5f}"]
        cells += [tracker] if name == "active" else []
        cells += [f"{row[f'most_{name}'] / measured:.3f}"]
    return f"| {network} | {extent} | {form} | {'yes' if again == 'True' else 'no'} | {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main())
