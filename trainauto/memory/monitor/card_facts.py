"""What NVML and torch tell of the cards: modes, and who else is on them. For people; no run needs it."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pynvml
import torch

from trainauto.memory.monitor.device_use import nvml_handle, used_bytes

PROCESSES = Path("/proc")


def cards() -> list[dict[str, Any]]:
    """Return facts of each card that torch sees; what NVML does not tell is ``None``."""
    return [_card(torch.device("cuda", index)) for index in range(torch.cuda.device_count())]


def _card(device: torch.device) -> dict[str, Any]:
    properties = torch.cuda.get_device_properties(device)
    handle = nvml_handle(device)
    return {
        "device": str(device),
        "name": properties.name,
        "total_bytes": properties.total_memory,
        "used_bytes": used_bytes(device),
        "capability": [properties.major, properties.minor],
        "bf16": properties.major >= 8,
        "ecc": _mode_of(pynvml.nvmlDeviceGetEccMode, handle),
        "mig": _mode_of(pynvml.nvmlDeviceGetMigMode, handle),
        "processes": _processes(handle),
    }


def _mode_of(query: Callable[[Any], Any], handle: Any | None) -> bool | None:
    """Return whether a mode is on now; NVML gives (now, after the next boot)."""
    if handle is None:
        return None
    try:
        return bool(query(handle)[0])
    except pynvml.NVMLError:
        return None


def _processes(handle: Any | None) -> list[dict[str, Any]] | None:
    if handle is None:
        return None
    readings: list[tuple[int, int | None]] = []
    try:
        for query in (pynvml.nvmlDeviceGetComputeRunningProcesses, pynvml.nvmlDeviceGetGraphicsRunningProcesses):
            readings += [(int(process.pid), process.usedGpuMemory) for process in query(handle)]
    except pynvml.NVMLError:
        return None
    return merge_processes(readings, PROCESSES)


def merge_processes(used_bytes_by_pid: Iterable[tuple[int, int | None]], processes: Path) -> list[dict[str, Any]]:
    """Return one entry a process, the largest first: pid, name, bytes.

    Args:
        used_bytes_by_pid: pids and their bytes, ``None`` where the driver does not say; a process that computes and
            draws is there twice.
        processes: where names are looked up. A process of another container has a pid that is unknown here.
    """
    sizes: dict[int, int | None] = {}
    for pid, size in used_bytes_by_pid:
        sizes[pid] = max(size or 0, sizes.get(pid) or 0) or None
    ordered: Mapping[int, int | None] = dict(sorted(sizes.items(), key=lambda pair: -(pair[1] or 0)))
    return [{"pid": pid, "name": _name_of(processes / str(pid)), "bytes": size} for pid, size in ordered.items()]


def _name_of(process: Path) -> str | None:
    try:
        return (process / "comm").read_text(encoding="utf-8", errors="replace").strip() or None
    except OSError:
        return None
