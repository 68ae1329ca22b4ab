"""Option files whose runs go through the Trainer of transformers: what holds for all of them, whatever they train."""

import logging
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from trainauto.builders.components import locate_errors
from trainauto.builders.distributed_setup import new_folder
from trainauto.builders.load_plugins import load_plugins
from trainauto.builders.precision import choose_precision
from trainauto.builders.trackers import check_trackers
from trainauto.builders.trainer_run import Pair, TrainerRun
from trainauto.core.errors import InputError, Problem
from trainauto.engine.random_state import seed_everything
from trainauto.engine.signals import StopSignals
from trainauto.optim.precision import Precision
from trainauto.options.load import LoadedOptions
from trainauto.options.run_options import FileOptions
from trainauto.options.tasks import KEY, kind_of
from trainauto.options.tracker_options import TrackerOptions
from trainauto.reporting.formatting import WIDTH, pairs_lines
from trainauto.storage.run_directory import RunDirectory
from trainauto.storage.run_lock import RunLock
from trainauto.storage.run_metadata import changed_options, keep_options, places_of

logger = logging.getLogger(__name__)

_CHECKPOINT = re.compile(r"checkpoint-(\d+)")
"""Folders of a Trainer, by their steps."""

WRITTEN_LAST = "trainer_state.json"
"""File of such a folder; one that lacks it was killed in the middle, and is nothing to resume from."""


def train_with_trainer(
    loaded: LoadedOptions[FileOptions], build: Callable[[], TrainerRun], *, auto_resume: bool, launcher: str = "none"
) -> int:
    """Train what an option file describes; return the exit code.

    Args:
        loaded: the option file.
        build: makes its run.
        auto_resume: resume the latest run of this name, if there is one.
        launcher: of the command line.

    Raises:
        InputError: options, data or packages cannot be used, or another process trains the run.
        CheckpointError: no checkpoint of the run to resume can be read.
    """
    _check_processes(loaded, launcher)
    run = build()
    with RunLock() as lock:
        directory, steps = _folder(loaded, run, lock, auto_resume=auto_resume)
        if auto_resume and not steps:
            logger.warning("nothing to resume: there is no checkpoint yet; the run begins with step 1")
        run.changes = changed_options(directory, loaded) if steps else ()
        curves = run.curves(directory) if run.has_curves else None
        keep_options(directory, loaded, places_of(loaded), steps, curves=curves)
        start = [("run", loaded.options.name), ("directory", str(directory.path))]
        resumed = [("resumed", f"after step {steps}")] if steps else []
        _print([*start, *run.facts(), *resumed, *_ways_out(run)])
        with StopSignals() as signals:
            _print(run.train(directory, signals, resumes=steps > 0))
    return signals.exit_code


def _check_processes(loaded: LoadedOptions[FileOptions], launcher: str) -> None:
    if launcher != "none":
        words = kind_of(loaded.options).words
        message = f"an option file of {words} is trained in one process"
        advice = "Leave --launcher out; a MemoryAwareTrainer in code of your own runs under torchrun."
        raise InputError(Problem(message, loaded.places.of_value((KEY,)), advice))


def prepared(loaded: LoadedOptions[FileOptions], trackers: TrackerOptions) -> Precision:
    """Do what comes before the run of an option file is built; return number format and device.

    Raises:
        InputError: one of these cannot be used.
    """
    check_trackers(loaded, trackers)
    load_plugins(loaded)
    precision = choose_precision(loaded)
    seed_everything(loaded.options.manual_seed)
    return precision


def _folder(
    loaded: LoadedOptions[FileOptions], run: TrainerRun, lock: RunLock, *, auto_resume: bool
) -> tuple[RunDirectory, int]:
    """Return the folder of the run, which this process has from now on, and the steps of its newest checkpoint."""
    place = run.place
    earlier = RunDirectory.current(place.root, place.name) if auto_resume else None
    if earlier is not None:
        lock.take(earlier.path)
        run.check_earlier(earlier)
        return earlier, newest_checkpoint(run.checkpoints(earlier))
    with locate_errors(loaded, place.option):
        directory = new_folder(place.root, place.name, lock)
    directory.validation.rmdir()
    if run.checkpoints(directory) != directory.checkpoints:
        directory.checkpoints.rmdir()
    return directory, 0


def newest_checkpoint(output_dir: Path) -> int:
    """Return the steps of the newest checkpoint of a Trainer that was written to its end; 0 where there is none."""
    matches = (_CHECKPOINT.fullmatch(file.parent.name) for file in output_dir.glob(f"*/{WRITTEN_LAST}"))
    return max((int(match[1]) for match in matches if match), default=0)


def _ways_out(run: TrainerRun) -> list[Pair]:
    return [
        ("to stop", "Ctrl-C finishes the step and saves; a second one stops at once"),
        ("to resume", f"the same command with --auto_resume ({run.checkpoint_words})"),
    ]


def _print(pairs: Sequence[Pair]) -> None:
    for line in pairs_lines(pairs, min(shutil.get_terminal_size((WIDTH, 24)).columns, 120)):
        print(line, flush=True)
