"""The process that probes.

    python -m trainauto.commands.doctor_checks.probe_worker

    {"probe": "import_package", "arguments": ["PIL.Image"]}
    {"error": "ModuleNotFoundError: No module named 'PIL'"}

:class:`Prober` asks it, and starts another one where a probe has ended it.
"""

import sys
from types import TracebackType
from typing import Any

from trainauto.core.worker_process import Handler, Request, WorkerDiedError, WorkerProcess, serve

# Nothing here may import torch at the top: whether it can be imported is what is asked.

SERVER = "trainauto.commands.doctor_checks.probe_worker"


class Prober:
    """The process that probes."""

    def __init__(self) -> None:
        self._worker: WorkerProcess | None = None

    def ask(self, probe: str, *arguments: str, timeout_s: float = 60.0) -> dict[str, Any]:
        """Return what a probe found; where it ended its process, hung or raised, ``error`` says so."""
        if self._worker is None:
            self._worker = WorkerProcess(SERVER)
        try:
            return self._worker.request({"probe": probe, "arguments": arguments}, timeout_s)
        except WorkerDiedError as error:
            self._worker.end()
            self._worker = None
            return {"error": f"the process that tried it {error}"}

    def __enter__(self) -> "Prober":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._worker is not None:
            self._worker.end()


def _probe_handler() -> Handler:
    from trainauto.commands.doctor_checks.probes import PROBES

    def handle(request: Request) -> dict[str, Any]:
        try:
            return PROBES[request["probe"]](*request["arguments"])
        except Exception as error:
            return {"error": f"{type(error).__name__}: {error}"}

    return handle


if __name__ == "__main__":
    sys.exit(serve(_probe_handler))
