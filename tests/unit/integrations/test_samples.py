"""Samples of any kind as a workload."""

from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import default_collate

from trainauto.core.errors import InputError
from trainauto.core.plan import BatchShape
from trainauto.core.workload import split
from trainauto.integrations.samples import NestedSamples, sized_dimensions, template_of
from trainauto.integrations.structure import leaves_of


def sample(size: int = 4) -> dict[str, Any]:
    return {"lq": torch.ones(3, size, size), "gt": torch.ones(3, 2 * size, 2 * size), "name": "a"}


def workload(weigh: Any = None) -> NestedSamples:
    sized = sized_dimensions(*(leaves_of(default_collate([sample(size)])) for size in (4, 8)), 4, 8)
    return NestedSamples(
        template_of(default_collate([sample(8)]), default_collate([sample(8)] * 3), leaves_of, sized), weigh
    )


def batch(samples: int, size: int = 4) -> dict[str, Any]:
    rows = [
        {**sample(size), "lq": torch.full((3, size, size), number), "name": str(number)} for number in range(samples)
    ]
    return leaves_of(default_collate(rows))


def test_dimensions_that_follow_the_size_are_found() -> None:
    assert workload().template.sized == {
        "lq": {2: Fraction(1), 3: Fraction(1)},
        "gt": {2: Fraction(2), 3: Fraction(2)},
    }
    rows = {"ids": torch.zeros(1, 7)}
    assert sized_dimensions(rows, rows, 7, 7) == {"ids": {1: Fraction(1)}}
    with pytest.raises(InputError, match="dimension 1 of 'ids' is 7 at size 4 and 9 at 8: it must follow the size"):
        sized_dimensions(rows, {"ids": torch.zeros(1, 9)}, 4, 8)
    with pytest.raises(InputError, match="no dimension of a batch follows the size of its samples, 3 to 5"):
        sized_dimensions(rows, rows, 3, 5)
    assert sized_dimensions(rows, {"ids": torch.zeros(1, 9)}, 0, 0) == {}  # samples without a size may differ
    with pytest.raises(InputError, match=r"is 8 at size 2 and 16 at 9: .*round lengths up to that multiple"):
        sized_dimensions({"ids": torch.zeros(1, 8)}, {"ids": torch.zeros(1, 16)}, 2, 9)


def test_parts_hold_their_samples_and_joined_they_are_the_whole() -> None:
    whole = batch(5)
    parts = [part for _, part in split(workload(), whole, 5, 2)]
    assert [part["name"] for part in parts] == [["0", "1"], ["2", "3"], ["4"]]
    joined = workload().join(parts)
    assert joined["name"] == whole["name"]
    assert torch.equal(joined["lq"], whole["lq"])
    widths: list[dict[str, Tensor]] = [{"handed_on": torch.ones(1, 2)}, {"handed_on": torch.ones(2, 3)}]
    assert workload().join(widths)["handed_on"].tolist() == [[1, 1, 0], [1, 1, 1], [1, 1, 1]]


def test_what_is_no_samples_goes_with_every_part() -> None:
    def made(samples: int) -> dict[str, Any]:
        return {"x": torch.arange(samples), "temperature": torch.tensor(2.0), "mode": "train"}

    kind = NestedSamples(template_of(made(1), made(3), leaves_of, {}))
    assert kind.part(made(4), 1, 3) == {"x": pytest.approx(torch.tensor([1, 2])), "temperature": 2.0, "mode": "train"}
    assert kind.dummy(3, 1)["x"].shape == (3,)
    assert kind.dummy(3, 1)["mode"] == "train"


def test_arrays_are_divided_as_tensors_are() -> None:
    def made(samples: int, size: int = 4) -> dict[str, Any]:
        return {"x": torch.zeros(samples, size), "y": np.arange(samples * size).reshape(samples, size)}

    sized = sized_dimensions(made(1, 4), made(1, 8), 4, 8)
    kind = NestedSamples(template_of(made(1, 8), made(3, 8), leaves_of, sized))
    whole = made(5)
    parts = [part for _, part in split(kind, whole, 5, 2)]
    assert [part["y"].shape for part in parts] == [(2, 4), (2, 4), (1, 4)]
    assert (kind.join(parts)["y"] == whole["y"]).all()
    assert kind.join([{"y": np.ones((1, 2))}, {"y": np.ones((1, 3))}])["y"].tolist() == [[1, 1, 0], [1, 1, 1]]
    assert kind.shrink(made(2, 8), 8, 5)["y"].shape == (2, 5)
    assert kind.dummy(3, 11)["y"].shape == (3, 11)
    with pytest.raises(InputError, match="'y' of a batch has 2 parts for 3 samples"):
        kind.check({"x": torch.zeros(3, 4), "y": np.zeros((2, 4))}, 3)


def test_shapes_weights_and_units() -> None:
    assert workload().shape(batch(3, 6)) == BatchShape(samples=3, extent=6, images=3)
    assert (workload().weight(batch(3)), workload().units(batch(3)), workload().weighs_samples) == (3, 3, True)
    by_value = workload(lambda given: given["lq"][:, 0, 0, 0].sum())
    assert (by_value.weight(batch(4)), by_value.weighs_samples) == (0 + 1 + 2 + 3, False)


def test_smaller_samples_and_made_up_batches() -> None:
    cut = workload().shrink(batch(2, 8), 8, 5)
    assert (cut["lq"].shape, cut["gt"].shape, cut["name"]) == ((2, 3, 5, 5), (2, 3, 10, 10), ["0", "1"])
    made = workload().dummy(4, 11)
    assert (made["lq"].shape, made["gt"].shape, len(made["name"])) == ((4, 3, 11, 11), (4, 3, 22, 22), 4)
    assert workload().shape(made) == BatchShape(samples=4, extent=11, images=4)


def test_batches_that_cannot_be_divided_are_refused() -> None:
    packed = {"ids": torch.arange(6), "count": torch.ones(1)}
    with pytest.raises(InputError, match=r"'ids' of a batch of 3 samples has the shape \(6,\).*\n?.*give a workload"):
        template_of({**packed, "ids": torch.arange(2)}, {**packed, "count": torch.ones(3)}, leaves_of, {})
    objects = [SimpleNamespace(x=torch.ones(count)) for count in (1, 3)]
    with pytest.raises(InputError, match="'batch' of a batch is a SimpleNamespace, which is not known to be made of"):
        template_of(*objects, leaves_of, {})
    with pytest.raises(InputError, match="'more' of a batch is a SimpleNamespace"):  # it would go whole with every part
        template_of(*({"x": held.x, "more": held} for held in objects), leaves_of, {})
    with pytest.raises(InputError, match="no tensor of a batch has the sample as its first dimension"):
        template_of(torch.ones(7), torch.ones(7), leaves_of, {})
    with pytest.raises(InputError, match=r"holds others than one of 1 \(1, 2\): a list with a tensor for each sample"):
        template_of([torch.ones(7)], [torch.ones(7)] * 3, leaves_of, {})
    workload().check(batch(2), 2)
    with pytest.raises(InputError, match="'lq' of a batch has 2 parts for 3 samples"):
        workload().check({**batch(3), "lq": batch(2)["lq"]}, 3)
    with pytest.raises(InputError, match=r"batches differ in what they hold \(extra\)"):
        workload().check({**batch(2), "extra": 1}, 2)
