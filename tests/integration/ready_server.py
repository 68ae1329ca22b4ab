"""A process that has loaded torch and the package, and forks one for every request: each begins where loading ends.

python -m tests.integration.ready_server SOCKET [PYPROJECT]

What is forked has read no option, computed nothing and started no thread. It ends as every Python process does, but for
taking its modules apart. With PYPROJECT, lines are marked by probes as in the tests' own processes, and written when
all processes that could ask have ended.
"""

import atexit
import json
import os
import random
import runpy
import select
import signal
import socket
import sys
import threading
from array import array
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

from tests.integration import ready_processes

REQUEST_BYTES = 2**20
DESCRIPTORS = 4

LOADED = (
    *("trainauto.cli", "trainauto.build", "trainauto.engine.loop", "trainauto.commands.run_train"),
    *(f"trainauto.builders.{task}" for task in ("super_resolution", "language_model", "multitask", "finetune")),
    *("trainauto.commands.run_plan", "trainauto.forecast.finetune_plans"),
    "torch._dynamo",  # the first step of an optimizer loads it
)

BESIDE = ("transformers.trainer", "transformers.models.gpt2.modeling_gpt2", "sklearn.ensemble", "matplotlib.pyplot")
"""What texts, several tasks and fine-tuning load besides: 1 to 3 s of CPU time. Parts of it may be missing."""


def load() -> None:
    """Load what training runs of all tasks load, in an environment set before, as commands do."""
    from trainauto.core.process import set_environment, without_garbage_collection

    set_environment()
    with without_garbage_collection():
        for name in LOADED:
            import_module(name)
        for name in BESIDE:
            with suppress(ImportError):
                import_module(name)


def serve(requests: socket.socket) -> None:
    """Fork a keeper for every request, until all processes that could ask have ended; forked ones may ask, too."""
    signal.signal(signal.SIGCHLD, reap)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for those who ask, and for what was forked
    of_forks, asked_by_forks = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ready_processes.SERVER.is_at(asked_by_forks)
    while True:
        for ready in select.select([requests, of_forks], [], [])[0]:
            text, descriptors, _, _ = socket.recv_fds(ready, REQUEST_BYTES, DESCRIPTORS)
            if not text:
                return
            if os.fork() == 0:
                of_forks.close()
                keep(json.loads(text), requests, *descriptors)
            for descriptor in descriptors:
                os.close(descriptor)


def reap(_number: int, _frame: FrameType | None) -> None:
    """Wait for keepers that have ended, so that their CPU time counts as the tests'."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def keep(request: Mapping[str, Any], requests: socket.socket, status: int, *standard: int) -> None:
    """Fork what was asked for; write its process number, and its exit status when it has ended.

    ``standard`` are its stdout and stderr, and its stdin where it has one.
    """
    requests.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    child = os.fork()
    if child == 0:
        os.close(status)
        for descriptor, number in zip(standard, (1, 2, 0), strict=False):
            os.dup2(descriptor, number)
            os.close(descriptor)
        if os.isatty(1):  # the present ones were opened on files, which know positions
            sys.stdout, sys.stderr = (open(number, "w", buffering=1, closefd=False) for number in (1, 2))  # noqa: SIM115
        become(**request)
    os.write(status, array("q", [child]).tobytes())
    for descriptor in standard:
        os.close(descriptor)
    os.write(status, array("q", [os.waitpid(child, 0)[1]]).tobytes())
    os._exit(0)


def become(words: Sequence[str], folder: str, variables: Mapping[str, str], in_new_session: bool) -> None:
    """Go on as ``python words...`` started in ``folder`` would, and leave as it does.

    Where it leaves with an exit code, modules are not taken apart one by one: 0.3 to 0.5 s of CPU time.
    """
    import torch

    from trainauto.core import worker_process
    from trainauto.core.process import ENVIRONMENT

    worker_process._begun = partial(ready_processes.begun_worker, worker_process._begun)
    if in_new_session:
        os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update({**ENVIRONMENT, **variables})  # those were set before torch was loaded
    torch.set_num_threads(int(variables.get("OMP_NUM_THREADS", os.cpu_count() or 1)))
    random.seed()
    code = 0
    try:
        if words[0] == "-m":
            sys.path[0], sys.argv = folder, list(words[1:])
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        else:
            sys.path[0], sys.argv = str(Path(words[0]).parent), list(words)
            runpy.run_path(words[0], run_name="__main__")
    except SystemExit as left:
        if not isinstance(left.code, int | None):  # words to print
            raise
        code = left.code or 0
    threading._shutdown()  # type: ignore[attr-defined] # what the interpreter does first: waits for threads
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def main(descriptor: str, configuration: str | None = None) -> None:
    measured = None
    if configuration is not None:
        from tests import line_probes

        measured = line_probes.measure(Path(configuration))
    load()
    with socket.socket(fileno=int(descriptor)) as requests:
        serve(requests)
    if measured is not None:
        measured.write()


if __name__ == "__main__":
    main(*sys.argv[1:])
