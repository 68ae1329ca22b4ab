"""Which module each allocation of a traced step is made for."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from trainauto.memory.tracing.contents import tensors_in
from trainauto.memory.tracing.holders import ACTIVATIONS, AGAIN, BUFFERS, GATHERED, GRADIENTS, STATES, WEIGHTS, Owner
from trainauto.memory.tracing.phases import BACKWARD, FORWARD, OPTIMIZER

OUTSIDE = {BACKWARD: "backward pass", OPTIMIZER: "optimizer's step"}
"""What is made there while no module runs; elsewhere that is what a step makes outside of modules."""


class ModuleOwners:
    """Names the modules of a step, and notes for which of them it allocates.

    Attributes:
        multiplications: of the forward pass, by the path of the module.

    Args:
        held: modules and optimizers of the step, or sequences of them.
    """

    def __init__(self, held: Sequence[Any]) -> None:
        self._held = list(_parts_of(held))
        self._names = {
            id(module): ".".join(filter(None, (class_of(root), name)))
            for root in self._held
            if isinstance(root, nn.Module)
            for name, module in root.named_modules()
        }
        self._owners: dict[int, Owner] = {}
        self.multiplications: Counter[str] = Counter()

    def note(self, ident: int, phase: str, running: Sequence[nn.Module]) -> None:
        """Note an allocation by the modules that run, the innermost last; backward runs those that compute again."""
        name = self._name(running)
        if not name:
            self._owners[ident] = Owner("", OUTSIDE.get(phase, "outside of modules"))
        else:
            self._owners[ident] = Owner(name, AGAIN if phase == BACKWARD else ACTIVATIONS)

    def note_gathered(self, ident: int) -> None:
        """Note whole weights that a rank has gathered from the others."""
        self._owners[ident] = Owner("", GATHERED)

    def compute(self, multiplications: int, phase: str, running: Sequence[nn.Module]) -> None:
        """Note what the modules that run compute."""
        if phase == FORWARD and (name := self._name(running)):
            self.multiplications[name] += multiplications

    def begin_step(self) -> None:
        """Forget what was computed: a step begins."""
        self.multiplications.clear()

    def _name(self, running: Sequence[nn.Module]) -> str:
        return next((self._names[id(module)] for module in reversed(running) if id(module) in self._names), "")

    def complete(self, ident_of: Callable[[Tensor], int]) -> Mapping[int, Owner]:
        """Return the owners of all allocations, of what is held between steps, too.

        Args:
            ident_of: returns the number of a tensor's storage; 0 where it is not followed.
        """
        owners = dict(self._owners)
        modules = [module for root in self._held if isinstance(root, nn.Module) for module in root.modules()]
        of_weights = {id(weight): module for module in modules for weight in module.parameters(recurse=False)}
        for optimizer in self._held:
            states = optimizer.state.items() if isinstance(optimizer, Optimizer) else ()
            for weight, state in states:
                name = self._names.get(id(of_weights.get(id(weight))), "")
                owners |= {ident_of(tensor): Owner(name, STATES) for tensor in tensors_in(list(state.values()))}
        for module in modules:  # after states, which may hold a weight itself
            name = self._names[id(module)]
            for weight in module.parameters(recurse=False):
                owners[ident_of(weight)] = Owner(name, WEIGHTS)
                if weight.grad is not None:
                    owners[ident_of(weight.grad)] = Owner(name, GRADIENTS)
            for buffer in module.buffers(recurse=False):
                owners[ident_of(buffer)] = Owner(name, BUFFERS)
        owners.pop(0, None)
        return owners


def class_of(module: nn.Module) -> str:
    """Return the name of a module's class, as it was before FSDP2 made a class of its own of it."""
    name = type(module).__name__
    return name.removeprefix("FSDP") if hasattr(module, "unshard") else name


def _parts_of(held: Any) -> Iterator[nn.Module | Optimizer]:
    if isinstance(held, nn.Module | Optimizer):
        yield held
    elif isinstance(held, list | tuple):
        for part in held:
            yield from _parts_of(part)
