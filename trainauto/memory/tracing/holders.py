"""What is live at the peak of a traced step, by module."""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from trainauto.memory.cuda_allocator.allocator import AllocationEvent
from trainauto.memory.tracing.phases import BACKWARD

WEIGHTS, BUFFERS, GRADIENTS, STATES = "weights", "buffers", "gradients", "optimizer state"
ACTIVATIONS, AGAIN = "activations", "recomputed activations"
WORKSPACES, GATHERED = "workspaces", "gathered weights"


class Owner(NamedTuple):
    """A module by its path, empty where it is none, and what is held for it."""

    module: str
    kind: str


class Holder(NamedTuple):
    """What modules of one place in a network hold.

    Attributes:
        module: their path, with ``*`` for numbers of layers; empty where no module made it.
        kind: what it is.
        modules: how many there are.
        size_bytes: of all of them.
    """

    module: str
    kind: str
    modules: int
    size_bytes: int


@dataclass(frozen=True)
class PeakHolders:
    """What is live at a step's peak.

    Attributes:
        phase: in which it is: ``forward``, ``backward``, ``optimizer`` or ``other``.
        peak_bytes: all of it.
        holders: the largest first.
    """

    phase: str
    peak_bytes: int
    holders: tuple[Holder, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return it for files and messages."""
        holders = [holder._asdict() for holder in self.holders]
        return {"phase": self.phase, "peak_bytes": self.peak_bytes, "holders": holders}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "PeakHolders":
        """Rebuild :meth:`to_dict`."""
        holders = tuple(Holder(**holder) for holder in content["holders"])
        return cls(content["phase"], content["peak_bytes"], holders)


class ModuleWork(NamedTuple):
    """What a module itself, without those within, does in the first forward pass of a step.

    Attributes:
        kept_bytes: of what it makes, what is live where the backward pass begins.
        multiplications: of its matrix products, convolutions and attention.
    """

    kept_bytes: int
    multiplications: int


def work_by_module(
    events: Sequence[AllocationEvent],
    phases: Sequence[tuple[int, str]],
    owners: Mapping[int, Owner],
    multiplications: Mapping[str, int],
) -> dict[str, ModuleWork]:
    """Return what modules do in the first forward pass, by their paths.

    Args:
        events: of the step.
        phases: (number of events so far, phase that begins).
        owners: of allocations, by their numbers.
        multiplications: of the forward pass, by the path of the module.
    """
    end = next((start for start, phase in phases if phase == BACKWARD), len(events))
    live: dict[int, int] = {}
    for ident, size_bytes in events[:end]:
        if size_bytes:
            live[ident] = size_bytes
        else:
            live.pop(ident, None)
    kept = Counter[str]()
    for ident, size_bytes in live.items():
        owner = owners.get(ident)
        if owner is not None and owner.kind == ACTIVATIONS:
            kept[owner.module] += size_bytes
    modules = dict.fromkeys([*multiplications, *kept])
    return {module: ModuleWork(kept[module], multiplications.get(module, 0)) for module in modules}


def holders_at_peak(
    initial: Sequence[AllocationEvent],
    events: Sequence[AllocationEvent],
    phases: Sequence[tuple[int, str]],
    owners: Mapping[int, Owner],
) -> PeakHolders:
    """Return what is live when most is, by module.

    Args:
        initial: what is live when the step begins.
        events: of the step.
        phases: (number of events so far, phase that begins).
        owners: of allocations, by their numbers; what has none is a workspace of a kernel or library.
    """
    sizes = dict(initial)
    live = most = sum(sizes.values())
    at = 0
    for number, (ident, size_bytes) in enumerate(events, 1):
        live += size_bytes or -sizes[ident]
        sizes[ident] = size_bytes or sizes[ident]
        if live > most:
            most, at = live, number
    held = dict(initial)
    for ident, size_bytes in events[:at]:
        if size_bytes:
            held[ident] = size_bytes
        else:
            del held[ident]
    found: defaultdict[Owner, int] = defaultdict(int)
    modules: defaultdict[Owner, set[str]] = defaultdict(set)
    for ident, size_bytes in held.items():
        module, kind = owners.get(ident, Owner("", WORKSPACES))
        place = Owner(re.sub(r"(?<=\.)\d+(?=\.|$)", "*", module), kind)
        found[place] += size_bytes
        modules[place].add(module)
    largest = sorted(found.items(), key=lambda entry: -entry[1])
    phase = next(phase for start, phase in reversed(phases) if start < max(at, 1))
    return PeakHolders(phase, most, tuple(Holder(*place, len(modules[place]), size) for place, size in largest))
