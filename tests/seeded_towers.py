"""Towers whose weights come from a formula, where torch.hub would keep the published ones."""

import importlib.util
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "scripts"))

from seeded_tower import write_seeded_tower

from trainauto.tasks.sr.towers.tower import DESIGNS

needs_metrics = pytest.mark.skipif(
    not (importlib.util.find_spec("lpips") and importlib.util.find_spec("DISTS_pytorch")),
    reason="the packages lpips and DISTS-pytorch are not installed (extra metrics)",
)


def write_seeded_towers(home: Path, divisor: int) -> None:
    """Write all towers where torch.hub looks while ``TORCH_HOME`` is ``home``."""
    for design in DESIGNS.values():
        write_seeded_tower(design, home / "hub" / "checkpoints" / design.file, divisor)
