"""Reads what torch's CUDA allocator did: snapshots of ``torch.cuda.memory._dump_snapshot``, and tables made of them.

The format is that of ``torch.cuda.memory._snapshot`` (written by torch/csrc/cuda/Module.cpp). Snapshots are pickles,
and come from anybody: they are read as plain values, and one that asks for a class or a function is refused.
"""

import csv
import gzip
import pickle
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from trainauto.core.process import ALLOCATOR_SETTINGS, UNKNOWN_SETTINGS
from trainauto.core.units import MIB

ALLOC, FREE, RELEASE = "alloc", "free_completed", "release"
NATIVE, EXPANDABLE, BOTH = "native", "expandable", "both"
GROWS = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}
IGNORED = frozenset({"free_requested", "oom", "snapshot", "user_defined"})


class UnreadableError(Exception):
    """A file is no history; the message names it and says why."""


class Event(NamedTuple):
    """A block is allocated or can be used again, or the allocator gives back what it caches (``release``).

    ``allocated`` (as asked for) and ``reserved`` are the card's bytes after it.
    """

    action: str
    size: int
    address: int
    allocated: int
    reserved: int


@dataclass
class History:
    """What one device did.

    Attributes:
        name: file, and device where it has several.
        events: in their order.
        segments: ``native``, ``expandable``, or ``both``.
        begins: bytes that were reserved before the first event.
        placements: addresses of native segments, in the order in which they were made.
        refused: why it cannot be replayed; empty where it can.
        torch_version: major and minor, of the torch that was recorded; ``None`` for the one that runs.
    """

    name: str
    events: list[Event]
    segments: str = NATIVE
    begins: int = 0
    placements: Sequence[int] = ()
    refused: str = ""
    torch_version: tuple[int, int] | None = None


def histories_of(file: Path) -> list[History]:
    """Return what the devices of a file did; nothing where its name is not that of a snapshot or a table.

    Raises:
        UnreadableError: it is no history.
    """
    try:
        if file.name.endswith(".csv.gz"):
            return [of_csv(file)]
        if file.suffix in (".pickle", ".pkl"):
            return of_snapshot(_name_of(file), read_snapshot(file))
    except (OSError, EOFError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise UnreadableError(f"{file}: not as torch writes it ({type(error).__name__}: {error})") from None
    return []


class PlainUnpickler(pickle.Unpickler):
    """Reads numbers, texts and collections of them; anything that would be imported or called is refused."""

    def find_class(self, module: str, name: str) -> Any:
        """Refuse: a snapshot names no class and no function."""
        raise UnreadableError(f"it asks for {module}.{name}, which no snapshot does: nothing of it was run")

    def persistent_load(self, pid: Any) -> Any:
        """Refuse: a snapshot refers to nothing outside."""
        raise UnreadableError(f"it refers to something outside ({pid!r}), which no snapshot does")


def read_snapshot(file: Path) -> Mapping[str, Any]:
    """Return a snapshot of ``torch.cuda.memory._dump_snapshot``.

    Raises:
        UnreadableError: it is something else, or would run code.
    """
    try:
        with file.open("rb") as stream:
            snapshot = PlainUnpickler(stream).load()
    except UnreadableError as error:
        raise UnreadableError(f"{file}: {error}") from None
    except Exception as error:  # damaged pickles raise whatever they like
        raise UnreadableError(f"{file}: no pickle ({type(error).__name__}: {error})") from None
    if not isinstance(snapshot, dict) or not isinstance(snapshot.get("device_traces"), list):
        raise UnreadableError(f"{file}: no snapshot of torch.cuda.memory: it has no device_traces")
    return snapshot


def of_snapshot(name: str, snapshot: Mapping[str, Any]) -> list[History]:
    """Return a history for each device that a snapshot has a trace of, and one that is refused where it has none."""
    traces = {device: trace for device, trace in enumerate(snapshot["device_traces"]) if trace}
    if not traces:
        return [History(name, [], refused="has no trace: _record_memory_history was not called")]
    settings = _unknown_settings(snapshot.get("allocator_settings") or {})
    histories = []
    for device, trace in traces.items():
        segments = [segment for segment in snapshot["segments"] if segment.get("device", 0) == device]
        ends = sum(int(segment["total_size"]) for segment in segments)
        history = of_trace(name if len(traces) == 1 else f"{name}, device {device}", trace, ends, segments)
        history.refused = settings or history.refused
        histories.append(history)
    return histories


def of_csv(file: Path) -> History:
    """Return a converted history; torch's version is in the name of its file, ``torch2.14``, or 2.11 at most."""
    with gzip.open(file, "rt", newline="") as lines:
        rows = list(csv.DictReader(lines))
    trace = [
        {"action": row["event"], "size": row["size"], "addr": row["address"], "stream": row["stream"]} for row in rows
    ]
    history = of_trace(_name_of(file), trace, int(rows[-1]["recorded_reserved"]))
    version = re.match(r"torch(\d+)\.(\d+)", file.name)
    history.torch_version = (int(version[1]), int(version[2])) if version else (2, 11)
    return history


def of_trace(
    name: str, trace: Sequence[Mapping[str, Any]], ends: int, segments: Sequence[Mapping[str, Any]] = ()
) -> History:
    """Return what a device did.

    Args:
        name: of the history.
        trace: entries of ``device_traces``.
        ends: bytes that are reserved after the last of them.
        segments: those of the device at that moment, where they are known.
    """
    actions = {entry["action"] for entry in trace}
    if unknown := actions - {ALLOC, FREE, *GROWS, *IGNORED}:
        raise ValueError(f"unknown events: {', '.join(sorted(map(str, unknown)))}")
    begins = ends - sum(GROWS.get(entry["action"], 0) * int(entry["size"]) for entry in trace)
    expands = any(segment.get("is_expandable") for segment in segments) or bool(
        actions & {"segment_map", "segment_unmap"}
    )
    is_native = not expands or bool(actions & {"segment_alloc", "segment_free"})
    kind = BOTH if expands and is_native else NATIVE if is_native else EXPANDABLE
    placements = [int(entry["addr"]) for entry in trace if entry["action"] == "segment_alloc"]
    history = History(name, list(_events(trace, begins)), kind, begins, placements)
    history.refused = _refused(history, trace, segments)
    return history


def _events(trace: Iterable[Mapping[str, Any]], reserved: int) -> Iterator[Event]:
    """Yield the events of a trace that begins with so many bytes reserved; a run of what goes back is one release."""
    sizes: dict[int, int] = {}
    allocated, releases = 0, False
    for entry in trace:
        action, size = entry["action"], int(entry["size"])
        if action in GROWS:
            reserved += GROWS[action] * size
            if GROWS[action] < 0 and not releases:
                yield Event(RELEASE, 0, 0, allocated, reserved)
            releases = GROWS[action] < 0
        elif action in (ALLOC, FREE):
            releases, address = False, int(entry["addr"])
            if size <= 0:
                raise ValueError(f"{action} of {size} bytes")
            if action == ALLOC:
                sizes[address] = size
            allocated += size if action == ALLOC else -sizes.pop(address, 0)
            yield Event(action, size, address, allocated, reserved)


def _refused(history: History, trace: Sequence[Mapping[str, Any]], segments: Sequence[Mapping[str, Any]]) -> str:
    """Say why a trace cannot be replayed; empty where it can."""
    if history.begins:
        return (
            f"begins with {history.begins / MIB:.1f} MiB reserved: recording began late, or max_entries was too small "
            f"and the beginning was dropped ({len(trace)} entries are there)"
        )
    live: set[int] = set()
    for event in history.events:
        if event.action == ALLOC:
            live.add(event.address)
        elif event.action == FREE and event.address not in live:
            return "frees what it did not allocate: the beginning is missing"
        elif event.action == FREE:
            live.remove(event.address)
    streams = {entry["stream"] for entry in trace if entry["action"] == ALLOC}
    if len(streams) > 1:
        return f"allocates on {len(streams)} streams, and one is simulated"
    pools = [*(entry.get("pool_id") for entry in trace), *(segment.get("segment_pool_id") for segment in segments)]
    if any(tuple(pool or (0, 0)) != (0, 0) for pool in pools):
        return "has private pools (CUDA graphs), which the simulation does not follow"
    return "has native and expandable segments, and one kind is simulated" if history.segments == BOTH else ""


def _unknown_settings(settings: Mapping[str, Any]) -> str:
    """Say which settings of a snapshot the simulation does not follow, from their text or torch's table of them."""
    given = " ".join(str(settings.get(name, "")) for name in ALLOCATOR_SETTINGS)
    unknown = [name for name in UNKNOWN_SETTINGS if re.search(rf"\b{name}\s*:", given)]
    if not unknown:  # set by a call, not by the environment
        unset = {"max_split_size": -1, "garbage_collection_threshold": 0}
        unknown = [name for name, value in unset.items() if settings.get(name, value) != value]
        if any((settings.get("roundup_power2_divisions") or {}).values()):
            unknown.append("roundup_power2_divisions")
    return f"was recorded with {', '.join(unknown)}, which the simulation does not follow" if unknown else ""


def _name_of(file: Path) -> str:
    return file.name.removesuffix(".csv.gz").removesuffix(".pickle").removesuffix(".pkl")
