"""A step that runs out of memory at any of its operators: the weights of one that does not, or the run's end."""

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.acceptance import ACCEPTANCE
from tests.optimizer_failures import FailsAt
from tests.unit.engine.test_snapshot import CPU, Limited, network
from tests.unit.engine.test_step import batch_of
from trainauto.engine.run_errors import OptimizerOutOfMemoryError
from trainauto.engine.snapshot import StepSnapshot
from trainauto.engine.step import StepSettings, optimize_parameters
from trainauto.engine.step_outcome import DoesNotFit
from trainauto.memory.monitor import onednn
from trainauto.models import SRModel
from trainauto.optim.precision import Precision

EACH = 1 if ACCEPTANCE else 21
"""Of how many operators one is failed at."""

KINDS: dict[str, tuple[dict[str, bool], torch.dtype, StepSettings]] = {
    "clipped": ({}, torch.float32, StepSettings(max_norm=0.01)),
    "buffers and noise": (
        {"batch_norm": True, "dropout": True},
        torch.float32,
        StepSettings(max_norm=0.01, may_requeue=True),
    ),
    "measured": ({"dropout": True}, torch.float32, StepSettings(measures_noise=True)),
    "scaled": ({}, torch.float16, StepSettings(max_norm=0.01)),
}


class Steps:
    """A few steps of a small network."""

    def __init__(self, kind: str) -> None:
        layers, dtype, self.settings = KINDS[kind]
        losses: dict[str, nn.Module] = {"l1": Limited("", 99)}
        precision = Precision(CPU, dtype)
        self.model = SRModel(
            network(**layers), losses, lambda weights: torch.optim.Adam(weights, 0.01), precision, ema_decay=0.9
        )
        self.snapshot = StepSnapshot.of(self.model)
        torch.manual_seed(3)

    def step(self, number: int, mode: Any = None) -> None:
        """Train a batch; one that goes back comes again, as the loop has it."""
        batch = batch_of(8, micro=2, seed=number)
        with mode or nullcontext():
            for _ in range(3):
                if not isinstance(
                    optimize_parameters(self.model, batch, self.settings, snapshot=self.snapshot), DoesNotFit
                ):
                    return
        raise AssertionError("the batch did not fit three times")

    def seen(self) -> list[Tensor]:
        averages = self.model.averages["net_g"].network.state_dict().values()
        return [value.clone() for value in (*self.model.networks["net_g"].state_dict().values(), *averages)]


@pytest.mark.parametrize("failing", [0, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_a_step_that_fails_at_any_operator_is_the_plain_one_or_ends_the_run(kind: str, failing: int) -> None:
    plain = Steps(kind)
    for number in range(failing + 2):
        plain.step(number)
    place, recovered = 1 + failing, 0
    while True:
        steps, fails = Steps(kind), FailsAt(place)
        for number in range(failing):
            steps.step(number)
        is_half = False
        try:
            steps.step(failing, fails)
        except OptimizerOutOfMemoryError as error:
            is_half = True
            if error.is_whole:  # it would have run again
                raise
        if fails.seen < place:
            break  # beyond the last operator
        if not is_half:
            steps.step(failing + 1)
            recovered += 1
            torch.testing.assert_close(steps.seen(), plain.seen(), rtol=1e-5, atol=1e-5)
        place += EACH
    assert recovered > 40 / EACH


class FailsTwice(FailsAt):
    """Runs out of memory at one kind of operator, the first two times."""

    def __init__(self, name: str) -> None:
        super().__init__(0)
        self.name, self.left = name, 2

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.left and function.__name__.startswith(self.name):
            self.left, self.place = self.left - 1, self.seen + 1
        return super().__torch_dispatch__(function, types, args, kwargs)


@pytest.mark.parametrize("operator", ["_foreach_norm", "_foreach_mul_"])
def test_a_norm_or_clipping_that_does_not_fit_twice_leaves_the_weights_and_says_so(operator: str) -> None:
    steps = Steps("clipped")
    steps.step(0)
    before = steps.seen()
    fails = FailsTwice(operator)
    with pytest.raises(OptimizerOutOfMemoryError, match="changed no weight") as caught:
        steps.step(1, fails)
    assert caught.value.is_whole
    assert not fails.left
    assert all(map(torch.equal, steps.seen(), before))


def test_state_that_cannot_be_compared_or_put_back_at_once_is_copied_and_put_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Memory runs out in the pass, and again while buffers are put back."""
    monkeypatch.setattr(onednn, "leave_if_broken", bool)  # its own operators are none of the step
    plain = Steps("buffers and noise")
    for number in range(3):
        plain.step(number)
    for place in range(20, 60, 3 if ACCEPTANCE else 13):
        for gap in (1, 2, 3, 5, 8):
            steps = Steps("buffers and noise")
            steps.step(0)
            with FailsAt(place):
                steps.step(1, FailsAt(place + gap))
            steps.step(2)
            assert all(map(torch.equal, steps.seen(), plain.seen()))
