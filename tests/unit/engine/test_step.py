"""One optimizer step: micro-batches weighted by samples, clipping, NaN, loss scaling."""

import math
from collections.abc import Mapping
from itertools import accumulate

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from trainauto.core.batch import Batch
from trainauto.core.errors import NonFiniteError
from trainauto.core.plan import BatchShape, Plan
from trainauto.core.workload import split
from trainauto.engine.step import PLAIN, StepSettings, optimize_parameters
from trainauto.engine.step_outcome import Stepped
from trainauto.models import SRModel
from trainauto.models.base_model import BaseModel
from trainauto.optim.precision import Precision
from trainauto.tasks.sr.data.image_crops import ImageCrops

CPU = torch.device("cpu")


def batch_of(samples: int, micro: int = 1, seed: int = 0) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    tensors = {
        "lq": torch.randint(0, 256, (samples, 3, 8, 8), dtype=torch.uint8, generator=generator),
        "gt": torch.randint(0, 256, (samples, 3, 16, 16), dtype=torch.uint8, generator=generator),
    }
    plan = Plan.of(batch_size=samples, lq_size=8, micro_batches=micro)
    names = tuple(f"image_{i}.png" for i in range(samples))
    return Batch(tensors, ImageCrops(3, 2), names, 0, plan, plan, BatchShape(samples, 8), samples * 256)


def model_of(dtype: torch.dtype = torch.float32, **losses: nn.Module) -> SRModel:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 12, 3, padding=1), nn.PixelShuffle(2))
    return SRModel(network, losses or {"l1": nn.L1Loss()}, lambda p: torch.optim.SGD(p, lr=0.1), Precision(CPU, dtype))


def step(model: BaseModel, batch: Batch, settings: StepSettings = PLAIN) -> Stepped:
    """Train a batch that fits."""
    outcome = optimize_parameters(model, batch, settings)
    assert isinstance(outcome, Stepped), outcome
    return outcome


def weights(model: SRModel) -> Tensor:
    return torch.cat([p.detach().flatten() for p in model.networks["net_g"].parameters()])


@given(st.integers(1, 40), st.integers(1, 40))
def test_micro_batches_cover_all_samples_and_weigh_what_they_hold(samples: int, largest: int) -> None:
    tensors = {"lq": torch.arange(samples)}
    crops = ImageCrops(3, 2)
    parts = list(split(crops, tensors, samples, largest))
    assert torch.cat([part["lq"] for _, part in parts]).tolist() == list(range(samples))
    sizes = [crops.weight(part) for _, part in parts]
    assert [done for done, _ in parts] == list(accumulate(sizes))
    assert sum(sizes) == samples
    assert len(sizes) == math.ceil(samples / largest)
    assert max(sizes) <= largest
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(("samples", "micro"), [(12, 3), (12, 5), (7, 2), (5, 4), (3, 3)])
def test_accumulation_equals_the_whole_batch(samples: int, micro: int) -> None:
    """Unequal parts too: averaging the means of 8 and 4 samples would be 9.9 % off (notes on accumulation)."""
    whole, parts = model_of(), model_of()
    one = step(whole, batch_of(samples))
    two = step(parts, batch_of(samples, micro))
    torch.testing.assert_close(weights(parts), weights(whole), rtol=1e-5, atol=1e-7)
    assert two.losses["l1"] == pytest.approx(one.losses["l1"], rel=1e-6)
    assert two.grad_norms["g"] == pytest.approx(one.grad_norms["g"], rel=1e-5)


def test_loss_terms_are_reported_apart() -> None:
    outcome = step(model_of(l1=nn.L1Loss(), mse=nn.MSELoss()), batch_of(2))
    assert set(outcome.losses) == {"l1", "mse"}
    assert outcome.losses["mse"] < outcome.losses["l1"]


def test_clipping_bounds_the_step() -> None:
    model = model_of()
    before = weights(model)
    outcome = step(model, batch_of(2), StepSettings(max_norm=1e-3))
    assert outcome.grad_norms["g"] > 1e-3  # reported as it was before clipping
    assert float((weights(model) - before).norm()) == pytest.approx(0.1 * 1e-3, rel=1e-3)


def test_a_pass_may_be_clipped_at_a_norm_of_its_own() -> None:
    settings = StepSettings(max_norm=1e-3, max_norms={"g": 2e-3, "d": None})
    assert [settings.max_norm_of(name) for name in ("g", "d", "another")] == [2e-3, None, 1e-3]
    model = model_of()
    before = weights(model)
    step(model, batch_of(2), settings)
    assert float((weights(model) - before).norm()) == pytest.approx(0.1 * 2e-3, rel=1e-3)


class Spoiled(nn.Module):
    """A loss whose value or gradient is not finite."""

    def __init__(self, value: float, gradient: float) -> None:
        super().__init__()
        self.value, self.gradient = value, gradient

    def forward(self, output: Tensor, _gt: Tensor) -> Tensor:
        if math.isnan(self.gradient):  # a finite value, whose slope at zero is infinite
            return (0 * output).sqrt().mean() + self.value
        return 0 * output.mean() + self.value


@pytest.mark.parametrize(
    ("value", "gradient", "words"),
    [
        (math.nan, 1, "loss term 'spoiled' of pass 'g' is nan"),
        (math.inf, 1, "is inf"),
        (1, math.nan, "the gradient norm of pass 'g' is nan, by loss term 'spoiled'"),
    ],
)
def test_nan_names_the_term_and_the_files_and_leaves_the_weights(value: float, gradient: float, words: str) -> None:
    model = model_of(l1=nn.L1Loss(), spoiled=Spoiled(value, gradient))
    before = weights(model)
    with pytest.raises(NonFiniteError) as caught:
        step(model, batch_of(10, micro=2))
    text = str(caught.value)
    assert words in text
    assert "image_7.png" in text
    assert "... and 2 more" in text
    assert "plan: batch_size 10, lq_size 8" in text
    assert torch.equal(weights(model), before)


def test_float16_overflow_skips_the_step_and_lowers_the_scale() -> None:
    class Huge(nn.Module):
        def forward(self, output: Tensor, _gt: Tensor) -> Tensor:
            return output.float().mean() * 1e30

    model = model_of(torch.float16, huge=Huge())
    scaler = model.objectives()[0].scaler
    assert scaler is not None
    before, scale = weights(model), scaler.get_scale()
    outcome = step(model, batch_of(2))
    assert outcome.skipped == ("g",)
    assert torch.equal(weights(model), before)
    assert scaler.get_scale() < scale
    assert step(model_of(torch.float16), batch_of(2)).skipped == ()


def test_bfloat16_trains() -> None:
    model = model_of(torch.bfloat16)
    first = step(model, batch_of(4)).losses["l1"]
    for _ in range(30):
        last = step(model, batch_of(4)).losses["l1"]
    assert last < first
    assert all(p.dtype == torch.float32 for p in model.networks["net_g"].parameters())


def test_batch_statistics_mark_a_pass_as_not_splittable() -> None:
    network = nn.Sequential(nn.Conv2d(3, 12, 3, padding=1), nn.BatchNorm2d(12), nn.PixelShuffle(2))
    model = SRModel(network, {"l1": nn.L1Loss()}, lambda p: torch.optim.SGD(p, lr=0.1), Precision(CPU))
    assert not model.objectives()[0].splittable
    assert model_of().objectives()[0].splittable


def test_enlarge_uses_the_average_and_leaves_the_network_in_training() -> None:
    def build(decay: float) -> SRModel:
        torch.manual_seed(0)
        network = nn.Sequential(nn.Conv2d(3, 12, 3, padding=1), nn.Dropout(0.5), nn.PixelShuffle(2))
        return SRModel(
            network, {"l1": nn.L1Loss()}, lambda p: torch.optim.SGD(p, lr=0.1), Precision(CPU), ema_decay=decay
        )

    image = torch.rand(1, 3, 8, 8)
    for decay in (0.0, 0.9):
        model = build(decay)
        start = model.enlarge(image)
        step(model, batch_of(2))
        now = model.enlarge(image)
        assert torch.equal(now, model.enlarge(image))  # evaluation mode: dropout is off
        assert model.networks["net_g"].training
        moved = float((now - start).abs().mean())
        assert moved > 0
        if decay == 0.0:
            whole_move = moved
    assert moved < whole_move


def test_state_survives_a_round_trip_but_options_win(tmp_path) -> None:  # type: ignore[no-untyped-def]
    def build(rate: float) -> SRModel:
        torch.manual_seed(1)
        network = nn.Sequential(nn.Conv2d(3, 12, 3, padding=1), nn.PixelShuffle(2))
        return SRModel(
            network,
            {"l1": nn.L1Loss()},
            lambda p: torch.optim.Adam(p, lr=rate),
            Precision(CPU, torch.float16),
            ema_decay=0.9,
        )

    first = build(0.01)
    for seed in range(3):
        step(first, batch_of(4, seed=seed))
    first.save(tmp_path)
    torch.save(first.state_dict(), tmp_path / "state.pt")
    second = build(0.02)
    second.load(tmp_path)
    second.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    assert second.optimizers["g"].param_groups[0]["lr"] == 0.02
    second.optimizers["g"].param_groups[0]["lr"] = 0.01
    for model in (first, second):
        step(model, batch_of(4, seed=9))
    assert torch.equal(weights(first), weights(second))
    for one, other in zip(
        first.averages["net_g"].network.parameters(), second.averages["net_g"].network.parameters(), strict=True
    ):
        assert torch.equal(one, other)


def test_batch_protocol_of_losses() -> None:
    seen: list[Mapping[str, Tensor]] = []

    class Watching(nn.Module):
        def forward(self, output: Tensor, gt: Tensor) -> Tensor:
            seen.append({"output": output, "gt": gt})
            return (output - gt).abs().mean()

    step(model_of(watching=Watching()), batch_of(4, micro=2))
    assert [one["gt"].shape[0] for one in seen] == [2, 2]
    assert 0 <= float(seen[0]["gt"].min()) <= float(seen[0]["gt"].max()) <= 1
