"""Losses of tasks over the parts of a step, and gradients at weights that tasks share."""

import itertools
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tests.several_tasks import Heads, SeparateHeads, samples
from trainauto.core.errors import InputError
from trainauto.tasks.multitask.losses.shared_layer import TaskGradients, last_shared_weights, weights_of
from trainauto.tasks.multitask.losses.task_losses import TaskSums, masks_of, weighted_loss

WEIGHTS = (0.5, 2.0, 0.25)


def batch(count: int = 12) -> tuple[Tensor, Tensor, Tensor]:
    rows = samples(count)
    ids = torch.tensor([number % 3 for number in range(count)])
    return torch.stack([row["x"] for row in rows]), torch.stack([row["target"] for row in rows]), ids


def cuts(sizes: Sequence[int]) -> list[slice]:
    ends = torch.tensor([0, *sizes]).cumsum(0).tolist()
    return [slice(start, stop) for start, stop in itertools.pairwise(ends)]


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=5))
def test_losses_of_parts_add_up_whatever_tasks_they_hold(sizes: list[int]) -> None:
    """A51: to the loss of the whole step; a mean of tasks' means would not."""
    count = sum(sizes)
    generator = torch.Generator().manual_seed(count)
    losses = torch.rand(count, generator=generator, dtype=torch.float64)
    ids = torch.randint(0, 3, (count,), generator=generator)
    whole = weighted_loss(losses, masks_of(ids, 3), WEIGHTS)
    parts = [weighted_loss(losses[cut], masks_of(ids[cut], 3), WEIGHTS) * (cut.stop - cut.start) for cut in cuts(sizes)]
    torch.testing.assert_close(torch.stack(parts).sum() / count, whole)
    torch.testing.assert_close(whole, (losses * torch.tensor(WEIGHTS, dtype=torch.float64)[ids]).mean())


def test_a_mean_of_tasks_means_depends_on_the_parts() -> None:
    """A51"""
    losses, ids = torch.tensor([1.0, 1.0, 9.0, 3.0]), torch.tensor([0, 0, 0, 1])

    def of_means(rows: slice) -> float:
        present = [mask for mask in masks_of(ids[rows], 2) if mask.any()]
        return float(torch.stack([losses[rows][mask].mean() for mask in present]).mean())

    halves = (of_means(slice(0, 2)) + of_means(slice(2, 4))) / 2
    assert abs(halves - of_means(slice(0, 4))) > 0.1


def test_sums_are_those_of_the_samples() -> None:
    losses, ids = torch.tensor([1.0, 2.0, 3.0, float("inf")]), torch.tensor([0, 2, 0, 1])
    sums = TaskSums(("a", "b", "c"))
    assert sums.read() == ({}, {})
    for cut in cuts([1, 2]):
        sums.add(losses[cut], masks_of(ids[cut], 3))
    assert sums.read() == ({"a": 2.0, "c": 2.0}, {"a": 2, "c": 1})
    sums.add(losses[3:], masks_of(ids[3:], 3))
    assert sums.read()[0] == {"a": 2.0, "b": float("inf"), "c": 2.0}
    sums.forget()
    assert sums.read() == ({}, {})


def test_the_last_layer_that_all_tasks_train_is_found() -> None:
    x, target, ids = batch()
    for net in (Heads(), SeparateHeads()):
        losses = net(x, target, ids)["sample_losses"]
        assert last_shared_weights(net, losses, masks_of(ids, 4)) == ("trunk.0.weight", "trunk.0.bias")
    net.trunk.requires_grad_(False)
    with pytest.raises(InputError, match="no layer in common"):
        last_shared_weights(net, net(x, target, ids)["sample_losses"], masks_of(ids, 3))


def test_a_layer_may_be_named() -> None:
    net = SeparateHeads()
    assert weights_of(net, "trunk.0") == ("trunk.0.weight", "trunk.0.bias")
    with pytest.raises(InputError, match=r"no layer 'trunk.00'\n.*trunk.0"):
        weights_of(net, "trunk.00")
    net.trunk.requires_grad_(False)
    with pytest.raises(InputError, match=r"no weight of the layer 'trunk.0' is trained"):
        weights_of(net, "trunk.0")


def norms_of(net: nn.Module, sizes: Sequence[int]) -> list[float]:
    x, target, ids = batch(sum(sizes))
    gradients = TaskGradients(("trunk.0.weight", "trunk.0.bias"))
    for cut in cuts(sizes):
        losses = net(x[cut], target[cut], ids[cut])["sample_losses"]
        gradients.add(net, losses, masks_of(ids[cut], 4))
        losses.mean().backward()  # the graph was kept for it
    sums = gradients.packed()
    assert sums is not None
    return TaskGradients.norms(sums, [int((ids == task).sum()) for task in range(4)])


def test_norms_are_those_of_the_whole_step_in_any_parts() -> None:
    """The gradient of a task's mean loss; a task without samples has none."""
    net = SeparateHeads()
    x, target, ids = batch()
    expected = []
    for task in range(3):
        losses = net(x, target, ids)["sample_losses"]
        grads = torch.autograd.grad(losses[ids == task].mean(), list(net.trunk.parameters()))
        expected.append(float(torch.cat([grad.flatten() for grad in grads]).norm()))
    for sizes in ([12], [6, 6], [1, 4, 7]):
        assert norms_of(net, sizes) == pytest.approx([*expected, 0.0], rel=1e-5)


def test_what_was_added_can_be_dropped() -> None:
    gradients = TaskGradients(("trunk.0.weight",))
    net = SeparateHeads()
    x, target, ids = batch()
    gradients.add(net, net(x, target, ids)["sample_losses"], masks_of(ids, 3))
    gradients.forget()
    assert gradients.packed() is None
