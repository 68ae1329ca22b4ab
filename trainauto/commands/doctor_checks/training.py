"""What a run needs beside memory and cores: budgets that hold, data that comes fast enough, processes that meet."""

from collections.abc import Mapping
from typing import Any

from trainauto.core.words import counted
from trainauto.reporting.finding import BROKEN, LOOK, OK, UNKNOWN, Finding, brief

SLOW_NAME_S = 1.0


def budget_finding(trial: Mapping[str, Any]) -> Finding:
    """Judge whether a memory budget on the CPU is more than a wish."""
    if "is_set" not in trial:
        return Finding("budget", UNKNOWN, f"it could not be tried: {trial.get('error', '')}")
    if trial["refused"]:
        return Finding("budget", OK, "enforced: past 64 MiB torch's allocator was refused more, and said so")
    if not trial["is_set"]:
        advice = "memory: budget: is watched only here; a run may take more than it says."
        return Finding("budget", LOOK, "this platform cannot bound a process on the CPU", advice)
    advice = "Runs with a budget on the CPU would not be bounded here."
    return Finding("budget", LOOK, f"a limit was set, and more was given ({trial['error'] or 'no error'})", advice)


def name_finding(facts: Mapping[str, Any]) -> Finding:
    """Judge the look-up of this machine's name: where it hangs, torchrun does."""
    advice = (
        "A run in several processes may hang at its start: add the name to /etc/hosts, or start torchrun with "
        "--master-addr 127.0.0.1 and set GLOO_SOCKET_IFNAME=lo."
    )
    if "host" not in facts:
        return Finding("host name", LOOK, f"its look-up: {facts.get('error', '')}", advice)
    fact = f"{facts['host']}, looked up in {facts['seconds']:.2f} s"
    if "error" in facts:
        return Finding("host name", LOOK, f"{fact}: {facts['error']}", advice)
    fact += f": {', '.join(facts['addresses'])}"
    return (
        Finding("host name", LOOK, fact, advice) if facts["seconds"] > SLOW_NAME_S else Finding("host name", OK, fact)
    )


def groups_finding(facts: Mapping[str, Any], devices: int) -> Finding:
    """Judge what several processes could communicate through.

    Args:
        facts: ``available``, ``gloo``, ``nccl``, and ``error`` of a gloo group of one process.
        devices: cards that torch finds.
    """
    if "available" not in facts:
        return Finding("distributed", UNKNOWN, str(facts.get("error", "")))
    if not facts["available"]:
        return Finding("distributed", LOOK, "torch was built without it", "Runs in one process are not affected.")
    names = [f"{name} {'yes' if facts[name] else 'no'}" for name in ("gloo", "nccl")]
    fact = ", ".join(names)
    if "error" in facts:
        advice = "Runs in one process are not affected. GLOO_SOCKET_IFNAME=lo often helps."
        return Finding("distributed", LOOK, f"{fact}; a gloo group of one process: {facts['error']}", advice)
    fact += "; a gloo group of one process works" if facts["gloo"] else ""
    if devices > 1 and not facts["nccl"]:
        advice = "Without NCCL several cards train over gloo, by way of the CPU. torch's CUDA build for Linux has NCCL."
        return Finding("distributed", LOOK, fact, advice)
    return Finding("distributed", OK, fact)


def spread_finding(devices: int) -> Finding:
    """Say what ``fully_shard`` of an option file takes; there are so many cards."""
    fact = "fully_shard: each rank holds a part of the weights, gradients and optimizer state"
    if devices > 1:
        advice = (
            f"Start it with torchrun --nproc-per-node {devices}; plan --ranks {devices} predicts what a rank takes."
        )
        return Finding("ranks", OK, fact, advice)
    advice = "One process holds everything. Start it with torchrun on more; plan --ranks N predicts what a rank takes."
    return Finding("ranks", LOOK, f"{fact}; torch finds {counted(devices, 'card')} here", advice)


def compiler_finding(compiler: str | None, *, has_triton: bool, on_cpu: bool) -> Finding:
    """Judge what ``use_compile`` needs: a C++ compiler, and on a card triton, too.

    Args:
        compiler: where it is; ``None`` where there is none.
        has_triton: it can be imported.
        on_cpu: no card is trained on.
    """
    lacks = [*([] if compiler else ["a C++ compiler (g++)"]), *([] if on_cpu or has_triton else ["triton"])]
    if lacks:
        return Finding(
            "use_compile", BROKEN, f"torch.compile needs {' and '.join(lacks)}", "Install it, or leave it out."
        )
    return Finding("use_compile", OK, f"torch.compile finds {compiler}{'' if on_cpu else ' and triton'}")


def reading_finding(reading: Mapping[str, Any], batch_size: int, workers: int) -> Finding:
    """Say how fast one process reads the training set, and which steps that keeps up with; nothing else was measured.

    Args:
        reading: ``images``, ``of``, ``megapixels``, ``decode_seconds`` (0 where samples are no image files),
            ``sample_seconds``.
        batch_size: samples of a step.
        workers: of the option file.
    """
    if not reading["images"]:
        return Finding("reading", UNKNOWN, "no image was read in time")
    fact = f"{reading['images']} of {reading['of']} images, by one process"
    if reading["decode_seconds"]:
        rate, speed = (reading[key] / reading["decode_seconds"] for key in ("images", "megapixels"))
        fact += f": decoded {brief(rate)} images/s ({brief(speed)} megapixels/s)"
    per_sample = reading["sample_seconds"] / reading["images"]
    batch_s = per_sample * batch_size
    fact += f"; made into {brief(1 / per_sample)} samples/s, a step's {batch_size} in {brief(batch_s)} s"
    if workers:
        least = f"{brief(batch_s / workers)} s"
        advice = f"At best {counted(workers, 'worker')} keep up with steps of {least} and more, given a core each."
    else:
        advice = f"Without workers every step waits {brief(batch_s)} s."
    advice += f" For steps of T s take {brief(batch_s)} / T workers; validate measures T."
    return Finding("reading", OK, fact, advice)


def built_finding(built: Mapping[str, Any]) -> list[Finding]:
    """Say that the run of an option file can be built, and what it would warn of."""
    samples = ", ".join(f"{name} {number}" for name, number in built["samples"].items())
    fact = f"{built['network']}, {built['parameters']} parameters, on {built['device']}; {samples} {built['kind']}"
    return [
        Finding("run", OK, f"it can be built: {fact}"),
        *(Finding("run", LOOK, text) for text in built["warnings"]),
    ]


def refused(error: Exception) -> Finding:
    """Say that the run of an option file cannot be built."""
    return Finding("run", BROKEN, str(error), "train would say the same; nothing was written.")
