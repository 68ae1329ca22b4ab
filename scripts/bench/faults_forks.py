"""Forks of a process that has loaded everything, watched from outside, and what became of each."""

import atexit
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

OF_IMAGES = (
    *("trainauto.cli", "trainauto.build", "trainauto.engine.loop", "trainauto.commands.run_train"),
    *("trainauto.builders.super_resolution", "torch._dynamo", "cv2"),
)
LOADED = (
    *OF_IMAGES,
    *(f"trainauto.builders.{task}" for task in ("language_model", "multitask", "finetune")),
    *("trainauto.commands.run_replay", "trainauto.commands.report_page", "trainauto.huggingface"),
    *("transformers.models.gpt2.modeling_gpt2", "transformers.models.llama.modeling_llama"),
    *("transformers.models.qwen3_vl.modeling_qwen3_vl", "PIL.Image"),
)
"""What runs of all tasks load: seconds of CPU time, spent once."""

HANG_S = 60.0
POLL_S = 0.02


def load(names: Sequence[str] = LOADED) -> None:
    """Load what runs load, in the environment that commands set. Threads do not survive a fork: nothing is computed."""
    from trainauto.core.process import set_environment, without_garbage_collection

    set_environment()
    warnings.simplefilter("ignore")
    with without_garbage_collection():
        for name in names:
            import_module(name)


@dataclass(frozen=True)
class Ended:
    """What a run left.

    Attributes:
        code: its exit code; negative where a signal ended it.
        said: what it wrote to stdout.
        block: what it wrote to stderr.
        hung: whether it was ended after :data:`HANG_S`.
    """

    code: int
    said: str
    block: str
    hung: bool = False

    @property
    def words(self) -> str:
        """All it said, on one line."""
        return " ".join(f"{self.said} {self.block}".split())


@dataclass
class Forked:
    """A run under way."""

    pid: int
    folder: Path
    name: str
    started: float

    def poll(self) -> int | None:
        """Return the exit code once it has ended."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if pid else None

    def ended(self, deadline_s: float = HANG_S) -> Ended:
        """Wait for the end, and return what was left; what hangs is ended."""
        code, hung = self.poll(), False
        while code is None:
            if time.monotonic() - self.started > deadline_s:
                hung = True
                self.kill()
                code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
                break
            time.sleep(POLL_S)
            code = self.poll()
        self.kill()  # workers that it left behind
        said, block = (
            (self.folder / f".{self.name}.{stream}").read_text(errors="replace") for stream in ("out", "err")
        )
        return Ended(code, said, block, hung)

    def kill(self) -> None:
        """End it and all that it started."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)


def forked(act: Callable[[], int], folder: Path, name: str) -> Forked:
    """Run ``act`` in a fork of this process with a session of its own, in a folder; its value is the exit code.

    Args:
        act: what it does; an error that leaves it is printed as the interpreter prints it.
        folder: where it is, and where ``.NAME.out`` and ``.NAME.err`` get what it says.
        name: of the run.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        _become(act, folder, name)
    with suppress(OSError):
        os.setpgid(pid, pid)  # before it is ended as a group, whichever of the two is first
    return Forked(pid, folder, name, time.monotonic())


def _become(act: Callable[[], int], folder: Path, name: str) -> None:
    code = 1
    try:
        with suppress(OSError):
            os.setsid()
        os.chdir(folder)
        for number, stream in ((1, "out"), (2, "err")):
            file = os.open(f".{name}.{stream}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(file, number)
            os.close(file)
        sys.stdout, sys.stderr = (open(number, "w", buffering=1, closefd=False) for number in (1, 2))  # noqa: SIM115
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        os.environ["COLUMNS"] = "120"
        code = act()
        threading._shutdown()  # what the interpreter does first: waits for threads
        atexit._run_exitfuncs()
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else 2
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def run(act: Callable[[], int], folder: Path, name: str) -> Ended:
    """Run ``act`` in a fork, see :func:`forked`, to its end."""
    return forked(act, folder, name).ended()
