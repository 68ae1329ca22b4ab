"""Collectives by doubling, on ranks that are threads: any number of them, in ceil(log2 W) hops."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

import pytest
import torch
from torch import Tensor

from trainauto.distributed.doubling import Exchange, all_gather, maximum_

COUNTS = [1, 2, 3, 4, 5, 7, 8, 13, 16, 33]


class Wires:
    """A queue from each rank to each other, and how often each rank has exchanged something."""

    def __init__(self, count: int) -> None:
        self._wires = {(a, b): SimpleQueue[Tensor]() for a in range(count) for b in range(count) if a != b}
        self.hops = [0] * count

    def of(self, rank: int) -> Exchange:
        def exchange(sent: Tensor, receiver: int, received: Tensor, sender: int) -> None:
            self.hops[rank] += 1
            self._wires[rank, receiver].put(sent.clone())
            received.copy_(self._wires[sender, rank].get(timeout=20))

        return exchange


def on_ranks(count: int, call: Callable[[int, Exchange], Tensor]) -> list[Tensor]:
    """Return what each rank gets; every one exchanges ceil(log2 W) times."""
    wires = Wires(count)
    with ThreadPoolExecutor(count) as threads:
        results = list(threads.map(lambda rank: call(rank, wires.of(rank)), range(count)))
    assert wires.hops == [(count - 1).bit_length()] * count
    return results


@pytest.mark.parametrize("count", COUNTS)
def test_each_rank_gets_all_messages_in_order(count: int) -> None:
    def call(rank: int, exchange: Exchange) -> Tensor:
        return all_gather(torch.tensor([rank, 100 + rank]), rank, count, exchange)

    for gathered in on_ranks(count, call):
        assert gathered.tolist() == [[rank, 100 + rank] for rank in range(count)]


@pytest.mark.parametrize("count", COUNTS)
def test_each_element_becomes_the_largest_of_all(count: int) -> None:
    figures = torch.randint(0, 100, (count, 5), generator=torch.Generator().manual_seed(count))

    def call(rank: int, exchange: Exchange) -> Tensor:
        mine = figures[rank].clone()
        maximum_(mine, torch.zeros_like(mine), rank, count, exchange)
        return mine

    for result in on_ranks(count, call):
        assert result.tolist() == figures.amax(0).tolist()
