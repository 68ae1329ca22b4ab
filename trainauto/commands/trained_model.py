"""What ``test`` and ``export`` do with a run of any task: its checkpoint, measured, or written for other programs."""

import argparse
from collections.abc import Iterator
from contextlib import chdir, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from torch import nn

from trainauto.builders.load_plugins import load_plugins
from trainauto.builders.precision import choose_precision
from trainauto.builders.task_parts import PartsRequest, TaskParts
from trainauto.core.errors import InputError, Problem
from trainauto.core.files import (
    OTHERS_ARE_DONE_S,
    directory_written_atomically,
    read_text,
    remove_leftovers,
    write_text_atomically,
)
from trainauto.core.json_text import from_json, to_json
from trainauto.core.record_json import validation_to_dict
from trainauto.core.records import ValidationRecord
from trainauto.core.units import size_text
from trainauto.data import DynamicDataset
from trainauto.distributed.communicator import SINGLE_PROCESS
from trainauto.engine.checkpoint import Checkpoints
from trainauto.engine.random_state import seed_everything
from trainauto.engine.signals import StopSignals
from trainauto.forecast.task import Task
from trainauto.models.base_model import BaseModel
from trainauto.options.load import LoadedOptions
from trainauto.options.run_options import FileOptions
from trainauto.storage.run_directory import RunDirectory

RESULTS = Path("results")


@dataclass(frozen=True)
class TrainedModel:
    """What a run has trained, as it was at a checkpoint.

    Attributes:
        parts: what the run consists of.
        model: with the weights of the checkpoint.
        step: of it.
        name: of the experiment.
    """

    parts: TaskParts
    model: BaseModel
    step: int
    name: str


@contextmanager
def loaded_model(
    task: Task[Any], directory: RunDirectory, loaded: LoadedOptions[FileOptions], parsed: argparse.Namespace
) -> Iterator[TrainedModel]:
    """Yield the model of a run; relative paths of its options are those of the folder that it was started in.

    Args:
        task: of the run.
        directory: of it.
        loaded: its options.
        parsed: arguments of the command: which checkpoint, and the device.

    Raises:
        InputError: there is no such checkpoint, or what the options name is not there.
    """
    if getattr(parsed, "device", None):
        loaded = loaded.with_options(loaded.options.model_copy(update={"device": parsed.device}))
    directory = replace(directory, path=directory.path.resolve())
    step, folder = Checkpoints(directory.checkpoints, keep=0).named(parsed.checkpoint or "best")
    with _where_it_was_started(directory):
        load_plugins(loaded)
        seed_everything(loaded.options.manual_seed)  # as the run did, for sets and models that draw numbers
        precision = choose_precision(loaded)
        request = PartsRequest(
            precision, SINGLE_PROCESS, pretrained=False, check_samples=_any_samples, earlier=directory
        )
        parts = task.parts(loaded, request)
        model = parts.build_model(precision, pretrained=False)
        model.load(folder)
        yield TrainedModel(parts, model, step, loaded.options.name)


def _any_samples(_dataset: DynamicDataset) -> None:
    """Take whatever samples there are: nothing is trained."""


def _where_it_was_started(directory: RunDirectory) -> Any:
    with suppress(OSError, ValueError, KeyError, TypeError):
        start = Path(str(from_json(read_text(directory.origin))["working_directory"]))
        if start.is_dir():
            return chdir(start)
    return nullcontext()


def measure(
    task: Task[Any], directory: RunDirectory, loaded: LoadedOptions[FileOptions], parsed: argparse.Namespace
) -> int:
    """Measure what a run has trained on its validation sets; return the exit code.

    Raises:
        InputError: it has no validation sets, or something cannot be used.
    """
    results = Path.cwd() / RESULTS / loaded.options.name
    with loaded_model(task, directory, loaded, parsed) as trained:
        validators = trained.parts.build_validators(directory, trained.model.device)
        if not validators:
            advice = "Name a validation set in the option file, and resume or begin a run."
            raise InputError(Problem("the run has no validation set", advice=advice))
        print(f"{trained.name}, step {trained.step}: {trained.parts.network_words}")
        records = []
        with StopSignals() as signals:
            for validator in validators:
                made = validator.validate(trained.model, trained.step, SINGLE_PROCESS, signals)
                if made is None:
                    return signals.exit_code
                records.append(made[0])
                print(_in_words(made[0]))
    lines = (to_json(validation_to_dict(record)) + "\n" for record in records)
    results.mkdir(parents=True, exist_ok=True)
    write_text_atomically(results / "metrics.jsonl", "".join(lines))
    print(f"figures: {RESULTS / loaded.options.name / 'metrics.jsonl'}")
    return 0


def _in_words(record: ValidationRecord) -> str:
    """Return what was measured on a set: each metric, and beside it that of what costs nothing."""
    seen = f" ({record.seen})" if record.seen else ""
    beside = {name: f" ({record.baseline_name} {value:.4g})" for name, value in record.baseline.items()}
    figures = (f"{name} {value:.4g}{beside.get(name, '')}" for name, value in record.metrics.items())
    return f"{record.dataset}{seen}: {', '.join(figures)}"


def write(
    task: Task[Any], directory: RunDirectory, loaded: LoadedOptions[FileOptions], parsed: argparse.Namespace
) -> str:
    """Write what a run has trained into a folder for other programs; return what there is to say of it.

    Raises:
        InputError: there is no such checkpoint, nothing can be merged, or the folder cannot be written.
    """
    start = Path.cwd()
    with loaded_model(task, directory, loaded, parsed) as trained:
        merge, half = parsed.merge, parsed.half
        out = start / (parsed.out or Path(f"{trained.name}_{trained.step}{'_merged' if merge else ''}"))
        check_folder_of_export(out, overwrite=parsed.overwrite)
        network = trained.parts.finished_network()
        if merge:
            network = _merged(network)
        if half:
            network = network.half()
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            remove_leftovers(out.parent, older_than_s=OTHERS_ARE_DONE_S)
            with directory_written_atomically(out) as temporary:
                how = trained.parts.write_network(network, temporary)
        except (OSError, SafetensorError) as error:
            message = f"cannot write {out}: {getattr(error, 'strerror', None) or error}"
            raise InputError(Problem(message, advice="Name another folder.")) from error
    size = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    shown = out.relative_to(start) if out.is_relative_to(start) else out
    return f"{shown}: {trained.parts.network_words} of step {trained.step}, {size_text(size)}\n  {how.format(shown)}"


def check_folder_of_export(out: Path, *, overwrite: bool) -> None:
    """Refuse a folder that is there, unless it is an earlier export that is to be replaced.

    Raises:
        InputError: says what is in the way.
    """
    if not out.exists() or (overwrite and out.is_dir() and not list(out.iterdir())):
        return
    folders = {folder.name for folder in out.glob("*/")} - {"additional_chat_templates"}
    is_export = out.is_dir() and any(out.glob("*.safetensors")) and not folders
    if is_export and overwrite:
        return
    if is_export:
        raise InputError(Problem(f"{out} is there already", advice="--overwrite replaces it."))
    message = f"{out} is there already, and is no folder that holds an export alone"
    raise InputError(Problem(message, advice="Name another folder."))


def _merged(network: nn.Module) -> nn.Module:
    merge = getattr(network, "merge_and_unload", None)
    if merge is None:
        raise InputError(Problem("the model has no adapters: the whole of it was trained", advice="Leave --merge out."))
    merged: nn.Module = merge()
    return merged
