"""Weights that all tasks train, and the norm of each task's gradient there."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from trainauto.core.errors import InputError, Problem, nearest


def weights_of(model: nn.Module, layer: str) -> tuple[str, ...]:
    """Return the names of the weights of a layer that are trained.

    Raises:
        InputError: the model has no such layer, or it has no such weights.
    """
    modules = dict(model.named_modules())
    if layer not in modules or not layer:
        raise InputError(Problem(f"the model has no layer '{layer}'", advice=nearest(layer, [n for n in modules if n])))
    names = tuple(name for name, weight in _trained(model) if name.startswith(f"{layer}."))
    if not names:
        raise InputError(f"no weight of the layer '{layer}' is trained: tasks have no gradients there")
    return names


def last_shared_weights(model: nn.Module, losses: Tensor, masks: Tensor) -> tuple[str, ...]:
    """Return the names of the weights of the last layer that every task trains.

    Last in the order in which the model was put together, of the layers with a matrix among their weights: what a
    normalisation shifts and scales says little of what a task asks of a network. Tasks share a weight tensor where all
    of them have gradients at the same entries of it: heads that are rows of one matrix are no shared layer.

    Args:
        model: its weights.
        losses: of samples of all tasks, (N,), with a graph; it is kept.
        masks: which are of each task, (tasks, N); tasks without samples are passed over.

    Raises:
        InputError: there is no such layer.
    """
    named = dict(_trained(model))
    shared: dict[str, Tensor] | None = None
    for mask in (mask for mask in masks if mask.any()):
        gradients = torch.autograd.grad(
            _sum_of(losses, mask), list(named.values()), retain_graph=True, allow_unused=True
        )
        trained = {name: grad.ne(0) for name, grad in zip(named, gradients, strict=True) if grad is not None}
        shared = trained if shared is None else {n: shared[n] & trained[n] for n in shared.keys() & trained.keys()}
    names = {name for name, entries in (shared or {}).items() if entries.any()}
    layers = [_layer_of(name) for name, weight in named.items() if name in names and weight.ndim >= 2]
    if not layers:
        raise InputError(
            Problem(
                "the tasks have no layer in common that is trained, at which their gradients could be balanced",
                advice="Leave balancing out (use_grad_norm_balancing=False), or name a layer (shared_layer).",
            )
        )
    return tuple(name for name in named if name in names and _layer_of(name) == layers[-1])


def _layer_of(weight: str) -> str:
    return weight.rpartition(".")[0]


class TaskGradients:
    """The gradient of each task's summed loss at shared weights, added up over the parts of a step.

    Norms are of the sum: added up norms would be those of parts, and larger the more parts a step runs in.

    Args:
        names: of the shared weights.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self._sums: Tensor | None = None

    def add(self, model: nn.Module, losses: Tensor, masks: Tensor) -> Tensor:
        """Add a part of a step; its graph is kept for the backward pass that follows.

        Args:
            model: that computed the losses: its weights have the names.
            losses: of the samples, (N,), without weights of tasks.
            masks: which are of each task, (tasks, N).

        Returns:
            The sums so far, (tasks, shared weights), in float32.
        """
        weights = [model.get_parameter(name) for name in self.names]
        rows = []
        for mask in masks:
            gradients = torch.autograd.grad(_sum_of(losses, mask), weights, retain_graph=True, allow_unused=True)
            rows.append(
                torch.cat(
                    [
                        (torch.zeros_like(weight) if gradient is None else gradient).float().flatten()
                        for weight, gradient in zip(weights, gradients, strict=True)
                    ]
                )
            )
        sums = torch.stack(rows)
        self._sums = sums if self._sums is None else self._sums.add_(sums)
        return self._sums

    def forget(self) -> None:
        """Drop what was added."""
        self._sums = None

    def packed(self) -> Tensor | None:
        """Return the sums, to be summed over processes; ``None`` where no part was added."""
        return self._sums

    @staticmethod
    def norms(sums: Tensor, samples: Sequence[int]) -> list[float]:
        """Return the norm of the gradient of each task's mean loss; 0 of tasks without samples.

        Args:
            sums: of all processes, (tasks, shared weights).
            samples: of each task in the step.
        """
        norms: list[float] = torch.linalg.vector_norm(sums, dim=1).tolist()
        return [norm / max(1, count) if count else 0.0 for norm, count in zip(norms, samples, strict=True)]


def _sum_of(losses: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, losses, torch.zeros_like(losses)).sum()


def _trained(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    return ((name, weight) for name, weight in model.named_parameters() if weight.requires_grad)
