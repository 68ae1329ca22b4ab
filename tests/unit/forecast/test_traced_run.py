"""Runs of option files on fake tensors."""

from collections.abc import Callable
from functools import partial
from itertools import accumulate
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_pre_hook

from tests.traced_networks import PLAN, loaded, write_traced_options
from trainauto.builders.data import first_plan
from trainauto.core.errors import InputError
from trainauto.core.plan import Plan
from trainauto.distributed.bucketed_all_reduce import BucketedAllReduce
from trainauto.engine.traced_training import _placing
from trainauto.forecast.traced_run import FakeRun
from trainauto.memory.cost.ratio_prior import ON_CARD
from trainauto.memory.tracing.trace import TraceError


@pytest.fixture
def options(tmp_path: Path) -> Callable[..., Path]:
    return partial(write_traced_options, tmp_path)


def test_the_first_plan_of_a_run_without_its_data(options: Callable[..., Path]) -> None:
    file = loaded(options())
    trace = FakeRun.of(file).trace(first_plan(file.options))
    assert trace == FakeRun.of(loaded(options())).trace(Plan.of(batch_size=4, lq_size=16))
    assert trace.peak_bytes > trace.persistent_bytes
    gradients = trace.persistent_bytes - trace.held_bytes
    assert gradients == 4 * sum(p.numel() for p in _compact_parameters())


def test_what_the_run_is_set_to_is_what_is_traced(options: Callable[..., Path]) -> None:
    """Averages, optimizer state, number format and pieces each change the bytes as they should."""
    plain = FakeRun.of(loaded(options(train={"ema_decay": 0.0}))).trace(PLAN)
    averaged = FakeRun.of(loaded(options(train={"ema_decay": 0.9}))).trace(PLAN)
    weights_bytes = averaged.persistent_bytes - plain.persistent_bytes
    assert weights_bytes == 4 * sum(p.numel() for p in _compact_parameters())
    stateless = FakeRun.of(loaded(options(train={"ema_decay": 0.0, "optim_g": {"type": "SGD", "lr": 0.1}}))).trace(PLAN)
    steps_bytes = 4 * len(_compact_parameters())
    assert plain.persistent_bytes - stateless.persistent_bytes == 2 * weights_bytes + steps_bytes
    low = FakeRun.of(loaded(options(use_amp=True))).trace(PLAN)
    assert low.peak_bytes < averaged.peak_bytes
    pieces = FakeRun.of(loaded(options())).trace(PLAN.with_micro_batches(4))
    assert pieces.peak_bytes < averaged.peak_bytes
    assert pieces.persistent_bytes == averaged.persistent_bytes


def test_a_run_begins_with_how_its_model_came_to_lie_on_a_card(options: Callable[..., Path]) -> None:
    """Weights as `Module.to` takes them, then their average, and what making the optimizer's state takes and frees."""
    trace = FakeRun.of(loaded(options(train={"ema_decay": 0.9}))).trace(PLAN)
    sizes = [weight.nbytes for weight in _compact_parameters()]
    made = [event.size_bytes for event in trace.construction]
    assert made[: 3 * len(sizes)] == 3 * sizes  # the last are gradients, which are freed once the state is there
    live = dict(trace.construction)
    assert sum(live.values()) == 4 * sum(sizes) + 4 * len(sizes)
    assert made.count(0) >= len(sizes)
    assert {event.ident for event in trace.before} >= set(live)


def test_losses_lie_between_the_networks_of_a_gan(options: Callable[..., Path]) -> None:
    networks = {"network_d": {"type": "patchgan"}}
    optimizers = {"optim_d": {"type": "Adam", "lr": 1e-4}, "optim_g": {"type": "Adam", "lr": 1e-4}}
    gan = {"type": "GANLoss", "gan_type": "vanilla", "loss_weight": 0.1}
    losses = [{"type": "L1Loss"}, gan]
    run = FakeRun.of(loaded(options(**networks, model_type="SRGANModel", train={**optimizers, "losses": losses})))
    model = run._traced.model
    average = model.averages["net_g"].network
    placed = model.placed()
    assert placed[:2] == [model.networks["net_g"], average]
    assert [type(module).__name__ for module in placed[2:-1]] == ["L1Loss"]
    assert placed[-1] is model.networks["net_d"]
    model._losses["weighed"] = torch.nn.Conv2d(3, 5, 7)
    modules = [model.networks["net_g"], average, model._losses["weighed"], model.networks["net_d"]]
    expected = [sorted(each.nbytes for each in (*module.parameters(), *module.buffers())) for module in modules]
    sizes = [size for _, size in _placing(model).events]
    assert [
        sorted(sizes[end - len(part) : end]) for part, end in zip(expected, accumulate(map(len, expected)), strict=True)
    ] == expected
    del model._losses["weighed"]
    # Copies of running statistics, in case the step fails, are none of the first step's.
    trace = run.trace(PLAN)
    left_out = {event.ident for _, event in trace.late if not event.size_bytes}
    sizes = [size for ident, size in trace.events if ident in left_out and size]
    statistics = [buffer.nbytes for buffer in model.networks["net_d"].buffers()]
    assert sorted(sizes) == sorted(statistics)


def test_one_weight_after_another_takes_less_than_all_at_once(options: Callable[..., Path]) -> None:
    optim = {"type": "Adam", "lr": 1e-3, "foreach": True}
    run = FakeRun.of(loaded(options(train={"ema_decay": 0.0, "optim_g": optim})))
    phases = [run.trace(PLAN).phase_peaks_bytes["optimizer"]]
    run.take_loop_form()
    phases.append(run.trace(PLAN).phase_peaks_bytes["optimizer"])
    sizes = [4 * p.numel() for p in _compact_parameters()]
    # The root of the second moments, of all weights or of one; what is added to the latter is as large once more.
    assert sum(sizes) - 4 * max(sizes) <= phases[0] - phases[1] <= sum(sizes)


def test_ranks_hold_room_for_the_sum_of_gradients(options: Callable[..., Path]) -> None:
    file = options()
    alone = FakeRun.of(loaded(file)).trace(PLAN)
    buffer_bytes = sum(buffer.nbytes for buffer in BucketedAllReduce(_compact_parameters()).buffers)
    together = FakeRun.of(loaded(file), world_size=2).trace(PLAN)
    assert together.held_bytes - alone.held_bytes == together.peak_bytes - alone.peak_bytes == buffer_bytes
    sharded = FakeRun.of(loaded(options(distributed={"fully_shard": True})), world_size=2).trace(PLAN)
    assert alone.held_bytes / 2 <= sharded.held_bytes < 0.51 * alone.held_bytes
    assert sharded.peak_bytes < alone.peak_bytes


def test_a_rank_does_not_stand_for_others(options: Callable[..., Path]) -> None:
    """Its own group is left alone: collectives of a trace would meet real ranks."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        with pytest.raises(TraceError, match="this process is a rank itself"):
            FakeRun.of(loaded(options(distributed={"fully_shard": True})), world_size=2)
        assert dist.get_backend() == "gloo"
    finally:
        dist.destroy_process_group()


def test_modules_are_named_as_before_they_were_spread(options: Callable[..., Path]) -> None:
    trace = FakeRun.of(loaded(options(distributed={"fully_shard": True})), world_size=2).trace(PLAN, by_module=True)
    assert trace.held_at_peak is not None
    names = {holder.module.partition(".")[0] for holder in trace.held_at_peak.holders}
    assert "SRVGGNetCompact" in names
    assert not any(name.startswith("FSDP") for name in names)


def test_a_step_for_every_plan_is_enough(options: Callable[..., Path]) -> None:
    """It is what an answer about cards costs: half of what two steps would."""
    run = FakeRun.of(loaded(options()))
    steps: list[object] = []
    hook = register_optimizer_step_pre_hook(lambda *_: steps.append(None))
    try:
        for side in (16, 24, 32):
            run.trace(Plan.of(batch_size=2, lq_size=side))
    finally:
        hook.remove()
    assert len(steps) == 3


def _compact_parameters() -> list[torch.nn.Parameter]:
    from trainauto.tasks.sr.archs import ARCHS

    return list(ARCHS.get("compact")(num_feat=8, num_conv=1, scale=2).parameters())


def test_a_network_that_computes_with_its_first_weights_is_built_for_real(
    options: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", logger="trainauto"):
        trace = FakeRun.of(loaded(options("starts_from_numbers"))).trace(PLAN)
    assert "the network is built for real" in caplog.text
    assert trace.peak_bytes > trace.persistent_bytes > 0


def test_a_compiled_network_is_traced_as_it_is(options: Callable[..., Path]) -> None:
    """An estimate, which is believed within wider bounds."""
    plain, compiled = (FakeRun.of(loaded(options(use_compile=word))) for word in (False, True))
    trace = compiled.trace(PLAN)
    assert trace.peak_bytes == plain.trace(PLAN).peak_bytes
    assert (plain.kernels(trace), compiled.kernels(trace)) == ("usual", "compiled")
    assert ON_CARD["compiled"].upper_ratio > 1.2 * ON_CARD["usual"].upper_ratio


def test_options_that_cannot_be_used_are_input_errors(options: Callable[..., Path]) -> None:
    with pytest.raises(InputError, match="nothing"):
        FakeRun.of(loaded(options("nothing"))).trace(PLAN)


@pytest.mark.parametrize("benchmark", [False, True])
def test_what_convolutions_work_in_counts_where_cudnn_takes_the_fastest(
    options: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, benchmark: bool
) -> None:
    file = options(network_g={"type": "compact", "num_feat": 24, "num_conv": 6})
    usual = FakeRun.of(loaded(file), like_cuda=True)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", benchmark)
    run = FakeRun.of(loaded(file), like_cuda=True)
    trace = run.trace(PLAN)
    assert run.kernels(trace) == ("benchmarked" if benchmark else "usual")
    assert (trace.peak_bytes > usual.trace(PLAN).peak_bytes) is benchmark
