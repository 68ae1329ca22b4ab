"""How the gradients of a batch's parts differ, as a step sees it."""

import pytest
import torch
from torch import Tensor, nn

from tests.unit.engine.test_step import CPU, batch_of, model_of, step, weights
from trainauto.core.batch import Batch
from trainauto.core.noise_scale import NoiseScale
from trainauto.core.objectives import Objective
from trainauto.engine.part_norms import PartNorms
from trainauto.engine.step import StepSettings
from trainauto.models import SRModel
from trainauto.optim.precision import Precision
from trainauto.tasks.sr.archs import ARCHS

WATCHED = StepSettings(measures_noise=True)
SEEN = StepSettings(max_norm=0.1, measures_noise=True)


def gradient_of(model: SRModel, batch: Batch, samples: slice) -> Tensor:
    """Return the mean gradient of some samples."""
    part = {name: tensor[samples] for name, tensor in batch.tensors.items()}
    (objective,) = model.objectives()
    parameters = list(model.networks["net_g"].parameters())
    total = sum(objective.loss(part).values())
    return torch.cat([gradient.flatten() for gradient in torch.autograd.grad(total, parameters)])


@pytest.mark.parametrize(("samples", "micro", "parts"), [(8, 1, [4, 4]), (7, 1, [4, 3]), (9, 3, [3, 3, 3])])
def test_a_step_says_what_its_parts_gradients_are(samples: int, micro: int, parts: list[int]) -> None:
    model, plain = model_of(), model_of()
    batch = batch_of(samples, micro)
    square, start = 0.0, 0
    for size in parts:
        gradient = gradient_of(model, batch, slice(start, start + size))
        square += size / samples * float(gradient @ gradient)
        start += size
    whole = gradient_of(model, batch, slice(None))
    done = step(model, batch, SEEN)
    (noise,) = done.noise.values()
    assert (noise.parts, noise.amount) == (len(parts), samples)
    assert noise.parts_square == pytest.approx(square, rel=1e-4)
    assert noise.square == pytest.approx(float(whole @ whole), rel=1e-4)  # before clipping
    assert (done.pieces["g"].micro_batches if micro == 1 else done.pieces) == (len(parts) if micro == 1 else {})
    step(plain, batch, StepSettings(max_norm=0.1))
    torch.testing.assert_close(weights(model), weights(plain), rtol=1e-5, atol=1e-7)


def test_nothing_is_divided_where_parts_may_not_run_apart_or_there_is_one_sample() -> None:
    model = model_of()
    assert step(model, batch_of(1), WATCHED).noise["g"].parts == 1
    (objective,) = model.objectives()
    object.__setattr__(objective, "splittable", False)
    done = step(model, batch_of(8), WATCHED)
    assert (done.noise["g"].is_usable, done.pieces) == (False, {})
    assert step(model, batch_of(8)).noise == {}


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex64, torch.bfloat16])
def test_weights_of_any_kind_of_number_are_seen(dtype: torch.dtype) -> None:
    weight = nn.Parameter(torch.tensor([3.0, 4.0], dtype=dtype))
    norms = PartNorms(Objective("g", torch.optim.SGD([weight]), lambda _: {}))
    with norms.watching({}, 0.5):
        (weight * torch.tensor([0.5, 1.0])).abs().sum().backward()
    assert float(norms.total()) == pytest.approx(1.25 / 0.5, rel=1e-2)
    assert norms.total().dtype is torch.float32
    assert norms.parts == 1


class Linear(nn.Module):
    """One weight a channel, times its input."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(channels))

    def forward(self, image: Tensor) -> Tensor:
        return image * self.weight[:, None, None]


def test_the_scale_of_a_linear_model_is_that_of_its_closed_form() -> None:
    """loss = mean over samples of <w, x>, so that a sample's gradient is x: S and G are those of the inputs."""
    generator = torch.Generator().manual_seed(5)
    mean = torch.tensor([0.4, -0.2, 0.1])

    class Product(nn.Module):
        def forward(self, output: Tensor, gt: Tensor) -> Tensor:
            return output.mean() * 3 + 0 * gt.sum()

    model = SRModel(
        Linear(3), {"product": Product()}, lambda p: torch.optim.SGD(p, lr=0.0), Precision(CPU, torch.float32)
    )
    scale, scale_of_three = NoiseScale(), NoiseScale()
    drawn = []
    for number in range(200):
        for micro, one in ((1, scale), (3, scale_of_three)):
            batch = batch_of(12, micro, seed=number)
            levels = (mean + torch.randn(12, 3, generator=generator) * 0.3)[:, :, None, None]
            batch.tensors["lq"] = (128 + 60 * levels).clamp(0, 255).to(torch.uint8).expand(12, 3, 8, 8).contiguous()
            drawn.append(batch.tensors["lq"][:, :, 0, 0].double() / 255)
            one.add(step(model, batch, WATCHED).noise["g"])
    inputs = torch.cat(drawn)
    truth = float(inputs.var(dim=0).sum() / inputs.mean(dim=0).square().sum())
    for one in (scale, scale_of_three):
        assert one.value == pytest.approx(truth, rel=0.1)


def test_the_scale_of_the_quick_starts_network_is_that_of_single_samples() -> None:
    """1,000 gradients of single samples, at weights that have trained a little and are frozen then."""
    torch.manual_seed(0)
    network = ARCHS.get("compact")(num_feat=24, num_conv=6, scale=2)
    rates = {"lr": 3e-3}
    model = SRModel(network, {"l1": nn.L1Loss()}, lambda p: torch.optim.Adam(p, **rates), Precision(CPU, torch.float32))

    def smooth(samples: int, seed: int) -> Batch:
        batch = batch_of(samples, seed=seed)
        generator = torch.Generator().manual_seed(seed)
        coarse = torch.rand(samples, 3, 4, 4, generator=generator)
        gt = nn.functional.interpolate(coarse, size=(16, 16), mode="bicubic").clamp(0, 1)
        batch.tensors["gt"] = (255 * gt).to(torch.uint8)
        batch.tensors["lq"] = (255 * nn.functional.avg_pool2d(gt, 2)).to(torch.uint8)
        return batch

    for seed in range(60):
        step(model, smooth(8, seed))
    model.optimizers["g"].param_groups[0]["lr"] = 0.0
    scale = NoiseScale()
    for seed in range(200):
        scale.add(step(model, smooth(8, 10_000 + seed), WATCHED).noise["g"])
    total, squares = torch.zeros(0), 0.0
    for seed in range(1000):
        gradient = gradient_of(model, smooth(1, 50_000 + seed), slice(None))
        total = gradient.double() + (total if total.numel() else 0)
        squares += float(gradient.double() @ gradient.double())
    mean = total / 1000
    noise = squares / 1000 - float(mean @ mean)
    assert scale.value == pytest.approx(noise / (float(mean @ mean) - noise / 1000), rel=0.25)
