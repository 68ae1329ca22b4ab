"""How the gradients of a batch's parts differ, seen while they are computed; no gradient is kept for it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from trainauto.core.objectives import MicroBatch, Objective, parameters_of


class PartNorms:
    """Squared norms of the gradients that parts of a batch add, each over the part's share of the step.

    A part's loss is multiplied by its share w, so that what it adds to ``.grad`` is w times its mean gradient: the
    squared norm of that over w is w times the squared norm of the mean.

    Args:
        objective: the pass.
        share_of: what the loss of a part has been multiplied by before it was returned, where it has.

    Attributes:
        parts: of how many parts gradients were seen.
    """

    def __init__(self, objective: Objective, share_of: Callable[[MicroBatch], float] | None = None) -> None:
        self._share_of = share_of
        self._parameters = [parameter for parameter in parameters_of(objective) if parameter.requires_grad]
        self._norms: list[Tensor] = []
        self._squares: list[Tensor] = []
        self.parts = 0

    @contextmanager
    def watching(self, part: MicroBatch, share: float) -> Iterator[None]:
        """See the gradients of a part, whose loss was multiplied by ``share`` after it was returned."""
        if self._share_of is not None:
            share *= self._share_of(part)
        self._norms = []
        handles = [parameter.register_hook(self._see) for parameter in self._parameters]  # type: ignore[no-untyped-call]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
        if self._norms and share > 0:
            self._squares.append(torch.stack(self._norms).square().sum() / share)
            self.parts += 1
        self._norms = []

    def _see(self, gradient: Tensor) -> None:
        values = gradient.coalesce().values() if gradient.is_sparse else gradient
        wide = values.dtype in (torch.float64, torch.complex64, torch.complex128)
        norm = torch.linalg.vector_norm(values.detach(), dtype=None if wide else torch.float32)
        self._norms.append(norm.to(self._device, torch.float32))

    def total(self) -> Tensor:
        """Return the sum over the parts, on the device; 0 where there were none."""
        return torch.stack(self._squares).sum() if self._squares else torch.zeros((), device=self._device)

    @property
    def _device(self) -> torch.device:
        return self._parameters[0].device if self._parameters else torch.device("cpu")
