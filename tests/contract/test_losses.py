"""What every registered loss keeps to, so that the engine may weight it, split its batch and run it under autocast."""

from collections.abc import Iterator, Sequence
from inspect import signature

import pytest
import torch
from torch import Tensor, nn

from tests.seeded_towers import needs_metrics, write_seeded_towers
from trainauto.tasks.sr.losses import LOSSES, GANLoss, WeightedLoss

ALIASES = ("l1", "mse", "charbonnier", "ssim", "mssim", "hsluv", "psnr", "ff", "cosim", "luma", "color", "fft")
FACTORS_OF_PACKAGES = ("DISTSLoss", "LPIPSLoss")
IMAGE_LOSSES = [
    pytest.param(name, marks=needs_metrics) if name in FACTORS_OF_PACKAGES else name
    for name in LOSSES
    if not issubclass(LOSSES.get(name), GANLoss)
]
"""Losses that compare an image with its reference; GANLoss has tests of its own (tests/unit/tasks/sr/losses)."""
WITH_REDUCTION = [name for name in LOSSES if "reduction" in signature(LOSSES.get(name)).parameters]
COLOUR = {
    "ColorLoss",
    "ConsistencyLoss",
    "CosimLoss",
    "DISTSLoss",
    "FLIPLoss",
    "GradientVarianceLoss",
    "HSLuvLoss",
    "LPIPSLoss",
    "MSSSIML1Loss",
    "PerceptualFP16Loss",
    "PerceptualLoss",
    "SobelEdgeLoss",
    "VGGPerceptualLoss",
}
"""They refuse grey images."""
CLAMPED = {"ClippedPseudoHuberLoss", "ConsistencyLoss", "CosimLoss", "FLIPLoss", "HSLuvLoss", "LumaLoss", "MSSIMLoss"}
"""Values outside of 0 to 1, or differences below 1/255, have no gradient there."""
AT_BEST = {
    "CharbonnierLoss": 1e-6,
    "ClippedPseudoHuberLoss": 0.003921,
    "ConsistencyLoss": 2e-6,
    "FLIPLoss": 9.86e-5,
    "GradientVarianceLoss": 2e-6,
    "PSNRLoss": -80.0,
    "PerceptualFP16Loss": 3.2e-6,
    "PerceptualLoss": 3.2e-6,
}
"""Values of equal images other than 0."""


@pytest.fixture(scope="module", autouse=True)
def _towers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """An eighth of the channels: what losses keep to does not depend on how many there are."""
    home = tmp_path_factory.mktemp("towers")
    write_seeded_towers(home, divisor=8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCH_HOME", str(home))
        yield


def images(samples: int = 5, channels: int = 3, side: int = 16) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    target = torch.rand(samples, channels, side, side, generator=generator)
    noise = torch.randn(target.shape, generator=generator)
    return (target + 0.1 * noise).requires_grad_(), target


def total(value: Tensor | dict[str, Tensor]) -> Tensor:
    """Return a loss, or the sum of its parts."""
    return torch.stack(list(value.values())).sum() if isinstance(value, dict) else value


@pytest.fixture(params=IMAGE_LOSSES)
def loss(request: pytest.FixtureRequest) -> nn.Module:
    return LOSSES.get(request.param)()


def named(loss: nn.Module) -> str:
    return type(loss).__name__


def test_it_is_a_scalar_in_float32_with_a_gradient_everywhere(loss: nn.Module) -> None:
    prediction, target = images()
    value = loss(prediction, target)
    parts = value.values() if isinstance(value, dict) else [value]
    assert all((part.shape, part.dtype) == ((), torch.float32) for part in parts)
    assert total(value) > AT_BEST.get(named(loss), 0.0)
    total(value).backward()
    assert prediction.grad is not None
    assert prediction.grad.isfinite().all()
    assert (prediction.grad != 0).float().mean() > (0.9 if named(loss) in CLAMPED else 0.99)


def test_it_leads_towards_the_target(loss: nn.Module) -> None:
    prediction, target = images()
    (slope,) = torch.autograd.grad(total(loss(prediction, target)), prediction)
    assert total(loss(prediction - 0.01 * slope / slope.abs().max(), target)) < total(loss(prediction, target))


def test_it_is_nothing_where_nothing_differs(loss: nn.Module) -> None:
    _, target = images()
    prediction = target.clone().requires_grad_()
    value = total(loss(prediction, target))
    assert value.item() == pytest.approx(AT_BEST.get(named(loss), 0.0), abs=2e-6)
    value.backward()
    assert prediction.grad is not None
    assert prediction.grad.isfinite().all()


@pytest.mark.parametrize("level", [0.0, 0.5, 1.0], ids=["black", "grey", "white"])
def test_gradients_of_images_without_texture_are_finite(loss: nn.Module, level: float) -> None:
    _, target = images()
    for reference in (target, torch.zeros_like(target), torch.ones_like(target)):
        flat = torch.full_like(target, level).requires_grad_()
        value = total(loss(flat, reference))
        value.backward()
        assert value.isfinite()
        assert flat.grad is not None
        assert flat.grad.isfinite().all()


@pytest.mark.parametrize("name", IMAGE_LOSSES)
@pytest.mark.parametrize("weight", [0.25, 3.0])
def test_the_weight_is_applied(name: str, weight: float) -> None:
    prediction, target = images()
    plain = total(LOSSES.get(name)()(prediction, target)).item()
    weighted = LOSSES.get(name)(loss_weight=weight)
    assert total(weighted(prediction, target)).item() == pytest.approx(weight * plain, rel=1e-6)
    assert f"loss_weight={weight:g}" in repr(weighted)


@pytest.mark.parametrize("parts", [(1, 4), (2, 2, 1), (1, 1, 1, 1, 1)])
def test_a_batch_is_the_weighted_mean_of_its_parts(loss: nn.Module, parts: Sequence[int]) -> None:
    prediction, target = images(sum(parts))
    compute = loss
    if next(loss.parameters(), None) is not None:
        # In float64: convolutions of few samples round otherwise, and slopes jump where a feature passes ReLU's kink.
        prediction, target = prediction.detach().double().requires_grad_(), target.double()
        compute = loss.double().compute
    whole = total(compute(prediction, target))
    pieces = [
        total(compute(one, other)) * (len(one) / len(prediction))
        for one, other in zip(prediction.split(list(parts)), target.split(list(parts)), strict=True)
    ]
    together = torch.stack(pieces).sum()
    if loss.couples_samples:
        assert together.item() != pytest.approx(whole.item(), rel=1e-5)
        return
    assert together.item() == pytest.approx(whole.item(), rel=1e-5)
    (slope,) = torch.autograd.grad(whole, prediction)
    (slope_of_pieces,) = torch.autograd.grad(together, prediction)
    torch.testing.assert_close(slope_of_pieces, slope, rtol=1e-4, atol=1e-8)


def test_autocast_changes_nothing_but_the_rounding_of_its_input(loss: nn.Module) -> None:
    prediction, target = images()
    halved = prediction.detach().bfloat16().requires_grad_()
    expected = total(loss(halved.float(), target))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = total(loss(halved, target))
    assert value.dtype == torch.float32
    assert value.item() == (pytest.approx(expected.item(), rel=0.02) if loss.half_precision else expected.item())
    value.backward()
    assert halved.grad is not None
    assert halved.grad.dtype == torch.bfloat16
    assert halved.grad.isfinite().all()


def test_equal_features_in_float16_have_a_gradient() -> None:
    _, target = images(1)
    prediction = target.clone().requires_grad_()
    with torch.autocast("cpu", dtype=torch.float16):  # (p - t)^2 + 1e-12 would be 0 in it, whose root has no slope
        LOSSES.get("PerceptualFP16Loss")()(prediction, target).backward()
    assert prediction.grad is not None
    assert prediction.grad.isfinite().all()


@pytest.mark.parametrize("channels", [1, 3])
def test_grey_and_colour_in_any_memory_order(loss: nn.Module, channels: int) -> None:
    prediction, target = images(2, channels)
    if channels == 1 and named(loss) in COLOUR:
        with pytest.raises(ValueError, match="needs 3 channels, the images have 1"):
            loss(prediction, target)
        return
    plain = loss(prediction, target)
    nhwc = loss(prediction.to(memory_format=torch.channels_last), target.to(memory_format=torch.channels_last))
    torch.testing.assert_close(nhwc, plain)


@pytest.mark.parametrize("side", [1, 2, 5])
def test_the_smallest_images_have_a_gradient(loss: nn.Module, side: int) -> None:
    """A run's first step may be on one pixel."""
    prediction, target = images(2, side=side)
    value = total(loss(prediction, target))
    value.backward()
    assert value.isfinite()
    assert prediction.grad is not None
    assert prediction.grad.isfinite().all()


def test_different_shapes_are_refused(loss: nn.Module) -> None:
    prediction, target = images()
    with pytest.raises(ValueError, match=r"\(5, 3, 16, 16\) and target \(5, 3, 16, 15\) differ"):
        loss(prediction, target[..., :15])


def test_it_learns_nothing(loss: nn.Module) -> None:
    assert not any(weight.requires_grad for weight in loss.parameters())
    assert not any(module.training for module in loss.train().modules() if [*module.parameters(False)])


@pytest.mark.parametrize("name", WITH_REDUCTION)
def test_only_means_are_taken(name: str) -> None:
    assert LOSSES.get(name)(reduction="mean") is not None
    with pytest.raises(ValueError, match="only means can be put together again"):
        LOSSES.get(name)(reduction="sum")


def test_names_in_any_case_and_short_ones() -> None:
    assert {"CharbonnierLoss", "GANLoss", "L1Loss", "MSELoss", "SSIMLoss"} < set(LOSSES)
    for alias in ALIASES:
        assert LOSSES.get(alias.upper()) is LOSSES.get(f"{alias}loss")


def test_charbonnier_needs_a_positive_eps() -> None:
    with pytest.raises(ValueError, match="eps must be positive"):
        LOSSES.get("charbonnier")(eps=0.0)


def test_a_loss_must_say_what_it_computes() -> None:
    with pytest.raises(NotImplementedError):
        WeightedLoss()(*images())
