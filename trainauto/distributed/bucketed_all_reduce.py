"""Summing gradients over ranks, after the backward pass and through a buffer that is there from the start."""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn

from trainauto.distributed.doubling import exchange_over, maximum_

BUFFER_BYTES = 25 * 1024**2
"""Gradients travel in pieces of this size, as DistributedDataParallel's buckets do: large enough for the bandwidth of a
network, small beside what a step takes."""


class BucketedAllReduce:
    """Adds up the gradients of all ranks, in place.

    Nothing is allocated while it runs: a rank that ran out of memory in it would leave the others waiting. A weight
    that no rank has a gradient for stays without one, so that optimizers leave it alone as they would on one rank.

    Args:
        parameters: all that it will ever be given.
        cpu_group: sends what lies on the CPU; ``None`` where the group of all ranks does.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], cpu_group: "dist.ProcessGroup | None" = None) -> None:
        self._cpu = cpu_group
        self._buffers: dict[tuple[torch.dtype, torch.device], Tensor] = {}
        sizes: dict[tuple[torch.dtype, torch.device], int] = {}
        for parameter in parameters:
            key = parameter.dtype, parameter.device
            sizes[key] = sizes.get(key, 0) + parameter.numel()
        for (dtype, device), elements in sizes.items():
            largest = max(p.numel() for p in parameters if (p.dtype, p.device) == (dtype, device))
            room = min(elements, max(largest, BUFFER_BYTES // dtype.itemsize))
            # Touched now, so that the memory is there and not only promised.
            self._buffers[dtype, device] = torch.zeros(room, dtype=dtype, device=device)
        self._figures = torch.zeros(2, 1 + len(parameters), dtype=torch.int32)  # this rank's, and what others send

    @property
    def buffers(self) -> list[Tensor]:
        """What it holds beside the gradients, on their device."""
        return list(self._buffers.values())

    def run(self, parameters: Sequence[nn.Parameter], status: int) -> int:
        """Sum the gradients of ``parameters`` if all ranks have theirs; return the worst status of all.

        Args:
            parameters: the same ones in the same order on every rank.
            status: 0 where this rank has its gradients; with anything else on any rank none is touched.
        """
        figures, spare = self._figures[:, : 1 + len(parameters)]
        figures.copy_(torch.tensor([status, *(parameter.grad is not None for parameter in parameters)]))
        maximum_(figures, spare, dist.get_rank(), dist.get_world_size(), exchange_over(self._cpu))
        worst, *present = figures.tolist()
        if worst:
            return int(worst)
        pieces: dict[tuple[torch.dtype, torch.device], list[Tensor]] = {}
        for parameter, is_present in zip(parameters, present, strict=True):
            if is_present:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                key = parameter.dtype, parameter.device
                self._take(key, parameter.grad, pieces.setdefault(key, []))
        for key, waiting in pieces.items():
            self._send(key, waiting)
        return 0

    def _take(self, key: tuple[torch.dtype, torch.device], gradient: Tensor, waiting: list[Tensor]) -> None:
        room = self._buffers[key].numel()
        if gradient.numel() >= room and gradient.is_contiguous():
            dist.all_reduce(gradient, group=self._group_of(gradient))  # as large as the buffer: it travels by itself
            return
        if sum(tensor.numel() for tensor in waiting) + gradient.numel() > room:
            self._send(key, waiting)
        waiting.append(gradient)

    def _group_of(self, tensor: Tensor) -> "dist.ProcessGroup | None":
        return self._cpu if tensor.device.type == "cpu" else None

    def _send(self, key: tuple[torch.dtype, torch.device], waiting: list[Tensor]) -> None:
        if not waiting:
            return
        buffer = self._buffers[key][: sum(gradient.numel() for gradient in waiting)]
        parts = torch.split(buffer, [gradient.numel() for gradient in waiting])
        for part, gradient in zip(parts, waiting, strict=True):
            part.view_as(gradient).copy_(gradient)
        dist.all_reduce(buffer, group=self._group_of(buffer))
        for part, gradient in zip(parts, waiting, strict=True):
            gradient.copy_(part.view_as(gradient))
        waiting.clear()
