"""Gradient checkpointing: the same results, from less that is kept."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from tests.unit.engine.test_snapshot import fail_for_real
from tests.unit.engine.test_step import batch_of, step
from trainauto.engine.step import StepSettings
from trainauto.models import SRModel
from trainauto.models.activation_checkpointing import (
    ActivationCheckpointingError,
    blocks_of,
    segments_of,
    switch_off,
    switch_on,
)
from trainauto.optim.precision import Precision
from trainauto.tasks.sr.archs import ARCHS
from trainauto.tasks.sr.archs.spectral_norm import SpectralNormConv2d

CPU = torch.device("cpu")


class Block(nn.Module):
    """A block with everything that a second run could get wrong: statistics, a spectral norm, random numbers."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(features, features, 3, padding=1)
        self.norm = nn.BatchNorm2d(features)
        self.spectral = SpectralNormConv2d(features, features, 3, 1, 1)
        self.drop = nn.Dropout(0.3)
        self.register_buffer("constant", torch.ones(5))
        self.runs = 0

    def forward(self, features: Tensor, *, gain: Tensor) -> tuple[Tensor, int]:
        self.runs += 1
        return features + gain * self.drop(self.spectral(F.gelu(self.norm(self.conv(features))))), 7


class Net(nn.Module):
    """Blocks, one of which is used twice before gradients are computed, between convolutions."""

    def __init__(self, features: int = 6, scale: int = 2) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, features, 3, padding=1)
        self.gain = nn.Parameter(torch.tensor(0.5))
        self.blocks = nn.ModuleList(Block(features) for _ in range(3))
        self.last = nn.Sequential(nn.Conv2d(features, 3 * scale**2, 3, padding=1), nn.PixelShuffle(scale))

    def forward(self, image: Tensor) -> Tensor:
        features = self.first(image)
        for block in (*self.blocks, self.blocks[0]):
            features, _ = block(features, gain=self.gain)
        return self.last(features)


def chain(*, inplace: bool = False, layers: int = 6) -> nn.Sequential:
    torch.manual_seed(0)
    links: list[nn.Module] = [nn.Conv2d(3, 8, 3, padding=1)]
    for _ in range(layers):
        links += [nn.BatchNorm2d(8), nn.LeakyReLU(0.1, inplace=inplace), nn.Conv2d(8, 8, 3, padding=1)]
    return nn.Sequential(*links, nn.Conv2d(8, 12, 3, padding=1), nn.PixelShuffle(2))


def small(name: str, **arguments: Any) -> Callable[[], nn.Module]:
    return lambda: ARCHS.get(name)(scale=2, **arguments)


SWIN = {"embed_dim": 12, "depths": [2, 2], "num_heads": [2, 2], "window_size": 4, "img_size": 8, "drop_path_rate": 0.3}
NETWORKS: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "compact": (small("compact", num_feat=8, num_conv=6), "4 segments of a chain of 15 layers"),
    "compact in place": (small("compact", num_feat=8, num_conv=6, act_type="leakyrelu"), "4 segments of"),
    "rrdbnet": (small("rrdbnet", num_feat=8, num_grow_ch=4, num_block=3), "3 RRDB"),
    "span": (small("span", feature_channels=6), "6 SPAB"),
    "spanplus": (small("spanplus", feature_channels=4, blocks=[1]), "3 SPAB"),
    "swinir": (small("swinir_light", **SWIN), "4 SwinBlock"),
    "own": (Net, "3 Block"),
    "chain": (chain, "5 segments of a chain of 21 layers"),
    "chain in place": (lambda: chain(inplace=True), "4 segments of a chain of 21 layers"),
}


def model(build: Callable[[], nn.Module], dtype: torch.dtype = torch.float32) -> SRModel:
    torch.manual_seed(1)
    network = build()
    make = lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9)  # noqa: E731
    return SRModel(network, {"l1": nn.L1Loss()}, make, Precision(CPU, dtype), ema_decay=0.9)


def state(model: SRModel) -> dict[str, Tensor]:
    averaged = model.averages["net_g"].network.state_dict()
    own = model.networks["net_g"].state_dict()
    return {name: tensor.clone() for name, tensor in {**own, **{f"ema {k}": v for k, v in averaged.items()}}.items()}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_three_steps_give_the_same_weights_and_buffers(name: str, dtype: torch.dtype) -> None:
    build, words = NETWORKS[name]
    plain, checked = model(build, dtype), model(build, dtype)
    before = checked.networks["net_g"].state_dict()
    assert not checked.checkpoints_gradients
    blocks = checked.checkpoint_gradients()
    assert str(blocks["net_g"]).startswith(words)
    assert checked.checkpoints_gradients
    assert checked.checkpoint_gradients() == blocks  # once more changes nothing
    assert list(checked.networks["net_g"].state_dict()) == list(before)
    splits = not any(isinstance(module, nn.BatchNorm2d) for module in plain.networks["net_g"].modules())
    for one in (plain, checked):
        torch.manual_seed(2)
        for seed in range(3):
            step(one, batch_of(4, micro=2 if splits else 1, seed=seed), StepSettings(max_norm=0.1))
    want, found = state(plain), state(checked)
    assert want.keys() == found.keys()
    # oneDNN may choose another order of sums for a tensor at another address; exact otherwise.
    torch.testing.assert_close(found, want, rtol=1e-5, atol=1e-7)
    for key, tensor in want.items():
        if "running" in key or "num_batches" in key:
            assert torch.equal(found[key], tensor), key


@pytest.mark.parametrize("name", NETWORKS)
def test_some_parts_alone_run_again_and_the_rest_can_follow(name: str) -> None:
    build, _ = NETWORKS[name]
    plain, checked = model(build, torch.float32), model(build, torch.float32)
    parts = list(checked.parts_to_checkpoint())
    assert len(parts) > 1
    paths = dict(checked.networks["net_g"].named_modules())
    for part in checked.parts_to_checkpoint().values():
        assert all(paths[path] is module for path, module in part.modules.items())
    checked.checkpoint_gradients(parts[1:2])
    assert checked.checkpointed_parts() == parts[1:2]
    assert list(checked.parts_to_checkpoint()) == parts
    assert not checked.checkpoints_gradients
    for one in (plain, checked):
        torch.manual_seed(2)
        step(one, batch_of(4, micro=1, seed=0), StepSettings())
    torch.testing.assert_close(state(checked), state(plain), rtol=1e-5, atol=1e-7)
    checked.checkpoint_gradients()
    assert checked.checkpointed_parts() == parts
    assert checked.checkpoints_gradients
    switch_off(checked.networks["net_g"])
    assert checked.checkpointed_parts() == []
    with pytest.raises(ActivationCheckpointingError, match=r"no block is called 'net_g\.nothing'"):
        checked.checkpoint_gradients(["net_g.nothing"])


def test_blocks_run_again_in_training_only() -> None:
    network = Net()
    switch_on(network)
    network(torch.rand(1, 3, 8, 8)).mean().backward()
    assert [block.runs for block in network.blocks] == [4, 2, 2]
    with torch.no_grad():
        network(torch.rand(1, 3, 8, 8))
    network.eval()
    network(torch.rand(1, 3, 8, 8)).mean().backward()
    assert [block.runs for block in network.blocks] == [8, 4, 4]


def test_copies_are_networks_of_their_own() -> None:
    network = Net()
    switch_on(network)
    network(torch.rand(1, 3, 8, 8)).mean().backward()
    duplicate = copy.deepcopy(network)
    untouched = {name: buffer.clone() for name, buffer in network.named_buffers()}
    duplicate(torch.rand(1, 3, 8, 8)).mean().backward()
    assert all(torch.equal(buffer, untouched[name]) for name, buffer in network.named_buffers())
    moved = {name for name, buffer in duplicate.named_buffers() if not torch.equal(buffer, untouched[name])}
    assert {name.split(".", 2)[2] for name in moved} >= {"norm.running_mean", "spectral.weight_u"}


def test_running_out_of_memory_in_the_second_run_can_be_repeated() -> None:
    """The failure is in a block's backward pass, while its buffers are those of the first run."""

    class Failing(Block):
        largest, failures = 4, 0

        def forward(self, features: Tensor, *, gain: Tensor) -> tuple[Tensor, int]:
            if self.training and torch._C._current_graph_task_id() != -1 and features.shape[0] > self.largest:
                self.failures += 1
                fail_for_real()
            return super().forward(features, gain=gain)

    def build() -> nn.Module:
        network = Net()
        network.blocks = nn.ModuleList(Failing(6) for _ in range(3))
        for block in network.blocks:
            block.norm = nn.GroupNorm(2, 6)  # statistics of a batch would keep it from being split
        return network

    failing, split = model(build), model(build)
    for one, micro in ((failing, 1), (split, 2)):
        one.checkpoint_gradients()
        torch.manual_seed(3)
        outcome = step(one, batch_of(8, micro=micro))
        assert len(outcome.failures) == (one is failing)
        assert sum(block.failures for block in one.networks["net_g"].blocks) == (one is failing)
    torch.testing.assert_close(state(failing), state(split), rtol=1e-6, atol=0)


def test_a_block_that_overwrites_its_input_is_refused() -> None:
    blocks = [nn.Sequential(nn.ReLU(inplace=True), nn.Sequential(nn.Conv2d(3, 3, 1))) for _ in range(3)]
    network = nn.Sequential(nn.Conv2d(3, 3, 1), nn.Sequential(*blocks))
    switch_on(network)
    with pytest.raises(ActivationCheckpointingError, match="a block of class Sequential overwrites its input"):
        network(torch.rand(1, 3, 4, 4))


# --- which blocks ---


def test_networks_without_blocks_are_refused() -> None:
    with pytest.raises(ActivationCheckpointingError, match="UNetDiscriminatorSN has no list of repeated blocks"):
        switch_on(ARCHS.get("unetdiscriminatorsn")(num_feat=4))


def test_a_network_may_name_its_blocks() -> None:
    network = Net()
    network.checkpoint_blocks = [network.first]  # type: ignore[assignment]
    assert blocks_of(network).modules == (network.first,)
    for wrong in ([], [nn.Conv2d(1, 1, 1)], [network]):
        network.__dict__["checkpoint_blocks"] = wrong
        with pytest.raises(
            ActivationCheckpointingError, match="checkpoint_blocks of Net must name modules of the network"
        ):
            blocks_of(network)


def test_blocks_with_attention_are_not_given_up_for_the_chain_inside_them() -> None:
    def layer() -> nn.Module:
        return nn.TransformerEncoderLayer(16, 2, 256)

    network = nn.Sequential(nn.Linear(16, 16), nn.Sequential(*(layer() for _ in range(3))), nn.ModuleList([nn.ReLU()]))
    assert str(blocks_of(network)) == "3 TransformerEncoderLayer"


@given(st.lists(st.booleans(), min_size=7, max_size=200))
def test_segments_cover_a_chain_and_begin_with_no_overwriting(inplace: list[bool]) -> None:
    layers = [nn.ReLU(inplace=one) for one in inplace]
    segments = segments_of(layers)
    assert [position for start, stop in segments for position in range(start, stop)] == list(range(len(layers)))
    assert not any(layers[start].inplace for start, _ in segments[1:])
    if not any(inplace):
        longest = max(stop - start for start, stop in segments)
        assert len(segments) + longest <= 2 * len(layers) ** 0.5 + 2


def test_a_compiled_network_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda network, **_how: lambda image: network(image))
    compiled = SRModel(
        Net(), {"l1": nn.L1Loss()}, lambda p: torch.optim.SGD(p, lr=0.1), Precision(CPU), compile_network=True
    )
    with pytest.raises(ActivationCheckpointingError, match="with use_compile"):
        compiled.checkpoint_gradients()
    assert not compiled.checkpoints_gradients
