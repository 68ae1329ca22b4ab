"""What a training step takes at its peak, known before it is run: the step itself, on fake tensors.

The same definition holds for fake and for real tensors: live bytes, as they were asked for, of every storage that an
operator gives or takes. On real tensors it is a measurement, on fake ones a prediction.
"""

import gc
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor, UntypedStorage
from torch._subclasses import fake_tensor

from trainauto.core.errors import TrainautoError
from trainauto.core.files import write_json_atomically
from trainauto.core.units import MIB
from trainauto.memory.cuda_allocator.allocator import AllocationEvent
from trainauto.memory.cuda_allocator.steps import Late, Needed, needed_bytes, peak_reserved_bytes
from trainauto.memory.tracing.holders import ModuleWork, PeakHolders, holders_at_peak, work_by_module
from trainauto.memory.tracing.host_reads import HostRead, ModelReads, UnanswerableError, place_of_error
from trainauto.memory.tracing.libraries import Libraries
from trainauto.memory.tracing.owners import ModuleOwners
from trainauto.memory.tracing.step_log import Construction
from trainauto.memory.tracing.storage_tracker import LiveStorages, UntraceableTensorError

LARGEST_DIFFERENCE = 0.01
"""Peaks that follow data by no more than this are one peak: it is the error that traces may have anyway."""


class TraceError(TrainautoError):
    """A step cannot be traced; the message says why, and where in the model."""


@dataclass(frozen=True)
class Trace:
    """One step of a model that has stepped before.

    Attributes:
        persistent_bytes: live when the step begins: weights, optimizer state, averages, gradients where the last step
            left them, and workspaces of libraries where a card was asked for.
        peak_bytes: most that was live at one time.
        phase_peaks_bytes: the same within ``forward``, ``backward``, ``optimizer`` and ``other`` (see
            :class:`~trainauto.memory.tracing.phases.PhaseWatch`); a phase that did not occur is missing.
        initial: allocations that were live when the step began.
        late: of ``initial``, what a run's first step takes: workspaces of libraries and states of optimizers, each
            with the number of the step's events before it; and, with 0 bytes, what it does not take of ``events``.
        events: what the step allocated and freed, in order, for the simulation of an allocator.
        held_at_peak: what is live at the peak, by module, where that was asked.
        construction: what making the model allocated and freed on the card, where it was made there; what is left of it
            is part of ``initial``.
        hides_memory: kernels take memory that no trace knows: those of convolutions above all.
        peak_with_copies_bytes: the peak where a CPU's kernels copy what they are given; elsewhere ``peak_bytes``.
        multiplications: of the step's matrix products, convolutions and fused attention.
        work: of the forward pass by module, where that was asked.
        workspaces_bytes: of each of the libraries' workspaces.
        attends: attention was computed, for which cards have different kernels.
    """

    persistent_bytes: int
    peak_bytes: int
    phase_peaks_bytes: Mapping[str, int]
    initial: tuple[AllocationEvent, ...]
    events: tuple[AllocationEvent, ...]
    hides_memory: bool = True
    peak_with_copies_bytes: int = 0
    multiplications: int = 0
    late: Late = ()
    workspaces_bytes: tuple[int, ...] = ()
    attends: bool = False
    held_at_peak: PeakHolders | None = None
    work: Mapping[str, ModuleWork] | None = None
    construction: tuple[AllocationEvent, ...] = ()

    @property
    def before(self) -> tuple[AllocationEvent, ...]:
        """What comes before a run's first step: the model's construction, and what is live besides."""
        left: set[int] = set()
        for ident, size_bytes in self.construction:
            (left.add if size_bytes else left.discard)(ident)
        found = {event.ident for event in self.initial}
        gone = (AllocationEvent(ident, 0) for ident in sorted(left - found))
        # What the construction did not make is there before it.
        others = (event for event in self.initial if event.ident not in left)
        return (*others, *self.construction, *gone)

    @property
    def held_bytes(self) -> int:
        """What is live through all of the step: ``persistent_bytes`` without what it frees, gradients above all."""
        freed = {ident for ident, size_bytes in self.events if not size_bytes}
        return sum(size_bytes for ident, size_bytes in self.initial if ident not in freed)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values, for messages and files."""
        return {**asdict(self), "held_at_peak": self.held_at_peak and self.held_at_peak.to_dict()}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "Trace":
        """Rebuild :meth:`to_dict`, from JSON too.

        Raises:
            KeyError, TypeError, ValueError: it is something else.
        """
        events = {
            name: tuple(AllocationEvent(*event) for event in content[name])
            for name in ("initial", "events", "construction")
        }
        late = tuple((int(place), AllocationEvent(*event)) for place, event in content["late"])
        held, work = content["held_at_peak"], content["work"]
        rebuilt = {
            "late": late,
            "workspaces_bytes": tuple(content["workspaces_bytes"]),
            "held_at_peak": PeakHolders.from_dict(held) if held else None,
            "work": {name: ModuleWork(*one) for name, one in work.items()} if work is not None else None,
        }
        return cls(**{**content, **events, **rebuilt})

    def write(self, path: Path) -> None:
        """Keep it in a JSON file; what is there already is replaced.

        Raises:
            OSError: it cannot be written.
        """
        write_json_atomically(path, self.to_dict())

    @classmethod
    def read(cls, path: Path) -> "Trace":
        """Return what :meth:`write` kept.

        Raises:
            OSError: it cannot be read.
            KeyError, TypeError, ValueError: it is something else.
        """
        return cls.from_dict(json.loads(path.read_bytes()))

    def sizes(self) -> list[int]:
        """Return the bytes of the events alone, negative where they were freed."""
        sizes = dict([*self.initial, *(event for event in self.events if event.size_bytes)])
        return [size_bytes or -sizes[ident] for ident, size_bytes in self.events]

    def reserved_bytes(self, *, expandable: bool) -> int:
        """Return what torch's CUDA allocator reserves for such steps where there is plenty, by simulation."""
        return peak_reserved_bytes(self.events, expandable=expandable, before=self.before, late=self.late)

    def needed_bytes(self, *, expandable: bool) -> Needed:
        """Return what torch's CUDA allocator needs for such steps, by simulation."""
        return needed_bytes(self.events, expandable=expandable, before=self.before, late=self.late)


def trace(
    step: Callable[[], object],
    *,
    steps: int = 2,
    held: Sequence[Any] = (),
    device_type: str = "cpu",
    ends_early: bool | Callable[[], bool] = False,
    libraries: Libraries | None = None,
    told: Sequence[Tensor] = (),
    construction: Construction | None = None,
    lazy_states: bool = False,
    by_module: bool = False,
) -> Trace:
    """Run a step a few times and follow its memory; the last one counts.

    Fake tensors have no data. What the step reads of them outside of forward and backward (losses, norms, loss scaling)
    is answered so that it continues. Where the model itself asks, the step is run under both answers, and traced only
    if its peak does not depend on them.

    Args:
        step: one whole training step, from the batch to the averages. Fake tensors are its caller's business: their
            mode is open around this call, not within ``step``.
        steps: how often it runs; optimizers allocate their state in the first.
        held: what is live between steps and touched by no operator of them: tensors, modules, optimizers.
        device_type: which device's memory to follow.
        ends_early: run no further step after one that leaves storages of the same sizes as it found. The next one would
            find what this one found, so it is this one again: half of the time of a trace. A callable is asked after a
            step.
        libraries: of the card that is asked for; ``None`` follows what a CPU does.
        told: real tensors whose values are those of a run: what the model reads of what follows from them is true.
        construction: of the model, where it was made on the card.
        lazy_states: a run's first step makes the states that ``held`` optimizers have already; the engine makes them
            before, and torch's optimizers there.
        by_module: tell what is live at the peak, by module.

    Raises:
        TraceError: the step fails, or its memory depends on data.
    """
    if steps < 1:
        raise ValueError(f"steps must be at least 1, got {steps}")
    reads = ModelReads(large=False)
    follow = partial(
        _follow, step, steps, held, device_type, ends_early, libraries, told, construction, lazy_states, by_module
    )
    try:
        first = follow(reads)
    except TraceError as error:
        if not reads.values_read or isinstance(error.__cause__, UnanswerableError):
            raise
        first = None  # it may be the answer that the model did not like
    if first is not None and not reads.values_read:
        return first
    return _under_other_answers(first, reads.values_read[0], follow)


def _under_other_answers(first: Trace | None, read: HostRead, follow: Callable[[ModelReads], Trace]) -> Trace:
    try:
        second = follow(ModelReads(large=True))
    except TraceError as error:
        if first is None or isinstance(error.__cause__, UnanswerableError):
            raise
        return first
    if first is None:
        return second
    low, high = sorted((first, second), key=lambda traced: traced.peak_bytes)
    if high.peak_bytes - low.peak_bytes > LARGEST_DIFFERENCE * high.peak_bytes:
        raise TraceError(
            f"the memory of a step depends on data: {read.place} asks a tensor for {read.kind}, and the peak is "
            f"{low.peak_bytes / MIB:.1f} MiB or {high.peak_bytes / MIB:.1f} MiB by the answer"
        )
    return high


def _follow(
    step: Callable[[], object],
    steps: int,
    held: Sequence[Any],
    device_type: str,
    ends_early: bool | Callable[[], bool],
    libraries: Libraries | None,
    told: Sequence[Tensor],
    construction: Construction | None,
    lazy_states: bool,
    by_module: bool,
    reads: ModelReads,
) -> Trace:
    owners = ModuleOwners(held) if by_module else None
    live = LiveStorages(device_type, reads, libraries, told, construction, owners)
    live.hold(held)
    before = set() if lazy_states else live.held()
    try:
        for _ in range(steps):
            with _no_garbage():
                live.begin_step()
                with (
                    live.watch.watching(),
                    masks_by_content(live.contents.is_known),
                    live.contents.read_at_once(),
                    _told_of_resizes(live),
                    live,
                ):
                    step()
            if (ends_early() if callable(ends_early) else ends_early) and live.is_unchanged():
                break
    except Exception as error:
        raise TraceError(", ".join([_reason(error), *_notes_of(error)])) from error
    found = _trace_of(live, live.states(before=before), construction.events if construction else ())
    if owners is None:
        return found
    by_owner = owners.complete(live.ident_of)
    return replace(
        found,
        held_at_peak=holders_at_peak(found.initial, found.events, live.log.phases, by_owner),
        work=work_by_module(found.events, live.log.phases, by_owner, owners.multiplications),
    )


def _trace_of(live: LiveStorages, states: Late, construction: Sequence[AllocationEvent]) -> Trace:
    log = live.log
    peaks = log.peaks()
    return Trace(
        persistent_bytes=sum(size for _, size in log.before_later_steps),
        peak_bytes=max(peaks.values(), default=0),
        phase_peaks_bytes=peaks,
        initial=tuple(log.before_later_steps),
        events=tuple(log.events),
        hides_memory=live.hides_memory,
        attends=live.attends,
        peak_with_copies_bytes=log.peak_with_copies(),
        multiplications=log.multiplications,
        late=(*log.workspaces, *states, *((0, AllocationEvent(ident, 0)) for ident in log.remembered)),
        workspaces_bytes=tuple(workspace.size_bytes for _, workspace in log.workspaces),
        construction=tuple(construction),
    )


@contextmanager
def _no_garbage() -> Iterator[None]:
    """Collect before and not within, so that what hangs in cycles ends at the same moment in every run.

    What a step makes, with collection off, is in the youngest generation: looking at the others would take longer than
    the step.
    """
    gc.collect(0)
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def _told_of_resizes(live: LiveStorages) -> Iterator[None]:
    """Tell of storages that are resized by themselves, without an operator: those of gathered weights are."""
    original = UntypedStorage.resize_

    def resize_(storage: UntypedStorage, size: int) -> Any:
        resized = original(storage, size)
        live.resized(storage)
        return resized

    UntypedStorage.resize_ = resize_  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        UntypedStorage.resize_ = original  # type: ignore[method-assign]


def _notes_of(error: Exception) -> list[str]:
    """Return what a model has added to an error in one line, such as which of its losses it is of."""
    return [note for note in getattr(error, "__notes__", ()) if "\n" not in note]


def _reason(error: Exception) -> str:
    """Say what stopped a trace, and where in the model."""
    place = place_of_error(error)
    match error:
        case UnanswerableError() | UntraceableTensorError():
            return str(error)
        case fake_tensor.DynamicOutputShapeException():
            return f"the size of what {error.func} gives depends on data, at {place}"
        case fake_tensor.UnsupportedOperatorException():
            return f"{error.func} has no kernel for fake tensors, at {place}"
        case _:
            lines = str(error).strip().splitlines()
            return f"{type(error).__name__}{': ' + lines[0] if lines else ''}, at {place}"


_MODULE, _FUNCTION = "transformers.masking_utils", "is_tracing"


@contextmanager
def masks_by_content(is_known: Callable[[Tensor], bool]) -> Iterator[None]:
    """Let Transformers look at masks whose content is known, as it does in a run; nothing is done where it is not used.

    Decoders make themselves a mask of ones where a batch brings none (BART, Marian), others look for texts that lie
    one behind the other (Llama without a mask). Without this they would write out masks that no run has: 1 to 8 % of a
    peak.

    Args:
        is_known: says whether the content of a fake tensor is known.
    """
    masks = sys.modules.get(_MODULE)
    original = getattr(masks, _FUNCTION, None)
    if original is None:
        yield
        return

    def is_tracing(tensor: Tensor | None = None) -> bool:
        known = isinstance(tensor, Tensor) and is_known(tensor)
        return bool(original(None if known else tensor))

    setattr(masks, _FUNCTION, is_tracing)
    try:
        yield
    finally:
        setattr(masks, _FUNCTION, original)
