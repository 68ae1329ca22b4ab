"""Collectives of small messages in ceil(log2 W) hops on W ranks, where gloo's rings take W - 1 and 2 (W - 1).

In hop ``k`` every rank sends to the one ``2**k`` places on, and receives from the one ``2**k`` places back.
"""

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor

Exchange = Callable[[Tensor, int, Tensor, int], None]
"""Sends a tensor to a rank while it receives one from another: ``exchange(sent, receiver, received, sender)``."""


def exchange_over(group: "dist.ProcessGroup | None") -> Exchange:
    """Return the exchange between ranks of a group that sends what lies on the CPU."""

    def exchange(sent: Tensor, receiver: int, received: Tensor, sender: int) -> None:
        coming = dist.irecv(received, sender, group=group)
        going = dist.isend(sent, receiver, group=group)
        for work in (coming, going):
            if work is not None:
                work.wait()

    return exchange


def all_gather(mine: Tensor, rank: int, world_size: int, exchange: Exchange) -> Tensor:
    """Return the messages of all ranks in their order, shape (ranks, elements).

    Bruck et al., "Efficient algorithms for all-to-all communications in multiport message-passing systems" (1997).

    Args:
        mine: the message of this rank, shape (elements,); as long on every rank.
        rank: of this process.
        world_size: how many ranks there are.
        exchange: how two tensors travel.
    """
    held = mine.new_empty(world_size, len(mine))  # row i is the message of the rank i places back
    held[0] = mine
    have = 1
    while have < world_size:
        more = min(have, world_size - have)
        receiver, sender = (rank + have) % world_size, (rank - have) % world_size
        exchange(held[:more], receiver, held[have : have + more], sender)
        have += more
    return held[torch.arange(rank, rank - world_size, -1) % world_size]


def maximum_(mine: Tensor, spare: Tensor, rank: int, world_size: int, exchange: Exchange) -> None:
    """Have each element be the largest of all ranks, in place. A rank that is counted twice changes no maximum.

    Args:
        mine: shape (elements,); as long on every rank.
        spare: receives what others send, of the same shape and type.
        rank: of this process.
        world_size: how many ranks there are.
        exchange: how two tensors travel.
    """
    distance = 1
    while distance < world_size:
        exchange(mine, (rank + distance) % world_size, spare, (rank - distance) % world_size)
        torch.maximum(mine, spare, out=mine)
        distance *= 2
