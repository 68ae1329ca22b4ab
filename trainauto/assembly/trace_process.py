"""Traces in a process of their own, which may die without hurting the run: fake tensors can abort a process."""

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, cast

from trainauto.core.plan import Plan
from trainauto.memory.trace import CannotTrace

START_TIMEOUT_S = 120.0
"""Loading torch from a cold disk takes long."""
TRACE_TIMEOUT_S = 60.0
"""Of building a model and tracing it: some twenty times what both take."""
MOST_DEATHS = 2
"""A model that aborts its process does so again."""
SHOWN_LINES = 5

_PACKAGE_FOLDER = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class PlanBytes:
    """What a step under a plan takes.

    Attributes:
        persistent_bytes: live between steps; see :class:`~trainauto.memory.trace.Trace`.
        peak_bytes: highest live bytes.
        phase_peaks_bytes: the same by phase.
        reserved_native_bytes: what torch's CUDA allocator reserves for such steps, by simulation.
        reserved_expandable_bytes: the same with ``expandable_segments``.
        seconds: how long it took, building the model included where it had to be built.
    """

    persistent_bytes: int
    peak_bytes: int
    phase_peaks_bytes: Mapping[str, int]
    reserved_native_bytes: int
    reserved_expandable_bytes: int
    seconds: float


class TraceProcess:
    """A process that traces the run of an option file, started when it is first needed.

    On a GPU it holds a CUDA context (some hundred MB of the card) until it is closed.

    Args:
        options: the option file.
        overrides: items of ``--force_yml``.
        like_cuda: without a GPU, let autocast cast and optimizers group tensors as on CUDA: right for what a GPU will
            need. For a run that trains on the CPU itself, say False.
        timeout_s: bound of one trace.
    """

    def __init__(
        self,
        options: Path,
        overrides: Sequence[str] = (),
        *,
        like_cuda: bool = True,
        timeout_s: float = TRACE_TIMEOUT_S,
    ) -> None:
        self._options, self._overrides = str(options.resolve()), list(overrides)
        self._like_cuda = like_cuda
        self._timeout_s = timeout_s
        self._deaths: list[str] = []
        self._requests = 0
        self._child: _Child | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start it now, so that torch is loaded while the caller does something else. It does not wait."""
        if self._child is None and len(self._deaths) < MOST_DEATHS:
            self._child = _Child(self._like_cuda)

    def trace(self, plan: Plan) -> PlanBytes:
        """Trace a step under a plan.

        Raises:
            CannotTrace: the model cannot be traced, or the process died or did not answer in time.
        """
        with self._lock:
            self.start()
            if self._child is None:
                raise CannotTrace(self._deaths[-1])
            self._requests += 1
            request = {"id": self._requests, "options": self._options, "overrides": self._overrides}
            try:
                answer = self._child.ask({**request, "plan": plan.to_dict()}, self._timeout_s)
            except _ChildDied as error:
                self._child.end()
                self._child = None
                self._deaths.append(f"the process that traces {error}")
                raise CannotTrace(self._deaths[-1]) from None
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


class _ChildDied(Exception):  # noqa: N818
    """The process is gone or silent; the message says how and ends with what it wrote last."""


class _Child:
    """The process and its three streams."""

    def __init__(self, like_cuda: bool) -> None:
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
        command = [
            sys.executable,
            "-P",
            "-m",
            "trainauto.assembly.trace_server",
            *(["--like-cuda"] if like_cuda else []),
        ]
        folders = [str(_PACKAGE_FOLDER), *filter(None, [os.environ.get("PYTHONPATH")])]
        self._process = subprocess.Popen(  # noqa: S603
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(folders), "OMP_NUM_THREADS": "1"},
            text=True,
            encoding="utf-8",
        )
        self._stdin, self._stdout = cast(IO[str], self._process.stdin), cast(IO[str], self._process.stdout)
        self._answers: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()
        self._is_ready = False

    def ask(self, request: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        """Send a request and wait for its answer.

        Raises:
            _ChildDied: it ended, or there was no answer in time.
        """
        if not self._is_ready:
            self._next(START_TIMEOUT_S)
            self._is_ready = True
        try:
            self._stdin.write(json.dumps(request) + "\n")
            self._stdin.flush()
        except OSError:
            raise self._death() from None
        return self._next(timeout_s)

    def end(self) -> None:
        """End it: it leaves when its stdin closes, or is killed."""
        with suppress(OSError):  # it may be gone already
            self._stdin.close()
        try:
            self._process.wait(timeout=0.5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()

    def _listen(self) -> None:
        with self._stdout:
            for line in self._stdout:
                self._answers.put(line)
        self._answers.put(None)

    def _next(self, timeout_s: float) -> dict[str, Any]:
        try:
            line = self._answers.get(timeout=timeout_s)
        except queue.Empty:
            self._process.kill()
            raise _ChildDied(f"gave no answer within {timeout_s:g} s{self._last_words()}") from None
        if line is None:
            raise self._death()
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _death(self) -> _ChildDied:
        code = self._process.wait()
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        return _ChildDied(how + self._last_words())

    def _last_words(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read().decode("utf-8", errors="replace").strip().splitlines()
        return "; the last it wrote:\n  " + "\n  ".join(lines[-SHOWN_LINES:]) if lines else ""
