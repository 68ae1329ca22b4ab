"""Rates of a loop's own schedules, multiplied for the length of a step."""

import pytest
import torch

from trainauto.core.records import Progress
from trainauto.integrations.own_rates import OwnRates


def an_optimizer(rate: float) -> torch.optim.Optimizer:
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=rate)


def test_each_group_has_its_own_rate_back_to_the_bit() -> None:
    optimizer, rates = an_optimizer(0.3), OwnRates()
    rates.set_rates([optimizer], Progress(), 0.1)
    rates.multiply([optimizer], 0.7)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.3 * 0.07)
    rates.put_back()
    assert optimizer.param_groups[0]["lr"] == 0.3


def test_a_schedule_that_moves_on_within_the_step_moves_its_own_rate() -> None:
    optimizer, rates = an_optimizer(1.0), OwnRates()
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    optimizer.register_step_post_hook(lambda *_: schedule.step())
    for _ in range(5):
        rates.set_rates([optimizer], Progress(), 0.5)
        optimizer.step()
        rates.put_back()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.9**5)
