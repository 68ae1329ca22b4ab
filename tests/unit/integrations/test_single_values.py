"""BatchNorm and its kin where a batch, or what is left of one, is a single sample."""

import copy
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import TensorDataset

from tests.trainers import points, watched
from trainauto import AdaptiveLoop, ModelObjective, Range
from trainauto.core.errors import InputError
from trainauto.integrations.loop_step import LoopStep

SAID = "gives 1 (BatchNorm1d) a single value a channel, which has no variance"


class Net(nn.Module):
    """BatchNorm between two layers, in a checkpointed block if asked for."""

    def __init__(self, norm: nn.Module, *, checkpointed: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(4, 8), norm, nn.Tanh(), nn.Linear(8, 1)).double()
        self.checkpointed = checkpointed

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(self.net, x, use_reentrant=False) if self.checkpointed else self.net(x)


def dataset(samples: int) -> TensorDataset:
    features = torch.randn(samples, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return TensorDataset(features, features.sum(1, keepdim=True))


def loss(model: nn.Module, batch: Any, most: int = 99) -> Tensor:
    features, target = batch
    if len(features) > most:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.00 GiB.")
    return F.mse_loss(model(features), target)


def loop_of(net: nn.Module, samples: int, most: int = 99, **options: Any) -> AdaptiveLoop:
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    objective = ModelObjective("fit", optimizer, lambda model, batch: loss(model, batch, most))
    return AdaptiveLoop(net, objective, dataset(samples), **options)


def plain_step(net: nn.Module, batch: Any) -> None:
    """Train a batch as PyTorch does; of one sample, BatchNorm as in evaluation."""
    norm = net.net[1]  # type: ignore[index, union-attr]
    norm.train(len(batch[0]) > 1)  # type: ignore[union-attr]
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    loss(net, batch).backward()
    optimizer.step()
    optimizer.zero_grad()


@pytest.mark.parametrize("checkpointed", [False, True])
def test_what_is_left_of_a_batch_is_trained_with_running_statistics_and_that_is_said(
    checkpointed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    net = Net(nn.BatchNorm1d(8), checkpointed=checkpointed)
    plain = copy.deepcopy(net)
    sizes: list[int] = []
    with loop_of(net, 9, most=2, batch_size=Range(3, 3, minimum=2)) as loop:
        for batch in loop.batches(2):
            contents = loop.contents(batch)
            step: LoopStep = loop.step(batch)
            if step.trained:
                sizes.append(len(contents[0]))
                plain_step(plain, contents)
    assert sorted(sizes[:6]) == [1, 1, 1, 2, 2, 2]
    assert caplog.text.count(SAID.replace("gives 1", "gives net.1")) == 1
    for mine, theirs in zip(net.state_dict().values(), plain.state_dict().values(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-10)
    assert net.net[1].training
    assert not net.net[1]._forward_hooks


@pytest.mark.parametrize("minimum", [1, 2, 16])
def test_measuring_before_the_first_batch_is_not_stopped_by_single_values(
    minimum: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "trainauto")
    net = Net(nn.BatchNorm1d(8))
    before = copy.deepcopy(net.state_dict())
    values = Range(16, 64, minimum=minimum)
    with loop_of(net, 128, batch_size=values, memory_budget="64MiB") as loop:
        batch = next(loop.batches(1))
        for name, value in net.state_dict().items():
            assert torch.equal(value, before[name])
        assert loop.step(batch).trained
    assert "traced" in caplog.text
    assert "single value" not in caplog.text


@pytest.mark.parametrize(
    "norm", [nn.BatchNorm1d(8, track_running_stats=False), nn.BatchNorm1d(8, momentum=None), nn.LayerNorm(8)]
)
def test_one_sample_is_refused_in_words_only_where_nothing_stands_in(norm: nn.Module) -> None:
    net = Net(norm)
    with loop_of(net, 5, batch_size=1) as loop:
        batch = next(loop.batches(1))
        if getattr(norm, "running_mean", norm.weight) is not None:
            assert loop.step(batch).trained
            return
        with pytest.raises(InputError, match=r"One value has no variance.*minimum=2"):
            loop.step(batch)


def test_a_layer_without_running_statistics_is_measured_with_the_least_of_a_run() -> None:
    net = Net(nn.BatchNorm1d(8, track_running_stats=False))
    with loop_of(net, 64, batch_size=Range(4, 16, minimum=2), memory_budget="64MiB") as loop:
        assert loop.step(next(loop.batches(1))).trained


def test_instance_norm_of_one_pixel_is_refused_in_words() -> None:
    net = nn.Sequential(nn.Linear(4, 8), nn.Unflatten(1, (8, 1)), nn.InstanceNorm1d(8), nn.Flatten(), nn.Linear(8, 1))
    with loop_of(net.double(), 8, batch_size=4) as loop, pytest.raises(InputError, match="more than one pixel"):
        loop.step(next(loop.batches(1)))


class NormNet(Net):
    def forward(self, x: Tensor, labels: Tensor | None = None, **_more: Any) -> Any:  # type: ignore[override]
        logits = super().forward(x)
        return {"logits": logits} if labels is None else {"loss": F.mse_loss(logits, labels), "logits": logits}


@pytest.mark.parametrize(("samples", "batch", "sizes"), [(9, 2, [2, 2, 2, 2, 1]), (9, 4, [4, 3, 2])])
def test_the_last_batch_of_a_trainers_epoch_may_be_one_sample(
    tmp_path: Path, samples: int, batch: int, sizes: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    trainer = watched(
        tmp_path,
        NormNet(nn.BatchNorm1d(8)),
        points(samples),
        per_device_train_batch_size=batch,
        num_train_epochs=1,
        optim="sgd",
    )
    trainer.train()
    assert [len(part["x"]) for _, part in trainer.parts] == sizes
    assert ("single value a channel" in caplog.text) is (1 in sizes)
    assert not trainer.model.net[1]._forward_hooks
