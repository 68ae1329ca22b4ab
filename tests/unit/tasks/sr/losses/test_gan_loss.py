"""GANLoss: its values, its gradients, what each side is told."""

import math

import pytest
import torch
from torch import Tensor, nn

from trainauto.tasks.sr.losses import LOSSES, GANLoss

TYPES = ("vanilla", "lsgan", "hinge")


def judgements(samples: int = 5) -> Tensor:
    return 2 * torch.randn(samples, 1, 6, 7, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("gan_type", "real", "made", "generator"),
    [
        # Of judgements 0.5 and -2: log(1 + e^-x), (x - label)^2, max(0, 1 -+ x), each a mean of two.
        (
            "vanilla",
            (math.log1p(math.exp(-0.5)) + math.log1p(math.exp(2))) / 2,
            (math.log1p(math.exp(0.5)) + math.log1p(math.exp(-2))) / 2,
            (math.log1p(math.exp(-0.5)) + math.log1p(math.exp(2))) / 2,
        ),
        ("lsgan", (0.25 + 9) / 2, (0.25 + 4) / 2, (0.25 + 9) / 2),
        ("hinge", (0.5 + 3) / 2, (1.5 + 0) / 2, 0.75),
    ],
)
def test_values_by_hand(gan_type: str, real: float, made: float, generator: float) -> None:
    loss, prediction = GANLoss(gan_type, loss_weight=0.1), torch.tensor([[0.5], [-2.0]])
    assert loss(prediction, True, is_disc=True).item() == pytest.approx(real, rel=1e-6)
    assert loss(prediction, False, is_disc=True).item() == pytest.approx(made, rel=1e-6)
    assert loss(prediction, True).item() == pytest.approx(0.1 * generator, rel=1e-6)


@pytest.mark.parametrize(("gan_type", "theirs"), [("vanilla", nn.BCEWithLogitsLoss()), ("lsgan", nn.MSELoss())])
@pytest.mark.parametrize("labels", [(1.0, 0.0), (0.9, 0.1)])
@pytest.mark.parametrize("is_real", [True, False])
def test_it_is_that_of_torch(gan_type: str, theirs: nn.Module, labels: tuple[float, float], is_real: bool) -> None:
    prediction = judgements().requires_grad_()
    value = GANLoss(gan_type, *labels)(prediction, is_real, is_disc=True)
    expected = theirs(prediction, torch.full_like(prediction, labels[0] if is_real else labels[1]))
    assert value.item() == pytest.approx(expected.item(), rel=1e-6)
    slopes = [torch.autograd.grad(one, prediction)[0] for one in (value, expected)]
    torch.testing.assert_close(*slopes)


@pytest.mark.parametrize("gan_type", TYPES)
def test_the_two_sides_pull_apart(gan_type: str) -> None:
    prediction = judgements().requires_grad_()
    loss = GANLoss(gan_type)
    (of_generator,) = torch.autograd.grad(loss(prediction, True), prediction)
    (of_judge,) = torch.autograd.grad(loss(prediction, False, is_disc=True), prediction)
    assert of_generator.sum() < 0 < of_judge.sum()


@pytest.mark.parametrize("gan_type", TYPES)
@pytest.mark.parametrize("is_real", [True, False])
@pytest.mark.parametrize("is_disc", [True, False])
def test_a_batch_is_the_weighted_mean_of_its_parts(gan_type: str, is_real: bool, is_disc: bool) -> None:
    loss, prediction = GANLoss(gan_type, loss_weight=0.3), judgements()
    parts = [loss(part, is_real, is_disc) * len(part) / 5 for part in prediction.split([2, 2, 1])]
    torch.testing.assert_close(torch.stack(parts).sum(), loss(prediction, is_real, is_disc))


@pytest.mark.parametrize("gan_type", TYPES)
def test_it_is_computed_in_float32_under_autocast(gan_type: str) -> None:
    loss, prediction = GANLoss(gan_type), judgements().bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        value = loss(prediction, True)
    assert value.dtype == torch.float32
    assert value.item() == loss(prediction.float(), True).item()


def test_names_and_what_it_shows() -> None:
    assert LOSSES.get("ganloss") is LOSSES.get("gan") is GANLoss
    assert repr(GANLoss("lsgan", loss_weight=0.1)) == "GANLoss(lsgan, loss_weight=0.1)"
    assert not GANLoss().state_dict()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"gan_type": "wgan-gp"}, "gan_type must be one of vanilla, lsgan, hinge, wgan, wgan_softplus, not 'wgan-gp'"),
        ({"gan_type": "hinge", "real_label_val": 0.9}, "hinge has no labels"),
        ({"gan_type": "hinge", "fake_label_val": 0.1}, "hinge has no labels"),
    ],
)
def test_what_it_refuses(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GANLoss(**arguments)


@pytest.mark.parametrize(("theirs", "ours"), [("bce", "vanilla"), ("mse", "lsgan")])
def test_types_of_neosr_are_those_of_others(theirs: str, ours: str) -> None:
    judgements = torch.linspace(-2, 2, 7)
    losses = LOSSES.get("gan_loss")(gan_type=theirs), LOSSES.get("gan")(gan_type=ours, loss_weight=0.1)
    assert losses[0](judgements, True).item() == losses[1](judgements, True).item()


def test_huber_of_judgements() -> None:
    judgements = torch.tensor([3.0, 0.5])  # beyond delta 1 of the label 1, and within
    loss = LOSSES.get("gan_loss")(gan_type="huber", loss_weight=1.0)
    assert loss(judgements, True).item() == pytest.approx((1.5 + 0.125) / 2)
