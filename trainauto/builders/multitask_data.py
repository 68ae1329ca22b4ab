"""Samples of several tasks, the tokenizer and what makes batches of them, from options."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trainauto.builders.components import build_component, locate_errors
from trainauto.builders.texts import keeps_tokenizer, kept_model
from trainauto.core.errors import InputError, Problem
from trainauto.distributed.communicator import SINGLE_PROCESS, Communicator
from trainauto.integrations.map_samples import seeded
from trainauto.options.load import LoadedOptions
from trainauto.options.multitask_options import MultitaskOptions
from trainauto.storage.run_directory import RunDirectory
from trainauto.tasks.multitask import digits, digits_model
from trainauto.tasks.multitask.batches.collator import HeterogeneousCollator
from trainauto.tasks.multitask.batches.samples import SampleTable, read_samples
from trainauto.tasks.multitask.batches.task_shares import task_shares
from trainauto.tasks.multitask.model_inputs import TensorsOnly
from trainauto.tasks.multitask.registry import SAMPLE_SETS
from trainauto.tasks.multitask.trainer_data import TaskSamples, check_evaluated
from trainauto.tasks.text.training.tokenizers import load_tokenizer, train_tokenizer

Loaded = LoadedOptions[MultitaskOptions]

REGISTERING = (digits, digits_model)
"""Modules that bring what they register by being imported."""

TRAIN = "train"


@dataclass(frozen=True)
class TaskData:
    """What a run of several tasks learns from.

    Attributes:
        sets: the registered sets by key, the training set first.
        tables: what is known of the samples of each.
        samples: the training set by task.
        tokenizer: of the texts.
        collate: makes batches.
    """

    sets: Mapping[str, Any]
    tables: Mapping[str, SampleTable]
    samples: TaskSamples
    tokenizer: Any
    collate: TensorsOnly

    @property
    def table(self) -> SampleTable:
        """What is known of the training samples."""
        return self.tables[TRAIN]

    @property
    def largest(self) -> int:
        """Number of the training sample that plans go by."""
        return self.samples.largest or 0

    def one_of_each(self, device: torch.device) -> dict[str, Tensor]:
        """Return a batch with a sample of each task, on a device."""
        with seeded(0):
            batch = self.collate([self.sets[TRAIN][place] for place in self.samples.one_of_each])
        return {name: leaf.to(device) for name, leaf in batch.items()}


def build_task_data(
    loaded: Loaded, earlier: RunDirectory | None = None, ranks: Communicator = SINGLE_PROCESS
) -> TaskData:
    """Build the sets of an option file, and its tokenizer.

    Args:
        loaded: the option file.
        earlier: the run that is resumed, whose tokenizer is this one's.
        ranks: have the first one's tokenizer, where one is trained.

    Raises:
        InputError: samples or tokenizer cannot be used, or options name tasks that no sample is of.
    """
    chosen = {TRAIN: loaded.options.datasets.train, **loaded.options.datasets.validation_sets}
    sets = {
        key: build_component(loaded, SAMPLE_SETS, ("datasets", key), component.type, component.arguments)()
        for key, component in chosen.items()
    }
    with locate_errors(loaded, ("datasets", TRAIN)):
        _check_tasks(loaded, read_samples(sets[TRAIN]))
    tokenizer = _tokenizer(loaded, sets[TRAIN], earlier, ranks)
    with locate_errors(loaded, ("datasets", TRAIN)):
        collate = HeterogeneousCollator.of_dataset(sets[TRAIN], tokenizer)
        samples = TaskSamples.of(sets[TRAIN], collate)
    tables = {TRAIN: samples.table or read_samples(sets[TRAIN])}
    for key in sets.keys() - {TRAIN}:
        with locate_errors(loaded, ("datasets", key)):
            check_evaluated(sets[key], samples.tasks, key)
            with seeded(0):
                tables[key] = read_samples(sets[key], collate.count_tokens)
    return TaskData(sets, tables, samples, tokenizer, TensorsOnly(collate))


def _check_tasks(loaded: Loaded, table: SampleTable) -> None:
    """Refuse weights and shares of tasks that no sample is of.

    Raises:
        InputError: names them, and the tasks there are.
    """
    for key in ("initial_task_loss_weights", "task_distribution"):
        for name in getattr(loaded.options.train, key):
            if name not in table.tasks:
                with locate_errors(loaded, ("train", key, name)):
                    message = f"no sample of the training set is of task '{name}'"
                    raise InputError(Problem(message, advice=f"Its tasks are {', '.join(table.tasks)}."))
    with locate_errors(loaded, ("train",)):
        task_shares(loaded.options.train.task_distribution or None, table, loaded.options.train.sampling)


def _tokenizer(loaded: Loaded, samples: Any, earlier: RunDirectory | None, ranks: Communicator) -> Any:
    """Return the tokenizer of an earlier run, one trained on the texts of the training set, or a loaded one."""
    chosen = loaded.options.tokenizer
    if earlier is not None and keeps_tokenizer(earlier, ranks):
        return load_tokenizer(kept_model(earlier))
    if chosen.train is None:
        with locate_errors(loaded, ("tokenizer",)):
            return load_tokenizer(chosen.pretrained or "")
    texts = (samples[place].get("text") or "" for place in range(len(samples)))
    with locate_errors(loaded, ("tokenizer", "train")):
        return train_tokenizer(texts, chosen.train.vocab_size, ranks=ranks)
