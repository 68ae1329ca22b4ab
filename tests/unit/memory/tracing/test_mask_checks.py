"""Transformers looks at the content of masks while a step is traced, and does as ever afterwards."""

import sys
from types import ModuleType

import pytest
import torch
from torch import Tensor

from trainauto.memory.tracing.trace import masks_by_content

MODULE = "transformers.masking_utils"


def says_tracing(tensor: Tensor | None = None) -> bool:
    """Say so as Transformers does: of every tensor that has no data."""
    return tensor is not None


def test_known_masks_are_looked_at_only_within(monkeypatch: pytest.MonkeyPatch) -> None:
    masks = ModuleType(MODULE)  # importing Transformers takes seconds
    masks.is_tracing = says_tracing  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, MODULE, masks)
    known, unknown = torch.ones(2), torch.zeros(2)
    with masks_by_content(lambda tensor: tensor is known):
        assert not masks.is_tracing(known)
        assert masks.is_tracing(unknown)
    assert masks.is_tracing is says_tracing
    with pytest.raises(KeyError), masks_by_content(lambda _tensor: True):
        raise KeyError
    assert masks.is_tracing is says_tracing
