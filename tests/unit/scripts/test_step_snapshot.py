"""What a step pays for being able to run again stays small."""

import pytest
import torch

from scripts.bench.step_snapshot import MOST_US, measure


@pytest.mark.parametrize("kind", ["weights", "buffers", "frozen"])
def test_a_look_at_a_large_network_and_batch_is_short(kind: str) -> None:
    """Five times the bound in the quietest of five rounds: other work goes on beside tests."""
    assert min(measure(kind, 600, 100, 10, torch.device("cpu")) for _ in range(5)) < 5 * MOST_US
