"""Processes that need not load torch first: 3 s of CPU time that those of a person wait for, and most tests need not.

They are forked from one that has loaded it (ready_server.py, one for each process of tests), and are processes in all
else: signals, ``kill -9``, ranks, workers, memory budgets, exit codes. Started afresh is what is tested of loading
itself, what others start (torchrun), runs beside a neighbour that leaves just too little, and some of those that fill a
budget to its end: small free pieces of memory count there, and a fork has others than a process that has just loaded.
"""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from array import array
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parents[2]
NUMBER_BYTES = 8
COVERED = ("COVERAGE_PROCESS_CONFIG", "COVERAGE_PROCESS_START")


class ReadyProcess:
    """A forked process, as ``subprocess.Popen`` has it; what it says is kept in files until it is asked for.

    Or it says it, and hears, on a terminal that it is given.

    Attributes:
        pid: its number.
        returncode: its exit code, negative where a signal ended it; ``None`` until somebody waits for it.
    """

    def __init__(
        self, request: bytes, requests: socket.socket, *, is_merged: bool, terminal: int | None = None
    ) -> None:
        self.returncode: int | None = None
        self._stdout = tempfile.TemporaryFile("w+")  # noqa: SIM115 - it lives as long as the process
        self._stderr = self._stdout if is_merged else tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._status, status = os.pipe()
        files = [self._stdout.fileno(), self._stderr.fileno()] if terminal is None else [terminal] * 3
        socket.send_fds(requests, [request], [status, *files])
        os.close(status)
        self.pid = self._number()

    def _number(self) -> int:
        (number,) = array("q", os.read(self._status, NUMBER_BYTES))
        return int(number)

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code once it has ended.

        Raises:
            subprocess.TimeoutExpired: it has not ended in time.
        """
        if self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            self.returncode = os.waitstatus_to_exitcode(self._number())
            os.close(self._status)
        return self.returncode

    def poll(self) -> int | None:
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait for its end, and return what it said; once."""
        self.wait(timeout)
        stdout = _everything(self._stdout)
        return stdout, "" if self._stderr is self._stdout else _everything(self._stderr)


class ReadyWorker(ReadyProcess):
    """A forked process that answers requests, as :class:`~trainauto.core.worker_process.WorkerProcess` starts it.

    Attributes:
        stdin: requests.
        stdout: answers.
    """

    def __init__(self, request: bytes, requests: socket.socket, errors: IO[bytes]) -> None:
        theirs_in, mine_in = os.pipe()
        mine_out, theirs_out = os.pipe()
        self.stdin, self.stdout = os.fdopen(mine_in, "w", encoding="utf-8"), os.fdopen(mine_out, encoding="utf-8")
        self.returncode = None
        self._status, status = os.pipe()
        socket.send_fds(requests, [request], [status, theirs_out, errors.fileno(), theirs_in])
        for descriptor in (status, theirs_out, theirs_in):
            os.close(descriptor)
        self.pid = self._number()


def _everything(file: IO[str]) -> str:
    with file:
        file.seek(0)
        return file.read()


class Server:
    """The process that forks; started when it is first asked."""

    def __init__(self) -> None:
        self.is_measured = False
        self._lock = threading.Lock()
        self._requests: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def is_at(self, requests: socket.socket) -> None:
        """Have a process that was forked ask for its workers where it was asked for itself."""
        self._requests = requests

    def asked(self) -> socket.socket:
        with self._lock:  # tests ask in threads
            if self._requests is None:
                self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                words = [str(theirs.fileno()), *([str(ROOT / "pyproject.toml")] if self.is_measured else [])]
                variables = {name: value for name, value in os.environ.items() if name not in COVERED}
                path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))  # packages tried beside
                with theirs:
                    self._process = subprocess.Popen(
                        [sys.executable, "-m", "tests.integration.ready_server", *words],
                        cwd=ROOT,
                        env=variables | {"PYTHONPATH": path, "PYTHONWARNINGS": "ignore"},
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.DEVNULL,
                        pass_fds=[theirs.fileno()],
                    )
            return self._requests

    def end(self) -> None:
        """Let it write which lines ran, and leave."""
        if self._requests is not None and self._process is not None:
            self._requests.close()
            assert self._process.wait(60) == 0


SERVER = Server()

Started = ReadyProcess | subprocess.Popen[str]


def begin(
    words: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    is_merged: bool = True,
    in_new_session: bool = False,
    terminal: int | None = None,
    afresh: bool = False,
) -> Started:
    """Start ``python words...`` with all loaded that it would load; afresh where there is no such fork.

    Args:
        words: a script and its arguments, or ``-m``, a module and its arguments.
        cwd: where it starts.
        env: all its variables.
        is_merged: stderr goes where stdout does.
        in_new_session: give it a session and a process group of its own.
        terminal: what it has in place of stdin, stdout and stderr.
        afresh: have it load everything itself.
    """
    if afresh or sys.platform != "linux":
        return subprocess.Popen(
            [sys.executable, *words],
            cwd=cwd,
            env=dict(env),
            stdin=terminal,
            stdout=subprocess.PIPE if terminal is None else terminal,
            stderr=subprocess.STDOUT if is_merged else subprocess.PIPE,
            text=True,
            start_new_session=in_new_session,
        )
    request = {"words": list(words), "folder": str(cwd), "variables": dict(env), "in_new_session": in_new_session}
    return ReadyProcess(json.dumps(request).encode(), SERVER.asked(), is_merged=is_merged, terminal=terminal)


FORKED = {
    *(f"trainauto.forecast.{name}_worker" for name in ("trace", "code", "benchmark")),
    "trainauto.commands.dry_run_worker",
}
"""Workers that are forked; others load everything themselves, as the one that tries whether packages can be loaded."""


def begun_worker(
    afresh: Callable[..., "subprocess.Popen[str]"],
    module: str,
    arguments: Sequence[str],
    variables: Mapping[str, str],
    errors: IO[bytes],
) -> "subprocess.Popen[str] | ReadyWorker":
    """Start a worker process: a fork where it is one of :data:`FORKED`, else as ``afresh`` does."""
    if module not in FORKED or sys.platform != "linux":
        return afresh(module, arguments, variables, errors)
    words = ["-m", module, *arguments]
    request = {"words": words, "folder": str(Path.cwd()), "variables": dict(variables), "in_new_session": False}
    return ReadyWorker(json.dumps(request).encode(), SERVER.asked(), errors)
