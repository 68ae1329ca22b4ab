"""What a batch looks like, written in a line, and what may grow in it."""

from typing import Any, NamedTuple

import pytest
import torch

from trainauto.core.errors import InputError
from trainauto.core.plan import Axis, Plan
from trainauto.forecast.batch_shapes import LARGEST_BATCH, BatchShapes

IDS = ("batch", "tokens", torch.int64)


def test_batches_of_any_make_follow_the_plan() -> None:
    shapes = BatchShapes(
        {"pair": [("batch", 3, "side", "side"), ("batch", 3, "2*side", "side*2")], "more": (IDS_OF_SIDE, {"one": (7,)})}
    )
    batch = shapes.make(Plan.of(batch_size=2, side=8))
    assert [tuple(tensor.shape) for tensor in batch["pair"]] == [(2, 3, 8, 8), (2, 3, 16, 16)]
    assert isinstance(batch["pair"], list)
    assert isinstance(batch["more"], tuple)
    ids, rest = batch["more"]
    assert (tuple(ids.shape), ids.dtype) == ((2, 9), torch.int64)
    assert (tuple(rest["one"].shape), rest["one"].dtype) == ((7,), torch.float32)


def test_named_tuples_stay_what_they_are() -> None:
    class Pair(NamedTuple):
        picture: Any
        label: Any

    made = BatchShapes(Pair(("batch", 3), ("batch", torch.int64))).make(Plan.of(batch_size=2))
    assert isinstance(made, Pair)
    assert (made.picture.shape, made.label.dtype) == ((2, 3), torch.int64)


IDS_OF_SIDE = ("batch", "side // 2 * 2 + 1", torch.int64)


@pytest.mark.parametrize(
    ("shapes", "power"),
    [
        (IDS, 1),
        (("batch", 3, "tokens", "tokens"), 2),
        ((("batch", 3, "tokens", "tokens"), ("batch", 4, "tokens//8", "tokens//8")), 2),
        ({"ids": IDS, "mask": ("batch", "tokens", "tokens", torch.bool)}, 1),
        (("batch", "tokens*tokens", 8), 2),
        (("batch", 5, "tokens + 2*tokens", "tokens - 1"), 2),
    ],
)
def test_memory_follows_sides_by_their_square_and_tokens_by_themselves(shapes: Any, power: int) -> None:
    size, count = BatchShapes(shapes).axes({"tokens": (16, 96, 16)})
    assert size == Axis("tokens", "", 16, 96, 16, power=power)
    assert count == Axis("batch_size", "samples", 1, LARGEST_BATCH)


def test_what_is_bounded_first_grows_first() -> None:
    axes = BatchShapes(IDS).axes({"batch": (2, 8), "tokens": (4, 64)})
    assert [axis.name for axis in axes] == ["batch_size", "tokens"]
    assert (axes[0].minimum, axes[0].maximum) == (2, 8)


def test_one_of_both_may_be_missing() -> None:
    (packed,) = BatchShapes(("tokens", torch.int64)).axes({"tokens": (64, 4096)})
    assert packed.name == "tokens"
    assert tuple(BatchShapes(("tokens", torch.int64)).make(Plan.of(tokens=70)).shape) == (70,)
    (count,) = BatchShapes(("batch", 3, 8, 8)).axes({})
    assert count.is_count


@pytest.mark.parametrize(
    ("shapes", "bounds", "message"),
    [
        ({"ids": "batch"}, {}, r"batch\['ids'\] is 'batch', which is no shape"),
        ((3, 4), {}, "no dimension of the batch can grow"),
        ((), {}, "no dimension of the batch can grow"),
        (("batch", "tokens", "side"), {}, "one size that grows, not side and tokens"),
        (("batch_size", 4), {}, r"'batch_size' cannot be a size\n  Samples are counted by 'batch'"),
        (("batch", "2 tokens"), {}, "has the dimension '2 tokens'"),
        (("batch", "tokens/8"), {}, "has the dimension 'tokens/8'"),
        (("batch", "open('x')"), {}, "has the dimension"),
        ({"a": [("batch", "tokens//0")]}, {}, r"batch\['a'\]\[0\] has the dimension 'tokens//0'"),
        (IDS, {}, r"how far 'tokens' may grow is not said\n  .*bounds=\{\"tokens\": \(16, 512\)\}"),
        (IDS, {"tokens": (4, 8), "side": (1, 2)}, "bounds of 'side', which is no dimension of the batch"),
        (IDS, {"tokens": (8, 4)}, r"bounds of 'tokens' are \(8, 4\)"),
        (IDS, {"tokens": 8}, "bounds of 'tokens' are 8"),
        (IDS, {"tokens": (2.5, 64)}, r"bounds of 'tokens' are \(2.5, 64\)"),
        (IDS, {"tokens": (4, 8), "batch": (1, 2, 3, 4)}, "bounds of 'batch' are"),
        (("batch", "tokens//8"), {"tokens": (4, 64)}, "'tokens // 8' of batch is 0 at tokens 4, batch 1"),
    ],
)
def test_what_cannot_be_used_is_said_with_what_to_do(shapes: Any, bounds: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        BatchShapes(shapes).axes(bounds)
