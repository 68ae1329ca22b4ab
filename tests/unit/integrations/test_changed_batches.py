"""Losses and models that change what they are given, in loops of one's own and in a Trainer."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.trainers import Regression, Watched, points, watched, weights
from trainauto import AdaptiveLoop, ModelObjective, Range
from trainauto.core.plan import Plan
from trainauto.engine.probe import untrained_step
from trainauto.engine.run_errors import CannotRepeatError

OUT_OF_MEMORY = "CUDA out of memory. Tried to allocate 1.00 GiB."

Loss = Callable[[Any, Any], Tensor]


def normalized(model: nn.Module, batch: Any) -> Tensor:
    batch["x"].sub_(0.5).div_(2)
    return F.mse_loss(model(batch["x"]), batch["labels"])


def by_numpy(model: nn.Module, batch: Any) -> Tensor:
    view = batch["x"].numpy()
    view -= 0.5
    return F.mse_loss(model(batch["x"]), batch["labels"])


def untouched(model: nn.Module, batch: Any) -> Tensor:
    return F.mse_loss(model(batch["x"]), batch["labels"])


def limited(loss: Loss, most: int) -> Loss:
    """A loss that runs out of memory above so many samples, after it has changed them."""

    def run(model: nn.Module, batch: Any) -> Tensor:
        value = loss(model, batch)
        if len(batch["x"]) > most:
            raise torch.OutOfMemoryError(OUT_OF_MEMORY)
        return value

    return run


def network() -> nn.Module:
    return Regression().net


def adaptive(losses: Sequence[Loss], steps: int, splittable: bool | None = None) -> Tensor:
    """Return the weights that a loop gives after some batches of 6."""
    net = network()
    objectives = [
        ModelObjective(str(number), torch.optim.SGD(net.parameters(), 0.01), loss, splittable)
        for number, loss in enumerate(losses)
    ]
    with AdaptiveLoop(net, objectives, points(18), batch_size=Range(6, 6, 1) if splittable is False else 6) as loop:
        for batch in loop.batches(1):
            if not steps:
                break
            steps -= loop.step(batch).trained
    return weights(net)


def by_hand(losses: Sequence[Loss], steps: int, size: int = 6) -> Tensor:
    """Return those of a plain loop over the same samples."""
    drawn: list[dict[str, Tensor]] = []
    net = network()
    objective = ModelObjective("0", torch.optim.SGD(net.parameters(), 0.0), untouched)
    with AdaptiveLoop(net, objective, points(18), batch_size=6) as loop:
        for batch in loop.batches(1):
            leaves = loop.contents(batch)
            parts = [slice(start, start + size) for start in range(0, 6, size)]
            drawn += [{name: leaf[part].clone() for name, leaf in leaves.items()} for part in parts]
            loop.step(batch)
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    for batch in drawn[:steps]:
        for loss in losses:
            optimizer.zero_grad()
            loss(net, batch).backward()
            optimizer.step()
    return weights(net)


@pytest.mark.parametrize("loss", [normalized, by_numpy])
@pytest.mark.parametrize("most", [99, 3, 2])
def test_a_loop_of_ones_own_trains_what_a_plain_one_trains(loss: Loss, most: int) -> None:
    torch.testing.assert_close(adaptive([limited(loss, most)], 3), by_hand([loss], 3), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("first", "second"), [(99, 2), (2, 99), (3, 2)])
def test_objectives_share_what_the_first_has_changed(first: int, second: int) -> None:
    got = adaptive([limited(normalized, first), limited(normalized, second)], 2)
    torch.testing.assert_close(got, by_hand([normalized] * 2, 2), rtol=1e-9, atol=1e-12)


def test_what_comes_again_in_smaller_batches_comes_as_it_was() -> None:
    got = adaptive([limited(normalized, 3)], 2, splittable=False)
    torch.testing.assert_close(got, by_hand([normalized], 2, size=3), rtol=1e-9, atol=1e-12)


def test_a_batch_that_cannot_be_put_back_is_lost_in_words_and_the_loop_goes_on() -> None:
    calls = 0

    def later(model: nn.Module, batch: Any) -> Tensor:
        nonlocal calls
        calls += 1
        if calls == 1:
            return untouched(model, batch)
        return limited(normalized, 3)(model, batch)

    net = network()
    objective = ModelObjective("fit", torch.optim.SGD(net.parameters(), 0.01), later)
    seen: list[Any] = []
    with AdaptiveLoop(net, objective, points(18), batch_size=6) as loop:
        for batch in loop.batches(1):
            before = weights(net).clone()
            try:
                seen.append(loop.step(batch).trained)
            except CannotRepeatError as error:
                seen.append(str(error))
                assert torch.equal(weights(net), before)
            if len(seen) == 3:
                break
    assert seen[::2] == [True, True]
    assert "changed x of its batch in place" in seen[1]
    assert loop.progress.samples == 12


class Averaging(nn.Module):
    """Follows its own weights and assigns a buffer in every forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.net = network()
        self.teacher = network().requires_grad_(False)
        self.register_buffer("mean", torch.zeros(4, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        for mine, other in zip(self.teacher.parameters(), self.net.parameters(), strict=True):
            mine.data = mine.data * 0.5 + other.data * 0.5 + 0.1
        self.mean = self.mean * 0.5 + x.mean(0)
        return self.net(x) + self.teacher(x + self.mean)


def test_measuring_changes_nothing_of_what_forward_changes() -> None:
    model = Averaging()
    objective = ModelObjective("fit", torch.optim.SGD(model.net.parameters(), 0.01), normalized)
    loop = AdaptiveLoop(model, objective, points(18), batch_size=6)
    before = {name: tensor.clone() for name, tensor in (*model.named_parameters(), *model.named_buffers())}
    for samples in (1, 4, 4):
        untrained_step(loop.training, Plan.of(batch_size=samples))
    after = dict((*model.named_parameters(), *model.named_buffers()))
    assert all(torch.equal(before[name], after[name]) for name in before)
    loop.close()


def test_a_failed_attempt_counts_once(caplog: pytest.LogCaptureFixture) -> None:
    """Pieces change such a model more often than the batch would, which is said; the attempt that failed does not."""
    results = []
    for most, size in ((2, 6), (99, 2)):
        model = Averaging()
        optimizer = torch.optim.SGD(model.net.parameters(), 0.0)
        objective = ModelObjective("fit", optimizer, limited(untouched, most))
        with AdaptiveLoop(model, objective, points(18), batch_size=size) as loop:
            for batch in loop.batches(1):
                loop.step(batch)
        results.append(torch.cat([weights(model.teacher), model.mean]))
    torch.testing.assert_close(*results, rtol=1e-12, atol=1e-12)
    said = [
        record.getMessage() for record in caplog.records if "forward passes of 'fit' change mean" in record.getMessage()
    ]
    assert len(said) == 1
    assert "in 3 micro-batches changes them 3 times" in said[0]


class Normalizing(nn.Module):
    """Normalises what it is given in place."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.inner, self.most = Regression(), most

    def forward(self, x: Tensor, labels: Tensor | None = None) -> Any:
        x.sub_(0.5).div_(2)
        if self.training and torch.is_grad_enabled() and len(x) > self.most:
            raise torch.OutOfMemoryError(OUT_OF_MEMORY)
        return self.inner(x, labels)


@pytest.mark.parametrize("most", [3, 1])
def test_a_trainer_trains_what_it_would_without_a_failure(tmp_path: Path, most: int) -> None:
    results = []
    for room in (99, most):
        model = Normalizing(room)
        trainer = watched(
            tmp_path, model, points(18), per_device_train_batch_size=6, max_steps=1, optim="sgd", kind=Watched
        )
        trainer.train()
        assert trainer.memory.loss.weighing.name == "DIVISOR"
        results.append(weights(model))
    torch.testing.assert_close(*results, rtol=1e-9, atol=1e-12)
