"""A loop of one's own, without a memory budget: its stream, its steps, its state."""

import logging
import math
from collections.abc import Mapping
from typing import Any

import pytest
import pytorch_optimizer
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import TensorDataset, WeightedRandomSampler

from tests.optimizer_failures import FailsInOptimizer
from trainauto import AdaptiveLoop, ModelObjective, Range
from trainauto.core.errors import InputError
from trainauto.core.plan import Plan
from trainauto.engine.probe import untrained_step
from trainauto.engine.run_errors import NothingFitsError, OptimizerOutOfMemoryError
from trainauto.integrations import adaptive_loop

SAMPLES = 50
OUT_OF_MEMORY = "CUDA out of memory. Tried to allocate 1.00 GiB."


class Numbered(TensorDataset):
    """Samples whose first feature is their number."""

    def __init__(self, samples: int = SAMPLES) -> None:
        features = torch.randn(samples, 4, generator=torch.Generator().manual_seed(1))
        features[:, 0] = torch.arange(samples)
        super().__init__(features, features[:, 1:2] * 2)


class Regression:
    """A small network and its loss, which notes what it saw and runs out of memory where it is told to."""

    def __init__(self, *layers: nn.Module, most: int | None = None) -> None:
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(4, 8), *layers, nn.Tanh(), nn.Linear(8, 1)).double()
        self.optimizer = torch.optim.SGD(self.net.parameters(), 0.01)
        self.most = most
        self.seen: list[int] = []

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        features, target = batch
        if self.most is not None and len(features) > self.most:
            raise torch.OutOfMemoryError(OUT_OF_MEMORY)
        self.seen += features[:, 0].long().tolist()
        return F.mse_loss(model((features / SAMPLES).double()), target.double())

    def objective(self, **options: Any) -> ModelObjective:
        return ModelObjective("fit", self.optimizer, self.loss, **options)

    def weights(self) -> Tensor:
        return torch.cat([weight.detach().flatten() for weight in self.net.parameters()])


def trained(task: Regression, epochs: int, **options: Any) -> AdaptiveLoop:
    loop = AdaptiveLoop(task.net, task.objective(), Numbered(), **{"batch_size": 8, **options})
    for batch in loop.batches(epochs):
        loop.step(batch)
    return loop


def test_every_sample_once_an_epoch_in_another_order() -> None:
    task = Regression()
    loop = trained(task, 3)
    epochs = [task.seen[start : start + SAMPLES] for start in range(0, 3 * SAMPLES, SAMPLES)]
    assert all(sorted(epoch) == list(range(SAMPLES)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]
    assert (loop.epoch, loop.progress.samples) == (3, 150)


def test_steps_are_those_of_a_loop_written_by_hand() -> None:
    task, by_hand = Regression(), Regression()
    loop = AdaptiveLoop(task.net, task.objective(), Numbered(), batch_size=8, max_norm=0.5)
    for batch in loop.batches(2):
        step = loop.step(batch)
        by_hand.optimizer.zero_grad()
        loss = by_hand.loss(by_hand.net, (batch.tensors["0"], batch.tensors["1"]))
        loss.backward()
        norm = nn.utils.clip_grad_norm_(by_hand.net.parameters(), 0.5)
        by_hand.optimizer.step()
        assert step.losses == {"loss": pytest.approx(loss.item())}
        assert step.grad_norms == {"fit": pytest.approx(norm.item())}
        assert (step.samples, step.trained, step.plan) == (len(batch), True, Plan.of(batch_size=8))
    assert torch.equal(task.weights(), by_hand.weights())


def test_a_batch_that_runs_out_of_memory_runs_in_parts_and_loses_nothing() -> None:
    task, undisturbed = Regression(most=3), Regression()
    pieces = []
    loop = AdaptiveLoop(task.net, task.objective(), Numbered(), batch_size=8)
    for batch in loop.batches(1):
        step = loop.step(batch)
        pieces.append((step.out_of_memory, step.pieces, step.plan.micro_batches))
    trained(undisturbed, 1)
    assert sorted(task.seen) == list(range(SAMPLES))
    assert pieces[0] == (2, {"fit": 4}, 1)  # 8 and 4 do not fit
    assert pieces[-1][0] == 0  # later ones run so from the start
    assert pieces[-1][2] > 1
    torch.testing.assert_close(task.weights(), undisturbed.weights(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("declared", [True, False])
def test_losses_that_couple_samples_come_as_smaller_batches(declared: bool, caplog: pytest.LogCaptureFixture) -> None:
    """BatchNorm is found; a contrastive loss has to be declared. Nothing is lost."""
    caplog.set_level(logging.INFO, "trainauto")
    task = Regression(*([] if declared else [nn.BatchNorm1d(8)]), most=5)
    objective = task.objective(splittable=False) if declared else task.objective()
    loop = AdaptiveLoop(task.net, objective, Numbered(), batch_size=Range(8, 16))
    steps = [loop.step(batch) for batch in loop.batches(1)]
    assert [step.trained for step in steps].count(False) == 2  # 8, then 6
    assert sum(step.out_of_memory for step in steps) == 2  # each is told of once
    assert not any(step.pieces for step in steps)
    assert sorted(task.seen) == list(range(SAMPLES))
    assert max(step.samples for step in steps) <= 5
    assert ("1 (BatchNorm1d) computes with statistics of its batch" in caplog.text) is not declared


def test_a_sample_that_does_not_fit_ends_it_in_words() -> None:
    task = Regression(most=0)
    with pytest.raises(NothingFitsError, match="one sample does not fit"):
        trained(task, 1, batch_size=2)


@pytest.mark.parametrize("steps", [1, 5, 9, 14])
def test_a_resume_continues_where_it_was(steps: int) -> None:
    whole, begun = Regression(), Regression()
    trained(whole, 3, batch_size=7)
    loop = AdaptiveLoop(begun.net, begun.objective(), Numbered(), batch_size=7)
    for _, batch in zip(range(steps), loop.batches(), strict=False):
        loop.step(batch)
    state, again = loop.state_dict(), Regression()
    again.net.load_state_dict(begun.net.state_dict())
    resumed = AdaptiveLoop(again.net, again.objective(), Numbered(), batch_size=7)
    resumed.load_state_dict(state)
    for batch in resumed.batches(3):
        resumed.step(batch)
    assert begun.seen + again.seen == whole.seen
    assert torch.equal(again.weights(), whole.weights())
    assert resumed.progress.samples == 150


def test_what_one_objective_hands_on_reaches_the_next_whole() -> None:
    class Pairs(Numbered):
        def __getitem__(self, index: int) -> dict[str, Tensor]:
            return {"x": self.tensors[0][index]}

    torch.manual_seed(0)
    nets = nn.ModuleDict({"maker": nn.Linear(4, 4), "critic": nn.Linear(4, 1)})
    received: list[Tensor] = []

    def make(model: Any, batch: dict[str, Tensor]) -> Mapping[str, Tensor]:
        if len(batch["x"]) > 4:
            raise torch.OutOfMemoryError(OUT_OF_MEMORY)
        made = model["maker"](batch["x"])
        batch["made"] = made.detach()
        return {"size": made.square().mean(), "critic": model["critic"](made).mean()}

    def judge(model: Any, batch: dict[str, Tensor]) -> Tensor:
        received.append(batch["made"])
        return (model["critic"](batch["x"]) - model["critic"](batch["made"])).mean()

    objectives = [
        ModelObjective(name, torch.optim.SGD(nets[part].parameters(), 0.1), loss)
        for name, part, loss in (("make", "maker", make), ("judge", "critic", judge))
    ]
    loop = AdaptiveLoop(nets, objectives, Pairs(), batch_size=8)
    batch = next(loop.batches())
    with torch.no_grad():
        made = nets["maker"](batch.tensors["x"])
    step = loop.step(batch)
    assert step.pieces == {"make": 2}
    torch.testing.assert_close(torch.cat(received), made)
    assert step.losses.keys() == {"make.size", "make.critic", "judge"}
    assert step.grad_norms.keys() == {"make", "judge"}


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"settings": {"max_batch_size": 32}}, r"'max_batch_size' is unknown. Bounds are those of Range"),
    ({"dataset": TensorDataset(torch.zeros(0, 2))}, "the dataset is empty"),
    ({"memory_budget": "2 apples"}, "memory_budget: "),
    ({"max_norm": -1.0}, "max_norm is -1.0: a norm that gradients are scaled down to is above 0"),
    ({"lengths": [1, 2]}, "there are 2 lengths for 50 samples"),
    ({"size": Range(8, 16)}, "size needs resize"),
    ({"weigh": len, "workload": object()}, "leave weigh out"),
    ({"batch_size": None}, "give either batch_size or tokens"),
    ({"settings": {"target_vram_usage": 85}}, "settings: target_vram_usage must lie in"),
    ({"settings": {"target_usage": 0.8}}, r"settings: 'target_usage' is unknown. Did you mean 'target_vram_usage'\?"),
]


@pytest.mark.parametrize(("wrong", "message"), MISTAKES)
def test_mistakes_are_told_before_anything_runs(wrong: dict[str, Any], message: str) -> None:
    task = Regression()
    given = {"objectives": task.objective(), "dataset": Numbered(), "batch_size": 8, **wrong}
    with pytest.raises(InputError, match=message):
        AdaptiveLoop(task.net, **given)


def test_samplers_are_refused_with_what_to_do_instead() -> None:
    task, sampler = Regression(), WeightedRandomSampler([1.0] * SAMPLES, SAMPLES)
    options: dict[str, Any] = {"batch_size": 8, "sampler": sampler}
    with pytest.raises(InputError, match=r"AdaptiveLoop takes no sampler: .*\n.*where the dataset draws"):
        AdaptiveLoop(task.net, task.objective(), Numbered(), **options)
    with pytest.raises(TypeError, match="unexpected keyword argument 'batchsize'"):
        AdaptiveLoop(task.net, task.objective(), Numbered(), batchsize=8)


def test_objectives_that_cannot_be_are_told() -> None:
    task, other = Regression(), nn.Linear(2, 2)
    with pytest.raises(InputError, match="there is nothing to minimise"):
        AdaptiveLoop(task.net, [], Numbered(), batch_size=8)
    with pytest.raises(InputError, match="objectives need names of their own, got fit, fit"):
        AdaptiveLoop(task.net, [task.objective()] * 2, Numbered(), batch_size=8)
    stray = ModelObjective("fit", torch.optim.SGD(other.parameters(), 0.1), task.loss)
    with pytest.raises(InputError, match="steps 2 parameters that are not the model's"):
        AdaptiveLoop(task.net, stray, Numbered(), batch_size=8)
    without = torch.optim.SGD(task.net.parameters(), 0.1)
    del without.param_groups[0]["lr"]
    with pytest.raises(InputError, match="a group without 'lr': rates are logged and changed there"):
        AdaptiveLoop(task.net, ModelObjective("fit", without, task.loss), Numbered(), batch_size=8)


def test_a_loss_that_is_no_number_is_told() -> None:
    task = Regression()
    objective = ModelObjective("fit", task.optimizer, lambda model, batch: model(batch[0].double()))
    loop = AdaptiveLoop(task.net, objective, Numbered(), batch_size=8)
    with pytest.raises(InputError, match=r"the loss of 'fit' must return one number.*a tensor of shape \(8, 1\)"):
        loop.step(next(loop.batches()))


OPTIMIZERS: dict[str, Any] = {
    "AdamW": lambda weights: torch.optim.AdamW(weights, 1e-3),
    "momentum": lambda weights: torch.optim.SGD(weights, 0.01, momentum=0.9),
    "dampening": lambda weights: torch.optim.SGD(weights, 0.01, momentum=0.9, dampening=0.5),
    "NAdam": lambda weights: torch.optim.NAdam(weights, 1e-3),
    "Rprop": lambda weights: torch.optim.Rprop(weights, 1e-3),
    "ASGD": lambda weights: torch.optim.ASGD(weights, 0.01),
    "Adagrad": lambda weights: torch.optim.Adagrad(weights, 0.01, initial_accumulator_value=0.1),
    "groups": lambda weights: torch.optim.RAdam([{"params": [next(weights)], "lr": 0.1}, {"params": list(weights)}]),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_begin_as_they_would(name: str) -> None:
    """What they keep is allocated before the first step; not all of it begins with zeros."""
    task, plain = Regression(), Regression()
    task.optimizer = OPTIMIZERS[name](task.net.parameters())
    plain.optimizer = OPTIMIZERS[name](plain.net.parameters())
    schedule = torch.optim.lr_scheduler.StepLR(task.optimizer, 2, 0.5)
    other = torch.optim.lr_scheduler.StepLR(plain.optimizer, 2, 0.5)
    loop = AdaptiveLoop(task.net, task.objective(), Numbered(), batch_size=8)
    for _, batch in zip(range(6), loop.batches(), strict=False):
        loop.step(batch)
        schedule.step()
        plain.optimizer.zero_grad()
        plain.loss(plain.net, (batch.tensors["0"], batch.tensors["1"])).backward()
        plain.optimizer.step()
        other.step()
    assert not torch.equal(task.weights(), Regression().weights())
    torch.testing.assert_close(task.weights(), plain.weights(), rtol=1e-10, atol=1e-12)


def test_an_optimizer_that_has_stepped_keeps_what_it_knows_and_frozen_weights_get_nothing() -> None:
    task = Regression()
    task.net[0].requires_grad_(False)
    task.optimizer = torch.optim.Adam(task.net.parameters(), 1e-3)
    task.loss(task.net, (torch.rand(4, 4), torch.rand(4, 1))).backward()
    task.optimizer.step()
    known = {key: value.clone() for key, value in task.optimizer.state[task.net[2].weight].items()}
    loop = AdaptiveLoop(task.net, task.objective(), Numbered(), batch_size=8)
    next(loop.batches())
    untrained_step(loop.training, loop.plan)
    assert len(task.optimizer.state) == 2
    assert all(torch.equal(task.optimizer.state[task.net[2].weight][key], value) for key, value in known.items())


def test_what_was_not_trained_comes_again() -> None:
    """A break, an error in mid-step, a checkpoint with a batch in hand."""
    task = Regression()
    loop = AdaptiveLoop(task.net, task.objective(), Numbered(), batch_size=8)
    for batch in loop.batches():
        first = batch.names
        break
    batches = loop.batches()
    batch = next(batches)
    assert batch.names == first
    assert loop.state_dict()["loader"]["given"] == 0
    task.most = 0
    with pytest.raises(NothingFitsError):
        loop.step(batch)
    task.most, task.seen = None, []
    for batch in loop.batches(1):
        loop.step(batch)
    assert sorted(task.seen) == list(range(SAMPLES))


def test_a_loop_that_failed_to_begin_begins_when_it_is_asked_again() -> None:
    task = Regression()
    loop = AdaptiveLoop(task.net, task.objective(), Numbered(), batch_size=8)
    begun: list[bool] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(adaptive_loop, "say_coupling", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            next(loop.batches())
        patch.setattr(adaptive_loop, "say_coupling", lambda *_: begun.append(True))
        next(loop.batches())
    assert begun == [True]


def test_parts_without_anything_to_learn_weigh_nothing() -> None:
    """Their mean is a mean over nothing."""
    task = Regression(most=3)

    def loss(model: nn.Module, batch: Any) -> Tensor:
        counted = batch[0][:, 0] >= 25
        task.loss(model, batch)
        return F.mse_loss(model((batch[0][counted] / SAMPLES).double()), batch[1][counted].double())

    objective = ModelObjective("fit", task.optimizer, loss)
    loop = AdaptiveLoop(
        task.net, objective, Numbered(), batch_size=8, weigh=lambda batch: int((batch[0][:, 0] >= 25).sum())
    )
    steps = [loop.step(batch) for batch in loop.batches(1)]
    assert sum(step.samples for step in steps) == SAMPLES
    assert all(math.isfinite(step.losses["loss"]) for step in steps)


def test_what_cannot_be_stepped_in_parts_is_refused() -> None:
    task = Regression()
    objective = ModelObjective("fit", torch.optim.LBFGS(task.net.parameters()), task.loss)
    with pytest.raises(InputError, match="LBFGS cannot be used here"):
        AdaptiveLoop(task.net, objective, Numbered(), batch_size=8)
    for kind in (pytorch_optimizer.SAM, pytorch_optimizer.LookSAM):
        sam = kind(task.net.parameters(), base_optimizer=torch.optim.SGD, lr=0.1)
        with pytest.raises(InputError, match=r"SAM cannot be used here, .*: it calls the loss itself"):
            AdaptiveLoop(task.net, ModelObjective("fit", sam, task.loss), Numbered(), batch_size=8)
    sparse = nn.Sequential(nn.Embedding(4, 4, sparse=True))
    objective = ModelObjective("fit", torch.optim.SGD(sparse.parameters(), 0.1), task.loss)
    with pytest.raises(InputError, match="0 has sparse=True"):
        AdaptiveLoop(sparse, objective, Numbered(), batch_size=8)


def test_a_batch_that_is_left_out_and_epochs_that_were_trained_are_told(caplog: pytest.LogCaptureFixture) -> None:
    task = Regression()
    loop = AdaptiveLoop(task.net, task.objective(), Numbered(), batch_size=8)
    batches = loop.batches(1)
    first = next(batches)
    features, target = loop.contents(first)
    assert torch.equal(target, 2 * features[:, 1:2])
    with pytest.raises(InputError, match=r"was not passed to step\(\)"):
        next(batches)
    for batch in loop.batches(1):
        loop.step(batch)
    assert list(loop.batches(1)) == []
    assert "batches(epochs=2) trains one more" in caplog.text


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"model": "net"}, "the model must be an nn.Module, not str"),
        ({"objectives": torch.optim.SGD([nn.Parameter(torch.ones(1))], 0.1)}, "must be a ModelObjective, not SGD"),
        ({"dataset": torch.utils.data.DataLoader(Numbered())}, "the dataset must be map-style .* not DataLoader"),
        ({"dataset": iter([1])}, "the dataset must be map-style"),
    ],
)
def test_what_is_of_another_kind_is_told(given: dict[str, Any], message: str) -> None:
    task = Regression()
    kinds = {"model": task.net, "objectives": task.objective(), "dataset": Numbered(), **given}
    with pytest.raises(InputError, match=message):
        AdaptiveLoop(**kinds, batch_size=8)
    with pytest.raises(InputError, match=r"an objective is ModelObjective\(name, optimizer, loss\(model, batch\)\)"):
        ModelObjective("fit", task.loss, task.optimizer)  # type: ignore[arg-type]


def test_what_is_no_state_is_refused_and_evaluation_mode_is_told(caplog: pytest.LogCaptureFixture) -> None:
    task = Regression()
    task.net.eval()
    loop = AdaptiveLoop(task.net, task.objective(), Numbered(), batch_size=8)
    with pytest.raises(InputError, match="no state_dict of an AdaptiveLoop: it has no automations, no controls"):
        loop.load_state_dict({"progress": {}})
    loop.step(next(loop.batches()))
    assert "the model is in evaluation mode and is trained so" in caplog.text


def test_a_batch_that_may_be_no_smaller_says_so() -> None:
    task = Regression(nn.BatchNorm1d(8), most=5)
    loop = AdaptiveLoop(task.net, task.objective(), Numbered(), batch_size=8)
    with pytest.raises(NothingFitsError, match=r"and no smaller batch is allowed: .*\n.*=Range\(most, most\) lets"):
        loop.step(next(loop.batches()))


def test_a_loop_whose_optimizer_ran_out_of_memory_half_way_is_not_gone_on_with() -> None:
    """What state_dict gave would be resumed from: some weights have moved, others have not."""
    task, plain = Regression(), Regression()
    trained(plain, 2, batch_size=10)
    loop = AdaptiveLoop(task.net, task.objective(), Numbered(), batch_size=10)
    batches = loop.batches(2)
    for _ in range(3):
        loop.step(next(batches))
    state, weights = loop.state_dict(), [weight.detach().clone() for weight in task.net.parameters()]
    with pytest.raises(OptimizerOutOfMemoryError, match="Load your last checkpoint"), FailsInOptimizer(4):
        loop.step(next(batches))
    for go_on in (loop.state_dict, lambda: next(batches), lambda: loop.step(next(loop.batches(2)))):
        with pytest.raises(InputError, match="Save nothing of this model"):
            go_on()
    again = AdaptiveLoop(task.net, task.objective(), Numbered(), batch_size=10)
    again.load_state_dict(state)
    for weight, old in zip(task.net.parameters(), weights, strict=True):
        weight.data.copy_(old)
    for batch in again.batches(2):
        again.step(batch)
    torch.testing.assert_close(task.weights(), plain.weights(), rtol=1e-12, atol=1e-12)


def test_a_loops_first_step_is_repeated_where_only_state_was_made() -> None:
    class Late(Regression):
        """Trains its last layer from the third step on: only then is there state to be made."""

        def __init__(self) -> None:
            super().__init__()
            self.optimizer = torch.optim.Adam(self.net.parameters(), 0.01, foreach=True)

    task, plain = Late(), Late()
    for one in (task, plain):
        one.net[2].requires_grad_(requires_grad=False)
        loop = AdaptiveLoop(one.net, one.objective(), Numbered(), batch_size=10)
        for step, batch in enumerate(loop.batches(2)):
            one.net[2].requires_grad_(requires_grad=step >= 2)
            with FailsInOptimizer(3 if one is task and step == 2 else 0):
                loop.step(batch)
    assert task.optimizer.param_groups[0]["foreach"] is False
    torch.testing.assert_close(task.weights(), plain.weights(), rtol=1e-12, atol=1e-12)
