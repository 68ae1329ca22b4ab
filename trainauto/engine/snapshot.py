"""What a pass may change before its optimizer steps, so that it can be run again as if it had never begun."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from trainauto.distributed.communicator import Communicator
from trainauto.engine.batch_copies import BatchCopies
from trainauto.engine.module_state import ModuleState
from trainauto.engine.run_errors import CannotRepeatError
from trainauto.models.base_model import BaseModel


class StepSnapshot:
    """Random generators, the batch, and what forward passes change of networks, as they were when a pass began.

    Gradients need no copy: they are zeroed. Trained weights need none: only the optimizer's step changes them, and it
    comes after everything that allocates in proportion to the batch. The first step copies what may change, on the host
    and beside the step's memory, and compares it by value; kernels write without giving tensors a new version. Later
    steps copy only what ever changed.

    Attributes:
        on_restore: called when a moment is restored, by the code that has noted figures of the pass since.
        said_differing: numbers handed on as means, as far as they were told.
        said_pieces: whether it was told that networks have changed in each piece of a batch.

    Args:
        networks: the networks of the model.
        device: where they are.
        optimizers: what they step is not copied; without any, parameters with gradients are not.
    """

    def __init__(
        self, networks: Iterable[nn.Module], device: torch.device, optimizers: Iterable[Optimizer] = ()
    ) -> None:
        self._device = device
        self._state = ModuleState(networks, optimizers)
        self._batch = BatchCopies()
        self._random: tuple[Any, Any] = (None, None)
        self.on_restore: Callable[[], None] | None = None
        self.said_differing: set[str] = set()
        self.said_pieces = False

    @classmethod
    def of(cls, model: BaseModel) -> "StepSnapshot":
        """Return that of a model."""
        return cls(model.networks.values(), model.device, model.optimizers.values())

    @property
    def is_learning(self) -> bool:
        """Whether the next pass copies what later ones may not copy."""
        return self._state.is_learning

    @property
    def has_learned(self) -> bool:
        """Whether the last step has changed leaves of its batch that none had changed before."""
        return self._batch.has_learned

    def take(self, tensors: Mapping[str, Any] | None = None, loaded: Mapping[str, Any] | None = None) -> None:
        """Remember this moment.

        Args:
            tensors: the batch of the pass, on the device.
            loaded: the batch as the loader gave it, of which ``tensors`` are copies on another device.
        """
        self._state.take()
        self._batch.take(tensors or {}, loaded or {})
        on_cuda = self._device.type == "cuda"
        self._random = (torch.get_rng_state(), torch.cuda.get_rng_state(self._device) if on_cuda else None)

    def commit_pass(self) -> None:
        """Note what has changed since: the pass stays."""
        self._state.note_changes()
        self._batch.note_changes()

    def commit_step(self) -> None:
        """All passes of a step have stayed: what has not changed by now is not copied any more."""
        self._state.learn()
        self._batch.learn()

    def changing(self) -> list[Tensor]:
        """Return what passes change of the networks, as far as is known yet."""
        return self._state.changing()

    @property
    def changing_by_piece(self) -> list[str]:
        """Names of what passes change of the networks with each piece of a batch, as far as is known yet."""
        return self._state.changing_by_piece

    def one_pass(self) -> AbstractContextManager[None]:
        """Have modules that change once a pass do so now, and not again inside: forward and backward of an attempt."""
        return self._state.one_pass()

    def share(self, ranks: Communicator) -> None:
        """Have what passes change of the networks be the first rank's on all; every rank must call it."""
        self._state.share(ranks)

    def next_part(self, part: Mapping[str, Any]) -> None:
        """Have leaves that all parts of the batch share be as the first part found them.

        Raises:
            CannotRepeatError: a part has changed one that is not copied.
        """
        if unheld := self._batch.share(part):
            raise CannotRepeatError(batch=unheld)

    def restore(self) -> None:
        """Restore that moment, to run the pass again.

        Raises:
            CannotRepeatError: something has changed that is not copied, since no step had changed it before.
        """
        self._put_back(self._batch.put_back)

    def give_back(self) -> None:
        """Restore that moment, and the batch as the step found it: it goes back to the loader.

        Raises:
            CannotRepeatError: as :meth:`restore`.
        """
        self._put_back(self._batch.give_back)

    def undo(self) -> None:
        """Restore what a step that trains nothing has changed, its batch included; nothing is run again."""
        self._state.note_changes(is_failure=True)
        self._batch.note_changes()
        self._state.put_back()
        self._batch.give_back()
        self._put_generators_back()

    def leave_out(self) -> None:
        """Restore networks and random generators: the pass is left out, and its batch is not run again."""
        self._state.note_changes(is_failure=True)
        self._batch.note_changes()
        self._put_state_back()

    def _put_back(self, put_batch_back: Callable[[], None]) -> None:
        state, batch = self._state.note_changes(is_failure=True), self._batch.note_changes()
        self._put_state_back()
        put_batch_back()
        if state or batch:
            raise CannotRepeatError(state=state, batch=batch)

    def _put_state_back(self) -> None:
        self._state.put_back()
        self._put_generators_back()
        if self.on_restore is not None:
            self.on_restore()

    def _put_generators_back(self) -> None:
        torch.set_rng_state(self._random[0])
        if self._random[1] is not None:  # pragma: no cuda
            torch.cuda.set_rng_state(self._random[1], self._device)
