"""What several ranks cost each other: messages, sums of gradients, whole steps (gloo, on this machine's CPU).

    python scripts/bench/scale.py [--quick] [--only messages,...] [--json FILE]

1. Latency of what ranks exchange in every step, with nothing computed between; median and 90 % of 200.
2. Seconds and bytes of summing gradients after the backward pass.
3. Real steps with gradients summed after the backward pass and inside it (``ddp_overlap``), blocks taking turns in one
   process a rank; ratios within each round, the noise (after against after) beside them, bootstrapped medians.
4. The quick start of the same effective batch on 1, 2 and 4 ranks, runs taking turns.
5. What one rank does with the messages of 1,024 and how it finds its samples among theirs: one process, nothing sent.

Every rank has one thread. As root it runs in a network namespace of its own, so that the bytes counted are its own.
Where there are more ranks than cores, seconds are those of a machine that is asked too much: compare CPU seconds.
"""

import argparse
import hashlib
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from scale_rank import STEP_RECORD

from trainauto.core.files import write_json_atomically
from trainauto.core.plan import BatchShape, Plan
from trainauto.core.records import PeakReading, StepRecord
from trainauto.core.sharding import SampleSharding, _positions, _round_robin, _samples
from trainauto.core.units import MIB
from trainauto.distributed.communicator import SLOT_BYTES, TorchCommunicator, _as_read, _packed, _slots_of
from trainauto.engine.reduce import reduce_step

RANK = Path(__file__).with_name("scale_rank.py")
INSIDE = "SCALE_BENCH_INSIDE"


def main() -> int:
    """Measure what is asked for, write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="messages,gradients,overlap,run,locally", help="parts, separated by commas")
    parser.add_argument("--quick", action="store_true", help="few repetitions: to see that it works")
    parser.add_argument("--json", type=Path, help="figures; parts that are not measured now are kept")
    arguments = parser.parse_args()
    if os.geteuid() == 0 and shutil.which("unshare") and INSIDE not in os.environ:
        command = 'ip link set lo up && exec "$@"'
        os.environ[INSIDE] = "1"
        again = ["unshare", "--net", "sh", "-c", command, "sh", sys.executable, *sys.argv]
        return subprocess.run(again, check=False).returncode
    results = json.loads(arguments.json.read_text()) if arguments.json and arguments.json.is_file() else {}
    for name in arguments.only.split(","):
        begun, load = time.time(), os.getloadavg()[0]
        results[name] = PARTS[name](arguments.quick)
        about = {"load_before": load, "load_after": os.getloadavg()[0], "date": time.strftime("%Y-%m-%d %H:%M")}
        results[name]["about"] = about | {"took_s": round(time.time() - begun)}
        print(name, json.dumps(results[name]["about"]))
    results["machine"] = machine()
    if arguments.json:
        write_json_atomically(arguments.json, results)
    else:
        print(json.dumps(results, indent=2))
    return 0


def machine() -> dict[str, Any]:
    """Return where it runs."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": names[0] if names else platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads_a_rank": 1,
        "network": "loopback" + (" of a namespace of its own" if INSIDE in os.environ else ""),
    }


def on_ranks(count: int, what: str, **arguments: Any) -> list[dict[str, Any]]:
    """Run a part on so many ranks; return what each of them found."""
    with socket.socket() as looked_up:
        looked_up.bind(("127.0.0.1", 0))
        port = looked_up.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        outs = [Path(folder) / f"{rank}.json" for rank in range(count)]
        processes = []
        for rank, out in enumerate(outs):
            variables = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "MASTER_PORT": port}
            variables |= {"OMP_NUM_THREADS": 1, "MASTER_ADDR": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo"}
            command = [sys.executable, str(RANK), what, str(out), json.dumps(arguments)]
            environment = os.environ | {name: str(value) for name, value in variables.items()}
            processes.append(subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL))
        try:
            codes = [process.wait(580) for process in processes]
        finally:
            for process in processes:
                process.kill()
        if any(codes):
            raise SystemExit(f"{what} on {count} ranks failed: exit codes {codes}")
        return [json.loads(out.read_text()) for out in outs]


def messages(quick: bool) -> dict[str, Any]:
    """Latency by ranks, gloo's rings beside; of each call the slowest rank's time counts."""
    times, results = (20 if quick else 200), {}
    for count in (1, 2, 3, 4, 8, 16):
        answers = on_ranks(count, "messages", times=times)
        calls = {
            name: figures_of([max(some) for some in zip(*(answer["seconds"][name] for answer in answers), strict=True)])
            for name in answers[0]["seconds"]
        }
        results[str(count)] = {"calls": calls, "cpu_s_of_all": sum(answer["cpu_s"] for answer in answers)}
        results[str(count)]["state_bytes"] = answers[0]["state_bytes"]
    return {"ranks": results, "record_bytes": len(json.dumps(STEP_RECORD, separators=(",", ":")))}


def figures_of(seconds: Sequence[float]) -> dict[str, float]:
    """Return median and 90 %."""
    return {"median_s": median(seconds), "p90_s": float(np.percentile(seconds, 90)), "times": len(seconds)}


def gradients(quick: bool) -> dict[str, Any]:
    """Seconds, CPU seconds of all ranks and bytes that a rank sends, by ranks and MiB."""
    results: dict[str, Any] = {}
    for count in (2, 3, 4):
        answers = on_ranks(count, "gradients", sizes_mib=[1, 16, 64], times=3 if quick else 20)
        results[str(count)] = {
            size: figures_of([max(some) for some in zip(*(answer[size]["seconds"] for answer in answers), strict=True)])
            | {
                "cpu_s_of_all": sum(answer[size]["cpu_s"] for answer in answers),
                "sent_bytes": answers[0][size]["sent_bytes"],
            }
            for size in answers[0]
        }
    return {"ranks": results}


def overlap(quick: bool) -> dict[str, Any]:
    """Return seconds a step and ratios, of two networks on two ranks."""
    results: dict[str, Any] = {}
    for network in ("compact", "rrdbnet"):
        answers = on_ranks(2, "overlap", network=network, rounds=3 if quick else 30, block=3)
        slowest = [_slowest(some) for some in zip(*(answer["wall_s"] for answer in answers), strict=True)]
        together = [_summed(some) for some in zip(*(answer["cpu_s"] for answer in answers), strict=True)]
        results[network] = {
            "step_s": {name: median(times[name] for times in slowest) for name in slowest[0]},
            "cpu_s_of_all": {name: median(times[name] for times in together) for name in together[0]},
            "after / inside": interval([times["after"] / times["inside"] for times in slowest]),
            "after / after again": interval([times["after"] / times["after again"] for times in slowest]),
            "cpu, after / inside": interval([times["after"] / times["inside"] for times in together]),
            "cpu, after / after again": interval([times["after"] / times["after again"] for times in together]),
            **{name: answers[0][name] for name in ("weights", "samples", "side_px")},
        }
    return results


def _slowest(ranks: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: max(times[name] for times in ranks) for name in ranks[0]}


def _summed(ranks: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: sum(times[name] for times in ranks) for name in ranks[0]}


def interval(ratios: Sequence[float], resamples: int = 10_000) -> dict[str, float]:
    """Return the median with its 95 % bootstrap interval."""
    drawn = np.random.default_rng(0).choice(np.asarray(ratios), (resamples, len(ratios)))
    low, high = np.percentile(np.median(drawn, axis=1), (2.5, 97.5))
    return {"median": median(ratios), "low": float(low), "high": float(high), "pairs": len(ratios)}


def whole_runs(quick: bool) -> dict[str, Any]:
    """Return seconds and CPU seconds a step, and what of it passes in calls to the other ranks."""
    all_of: dict[str, list[dict[str, Any]]] = {"1": [], "2": [], "4": []}
    for _ in range(1 if quick else 3):
        for count, measured in all_of.items():
            with tempfile.TemporaryDirectory() as folder:
                some = {"folder": folder, "effective": 12, "steps": 10 if quick else 30, "warm_up": 4}
                answers = on_ranks(int(count), "run", **some)
            calls = {
                name: median(answer["in_calls_s"][name] for answer in answers) for name in answers[0]["in_calls_s"]
            }
            seconds = max(answer["step_s"] for answer in answers)
            measured.append(
                {"step_s": seconds, "cpu_s_of_all": sum(answer["cpu_s"] for answer in answers), "in_calls_s": calls}
            )
    return {"effective_batch": 12, "lq_size_px": 48, "ranks": all_of}


class _GatheredMessages(TorchCommunicator):
    """A communicator whose messages are there already."""

    def __init__(self, count: int) -> None:
        self.world_size = count
        self._slots = torch.cat([_packed(json.dumps(STEP_RECORD).encode(), SLOT_BYTES)] * count)

    def all_gather_object(self, message: Any) -> list[Any]:
        """Read the messages of all, as a group does when they have come."""
        del message
        list(torch.empty_like(self._slots).split(SLOT_BYTES))  # what they come into
        return _as_read(_slots_of(self._slots, SLOT_BYTES))


def locally(quick: bool) -> dict[str, Any]:
    """Return what a rank computes for itself in a step, by the number of ranks, and what a digest of weights takes."""
    del quick
    results: dict[str, Any] = {}
    plan = Plan.of(batch_size=16, lq_size=48)
    reading = PeakReading(**STEP_RECORD["peak"])
    for count in (4, 64, 1024):
        stand_in = _GatheredMessages(count)
        sharding = SampleSharding(tuple(1 - 0.5 * (rank % 2) for rank in range(count)))
        mine = StepRecord(1, plan, plan, BatchShape(16, 48), 0, {}, {}, {}, 0.0, 0.1, 1, reading)

        def samples_of_a_step(sharding: SampleSharding = sharding) -> None:
            sharding.next_piece(16, 16, 0)
            for _ in range(3):
                sharding.total(16)
            for _ in range(3):
                sharding.positions(16, 3)

        def after_a_change(sharding: SampleSharding = sharding) -> None:
            for known in (_samples, _round_robin, _positions):
                known.cache_clear()
            sharding.positions(16, 3)

        results[str(count)] = {
            "agreed_step_s": seconds_of(lambda t=stand_in, d=sharding, m=mine: reduce_step(t, d, m, (), 0)),
            "division_s": seconds_of(samples_of_a_step),
            "division_after_a_change_s": seconds_of(after_a_change),
        }
    return {"ranks": results, "sha256_of_64_mib_s": seconds_of(_digest, 5)}


def _digest(block: bytes = bytes(64 * MIB)) -> None:
    hashlib.sha256(block).hexdigest()


def seconds_of(call: Callable[..., object], times: int = 30) -> float:
    """Return the median."""
    seconds = []
    for _ in range(times):
        begun = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begun)
    return median(seconds)


PARTS: dict[str, Callable[[bool], dict[str, Any]]] = {
    "messages": messages,
    "gradients": gradients,
    "overlap": overlap,
    "run": whole_runs,
    "locally": locally,
}

if __name__ == "__main__":
    sys.exit(main())
