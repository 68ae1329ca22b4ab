"""What a loss of one's own is a mean over: any number of at least 0, against plain PyTorch."""

import logging
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import TensorDataset

from trainauto import AdaptiveLoop, ModelObjective
from trainauto.core.errors import InputError

SAMPLES, CLASSES = 16, 3
OUT_OF_MEMORY = "CUDA out of memory. Tried to allocate 1.00 GiB."


class Weighted:
    """A network whose classes weigh differently, stepped by a loop and by hand."""

    def __init__(self, weights: list[float], most: int = SAMPLES, labels: int | None = None) -> None:
        made = torch.Generator().manual_seed(1)
        features = torch.randn(SAMPLES, 4, generator=made).double()
        classes = torch.randint(0, CLASSES, (SAMPLES,), generator=made)
        self.dataset = TensorDataset(features, classes if labels is None else torch.full_like(classes, labels))
        self.weights, self.most = torch.tensor(weights).double(), most
        torch.manual_seed(0)
        self.net, self.by_hand = nn.Linear(4, CLASSES).double(), nn.Linear(4, CLASSES).double()
        self.by_hand.load_state_dict(self.net.state_dict())
        self.optimizer = torch.optim.AdamW(self.net.parameters(), 0.1)

    def loss(self, model: Any, batch: Any) -> Tensor:
        if len(batch[0]) > self.most:
            raise torch.OutOfMemoryError(OUT_OF_MEMORY)
        return functional.cross_entropy(model(batch[0]), batch[1], weight=self.weights)

    def weigh(self, batch: Any) -> Tensor:
        return self.weights[batch[1]].sum()

    def loop(self, **options: Any) -> AdaptiveLoop:
        objective = ModelObjective("fit", self.optimizer, self.loss)
        return AdaptiveLoop(
            self.net, objective, self.dataset, **{"batch_size": SAMPLES, "weigh": self.weigh, **options}
        )

    def change(self) -> Tensor:
        return (self.net.weight - self.by_hand.weight).detach()


@pytest.mark.parametrize("weights", [[0.05, 0.9, 0.3], [0.005, 0.09, 0.03], [1e-9, 0.0, 3e-9], [7.5, 1.25, 1e6]])
@pytest.mark.parametrize("most", [SAMPLES, 5, 1])
def test_gradients_are_those_of_the_whole_batch(weights: list[float], most: int) -> None:
    task = Weighted(weights, most)
    loop = task.loop()
    adam = torch.optim.AdamW(task.by_hand.parameters(), 0.1)
    for batch in loop.batches(3):
        step = loop.step(batch)
        adam.zero_grad()
        features, classes = loop.contents(batch)
        whole = functional.cross_entropy(task.by_hand(features), classes, weight=task.weights)
        whole.backward()
        adam.step()
        assert step.losses["loss"] == pytest.approx(whole.item(), rel=1e-6)
        assert step.trained
    torch.testing.assert_close(task.net.weight, task.by_hand.weight, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("scaled", [False, True])
def test_a_step_that_weighs_nothing_trains_nothing_and_says_so(scaled: bool, caplog: pytest.LogCaptureFixture) -> None:
    """Neither decay nor momentum moves weights then."""
    task = Weighted([0.0, 1.0, 1.0], labels=0)
    scaler = torch.amp.GradScaler("cpu", enabled=True) if scaled else None
    loop = AdaptiveLoop(
        task.net,
        ModelObjective("fit", task.optimizer, task.loss, scaler=scaler),
        task.dataset,
        batch_size=8,
        weigh=task.weigh,
    )
    caplog.set_level(logging.WARNING, "trainauto")
    steps = [loop.step(batch) for batch in loop.batches(1)]
    assert [(step.trained, dict(step.losses), step.samples) for step in steps] == [(False, {}, 8)] * 2
    assert (loop.epoch, loop.progress.samples, task.change().abs().max().item()) == (1, SAMPLES, 0)
    assert caplog.text.count("trains nothing: all of its 8 samples have weight 0") == 1


@pytest.mark.parametrize(
    ("weigh", "message"),
    [
        (lambda _: -1, r"samples weigh -1.0, .*\n.*a finite number, 0 where samples have nothing"),
        (lambda _: float("nan"), "samples weigh nan"),
        (lambda _: torch.tensor(float("inf")), "samples weigh inf"),
        (lambda _: torch.ones(3), r"weigh returns a tensor of shape \(3,\)"),
        (lambda _: None, "weigh returns NoneType"),
    ],
)
def test_weights_that_cannot_be_are_refused(weigh: Any, message: str) -> None:
    task = Weighted([1.0, 1.0, 1.0])
    loop = task.loop(weigh=weigh)
    with pytest.raises(InputError, match=message):
        loop.step(next(loop.batches()))
    assert not task.change().any()
    assert loop.state_dict()["loader"]["given"] == 0  # nothing is lost: the batch comes again


@pytest.mark.parametrize(("weigh", "is_said"), [("mean", True), ("sum", False), ("one", False), ("two", True)])
def test_weights_that_are_no_sum_are_said_before_the_first_batch(
    weigh: str, is_said: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A mean of class weights trains eight times too much where a batch runs in eight parts."""
    weights = torch.tensor([0.5, 2.0])
    ways = {
        "mean": lambda batch: weights[batch[1]].mean(),
        "sum": lambda batch: weights[batch[1]].sum(),
        "one": lambda _batch: 1,
        "two": lambda _batch: 2,
    }
    model = torch.nn.Linear(2, 2)
    data = torch.utils.data.TensorDataset(torch.ones(8, 2), torch.ones(8, dtype=torch.long))
    AdaptiveLoop(
        model,
        ModelObjective("c", torch.optim.SGD(model.parameters(), 0.1), lambda m, b: m(b[0]).mean()),
        data,
        batch_size=4,
        weigh=ways[weigh],
    ).close()
    assert ("weigh returns" in caplog.text) == is_said
