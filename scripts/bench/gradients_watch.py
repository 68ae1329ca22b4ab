"""What ``gradients.py`` sees of a run, the memory it makes run out, and the plain PyTorch loop beside it.

A pass over more samples than there is room for raises what CUDA raises, after its forward pass, so that generators,
buffers and batches have moved by then; the second part of the second step fails once in its backward pass. What was
trained is noted by the numbers of samples. The plain loop trains the same samples of a new model, step after step,
each whole; or, where a pass over parts differs by chance, in the parts that were noted, weighed by what the loss is a
mean over. Nothing of the package is used in it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from gradients_cases import Cell
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer
from torch.utils._python_dispatch import TorchDispatchMode

RATE = 0.05


def out_of_memory() -> torch.OutOfMemoryError:
    """Return what CUDA raises."""
    return torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.00 GiB.")


class FailsAt(TorchDispatchMode):
    """Counts operators; memory runs out at one of them."""

    def __init__(self, operator: int | None = None) -> None:
        super().__init__()
        self._operator, self.count = operator, 0

    def __torch_dispatch__(
        self, function: Any, types: Any, arguments: tuple[Any, ...] = (), options: Mapping[str, Any] | None = None
    ) -> Any:
        del types
        if self.count == self._operator:
            raise out_of_memory()
        self.count += 1
        return function(*arguments, **(options or {}))


@dataclass(frozen=True)
class State:
    """What a step leaves.

    Attributes:
        gradients: that its optimizer got.
        update: of the weights that are trained.
        rest: buffers, and weights without gradients.
    """

    gradients: Tensor
    update: Tensor
    rest: Tensor


@dataclass(frozen=True)
class Trained:
    """A step as it was.

    Attributes:
        parts: numbers of the samples of each pass.
        generator: state of the random generator before its first pass.
        state: what it left.
    """

    parts: Sequence[tuple[int, ...]]
    generator: Tensor
    state: State

    @property
    def numbers(self) -> tuple[int, ...]:
        """All its samples."""
        return tuple(number for part in self.parts for number in part)


def optimizer_of(
    cell: Cell, net: nn.Module, kind: Callable[[type[Optimizer]], type[Optimizer]] = lambda base: base
) -> Optimizer:
    """Return the optimizer of a cell: one that has state where memory runs out in it."""
    trained = [parameter for parameter in net.parameters() if parameter.requires_grad]
    if cell.misuse.fails_in_optimizer is not None:
        return kind(AdamW)(trained, RATE, eps=1e-4)  # type: ignore[call-arg]
    return kind(SGD)(trained, RATE)  # type: ignore[call-arg]


class Watch:
    """Sees a run of a cell.

    Attributes:
        net: the model.
        optimizer: its own.
        steps: those that were trained.
    """

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self.net = cell.net()
        self.optimizer = optimizer_of(cell, self.net, self._watched)
        self.steps: list[Trained] = []
        self._parts: list[tuple[int, ...]] = []
        self._generator: Tensor | None = None
        self._gradients = torch.zeros(())
        self._before, self._rest_before = weights_of(self.net), rest_of(self.net)
        self._is_live = self._has_failed_backward = self._has_failed_update = False

    def loss(self, model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor | dict[str, Tensor]:
        """Return the loss of a pass, as the cell has it."""
        self._cell.misuse.prepare(batch, len(self.steps))
        is_pass = torch.is_grad_enabled() and model.training and type(batch["x"]) is Tensor
        if is_pass and self._generator is None:
            self._generator = torch.get_rng_state()
        result = self._cell.loss.of(model(batch["x"]), batch)
        if is_pass:
            self._account(batch, result["loss"] if isinstance(result, dict) else result)
        return result

    def total(self, model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
        """Return the loss of a pass as one number."""
        result = self.loss(model, batch)
        return result["loss"] if isinstance(result, dict) else result

    def begin_step(self) -> None:
        """A step begins."""
        self._parts, self._generator, self._is_live = [], None, True
        self._before, self._rest_before = weights_of(self.net), rest_of(self.net)

    def end_step(self) -> None:
        """A step was trained."""
        self._is_live = False
        state = State(self._gradients, weights_of(self.net) - self._before, rest_of(self.net))
        generator = torch.get_rng_state() if self._generator is None else self._generator
        self.steps.append(Trained(tuple(self._parts), generator, state))

    @property
    def is_untouched(self) -> bool:
        """Whether weights and buffers are those at the beginning of the step."""
        return torch.equal(weights_of(self.net), self._before) and torch.equal(rest_of(self.net), self._rest_before)

    def _account(self, batch: Mapping[str, Tensor], total: Tensor) -> None:
        if len(batch["number"]) > self._cell.misuse.room:
            self._parts = []
            raise out_of_memory()
        self._parts.append(tuple(batch["number"].tolist()))
        is_second = self._is_live and len(self.steps) == 1 and len(self._parts) == 2
        if is_second and not self._has_failed_backward:
            self._has_failed_backward = True
            total.register_hook(self._fail)

    def _fail(self, _gradient: Tensor) -> None:
        self._parts = []
        raise out_of_memory()

    def _watched(self, base: type[Optimizer]) -> type[Optimizer]:
        watch = self

        class Watched(base):  # type: ignore[misc, valid-type]
            def step(self, closure: Any = None) -> Any:
                with watch.updating():
                    return super().step(closure)

        return Watched

    @contextmanager
    def updating(self) -> Iterator[None]:
        """Note the gradients of an update; have memory run out in it once, where the cell says so."""
        self._gradients = gradients_of(self.net)
        fails = self._cell.misuse.fails_in_optimizer
        if not self._is_live or fails is None or fails[0] != len(self.steps) or self._has_failed_update:
            yield
            return
        self._has_failed_update = True
        operators = operators_of_updates(self._cell, fails[0] + 1)[-1]
        with FailsAt(int(fails[1] * operators)):
            yield


def operators_of_updates(cell: Cell, count: int) -> list[int]:
    """Return how many operators each of the first updates takes."""
    net = cell.net()
    optimizer, counts = optimizer_of(cell, net), []
    for parameter in net.parameters():
        parameter.grad = torch.ones_like(parameter) if parameter.requires_grad else None
    for _ in range(count):
        with FailsAt() as mode:
            optimizer.step()
        counts.append(mode.count)
    return counts


def weights_of(net: nn.Module) -> Tensor:
    """Return the weights that are trained."""
    return torch.cat([weight.detach().flatten() for weight in net.parameters() if weight.requires_grad])


def gradients_of(net: nn.Module) -> Tensor:
    """Return their gradients; none counts as 0."""
    weights = [weight for weight in net.parameters() if weight.requires_grad]
    gradients = [torch.zeros_like(weight) if weight.grad is None else weight.grad for weight in weights]
    return torch.cat([gradient.detach().flatten() for gradient in gradients])


def rest_of(net: nn.Module) -> Tensor:
    """Return buffers, and weights that are not trained."""
    rest = [*net.buffers(), *(weight for weight in net.parameters() if not weight.requires_grad)]
    return torch.cat([torch.zeros(0).double(), *(tensor.detach().double().flatten() for tensor in rest)])


def trained_plainly(
    cell: Cell, steps: Sequence[Trained], weigh_parts: Callable[[Mapping[str, Tensor]], float] | None = None
) -> list[State]:
    """Train the same samples by a plain loop; return what each step leaves.

    Args:
        cell: whose model and loss.
        steps: which samples, in which parts, from which state of the generator.
        weigh_parts: run the parts, and weigh each so; else only where a pass over parts differs by chance.
    """
    samples = cell.model.samples(cell.misuse.total_samples)
    net = cell.net()
    optimizer, states = optimizer_of(cell, net), []
    for number, step in enumerate(steps):
        torch.set_rng_state(step.generator)
        before = weights_of(net)
        optimizer.zero_grad()
        in_parts = cell.model.follows_parts or weigh_parts is not None
        weights = [(weigh_parts or cell.loss.weigh)(_taken(samples, part)) for part in step.parts]
        for part, weight in zip(step.parts, weights, strict=True) if in_parts else [(step.numbers, sum(weights))]:
            batch = _taken(samples, part)
            cell.misuse.prepare(batch, number)
            _normalise_by_batch(net, by_batch=len(part) > 1)
            (cell.loss.total(net(batch["x"]), batch) * (weight / sum(weights))).backward()
        gradients = gradients_of(net)
        optimizer.step()
        states.append(State(gradients, weights_of(net) - before, rest_of(net)))
    return states


def _normalise_by_batch(net: nn.Module, *, by_batch: bool) -> None:
    """Have batch norm take the statistics of a batch; one sample has none, and running ones take their place."""
    for layer in net.modules():
        if isinstance(layer, nn.BatchNorm1d):
            layer.train(by_batch)


def worst_error(steps: Sequence[Trained], plain: Sequence[State]) -> float:
    """Return how far gradients, updates or buffers lie from those of the plain loop at most, relative to them."""
    pairs = [
        (getattr(step.state, name), getattr(state, name))
        for step, state in zip(steps, plain, strict=True)
        for name in ("gradients", "update", "rest")
    ]
    return max((_relative(mine, wanted) for mine, wanted in pairs), default=0.0)


def _relative(mine: Tensor, wanted: Tensor) -> float:
    difference, size = float((mine - wanted).norm()), float(wanted.norm())
    return difference / max(size, 1e-12) if difference else 0.0


def _taken(samples: Mapping[str, Tensor], numbers: Sequence[int]) -> dict[str, Tensor]:
    return {name: tensor[list(numbers)] for name, tensor in samples.items()}
