"""Schedule-free optimizers: their steps and their average, against formulas written out and the package."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import schedulefree
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from trainauto.core.errors import InputError
from trainauto.optim import OPTIMIZERS
from trainauto.optim.optimizers import settings_of
from trainauto.optim.schedule_free import AdanScheduleFree, ScheduleFreeAverage, take_settings

STEPS = 60


def gradient_at(weight: Tensor, step: int) -> Tensor:
    """Return a gradient that depends on the weights and is noisy, in float64."""
    noise = torch.randn(weight.shape, generator=torch.Generator().manual_seed(step), dtype=torch.float64)
    return torch.sin(3 * weight) + 0.5 * weight + 0.3 * noise


@pytest.mark.parametrize(
    ("arguments", "rates"),
    [
        ({}, lambda _step: 1e-2),
        ({"weight_decay": 0.1, "warmup_steps": 10, "betas": (0.9, 0.8, 0.95)}, lambda _step: 5e-3),
        ({"r": 1.5, "weight_lr_power": 1.0, "betas": (0.98, 0.0, 0.99)}, lambda step: 1e-2 / (1 + step % 7)),
    ],
)
def test_adan_is_its_formula(arguments: dict[str, Any], rates: Callable[[int], float]) -> None:
    """With ``x``, ``y`` and ``z`` each computed for itself, in float64."""
    beta1, beta2, beta3 = arguments.get("betas", (0.98, 0.92, 0.99))
    start = torch.linspace(-2, 2, 12, dtype=torch.float64).reshape(3, 4)
    network = nn.ParameterList([nn.Parameter(start.clone())])
    optimizer = AdanScheduleFree(network.parameters(), **arguments)
    average = ScheduleFreeAverage(network, lambda: optimizer)

    x, y, z = start.clone(), start.clone(), start.clone()
    v, n, before = torch.zeros_like(x), torch.zeros_like(x), None
    weights, highest = 0.0, 0.0
    for step in range(1, STEPS + 1):
        rate = rates(step)
        optimizer.param_groups[0]["lr"] = rate
        network[0].grad = gradient_at(network[0].detach(), step)
        optimizer.step()
        average.update(network)

        rate *= min(1.0, step / max(1, arguments.get("warmup_steps", 0)))
        g = gradient_at(y, step)
        d = torch.zeros_like(g) if before is None else g - before
        v = beta2 * v + (1 - beta2) * d
        n = beta3 * n + (1 - beta3) * (g + beta2 * d) ** 2
        u = (g + beta2 * v / (1 - beta2**step)) / ((n / (1 - beta3**step)).sqrt() + 1e-8)
        z = z - rate * (u + arguments.get("weight_decay", 0.0) * y)
        highest = max(highest, rate)
        weight = step ** arguments.get("r", 0.0) * highest ** arguments.get("weight_lr_power", 2.0)
        weights += weight
        x = (1 - weight / weights) * x + weight / weights * z
        y, before = (1 - beta1) * z + beta1 * x, g

        torch.testing.assert_close(network[0].detach(), y, rtol=1e-9, atol=1e-11)
        torch.testing.assert_close(average.network[0].detach(), x, rtol=1e-9, atol=1e-11)
    assert float((y - start).abs().min()) > 1e-3


def test_adan_takes_a_closure_and_leaves_weights_without_gradients() -> None:
    first, second = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))
    optimizer = OPTIMIZERS.get("adan_sf")([first, second], lr=0.1)

    def loss() -> float:
        first.grad = torch.ones(3)
        return 2.5

    assert optimizer.step(loss) == 2.5
    assert float(first.detach().max()) < 1.0
    assert torch.equal(second.detach(), torch.ones(3))
    assert second not in optimizer.state
    with pytest.raises(RuntimeError, match="failed"):
        optimizer.step(_fails)


def _fails() -> float:
    raise RuntimeError("failed")


@pytest.mark.parametrize(
    "arguments",
    [
        {"betas": (0.0, 0.9, 0.99)},
        {"betas": (0.9, 1.0, 0.99)},
        {"lr": -1.0},
        {"lr": float("nan")},
        {"warmup_steps": -1},
    ],
)
def test_adan_refuses_what_is_out_of_range(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(arguments))):
        AdanScheduleFree([nn.Parameter(torch.ones(1))], **arguments)


@pytest.mark.parametrize("kind", ["AdamWScheduleFree", "RAdamScheduleFree", "SGDScheduleFree"])
def test_the_average_is_that_of_the_package(kind: str) -> None:
    """As its optimizers switch to in evaluation; weights in training and buffers stay what they are."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 1))
    network[0].bias.requires_grad_(False)
    optimizer: Any = OPTIMIZERS.get(kind)((one for one in network.parameters() if one.requires_grad), lr=0.05)
    average = ScheduleFreeAverage(network, lambda: optimizer)
    average.update(network)
    assert all(map(torch.equal, average.network.parameters(), network.parameters()))
    for _ in range(10):
        optimizer.zero_grad()
        network(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
        average.update(network)
    in_training = [weight.detach().clone() for weight in network.parameters()]
    average.update(network)  # once more: the same
    assert all(map(torch.equal, in_training, network.parameters()))
    optimizer.eval()
    for mine, theirs in zip(average.network.parameters(), network.parameters(), strict=True):
        torch.testing.assert_close(mine.detach(), theirs.detach(), rtol=1e-6, atol=1e-7)
    assert any(not torch.equal(one, other) for one, other in zip(in_training, network.parameters(), strict=True))
    assert all(map(torch.equal, average.network.buffers(), network.buffers()))
    assert not average.network.training
    assert not any(one.requires_grad for one in average.network.parameters())


def test_optimizers_of_the_package_train_from_the_start() -> None:
    """The package's own would refuse a step before ``train()`` is called."""
    made = [OPTIMIZERS.get(name)([nn.Parameter(torch.ones(1))]) for name in ("AdamWScheduleFree", "adamw_sf")]
    for optimizer in made:
        assert isinstance(optimizer, schedulefree.AdamWScheduleFree)
        assert optimizer.param_groups[0]["train_mode"]
    with pytest.raises(ValueError, match=r"betas\[0\] of AdamWScheduleFree must be above 0"):
        OPTIMIZERS.get("AdamWScheduleFree")([nn.Parameter(torch.ones(1))], betas=(0.0, 0.999))
    with pytest.raises(ValueError, match="Momentum must be between 0 and 1"):
        OPTIMIZERS.get("SGDScheduleFree")([nn.Parameter(torch.ones(1))], momentum=0.0)


def test_a_package_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "schedulefree", None)
    with pytest.raises(InputError, match=r"(?s)AdamWScheduleFree is an optimizer of the package schedulefree.*\]"):
        OPTIMIZERS.get("adamw_sf")
    assert issubclass(OPTIMIZERS.get("AdanScheduleFree"), Optimizer)  # type: ignore[arg-type]


def test_the_average_falls_behind_the_steps() -> None:
    """And nears them: ``x`` moves by less than ``z`` does in one step."""
    network = nn.ParameterList([nn.Parameter(torch.full((4,), 5.0))])
    optimizer = AdanScheduleFree(network.parameters(), lr=0.1)
    average = ScheduleFreeAverage(network, lambda: optimizer)
    seen = []
    for _ in range(30):
        network[0].grad = network[0].detach().clone()
        optimizer.step()
        average.update(network)
        seen.append((float(average.network[0][0]), float(optimizer.state[network[0]]["z"][0])))
    assert all(later[0] < earlier[0] for earlier, later in pairwise(seen))
    assert seen[-1][1] < seen[-1][0] < 5.0


@pytest.mark.parametrize(
    ("kind", "before", "now"),
    [
        ("AdanScheduleFree", {"betas": (0.98, 0.92, 0.99)}, {"betas": (0.5, 0.92, 0.99)}),
        ("AdamWScheduleFree", {"betas": (0.9, 0.999)}, {"betas": (0.95, 0.999)}),
        ("SGDScheduleFree", {"momentum": 0.9}, {"momentum": 0.6}),
    ],
)
def test_another_interpolation_moves_the_weights_in_training(
    kind: str, before: dict[str, Any], now: dict[str, Any]
) -> None:
    """As a resume with another option file has it: the average and the steps stay what they are."""
    network = nn.ParameterList([nn.Parameter(torch.linspace(-1, 1, 6, dtype=torch.float64))])
    optimizer = OPTIMIZERS.get(kind)(network.parameters(), lr=0.05, **before)
    average = ScheduleFreeAverage(network, lambda: optimizer)
    for step in range(8):
        network[0].grad = gradient_at(network[0].detach(), step)
        optimizer.step()
    average.update(network)
    result, in_training = average.network[0].detach().clone(), network[0].detach().clone()
    take_settings(optimizer, settings_of(OPTIMIZERS.get(kind)([nn.Parameter(torch.ones(1))], lr=0.01, **now)))
    average.update(network)
    torch.testing.assert_close(average.network[0].detach(), result, rtol=1e-9, atol=1e-12)
    assert not torch.equal(network[0].detach(), in_training)
    assert optimizer.param_groups[0]["lr"] == 0.01


def test_no_rate_at_all_moves_nothing() -> None:
    weight = nn.Parameter(torch.ones(3))
    optimizer = AdanScheduleFree([weight], lr=0.0, weight_lr_power=-1.0)
    weight.grad = torch.ones(3)
    optimizer.step()
    assert torch.equal(weight.detach(), torch.ones(3))


def test_tested_optimizers_are_listed_and_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {"Adam", "AdamWScheduleFree", "AdanScheduleFree", "Muon", "Prodigy"} <= set(OPTIMIZERS.offered())
    for name in OPTIMIZERS.offered():
        assert OPTIMIZERS.shown(name.lower()) == name
    assert OPTIMIZERS.shown("adan_sf") == "AdanScheduleFree"
    assert OPTIMIZERS.shown("adamw_sf") == "AdamWScheduleFree"
    from trainauto.commands.run_list import describe_component, list_components

    assert "betas" in describe_component("optimizer", "adamwschedulefree", json=False)
    monkeypatch.setitem(__import__("sys").modules, "schedulefree", None)
    assert "schedulefree, which is not installed" in list_components("optimizer", "optimizers", json=False)
