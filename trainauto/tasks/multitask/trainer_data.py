"""What a Trainer of several tasks knows of its samples before it trains them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from trainauto.core.errors import InputError, Problem
from trainauto.integrations.map_samples import seeded
from trainauto.tasks.multitask.batches.collator import HeterogeneousCollator
from trainauto.tasks.multitask.batches.padded_rows import IDS
from trainauto.tasks.multitask.batches.samples import LOOKED_AT, SampleTable, read_samples, tokens_of, with_tokens
from trainauto.tasks.multitask.losses.sample_losses import losses_of_samples
from trainauto.tasks.multitask.model_inputs import accepted, inputs_of
from trainauto.tasks.multitask.prediction.memory_predictor import MemoryPredictor

CountTokens = Callable[[Mapping[str, Any]], int]


@dataclass(frozen=True)
class TaskSamples:
    """The samples of a dataset by task.

    Attributes:
        tasks: names, in the order of their ids.
        present: those of them that there are samples of.
        one_of_each: number of a sample of each that is present.
        largest: number of the sample with most images, and of those with most tokens; ``None`` without a dataset.
        table: what is known of all samples; ``None`` without a dataset.
    """

    tasks: tuple[str, ...]
    present: tuple[str, ...]
    one_of_each: tuple[int, ...]
    largest: int | None
    table: SampleTable | None = None

    @classmethod
    def of(cls, dataset: Any, collate: Any) -> "TaskSamples":
        """Look at a dataset.

        Args:
            dataset: to train on; ``None`` where there is none.
            collate: makes batches; its ``tasks`` say their order, which is that of the alphabet without them.

        Raises:
            InputError: the dataset does not say what it should, or has tasks that the collator does not know.
        """
        known = tuple(getattr(collate, "tasks", ()))
        if not _has_samples(dataset):
            return cls(known, (), (), None)  # the Trainer itself says what is wrong with it
        count_tokens: CountTokens | None = getattr(collate, "count_tokens", None)
        with seeded(0):  # samples may draw; the run's generators are as before
            table = read_samples(dataset, count_tokens)
            largest = _largest(dataset, table, count_tokens)
            table = with_tokens(table, dataset, count_tokens)
        tasks = known or table.tasks
        strange = [task for task in table.tasks if task not in tasks]
        if strange:
            raise InputError(
                Problem(
                    f"there are samples of {', '.join(strange)}, which the collator does not know: its tasks are "
                    f"{', '.join(tasks)}",
                    advice="Give the collator all tasks.",
                )
            )
        present = tuple(task for task in tasks if task in table.tasks)
        first = {task: int(np.argmax(table.task_ids == number)) for number, task in enumerate(table.tasks)}
        return cls(tasks, present, tuple(first[task] for task in present), largest, table)


def _has_samples(dataset: Any) -> bool:
    return hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__") and len(dataset) > 0


def _largest(dataset: Any, table: SampleTable, count_tokens: CountTokens | None) -> int:
    most = np.flatnonzero(table.images == table.images.max())
    if table.knows_tokens:
        return int(most[np.argmax(table.sizes.tokens[most])])
    places = most[np.unique(np.linspace(0, len(most) - 1, LOOKED_AT).astype(int))]
    counts = [tokens_of(dataset[int(place)], count_tokens) or 0 for place in places]
    return int(places[int(np.argmax(counts))])


def check_evaluated(datasets: Any, tasks: Sequence[str], name: str = "eval_dataset") -> None:
    """Refuse samples to evaluate on that are of tasks which are not trained, before a training comes that far.

    Args:
        datasets: one, several by name, or none; those that do not say of what tasks they are are not loaded for it.
        tasks: that the collator knows.
        name: what the person calls them.

    Raises:
        InputError: names the tasks.
    """
    for dataset in datasets.values() if isinstance(datasets, dict) else [datasets]:
        if not callable(getattr(dataset, "get_sample_metadata", None)) or not _has_samples(dataset):
            continue
        strange = [task for task in read_samples(dataset).tasks if task not in tasks]
        if strange:
            raise InputError(
                Problem(
                    f"{name} has samples of {', '.join(strange)}, which the collator does not know: its tasks "
                    f"are {', '.join(tasks)}",
                    advice="Evaluate on tasks that are trained, or give a collator with all of them.",
                )
            )


def collator_for(tokenizer: Any, dataset: Any) -> HeterogeneousCollator:
    """Return what makes batches by default: of a dataset's tasks and images.

    Args:
        tokenizer: of the texts; ``None`` where none was given, and samples have ``input_ids``, or no text at all.
        dataset: to train on; ``None`` where there is none.

    Raises:
        InputError: samples hold texts, and there is no tokenizer.
    """
    if not _has_samples(dataset):
        return HeterogeneousCollator(tokenizer)
    with seeded(0):
        if tokenizer is not None or not _needs_tokenizer(dataset[0]):
            return HeterogeneousCollator.of_dataset(dataset, tokenizer)
        raise InputError(
            Problem(
                "how batches of several tasks are made is not known: there is neither a data_collator nor a tokenizer",
                advice="Give data_collator=HeterogeneousCollator(tokenizer), or processing_class=tokenizer. Samples "
                "with 'input_ids' need neither.",
            )
        )


def _needs_tokenizer(sample: Any) -> bool:
    """Whether rows of tokens cannot be made of a sample without a tokenizer, or it is no sample of this kind at all."""
    if not isinstance(sample, Mapping):
        return True
    return IDS not in sample and (bool(sample.get("text")) or "images" not in sample)


def predictor_for(model: nn.Module, dataset: Any, collate: Any, device: torch.device) -> MemoryPredictor:
    """Return what predicts the memory of batches of a dataset; the model is traced when it is first asked.

    Args:
        model: where it will be trained.
        dataset: to train on.
        collate: makes its batches.
        device: of the training.
    """
    predictor = MemoryPredictor(str(device))
    follow_model(predictor, model, dataset, collate)
    return predictor


def follow_model(predictor: MemoryPredictor, model: nn.Module, dataset: Any, collate: Any) -> None:
    """Have a predictor that knows no model predict the memory of this one.

    Args:
        predictor: see there.
        model: where it will be trained.
        dataset: to train on.
        collate: makes its batches.
    """
    with seeded(0):  # samples may draw; the run's generators are as before
        predictor.follow(model, samples=dataset, collator=collate, loss=_mean_loss)


def _mean_loss(model: nn.Module, batch: Mapping[str, Any]) -> Tensor:
    """Return the mean loss of a batch's samples: what its step takes does not depend on their weights."""
    count = next(len(leaf) for leaf in batch.values() if isinstance(leaf, Tensor))
    return losses_of_samples(model(**accepted(batch, inputs_of(model))), batch.get("labels"), count).mean()
