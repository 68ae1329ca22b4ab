"""Messages among processes whose own group sends nothing of the CPU's."""

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch import nn

from trainauto.distributed.communicator import TorchCommunicator


@pytest.fixture
def cards_only() -> Iterator[None]:
    """A group of one process for tensors of cards alone, as NCCL's is."""
    dist.init_process_group("cuda:gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


@pytest.mark.usefixtures("cards_only")
def test_messages_go_through_a_group_of_their_own() -> None:
    with pytest.raises(RuntimeError, match="No backend type"):
        dist.all_reduce(torch.zeros(1))
    ranks = TorchCommunicator()
    assert ranks.all_gather_object({"text": "x" * 5000}) == [{"text": "x" * 5000}]
    assert ranks.broadcast_object(lambda: [1, 2]) == [1, 2]
    with pytest.raises(ZeroDivisionError):
        ranks.broadcast_object(lambda: 1 / 0)
    with pytest.raises(TypeError, match="not JSON serializable"):
        ranks.broadcast_object(lambda: object())
    weight = nn.Parameter(torch.zeros(3))
    weight.grad = torch.ones(3)
    ranks.prepare([weight])
    assert ranks.sum_gradients([weight]) == 0
    assert weight.grad.tolist() == [1, 1, 1]
    ranks.broadcast_tensors([weight])
