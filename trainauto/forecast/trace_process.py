"""Traces in a process of their own, which may die without hurting the run: fake tensors can abort a process."""

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from trainauto.core.plan import Plan
from trainauto.core.worker_process import WorkerDiedError, WorkerProcess, start_tracing
from trainauto.memory.cost.memory_forecast import PlanBytes
from trainauto.memory.cuda_allocator.segments import Segments
from trainauto.memory.tracing.holders import ModuleWork
from trainauto.memory.tracing.kept_bytes import KeptBytes
from trainauto.memory.tracing.libraries import Hardware
from trainauto.memory.tracing.trace import Trace, TraceError

TRACE_TIMEOUT_S = 60.0
"""Of building a model and tracing it: some twenty times what both take."""

ONE_BY_ONE = "optimizers_one_by_one"
"""Fact that the option file does not say: optimizers take one weight after another."""

BYTES, WHOLE, PARTS, KEPT = "bytes", "trace", "parts", "kept"
"""What a request asks of a step: what it takes, its trace, what the parts that can run again do in it, or what its
network keeps between the passes, compiled and not."""

MOST_DEATHS = 2
"""A model that aborts its process does so again."""


class TraceProcessDiedError(TraceError):
    """The process is gone: of the model that says nothing."""


class TraceProcess:
    """A process that traces the run of an option file, started when it is first needed.

    On a GPU it holds a CUDA context (some hundred MB of the card) until it is closed.

    Args:
        options: the option file.
        overrides: items of ``--force_yml``.
        segments: of torch's allocator on the card that is asked for. Without a GPU, autocast casts and optimizers group
            tensors as there. ``None`` for a run that trains on the CPU itself.
        world_size: how many processes train the run together.
        timeout_s: bound of one trace.
        worker: a process started for a card, or for none, as this one; its caller ends it. Without one, a process is
            started and ended here.
        known: what it cannot know by the option file alone, as plain values.
    """

    def __init__(
        self,
        options: Path,
        overrides: Sequence[str] = (),
        *,
        segments: Segments | None,
        world_size: int = 1,
        timeout_s: float = TRACE_TIMEOUT_S,
        worker: WorkerProcess | None = None,
        known: Mapping[str, Any] | None = None,
    ) -> None:
        self._card: list[int] | None = None
        self._file = options
        self._options, self._overrides = str(options.resolve()), list(overrides)
        self._segments = segments
        self._world_size = world_size
        self._known = dict(known or {})
        self._timeout_s = timeout_s
        self._deaths: list[str] = []
        self._requests = 0
        self._worker, self._is_given = worker, worker is not None
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start it now, so that torch is loaded while the caller does something else. It does not wait."""
        if self._worker is not None and self._worker.has_ended:  # for who had it before
            self._worker, self._is_given = None, False
        if self._worker is None and len(self._deaths) < MOST_DEATHS:
            self._worker = start_tracing(like_cuda=self._segments is not None)

    def knows(self, fact: str) -> None:
        """Have traces from here on know one more fact that holds of the run."""
        self._known[fact] = True

    def aim(self, hardware: Hardware) -> None:
        """Trace for such a card from here on; for the one that is there until then."""
        self._card = hardware.as_words()

    def trace(self, plan: Plan, overrides: Sequence[str] = ()) -> PlanBytes:
        """Trace a step under a plan.

        Args:
            plan: of the step.
            overrides: further items of ``--force_yml`` for this trace.

        Raises:
            TraceError: the model cannot be traced.
            TraceProcessDiedError: the process died or did not answer in time; another time it may.
        """
        return PlanBytes(**self._asked(plan, overrides))

    def step_trace(self, plan: Plan) -> Trace:
        """Return the trace of a step, with what is live at its peak by module; errors are those of :meth:`trace`."""
        return Trace.from_dict(self._asked(plan, what=WHOLE))

    def work_of_parts(self, plan: Plan) -> tuple[dict[str, ModuleWork], int]:
        """Return what each part that can run again keeps and computes, and what all of a forward pass computes.

        Errors are those of :meth:`trace`.
        """
        answer = self._asked(plan, what=PARTS)
        return {name: ModuleWork(*work) for name, work in answer["parts"].items()}, answer["multiplications"]

    def kept(self, plan: Plan) -> KeptBytes:
        """Return what the network of images keeps between the passes; errors are those of :meth:`trace`."""
        return KeptBytes(**self._asked(plan, what=KEPT))

    def _asked(self, plan: Plan, overrides: Sequence[str] = (), *, what: str = BYTES) -> dict[str, Any]:
        with self._lock:
            self.start()
            if self._worker is None:
                raise TraceProcessDiedError(self._deaths[-1])
            self._requests += 1
            request = {
                "id": self._requests,
                "options": self._options,
                "overrides": [*self._overrides, *overrides],
                "segments": self._segments,
                "ranks": self._world_size,
                "cudnn_benchmark": torch.backends.cudnn.benchmark,  # code of this process may have switched it on
                "plan": plan.to_dict(),
                "known": self._known,
                "card": self._card,
                "what": what,
            }
            try:
                answer = self._worker.request(request, self._timeout_s)
            except WorkerDiedError as error:
                self._worker.end()
                self._worker, self._is_given = None, False
                self._deaths.append(f"the process that traces {error}")
                raise TraceProcessDiedError(self._deaths[-1]) from None
        if "cannot" in answer:
            refused = TraceError(answer["cannot"].replace(self._options, str(self._file)))
            refused.exit_code = answer["exit_code"]
            raise refused
        del answer["id"]
        return answer

    def close(self) -> None:
        """End the process, if there is one that was started here."""
        with self._lock:
            if self._worker is not None and not self._is_given:
                self._worker.end()
                self._worker = None

    def __enter__(self) -> "TraceProcess":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
