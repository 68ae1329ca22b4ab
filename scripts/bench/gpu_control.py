"""How DynamicBatchSizeOptimizer fills a CUDA card: real training under caps of 10, 12 and 24 GB.

    python scripts/bench/gpu_control.py               every network under every cap, into docs/benchmarks
    python scripts/bench/gpu_control.py --networks span compact --caps 10GB
                                                      a part; a later call adds the others
    python scripts/bench/gpu_control.py --dry         the same on small CPU budgets, into a temp folder

Each case is a run of its own: train.py in a child process, with ``memory: budget`` as the cap (a share of the card, set
by ``set_per_process_memory_fraction``), networks at x4 on photographs that ship with scikit-image. Everything in the
table is read from the run's own training_log.jsonl and decisions.jsonl. Cases of the same card, driver and torch are
kept in the JSON file, so that a limited session can measure a few at a time.
"""

import argparse
import itertools
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from trainauto.core.files import write_json_atomically, write_text_atomically
from trainauto.core.json_text import read_lines
from trainauto.storage.run_directory import RunDirectory

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs/benchmarks/gpu_control.json"
WARM_UP_STEPS = 5
"""Steps left out of the speed at the first plan: kernels are chosen, queues fill."""
CONTROLLER = "DynamicBatchSizeOptimizer"


@dataclass(frozen=True)
class Setting:
    """What all cases of a measurement have in common.

    Attributes:
        networks: arguments of each network by its label.
        caps: memory budgets as an option file writes them.
        photographs: training images; the smallest bounds the crop.
        device: where to train.
        steps: length of a run.
        period: ``adjustment_frequency``.
        first: batch size and crop it starts with.
        largest: batch size and crop it may grow to.
        workers: processes of the loader.
        policy: of the controller.
    """

    networks: Mapping[str, Mapping[str, Any]]
    caps: Sequence[str]
    photographs: Sequence[str]
    device: str
    steps: int
    period: int
    first: tuple[int, int]
    largest: tuple[int, int]
    workers: int
    policy: str = "step"


ON_CUDA = Setting(
    networks={name: {"type": name} for name in ("rrdbnet", "compact", "span", "swinir_light")},
    caps=("10GB", "12GB", "24GB"),
    photographs=("hubble_deep_field.jpg", "retina.jpg"),
    device="cuda",
    steps=960,
    period=8,
    first=(8, 48),
    largest=(256, 256),
    workers=8,
)

DRY = Setting(
    networks={
        "compact, tiny": {"type": "compact", "num_feat": 8, "num_conv": 2},
        "span, tiny": {"type": "span", "feature_channels": 8},
    },
    caps=("150MiB", "300MiB"),
    photographs=("astronaut.png", "brick.png", "gravel.png"),
    device="cpu",
    steps=40,
    period=4,
    first=(4, 48),
    largest=(16, 128),
    workers=0,
)


def options_of(setting: Setting, network: str, folder: Path) -> dict[str, Any]:
    """Return the option file of a case, the cap left out."""
    (batch, crop), (most, widest) = setting.first, setting.largest
    controller = {
        "adjustment_frequency": setting.period,
        "min_batch_size": 1,
        "max_batch_size": most,
        "min_lq_size": 16,
        "max_lq_size": widest,
        "max_adjustments": setting.steps,
        "policy": setting.policy,
    }
    return {
        "name": "case",
        "scale": 4,
        "manual_seed": 1,
        "device": setting.device,
        "datasets": {
            "train": {
                "type": "GTImageDataset",
                "dataroot_gt": [f"package:skimage/data/{name}" for name in setting.photographs],
                "lq_size": crop,
                "batch_size_per_gpu": batch,
                "num_worker_per_gpu": setting.workers,
                "cache_dir": str(folder.parent / "cache"),
            }
        },
        "network_g": dict(setting.networks[network]),
        "path": {"experiments_root": str(folder)},
        "train": {
            "total_iter": setting.steps,
            "losses": [{"type": "l1loss"}],
            "optim_g": {"type": "Adam", "lr": 1e-4},
        },
        "val": {"val_enabled": False},
        "memory": {"calibration": False},  # or a case would start where one before it settled
        "logger": {"print_freq": setting.period, "save_checkpoint_freq": setting.steps, "use_tb_logger": False},
        "training_automations": {CONTROLLER: controller},
    }


def run_case(setting: Setting, network: str, cap: str, folder: Path) -> dict[str, Any]:
    """Train one case in a child process; return what its log says."""
    folder.mkdir(parents=True)
    options = folder / "options.yml"
    options.write_text(json.dumps(options_of(setting, network, folder)))  # JSON is YAML
    command = [sys.executable, "train.py", "-opt", str(options), "--force_yml", f"memory:budget={cap}"]
    start = time.perf_counter()
    with (folder / "output.txt").open("w") as output:
        code = subprocess.run(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, check=False).returncode
    case: dict[str, Any] = {"network": network, "cap": cap, "exit_code": code}
    case["seconds"] = round(time.perf_counter() - start, 1)
    if code:
        case["error"] = (folder / "output.txt").read_text().strip().splitlines()[-8:]
    run = RunDirectory.current(folder, "case")
    steps = list(read_lines(run.records)) if run else []
    return case | summary_of(steps, list(read_lines(run.decisions)) if run else [], setting.period)


def summary_of(
    steps: Sequence[Mapping[str, Any]], decisions: Sequence[Mapping[str, Any]], period: int
) -> dict[str, Any]:
    """Return the figures of a run from the lines of its log; empty if it trained no step.

    The settled plan is that of the last step; use and speed are those of the steps under it among the last period's.
    """
    if not steps:
        return {}
    changes = [decision for decision in decisions if decision["kind"] == "plan_change"]
    first, last = steps[0]["plan"], steps[-1]["plan"]
    at_first = list(itertools.takewhile(lambda step: step["plan"] == first, steps))
    settled = [step for step in steps[-period:] if step["plan"] == last]
    return {
        "steps": len(steps),
        "ooms": sum(step["ooms"] for step in steps),
        "plan_changes": len(changes),
        "changed_at": [change["step"] for change in changes],
        "last_reason": changes[-1]["reason"] if changes else "",
        "first_plan": first,
        "settled_plan": last,
        "limit_bytes": steps[-1]["peak"]["limit"],
        "settled_peak_bytes": max(step["peak"]["allocated"] for step in settled),
        "settled_use": max(step["peak"]["allocated"] / step["peak"]["limit"] for step in settled),
        "highest_use": max(step["peak"]["allocated"] / step["peak"]["limit"] for step in steps),
        "first_speed": speed_of(at_first[WARM_UP_STEPS:] or at_first),
        "settled_speed": speed_of(settled),
    }


def speed_of(steps: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return samples and high-quality megapixels a second, waits for data included."""
    seconds = sum(step["data_s"] + step["step_s"] for step in steps)
    samples, pixels = (
        sum(step["samples"] for step in steps),
        sum(step.get("units", step.get("pixels")) for step in steps),
    )
    return {"samples_per_s": samples / seconds, "megapixels_per_s": pixels / seconds / 1e6}


def machine_of(device: str) -> dict[str, Any]:
    """Name what it runs on: cases are comparable only where this is equal."""
    versions = {"torch": torch.__version__, "python": platform.python_version()}
    if device != "cuda":
        return {"card": f"none (CPU, {os.cpu_count()} cores)", **versions}
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    card, memory, driver = (
        subprocess.run(query, capture_output=True, text=True, check=True).stdout.split("\n")[0].split(", ")
    )
    cudnn = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
    return {"card": card, "memory": memory, "driver": driver, "cuda": torch.version.cuda, "cudnn": cudnn, **versions}


def table_of(result: Mapping[str, Any]) -> str:
    """Return the results as a Markdown page."""
    machine, setting = result["machine"], result["setting"]
    title = "# DynamicBatchSizeOptimizer on a GPU"
    if result["dry"]:
        title = "# DRY RUN on CPU budgets: it shows that the script works and says nothing about a GPU"
    lines = [
        title,
        "",
        f"`python scripts/bench/gpu_control.py`, {result['date']}: "
        + ", ".join(f"{k} {v}" for k, v in machine.items())
        + ".",
        f"`policy: step`, target 0.85, margin 0.05; periods of {setting['period']}, runs of {setting['steps']} steps;",
        "x4, fp32. Plans are batch x crop in low-quality pixels, use is peak allocated over the cap, speeds include",
        "waits for data.",
        "",
        "| network | cap | plan: first -> settled | changes | OOMs | settled use | highest | samples/s | Mpx/s (HQ) |",
        "|---|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    return "\n".join(lines + [row_of(case) for case in result["cases"]]) + "\n"


def row_of(case: Mapping[str, Any]) -> str:
    """Return a row of the table."""
    head = f"| {case['network']} | {case['cap']} | "
    if case["exit_code"] or "steps" not in case:
        return head + f"failed (exit code {case['exit_code']}): {' '.join(case.get('error', []))} | | | | | | |"
    plans = " -> ".join(_plan(case[name]) for name in ("first_plan", "settled_plan"))
    speeds = [
        f"{case['first_speed'][unit]:.1f} -> {case['settled_speed'][unit]:.1f}"
        for unit in ("samples_per_s", "megapixels_per_s")
    ]
    counts = f"{case['plan_changes']} | {case['ooms']} | {case['settled_use']:.1%} | {case['highest_use']:.1%}"
    return head + f"{plans} | {counts} | {' | '.join(speeds)} |"


def _plan(plan: Mapping[str, int]) -> str:
    pieces = f"/{plan['micro_batches']}" if plan["micro_batches"] > 1 else ""
    return f"{plan['batch_size']}{pieces}x{plan['lq_size']}"


def cases_kept(path: Path, machine: Mapping[str, Any], setting: Mapping[str, Any]) -> dict[tuple[str, str], Any]:
    """Return cases measured before on the same machine under the same setting."""
    if not path.exists():
        return {}
    before = json.loads(path.read_text())
    if (before["machine"], before["setting"]) != (machine, setting):
        return {}
    return {(case["network"], case["cap"]): case for case in before["cases"]}


def main() -> int:
    """Run the cases one after the other; the files are written after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dry", action="store_true", help="CPU budgets, tiny networks, a temporary folder")
    parser.add_argument("--networks", nargs="+", choices=list(ON_CUDA.networks), metavar="NAME")
    parser.add_argument("--caps", nargs="+", metavar="SIZE", help="memory budgets, e.g. 10GB")
    parser.add_argument("--json", type=Path, help="where the results go; the table lies beside it")
    arguments = parser.parse_args()
    setting = DRY if arguments.dry else ON_CUDA
    networks, caps = arguments.networks or list(setting.networks), arguments.caps or setting.caps
    if arguments.dry:
        networks = list(setting.networks)
    elif not torch.cuda.is_available():
        parser.error("there is no CUDA device here; --dry shows the script at work without one")
    machine = machine_of(setting.device)
    common = {
        "steps": setting.steps,
        "period": setting.period,
        "first": list(setting.first),
        "largest": list(setting.largest),
    }
    with tempfile.TemporaryDirectory() as temporary:
        path = arguments.json or (Path(temporary) / "dry.json" if arguments.dry else RESULTS)
        cases = cases_kept(path, machine, common)
        for number, (network, cap) in enumerate(itertools.product(networks, caps)):
            print(f"{network} under {cap} ...", flush=True)
            case = run_case(setting, network, cap, Path(temporary) / f"{number}")
            cases[network, cap] = case
            result = {
                "dry": arguments.dry,
                "date": time.strftime("%Y-%m-%d"),
                "machine": machine,
                "setting": common,
                "cases": list(cases.values()),
            }
            write_json_atomically(path, result)
            write_text_atomically(path.with_suffix(".md"), table_of(result))
            print(row_of(case), flush=True)
        print(f"\n{table_of(result)}")
    return int(any(case["exit_code"] for case in cases.values()))


if __name__ == "__main__":
    sys.exit(main())
