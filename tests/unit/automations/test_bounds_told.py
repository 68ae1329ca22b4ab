"""A bound is told with what makes it one."""

from trainauto.control.bounds import Bounds
from trainauto.core.plan import Axis

CROP = Axis("lq_size", "px", 8, 100, 4, "the smallest image", power=2)


def test_the_smallest_image_is_named_where_it_is_what_caps() -> None:
    (wide,), (narrow,), (open_,) = (
        Bounds(limits).clip((CROP,)) for limits in ({"lq_size": (8, 256)}, {"lq_size": (8, 64)}, {})
    )
    assert wide.at_bound == open_.at_bound == "lq_size is at its bound 100 (the smallest image)"
    assert narrow.at_bound == "lq_size is at its bound 64"
    assert Axis("lq_size", "px", 8, 100, 4, power=2) == CROP, "it is the same axis"
