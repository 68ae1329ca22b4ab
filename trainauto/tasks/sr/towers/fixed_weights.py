"""Weights that are never trained, read from their files."""

from pathlib import Path

from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily

from trainauto.models.weights_file import read_weights


def read_fixed_weights(file: Path) -> dict[str, Tensor]:
    """Return the tensors of a file by name; fake ones where a run is being traced.

    Files of before torch 1.6, as torchvision's towers are, have no data when they are read under fake tensors. They are
    read for real, then copied.

    Raises:
        InputError: the file cannot be used.
    """
    with unset_fake_temporarily() as mode:
        tensors = read_weights(file).tensors
    if not isinstance(mode, FakeTensorMode):
        return tensors
    return {name: mode.from_tensor(tensor) for name, tensor in tensors.items()}
