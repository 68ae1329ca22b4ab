"""What a CUDA card really gives, against what was predicted of it: live, allocated and reserved bytes, then real runs.

    python scripts/bench/gpu_memory.py                 everything, into docs/benchmarks (about an hour)
    python scripts/bench/gpu_memory.py --networks Compact GPT --formats bf16 --no-training
                                                       a part; a later call adds the others
    python scripts/bench/gpu_memory.py --dry           the same code on the CPU, into a temp folder: no GPU figure

Memory: every network of ``trace_cases.py`` under eight plans, in fp32 and bf16, with native and expandable segments.
Predictions come from a process of their own; another one, whose allocator is set before torch is loaded, steps for
real. Live bytes are to equal ``requested_bytes.all.peak``; what kernels take for themselves is in allocated bytes.

Training: ``gpu_control.py``'s networks and caps, ``policy: jump`` beside ``policy: step``.

Rows of the same card, driver and torch are kept in the JSON file, so that a limited session can measure a part.
"""

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import gpu_control
import torch
from segment_kinds import SEGMENTS, with_segments
from trace_against_process import errors_of
from trace_cases import Case, all_cases, gan_stage_case, small_cases

from trainauto.automations.dynamic_batch_size import LQ_SIZE
from trainauto.core.files import write_json_atomically, write_text_atomically
from trainauto.core.plan import Plan
from trainauto.core.units import MIB
from trainauto.memory.cost.cost_model import CostModel
from trainauto.memory.cost.ratio_prior import ALLOCATED
from trainauto.memory.cost.traced_fit import fit_prior
from trainauto.memory.cuda_allocator.segments import uses_expandable_segments
from trainauto.memory.tracing.cuda_autocast import cast_as_cuda
from trainauto.memory.tracing.fake_tensors import group_as_cuda, warm_up

RESULTS = gpu_control.ROOT / "docs/benchmarks/gpu_memory.json"
FORMATS = {"fp32": torch.float32, "bf16": torch.bfloat16}
POLICIES = ("step", "jump")
CAPS = ("10GB", "12GB", "24GB")
LARGEST_SHARE = 0.85
"""Plans that should reserve more of the free memory are left out: they would measure retries."""
WARM_UP_STEPS = 2
READING = (
    "Each row is a network under up to eight plans: 2 crops of 32 px to 32 of 128 px, for the GPT 8 rows of 64",
    "tokens to 256 of 256. A trace of the step's tensors predicts live bytes. The GPU's requested bytes also",
    "contain what cuDNN and cuBLAS allocate through torch, which traces do not see. A negative difference is that",
    "memory; the largest is mostly that of the smallest plan. The first prediction is for a run that has not",
    "measured any plan, the corrected one for a run that has measured another plan. Runs choose plans by the 99 %",
    "quantile, not by these.",
)
MEASURED = ("requested_bytes", "allocated_bytes", "reserved_bytes")
"""As ``torch.cuda.memory_stats`` names them; their peaks of one step."""


def cases_of(folder: Path, *, dry: bool) -> list[Case]:
    """Return the networks with their plans."""
    if dry:
        return [replace(case, on_cards=case.plans) for case in small_cases(folder)]
    return [*all_cases(folder, "cuda"), gan_stage_case(folder, "cuda")]


# --- in a process of its own: what is predicted


def predict(case: Case, dtype: torch.dtype) -> list[dict[str, Any]]:
    """Trace every plan: live bytes by phase, and what the simulated allocator reserves."""
    if not torch.cuda.is_available():
        group_as_cuda()
        cast_as_cuda()
    warm_up()
    run = case.fake(dtype)
    rows = []
    for plan in case.on_cards:
        trace = run.trace(plan)
        reserved = {mode: trace.reserved_bytes(expandable=mode == "expandable") for mode in SEGMENTS}
        phases = dict(trace.phase_peaks_bytes)
        rows.append({"plan": plan.to_dict(), "live_bytes": trace.peak_bytes, "phases": phases, "reserved": reserved})
    return rows


# --- in another one: what is measured


def measure(case: Case, dtype: torch.dtype, plans: Sequence[Plan]) -> dict[str, Any]:
    """Step for real under each plan; on a CPU there are no figures, but the same steps."""
    on_card = torch.cuda.is_available()
    model = case.real(dtype)
    rows = []
    for plan in plans:
        if on_card:
            torch.cuda.empty_cache()
        for _ in range(WARM_UP_STEPS):
            model.step(plan)
        retries = 0
        if on_card:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            retries = torch.cuda.memory_stats()["num_alloc_retries"]
        model.step(plan)
        figures: dict[str, int | None] = dict.fromkeys((*MEASURED, "alloc_retries"))
        if on_card:
            torch.cuda.synchronize()
            statistics_ = torch.cuda.memory_stats()
            figures = {name: statistics_[f"{name}.all.peak"] for name in MEASURED}
            figures["alloc_retries"] = statistics_["num_alloc_retries"] - retries
        rows.append({"plan": plan.to_dict(), **figures})
    expandable = uses_expandable_segments(torch.device("cuda", torch.cuda.current_device())) if on_card else None
    return {"expandable_took_effect": expandable, "rows": rows}


def child(task: Mapping[str, Any]) -> None:
    """Do one task in this process; print what was found as the last line."""
    torch.manual_seed(1)
    with tempfile.TemporaryDirectory() as folder:
        case = next(case for case in cases_of(Path(folder), dry=task["dry"]) if case.name == task["network"])
        dtype = FORMATS[task["format"]]
        if task["what"] == "predict":
            print(json.dumps(predict(case, dtype)))
        else:
            print(json.dumps(measure(case, dtype, [Plan.from_dict(plan) for plan in task["plans"]])))


def in_child(segments: str, **task: Any) -> Any:
    """Do a task in a child whose allocator is set before torch is loaded."""
    done = subprocess.run(
        [sys.executable, __file__, "--child", json.dumps(task)],
        env=with_segments(segments),
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ChildFailedError(f"{task['what']} of {task['network']} ended with exit code {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])


class ChildFailedError(Exception):
    """A child ended without a result; what it wrote went to stderr."""


# --- together


def memory_of(case: Case, name: str, *, dry: bool) -> list[dict[str, Any]]:
    """Return what was predicted and measured of a network in a format, with both kinds of segments."""
    common = {"network": case.name, "format": name, "dry": dry}
    predicted = in_child("native", what="predict", **common)
    free = None if dry else torch.cuda.mem_get_info()[0]
    groups = []
    for segments in SEGMENTS:
        fitting = [row for row in predicted if free is None or row["reserved"][segments] <= LARGEST_SHARE * free]
        measured = in_child(segments, what="measure", plans=[row["plan"] for row in fitting], **common)
        rows = [
            {**row, "reserved_bytes": measured_row["reserved_bytes"], "simulated_bytes": row["reserved"][segments]}
            | {key: measured_row[key] for key in ("requested_bytes", "allocated_bytes", "alloc_retries")}
            for row, measured_row in zip(fitting, measured["rows"], strict=True)
        ]
        took = measured["expandable_took_effect"]
        group = {"network": case.name, "format": name, "segments": segments, "expandable_took_effect": took}
        groups.append({**group, "plans": rows, "window_px": case.window_px, **summary_of(rows, case.window_px)})
    return groups


def summary_of(rows: Sequence[Mapping[str, Any]], window_px: int) -> dict[str, Any]:
    """Return errors of a group; nothing where nothing was measured.

    Errors of allocated bytes are those of a run: the prior and the belief about kernels at first, then with the nearest
    other plan seen.
    """
    if any(row["allocated_bytes"] is None for row in rows):
        return {}
    plans = [Plan.from_dict(row["plan"]) for row in rows]
    prior = fit_prior(
        {(plan.forward_batch_size, plan[LQ_SIZE]): row["phases"] for plan, row in zip(plans, rows, strict=True)},
        window_px,
    )
    learned = errors_of(lambda: CostModel(prior, ALLOCATED), plans, [row["allocated_bytes"] for row in rows])
    return {
        "live_error": _worst(row["live_bytes"] / row["requested_bytes"] - 1 for row in rows),
        "workspaces": statistics.median(row["allocated_bytes"] / row["requested_bytes"] - 1 for row in rows),
        "reserved_error": _worst(row["simulated_bytes"] / row["reserved_bytes"] - 1 for row in rows),
        "first_error": _worst(row["first_error"] for row in learned),
        "corrected_errors": [row["corrected_error"] for row in learned],
    }


def _worst(errors: Any) -> float:
    return float(max(errors, key=abs))


def training_of(network: str, cap: str, policy: str, setting: gpu_control.Setting, folder: Path) -> dict[str, Any]:
    """Train under a cap with a policy, as ``gpu_control.py`` does."""
    setting = replace(setting, policy=policy)
    return {"policy": policy, **gpu_control.run_case(setting, network, cap, folder)}


def table_of(result: Mapping[str, Any]) -> str:
    """Return the page."""
    title = "# Predictions compared with a CUDA GPU"
    if result["dry"]:
        title = "# DRY RUN on a CPU: the code works; no figure of a GPU is in here"
    machine = ", ".join(f"{key} {value}" for key, value in result["machine"].items())
    lines = [
        title,
        "",
        f"`python scripts/bench/gpu_memory.py`, {result['date']}: {machine}.",
        "",
        *(() if result["dry"] else (*READING, "")),
        "| network | format | segments | plans | predicted live, MiB | simulated reserved, MiB "
        "| live - requested, largest | allocated over requested, median | simulated - reserved, largest "
        "| first prediction | corrected, largest |",
        "|---|---|---|---:|---:|---:|---:|---:|---:|---:|---:|",
        *(_memory_row(group) for group in result["memory"]),
        "",
        f"Corrected errors, 95th percentile of all: {_percentile(result['memory'])}.",
        "",
        "| policy | network | cap | plan: first -> settled | changes | OOMs | settled use | highest | samples/s "
        "| Mpx/s (HQ) |",
        "|---|---|---|---|---:|---:|---:|---:|---:|---:|",
        *(f"| {case['policy']} {gpu_control.row_of(case)}" for case in result["training"]),
    ]
    return "\n".join(lines) + "\n"


def _memory_row(group: Mapping[str, Any]) -> str:
    rows = group["plans"]
    span = [
        f"{min(row[name] for row in rows) / MIB:.1f} to {max(row[name] for row in rows) / MIB:.1f}" if rows else "-"
        for name in ("live_bytes", "simulated_bytes")
    ]
    figures = ["not measured"] * 5
    if "live_error" in group:
        names = ("live_error", "workspaces", "reserved_error", "first_error")
        figures = [f"{group[name]:+.2%}" for name in names] + [f"{_worst(group['corrected_errors']):+.2%}"]
    segments = group["segments"]
    if segments == "expandable" and group["expandable_took_effect"] is False:
        segments = "expandable (not taken up)"
    return f"| {group['network']} | {group['format']} | {segments} | {len(rows)} | {' | '.join([*span, *figures])} |"


def _percentile(groups: Sequence[Mapping[str, Any]]) -> str:
    errors = sorted(abs(error) for group in groups for error in group.get("corrected_errors", ()))
    if not errors:
        return "not measured"
    return f"{errors[min(len(errors) - 1, int(0.95 * len(errors)))]:.2%} (at most 3 % is wanted)"


def main() -> int:
    """Measure what is asked for; the files are written after each group."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dry", action="store_true", help="tiny networks on the CPU, a temporary folder")
    parser.add_argument("--networks", nargs="+", metavar="NAME", help="of the memory part")
    parser.add_argument("--formats", nargs="+", choices=list(FORMATS), default=list(FORMATS))
    parser.add_argument("--caps", nargs="+", metavar="SIZE", help="of the training part, e.g. 10GB")
    parser.add_argument("--train", nargs="+", metavar="NAME", help="networks of the training part")
    parser.add_argument("--policies", nargs="+", choices=POLICIES, default=list(POLICIES))
    parser.add_argument("--steps", type=int, metavar="N", help="of a training run")
    parser.add_argument("--no-memory", action="store_true")
    parser.add_argument("--no-training", action="store_true")
    parser.add_argument("--json", type=Path, help="where the results go; the page lies beside it")
    parser.add_argument("--child", type=json.loads, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child)
        return 0
    if not arguments.dry and not torch.cuda.is_available():
        parser.error("there is no CUDA device here; --dry shows the script at work without one")
    with tempfile.TemporaryDirectory() as folder:
        path = arguments.json or (Path(folder) / "dry.json" if arguments.dry else RESULTS)
        result = _result_of(path, dry=arguments.dry)
        if not arguments.no_memory:
            _measure_memory(arguments, result, path, Path(folder))
        if not arguments.no_training:
            _train(arguments, result, path, Path(folder))
        print(table_of(result))
    failed = any(case["exit_code"] for case in result["training"])
    return int(failed or any(abs(group.get("live_error", 0.0)) > 0.01 for group in result["memory"]))


def _result_of(path: Path, *, dry: bool) -> dict[str, Any]:
    """Return what was measured before on the same machine, to be added to."""
    machine = gpu_control.machine_of("cpu" if dry else "cuda")
    fresh = {"dry": dry, "date": time.strftime("%Y-%m-%d"), "machine": machine, "memory": [], "training": []}
    if not path.exists():
        return fresh
    before: dict[str, Any] = json.loads(path.read_text())
    return before if before.get("machine") == machine else fresh


def _add(result: dict[str, Any], part: str, row: Mapping[str, Any], key: Sequence[str], path: Path) -> None:
    """Put a row in the place of an older one of the same key; write both files."""
    kept = [earlier for earlier in result[part] if any(earlier[name] != row[name] for name in key)]
    result[part] = [*kept, row]
    write_json_atomically(path, result)
    write_text_atomically(path.with_suffix(".md"), table_of(result))


def _measure_memory(arguments: argparse.Namespace, result: dict[str, Any], path: Path, folder: Path) -> None:
    cases = cases_of(folder, dry=arguments.dry)
    chosen = [case for case in cases if case.name in (arguments.networks or [case.name])]
    for case, name in itertools.product(chosen, arguments.formats):
        for group in memory_of(case, name, dry=arguments.dry):
            _add(result, "memory", group, ("network", "format", "segments"), path)
            print(_memory_row(group), flush=True)


def _train(arguments: argparse.Namespace, result: dict[str, Any], path: Path, folder: Path) -> None:
    setting = gpu_control.DRY if arguments.dry else gpu_control.ON_CUDA
    setting = replace(setting, steps=arguments.steps or setting.steps)
    networks = arguments.train or (list(setting.networks)[:1] if arguments.dry else list(setting.networks))
    caps = arguments.caps or (setting.caps[:1] if arguments.dry else CAPS)
    for number, (network, cap, policy) in enumerate(itertools.product(networks, caps, arguments.policies)):
        case = training_of(network, cap, policy, setting, folder / f"training_{number}")
        _add(result, "training", case, ("network", "cap", "policy"), path)
        print(f"| {policy} {gpu_control.row_of(case)}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
