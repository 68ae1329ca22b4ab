"""Batches of any make: their leaves by name, and back."""

from collections import UserDict, namedtuple
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from transformers import BatchEncoding
from transformers.modeling_outputs import BaseModelOutput

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


class Empty(UserDict[str, Any]):
    """Is made empty, and filled afterwards."""

    def __init__(self) -> None:
        super().__init__()


class Named(dict[str, Any]):
    """Takes its content by name; called with a dict it would hold that as ``x``."""

    def __init__(self, x: Any = None, y: Any = None) -> None:
        super().__init__(x=x, y=y)


class Closed(Mapping[str, Any]):
    """Reads its content from elsewhere."""

    def __init__(self, file: int) -> None:
        self.file = file

    def __getitem__(self, key: str) -> Any:
        return {"x": ONE}[key]

    def __iter__(self) -> Iterator[str]:
        return iter(["x"])

    def __len__(self) -> int:
        return 1


@dataclass(frozen=True, slots=True)
class Frozen:
    x: torch.Tensor
    y: Any


@dataclass
class Doubled:
    x: torch.Tensor
    twice: torch.Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.twice = self.x * 2


def test_mappings_stay_what_they_are() -> None:
    empty = Empty()
    empty["x"] = ONE
    for batch in (empty, Named(ONE, TWO), BaseModelOutput(last_hidden_state=ONE)):
        again = Structure.of(batch).rebuild(leaves_of(batch))
        assert type(again) is type(batch)
        assert list(again.items()) == list(batch.items())
    with pytest.raises(InputError, match=r"a Closed, which cannot be made again .*\n.*dicts or dataclasses"):
        Structure.of(Closed(3)).rebuild({"x": TWO})


def test_dataclasses_are_made_of_their_attributes() -> None:
    frozen = Frozen(ONE, {"z": TWO})
    assert leaves_of(frozen) == {"x": ONE, "y.z": TWO}
    assert Structure.of(frozen).rebuild({"x": TWO, "y.z": THREE}) == Frozen(TWO, {"z": THREE})
    batch: Any = Doubled(ONE)
    batch.more = THREE
    again = Structure.of(batch).rebuild({"x": TWO, "twice": ONE, "more": THREE})
    assert (again.x, again.twice, again.more) == (TWO, ONE, THREE)
