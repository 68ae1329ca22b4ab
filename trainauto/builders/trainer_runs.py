"""Option files whose runs go through the Trainer of transformers: what holds for all of them, whatever they train."""

import logging
import re
import shutil
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from trainauto.builders.distributed_setup import new_run
from trainauto.builders.load_plugins import load_plugins
from trainauto.builders.model import choose_precision
from trainauto.builders.trainer_run import Pair, TrainerRun
from trainauto.core.errors import InputError, Problem
from trainauto.distributed.communicator import SINGLE_PROCESS
from trainauto.engine.random_state import seed_everything
from trainauto.engine.signals import StopSignals
from trainauto.optim.precision import Precision
from trainauto.options.load import LoadedOptions
from trainauto.options.multitask_options import MultitaskOptions
from trainauto.options.run_options import RunOptions
from trainauto.options.tasks import KEY, MULTITASK, kind_of
from trainauto.reporting.formatting import WIDTH, pairs_lines
from trainauto.storage.resumes import CHANGED
from trainauto.storage.run_directory import TRAINER_RUNS, RunDirectory
from trainauto.storage.run_lock import RunLock
from trainauto.storage.run_metadata import changed_options, keep_options, places_of

logger = logging.getLogger(__name__)

NEEDED: Mapping[str, tuple[str, ...]] = {MULTITASK: ("transformers", "accelerate", "matplotlib")}
"""Packages that runs of a task need beyond what is always installed; the extra is called as the task."""

_CHECKPOINT = re.compile(r"checkpoint-(\d+)")
"""Folders of a Trainer, by their steps."""


def train_with_trainer(loaded: LoadedOptions[RunOptions], *, auto_resume: bool, launcher: str = "none") -> int:
    """Train what an option file describes; return the exit code.

    Args:
        loaded: the option file, of a task whose runs go through a Trainer.
        auto_resume: resume the latest run of this name, if there is one.
        launcher: of the command line.

    Raises:
        InputError: options, data or packages cannot be used, or another process trains the run.
        CheckpointError: no checkpoint of the run to resume can be read.
    """
    _check_processes(loaded, launcher)
    check_packages(loaded)
    load_plugins(loaded)
    precision = choose_precision(loaded)
    seed_everything(loaded.options.manual_seed)
    run = _built(loaded, precision)
    with RunLock() as lock:
        directory, steps = _folder(loaded, lock, auto_resume=auto_resume)
        if auto_resume and not steps:
            logger.warning("nothing to resume: there is no checkpoint of this name yet; the run begins with step 1")
        for line in changed_options(directory, loaded) if steps else ():
            logger.warning("%s%s", CHANGED, line)
        keep_options(directory, loaded, places_of(loaded), steps, curves=directory.path / TRAINER_RUNS / "tb")
        start = [("run", loaded.options.name), ("directory", str(directory.path)), ("device", str(precision.device))]
        resumed = [("resumed", f"after step {steps}")] if steps else []
        _print([*start, *run.facts(), *resumed, *_ways_out(loaded.options)])
        with StopSignals() as signals:
            _print(run.train(directory, signals, resumes=steps > 0))
    return signals.exit_code


def check_packages(loaded: LoadedOptions[RunOptions]) -> None:
    """Refuse a file whose runs need packages that are not installed.

    Raises:
        InputError: names them, and the extra that brings them.
    """
    task = kind_of(loaded.options)
    lacking = [package for package in NEEDED.get(task.name, ()) if find_spec(package) is None]
    if lacking:
        verb = "is" if len(lacking) == 1 else "are"
        message = f"task: {task.name} needs {' and '.join(lacking)}, which {verb} not installed"
        raise InputError(Problem(message, loaded.places.of_value((KEY,)), f"pip install 'trainauto[{task.name}]'"))


def _check_processes(loaded: LoadedOptions[RunOptions], launcher: str) -> None:
    if launcher != "none":
        words = kind_of(loaded.options).words
        message = f"an option file of {words} is trained in one process"
        advice = "Leave --launcher out; a MemoryAwareTrainer in code of your own runs under torchrun."
        raise InputError(Problem(message, loaded.places.of_value((KEY,)), advice))


def _built(loaded: LoadedOptions[RunOptions], precision: Precision) -> TrainerRun:
    """Build what the file's task trains; what a task alone needs is loaded with it."""
    if isinstance(loaded.options, MultitaskOptions):
        from trainauto.builders.multitask import MultitaskRun

        return MultitaskRun(loaded.with_options(loaded.options), precision)
    raise TypeError(f"{loaded.path} is of {kind_of(loaded.options).words}, whose runs need no Trainer")


def _folder(loaded: LoadedOptions[RunOptions], lock: RunLock, *, auto_resume: bool) -> tuple[RunDirectory, int]:
    """Return the folder of the run, which this process has from now on, and the steps of its newest checkpoint."""
    options = loaded.options
    earlier = RunDirectory.current(Path(options.path.experiments_root), options.name) if auto_resume else None
    if earlier is not None:
        lock.take(earlier.path)
        return earlier, newest_checkpoint(earlier.path)
    directory = new_run(loaded, SINGLE_PROCESS, lock)
    for part in (directory.validation, directory.checkpoints):
        part.rmdir()  # a Trainer's lie elsewhere
    return directory, 0


def newest_checkpoint(output_dir: Path) -> int:
    """Return the steps of the newest checkpoint of a Trainer, whole or not; 0 where there is none."""
    matches = (_CHECKPOINT.fullmatch(folder.name) for folder in output_dir.iterdir())
    return max((int(match[1]) for match in matches if match), default=0)


def _ways_out(options: RunOptions) -> list[Pair]:
    every = options.logger.save_checkpoint_freq
    return [
        ("to stop", "Ctrl-C finishes the step and saves; a second one stops at once"),
        ("to resume", f"the same command with --auto_resume (a checkpoint every {every} steps)"),
    ]


def _print(pairs: Sequence[Pair]) -> None:
    for line in pairs_lines(pairs, min(shutil.get_terminal_size((WIDTH, 24)).columns, 120)):
        print(line, flush=True)
