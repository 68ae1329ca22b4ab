"""The tasks that an option file may be of, and what is known of the options of each."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from trainauto.core.errors import InputError, Problem, nearest
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
        check: finds what cannot work together; takes options, and which of their keys may be read.
        hint: says what to write instead of a key that is not known, by its path and the whole file.
        elsewhere: what there is for its runs where a command is for networks that enlarge images; empty where each
            command says so.
        by_trainer: whether its runs go through the Trainer of transformers.
    """

    name: str
    words: str
    model: type[FileOptions]
    train: type[BaseModel]
    check: Callable[[Any, Collection[str] | None], list[Finding]]
    hint: Callable[[KeyPath, Any], str]
    elsewhere: str = ""
    by_trainer: bool = False


TASKS: Mapping[str, TaskOptions] = {
    SUPER_RESOLUTION: TaskOptions(
        SUPER_RESOLUTION, "super-resolution", Options, TrainOptions, impossible_combinations, hint
    ),
    TEXT: TaskOptions(TEXT, "language models", TextOptions, TextTrainOptions, impossible_texts, text_hint),
    MULTITASK: TaskOptions(
        MULTITASK,
        "several tasks",
        MultitaskOptions,
        MultitaskTraining,
        impossible_multitask,
        multitask_hint,
        elsewhere="A run of several tasks says how accurate it is itself; its weights lie in its folder, model.",
        by_trainer=True,
    ),
    FINETUNE: TaskOptions(
        FINETUNE,
        "fine-tuning",
        FinetuneOptions,
        FinetuneTraining,
        impossible_finetuning,
        finetune_hint,
        elsewhere="A fine-tuned model answers by test RUN; its adapters and weights lie in its folder, checkpoints.",
        by_trainer=True,
    ),
}


def task_of(tree: Mapping[str, Any], places: Places) -> TaskOptions:
    """Return the task of a file; one that does not say is of super-resolution.

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
    if isinstance(given, str) and given in TASKS:
        return TASKS[given]
    message = f"there is no task {shown(given)}" if given is not None else "task is empty"
    advice = nearest(str(given or ""), TASKS)
    raise InputError(Problem(message, places.of_value((KEY,)), advice))


def kind_of(options: FileOptions) -> TaskOptions:
    """Return the task that typed options are of."""
    return next(task for task in TASKS.values() if isinstance(options, task.model))
