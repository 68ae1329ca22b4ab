"""A resume of a loop of one's own draws what a run without the break draws."""

import io
import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import TensorDataset

from trainauto import AdaptiveLoop, ModelObjective, Range
from trainauto.engine.random_state import random_state_on, set_random_state_on

SAMPLES = 20


class Noisy:
    """A network with dropout whose loss mixes samples by all generators that training uses."""

    def __init__(self, seed: int = 0) -> None:
        torch.manual_seed(seed)
        np.random.seed(seed)
        random.seed(seed)
        self.net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3))
        self.adam = torch.optim.AdamW(self.net.parameters(), 0.01)
        made = torch.Generator().manual_seed(1)
        self.dataset = TensorDataset(torch.randn(SAMPLES, 4, generator=made), torch.arange(SAMPLES) % 3)
        objective = ModelObjective("fit", self.adam, self.loss)
        self.loop = AdaptiveLoop(self.net, objective, self.dataset, batch_size=6)

    def loss(self, model: Any, batch: Any) -> Tensor:
        mixed = batch[0] * np.random.beta(2, 2) + random.random() * torch.rand_like(batch[0])
        return functional.cross_entropy(model(mixed), batch[1])

    def train(self, epochs: int) -> None:
        for batch in self.loop.batches(epochs):
            self.loop.step(batch)

    def states(self) -> bytes:
        file = io.BytesIO()
        parts = {"loop": self.loop, "model": self.net, "optimizer": self.adam}
        torch.save({name: part.state_dict() for name, part in parts.items()}, file)
        return file.getvalue()

    def load(self, states: bytes) -> None:
        saved = torch.load(io.BytesIO(states), weights_only=True)
        self.loop.load_state_dict(saved["loop"])
        self.net.load_state_dict(saved["model"])
        self.adam.load_state_dict(saved["optimizer"])

    def weights(self) -> Tensor:
        return torch.cat([weight.detach().flatten() for weight in self.net.parameters()])


def test_a_resume_draws_what_a_run_without_a_break_draws() -> None:
    whole = Noisy()
    whole.train(2)
    states = whole.states()
    whole.train(4)
    resumed = Noisy(seed=5)
    resumed.load(states)
    resumed.train(4)
    assert torch.equal(resumed.weights(), whole.weights())


def test_what_happens_before_the_first_batch_draws_nothing() -> None:
    """Memory is predicted by running the loss, here by steps that are measured: it uses the live model."""
    task = Noisy()
    live = ModelObjective("fit", task.adam, lambda _, batch: task.loss(task.net, batch))
    loop = AdaptiveLoop(task.net, live, task.dataset, batch_size=Range(2, 6))
    loop.training.limit_bytes = 2**40
    drawn = random_state_on([])
    next(loop.batches())
    set_again = random_state_on([])
    assert torch.equal(set_again["torch"], drawn["torch"])
    assert torch.equal(set_again["numpy"][1], drawn["numpy"][1])
    assert set_again["python"] == drawn["python"]


def test_states_without_generators_and_of_other_devices_are_told(caplog: pytest.LogCaptureFixture) -> None:
    task = Noisy()
    task.train(1)
    state = task.loop.state_dict()
    Noisy().loop.load_state_dict(state)
    assert not caplog.text
    Noisy().loop.load_state_dict({name: value for name, value in state.items() if name != "random"})
    assert caplog.text.count("the state holds no random generators") == 1
    elsewhere = {**state["random"], "devices": [["cuda", torch.zeros(16, dtype=torch.uint8)]] * 2}
    Noisy().loop.load_state_dict({**state, "random": elsewhere})
    assert "the state holds random generators of 2 x cuda, not the CPU alone" in caplog.text


def test_generators_of_the_host_are_taken_back() -> None:
    state = random_state_on([])
    drawn = (random.random(), np.random.rand(), torch.rand(()).item())
    assert not set_random_state_on([], state)
    assert (random.random(), np.random.rand(), torch.rand(()).item()) == drawn
