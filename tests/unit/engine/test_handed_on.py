"""What passes add to their parts of a batch, as one batch would have it."""

import numpy as np
import pytest
import torch

from trainauto.core.workload import Whole
from trainauto.engine.handed_on import added_to, joined, say_differing
from trainauto.tasks.sr.data.image_crops import ImageCrops

CROPS = ImageCrops(3, 2)


def test_rows_arrays_and_lists_follow_each_other_and_one_value_stays() -> None:
    parts = [
        {
            "out": torch.full((rows, 2), float(rows)),
            "array": np.full(rows, rows),
            "names": ["a"] * rows,
            "temperature": 0.5,
            "scale": torch.tensor(2.0),
            "kind": "text",
        }
        for rows in (2, 1)
    ]
    whole, means = joined(CROPS, parts, [2 / 3, 1 / 3])
    assert whole["out"].tolist() == [[2.0, 2.0], [2.0, 2.0], [1.0, 1.0]]
    assert whole["array"].tolist() == [2, 2, 1]
    assert whole["names"] == ["a", "a", "a"]
    assert (whole["temperature"], whole["scale"], whole["kind"]) == (0.5, 2.0, "text")
    assert not means


def test_numbers_that_differ_are_means_as_losses_are_and_told(caplog: pytest.LogCaptureFixture) -> None:
    parts = [{"mean": torch.tensor(3.0), "weight": 6}, {"mean": torch.tensor(6.0), "weight": 3}]
    whole, means = joined(CROPS, parts, [2 / 3, 1 / 3])
    assert (float(whole["mean"]), whole["weight"]) == (pytest.approx(4.0), pytest.approx(5.0))
    said: set[str] = set()
    for _ in range(2):
        say_differing("first", means, whole, said)
    assert [record.getMessage().split(",")[0] for record in caplog.records] == [
        f"the loss of 'first' adds '{name}' to its batch" for name in ("mean", "weight")
    ]


def test_anything_else_that_differs_is_left_out_and_told(caplog: pytest.LogCaptureFixture) -> None:
    parts = [{"kind": Whole(kind), "n": Whole(n), "same": Whole("s")} for kind, n in (("a", 2), ("b", 4))]
    whole, differing = joined(CROPS, parts, [0.5, 0.5])
    assert whole == {"n": Whole(3.0), "same": Whole("s")}
    say_differing("first", differing, whole, set())
    assert [record.getMessage().split("objectives after it ")[1].split(";")[0] for record in caplog.records] == [
        "do not find it",
        "find the mean over the parts",
    ]


def test_what_only_some_parts_have_is_no_value_of_the_batch() -> None:
    assert joined(CROPS, [{"a": 1, "b": 2}, {"a": 1}], [0.5, 0.5]) == ({"a": 1}, frozenset())


def test_tensors_come_without_their_graph() -> None:
    weight = torch.ones(2, requires_grad=True)
    added = added_to({"x": torch.ones(2), "out": weight * 2, "n": 3}, {"x": torch.ones(2)})
    assert not added["out"].requires_grad
    assert added["n"] == 3
