"""A step of a loop of one's own that runs out of memory at any of its operators: the plain one, or the loop's end."""

from contextlib import nullcontext

import torch
from torch import Tensor, nn

from tests.acceptance import ACCEPTANCE
from tests.optimizer_failures import FailsAt
from tests.unit.integrations.test_adaptive_loop import Numbered, Regression
from trainauto import AdaptiveLoop
from trainauto.engine.run_errors import OptimizerOutOfMemoryError

EACH = 1 if ACCEPTANCE else 17
"""Of how many operators one is failed at."""

FAILING = 3
"""A step after those in which it is learned what changes."""


def trained(fails: FailsAt | None) -> tuple[Tensor, list[int]]:
    """Train an epoch, a step of which runs out of memory once; return the weights and the samples in order."""
    task = Regression(nn.Dropout(0.2))
    torch.manual_seed(2)
    trained: list[int] = []
    with AdaptiveLoop(task.net, task.objective(), Numbered(), batch_size=8, max_norm=0.1) as loop:
        for number, batch in enumerate(loop.batches(epochs=1)):
            with fails if fails is not None and number == FAILING else nullcontext():
                is_trained = loop.step(batch).trained
            if is_trained:
                trained += batch.tensors["0"].long()[:, 0].tolist()
    return task.weights(), trained


def test_a_step_that_fails_at_any_operator_is_the_plain_one_or_ends_the_loop() -> None:
    plain, order = trained(None)
    place, recovered = 1, 0
    while True:
        fails = FailsAt(place)
        try:
            weights, seen = trained(fails)
        except OptimizerOutOfMemoryError as error:
            if error.is_whole:  # it would have run again
                raise
        else:
            if fails.seen < place:
                break  # beyond the last operator
            assert seen == order
            recovered += 1
            torch.testing.assert_close(weights, plain, rtol=1e-5, atol=1e-5)
        place += EACH
    assert recovered > 30 / EACH
