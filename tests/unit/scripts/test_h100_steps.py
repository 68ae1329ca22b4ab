"""The comparison with recorded steps, on a tiny model: its networks need releases of another environment."""

import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

BENCH = Path(__file__).parents[3] / "scripts" / "bench"


class Tiny:
    """A step of one layer, as ``Recorded`` describes one."""

    def __init__(self, *facts: object) -> None:
        self.batch = int(str(facts[1]))

    def shapes(self) -> object:
        return {"rows": ("batch", 1024)}

    def made(self, device: str) -> nn.Module:
        return nn.Linear(1024, 1024, device=device)

    def loss(self, model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        return model(batch["rows"]).mean()

    optimizer = torch.optim.Adam


def test_a_row_is_predicted_for_an_h100_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    for name in ("h100_steps", "h100_networks"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import h100_networks
    import h100_steps

    monkeypatch.setattr(h100_networks, "Recorded", Tiny)
    row = {"network": "hf_T5", "batch": "8", "seq": "16", "image": "-1", "precision": "FP", "ac": "False"}
    found = h100_steps.predicted(row)
    weight = (1024 * 1024 + 1024) * 4
    workspaces = 2 * 32 * 2**20  # Hopper's
    assert 4 * weight + workspaces <= found["active"] <= 6 * weight + workspaces
    assert found["active"] <= found["reserved"] <= found["most_reserved"]
    measured = {"measured_active": found["active"], "measured_reserved": found["reserved"], "memtracker": ""}
    page = h100_steps.page_of([{**row, **found, **measured, "memtracker": str(found["active"])}], [])
    assert "Active bytes: median error 0.000%" in page
    assert "exceeded by none" in page
