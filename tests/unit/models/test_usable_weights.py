"""Tensors of a file that can be no weights are refused in one block, whichever way they come."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from trainauto.core.errors import InputError
from trainauto.models.usable_weights import check_values
from trainauto.models.weights import load_weights, save_weights
from trainauto.models.weights_file import read_weights

NAN, INF = float("nan"), float("inf")


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))


def of_which_one_is(value: float) -> Callable[[Tensor], Tensor]:
    def changed(tensor: Tensor) -> Tensor:
        changed = tensor.clone()
        changed.view(-1)[7] = value
        return changed

    return changed


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (of_which_one_is(NAN), "0.weight is NaN in 1 of 108 values"),
        (of_which_one_is(-INF), "0.weight is infinite in 1 of 108 values"),
        (lambda tensor: (tensor * 100).to(torch.int8), "0.weight is int8, and the network's is float32"),
        (lambda tensor: torch.complex(tensor, tensor), "0.weight is complex64, and the network's is float32"),
        (lambda tensor: tensor.to_sparse(), "0.weight is sparse (sparse_coo)"),
        (lambda tensor: torch.quantize_per_tensor(tensor, 0.1, 0, torch.qint8), "0.weight is quantised (qint8)"),
        (lambda tensor: tensor.to("meta"), "0.weight has no data, only a shape (meta)"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_what_no_network_can_take(made: Callable[[Tensor], Tensor], said: str, tmp_path: Path) -> None:
    file, own = tmp_path / "x.pth", network().state_dict()
    torch.save({**own, "0.weight": made(own["0.weight"])}, file)
    with pytest.raises(InputError) as refused:
        check_values(file, read_weights(file).tensors, own)
    assert f"the weights in {file} cannot be used: 1 of 7 tensors ({said})" in str(refused.value)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.float8_e5m2])
def test_other_floats_are_weights(dtype: torch.dtype, tmp_path: Path) -> None:
    file, own = tmp_path / "x.pth", network().state_dict()
    torch.save({name: t.to(dtype) if t.is_floating_point() else t for name, t in own.items()}, file)
    check_values(file, read_weights(file).tensors, own)


def test_a_mask_may_be_infinite_where_the_networks_own_is(tmp_path: Path) -> None:
    mask = torch.tensor([0.0, -INF])
    check_values(tmp_path, {"mask": mask}, {"mask": mask.clone()})
    with pytest.raises(InputError, match="mask is infinite in 1 of 2 values"):
        check_values(tmp_path, {"mask": mask.flip(0)}, {"mask": mask.clone()})


def test_a_checkpoint_of_a_run_that_has_diverged(tmp_path: Path) -> None:
    diverged = network()
    with torch.no_grad():
        diverged[0].weight.fill_(NAN)
    save_weights(diverged, tmp_path / "net_g.safetensors")
    with pytest.raises(InputError, match=r"0.weight is NaN in 108 of 108 values(?s:.*)take an earlier checkpoint"):
        load_weights(network(), tmp_path / "net_g.safetensors")
