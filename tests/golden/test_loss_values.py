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
    # A sum of signs: those of frequencies that are equal up to rounding depend on the machine's FFT (at_abs).
    assert gradient[0, 0, 50, 60].item() == pytest.approx(case["at"], rel=1e-3, abs=case.get("at_abs"))


@pytest.mark.parametrize(
    ("gan_type", "generator", "real", "made"),
    [
        ("vanilla", 0.7754645, 0.7754645, 0.7727605),
        ("wgan_softplus", 0.7754645, 0.7754645, 0.7727605),
        ("lsgan", 1.693383, 1.693383, 0.6879743),
        ("hinge", 0.002704038, 1.046691, 1.041768),
        ("wgan", 0.002704038, 0.002704038, -0.002704038),
    ],
)
def test_gan_losses(gan_type: str, generator: float, real: float, made: float) -> None:
    loss, logits = LOSSES.get("ganloss")(gan_type=gan_type), (4 * sines()[1][:, :1] - 2).float()
    found = [loss(logits, True), loss(logits, True, is_disc=True), loss(logits, False, is_disc=True)]
    assert [value.item() for value in found] == pytest.approx([generator, real, made], rel=1e-5, abs=1e-7)
