"""Recovery is exact: real allocation failures in forward, in backward, in a second pass."""

import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from tests.unit.engine.test_step import batch_of, step, weights
from trainauto.automations.dynamic_batch_size import LQ_SIZE
from trainauto.core.batch import Batch
from trainauto.core.objectives import LossTerms, MicroBatch, Objective
from trainauto.core.plan import Axis
from trainauto.core.records import MicrobatchSplit
from trainauto.engine.optimizer_state import make_optimizer_state
from trainauto.engine.run_errors import OptimizerOutOfMemoryError
from trainauto.engine.snapshot import StepSnapshot
from trainauto.engine.step import StepSettings, optimize_parameters
from trainauto.engine.step_outcome import DoesNotFit
from trainauto.memory.monitor import onednn
from trainauto.models import SRModel
from trainauto.models.base_model import BaseModel
from trainauto.optim.precision import Precision

CPU = torch.device("cpu")


def fail_for_real() -> None:
    """Ask torch's allocator for more than there is: its own error, from its own code."""
    torch.empty(2**60, dtype=torch.uint8)


class FailsInBackward(torch.autograd.Function):
    """The identity, whose gradient runs out of memory above so many samples."""

    @staticmethod
    def forward(ctx, image: Tensor, largest: int) -> Tensor:  # type: ignore[override,no-untyped-def]
        ctx.too_large = image.shape[0] > largest
        return image.clone()

    @staticmethod
    def backward(ctx, gradient: Tensor):  # type: ignore[override,no-untyped-def]
        if ctx.too_large:
            fail_for_real()
        return gradient, None


class Limited(nn.Module):
    """An L1 loss for which only so many samples fit."""

    def __init__(self, where: str, largest: int) -> None:
        super().__init__()
        self.where, self.largest, self.failures = where, largest, 0

    def forward(self, output: Tensor, gt: Tensor) -> Tensor:
        if output.shape[0] > self.largest:
            self.failures += 1
            if self.where == "forward":
                fail_for_real()
            if self.where == "backward":
                output = FailsInBackward.apply(output, self.largest)
        return (output - gt).abs().mean()


def network(batch_norm: bool = False, dropout: bool = False) -> nn.Module:
    torch.manual_seed(0)
    layers: list[nn.Module] = [nn.Conv2d(3, 12, 3, padding=1)]
    if batch_norm:
        layers.append(nn.BatchNorm2d(12))
    if dropout:
        layers.append(nn.Dropout(0.3))
    return nn.Sequential(*layers, nn.PixelShuffle(2))


def model(where: str = "", largest: int = 99, **kind: bool) -> SRModel:
    losses = {"limited": Limited(where, largest)}
    return SRModel(network(**kind), losses, lambda p: torch.optim.Adam(p, lr=0.01), Precision(CPU), ema_decay=0.9)


@pytest.mark.parametrize("where", ["forward", "backward"])
@pytest.mark.parametrize(("samples", "largest"), [(8, 4), (9, 2), (5, 1), (12, 5)])
def test_weights_equal_those_of_a_run_split_from_the_start(where: str, samples: int, largest: int) -> None:
    """Fault 3: a retry gave up the epoch and kept partial gradients; here the same samples run again."""
    failing, whole = model(where, largest), model()
    pieces = samples
    for seed in range(3):
        outcome = step(failing, batch_of(samples, seed=seed))
        step(whole, batch_of(samples, seed=seed))
        assert outcome.failures
        pieces = outcome.failures[-1].pieces
        assert math.ceil(samples / pieces) <= largest
    split = model()
    for seed in range(3):
        step(split, batch_of(samples, micro=pieces, seed=seed))
    torch.testing.assert_close(weights(failing), weights(split), rtol=1e-6, atol=0)
    torch.testing.assert_close(weights(failing), weights(whole), rtol=1e-5, atol=1e-5)
    ours, theirs = (one.averages["net_g"].network.state_dict() for one in (failing, split))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


class FailsOnce(nn.Module):
    """An L1 loss that runs out of memory at its second call, whatever the samples."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, output: Tensor, gt: Tensor) -> Tensor:
        self.calls += 1
        if self.calls == 2:
            fail_for_real()
        return (output - gt).abs().mean()


def test_gradients_of_the_pieces_before_the_one_that_failed_are_dropped() -> None:
    """Fault 3: partial gradients were kept: here those of the first piece, which are computed again."""
    failing, split = model(), model()
    failing._losses["limited"] = FailsOnce()
    (failure,) = step(failing, batch_of(8, micro=2)).failures
    assert failure.pieces == 4
    step(split, batch_of(8, micro=4))
    assert torch.equal(weights(failing), weights(split))


def test_random_numbers_are_drawn_again() -> None:
    """A retry draws what a run split that way from the start would have drawn."""
    failing, split = model("backward", 2, dropout=True), model(dropout=True)
    for one, micro in ((failing, 1), (split, 4)):
        torch.manual_seed(5)
        step(one, batch_of(8, micro=micro))
    assert torch.equal(weights(failing), weights(split))


def test_batch_statistics_go_back_and_the_batch_is_not_split() -> None:
    failing = model("backward", 4, batch_norm=True)
    before = {name: buffer.clone() for name, buffer in failing.networks["net_g"].named_buffers()}
    old = weights(failing)
    outcome = optimize_parameters(failing, batch_of(8))
    assert isinstance(outcome, DoesNotFit)
    assert outcome.samples == 8
    for name, buffer in failing.networks["net_g"].named_buffers():
        assert torch.equal(buffer, before[name]), name
    assert torch.equal(weights(failing), old)
    assert all(p.grad is None for p in failing.networks["net_g"].parameters())
    step(failing, batch_of(4))
    assert not torch.equal(weights(failing), old)


def test_buffers_that_change_are_found_and_kept_from_then_on() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4))
    net.register_buffer("constant", torch.zeros(1000))
    snapshot = StepSnapshot([net], CPU)
    snapshot.take()
    net(torch.rand(2, 3, 4, 4))
    snapshot.commit_pass()
    snapshot.commit_step()
    snapshot.take()
    kept = {id(buffer) for buffer in snapshot.changing()}
    assert kept == {id(net[1].running_mean), id(net[1].running_var), id(net[1].num_batches_tracked)}
    mean = net[1].running_mean.clone()
    net(torch.rand(2, 3, 4, 4) + 5)
    snapshot.restore()
    assert torch.equal(net[1].running_mean, mean)


def test_one_sample_that_does_not_fit_is_said_so() -> None:
    outcome = optimize_parameters(model("forward", 0), batch_of(3))
    assert isinstance(outcome, DoesNotFit)
    assert "with 1 sample:" in str(outcome)


def test_other_errors_are_never_retried() -> None:
    class Broken(nn.Module):
        calls = 0

        def forward(self, output: Tensor, gt: Tensor) -> Tensor:
            Broken.calls += 1
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

    broken = SRModel(network(), {"broken": Broken()}, lambda p: torch.optim.Adam(p), Precision(CPU))
    with pytest.raises(RuntimeError, match="illegal"):
        step(broken, batch_of(4))
    assert Broken.calls == 1


class TwoPasses(BaseModel):
    """A generator and a discriminator: two passes, two optimizers; what one hands on is detached."""

    def __init__(self, largest: dict[str, float]) -> None:
        super().__init__(CPU)
        torch.manual_seed(0)
        self.networks = {"net_g": network(), "net_d": nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 1, 3))}
        self.optimizers = {
            name: torch.optim.Adam(self.networks[f"net_{name}"].parameters(), lr=0.01) for name in ("g", "d")
        }
        self.largest = largest
        self.passes_run: list[str] = []
        self.seen: list[Tensor] = []  # what the discriminator was handed
        self._passes = (
            Objective("g", self.optimizers["g"], self._loss_g),
            Objective("d", self.optimizers["d"], self._loss_d),
        )

    def objectives(self) -> Sequence[Objective]:
        return self._passes

    def enlarge(self, lq: Tensor) -> Tensor:
        return self.networks["net_g"](lq)

    def _guard(self, name: str, samples: float) -> None:
        self.passes_run.append(name)
        if samples > self.largest[name]:
            fail_for_real()

    def _loss_g(self, batch: MicroBatch) -> LossTerms:
        lq, gt = batch["lq"].float() / 255, batch["gt"].float() / 255
        fake = self.networks["net_g"](lq)
        self._guard("g", len(lq))
        batch["sr"] = fake.detach()
        return {"pixel": (fake - gt).abs().mean(), "gan": -0.01 * self.networks["net_d"](fake).mean()}

    def _loss_d(self, batch: MicroBatch) -> LossTerms:
        gt, fake = batch["gt"].float() / 255, batch["sr"]
        self._guard("d", len(gt) * (gt.shape[-1] / 16) ** 2)
        net_d = self.networks["net_d"]
        self.seen.append(fake.clone())
        return {"real": (1 - net_d(gt)).square().mean(), "fake": net_d(fake).square().mean()}


def all_weights(one: BaseModel) -> Tensor:
    return torch.cat([p.detach().flatten() for net in one.networks.values() for p in net.parameters()])


def test_a_failing_second_pass_leaves_the_first_as_it_stepped() -> None:
    failing, whole = TwoPasses({"g": 99, "d": 2}), TwoPasses({"g": 99, "d": 99})
    outcome = step(failing, batch_of(8))
    assert [(f.pass_name, f.pieces) for f in outcome.failures] == [("d", 2), ("d", 4)]
    assert failing.passes_run.count("g") == 1  # committed passes are never run again
    assert [len(seen) for seen in failing.seen] == [2, 2, 2, 2]
    step(whole, batch_of(8))
    torch.testing.assert_close(all_weights(failing), all_weights(whole), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("first_in_pieces", [1, 3])
def test_what_a_pass_hands_on_is_of_all_samples_whatever_pieces_either_runs_in(first_in_pieces: int) -> None:
    handing, whole = TwoPasses({"g": math.ceil(6 / first_in_pieces), "d": 2}), TwoPasses({"g": 99, "d": 99})
    for one in (handing, whole):
        step(one, batch_of(6))
    torch.testing.assert_close(torch.cat(handing.seen), torch.cat(whole.seen), rtol=1e-6, atol=1e-6)


def test_a_second_pass_that_fits_in_no_pieces_goes_on_with_smaller_crops() -> None:
    """The first pass has stepped: it neither steps again nor is undone."""
    crops = [Axis(LQ_SIZE, "px", 4, 64, 4, power=2)]
    small = TwoPasses({"g": 99, "d": 0.3})
    batch = batch_of(4)
    outcome = step(small, batch, StepSettings(axes=crops))
    assert small.passes_run.count("g") == 1
    assert [(f.samples, f.pieces, f.extent) for f in outcome.failures] == [(4, 2, 8), (2, 4, 8), (1, 4, 4)]
    assert [tuple(seen.shape) for seen in small.seen] == [(1, 3, 8, 8)] * 4
    assert torch.equal(small.seen[0], optimize_and_see(batch)[:1, :, :8, :8])


def test_a_second_pass_that_fits_no_crop_either_ends_the_step() -> None:
    settings = StepSettings(axes=[Axis(LQ_SIZE, "px", 4, 64, 4, power=2)])
    outcome = optimize_parameters(TwoPasses({"g": 99, "d": -1}), batch_of(4), settings)
    assert isinstance(outcome, DoesNotFit)
    assert outcome.pass_name == "d"


def optimize_and_see(batch: Batch) -> Tensor:
    whole = TwoPasses({"g": 99, "d": 99})
    step(whole, batch)
    return whole.seen[0]


def test_optimizer_state_exists_beforehand_and_changes_nothing() -> None:
    for make in (
        lambda p: torch.optim.Adam(p, lr=0.01),
        lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1, amsgrad=True),
        lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, nesterov=True),
        lambda p: torch.optim.SGD(p, lr=0.01),
    ):
        prepared, plain = (SRModel(network(), {"l1": nn.L1Loss()}, make, Precision(CPU)) for _ in range(2))
        make_optimizer_state(prepared.optimizers.values())
        assert torch.equal(weights(prepared), weights(plain))
        for seed in range(3):
            for one in (prepared, plain):
                step(one, batch_of(4, seed=seed))
        assert torch.equal(weights(prepared), weights(plain))


def test_running_out_in_the_optimizer_is_not_repeated() -> None:
    class Hungry(torch.optim.SGD):
        def step(self, closure=None):  # type: ignore[override,no-untyped-def]
            fail_for_real()

    hungry = SRModel(network(), {"l1": nn.L1Loss()}, lambda p: Hungry(p, lr=0.1), Precision(CPU))
    with pytest.raises(OptimizerOutOfMemoryError, match="smaller network"):
        step(hungry, batch_of(2))


def test_moving_average_moves_once_when_its_update_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    failing, plain = model(batch_norm=True), model(batch_norm=True)
    ema = failing.averages["net_g"]
    first = next(iter(ema.network.buffers()))
    real, calls = torch.Tensor.copy_, []

    def copy(self: Tensor, *arguments: object) -> Tensor:
        if self is first and not calls:
            calls.append(1)
            fail_for_real()
        return real(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(torch.Tensor, "copy_", copy)
    batch: Batch = batch_of(4)
    step(failing, batch)
    step(plain, batch)
    assert calls
    ours, theirs = (one.averages["net_g"].network.state_dict() for one in (failing, plain))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_a_batch_that_does_not_even_reach_the_device_is_cut_down(monkeypatch: pytest.MonkeyPatch) -> None:
    one = model()
    monkeypatch.setattr(one, "feed_data", lambda batch: fail_for_real())
    old = weights(one)
    outcome = optimize_parameters(one, batch_of(4))
    assert isinstance(outcome, DoesNotFit)
    assert outcome.pass_name == "data"
    assert torch.equal(weights(one), old)


@pytest.mark.parametrize("where", ["forward", "backward"])
def test_a_step_runs_again_as_it_was_logged_without_failing(where: str) -> None:
    """Replay: the pieces in which a batch fitted in the end, from the start, give the same bits."""
    failing, again = model(where, 2, dropout=True), model(dropout=True)
    torch.manual_seed(5)
    logged = step(failing, batch_of(9))
    assert logged.pieces == {"g": MicrobatchSplit(5, 8)}
    torch.manual_seed(5)
    replayed = step(again, batch_of(9), StepSettings(splits=logged.pieces, may_requeue=False))
    assert (replayed.failures, replayed.pieces, replayed.losses) == ((), logged.pieces, logged.losses)
    assert torch.equal(weights(failing), weights(again))
    whole = model(dropout=True)
    torch.manual_seed(5)
    assert step(whole, batch_of(9)).pieces == {}
    assert not torch.equal(weights(whole), weights(again))


def test_a_replayed_step_stays_one_step_where_there_is_less_memory() -> None:
    """On a smaller card even the first pass goes on with smaller crops: giving the batch back would add steps."""
    small = model()
    small._losses["limited"] = SmallCrops(3)
    given_back = optimize_parameters(small, batch_of(2), StepSettings(axes=[Axis(LQ_SIZE, "px", 1, 64, power=2)]))
    assert isinstance(given_back, DoesNotFit)
    outcome = step(small, batch_of(2), StepSettings(axes=[Axis(LQ_SIZE, "px", 1, 64, power=2)], may_requeue=False))
    assert outcome.pieces == {"g": MicrobatchSplit(2, 3)}


class SmallCrops(nn.Module):
    """An L1 loss for which only crops of so many low-quality pixels fit."""

    def __init__(self, largest_px: int) -> None:
        super().__init__()
        self.largest_px = largest_px

    def forward(self, output: Tensor, gt: Tensor) -> Tensor:
        if output.shape[-1] > 2 * self.largest_px:
            fail_for_real()
        return (output - gt).abs().mean()


class Watches(nn.Module):
    """An L1 loss that sees whether convolutions are done with oneDNN."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[bool] = []

    def forward(self, output: Tensor, gt: Tensor) -> Tensor:
        self.seen.append(torch.backends.mkldnn.enabled)
        return (output - gt).abs().mean()


def test_a_step_without_onednn_is_logged_and_run_again_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums of torch's own convolutions differ in their last bits, so that a replay has to leave oneDNN aside too."""
    watching = model()
    watches = watching._losses["limited"] = Watches()
    logged = {"g": MicrobatchSplit(1, 8, without_onednn=True)}
    assert step(watching, batch_of(2)).pieces == {}
    assert step(watching, batch_of(2), StepSettings(splits=logged, may_requeue=False)).pieces == logged
    assert step(watching, batch_of(2)).pieces == {}
    assert watches.seen == [True, False, True]
    monkeypatch.setattr(onednn, "_left", True)  # as leave_if_broken() does
    assert step(watching, batch_of(2)).pieces == logged
    assert not torch.backends.mkldnn.enabled
    torch.backends.mkldnn.enabled = True
