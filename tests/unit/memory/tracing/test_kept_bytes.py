"""What networks keep between their passes; beside inductor in tests/integration/test_kept_by_inductor.py."""

import pytest
import torch
from torch import nn

from tests.compiler import in_own_process
from tests.contract.small_archs import build
from trainauto.memory.tracing.fake_tensors import as_fake, fake_world
from trainauto.memory.tracing.kept_bytes import KeptBytes, kept_bytes
from trainauto.memory.tracing.trace import TraceError

pytestmark = in_own_process

N, SIDE, WIDTH = 4, 24, 16


def kept(network: nn.Module) -> KeptBytes:
    with fake_world() as mode:
        return kept_bytes(as_fake(network, mode), torch.empty(N, 3, SIDE, SIDE))


def test_a_cheap_function_between_products_is_computed_again() -> None:

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Conv2d(3, WIDTH, 3, padding=1), nn.Conv2d(WIDTH, 3, 3, padding=1)

        def forward(self, image: torch.Tensor) -> torch.Tensor:
            features = self.first(image)
            return self.second(torch.sigmoid(features) * torch.tanh(features))

    one = 4 * N * WIDTH * SIDE * SIDE
    seen = kept(Net())
    assert seen.eager_bytes == 3 * one  # sigmoid, tanh, their product
    assert seen.compiled_bytes == 2 * one  # what the first convolution gives, and what the second takes


def test_a_network_is_left_as_it_was() -> None:
    network = build("span")
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    seen = kept(network)
    assert 0 < seen.compiled_bytes < seen.eager_bytes
    assert all(torch.equal(before[name], tensor) for name, tensor in network.state_dict().items())


def test_random_operators_are_traced() -> None:
    network = nn.Sequential(nn.Conv2d(3, WIDTH, 3), nn.Dropout(0.1), nn.Conv2d(WIDTH, 3, 3), nn.Dropout(0.1))
    seen = kept(network.train())
    assert 0 < seen.compiled_bytes <= seen.eager_bytes


def test_one_whose_graph_depends_on_data_is_refused_in_words() -> None:
    class Chooses(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))

        def forward(self, image: torch.Tensor) -> torch.Tensor:
            features = image * self.scale
            return features[features.detach() > 0]

    with pytest.raises(TraceError, match="no joint graph of both passes"):
        kept(Chooses())
