"""Memory, cores and limits of this process, and the disk."""

import math
import os
import platform
import shutil
from collections.abc import Mapping
from pathlib import Path

from trainauto.core.cgroup import MemoryLimit
from trainauto.core.files import nearest_folder
from trainauto.core.units import GIB, MIB, size_text
from trainauto.core.words import counted
from trainauto.reporting.finding import BROKEN, LOOK, OK, UNKNOWN, Finding

SHARED_MEMORY = "/dev/shm"  # noqa: S108 - it is looked at, not written to
LEAST_FREE_BYTES = 2 * GIB
"""Loading torch, a network and a few workers takes about that."""
LEAST_DISK_BYTES = GIB
DOCKERS_SHARED_BYTES = 64 * MIB
"""What docker gives where nothing is said."""
FILES_A_BATCH = 2
"""Tensors of a batch: each is an open file while it is under way from a worker."""
FILES_BESIDE = 512
"""What Python, torch, event files and pipes hold open, with room."""


def memory_finding(total_bytes: int, free_bytes: int, group: MemoryLimit | None) -> Finding:
    """Judge the memory there is: the machine's, and what a control group leaves of it."""
    fact = f"{size_text(free_bytes)} of {size_text(total_bytes)} free"
    available_bytes = free_bytes
    if group is not None:
        available_bytes = min(available_bytes, group.free_bytes)
        fact += f"; this container or job may use {size_text(group.limit_bytes)}, {size_text(group.free_bytes)} left"
    else:
        fact += "; no control group bounds it"
    if available_bytes < LEAST_FREE_BYTES:
        advice = "The system kills processes that use more: give the container more memory, or end other processes."
        return Finding("memory", LOOK, fact, advice)
    return Finding("memory", OK, fact)


def machine_memory(text: str) -> tuple[int, int]:
    """Return total and available bytes of ``/proc/meminfo``.

    Raises:
        KeyError: it is something else.
    """
    lines = (line.split() for line in text.splitlines())
    sizes = {words[0]: int(words[1]) * 1024 for words in lines if len(words) > 1}
    return sizes["MemTotal:"], sizes["MemAvailable:"]


def shared_memory_finding(
    free_bytes: int, total_bytes: int, batches: int, batch_bytes: int, largest_batch_bytes: int | None = None
) -> Finding:
    """Judge ``/dev/shm``, through which workers hand batches over.

    Args:
        free_bytes: what is free of it.
        total_bytes: its size.
        batches: batches that may be under way at once; 0 without workers.
        batch_bytes: bytes of one under the first plan.
        largest_batch_bytes: under the largest plan that a controller may choose; ``None`` where there is none.
    """
    fact = f"{size_text(free_bytes)} of {size_text(total_bytes)} free"
    advice = "Give the container more (docker: --shm-size=8g), or lower num_worker_per_gpu and lookahead."
    if not batches:
        return Finding(SHARED_MEMORY, OK, f"{fact}; without workers nothing goes through it")
    need = batches * batch_bytes
    fact += f"; {counted(batches, 'batch')} under way: {size_text(need)}"
    if need > free_bytes:
        return Finding(SHARED_MEMORY, BROKEN, f"{fact}: workers would end with a bus error", advice)
    if largest_batch_bytes is not None:
        most = batches * largest_batch_bytes
        fact += f", under the largest plan of the controller {size_text(most)}"
        if most > free_bytes:
            return Finding(SHARED_MEMORY, LOOK, fact, f"{advice} Or set lower bounds: max_lq_size, max_batch_size.")
    return Finding(SHARED_MEMORY, OK, fact)


def shared_memory_alone(free_bytes: int, total_bytes: int) -> Finding:
    """Say how much shared memory there is, where no run is known."""
    fact = f"{size_text(free_bytes)} of {size_text(total_bytes)} free; what a run needs is said with -opt"
    if total_bytes <= DOCKERS_SHARED_BYTES:
        return Finding(SHARED_MEMORY, LOOK, fact, "Workers need more: docker: --shm-size=8g, or num_worker_per_gpu: 0.")
    return Finding(SHARED_MEMORY, OK, fact)


def batches_under_way(workers: int, lookahead: int) -> int:
    """Return how many batches lie in shared memory at most: those fetched ahead, and the one that is trained."""
    return workers * max(1, lookahead // workers) + 1 if workers else 0


def limits_finding(limits: Mapping[str, int | None], batches: int = 0) -> Finding:
    """Judge what ``ulimit`` says.

    Args:
        limits: soft limits ``-v`` and ``-d`` in bytes and ``-n`` in files; ``None`` where there is none.
        batches: batches that may be under way at once.
    """
    shown = {"-v": "address space", "-d": "data"}
    bounds = [f"{flag} {size_text(size)}" for flag in shown if (size := limits.get(flag)) is not None]
    files = limits.get("-n")
    fact = ", ".join([*(bounds or ["-v and -d unlimited"]), f"-n {files if files is not None else 'unlimited'}"])
    advice = []
    if bounds:
        advice.append("CUDA reserves address space far beyond what it uses: ulimit -v unlimited -d unlimited.")
    need = FILES_A_BATCH * batches + FILES_BESIDE
    if files is not None and files < need:
        fact += f", and a run may hold {need} files open"
        advice.append(f"ulimit -n {2 * need}")
    return Finding("ulimit", LOOK if advice else OK, fact, " ".join(advice))


def cores_finding(
    machine: int, affinity: int, quota: float | None, threads: int, workers: int, *, on_cpu: bool
) -> Finding:
    """Judge cores against what a run sets going.

    Args:
        machine: cores of the machine.
        affinity: those this process may run on.
        quota: cores' time a control group grants; ``None`` for all.
        threads: threads of one operation.
        workers: processes that decode.
        on_cpu: whether the network runs on them, too.
    """
    cores = affinity if quota is None else min(affinity, quota)
    fact = f"{affinity} of {machine} may be used" + (f", by quota {quota:g} cores' time" if quota is not None else "")
    busy = (threads if on_cpu else 1) + workers
    network = counted(threads, "thread") if on_cpu else "the loop"
    fact += f"; a run keeps {busy} busy ({network}, {counted(workers, 'worker')})"
    if busy > math.ceil(cores):
        options = "num_threads or num_worker_per_gpu" if on_cpu else "num_worker_per_gpu"
        return Finding("cores", LOOK, fact, f"They compete for cores: lower {options}.")
    return Finding("cores", OK, fact)


def disk_finding(name: str, folder: Path, need_bytes: int = 0, purpose: str = "") -> Finding:
    """Judge the room below a folder that need not be there yet.

    Args:
        name: of the finding.
        folder: where something is to be written.
        need_bytes: how much; 0 if unknown.
        purpose: what takes it.
    """
    there, reason = nearest_folder(folder)
    if reason:
        return Finding(name, BROKEN, f"nothing can be written to {folder}: {reason}", "Name another folder.")
    free = shutil.disk_usage(there).free
    fact = f"{size_text(free)} free for {folder}" + (f"; {purpose} {size_text(need_bytes)}" if need_bytes else "")
    if free < max(need_bytes, LEAST_DISK_BYTES):
        return Finding(name, LOOK, fact, "Make room, or name a folder on a larger disk.")
    return Finding(name, OK, fact)


def current_limits() -> dict[str, int | None]:
    """Return the soft limits of this process.

    Raises:
        ImportError: this is Windows.
    """
    import resource

    resources = {"-v": resource.RLIMIT_AS, "-d": resource.RLIMIT_DATA, "-n": resource.RLIMIT_NOFILE}
    soft = {flag: resource.getrlimit(resource_id)[0] for flag, resource_id in resources.items()}
    return {flag: None if value == resource.RLIM_INFINITY else value for flag, value in soft.items()}


def usable_cores() -> int:
    """Return the cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def not_linux(name: str) -> Finding:
    """Say that a thing is Linux's own."""
    return Finding(name, UNKNOWN, f"{platform.system()} does not tell")
