"""What ``python -m trainauto train`` does with runs of the engine."""

import argparse
import os
import shlex
import subprocess
import sys
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from trainauto.core.process import without_garbage_collection
from trainauto.core.words import counted
from trainauto.core.worker_process import start_tracing
from trainauto.options.load import LoadedOptions
from trainauto.options.run_options import FileOptions

if TYPE_CHECKING:
    from trainauto.core.worker_process import WorkerProcess
    from trainauto.distributed.communicator import Communicator

# Nothing here may import torch at the top: it takes seconds to load, and the process that traces loads it meanwhile.


def train_run(loaded: LoadedOptions[FileOptions], parsed: argparse.Namespace) -> int:
    """Train what an option file describes; return the exit code.

    Args:
        loaded: the option file.
        parsed: arguments of the command.

    Raises:
        InputError: what is given cannot be used, or another process trains the run.
    """
    is_first = os.environ.get("RANK", "0") == "0"
    with ExitStack() as stack:
        tracer = stack.enter_context(
            start_tracing(like_cuda=False) if is_first and loaded.options.is_traced else nullcontext()
        )
        with without_garbage_collection():
            import trainauto.build
            import trainauto.engine.loop  # noqa: F401
            from trainauto.distributed.communicator import init_distributed

        ranks = stack.enter_context(init_distributed(parsed.launcher))
        return _trained(loaded, parsed, ranks, tracer)  # nothing of the run outlives its group of ranks


def _trained(
    loaded: LoadedOptions[FileOptions],
    parsed: argparse.Namespace,
    ranks: "Communicator",
    tracer: "WorkerProcess | None",
) -> int:
    from trainauto.build import build_run
    from trainauto.distributed.communicator import any_of, was_restarted
    from trainauto.engine.loop import train

    # Machines count restarts each for itself: one that has come anew, or has only waited for another, says 0.
    restarted = any_of(ranks, parsed.launcher != "none" and was_restarted())
    auto_resume, accepts = any_of(ranks, parsed.auto_resume), any_of(ranks, parsed.accept_samples)
    with build_run(
        loaded,
        auto_resume=auto_resume,
        restarted=restarted,
        ranks=ranks,
        tracer=tracer,
        accepts_samples=accepts,
    ) as run:
        run.summary = replace(run.summary, facts=(*run.summary.facts, *_ways_out(loaded.options)))
        run.resume_command = _command_to_resume(parsed)
        train(run)
        return run.exit_code


def _command_to_resume(parsed: argparse.Namespace) -> str:
    """Return the command line that resumes this run, as it can be pasted; empty where torchrun wrote it."""
    if parsed.launcher != "none":
        return "the same command with --auto_resume"
    forced = ["--force_yml", *parsed.force_yml] if parsed.force_yml else []
    words = [*_program(), "-opt", str(parsed.opt), "--auto_resume", *forced]
    return subprocess.list2cmdline(words) if os.name == "nt" else shlex.join(words)


def _program() -> list[str]:
    """Return the words that started this command: the installed one, the module, or a script like train.py."""
    script = Path(sys.argv[0])
    if script.stem == "trainauto":
        return [script.stem, "train"]
    python, here = Path(sys.executable), Path.cwd()
    interpreter = str(python.relative_to(here)) if python.is_relative_to(here) else str(python)
    return [interpreter, *(["-m", "trainauto", "train"] if script.stem == "__main__" else [sys.argv[0]])]


def _ways_out(options: FileOptions) -> tuple[tuple[str, str], ...]:
    """Say how to stop the run, and how to resume it."""
    every = counted(options.settings.saves_every, "step")
    epochs = ", and after each epoch" if options.settings.saves_epochs else ""
    return (
        ("to stop", "Ctrl-C finishes the step and saves; a second one stops immediately"),
        ("to resume", f"the same command with --auto_resume (a checkpoint every {every}{epochs})"),
    )
