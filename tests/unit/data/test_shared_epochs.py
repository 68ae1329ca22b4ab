"""Epochs that several ranks share."""

import pytest

from trainauto.core.plan import Plan
from trainauto.data.batcher import EpochBatches, SharedEpochs


@pytest.mark.parametrize(("samples", "ranks", "batch_size"), [(20, 2, 4), (21, 2, 4), (7, 4, 3), (100, 3, 64)])
def test_draws_end_with_the_epoch_or_less_than_a_sample_of_each_rank_behind_it(
    samples: int, ranks: int, batch_size: int
) -> None:
    shared, first, draws = SharedEpochs(samples, ranks), 0, []
    while first < samples:
        draws.append(shared.batch_size(first, Plan.of(batch_size=batch_size)))
        first += ranks * draws[-1]
    assert samples <= first < samples + ranks
    assert max(draws) <= batch_size
    assert min(draws[-2:]) >= min(draws) >= 1


def test_one_rank_has_the_epochs_of_one() -> None:
    plan = Plan.of(batch_size=6)
    assert all(EpochBatches(20).batch_size(at, plan) == SharedEpochs(20, 1).batch_size(at, plan) for at in range(60))
