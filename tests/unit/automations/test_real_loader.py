"""The controller in a loop of one's own with the real loader: what it claims is what the loader draws."""

from collections.abc import Callable, Iterator
from itertools import islice, pairwise
from pathlib import Path

import pytest

from trainauto.automations import DynamicBatchSizeOptimizer
from trainauto.core.batch import Batch
from trainauto.core.plan import Plan
from trainauto.core.records import PeakReading
from trainauto.data import DynamicDataLoader, GTImageDataset
from trainauto.tasks.sr.data.reading import Reading

LOOKAHEAD, FREQUENCY = 4, 3
LIMIT_BYTES = 64 * 2**20
Size = tuple[int, int]


@pytest.fixture
def loader(tmp_path: Path, write_images: Callable[..., Path]) -> Iterator[DynamicDataLoader]:
    photos = write_images("photos", 3, (90, 100))
    dataset = GTImageDataset(str(photos), scale=2, reading=Reading(cache_dir=str(tmp_path / "cache")))
    with DynamicDataLoader(dataset, Plan.of(batch_size=4, lq_size=16), seed=7, lookahead=LOOKAHEAD) as one:
        yield one


def controller(loader: DynamicDataLoader) -> DynamicBatchSizeOptimizer:
    one = DynamicBatchSizeOptimizer(
        adjustment_frequency=FREQUENCY, min_lq_size=8, max_lq_size=64, max_batch_size=32, policy="step"
    )
    one.set_dynamic_wrappers(loader, loader.dataset)
    one.start_monitoring_period()
    return one


def drawn(batch: Batch) -> Size:
    """Return samples and side as the tensors have them."""
    lq, gt = batch.tensors["lq"], batch.tensors["gt"]
    assert gt.shape[-1] == 2 * lq.shape[-1]
    return lq.shape[0], lq.shape[-1]


def claimed(automation: DynamicBatchSizeOptimizer) -> Size:
    stats = automation.get_vram_stats()
    return stats["current_batch_size"], stats["current_lq_size"]


def looped(
    automation: DynamicBatchSizeOptimizer, batches: Iterator[Batch], steps: int
) -> tuple[list[Size], list[Size]]:
    """Train so many batches, as it were; return what each held, and what is claimed once it has been applied."""
    sizes, claims = [], []
    for batch in islice(batches, steps):
        sizes.append(drawn(batch))
        automation.observe(PeakReading(sum(t.nbytes for t in batch.tensors.values()), limit=LIMIT_BYTES))
        batch_change, crop_change = automation.update_vram_monitoring()
        samples, side = claimed(automation)
        claims.append((samples + (batch_change or 0), side + (crop_change or 0)))
    return sizes, claims


def test_what_is_claimed_is_drawn_after_the_lookahead(loader: DynamicDataLoader) -> None:
    """Fault 21: setters only recorded a value: 256 were claimed and 12 drawn (C30, C31, C32, C36, E10)."""
    automation = controller(loader)
    automation.set_target_parameters(batch_size=9, lq_size=40)
    sizes, claims = looped(automation, iter(loader), 40)
    assert sizes[: LOOKAHEAD + 1] == [(4, 16)] * (LOOKAHEAD + 1)
    assert sizes[LOOKAHEAD + 1 :] == claims[: -LOOKAHEAD - 1]
    assert sizes[-1] == (9, 40)


def test_another_target_is_gone_for_and_a_smaller_one_keeps_the_floors(loader: DynamicDataLoader) -> None:
    """Fault 21: a second call counts like the first. Fault 9: what is asked for does not lower the minima."""
    automation, batches = controller(loader), iter(loader)
    automation.set_target_parameters(batch_size=6, lq_size=24)
    assert looped(automation, batches, 22)[0][-1] == (6, 24)
    automation.set_target_parameters(batch_size=8, lq_size=32)
    assert looped(automation, batches, 22)[0][-1] == (8, 32)
    automation.set_target_parameters(batch_size=1, lq_size=1)
    for _ in range(60):
        automation.observe(PeakReading(LIMIT_BYTES, limit=LIMIT_BYTES))
        automation.update_vram_monitoring()
    assert claimed(automation) == drawn(next(batches)) == (2, 8)


def test_recovery_reaches_the_loader_too(loader: DynamicDataLoader) -> None:
    """Fault 21: after running out of memory as well (C33); a smaller plan acts with the next batch."""
    automation, batches = controller(loader), iter(loader)
    looped(automation, batches, 12)
    automation.set_target_parameters(batch_size=3, lq_size=12)
    automation.handle_oom_recovery(3, 12)
    sizes, claims = looped(automation, batches, 15)
    assert {side for _, side in sizes} == {12}
    assert max(samples for samples, _ in sizes) == 3
    assert sizes[-1] == (3, 12)
    assert set(claims) == {(3, 12)}


def test_setters_of_the_loader_itself(loader: DynamicDataLoader) -> None:
    """Fault 21: the same without a controller (C36)."""
    batches = iter(loader)
    next(batches)
    loader.update_batch_size(7)
    loader.update_lq_size(33)
    assert [drawn(batch) for batch in islice(batches, LOOKAHEAD + 2)][-2:] == [(7, 33)] * 2


def test_no_plan_is_judged_by_batches_of_the_one_before(loader: DynamicDataLoader) -> None:
    """Fault 5: a stale peak was carried past an adjustment. Batches on their way are not the new plan's."""
    automation = controller(loader)
    looped(automation, iter(loader), 28)
    changes = automation.get_vram_stats()["adjustment_history"]
    steps = [change["iteration"] for change in changes]
    assert len(steps) > 3
    assert steps[0] == FREQUENCY
    assert {later - earlier for earlier, later in pairwise(steps)} == {LOOKAHEAD + FREQUENCY}
