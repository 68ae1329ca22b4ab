"""Batches of a loop of one's own that are stepped twice, late, or out of turn; datasets that change their length."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from trainauto import AdaptiveLoop, ModelObjective, Range
from trainauto.core.batch import Batch
from trainauto.core.errors import InputError
from trainauto.engine.run_errors import NothingFitsError

SAMPLES = 24
OUT_OF_MEMORY = "CUDA out of memory. Tried to allocate 1.00 GiB."


class Numbers:
    """A network on samples that are their numbers; what was trained is noted."""

    def __init__(self, samples: int = SAMPLES) -> None:
        self.rows = [torch.tensor([float(number)]) for number in range(samples)]
        torch.manual_seed(0)
        self.net = nn.Linear(1, 1).double()
        self.most = samples
        self.seen: list[int] = []

    def loss(self, model: Any, batch: Tensor) -> Tensor:
        if len(batch) > self.most:
            raise torch.OutOfMemoryError(OUT_OF_MEMORY)
        self.seen += batch[:, 0].long().tolist()
        return (model(batch.double() / SAMPLES) - 1).square().mean()

    def loop(self, *, splittable: bool | None = None, **options: Any) -> AdaptiveLoop:
        sgd = torch.optim.SGD(self.net.parameters(), 0.1, momentum=0.9)
        return AdaptiveLoop(
            self.net,
            ModelObjective("fit", sgd, self.loss, splittable=splittable),
            self.rows,
            **{"batch_size": 8, **options},
        )


@pytest.mark.parametrize("most", [8, 3])
def test_a_batch_that_is_stepped_again_is_trained_and_counts_its_samples_once(most: int) -> None:
    """As plain PyTorch does, whether or not it runs in parts."""
    task, by_hand = Numbers(), Numbers()
    task.most = most
    loop, sgd = task.loop(), torch.optim.SGD(by_hand.net.parameters(), 0.1, momentum=0.9)
    for batch in loop.batches(2):
        for _ in range(3):
            assert loop.step(batch).trained
            sgd.zero_grad()
            by_hand.loss(by_hand.net, loop.contents(batch)).backward()
            sgd.step()
    assert (loop.epoch, loop.progress.samples, loop.progress.steps) == (2, 2 * SAMPLES, 18)
    assert sorted(task.seen) == sorted(6 * list(range(SAMPLES)))
    torch.testing.assert_close(task.net.weight, by_hand.net.weight, rtol=1e-9, atol=1e-12)


def test_batches_may_be_kept_and_stepped_later() -> None:
    """Out of turn, too: the batch in hand still has to be stepped."""
    task = Numbers()
    loop = task.loop()
    kept: list[Batch] = []
    batches = loop.batches(1)
    for batch in batches:
        for old in kept:
            loop.step(old)
        assert loop.state_dict()["loader"]["tail"]["first_sample"] == 8 * len(kept)
        loop.step(batch)
        kept.append(batch)
    for old in reversed(kept):
        assert loop.step(old).samples == 8
    assert (loop.progress.samples, loop.progress.steps, loop.epoch) == (SAMPLES, 9, 1)
    leaving = loop.batches(2)
    next(leaving)
    loop.step(kept[0])
    with pytest.raises(InputError, match=r"was not passed to step\(\)"):
        next(leaving)


def test_a_resume_after_batches_that_were_stepped_again_goes_on_with_the_next() -> None:
    task, again = Numbers(), Numbers()
    loop, resumed = task.loop(), again.loop()
    batch = next(loop.batches())
    loop.step(batch)
    loop.step(batch)
    resumed.load_state_dict(loop.state_dict())
    for batch in resumed.batches(1):
        resumed.step(batch)
    assert sorted([*task.seen[:8], *again.seen]) == list(range(SAMPLES))


def test_a_batch_that_went_back_is_not_trained_by_itself(caplog: pytest.LogCaptureFixture) -> None:
    """Its samples come again; whoever steps it three times trains each of them three times all the same."""
    task = Numbers()
    task.most = 5
    loop = task.loop(splittable=False, batch_size=Range(8, 8))
    for batch in loop.batches(1):
        steps = [loop.step(batch) for _ in range(3)]
        assert len({step.trained for step in steps}) == 1
    assert sorted(task.seen) == sorted(3 * list(range(SAMPLES)))
    assert (loop.progress.samples, loop.epoch) == (SAMPLES, 1)
    assert "whose samples come again: it is not trained" in caplog.text


def test_a_batch_that_fits_no_more_is_left_out_where_it_was_trained_before(caplog: pytest.LogCaptureFixture) -> None:
    task = Numbers()
    loop = task.loop(splittable=False, batch_size=Range(8, 8))
    batches = loop.batches(1)
    first = next(batches)
    loop.step(first)
    task.most = 5
    step = loop.step(first)
    assert (step.trained, step.out_of_memory) == (False, 1)
    assert "it is left out, and its samples do not come again" in caplog.text
    for batch in batches:
        loop.step(batch)
    assert sorted(task.seen) == list(range(SAMPLES))


def test_where_nothing_smaller_is_allowed_a_batch_again_ends_the_loop_and_loses_nothing() -> None:
    task = Numbers()
    loop = task.loop(splittable=False)
    batches = loop.batches(1)
    first = next(batches)
    loop.step(first)
    task.most = 5
    with pytest.raises(NothingFitsError):
        loop.step(replace(first))
    task.most = 8
    for batch in loop.batches(1):
        loop.step(batch)
    assert sorted(task.seen) == list(range(SAMPLES))


@pytest.mark.parametrize("change", [8, -8])
@pytest.mark.parametrize("workers", [0, 1])
def test_a_dataset_of_another_length_is_refused_in_words(change: int, workers: int) -> None:
    """What was trained stays, and a state says how many samples it is of."""
    task = Numbers()
    loop = task.loop(num_workers=workers)
    with loop:
        batches = loop.batches(3)
        loop.step(next(batches))
        task.rows[SAMPLES + min(0, change) :] = [torch.tensor([99.0])] * max(0, change)
        message = rf"dataset 'samples' has {SAMPLES + change} samples now, and had {SAMPLES}: .*\n  Leave its length"
        with pytest.raises(InputError, match=message):
            list(map(loop.step, batches))
        assert (loop.progress.samples, loop.epoch) == (8, 0)
        state = loop.state_dict()
    assert state["loader"]["samples"] == SAMPLES
    with pytest.raises(InputError, match=f"has {SAMPLES + change} samples, the checkpoint was written with {SAMPLES}"):
        task.loop().load_state_dict(state)
    anew = task.loop()
    task.seen = []
    list(map(anew.step, anew.batches(1)))
    assert len(task.seen) == SAMPLES + change


def test_samples_may_be_replaced() -> None:
    task = Numbers()
    loop = task.loop()
    batches = loop.batches(2)
    loop.step(next(batches))
    task.rows[:] = [torch.tensor([float(number + 100)]) for number in range(SAMPLES)]
    list(map(loop.step, batches))
    assert sorted(task.seen[SAMPLES:]) == list(range(100, 100 + SAMPLES))
