"""``train``: train the network of an option file."""

import argparse
import os
import shlex
import subprocess
import sys
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from trainauto.commands.common_arguments import Commands, prepare_environment, takes_options
from trainauto.core.errors import InputError, Problem
from trainauto.core.process import without_garbage_collection

if TYPE_CHECKING:
    from trainauto.core.worker_process import WorkerProcess
    from trainauto.options.load import LoadedOptions
    from trainauto.options.run_options import FileOptions, RunOptions


BEGIN_ANEW = "A run of this task begins anew with other samples: leave --auto_resume out, and name its weights."


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser("train", help="train a network", description="Train the network of an option file.")
    takes_options(parser)
    parser.add_argument(
        "--auto_resume", action="store_true", help="resume the latest run of this name, if there is one"
    )
    parser.add_argument(
        "--accept_samples",
        action="store_true",
        help="with --auto_resume: train on the files that are there now, where they are not those that the run began "
        "with, and begin an epoch with them",
    )
    parser.add_argument(
        "--launcher",
        choices=["none", "pytorch"],
        default="none",
        help="pytorch: one of several ranks, started by torchrun --nproc-per-node N -m trainauto train ...",
    )
    # Older versions of torchrun's predecessor passed it; the environment says the same.
    parser.add_argument("--local_rank", "--local-rank", help=argparse.SUPPRESS)
    parser.set_defaults(execute=_run)


def _run(parsed: argparse.Namespace) -> int:
    if parsed.accept_samples and not parsed.auto_resume:
        raise InputError(Problem("--accept_samples is for a run that resumes", advice="Add --auto_resume."))
    with ExitStack() as stack:
        tracer = stack.enter_context(_early_tracer(parsed))
        from trainauto.options.load import load_options, runs_of_the_engine
        from trainauto.options.tasks import kind_of

        loaded = load_options(parsed.opt, parsed.force_yml)
        prepare_environment(loaded.options)
        if kind_of(loaded.options).by_trainer:
            if parsed.accept_samples:
                message = "--accept_samples is for runs of images and language models"
                raise InputError(Problem(message, advice=BEGIN_ANEW))
            return _train_with_trainer(loaded, parsed)
        runs = runs_of_the_engine(loaded, "train")
        with without_garbage_collection():
            from trainauto.build import build_run
            from trainauto.distributed.communicator import any_of, init_distributed, was_restarted
            from trainauto.engine.loop import train

        ranks = stack.enter_context(init_distributed(parsed.launcher))
        # Machines count restarts each for itself: one that has come anew, or has only waited for another, says 0.
        restarted = any_of(ranks, parsed.launcher != "none" and was_restarted())
        auto_resume, accepts = any_of(ranks, parsed.auto_resume), any_of(ranks, parsed.accept_samples)
        run = stack.enter_context(
            build_run(
                runs,
                auto_resume=auto_resume,
                restarted=restarted,
                ranks=ranks,
                tracer=tracer,
                accepts_samples=accepts,
            )
        )
        run.summary = replace(run.summary, facts=(*run.summary.facts, *_ways_out(runs.options)))
        run.resume_command = _command_to_resume(parsed)
        train(run)
        return run.exit_code


def _train_with_trainer(loaded: "LoadedOptions[FileOptions]", parsed: argparse.Namespace) -> int:
    """Train an option file of a task whose runs go through the Trainer of transformers."""
    with without_garbage_collection():
        from trainauto.builders.trainer_runs import train_with_trainer

    return train_with_trainer(loaded, auto_resume=parsed.auto_resume, launcher=parsed.launcher)


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


def _ways_out(options: "RunOptions") -> tuple[tuple[str, str], ...]:
    """Say how to stop the run, and how to resume it."""
    from trainauto.core.words import counted

    every = counted(options.logger.save_checkpoint_freq, "step")
    return (
        ("to stop", "Ctrl-C finishes the step and saves; a second one stops at once"),
        ("to resume", f"the same command with --auto_resume (a checkpoint every {every})"),
    )


def _early_tracer(parsed: argparse.Namespace) -> "AbstractContextManager[WorkerProcess | None]":
    """Start the process that will trace the run before anything is loaded here, where one will be asked.

    Torch takes seconds to load, there and here. Whether it will be asked is guessed by the words of the option file: a
    guess that is wrong costs a process that is ended.
    """
    from trainauto.core.registry import in_one_word
    from trainauto.core.worker_process import start_tracing

    try:
        written = parsed.opt.read_text(encoding="utf-8", errors="replace")
    except OSError:  # loading the options says so
        return nullcontext()
    words = in_one_word(" ".join([written, *parsed.force_yml]).replace("=", ": "))
    is_bounded = "budget" in words or "device: cpu" not in words
    is_steered = "dynamicbatchsizeoptimizer" in words and "policy: step" not in words
    # What cuBLAS works with on a card is set by options that are yet to be read.
    is_deterministic = "deterministic: true" in words
    is_first = os.environ.get("RANK", "0") == "0"
    is_bounded = is_bounded and "task: multitask" not in words  # a Trainer traces in its own process
    starts = is_bounded and is_steered and is_first and not is_deterministic
    return start_tracing(like_cuda=False) if starts else nullcontext()
