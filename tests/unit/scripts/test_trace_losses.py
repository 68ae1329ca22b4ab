"""What losses take by themselves, traced: as torch allocates for them here, and its CUDA build on a simulated card."""

import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from tests.acceptance import only_in_acceptance

sys.path.append(str(Path(__file__).parents[3] / "scripts" / "bench"))
import trace_losses as bench

OF_THEIR_OWN = (
    "mse_loss",
    "smooth_l1_loss",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "... with_logits, whole pos_weight",
    "logsigmoid",
    "soft_margin_loss",
)
"""What shapes alone do not tell."""


@pytest.mark.parametrize("name", OF_THEIR_OWN)
def test_a_loss_is_traced_to_a_thousandth(name: str) -> None:
    assert bench.traced_bytes(name, on_card=False) == pytest.approx(bench.real_bytes(name), rel=1e-3)
    assert bench.traced_bytes(name, on_card=True) == pytest.approx(bench.CARD_BYTES[name], rel=1e-3)


def test_a_scalar_keeps_the_storage_of_its_elements() -> None:
    """What traces take for granted of this torch."""
    given, target = torch.rand(6, 1), torch.rand(6, 5)
    with pytest.warns(UserWarning, match="broadcast"):
        assert F.mse_loss(given, target).untyped_storage().nbytes() == 6 * 5 * 4
    assert F.smooth_l1_loss(target, target).untyped_storage().nbytes() == 6 * 5 * 4
    assert F.huber_loss(target, target).untyped_storage().nbytes() == 4


@only_in_acceptance
def test_every_loss_is() -> None:
    assert [row.name for row in bench.rows() if not row.is_right] == []
