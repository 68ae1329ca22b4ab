"""The tasks that an option file may be of: what is known of the options of each, and where the rest of it is.

A task is known by its :class:`TaskOptions`, which load no torch. They name its class of
:class:`~trainauto.forecast.task.Task`, which says what commands do with its files, and is loaded when one does.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from trainauto.core.errors import InputError, Problem, nearest
from trainauto.core.plugins import import_installed_plugins, import_plugin
from trainauto.options.combination_checks import impossible_combinations
from trainauto.options.finetune_checks import impossible_finetuning
from trainauto.options.finetune_hints import finetune_hint
from trainauto.options.finetune_options import FinetuneOptions, FinetuneTraining
from trainauto.options.legacy_hints import hint
from trainauto.options.multitask_checks import impossible_multitask
from trainauto.options.multitask_hints import multitask_hint
from trainauto.options.multitask_options import MultitaskOptions, MultitaskTraining
from trainauto.options.run_options import FileOptions
from trainauto.options.schema import Options, TrainOptions
from trainauto.options.source_locations import KeyPath, Places
from trainauto.options.text_checks import impossible_texts
from trainauto.options.text_hints import text_hint
from trainauto.options.text_options import TextOptions, TextTrainOptions
from trainauto.options.validation_errors import Finding, shown

KEY = "task"
SUPER_RESOLUTION, TEXT, MULTITASK, FINETUNE = "super_resolution", "text", "multitask", "finetune"

OF_TEXTS = ("model", "tokenizer")
"""Sections that only files of language models have."""
OF_FINETUNING = ("training", "dataset")
"""Sections that only files of fine-tuning have; they need not name their task."""
OF_IMAGES = frozenset({"network_g", "model_type", "scale"})
"""Keys that they never have."""


@dataclass(frozen=True)
class TaskOptions:
    """The option files of a task.

    Attributes:
        name: value of ``task``.
        words: what a person calls it.
        model: their sections and keys.
        train: their section ``train``, or ``training``.
        task: what is done with them, as ``module:class``.
        check: finds what cannot work together; takes options, and which of their keys may be read.
        hint: says what to write instead of a key that is not known, by its path and the whole file.
        elsewhere: what there is for its runs where a command is for networks that enlarge images; empty where each
            command says so.
        samples: what a person calls what is trained on.
    """

    name: str
    words: str
    model: type[FileOptions]
    train: type[BaseModel]
    task: str
    check: Callable[[Any, Collection[str] | None], list[Finding]] = lambda _options, _valid: []
    hint: Callable[[KeyPath, Any], str] = lambda _path, _tree: ""
    elsewhere: str = ""
    samples: str = "samples"


TASKS: dict[str, TaskOptions] = {}


def register_task(task: TaskOptions) -> None:
    """Make a task known; a plugin does so where it is imported.

    Raises:
        ValueError: another task is called so.
    """
    if task.name in TASKS and TASKS[task.name].task != task.task:
        raise ValueError(f"there is a task '{task.name}' already, {TASKS[task.name].task}")
    TASKS[task.name] = task


for _task in (
    TaskOptions(
        SUPER_RESOLUTION,
        "super-resolution",
        Options,
        TrainOptions,
        "trainauto.tasks.sr.task:SuperResolution",
        impossible_combinations,
        hint,
        samples="images",
    ),
    TaskOptions(
        TEXT,
        "language models",
        TextOptions,
        TextTrainOptions,
        "trainauto.tasks.text.task:LanguageModels",
        impossible_texts,
        text_hint,
        samples="texts",
    ),
    TaskOptions(
        MULTITASK,
        "several tasks",
        MultitaskOptions,
        MultitaskTraining,
        "trainauto.tasks.multitask.task:SeveralTasks",
        impossible_multitask,
        multitask_hint,
        elsewhere="A run of several tasks says how accurate it is itself; its weights lie in its folder, model.",
    ),
    TaskOptions(
        FINETUNE,
        "fine-tuning",
        FinetuneOptions,
        FinetuneTraining,
        "trainauto.tasks.finetune.task:FineTuning",
        impossible_finetuning,
        finetune_hint,
        elsewhere="A fine-tuned model answers by test RUN; its adapters and weights lie in its folder, checkpoints.",
        samples="conversations",
    ),
):
    register_task(_task)


def named_task(tree: Mapping[str, Any], places: Places, folders: Sequence[Path]) -> TaskOptions:
    """Return the task of a file; one that does not say is of super-resolution.

    A name that is not known yet is looked for in plugins, installed ones and those that the file names.

    Args:
        tree: the values of the file.
        places: where they stand.
        folders: where its plugins lie.

    Raises:
        InputError: there is no such task, or the file is of texts and does not say so. Nothing else in it can be
            judged.
    """
    if KEY not in tree and any(key in tree for key in OF_FINETUNING):
        return TASKS[FINETUNE]
    if KEY not in tree and (of_texts := [key for key in OF_TEXTS if key in tree]) and not OF_IMAGES & tree.keys():
        message = f"the file has {' and '.join(of_texts)} of a language model, and does not say so"
        raise InputError(Problem(message, places.of_key((of_texts[0],)), "Add task: text."))
    given = tree.get(KEY, SUPER_RESOLUTION)
    if isinstance(given, str):
        if given not in TASKS:
            named = tree.get("plugins")
            import_plugins(named if isinstance(named, list) else [], places, folders)
        if given in TASKS:
            return TASKS[given]
    message = f"there is no task {shown(given)}" if given is not None else "task is empty"
    advice = nearest(str(given or ""), TASKS)
    raise InputError(Problem(message, places.of_value((KEY,)), advice))


def nearest_task(tree: Mapping[str, Any]) -> TaskOptions | None:
    """Return the task that a file whose task is not known was probably meant to name; ``None`` where none is near."""
    given = tree.get(KEY)
    near = get_close_matches(given.lower(), TASKS, n=1) if isinstance(given, str) else []
    return TASKS[near[0]] if near else None


def import_plugins(names: Sequence[Any], places: Places, folders: Sequence[Path]) -> None:
    """Import installed plugins, and those that an option file names.

    Args:
        names: what the file's ``plugins`` holds; what is no name is let pass, and refused where options are checked.
        places: where values of the file stand.
        folders: where its plugins lie.

    Raises:
        InputError: one is missing or fails to import.
    """
    import_installed_plugins()
    for position, name in enumerate(names):
        if isinstance(name, str):
            try:
                import_plugin(name, folders)
            except InputError as error:
                place = places.of_value(("plugins", position))
                raise InputError([replace(problem, place=place) for problem in error.problems]) from error


def kind_of(options: FileOptions) -> TaskOptions:
    """Return what is known of the task that typed options are of."""
    return next(task for task in TASKS.values() if task.model is type(options))
