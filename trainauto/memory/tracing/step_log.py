"""What was allocated and freed: by one step, and while its model was made."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from torch.optim import Optimizer

from trainauto.memory.cuda_allocator.allocator import AllocationEvent
from trainauto.memory.tracing.phases import FORWARD, PHASES


@dataclass
class StepLog:
    """What one step did.

    Attributes:
        initial: storages that were live when it began, but for workspaces.
        events: allocations and frees, in order.
        phases: (number of events so far, phase that begins).
        workspaces: (number of events so far, workspace that a library takes where it has none, and keeps).
        optimizers: (number of events so far, optimizer that begins its step).
        copies: (number of events so far, bytes that a kernel of the CPU held beside what it took and gave).
        remembered: numbers of copies of buffers that were made outside modules before an optimizer stepped, in case the
            step fails. A new run's first step makes none, for no step has changed them yet.
        multiplications: of matrix products, convolutions and attention.
    """

    initial: list[AllocationEvent]
    events: list[AllocationEvent] = field(default_factory=list)
    phases: list[tuple[int, str]] = field(default_factory=lambda: [(0, FORWARD)])
    workspaces: list[tuple[int, AllocationEvent]] = field(default_factory=list)
    optimizers: list[tuple[int, Optimizer]] = field(default_factory=list)
    copies: list[tuple[int, int]] = field(default_factory=list)
    remembered: list[int] = field(default_factory=list)
    multiplications: int = 0

    @property
    def before_later_steps(self) -> list[AllocationEvent]:
        """What was live when the step began, and the workspaces that it needs: later steps find them."""
        return [*self.initial, *(workspace for _, workspace in self.workspaces)]

    def peaks(self) -> dict[str, int]:
        """Return the highest live bytes of each phase that there was, as they are in later steps."""
        sizes = dict(self.before_later_steps)
        live = sum(sizes.values())
        peaks = dict.fromkeys(PHASES, 0)
        ends = [*(start for start, _ in self.phases[1:]), len(self.events)]
        for (start, phase), end in zip(self.phases, ends, strict=True):
            peak = max(peaks[phase], live)
            for ident, size in self.events[start:end]:
                if size:
                    sizes[ident] = size
                    live += size
                    peak = max(peak, live)
                else:
                    live -= sizes.pop(ident)
            peaks[phase] = peak
        return {phase: peak for phase, peak in peaks.items() if peak}

    def peak_with_copies(self) -> int:
        """Return the highest bytes of the step where copies within kernels are counted, too."""
        sizes = dict(self.before_later_steps)
        live = [sum(sizes.values())]
        for ident, size in self.events:
            live.append(live[-1] + (size or -sizes[ident]))
            sizes[ident] = size
        return max([*live, *(live[events] + copied for events, copied in self.copies)])


class Construction(NamedTuple):
    """What making a model did on the card that it was made on.

    Attributes:
        events: allocations and frees, in order.
        left: number and bytes of the storages that were left, by their addresses.
    """

    events: Sequence[AllocationEvent]
    left: Mapping[int, tuple[int, int]]
