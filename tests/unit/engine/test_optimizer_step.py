"""An optimizer's step that runs out of memory at any of its operators: exactly the plain step, or the run's end."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from tests.acceptance import only_in_acceptance
from tests.optimizer_failures import FailsAt
from trainauto.core.objectives import Objective
from trainauto.distributed.communicator import SINGLE_PROCESS
from trainauto.engine.optimizer_form import agree_on_form, take_loop_form, takes_all_at_once
from trainauto.engine.optimizer_step import step_optimizer, stepping
from trainauto.engine.run_errors import OptimizerOutOfMemoryError
from trainauto.memory.tracing.fake_tensors import group_as_cuda

CPU = torch.device("cpu")
Make = Callable[[list[nn.Parameter]], Optimizer]
KINDS: dict[str, Make] = {
    "adam, one by one": lambda weights: torch.optim.Adam(weights, foreach=False),
    "adam, all at once": lambda weights: torch.optim.Adam(weights, foreach=True),
    "adam with l2, all at once": lambda weights: torch.optim.Adam(weights, weight_decay=0.1, foreach=True),
    "adam with l2": lambda weights: torch.optim.Adam(weights, weight_decay=0.1, foreach=False),
    "adam that maximizes": lambda weights: torch.optim.Adam(weights, maximize=True, amsgrad=True, foreach=True),
    "adamw, all at once": lambda weights: torch.optim.AdamW(weights, foreach=True),
    "fused adamw": lambda weights: torch.optim.AdamW(weights, fused=True),
    "fused sgd": lambda weights: torch.optim.SGD(weights, lr=0.1, fused=True),
    "sgd, all at once": lambda weights: torch.optim.SGD(weights, lr=0.1, foreach=True),
    "sgd with l2": lambda weights: torch.optim.SGD(weights, 0.1, 0.9, weight_decay=0.1, nesterov=True, foreach=True),
    "no state, one by one": lambda weights: torch.optim.SGD(weights, lr=0.1, weight_decay=0.1, foreach=False),
    "nadam": lambda weights: torch.optim.NAdam(weights, weight_decay=0.1, foreach=True),
    "rmsprop": lambda weights: torch.optim.RMSprop(weights, weight_decay=0.1, momentum=0.9, foreach=True),
    "adafactor": lambda weights: torch.optim.Adafactor(weights, foreach=False),
    "two groups": lambda weights: torch.optim.Adam(
        [{"params": weights[:2]}, {"params": weights[2:], "weight_decay": 0.1}], foreach=True
    ),
}


class Training:
    """Three weights with an optimizer, their gradients a function of the step."""

    def __init__(self, make: Make, *, scales: bool = False) -> None:
        self.weights = [nn.Parameter(torch.linspace(-1, 1, size)) for size in (4, 3, 2)]
        self.scaler = GradScaler("cpu", init_scale=8.0) if scales else None
        self.objective = Objective("g", make(self.weights), lambda _part: {}, scaler=self.scaler)

    def step(self, number: int, fails: FailsAt | None = None) -> None:
        self.take_gradients(number)
        with fails or nullcontext():
            step_optimizer(self.objective, CPU)

    def take_gradients(self, number: int) -> None:
        for place, weight in enumerate(self.weights):
            late = place == 1 and number < 2  # a weight that is trained from the third step on
            weight.grad = None if late else torch.linspace(1, 2 + number, len(weight)) * (-1) ** number
        if self.scaler is not None:
            self.scaler.scale(torch.zeros(()))  # makes its scale; gradients count as scaled
            self.scaler.unscale_(self.objective.optimizer)

    def seen(self) -> list[Tensor]:
        state = self.objective.optimizer.state
        values = [value for weight in self.weights for _, value in sorted(state.get(weight, {}).items())]
        return [*self.weights, *(torch.as_tensor(value, dtype=torch.float64) for value in values if value is not None)]


def after(make: Make, failing: int, place: int, *, scales: bool, again: bool = False) -> tuple[Training, FailsAt, bool]:
    """Step to the one that fails, and two steps beyond it where it is done."""
    training, fails = Training(make, scales=scales), FailsAt(place, again=again)
    for number in range(failing):
        training.step(number)
    before = [value.detach().clone() for value in training.seen()]
    try:
        training.step(failing, fails)
    except OptimizerOutOfMemoryError as error:
        if error.is_whole:
            for value, old in zip(training.seen(), before, strict=True):
                assert torch.equal(value, old)
        return training, fails, False
    for number in range(failing + 1, failing + 3):
        training.step(number)
    return training, fails, True


ALWAYS = ("adam, all at once", "adam, one by one", "fused adamw", "no state, one by one", "two groups")
CASES = [
    pytest.param(kind, scales, marks=() if kind in ALWAYS and not (scales and "two" in kind) else only_in_acceptance)
    for kind in KINDS
    for scales in (False, True)
]


@pytest.mark.parametrize(("kind", "scales"), CASES)
def test_a_step_that_fails_at_any_operator_is_the_plain_one_or_ends_the_run(kind: str, scales: bool) -> None:
    make, done = KINDS[kind], {0: 0, 2: 0, 3: 0}
    for failing in done:
        plain = Training(make, scales=scales)
        for number in range(failing + 3):
            plain.step(number)
        place = 0
        while True:
            place += 1
            training, fails, is_done = after(make, failing, place, scales=scales)
            if fails.seen < place:
                break  # beyond the last operator
            if is_done:
                done[failing] += 1
                torch.testing.assert_close(training.seen(), plain.seen(), rtol=1e-6, atol=1e-7)
        assert place > 3
    # SGD keeps no count that would tell whether all its weights have moved at once; three reads are the scaler's.
    assert (done[0] > 3 * scales) == ("sgd" not in kind)


def test_state_that_does_not_fit_is_made_in_the_second_attempt_one_weight_after_another() -> None:
    training = Training(KINDS["adam, all at once"])
    training.take_gradients(2)
    # Four operators make the state of the first weight; the fifth makes that of the next.
    with FailsAt(6):
        assert step_optimizer(training.objective, CPU)
    optimizer = training.objective.optimizer
    assert [group["foreach"] for group in optimizer.param_groups] == [False]
    assert [float(optimizer.state[weight]["step"]) for weight in training.weights] == [1.0, 1.0, 1.0]


def test_ranks_repeat_a_step_in_the_form_that_the_others_took() -> None:
    training = Training(KINDS["adam, all at once"])
    training.take_gradients(2)
    with FailsAt(6):
        step_optimizer(training.objective, CPU, may_change_form=False)
    assert training.objective.optimizer.param_groups[0]["foreach"] is True


def test_what_does_not_fit_twice_leaves_weights_and_state_as_before_and_says_so() -> None:
    training = Training(KINDS["adam, one by one"])
    for number in range(2):
        training.step(number)
    before = [value.detach().clone() for value in training.seen()]
    training.take_gradients(2)  # with state of one more weight to be made
    optimizer = training.objective.optimizer

    def step() -> None:
        with FailsAt(3, again=True):
            optimizer.step()

    with pytest.raises(OptimizerOutOfMemoryError, match="changed no weight") as caught:
        stepping(optimizer, step, "g", CPU)
    assert caught.value.is_whole
    assert len(training.seen()) == len(before)
    for value, old in zip(training.seen(), before, strict=True):
        assert torch.equal(value, old)


class WithStep(torch.optim.Adam):
    """Writes in a way that no version tells of."""

    def step(self, closure: Any = None) -> Any:  # type: ignore[override]
        self.param_groups[0]["params"][0].data.add_(1.0)
        torch.empty(2**60, dtype=torch.uint8)


def hooked(weights: list[nn.Parameter]) -> Optimizer:
    optimizer = torch.optim.Adam(weights)
    optimizer.register_step_pre_hook(halve_gradients)
    return optimizer


def halve_gradients(optimizer: Optimizer, _arguments: Any, _options: Any) -> None:
    for weight in optimizer.param_groups[0]["params"]:
        weight.grad.mul_(0.5)


@pytest.mark.parametrize("make", [WithStep, hooked], ids=["a step of its own", "a hook of its own"])
def test_nothing_is_repeated_where_it_is_not_known_what_was_written(make: Make) -> None:
    training = Training(make)
    training.take_gradients(2)
    with FailsAt(4), pytest.raises(OptimizerOutOfMemoryError, match="Some weights may be updated") as caught:
        step_optimizer(training.objective, CPU)
    assert not caught.value.is_whole


def test_other_errors_of_an_optimizer_are_its_own() -> None:
    training = Training(KINDS["adam, one by one"])
    with pytest.raises(RuntimeError, match="its own"):
        stepping(training.objective.optimizer, fails_by_itself, "g", CPU)


def fails_by_itself() -> None:
    raise RuntimeError("its own")


def test_which_optimizers_take_all_weights_at_once() -> None:
    weights = [nn.Parameter(torch.ones(2))]
    made = [torch.optim.SGD(weights), torch.optim.Adam(weights, foreach=True), torch.optim.AdamW(weights, fused=True)]
    assert [takes_all_at_once(optimizer.param_groups[0]) for optimizer in made] == [False, True, True]
    assert [take_loop_form([optimizer]) for optimizer in made] == [False, True, False]
    undo = group_as_cuda()
    try:
        assert takes_all_at_once(made[0].param_groups[0])
    finally:
        undo()


class Others:
    """Ranks of which another one takes one weight after another."""

    def all_gather_object(self, message: Any) -> list[Any]:
        return [message, {"forms": [False] * len(message["forms"])}]


def test_ranks_agree_on_one_form() -> None:
    training = Training(KINDS["two groups"])
    agree_on_form([training.objective.optimizer], SINGLE_PROCESS)
    assert [group["foreach"] for group in training.objective.optimizer.param_groups] == [True, True]
    agree_on_form([training.objective.optimizer], Others())  # type: ignore[arg-type]
    assert [group["foreach"] for group in training.objective.optimizer.param_groups] == [False, False]
