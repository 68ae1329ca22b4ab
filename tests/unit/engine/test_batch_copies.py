"""Batches that losses change in place: a step that runs again is the step of plain PyTorch on the whole batch."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.unit.engine.test_snapshot import fail_for_real
from tests.unit.engine.test_step import batch_of
from trainauto.core.batch import Batch
from trainauto.core.errors import Saving, saving_before
from trainauto.core.objectives import LossTerms, MicroBatch, Objective
from trainauto.core.plan import Axis, BatchShape, Plan
from trainauto.distributed.communicator import LOST, OK, Communicator
from trainauto.engine.run_errors import CannotRepeatError, RankAbortedError
from trainauto.engine.snapshot import StepSnapshot
from trainauto.engine.step import StepSettings, optimize_parameters
from trainauto.engine.step_outcome import DoesNotFit, Stepped
from trainauto.integrations.samples import NestedSamples, Template
from trainauto.integrations.structure import Structure
from trainauto.models.base_model import BaseModel

CPU = torch.device("cpu")

Change = Callable[[MicroBatch], None]


def in_place(part: MicroBatch) -> None:
    part["x"].sub_(100).div_(50)


def through_data(part: MicroBatch) -> None:
    part["x"].data.sub_(100).div_(50)


def through_numpy(part: MicroBatch) -> None:
    view = part["x"].numpy()
    view -= 100
    view /= 50


def labels_too(part: MicroBatch) -> None:
    in_place(part)
    part["y"].neg_()


def array(part: Any) -> None:
    part["a"] -= 100
    part["x"] = torch.from_numpy(part["a"]) / 50


def shared(part: MicroBatch) -> None:
    """Change a leaf that all parts of a batch share."""
    part["scale"].mul_(3)
    part["x"] = part["x"] / part["scale"]


class Changing(BaseModel):
    """A regression whose losses change their batch, and fit up to so many samples."""

    def __init__(self, change: Change, most: Sequence[int] = (99,)) -> None:
        super().__init__(CPU)
        torch.manual_seed(0)
        self.networks = {"net": nn.Linear(6, 1).double()}
        self.change, self.most, self.splittable = change, list(most), True
        self.optimizers = {
            str(number): torch.optim.SGD(self.networks["net"].parameters(), 1e-3) for number in range(len(most))
        }

    def feed_data(self, batch: Batch) -> MicroBatch:
        return dict(batch.tensors)

    def objectives(self) -> list[Objective]:
        return [
            Objective(name, optimizer, lambda part, n=int(name): self._loss(part, n), self.splittable)
            for name, optimizer in self.optimizers.items()
        ]

    def _loss(self, part: MicroBatch, number: int) -> LossTerms:
        self.change(part)
        if len(part["y"]) > self.most[number]:
            fail_for_real()
        return {f"l{number}": (self.networks["net"](part["x"]) - part["y"]).square().mean()}


def changed_by(seed: int = 0, samples: int = 8) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    tensors: dict[str, Any] = {
        "x": torch.randn(samples, 6, dtype=torch.float64, generator=generator) * 50 + 100,
        "y": torch.randn(samples, 1, dtype=torch.float64, generator=generator),
        "a": (torch.randn(samples, 6, dtype=torch.float64, generator=generator) * 50 + 100).numpy(),
        "scale": torch.full((), 50.0, dtype=torch.float64),
    }
    template = Template(tensors, Structure.of(tensors), frozenset({"x", "y", "a"}), {})
    plan = Plan.of(batch_size=samples)
    return Batch(tensors, NestedSamples(template), ("",) * samples, 0, plan, plan, BatchShape(samples, 1))


def weights(model: BaseModel) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.networks["net"].parameters()])


def plain(model: Changing, *batches: Batch) -> Tensor:
    """Return the weights that a plain loop gives."""
    for batch in batches:
        part = dict(batch.tensors)
        for objective in model.objectives():
            objective.optimizer.zero_grad()
            sum(objective.loss(part).values()).backward()
            objective.optimizer.step()
            part = {**part, "x": batch.tensors["x"]}
    return weights(model)


@pytest.mark.parametrize("most", [99, 4, 1])
@pytest.mark.parametrize("change", [in_place, through_data, through_numpy, labels_too, array, shared])
def test_a_step_that_runs_again_finds_the_batch_as_it_was(change: Change, most: int) -> None:
    model = Changing(change, [most])
    snapshot = StepSnapshot.of(model)
    for seed in range(3):  # the first step learns what changes, later ones know
        outcome = optimize_parameters(model, changed_by(seed), snapshot=snapshot)
        assert isinstance(outcome, Stepped)
        assert bool(outcome.failures) is (most < 8)
    torch.testing.assert_close(
        weights(model), plain(Changing(change), *map(changed_by, range(3))), rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize("most", [(99, 3), (3, 99), (3, 2)])
def test_a_later_pass_finds_what_the_one_before_has_left(most: tuple[int, int]) -> None:
    """As in a plain loop: what the first objective has made of the batch is what the second one gets."""
    model = Changing(in_place, most)
    snapshot = StepSnapshot.of(model)
    for seed in range(2):
        assert isinstance(optimize_parameters(model, changed_by(seed), snapshot=snapshot), Stepped)
    expected = plain(Changing(in_place, (99, 99)), *map(changed_by, range(2)))
    torch.testing.assert_close(weights(model), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("most", [(0, 99), (99, 0)])
def test_a_batch_goes_back_to_the_loader_as_it_came(most: tuple[int, int]) -> None:
    """Also where a pass before the one that did not fit has changed it."""
    model = Changing(in_place, most)
    model.splittable = False
    snapshot = StepSnapshot.of(model)
    for seed in range(2):
        batch, given = changed_by(seed), changed_by(seed)
        assert isinstance(optimize_parameters(model, batch, snapshot=snapshot), DoesNotFit)
        assert torch.equal(batch.tensors["x"], given.tensors["x"])
        model.most = [99, 99]
        assert isinstance(optimize_parameters(model, batch, snapshot=snapshot), Stepped)
        model.most = list(most)


def test_a_batch_that_never_changes_is_copied_once() -> None:
    model = Changing(lambda part: None)
    snapshot = StepSnapshot.of(model)
    for seed in range(2):
        batch = changed_by(seed)
        snapshot.take(batch.tensors, batch.tensors)
        assert len(snapshot._batch._copies) == (0 if seed else 4)
        snapshot.commit_pass()
        snapshot.commit_step()
    assert not snapshot._batch._tensors  # nothing of it is held until the next


def test_a_leaf_that_had_never_changed_is_not_trained_twice_changed() -> None:
    model = Changing(lambda part: None)
    snapshot = StepSnapshot.of(model)
    optimize_parameters(model, changed_by(0), snapshot=snapshot)
    before = weights(model).clone()
    model.change, model.most = in_place, [4]
    with pytest.raises(CannotRepeatError, match=r"changed x of its batch in place.*\n.*This step is lost.*weights"):
        optimize_parameters(model, changed_by(1), snapshot=snapshot)
    assert torch.equal(weights(model), before)
    # From now on it is copied.
    assert isinstance(optimize_parameters(model, changed_by(1), snapshot=snapshot), Stepped)
    reference = Changing(lambda part: None)
    plain(reference, changed_by(0))
    reference.change = in_place
    torch.testing.assert_close(weights(model), plain(reference, changed_by(1)), rtol=1e-12, atol=1e-12)


class Pair(Communicator):
    """A rank beside another one, whose part of a pass fits or is lost."""

    world_size = 2

    def __init__(self, other: int) -> None:
        self.other = other
        self.said: list[int] = []

    def sum_gradients(self, parameters: Sequence[nn.Parameter], status: int = OK) -> int:
        del parameters
        self.said.append(status)
        return max(status, self.other)


def test_a_rank_that_cannot_repeat_a_pass_tells_the_others_and_no_rank_saves() -> None:
    model, ranks = Changing(lambda part: None), Pair(OK)
    snapshot = StepSnapshot.of(model)
    optimize_parameters(model, changed_by(0), snapshot=snapshot)
    before = weights(model).clone()
    model.change, model.most = in_place, [4]
    with pytest.raises(CannotRepeatError) as mine:
        optimize_parameters(model, changed_by(1), snapshot=snapshot, ranks=ranks)
    assert ranks.said == [LOST]
    with pytest.raises(RankAbortedError) as others:
        optimize_parameters(Changing(lambda part: None), changed_by(1), ranks=Pair(LOST))
    assert saving_before(mine.value) == saving_before(others.value) == Saving.NOBODY
    assert torch.equal(weights(model), before)


def test_a_leaf_that_changes_later_without_a_failure_is_copied_from_then_on() -> None:
    model = Changing(lambda part: None)
    snapshot = StepSnapshot.of(model)
    optimize_parameters(model, changed_by(0), snapshot=snapshot)
    model.change = in_place
    optimize_parameters(model, changed_by(1), snapshot=snapshot)
    model.most = [2]
    assert isinstance(optimize_parameters(model, changed_by(2), snapshot=snapshot), Stepped)


def test_no_number_is_as_it_was() -> None:
    """Missing values are NaN, which equals nothing."""
    snapshot = StepSnapshot([], CPU)
    leaves = {"x": torch.tensor([1.0, torch.nan]), "a": np.array([1.0, np.nan])}
    for _ in range(2):
        snapshot.take(leaves, leaves)
        snapshot.commit_pass()
        snapshot.commit_step()
    snapshot.take(leaves, leaves)
    assert not snapshot._batch._copies


def test_cut_samples_are_cut_anew() -> None:
    """The second pass goes on with smaller crops, of what the first one left."""

    class Crops(Changing):
        def _loss(self, part: MicroBatch, number: int) -> LossTerms:
            part["lq"].div_(255)
            if number and part["lq"].shape[-1] > 4:
                fail_for_real()
            return {f"l{number}": (part["lq"].mean((1, 2, 3)) * weights(self).sum()).mean() + weights_of(self)}

    def weights_of(model: BaseModel) -> Tensor:
        return sum(parameter.square().sum() for parameter in model.networks["net"].parameters())

    model, batch = Crops(in_place, (99, 99)), batch_of(2)
    batch = replace(batch, tensors={name: tensor.double() for name, tensor in batch.tensors.items()})
    given = batch.tensors["lq"].clone()
    settings = StepSettings(axes=[Axis("lq_size", "px", 4, 64, 4, power=2)])
    outcome = optimize_parameters(model, batch, settings)
    assert isinstance(outcome, Stepped)
    assert outcome.failures[-1].extent == 4
    torch.testing.assert_close(batch.tensors["lq"][..., :4, :4], given[..., :4, :4] / 255**2)
    torch.testing.assert_close(batch.tensors["lq"][..., 4:, 4:], given[..., 4:, 4:] / 255)
