"""What is live at the peak of a traced step, by module (issue 42)."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from trainauto.memory.cuda_allocator.allocator import AllocationEvent
from trainauto.memory.tracing.fake_tensors import fake_world
from trainauto.memory.tracing.holders import Holder, Owner, PeakHolders, holders_at_peak
from trainauto.memory.tracing.libraries import Libraries
from trainauto.memory.tracing.trace import trace

KIB = 2**10


def events(*pairs: tuple[int, int]) -> list[AllocationEvent]:
    return [AllocationEvent(*pair) for pair in pairs]


def test_layers_of_one_place_are_added_up_at_the_moment_of_the_peak() -> None:
    owners = {1: Owner("Net.layers.0.mlp", "weights"), 2: Owner("Net.layers.1.mlp", "weights"), 3: Owner("", "other")}
    step = events((3, 50), (3, 0), (4, 90), (5, 10), (4, 0))
    found = holders_at_peak(events((1, 30), (2, 40)), step, [(0, "forward"), (3, "backward")], owners)
    assert (found.phase, found.peak_bytes) == ("backward", 170)
    assert found.holders == (
        Holder("", "workspaces", 1, 100),
        Holder("Net.layers.*.mlp", "weights", 2, 70),
    )
    assert PeakHolders.from_dict(found.to_dict()) == found


class Net(nn.Module):
    """Two layers; backward computes the second again."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(*(nn.Linear(64, 64) for _ in range(6))) for _ in range(2))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.layers[1], self.layers[0](rows), use_reentrant=False)


def test_a_step_tells_weights_states_gradients_and_activations_by_module() -> None:
    with fake_world():
        net = Net()
        adam = torch.optim.Adam(net.parameters())

        def step() -> None:
            adam.zero_grad()
            net(torch.ones(512, 64)).sum().backward()
            adam.step()

        found = trace(step, held=[net, adam], libraries=Libraries(8 * KIB), by_module=True)
    held = found.held_at_peak
    assert held is not None
    assert held.peak_bytes == found.peak_bytes == sum(holder.size_bytes for holder in held.holders)
    by_kind = {(holder.module, holder.kind): holder for holder in held.holders}
    linear = (64 * 64 + 64) * 4
    assert by_kind["Net.layers.*.*", "weights"] == Holder("Net.layers.*.*", "weights", 12, 12 * linear)
    states = by_kind["Net.layers.*.*", "optimizer state"]
    assert 24 * linear <= states.size_bytes <= 24 * linear + 24 * 8
    assert by_kind["", "workspaces"].size_bytes == 2 * 8 * KIB
    kinds = {kind for _, kind in by_kind}
    assert {"activations", "recomputed activations"} <= kinds
    assert trace(step, held=[net, adam]).held_at_peak is None
