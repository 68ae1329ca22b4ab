"""What checkpoints hold of networks whose frozen weights come from elsewhere again."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from tests.unit.engine.test_step import batch_of, step
from trainauto.core.errors import CheckpointError
from trainauto.models import SRModel
from trainauto.optim.precision import Precision


def model_of(*, frozen_from: str = "base", shift: float = 0.0, ema_decay: float = 0.0) -> SRModel:
    """Return a network of which the first layer is frozen."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 12, 3, padding=1), nn.PixelShuffle(2))
    with torch.no_grad():
        network[0].weight.add_(shift)
    network[0].requires_grad_(requires_grad=False)

    def optimizer(parameters: object) -> torch.optim.Optimizer:
        return torch.optim.SGD([one for one in network.parameters() if one.requires_grad], lr=0.1)

    made = SRModel(network, {"l1": nn.L1Loss()}, optimizer, Precision(torch.device("cpu")), ema_decay=ema_decay)
    made.frozen_from = frozen_from
    return made


def resumed(folder: Path, saved: SRModel, **how: object) -> SRModel:
    """Return a model that takes up what another one saved."""
    saved.save(folder)
    made: Callable[..., SRModel] = model_of
    model = made(**how)
    model.load(folder)
    model.load_state_dict(saved.state_dict())
    return model


@pytest.mark.parametrize("ema_decay", [0.0, 0.5])
def test_checkpoints_hold_what_is_trained(tmp_path: Path, ema_decay: float) -> None:
    before = model_of(ema_decay=ema_decay)
    step(before, batch_of(2))
    after = resumed(tmp_path, before, ema_decay=ema_decay)
    for file in tmp_path.glob("*.safetensors"):
        assert set(load_file(file)) == {"1.weight", "1.bias"}
    assert len(list(tmp_path.glob("*.safetensors"))) == 1 + bool(ema_decay)
    for name, tensor in before.networks["net_g"].state_dict().items():
        assert torch.equal(tensor, after.networks["net_g"].state_dict()[name])
    for name, average in before.averages.items():
        for key, tensor in average.network.state_dict().items():
            assert torch.equal(tensor, after.averages[name].network.state_dict()[key])


def test_other_frozen_weights_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="base holds other weights than those that the checkpoint was trained"):
        resumed(tmp_path, model_of(), shift=0.01)


def test_a_run_whose_checkpoints_held_everything_goes_on_so(tmp_path: Path) -> None:
    """An earlier version wrote them; the weights it was trained beside may be nowhere else."""
    whole = model_of(frozen_from="", shift=0.01)
    (tmp_path / "old").mkdir()
    after = resumed(tmp_path / "old", whole)
    assert torch.equal(after.networks["net_g"][0].weight, whole.networks["net_g"][0].weight)
    again = resumed(tmp_path, after)
    assert torch.equal(again.networks["net_g"][0].weight, whole.networks["net_g"][0].weight)
    assert "0.weight" in load_file(tmp_path / "net_g.safetensors")
