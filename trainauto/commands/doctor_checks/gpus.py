"""The card, its driver, who else is on it, and how torch's allocator was set up."""

from collections.abc import Mapping, Sequence
from typing import Any

from trainauto.core.process import ALLOCATOR_SETTINGS, unknown_settings
from trainauto.core.units import size_text
from trainauto.core.words import counted
from trainauto.reporting.finding import BROKEN, LOOK, OK, UNKNOWN, Finding

NO_CARD = "no NVIDIA driver here: runs train on the CPU"
OFTEN_BUSY = 0.1
"""Share of a card in other hands from which on it is worth a look."""


def driver_finding(nvml: Mapping[str, Any], torch_cuda: str | None, torch_sees: int) -> Finding:
    """Judge the driver against the CUDA that torch was built with.

    Args:
        nvml: ``driver``, ``cuda`` (1000 * major + 10 * minor) and ``cards``; or ``missing``, or an ``error``.
        torch_cuda: CUDA of torch, e.g. ``12.8``; ``None`` where it was built without.
        torch_sees: devices that torch finds.
    """
    if "error" in nvml:
        return Finding("driver", UNKNOWN, nvml["error"])
    if "missing" in nvml:
        if torch_sees:
            return Finding("driver", LOOK, f"NVML says nothing ({nvml['missing']}), but torch finds a device")
        return Finding("driver", OK, f"{NO_CARD} (NVML: {nvml['missing']})")
    major, minor = nvml["cuda"] // 1000, nvml["cuda"] % 1000 // 10
    fact = f"NVIDIA {nvml['driver']}, for CUDA up to {major}.{minor}; {counted(len(nvml['cards']), 'card')}"
    if torch_cuda is None:
        return Finding("driver", OK, fact)
    needed = tuple(int(part) for part in torch_cuda.split(".")[:2])
    if needed[0] > major:
        advice = f"Update the driver, or install torch for CUDA {major}."
        return Finding("driver", BROKEN, f"{fact}; torch was built with CUDA {torch_cuda}", advice)
    if nvml["cards"] and not torch_sees:
        advice = "Look at CUDA_VISIBLE_DEVICES, and at what torch.cuda.init() says."
        return Finding("driver", BROKEN, f"{fact}, but torch finds none of them", advice)
    if needed > (major, minor):
        fact = f"{fact}; torch was built with CUDA {torch_cuda}, which this driver runs as a minor version only"
        return Finding("driver", LOOK, fact, "Update the driver if kernels fail to load.")
    return Finding("driver", OK, f"{fact}; torch has {torch_cuda}")


def card_findings(card: Mapping[str, Any], own_pids: Sequence[int]) -> list[Finding]:
    """Say what a card is, what is free of it, and who has the rest.

    Args:
        card: as :func:`trainauto.memory.monitor.card_facts.cards` gives it.
        own_pids: processes of ours, which do not count.
    """
    name, total, used = str(card["device"]), card["total_bytes"], card["used_bytes"]
    bf16 = "bf16" if card["bf16"] else "no bf16: write amp_bf16: false with use_amp"
    modes = "".join(
        f", {label} {'on' if card[key] else 'off'}" for key, label in _MODES.items() if card[key] is not None
    )
    major, minor = card["capability"]
    fact = f"{card['name']}, {size_text(total)}, capability {major}.{minor} ({bf16}){modes}"
    findings = [Finding(name, OK, fact)]
    if card["processes"] is None:
        users = "NVML does not report other processes on it"
        processes: list[str] = []
    else:
        processes = [_process_text(process) for process in card["processes"] if process["pid"] not in own_pids]
        users = f"other processes on it: {', '.join(processes)}" if processes else "no other process uses it"
    free = f"{size_text(max(0, total - used))} of {size_text(total)} free; {users}"
    busy = bool(processes) or used > OFTEN_BUSY * total
    advice = (
        "A run uses the memory they leave, and adapts when they start or end. End processes that are not needed."
        if busy
        else ""
    )
    return [*findings, Finding(f"{name} memory", LOOK if busy else OK, free, advice)]


_MODES = {"ecc": "ECC", "mig": "MIG"}


def _process_text(process: Mapping[str, Any]) -> str:
    name = process["name"] or "of another container or user"
    size = size_text(process["bytes"]) if process["bytes"] is not None else "bytes unknown"
    return f"pid {process['pid']} ({name}): {size}"


def allocator_finding(settings: Mapping[str, str], expandable: bool | None, system: str = "Linux") -> Finding:
    """Judge the settings of torch's CUDA allocator.

    Args:
        settings: what the person has set, by variable.
        expandable: whether segments really grow, with what a run sets; ``None`` where there is no card to ask.
        system: as ``platform.system()`` says.
    """
    settings_text = ", ".join(f"{name}={value}" for name, value in settings.items())
    fact = settings_text or f"{ALLOCATOR_SETTINGS[0]} is not set: runs on Linux switch expandable segments on"
    requested = "expandable_segments:True" in settings_text or (not settings_text and system == "Linux")
    if len(settings) > 1:
        return Finding("allocator", LOOK, fact, f"Several names for the same: keep {ALLOCATOR_SETTINGS[0]}.")
    if "cudaMallocAsync" in settings_text:
        return Finding("allocator", LOOK, fact, "Peaks are predicted for torch's own allocator: leave backend out.")
    if unknown := unknown_settings(settings):
        return Finding("allocator", LOOK, f"{fact}; {unknown}", "Leave them out unless you need them.")
    if expandable is None:
        return Finding("allocator", OK, f"{fact}; without a card it cannot be tried")
    if expandable:
        return Finding("allocator", OK, f"{fact}; segments do grow here")
    if requested:
        advice = "A run warns and continues; changing plans then leaves more memory in pieces."
        return Finding("allocator", LOOK, f"{fact}, but driver or platform does not give them", advice)
    return Finding("allocator", LOOK, fact, "Unset it, or add expandable_segments:True.")
