"""What couples the samples of a batch is found in a model."""

import pytest
from torch import nn

from trainauto.integrations.coupling import coupling_in


@pytest.mark.parametrize(
    ("layer", "couples"),
    [
        (nn.BatchNorm1d(4), True),
        (nn.BatchNorm1d(4).eval(), False),
        (nn.BatchNorm1d(4, track_running_stats=False).eval(), True),  # it has no other statistics than its batch's
        (nn.SyncBatchNorm(4), True),
        (nn.InstanceNorm1d(4), False),
        (nn.GroupNorm(2, 4), False),
    ],
)
def test_layers_that_compute_with_statistics_of_their_batch_couple_it(layer: nn.Module, couples: bool) -> None:
    named = coupling_in(nn.ModuleDict({"head": layer}))
    assert named == (f"head ({type(layer).__name__})" if couples else None)
