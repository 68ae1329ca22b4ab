"""Traces in a process of their own, which may die without hurting the run: fake tensors can abort a process."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from trainauto.assembly.child import Child, ChildDied, start_tracing
from trainauto.core.plan import Plan
from trainauto.memory.trace import CannotTrace

TRACE_TIMEOUT_S = 60.0
"""Of building a model and tracing it: some twenty times what both take."""
MOST_DEATHS = 2
"""A model that aborts its process does so again."""


@dataclass(frozen=True)
class PlanBytes:
    """What a step under a plan takes.

    Attributes:
        persistent_bytes: live all the time: weights, optimizer state, averages. Not gradients, which a step begins by
            dropping.
        peak_bytes: highest live bytes.
        phase_peaks_bytes: the same by phase.
        reserved_native_bytes: what torch's CUDA allocator reserves for such steps, by simulation.
        reserved_expandable_bytes: the same with ``expandable_segments``.
        seconds: how long it took, building the model included where it had to be built.
        peak_with_copies_bytes: the peak where a CPU's kernels copy what they are given; 0 where that is not known.
    """

    persistent_bytes: int
    peak_bytes: int
    phase_peaks_bytes: Mapping[str, int]
    reserved_native_bytes: int
    reserved_expandable_bytes: int
    seconds: float
    peak_with_copies_bytes: int = 0


class TraceProcessDied(CannotTrace):
    """The process is gone: of the model that says nothing."""


class TraceProcess:
    """A process that traces the run of an option file, started when it is first needed.

    On a GPU it holds a CUDA context (some hundred MB of the card) until it is closed.

    Args:
        options: the option file.
        overrides: items of ``--force_yml``.
        like_cuda: without a GPU, let autocast cast and optimizers group tensors as on CUDA: right for what a GPU will
            need. For a run that trains on the CPU itself, say False.
        timeout_s: bound of one trace.
        child: a process started with the same ``like_cuda`` that is to be the first; it is ended here.
    """

    def __init__(
        self,
        options: Path,
        overrides: Sequence[str] = (),
        *,
        like_cuda: bool = True,
        timeout_s: float = TRACE_TIMEOUT_S,
        child: Child | None = None,
    ) -> None:
        self._options, self._overrides = str(options.resolve()), list(overrides)
        self._like_cuda = like_cuda
        self._timeout_s = timeout_s
        self._deaths: list[str] = []
        self._requests = 0
        self._child = child
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start it now, so that torch is loaded while the caller does something else. It does not wait."""
        if self._child is None and len(self._deaths) < MOST_DEATHS:
            self._child = start_tracing(like_cuda=self._like_cuda)

    def trace(self, plan: Plan) -> PlanBytes:
        """Trace a step under a plan.

        Raises:
            CannotTrace: the model cannot be traced.
            TraceProcessDied: the process died or did not answer in time; another time it may.
        """
        with self._lock:
            self.start()
            if self._child is None:
                raise TraceProcessDied(self._deaths[-1])
            self._requests += 1
            request = {"id": self._requests, "options": self._options, "overrides": self._overrides}
            try:
                answer = self._child.ask({**request, "plan": plan.to_dict()}, self._timeout_s)
            except ChildDied as error:
                self._child.end()
                self._child = None
                self._deaths.append(f"the process that traces {error}")
                raise TraceProcessDied(self._deaths[-1]) from None
        if "cannot" in answer:
            raise CannotTrace(answer["cannot"])
        reserved = answer["reserved_bytes"]
        return PlanBytes(
            answer["persistent_bytes"],
            answer["peak_bytes"],
            answer["phase_peaks_bytes"],
            reserved["native"],
            reserved["expandable"],
            answer["seconds"],
            answer["peak_with_copies_bytes"],
        )

    def close(self) -> None:
        """End the process, if there is one."""
        with self._lock:
            if self._child is not None:
                self._child.end()
                self._child = None

    def __enter__(self) -> "TraceProcess":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
