"""The model of a loop of one's own as the engine trains models: one module, and what is minimised of it."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import Parameter, signature
from typing import Any

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer
from torch.utils.data import DataLoader, IterableDataset

from trainauto.core.batch import Batch
from trainauto.core.errors import InputError, Problem
from trainauto.core.objectives import LossTerms, MicroBatch, Objective
from trainauto.integrations.coupling import coupling_in
from trainauto.integrations.handed_on import HandedOn
from trainauto.integrations.loss_terms import TOTAL, ReturnedLoss, words_of_repeated
from trainauto.integrations.samples import NestedSamples
from trainauto.integrations.single_values import SingleValues, refuses_single_value
from trainauto.integrations.structure import Structure
from trainauto.models.base_model import BaseModel

logger = logging.getLogger(__name__)

Loss = Callable[[Any, Any], "Tensor | Mapping[str, Tensor]"]
"""What is minimised: of the model, which is passed in, and a batch. A scalar; or named ones, whose sum is minimised.

Where one of them is called ``loss``, it is the total, and the others are reported only, as are those without gradients.
"""

OF_ONE_VALUE = (
    "One value has no variance. BatchNorm takes it with running statistics (track_running_stats=True); else choose "
    "batches of which no single sample is left (batch_size=Range(..., minimum=2), an even number of samples), or take "
    "GroupNorm or LayerNorm. InstanceNorm needs features of more than one pixel."
)


@dataclass(frozen=True)
class ModelObjective:
    """What one optimizer minimises. Several take turns in every step, as a GAN's generator and discriminator do.

    The loss keeps nothing: it also runs on a copy of the model whose tensors hold no data, and in parts. It is a mean
    over the samples of the batch it gets, which may be a part of the one that was drawn. It must use
    the model that it is given, not one it knows: memory is predicted by running it on a copy without data. Where
    batches hold dicts, it may add to them, or replace what is in them (tensors detached): objectives after it find
    that. What has a row for each sample is divided and joined as the batch is. Of anything else that the parts of a
    batch disagree in, objectives after it find the mean of numbers, and do not find the rest; the log says so.

    Attributes:
        name: in records and logs.
        optimizer: whose parameters it changes; all of them the model's.
        loss: see :data:`Loss`.
        splittable: whether the loss of a batch is the weighted mean over its parts. Where it is not, a batch that runs
            out of memory comes back as smaller batches. ``None``: unless the model has BatchNorm layers.
        scaler: loss scaling for fp16.
    """

    name: str
    optimizer: Optimizer
    loss: Loss
    splittable: bool | None = None
    scaler: GradScaler | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.optimizer, Optimizer) or not callable(self.loss):
            raise InputError(
                f"an objective is ModelObjective(name, optimizer, loss(model, batch)), not {self.name!r}, "
                f"{type(self.optimizer).__name__}, {type(self.loss).__name__}"
            )


class LoopModel(BaseModel):
    """A module with its objectives.

    Attributes:
        said: what was said of returned losses, which is said once; a copy for traces shares it.

    Args:
        module: what is trained.
        objectives: what is minimised, in the order of every step.
        structure: how batches are put together for losses.

    Raises:
        InputError: there is no objective, two have the same name, or an optimizer steps what is not the module's.
    """

    smaller_batches = "batch_size=Range(most, most) lets batches shrink below what it begins with."
    less_memory = "Take a smaller model, mixed precision, or more memory (memory_budget)."
    checkpointing_advice = "Gradient checkpointing, switched on in your model, would help"
    finite_numbers = "Try a lower learning rate, max_norm, or float32; look at these samples if they are unusual."

    def __init__(self, module: nn.Module, objectives: Sequence[ModelObjective], structure: Structure) -> None:
        super().__init__(next((tensor.device for tensor in module.parameters()), torch.device("cpu")))
        self.module = self.networks["model"] = module
        self.given = tuple(objectives)
        self.structure = structure
        self._check()
        self._handed_on = HandedOn(structure, [objective.name for objective in objectives])
        self.said: set[str] = set()
        self._seen: set[str] = set()  # objectives whose loss has returned something
        self.single_values = SingleValues(module)
        self.optimizers.update({objective.name: objective.optimizer for objective in objectives})
        coupling = coupling_in(module)
        self._objectives = [
            Objective(
                objective.name,
                objective.optimizer,
                partial(self._terms, objective),
                coupling is None if objective.splittable is None else objective.splittable,
                objective.scaler,
            )
            for objective in objectives
        ]

    def objectives(self) -> Sequence[Objective]:
        """Return what is minimised, in the order of a step."""
        return self._objectives

    @property
    def devices(self) -> list[torch.device]:
        """Devices of the module besides the CPU, in the order of its parameters and buffers."""
        tensors = [*self.module.parameters(), *self.module.buffers()]
        return [
            device
            for device in dict.fromkeys(tensor.device for tensor in tensors)
            if device.type not in ("cpu", "meta")
        ]

    @property
    def checkpoints_gradients(self) -> bool:
        """Whether blocks run again in the backward pass: models of transformers say so in an attribute of their own."""
        own = any(getattr(module, "gradient_checkpointing", False) is True for module in self.module.modules())
        return own or super().checkpoints_gradients

    def words_for(self, objective: str) -> str:
        """Return what a person calls an objective."""
        return f"objective '{objective}'"

    def feed_data(self, batch: Batch) -> MicroBatch:
        """Move the tensors of a batch to the device.

        Raises:
            InputError: it is made in another way than the first one.
        """
        self._handed_on.begin(batch.workload)
        if isinstance(batch.workload, NestedSamples):
            batch.workload.check(batch.tensors, len(batch))
        return {
            name: leaf.to(self.device, non_blocking=True) if isinstance(leaf, Tensor) else leaf
            for name, leaf in batch.tensors.items()
        }

    def _terms(self, objective: ModelObjective, part: MicroBatch) -> LossTerms:
        batch = self._handed_on.rebuild(objective.name, part)
        self.single_values.allow(allowed=_may_be_one_sample(part))
        try:
            result = objective.loss(self.module, batch)
        except ValueError as error:
            if not refuses_single_value(error):
                raise
            raise InputError(Problem(f"{error}, in the loss of '{objective.name}'", advice=OF_ONE_VALUE)) from error
        part.update(self._handed_on.added(objective.name, batch, part))
        alone = len(self.given) == 1
        returned = ReturnedLoss.of(result, objective.name, TOTAL if alone else objective.name)
        self._say(returned.words(objective.name))
        if objective.name not in self._seen:
            self._seen.add(objective.name)
            self._say(words_of_repeated(result, objective.name))
        # Objectives may call their terms alike.
        prefix = "" if alone or isinstance(result, Tensor) else f"{objective.name}."
        return {f"{prefix}{name}": term for name, term in returned.terms.items()}

    def _say(self, words: str) -> None:
        """Say once what of a returned loss may have been meant otherwise."""
        if words and words not in self.said:
            self.said.add(words)
            logger.warning("%s", words)

    def _check(self) -> None:
        if not self.given:
            raise InputError("there is nothing to minimise: give at least one objective")
        names = [objective.name for objective in self.given]
        if len(set(names)) < len(names):
            raise InputError(f"objectives need names of their own, got {', '.join(names)}")
        own = set(map(id, self.module.parameters()))
        for objective in self.given:
            groups = objective.optimizer.param_groups
            strays = sum(id(parameter) not in own for group in groups for parameter in group["params"])
            if strays:
                raise InputError(
                    f"the optimizer of '{objective.name}' steps {strays} parameters that are not the model's: pass the "
                    "module that holds them all (several: nn.ModuleDict)"
                )
            if not all("lr" in group for group in groups):
                raise InputError(
                    f"the optimizer of '{objective.name}' has a group without 'lr': rates are logged and changed "
                    "there; give it one, Optimizer(parameters, {'lr': ...})"
                )
            kind = type(objective.optimizer).__name__
            if isinstance(objective.optimizer, torch.optim.SparseAdam) or calls_the_loss(objective.optimizer):
                raise InputError(
                    f"{kind} cannot be used here, where steps are made of parts: it calls the loss itself, or takes "
                    "sparse gradients only"
                )
        for name, layer in self.module.named_modules():
            if getattr(layer, "sparse", False) and isinstance(layer, nn.Embedding | nn.EmbeddingBag):
                raise InputError(
                    f"{name or 'the model'} has sparse=True: gradients must be dense to be clipped and summed"
                )


def calls_the_loss(optimizer: Optimizer) -> bool:
    """Say whether an optimizer computes gradients in its step, by a closure: LBFGS, and SAM with its relatives.

    Those of SAM step twice for each batch (``first_step``, ``second_step``); their ``step`` names a default all the
    same, and refuses it when it is called.
    """
    closure = signature(type(optimizer).step).parameters.get("closure")
    is_needed = closure is not None and closure.default is Parameter.empty
    return is_needed or all(callable(getattr(optimizer, name, None)) for name in ("first_step", "second_step"))


def _may_be_one_sample(part: MicroBatch) -> bool:
    return any(isinstance(leaf, Tensor) and leaf.ndim > 0 and len(leaf) == 1 for leaf in part.values())


OWN_ORDER = (
    "Samples are drawn by weights where the dataset draws: its __getitem__(_) returns "
    "dataset[int(torch.multinomial(weights, 1))] (docs/own_loop.md)."
)


def refuse_samplers(others: Mapping[str, object], owner: str) -> None:
    """Refuse arguments of a ``DataLoader`` that say which samples come, and in which order.

    Args:
        others: arguments that are not the owner's.
        owner: who was given them.

    Raises:
        InputError: there is one.
        TypeError: there is another argument that the owner does not have.
    """
    for name in others:
        if name in ("sampler", "batch_sampler", "shuffle", "drop_last"):
            message = (
                f"{owner} takes no {name}: every sample comes exactly once an epoch, in an order of its own (seed)"
            )
            raise InputError(Problem(message, advice=OWN_ORDER))
        raise TypeError(f"{owner}() got an unexpected keyword argument '{name}'")


def check_kinds(
    model: object, objectives: object, dataset: object, max_norm: float | None, others: Mapping[str, object]
) -> None:
    """Refuse what is no model, no objective, no map-style dataset, no norm, or no argument of a loop.

    Raises:
        InputError: says what was given instead.
        TypeError: see :func:`refuse_samplers`.
    """
    refuse_samplers(others, "AdaptiveLoop")
    if max_norm is not None and not max_norm > 0:
        raise InputError(f"max_norm is {max_norm}: a norm that gradients are scaled down to is above 0")
    if not isinstance(model, nn.Module):
        raise InputError(
            f"the model must be an nn.Module, not {type(model).__name__}: AdaptiveLoop(model, objectives, ...)"
        )
    for objective in objectives if isinstance(objectives, list | tuple) else [objectives]:
        if not isinstance(objective, ModelObjective):
            raise InputError(f"an objective must be a ModelObjective, not {type(objective).__name__}")
    if isinstance(dataset, DataLoader | IterableDataset) or not (
        hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")
    ):
        raise InputError(
            f"the dataset must be map-style (len and samples by number), not {type(dataset).__name__}: the loop makes "
            "the batches itself"
        )
