"""A process of our own that answers requests, one JSON line each; it may die without hurting its client.

:class:`WorkerProcess` is the side that asks, :func:`serve` the one that answers. Nothing here imports torch: the memory
limit that a child inherits must be off by the time it does.
"""

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any, TextIO, cast

from trainauto.core.errors import TrainautoError

START_TIMEOUT_S = 120.0
"""Loading torch from a cold disk takes long."""
GRACE_S = 2.0
"""How long an answer that is under way may continue after the client is gone."""
SHOWN_LINES = 5

_PACKAGE_FOLDER = Path(__file__).resolve().parents[2]

Request = dict[str, Any]
Handler = Callable[[Request], dict[str, Any]]


class WorkerDiedError(Exception):
    """The process is gone or silent; the message says how and ends with what it wrote last."""


class WorkerProcess:
    """The process and its three streams.

    Attributes:
        has_ended: :meth:`end` was called: it answers nothing any more.

    Args:
        module: what it runs; it calls :func:`serve`.
        arguments: of its command line.
        environment: beside the present one.
    """

    def __init__(self, module: str, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
        folders = [str(_PACKAGE_FOLDER), *filter(None, [os.environ.get("PYTHONPATH")])]
        variables = {**os.environ, "PYTHONPATH": os.pathsep.join(folders), **(environment or {})}
        self._process = _begun(module, arguments, variables, self._errors)
        self._stdin, self._stdout = cast(IO[str], self._process.stdin), cast(IO[str], self._process.stdout)
        self._answers: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()
        self._is_ready = self.has_ended = False

    def request(self, message: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        """Send a request and wait for its answer.

        Raises:
            WorkerDiedError: it ended, or there was no answer in time.
        """
        if not self._is_ready:
            self._next(START_TIMEOUT_S)
            self._is_ready = True
        try:
            self._stdin.write(json.dumps(message) + "\n")
            self._stdin.flush()
        except OSError:
            raise self._death() from None
        return self._next(timeout_s)

    def __enter__(self) -> "WorkerProcess":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        """End it: it leaves when its stdin closes, or is killed. It may be called again."""
        self.has_ended = True
        with suppress(OSError):  # it may be gone already
            self._stdin.close()
        if not self._is_ready:  # nothing was asked: it may still be loading torch, deaf to its stdin
            self._process.kill()
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
            raise WorkerDiedError(f"gave no answer within {timeout_s:g} s{self._last_words()}") from None
        if line is None:
            raise self._death()
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _death(self) -> WorkerDiedError:
        code = self._process.wait()
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        return WorkerDiedError(how + self._last_words())

    def _last_words(self) -> str:
        if self._errors.closed:  # it was ended while it was asked
            return ""
        self._errors.seek(0)
        lines = self._errors.read().decode("utf-8", errors="replace").strip().splitlines()
        return "; the last it wrote:\n  " + "\n  ".join(lines[-SHOWN_LINES:]) if lines else ""


def _begun(
    module: str, arguments: Sequence[str], variables: Mapping[str, str], errors: IO[bytes]
) -> "subprocess.Popen[str]":
    """Start Python on a module, with pipes for requests and answers."""
    return subprocess.Popen(  # noqa: S603
        [sys.executable, "-P", "-m", module, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        env=dict(variables),
        text=True,
        encoding="utf-8",
    )


def start_tracing(*, like_cuda: bool) -> WorkerProcess:
    """Start the process that traces, before torch is loaded here: both then load it side by side.

    Args:
        like_cuda: see :class:`~trainauto.forecast.trace_process.TraceProcess`.
    """
    arguments = ["--like-cuda"] if like_cuda else []
    return WorkerProcess("trainauto.forecast.trace_worker", *arguments, environment={"OMP_NUM_THREADS": "1"})


def start_tracing_code() -> WorkerProcess:
    """Start the process that traces code named ``module:factory``, before torch is loaded here."""
    return WorkerProcess("trainauto.forecast.code_worker", environment={"OMP_NUM_THREADS": "1"})


def serve(prepare: Callable[[], Handler]) -> int:
    """Answer requests from stdin until it ends: the main of every worker process.

    A request that raises a ``TrainautoError`` is answered ``{"cannot": "...", "exit_code": 2}``; any other error ends
    the process. An answer carries the ``id`` of its request, where that has one.

    Args:
        prepare: loads what is needed, and returns the handler of requests. The line that says "ready" follows it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    # What plugins and libraries print must not come between the answers.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    requests: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    threading.Thread(target=_hear, args=(requests,), daemon=True).start()

    from trainauto.core.process import limit_private_memory

    limit_private_memory(None)
    handler = prepare()
    _say(answers, {"ready": True})
    while (line := requests.get()) is not None:
        _say(answers, _handled(handler, json.loads(line)))
    return 0


def _handled(handler: Handler, request: Request) -> dict[str, Any]:
    ident = {"id": request["id"]} if "id" in request else {}
    try:
        return {**ident, **handler(request)}
    except TrainautoError as error:
        return {**ident, "cannot": str(error), "exit_code": error.exit_code}


def _hear(requests: "queue.SimpleQueue[str | None]") -> None:
    # Not from sys.stdin itself: a worker forked while this thread waits in it would wait for its lock, for ever.
    with os.fdopen(os.dup(sys.stdin.fileno()), encoding="utf-8") as lines:
        for line in lines:
            requests.put(line)
    requests.put(None)
    time.sleep(GRACE_S)
    os._exit(1)


def _say(answers: TextIO, answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()
