"""A generator and a discriminator: who learns what from whom, and what a step, a failure and a resume leave."""

from collections.abc import Mapping
from copy import deepcopy
from math import isfinite
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.unit.engine.test_snapshot import Limited, fail_for_real
from tests.unit.engine.test_step import CPU, batch_of, step
from trainauto.core.batch import Batch
from trainauto.core.objectives import parameters_of
from trainauto.core.records import MicrobatchSplit
from trainauto.distributed.communicator import SINGLE_PROCESS
from trainauto.engine.gradients import compute_gradients
from trainauto.engine.snapshot import StepSnapshot
from trainauto.engine.step import StepSettings, optimize_parameters
from trainauto.engine.step_outcome import Gradients, Stepped
from trainauto.models import ESRGANModel, SRGANModel
from trainauto.optim.precision import Precision
from trainauto.tasks.sr.archs import MultiscalePatchGANDiscriminatorSN, UNetDiscriminatorSN
from trainauto.tasks.sr.losses import GANLoss


class Judge(nn.Module):
    """A small discriminator; real failures above so many samples."""

    def __init__(self, largest: int = 99, batch_norm: bool = False) -> None:
        super().__init__()
        norm = nn.BatchNorm2d(6) if batch_norm else nn.Identity()
        self.body = nn.Sequential(nn.Conv2d(3, 6, 3), norm, nn.LeakyReLU(0.2), nn.Conv2d(6, 1, 3))
        self.largest = largest

    def forward(self, image: Tensor) -> Tensor:
        judgements: Tensor = self.body(image)
        if len(image) > self.largest:
            fail_for_real()
        return judgements


def generator(batch_norm: bool = False) -> nn.Module:
    norm = nn.BatchNorm2d(12) if batch_norm else nn.Identity()
    return nn.Sequential(nn.Conv2d(3, 12, 3, padding=1), norm, nn.PixelShuffle(2))


def gan(
    judge: nn.Module | None = None,
    losses: Mapping[str, nn.Module] | None = None,
    *,
    dtype: torch.dtype = torch.float32,
    rates: tuple[float, float] = (0.01, 0.01),
    made_by: nn.Module | None = None,
    kind: type[SRGANModel] = SRGANModel,
    **pace: int,
) -> SRGANModel:
    torch.manual_seed(0)
    rate_g, rate_d = rates
    net_g = made_by or generator()
    torch.manual_seed(1)
    for parameter in () if judge is None else judge.parameters():
        nn.init.normal_(parameter, std=0.1)
    return kind(
        net_g,
        losses or {"l1loss": nn.L1Loss(), "ganloss": GANLoss(loss_weight=0.1)},
        lambda p: torch.optim.Adam(p, lr=rate_g),
        Precision(CPU, dtype),
        network_d=judge or UNetDiscriminatorSN(num_feat=4),
        make_optimizer_d=lambda p: torch.optim.Adam(p, lr=rate_d),
        ema_decay=0.9,
        **pace,
    )


def weights(model: SRGANModel, name: str) -> Tensor:
    return torch.cat([p.detach().flatten() for p in model.networks[name].parameters()])


def has_gradients(model: SRGANModel, name: str) -> bool:
    return any(p.grad is not None for p in model.networks[name].parameters())


def total(terms: Mapping[str, Tensor]) -> Tensor:
    return torch.stack(list(terms.values())).sum()


def test_each_pass_has_gradients_for_its_own_network_alone() -> None:
    model, micro_batch = gan(), dict(batch_of(3).tensors)
    pass_g, pass_d = model.objectives()
    assert (pass_g.name, pass_d.name) == ("g", "d")
    terms = pass_g.loss(micro_batch)
    assert set(terms) == {"l_g_l1loss", "l_g_gan"}
    total(terms).backward()
    assert has_gradients(model, "net_g")
    assert not has_gradients(model, "net_d")
    assert all(p.requires_grad for p in model.networks["net_d"].parameters())
    pass_g.optimizer.zero_grad()
    assert not micro_batch["sr"].requires_grad
    terms = pass_d.loss(micro_batch)
    assert set(terms) == {"l_d_real", "l_d_fake"}
    total(terms).backward()
    assert not has_gradients(model, "net_g")
    assert all(p.grad is not None for p in model.networks["net_d"].parameters())


@pytest.mark.parametrize("gan_type", ["vanilla", "lsgan", "hinge"])
def test_values_are_those_of_the_formulas(gan_type: str) -> None:
    loss = GANLoss(gan_type, loss_weight=0.3)
    model, batch = gan(Judge(), {"mse": nn.MSELoss(), "gan": loss}), batch_of(3)
    lq, gt = batch.tensors["lq"] / 255, batch.tensors["gt"] / 255
    net_g, net_d = model.networks["net_g"], model.networks["net_d"]
    with torch.no_grad():
        made = net_g(lq)
        expected = {
            "l_g_mse": nn.functional.mse_loss(made, gt),
            "l_g_gan": 0.3 * GANLoss(gan_type)(net_d(made), True),
            "l_d_real": loss(net_d(gt), True, is_disc=True),
            "l_d_fake": loss(net_d(made), False, is_disc=True),
        }
    outcome = step(model, batch)
    assert outcome.losses == pytest.approx({name: value.item() for name, value in expected.items()}, rel=1e-5)


def test_a_step_moves_both_networks_and_the_average_of_the_generator() -> None:
    model = gan()
    before = {name: weights(model, name) for name in ("net_g", "net_d")}
    for seed in range(2):
        outcome = step(model, batch_of(4, micro=2, seed=seed))
        assert set(outcome.losses) == {"l_g_l1loss", "l_g_gan", "l_d_real", "l_d_fake"}
        assert set(outcome.grad_norms) == {"g", "d"}
        assert all(value > 0 for value in (*outcome.losses.values(), *outcome.grad_norms.values()))
    assert all((weights(model, name) - old).abs().min() > 0 for name, old in before.items())
    average = torch.cat([p.flatten() for p in model.averages["net_g"].network.parameters()])
    assert set(model.averages) == {"net_g"}
    assert 0 < (average - before["net_g"]).norm() < (weights(model, "net_g") - before["net_g"]).norm()


def test_the_discriminator_sees_what_the_generator_made_before_it_stepped() -> None:
    made: list[Tensor] = []
    seen: list[Tensor] = []
    model = gan(Judge(), rates=(1.0, 0.01))
    model.networks["net_g"].register_forward_hook(lambda _module, _inputs, output: made.append(output.detach().clone()))
    model.networks["net_d"].register_forward_hook(lambda _module, inputs, _output: seen.append(inputs[0].clone()))
    step(model, batch_of(4, micro=2))
    assert [len(images) for images in made] == [2, 2]  # the generator runs once
    in_pass_d = seen[2:]
    assert torch.equal(torch.cat(in_pass_d[1::2]), torch.cat(made))
    assert torch.equal(torch.cat(in_pass_d[::2]), batch_of(4).tensors["gt"] / 255)


@pytest.mark.parametrize("gan_type", ["vanilla", "lsgan", "hinge"])
def test_relativistic_values_and_gradients_are_those_of_plain_torch_in_float64(gan_type: str) -> None:
    model = gan(Judge(), {"gan": GANLoss(gan_type, loss_weight=0.3)}, kind=ESRGANModel)
    assert [one.splittable for one in model.objectives()] == [False, False]
    net_g, net_d = (deepcopy(model.networks[name]).double() for name in ("net_g", "net_d"))
    batch = batch_of(3)
    lq, gt = batch.tensors["lq"].double() / 255, batch.tensors["gt"].double() / 255

    def loss(judgements: Tensor, is_real: bool, for_d: bool) -> Tensor:
        sign = 1 if is_real else -1
        if gan_type == "vanilla":
            return nn.functional.softplus(-sign * judgements).mean()
        if gan_type == "lsgan":
            return (judgements - float(is_real)).square().mean()
        return nn.functional.relu(1 - sign * judgements).mean() if for_d else -sign * judgements.mean()

    made, real = net_g(lq), net_d(gt).detach()
    judged = net_d(made)
    term_g = 0.3 * (loss(real - judged.mean(), False, False) + loss(judged - real.mean(), True, False)) / 2
    gradients_g = torch.autograd.grad(term_g, list(net_g.parameters()))
    real, judged = net_d(gt), net_d(made.detach())
    term_real = loss(real - judged.detach().mean(), True, True) / 2
    term_made = loss(judged - real.detach().mean(), False, True) / 2
    gradients_d = torch.autograd.grad(term_real + term_made, list(net_d.parameters()))

    expected = {"l_g_gan": term_g.item(), "l_d_real": term_real.item(), "l_d_fake": term_made.item()}
    found = gradients(model, batch, 3)
    for name, plain in (("g", gradients_g), ("d", gradients_d)):
        torch.testing.assert_close(found[name].double(), torch.cat([g.flatten() for g in plain]), rtol=1e-4, atol=1e-6)
    assert step(model, batch).losses == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("gan_type", ["vanilla", "lsgan", "hinge"])
def test_each_learns_to_win_where_the_other_stands_still(gan_type: str) -> None:
    batch = batch_of(4)
    for rates, terms in (((0.02, 0.0), ["l_g_gan"]), ((0.0, 0.02), ["l_d_real", "l_d_fake"])):
        model = gan(Judge(), {"gan": GANLoss(gan_type)}, rates=rates)
        sums = []
        for _ in range(25):
            losses = step(model, batch).losses
            sums.append(sum(losses[name] for name in terms))
        assert sums[-1] < sums[0] - 0.05, rates


@pytest.mark.parametrize("where", ["forward", "backward", "judge"])
def test_a_replay_equals_a_run_that_was_split_from_the_start(where: str) -> None:
    limited = {"limited": Limited(where, 2), "gan": GANLoss(loss_weight=0.1)}
    failing = gan(Judge(largest=2 if where == "judge" else 99), limited)
    split = gan(Judge(), {"limited": Limited("", 99), "gan": GANLoss(loss_weight=0.1)})
    for seed in range(2):
        outcome = step(failing, batch_of(6, seed=seed))
        assert outcome.failures
        assert all(p.requires_grad for p in failing.networks["net_d"].parameters())
        step(split, batch_of(6, micro=3, seed=seed))
    for name in ("net_g", "net_d"):
        torch.testing.assert_close(weights(failing, name), weights(split, name), rtol=1e-4, atol=1e-5)


def gradients(model: SRGANModel, batch: Batch, largest: int) -> dict[str, Tensor]:
    """Return the gradients of each pass in pieces of at most so many samples; no weights move."""
    snapshot, tensors, found = StepSnapshot.of(model), model.feed_data(batch), {}
    for one in model.objectives():
        begin = MicrobatchSplit(-(-len(batch) // largest), batch.shape.extent)
        given = compute_gradients(one, tensors, batch, snapshot, CPU, None, begin, SINGLE_PROCESS, len(batch))
        assert isinstance(given, Gradients)
        tensors |= given.handed_on
        found[one.name] = torch.cat([p.grad.flatten() for p in parameters_of(one) if p.grad is not None])
    return found


@pytest.mark.parametrize("largest", [1, 3])
def test_a_batch_in_pieces_has_the_gradients_of_the_whole_under_spectral_norm(largest: int) -> None:
    def sharp() -> SRGANModel:
        """Return one whose gradients of real and made images do not cancel down to rounding."""
        model = gan()
        with torch.no_grad():
            for parameter in (*model.networks["net_g"].parameters(), model.networks["net_d"].conv9.weight):
                parameter.mul_(3)
        return model

    whole, pieces = (gradients(sharp(), batch_of(8), most) for most in (8, largest))
    for name in ("g", "d"):
        assert (whole[name] - pieces[name]).norm() <= 1e-6 * whole[name].norm()


def test_the_generator_steps_where_the_number_of_the_step_says_so() -> None:
    model, batch = gan(Judge(), net_d_iters=2, net_d_init_iters=3), batch_of(4)
    moved = []
    for number in range(1, 7):
        before = {name: weights(model, name).clone() for name in ("net_g", "net_d")}
        with torch.no_grad():
            made = model.networks["net_g"](batch.tensors["lq"] / 255)
            expected = GANLoss()(model.networks["net_d"](made), False, is_disc=True).item()
        outcome = optimize_parameters(model, batch, StepSettings(step=number))
        assert isinstance(outcome, Stepped)
        assert outcome.losses["l_d_fake"] == pytest.approx(expected, rel=1e-5)  # made by the generator of this step
        assert outcome.left_out == (() if "l_g_gan" in outcome.losses else ("g",))
        moved.append([not torch.equal(weights(model, name), old) for name, old in before.items()])
    assert moved == [[False, True], [False, True], [False, True], [True, True], [False, True], [True, True]]
    assert set(step(model, batch).losses) == {"l_g_l1loss", "l_g_gan", "l_d_real", "l_d_fake"}  # what traces run


def test_a_step_of_the_discriminator_alone_recovers_in_pieces() -> None:
    failing, split = (gan(Judge(largest=largest), net_d_iters=2) for largest in (2, 99))
    outcome = optimize_parameters(failing, batch_of(6), StepSettings(step=1))
    assert isinstance(outcome, Stepped)
    assert {failure.pass_name for failure in outcome.failures} == {"d"}
    optimize_parameters(split, batch_of(6, micro=3), StepSettings(step=1))
    torch.testing.assert_close(weights(failing, "net_d"), weights(split, "net_d"), rtol=1e-5, atol=1e-6)


def test_a_generator_that_only_makes_images_couples_them_by_its_batch_norm() -> None:
    model = gan(Judge(), made_by=generator(batch_norm=True), net_d_iters=2)
    assert [one.splittable for one in model.objectives()] == [False, False]


def test_a_discriminator_that_judges_a_batch_as_a_whole_is_not_split() -> None:
    model = gan(MultiscalePatchGANDiscriminatorSN(ndf=2, n_layers=1, num_d=2))
    assert [one.splittable for one in model.objectives()] == [False, False]
    assert all(isfinite(value) for value in step(model, batch_of(3)).losses.values())


@pytest.mark.parametrize("pace", [{"net_d_iters": 0}, {"net_d_init_iters": -1}])
def test_numbers_of_steps_out_of_their_range_are_refused(pace: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="net_d_iters must be at least 1, and net_d_init_iters at least 0"):
        gan(Judge(), **pace)


def test_each_pass_takes_one_step_of_the_power_method_however_it_runs(caplog: pytest.LogCaptureFixture) -> None:
    def estimate(model: SRGANModel) -> Tensor:
        return torch.cat([value for name, value in model.networks["net_d"].named_buffers() if name.endswith("_u")])

    whole = gan(rates=(0.0, 0.0))
    step(whole, batch_of(6))
    by_hand = gan(rates=(0.0, 0.0))
    for _ in ("g", "d"):
        by_hand.networks["net_d"](torch.rand(1, 3, 8, 8))
    assert torch.equal(estimate(whole), estimate(by_hand))
    limited = {"limited": Limited("backward", 2), "gan": GANLoss(loss_weight=0.1)}
    failing = gan(losses=limited, rates=(0.0, 0.0))
    assert step(failing, batch_of(6)).failures
    assert torch.equal(estimate(failing), estimate(whole))
    assert "forward passes of" not in caplog.text


def test_the_discriminator_may_learn_again_after_any_error() -> None:
    class Broken(Judge):
        def forward(self, image: Tensor) -> Tensor:
            raise ValueError("broken")

    model = gan(Broken())
    model.networks["net_d"].body[0].bias.requires_grad_(False)  # somebody's choice, which stays
    before = [p.requires_grad for p in model.networks["net_d"].parameters()]
    micro_batch = dict(batch_of(2).tensors)
    with pytest.raises(ValueError, match="broken"):
        model.objectives()[0].loss(micro_batch)
    assert [p.requires_grad for p in model.networks["net_d"].parameters()] == before
    assert "sr" not in micro_batch


@pytest.mark.parametrize(
    ("in_g", "in_d", "splittable"),
    [(False, False, [True, True]), (True, False, [False, True]), (False, True, [False] * 2)],
)
def test_batch_norm_is_split_in_no_pass_that_runs_it(in_g: bool, in_d: bool, splittable: list[bool]) -> None:
    model = gan(Judge(batch_norm=in_d), made_by=generator(batch_norm=in_g))
    assert [one.splittable for one in model.objectives()] == splittable


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype: torch.dtype) -> None:
    model = gan(dtype=dtype)
    before = [weights(model, name) for name in ("net_g", "net_d")]
    for seed in range(4):
        outcome = step(model, batch_of(4, micro=2, seed=seed))
    assert all(value > 0 for value in outcome.losses.values())
    assert set(model.state_dict()["scalers"]) == ({"g", "d"} if dtype == torch.float16 else set())
    for name, old in zip(("net_g", "net_d"), before, strict=True):
        assert weights(model, name).isfinite().all()
        assert not torch.equal(weights(model, name), old)


def test_a_resumed_model_goes_on_to_the_bit(tmp_path: Path) -> None:
    def trained(model: SRGANModel, seeds: range) -> tuple[Tensor, Tensor]:
        for seed in seeds:
            step(model, batch_of(3, seed=seed))
        return weights(model, "net_g"), weights(model, "net_d")

    first, resumed = gan(), gan()
    trained(resumed, range(7, 9))  # elsewhere
    trained(first, range(3))
    first.save(tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == {f"net_{n}.safetensors" for n in ("g", "d", "g_ema")}
    resumed.load(tmp_path)
    resumed.load_state_dict(deepcopy(first.state_dict()))
    for one, other in zip(trained(first, range(3, 6)), trained(resumed, range(3, 6)), strict=True):
        assert torch.equal(one, other)
    buffers = [dict(one.networks["net_d"].named_buffers()) for one in (first, resumed)]
    assert all(torch.equal(value, buffers[1][name]) for name, value in buffers[0].items())


def test_validation_asks_the_generator_alone() -> None:
    model, lq = gan(Judge(largest=0)), torch.rand(1, 3, 8, 8)
    assert model.enlarge(lq).shape == (1, 3, 16, 16)


@pytest.mark.parametrize("count", [0, 2])
def test_it_takes_exactly_one_gan_loss(count: int) -> None:
    losses = {"l1": nn.L1Loss(), **{f"gan_{i}": GANLoss() for i in range(count)}}
    with pytest.raises(ValueError, match=f"exactly one GANLoss among its losses, not {count}"):
        gan(losses=losses)


def test_grey_images_in_channels_last() -> None:
    batch = batch_of(2)
    grey = Batch(
        {name: tensor[:, :1] for name, tensor in batch.tensors.items()},
        batch.workload,
        batch.names,
        0,
        batch.plan,
        batch.plan,
        batch.shape,
        batch.units,
    )
    model = SRGANModel(
        nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.PixelShuffle(2)),
        {"gan": GANLoss()},
        torch.optim.SGD,
        Precision(CPU),
        network_d=UNetDiscriminatorSN(num_in_ch=1, num_feat=4),
        make_optimizer_d=torch.optim.SGD,
        channels_last=True,
    )
    assert set(step(model, grey).losses) == {"l_g_gan", "l_d_real", "l_d_fake"}
