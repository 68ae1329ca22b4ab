"""The samples and the loader of a loop of one's own: their order, their sizes, their bounds, and what is refused."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.unit.integrations.test_adaptive_loop import OUT_OF_MEMORY, SAMPLES, Numbered, Regression, trained
from trainauto import AdaptiveLoop, ModelObjective, Range
from trainauto.core.errors import InputError


@pytest.mark.parametrize("options", [{"batch_size": 8}, {"batch_size": None, "tokens": 40, "lengths": [4] * SAMPLES}])
def test_the_order_of_samples_follows_the_seed(options: dict[str, Any]) -> None:
    orders = []
    for seed in (0, 0, 1):
        task = Regression()
        trained(task, 1, seed=seed, **options)
        orders.append(task.seen)
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == sorted(orders[2])


@pytest.mark.parametrize(("values", "samples"), [(4, 4), (Range(4, 6), 6), (Range(16, 32, minimum=16), 16)])
def test_a_resume_keeps_to_the_bounds_of_now(values: Any, samples: int) -> None:
    task = Regression()
    loop = AdaptiveLoop(task.net, task.objective(), Numbered(), batch_size=12)
    loop.step(next(loop.batches()))
    resumed = AdaptiveLoop(task.net, task.objective(), Numbered(), batch_size=values)
    resumed.load_state_dict(loop.state_dict())
    steps = [resumed.step(batch) for batch in resumed.batches(1)]
    assert steps[0].samples == samples
    assert sorted(task.seen) == list(range(SAMPLES))


def test_a_state_of_what_grows_otherwise_is_told() -> None:
    task = Regression()
    loop = AdaptiveLoop(task.net, task.objective(), Numbered(), batch_size=8)
    state = loop.state_dict()
    state["loader"]["plan"] = {"tokens": 8, "micro_batches": 1}
    with pytest.raises(InputError, match=r"the state is of a loop with tokens 8.*: this one grows batch_size"):
        loop.load_state_dict(state)


def test_building_a_loop_draws_no_random_numbers() -> None:
    class Noisy(Numbered):
        def __getitem__(self, index: int) -> tuple[Tensor, ...]:
            return super().__getitem__(index)[0] + torch.rand(4), torch.rand(1)

    task = Regression()
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    AdaptiveLoop(task.net, task.objective(), Noisy(), batch_size=8)
    assert torch.equal(torch.rand(3), expected)


def test_samples_that_begin_at_their_largest_are_cut_whole() -> None:
    """Every picture of a sample is, whatever its scale: their sizes cannot be told apart at one size alone."""

    def pair(sample: Any, size: int) -> dict[str, Tensor]:
        return {"low": torch.ones(1, size), "high": torch.ones(1, 2 * size)}

    seen = []

    def loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        seen.append((batch["low"].shape[-1], batch["high"].shape[-1]))
        if batch["low"].numel() > 24:
            raise torch.OutOfMemoryError(OUT_OF_MEMORY)
        return (model(torch.ones(1)) * batch["high"].mean()).mean()

    net = nn.Linear(1, 1)
    objective = ModelObjective("fit", torch.optim.SGD(net.parameters(), 0.1), loss, splittable=False)
    loop = AdaptiveLoop(
        net, objective, Numbered(4), batch_size=1, size=Range(64, 64, minimum=16, multiple=8), resize=pair
    )
    for batch in loop.batches(1):
        loop.step(batch)
    assert seen[0] == (64, 128)
    assert seen[-1][0] <= 24
    assert all(high == 2 * low for low, high in seen)


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"batch_size": None, "tokens": 64, "lengths": [0] + [4] * 49}, "sample 0 has a length of 0"),
    ({"memory_budget": 2**26}, "memory_budget is 67108864: write it with its unit"),
    ({"num_workers": -1}, "num_workers is -1"),
    ({"settings": {"policy": "leap"}}, "settings: policy is 'leap'; there are jump, step"),
    ({"settings": {"objective": "speed"}}, "settings: objective is 'speed'; there are memory, throughput"),
]


@pytest.mark.parametrize(("wrong", "message"), MISTAKES)
def test_what_cannot_be_used_is_told_before_anything_runs(wrong: dict[str, Any], message: str) -> None:
    task = Regression()
    with pytest.raises(InputError, match=message):
        AdaptiveLoop(task.net, task.objective(), Numbered(), **{"batch_size": 8, **wrong})
