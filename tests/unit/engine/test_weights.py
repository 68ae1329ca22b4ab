"""What the loss of a step is a mean over, and which of its terms are minimised."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from trainauto.core.batch import Batch
from trainauto.core.errors import InputError
from trainauto.core.workload import weight_of
from trainauto.distributed.communicator import Communicator
from trainauto.engine.step import optimize_parameters, weight_of_step
from trainauto.engine.step_outcome import Stepped
from trainauto.tasks.sr.data.image_crops import ImageCrops

from .test_step import batch_of, model_of, weights


class Brightness(ImageCrops):
    """Crops that weigh what their input's brightness comes to, from 0 to 1 a sample."""

    weighs_samples = False

    def weight(self, tensors: Mapping[str, Tensor]) -> float:
        return tensors["lq"].double().mean((1, 2, 3)).sum().item() / 255


class Neighbour(Communicator):
    """A rank beside another one, whose samples weigh a quarter."""

    def all_gather_object(self, message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        return [message, {"weight": 0.25}]


def weighed(batch: Batch) -> Batch:
    return replace(batch, workload=Brightness(3, 2))


def test_weights_are_numbers_of_any_kind_on_all_ranks() -> None:
    batch = weighed(batch_of(4))
    mine = Brightness(3, 2).weight(batch.tensors)
    assert 0 < mine < 4
    assert mine != int(mine)
    assert weight_of_step(batch, Communicator()) == mine
    assert weight_of_step(batch, Neighbour()) == pytest.approx(mine + 0.25, rel=1e-12)
    assert weight_of_step(replace(batch, names=()), Neighbour()) == 0.25
    assert weight_of_step(batch_of(4), Neighbour()) == 4  # samples are known without asking


def test_parts_weigh_what_they_say() -> None:
    """A mean of equal parts would be another one: their losses differ."""
    model, batch = model_of(), weighed(batch_of(6, micro=3))
    outcome = optimize_parameters(model, batch)
    assert isinstance(outcome, Stepped)
    by_hand, total = model_of(), 0.0
    (objective,) = by_hand.objectives()
    for start in range(0, 6, 2):
        part = by_hand.feed_data(replace(batch, tensors={k: t[start : start + 2] for k, t in batch.tensors.items()}))
        share = Brightness(3, 2).weight(part) / Brightness(3, 2).weight(batch.tensors)
        loss = sum(objective.loss(part).values()) * share
        loss.backward()  # type: ignore[union-attr]
        total += float(loss.detach())
    objective.optimizer.step()
    assert outcome.losses["l1"] == pytest.approx(total, rel=1e-5)
    torch.testing.assert_close(weights(model), weights(by_hand), rtol=1e-5, atol=1e-7)


def test_a_term_without_gradients_is_told_and_may_be_no_number() -> None:
    class Told(nn.Module):
        def forward(self, output: Tensor, target: Tensor) -> Tensor:
            return (output - target).abs().mean().detach() * float("nan")

    with_it, without = model_of(l1=nn.L1Loss(), told=Told()), model_of()
    outcome = optimize_parameters(with_it, batch_of(4, micro=2))
    optimize_parameters(without, batch_of(4, micro=2))
    assert isinstance(outcome, Stepped)
    assert outcome.told == ("told",)
    assert torch.equal(weights(with_it), weights(without))


@pytest.mark.parametrize("weight", [-0.5, float("nan"), float("inf")])
def test_what_is_no_weight_is_refused(weight: float) -> None:
    workload = Brightness(3, 2)
    workload.weight = lambda _: weight  # type: ignore[method-assign]
    with pytest.raises(InputError, match=rf"samples weigh {weight}"):
        weight_of(workload, {})
