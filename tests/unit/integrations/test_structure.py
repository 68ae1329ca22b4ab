"""Batches of any make: their leaves by name, and back."""

from collections import UserDict, namedtuple
from typing import Any

import pytest
import torch
from transformers import BatchEncoding

from trainauto.core.errors import InputError
from trainauto.integrations.structure import Structure, leaves_of

Pair = namedtuple("Pair", "left right")


def tensors(*values: float) -> tuple[torch.Tensor, ...]:
    return tuple(torch.tensor([value]) for value in values)


ONE, TWO, THREE = tensors(1.0, 2.0, 3.0)


@pytest.mark.parametrize(
    ("batch", "names"),
    [
        (ONE, ["batch"]),
        ((ONE, TWO), ["0", "1"]),
        ([ONE, (TWO, THREE)], ["0", "1.0", "1.1"]),
        ({"image": {"left": ONE, "right": TWO}, "label": THREE}, ["image.left", "image.right", "label"]),
        (Pair(ONE, {"x": TWO}), ["0", "1.x"]),
        ({"ids": ONE, "names": ["a", "b"], "scale": 2}, ["ids", "names", "scale"]),
        (BatchEncoding({"input_ids": ONE, "attention_mask": TWO}), ["input_ids", "attention_mask"]),
    ],
)
def test_there_and_back(batch: Any, names: list[str]) -> None:
    leaves = leaves_of(batch)
    assert list(leaves) == names
    again = Structure.of(batch).rebuild(leaves)
    assert type(again) is type(batch)
    assert leaves_of(again).keys() == leaves.keys()
    assert all(leaves_of(again)[name] is leaf for name, leaf in leaves.items())


def test_what_is_handed_on_becomes_a_key() -> None:
    structure = Structure.of({"x": ONE})
    assert structure.rebuild({"x": ONE, "fake": TWO}) == {"x": ONE, "fake": TWO}
    with pytest.raises(InputError, match="fake cannot be handed on: batches are no mappings"):
        Structure.of((ONE,)).rebuild({"0": ONE, "fake": TWO})


def test_batches_that_are_not_made_alike_are_refused() -> None:
    with pytest.raises(InputError, match="lacks 'y', which the first one had"):
        Structure.of({"x": ONE, "y": TWO}).rebuild({"x": ONE})
    with pytest.raises(InputError, match=r"two parts called 'a\.b'"):
        leaves_of({"a.b": ONE, "a": {"b": TWO}})


def test_a_mapping_that_cannot_be_made_of_a_dict_comes_as_a_dict() -> None:
    class Odd(UserDict[str, Any]):
        def __init__(self) -> None:
            super().__init__()

    odd = Odd()
    odd["x"] = ONE
    assert Structure.of(odd).rebuild({"x": ONE}) == {"x": ONE}
