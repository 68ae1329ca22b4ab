"""Rates, averages, precision."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from trainauto.core.records import Progress
from trainauto.optim import OPTIMIZERS, SCHEDULES
from trainauto.optim.ema import Averaging, Ema
from trainauto.optim.precision import Precision
from trainauto.optim.schedules import RateSchedule


def rates(schedule: RateSchedule, steps: range) -> list[float]:
    return [schedule.factor(Progress(steps=step, samples=step)) for step in steps]


def test_multistep_halves_at_its_milestones_as_basicsr_does() -> None:
    shape = SCHEDULES.get("MultiStepLR")(milestones=[3, 7], total=10, gamma=0.5)
    want = []
    parameter = nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    theirs = torch.optim.lr_scheduler.MultiStepLR(optimizer, [3, 7], 0.5)
    for _ in range(10):
        want.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        theirs.step()
    assert rates(RateSchedule(shape, 10), range(10)) == want


def test_cosine_and_linear_agree_with_torch() -> None:
    for name, theirs_class, arguments in (
        ("cosine", torch.optim.lr_scheduler.CosineAnnealingLR, {"T_max": 20, "eta_min": 0.1}),
        ("linear", torch.optim.lr_scheduler.LinearLR, {"start_factor": 1.0, "end_factor": 0.1, "total_iters": 20}),
    ):
        optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
        theirs = theirs_class(optimizer, **arguments)
        want = []
        for _ in range(20):
            want.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            theirs.step()
        ours = rates(RateSchedule(SCHEDULES.get(name)(end_factor=0.1), 20), range(20))
        assert ours == pytest.approx(want, rel=1e-9)


def test_warm_up_does_not_start_at_rate_zero() -> None:
    # D14's fault: the source's first step ran at rate 0.
    schedule = RateSchedule(SCHEDULES.get("constant")(), 100, warmup=4)
    assert rates(schedule, range(6)) == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]


@given(st.sampled_from(["constant", "linear", "cosine"]), st.integers(1, 1000), st.floats(0, 0.9), st.integers(1, 64))
def test_a_run_counted_in_samples_does_not_depend_on_the_batch(name: str, total: int, ratio: float, batch: int) -> None:
    schedule = RateSchedule(SCHEDULES.get(name)(), total * 64, "samples", ratio * total)
    for step in range(0, total, max(1, total // 7)):
        one = schedule.factor(Progress(steps=step, samples=step * batch))
        other = schedule.factor(Progress(steps=9999, samples=step * batch))
        assert one == other
        assert 0 <= one <= 1


def test_rates_reach_every_group_and_follow_a_factor() -> None:
    layer = nn.Linear(2, 2)
    optimizer = OPTIMIZERS.get("adamw")([{"params": [layer.weight], "lr": 0.1}, {"params": [layer.bias]}], lr=0.01)
    schedule = RateSchedule(SCHEDULES.get("linear")(end_factor=0.0), 10)
    schedule.remember_rates(optimizer)
    for step in (0, 5, 5, 10, 99):
        schedule.set_rates([optimizer], Progress(steps=step), extra_factor=0.5)
        share = 0.5 * max(0.0, 1 - step / 10)
        assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([0.1 * share, 0.01 * share])


def test_average_follows_its_formula_and_copies_buffers() -> None:
    network = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    ema = Ema(network, 0.9)
    want = network[0].weight.detach().clone()
    for _ in range(5):
        network(torch.rand(4, 3))
        with torch.no_grad():
            network[0].weight.add_(torch.rand(2, 3))
        ema.update(network)
        want = 0.9 * want + 0.1 * network[0].weight.detach()
    torch.testing.assert_close(ema.network[0].weight, want)
    assert torch.equal(ema.network[1].running_mean, network[1].running_mean)
    assert int(ema.network[1].num_batches_tracked) == 5
    assert not ema.network.training
    assert not any(parameter.requires_grad for parameter in ema.network.parameters())


@pytest.mark.parametrize(
    "averaging", [Averaging(0.75), Averaging(0.75, 4), Averaging(None, 4), Averaging(2.0, 3, 5), Averaging(None, 0, 3)]
)
def test_an_average_begins_as_that_of_ema_pytorch(averaging: Averaging) -> None:
    """Its rules, written down anew: copies up to a step, a decay that rises, weights that become the average."""
    torch.manual_seed(0)
    network, decay = nn.Linear(3, 2), 0.9
    ema = Ema(network, decay, averaging)
    average = {name: weight.clone() for name, weight in network.state_dict().items()}
    begins = averaging.power is not None or averaging.copies_until > 0
    for step in range(12):
        with torch.no_grad():
            for weight in network.parameters():
                weight += torch.randn_like(weight)
        weights = {name: weight.clone() for name, weight in network.state_dict().items()}
        kept, beyond = decay, step - averaging.copies_until
        if begins and beyond <= 0:
            kept = 0.0
        elif averaging.power is not None:
            kept = min(decay, 1 - (1 + beyond) ** -averaging.power)
        average = {name: kept * average[name] + (1 - kept) * weights[name] for name in weights}
        ema.update(network)
        ema.return_if_due(network)
        is_due = averaging.returns_every and step and step % averaging.returns_every == 0
        for name, weight in network.state_dict().items():
            torch.testing.assert_close(ema.network.state_dict()[name], average[name])
            torch.testing.assert_close(weight, average[name] if is_due else weights[name])


def test_a_resume_goes_on_where_the_average_was() -> None:
    network = nn.Linear(3, 2)
    whole, resumed = Ema(network, 0.9, Averaging(0.75)), Ema(network, 0.9, Averaging(0.75))
    for _ in range(5):
        whole.update(network)
    resumed.updates = whole.updates
    assert resumed.decay_now() == whole.decay_now() == 1 - 6**-0.75


def test_precision_names_and_scaling() -> None:
    cpu = torch.device("cpu")
    assert Precision(cpu).new_scaler() is None
    assert Precision(cpu, torch.bfloat16).new_scaler() is None
    assert Precision(cpu, torch.float16).new_scaler() is not None
    assert str(Precision(cpu, torch.bfloat16)) == "bf16 autocast"
    with Precision(cpu, torch.bfloat16).autocast():
        assert nn.Linear(2, 2)(torch.rand(1, 2)).dtype == torch.bfloat16
    with Precision(cpu).autocast():
        assert nn.Linear(2, 2)(torch.rand(1, 2)).dtype == torch.float32
