"""Which networks of the library and of our own become ONNX files: of any size, of one, or of none."""

from pathlib import Path

import pytest
import torch

from tests.acceptance import only_in_acceptance
from tests.contract.small_archs import IN_RUNS
from tests.small_library_networks import SMALL_LIBRARY, scale_of
from trainauto.archs import ARCHS
from trainauto.commands.run_export import _photographs
from trainauto.tasks.sr.models.onnx_file import ExportError, write_onnx

IN_EVERY_RUN = {"rcan"}
ONE_SIZE = {"dat", "hat_m", "drct", "grl_b", "rgt", "srformer", "swin2sr_m", "craft"}
"""Masks of shifted windows are made in Python for the size of the image, and become constants of the file."""
NONE = {"atd"}
"""It sorts pixels by category, and torch's exporter has no stable sort."""


def written(name: str, folder: Path, size_px: tuple[int, int] | None) -> float:
    """Return the largest difference between the file and the network."""
    torch.manual_seed(0)
    network = ARCHS.get(name)(scale=scale_of(name), **{**SMALL_LIBRARY, **IN_RUNS}[name]).eval()
    done = write_onnx(network, folder / "out.onnx", _photographs(3), scale=scale_of(name), size_px=size_px)
    return max(difference.largest for difference in done.differences)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in IN_EVERY_RUN else only_in_acceptance)
        for name in (*SMALL_LIBRARY, *IN_RUNS)
        if name not in ONE_SIZE | NONE
    ],
)
def test_a_file_for_images_of_any_size(tmp_path: Path, name: str) -> None:
    assert written(name, tmp_path, None) < 1e-5


@only_in_acceptance
@pytest.mark.parametrize("name", sorted(ONE_SIZE))
def test_a_file_for_images_of_one_size(tmp_path: Path, name: str) -> None:
    assert written(name, tmp_path, (64, 64)) < 1e-5


@only_in_acceptance
def test_a_file_that_would_be_right_for_one_size_alone_is_not_kept(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"it is not kept\.\n  --size HxW writes a file for one size"):
        written("dat", tmp_path, None)
    assert not list(tmp_path.iterdir())


@only_in_acceptance
@pytest.mark.parametrize("name", sorted(NONE))
def test_what_torch_cannot_export_is_said(tmp_path: Path, name: str) -> None:
    with pytest.raises(ExportError, match="torch cannot export this network: "):
        written(name, tmp_path, (64, 64))
