"""What of a batch a model is given, and what a loss alone needs."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import nn

METADATA = "metadata"
"""What a batch says of its samples for people; no tensor, and no model's business."""

TASK_IDS = "task_ids"

VARIADIC = {"args", "kwargs", "label", "label_ids"}
"""Names in a signature that say nothing of what a model takes; the last two transformers adds by itself."""


class TensorsOnly:
    """A collator without what batches say for people, so that they can be divided into parts.

    Args:
        collate: makes batches of samples.
    """

    def __init__(self, collate: Callable[[list[Any]], Mapping[str, Any]]) -> None:
        self.collate = collate
        self.pad_to_multiple_of = getattr(collate, "pad_to_multiple_of", None)

    def __call__(self, samples: list[Any]) -> dict[str, Any]:
        """Return a batch of samples."""
        return {name: leaf for name, leaf in self.collate(samples).items() if name != METADATA}

    @property
    def tasks(self) -> Sequence[str]:
        """Names of tasks, in the order of their ids."""
        tasks: Sequence[str] = getattr(self.collate, "tasks", ())
        return tasks


def named_inputs(model: nn.Module, columns: Sequence[str]) -> list[str]:
    """Return the parameters of ``forward`` that are one input each: not ``**inputs``, whatever it is called.

    Args:
        model: whose.
        columns: names in its signature, as transformers' Trainer lists them.
    """
    parameters = inspect.signature(model.forward).parameters.values()
    variadic = {each.name for each in parameters if each.kind in (each.VAR_KEYWORD, each.VAR_POSITIONAL)}
    return [name for name in columns if name not in variadic]


def inputs_of(network: nn.Module) -> list[str]:
    """Return what of a batch a network asks for by name."""
    return named_inputs(network, list(inspect.signature(network.forward).parameters))


def accepted(inputs: Mapping[str, Any], parameters: Sequence[str]) -> dict[str, Any]:
    """Return what of a batch a model's ``forward`` has a parameter for.

    Args:
        inputs: the batch.
        parameters: names in the signature; where they are none but ``args`` and ``kwargs``, it gets all but the ids of
            tasks.
    """
    names = set(parameters) - VARIADIC
    if not names - {"labels"}:
        return {name: leaf for name, leaf in inputs.items() if name != TASK_IDS}
    return {name: leaf for name, leaf in inputs.items() if name in names}


def predictions(outputs: Any) -> Any:
    """Return outputs without losses of samples: what is left of them is gathered as predictions."""
    if not isinstance(outputs, Mapping):
        return outputs
    return {name: value for name, value in outputs.items() if name != "sample_losses"}
