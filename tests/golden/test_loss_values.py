"""Losses have the values and gradients that traiNNer-redux's own code gives for images made of sines.

``loss_values.json``: computed with traiNNer-redux of 2026-06-09 in float32 on a CPU; trainauto was not imported.
``norm`` is that of the gradient, ``at`` its value at sample 0, channel 0, row 50, column 60. Images are made in
float64, then cast. FLIP's are those of flip-evaluator 1.7, which gives values alone.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from trainauto.tasks.sr.losses import LOSSES

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parent / "loss_values.json").read_text())


def sines() -> tuple[Tensor, Tensor]:
    """Return a target and a prediction, (2, 3, 192, 192)."""
    n, c, i, j = torch.meshgrid(*(torch.arange(size, dtype=torch.float64) for size in (2, 3, 192, 192)), indexing="ij")
    target = 0.5 + 0.4 * torch.sin(0.13 * i + 0.07 * j + 1.1 * c + 0.5 * n) * torch.cos(0.05 * j - 0.3 * c)
    noise = 0.06 * torch.sin(1.7 * i + 0.9 * j + 0.4 * c) + 0.03 * torch.cos(0.31 * i * (1 + n) - 0.2 * j)
    return target, (target + noise).clamp(0.02, 0.98)


def test_images_are_those_that_values_were_computed_of() -> None:
    target, prediction = sines()
    assert (target.sum().item(), prediction.sum().item()) == pytest.approx((110605.432923, 110606.143748), abs=1e-5)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['loss']} {case.get('arguments', '')}".strip())
def test_value_and_gradient(case: dict[str, Any]) -> None:
    side = case.get("side_px", 192)
    samples = slice(None) if "sample" not in case else slice(case["sample"], case["sample"] + 1)
    target, prediction = (image.float()[samples, :, :side, :side] for image in sines())
    prediction = prediction.requires_grad_()
    further = [(prediction.detach() + target) / 2] if "average" in case else []
    value = LOSSES.get(case["loss"])(loss_weight=1.0, **case.get("arguments", {}))(prediction, target, *further)
    if "parts" in case:
        assert {name: part.item() for name, part in value.items()} == pytest.approx(case["parts"], rel=1e-5)
        value = torch.stack(list(value.values())).sum()
    (gradient,) = torch.autograd.grad(value, prediction)
    assert value.item() == pytest.approx(case["value"], rel=1e-5)
    if "norm" not in case:
        assert gradient.isfinite().all()
        return
    # Theirs are rounded to six digits and computed in float32, in another order.
    assert gradient.norm().item() == pytest.approx(case["norm"], rel=1e-4)
    assert gradient[0, 0, 50, 60].item() == pytest.approx(case["at"], rel=1e-3)


# By type: of the generator, of the discriminator on real and on made images; judgements are 4 y - 2 of the red channel.
GAN_VALUES = {
    "vanilla": (0.7754645, 0.7754645, 0.7727605),
    "wgan_softplus": (0.7754645, 0.7754645, 0.7727605),
    "lsgan": (1.693383, 1.693383, 0.6879743),
    "hinge": (0.002704038, 1.046691, 1.041768),
    "wgan": (0.002704038, 0.002704038, -0.002704038),
}


@pytest.mark.parametrize("gan_type", GAN_VALUES)
def test_losses_of_judgements(gan_type: str) -> None:
    _, made = sines()
    judgements = (4 * made[:, :1] - 2).float()
    loss = LOSSES.get("gan")(gan_type=gan_type, loss_weight=1.0)
    found = (loss(judgements, True), loss(judgements, True, is_disc=True), loss(judgements, False, is_disc=True))
    assert [value.item() for value in found] == pytest.approx(list(GAN_VALUES[gan_type]), rel=1e-5, abs=1e-7)


@pytest.mark.parametrize(("theirs", "ours"), [("bce", "vanilla"), ("mse", "lsgan")])
def test_types_of_neosr_are_those_of_others(theirs: str, ours: str) -> None:
    _, made = sines()
    judgements = (4 * made[:, :1] - 2).float()
    losses = LOSSES.get("gan_loss")(gan_type=theirs), LOSSES.get("gan")(gan_type=ours, loss_weight=0.1)
    assert losses[0](judgements, True).item() == losses[1](judgements, True).item()


def test_huber_of_judgements() -> None:
    judgements = torch.tensor([3.0, 0.5])  # beyond delta 1 of the label 1, and within
    loss = LOSSES.get("gan_loss")(gan_type="huber", loss_weight=1.0)
    assert loss(judgements, True).item() == pytest.approx((1.5 + 0.125) / 2)
