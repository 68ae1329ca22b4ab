"""A forward pass on fake tensors takes what the same pass takes on real ones."""

import pytest
import torch
from torch import Tensor, nn

from trainauto.inference.upscale import as_pixels
from trainauto.memory.cost.forward_trace import forward_prior
from trainauto.memory.tracing.trace import TraceError, trace
from trainauto.tasks.sr.archs import ARCHS

CPU = torch.device("cpu")
SIDES = (32, 64, 128)


class Attention(nn.Module):
    """Writes out its matrix: memory grows with the fourth power of the side."""

    def forward(self, image: Tensor) -> Tensor:
        tokens = image.flatten(2).transpose(1, 2)
        return (tokens @ tokens.transpose(1, 2)).softmax(-1).mean(-1).view(-1, 1, *image.shape[2:]).expand_as(image)


def real_bytes(network: nn.Module, side: int) -> int:
    def step() -> None:
        with torch.no_grad():
            as_pixels(network, torch.zeros(1, 3, side, side, dtype=torch.uint8))

    found = trace(step, steps=1, held=[network])
    return found.peak_bytes - found.persistent_bytes


@pytest.mark.parametrize("name", ["compact", "rrdbnet", "span", "swinir_light", "attention"])
def test_the_prior_is_what_real_tensors_take(name: str) -> None:
    small = {"rrdbnet": {"num_block": 1}, "swinir_light": {"depths": [2], "num_heads": [6]}}
    network = Attention() if name == "attention" else ARCHS.get(name)(**small.get(name, {}))
    network = network.eval().requires_grad_(False)
    prior = forward_prior(as_pixels, network, 3, (32, 48, 64), device=CPU)
    assert prior.bytes(1, 56) == pytest.approx(real_bytes(network, 56), rel=0.01)


def test_the_network_is_left_as_it_is() -> None:
    network = ARCHS.get("compact")().eval()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    forward_prior(as_pixels, network, 3, SIDES, device=CPU)
    assert all(torch.equal(before[name], tensor) for name, tensor in network.state_dict().items())
    assert network(torch.zeros(1, 3, 8, 8)).shape == (1, 3, 32, 32)


def test_a_network_whose_size_follows_data_is_refused() -> None:
    class Sparse(nn.Module):
        def forward(self, image: Tensor) -> Tensor:
            return image * image.nonzero().shape[0]

    with pytest.raises(TraceError, match="depends on data"):
        forward_prior(as_pixels, Sparse(), 3, SIDES, device=CPU)
