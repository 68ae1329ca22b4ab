"""What follows a failure, on a real loader and real controls."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.token_runs import LENGTHS
from tests.token_workloads import TokenBudget, TokenTexts
from tests.unit.engine.test_checkpointing_fallback import small_model
from tests.unit.engine.test_step import model_of
from trainauto.automations import DynamicBatchSizeOptimizer
from trainauto.automations.dynamic_batch_size import LQ_SIZE
from trainauto.core.batch import Batch
from trainauto.core.decisions import PlanChange, RunFacts
from trainauto.core.errors import Saving
from trainauto.core.plan import BATCH_SIZE, Axis, Plan
from trainauto.core.records import Progress
from trainauto.data import DynamicDataLoader, GTImageDataset
from trainauto.data.dynamic_loader import as_planned
from trainauto.engine.checkpointing_fallback import CheckpointingFallback
from trainauto.engine.controls import Controls
from trainauto.engine.journal import DecisionJournal
from trainauto.engine.oom_policy import on_batch_too_large, on_recovered
from trainauto.engine.run_errors import NothingFitsError
from trainauto.engine.step_outcome import DoesNotFit, Failure

AXES = (Axis(LQ_SIZE, "px", 8, 64, power=2), Axis(BATCH_SIZE, "samples", 1, 16))


@pytest.fixture
def run(write_images: Callable[..., Path]) -> Iterator[Any]:
    """What the answers read of a run: loader and controls are the real ones."""
    dataset = GTImageDataset(str(write_images("photos", 4, (130, 130))), scale=2)
    with DynamicDataLoader(dataset, Plan.of(batch_size=8, lq_size=32), seed=1, lookahead=2) as loader:
        yield SimpleNamespace(
            loader=loader,
            journal=DecisionJournal(Controls(loader, None), []),
            axes=AXES,
            progress=Progress(),
            meter=SimpleNamespace(cap_at_available=lambda: None),
            limit_bytes=1000,
            model=model_of(),
            last_resort=CheckpointingFallback(),
        )


def next_batch(run: Any) -> Batch:
    return next(iter(run.loader))


def test_without_automations_later_batches_run_in_as_many_pieces(run: Any) -> None:
    batch = next_batch(run)
    (change,) = on_recovered(
        run, batch, (Failure("g", 8, 2, "no", 32, fitted=4), Failure("g", 4, 4, "no", 32, fitted=2))
    )
    assert isinstance(change, PlanChange)
    assert run.loader.plan == Plan.of(batch_size=8, lq_size=32, micro_batches=4)


def test_a_pass_that_had_to_cut_its_crops_cuts_those_to_come(run: Any) -> None:
    batch = next_batch(run)
    decisions = on_recovered(
        run, batch, (Failure("d", 1, 8, "no", 32, fitted=1), Failure("d", 1, 8, "no", 24, fitted=1, is_cut=True))
    )
    assert run.loader.plan == Plan.of(batch_size=8, lq_size=24, micro_batches=8)
    assert "24 px" in decisions[-1].reason
    assert next_batch(run).shape.extent == 24


def test_a_controller_is_asked_first(run: Any) -> None:
    controller = DynamicBatchSizeOptimizer(min_batch_size=1, min_lq_size=8)
    controller.on_run_start(RunFacts(AXES, run.loader.plan))
    run.journal.automations.append(controller)
    decisions = on_recovered(run, next_batch(run), (Failure("g", 8, 2, "no", 32, fitted=4),))
    assert len(decisions) == 1
    assert run.loader.plan == Plan.of(batch_size=6, lq_size=24)


def test_a_batch_that_fits_in_no_pieces_comes_again_smaller(run: Any) -> None:
    batch = next_batch(run)
    on_batch_too_large(run, batch, DoesNotFit("g", 1, "no"))
    again = next_batch(run)
    assert again.first_sample == batch.first_sample  # nothing is lost
    assert (len(again), again.shape.extent) == (4, 24)  # 8 samples in pieces of at most 6


def test_at_the_floor_it_ends_with_a_checkpoint_and_advice(run: Any) -> None:
    run.loader.update_plan(Plan.of(batch_size=1, lq_size=8))
    batch = next_batch(run)
    with pytest.raises(NothingFitsError, match="one sample of 8 px does not fit") as caught:
        on_batch_too_large(run, batch, DoesNotFit("g", 1, "no"))
    assert caught.value.saving is Saving.TOGETHER
    assert "Gradient checkpointing cannot help: net_g: Sequential has no list of repeated blocks" in str(caught.value)


def test_at_the_floor_the_last_resort_is_taken_once_if_it_may(run: Any, caplog: pytest.LogCaptureFixture) -> None:
    run.model = small_model()
    run.loader.update_plan(Plan.of(batch_size=1, lq_size=8))
    batch = next_batch(run)
    with pytest.raises(NothingFitsError, match=r"allow_gradient_checkpointing: true` would continue .*net_g: 3 segm"):
        on_batch_too_large(run, batch, DoesNotFit("g", 1, "no"))
    assert not run.model.checkpoints_gradients
    run.last_resort.allowed = True
    batch = next_batch(run)
    decisions = on_batch_too_large(run, batch, DoesNotFit("g", 1, "no"))
    assert decisions == []
    assert run.model.checkpoints_gradients
    assert "one sample of 8 px does not fit: no; gradient checkpointing is now enabled" in caplog.text
    again = next_batch(run)
    assert (again.first_sample, again.plan) == (batch.first_sample, batch.plan)
    with pytest.raises(NothingFitsError, match="Gradient checkpointing is already enabled"):
        on_batch_too_large(run, again, DoesNotFit("g", 1, "no"))


@pytest.mark.parametrize(
    ("plan", "failed_samples", "smaller"),
    [
        (Plan.of(tokens=280), 9, Plan.of(tokens=210)),  # of a draw, not of one text
        (Plan.of(tokens=280), 1, None),  # one text: it has to be cut below its length
        (Plan.of(batch_size=8, tokens=4096), 8, Plan.of(batch_size=6, tokens=3072)),  # texts stay whole
    ],
)
def test_texts_are_cut_only_where_one_alone_does_not_fit(
    run: Any, plan: Plan, failed_samples: int, smaller: Plan | None
) -> None:
    axes = (Axis("tokens", "tokens", 4, 4096), Axis(BATCH_SIZE, "samples", 1, 64))
    run.axes = axes if BATCH_SIZE in plan else axes[:1]
    budget = partial(TokenBudget, LENGTHS) if BATCH_SIZE not in plan else as_planned
    with DynamicDataLoader(TokenTexts(LENGTHS), plan, seed=1, lookahead=2, new_batcher=budget) as loader:
        run.loader, run.journal = loader, DecisionJournal(Controls(loader, None), [])
        batch = next_batch(run)
        on_batch_too_large(run, batch, DoesNotFit("g", failed_samples, "no"))
        assert loader.plan == (smaller or Plan.of(tokens=batch.shape.extent * 3 // 4))
