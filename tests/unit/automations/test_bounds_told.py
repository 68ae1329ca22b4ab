"""A bound is told with what makes it one."""

import pytest

from trainauto.control.bounds import Bounds
from trainauto.core.decisions import RunFacts
from trainauto.core.errors import InputError
from trainauto.core.plan import Axis, Plan

CROP = Axis("lq_size", "px", 8, 100, 4, "the smallest image", power=2)


def test_the_smallest_image_is_named_where_it_is_what_caps() -> None:
    (wide,), (narrow,), (open_,) = (
        Bounds(limits).clip((CROP,)) for limits in ({"lq_size": (8, 256)}, {"lq_size": (8, 64)}, {})
    )
    assert wide.at_bound == open_.at_bound == "lq_size is at its bound 100 (the smallest image)"
    assert narrow.at_bound == "lq_size is at its bound 64"
    assert Axis("lq_size", "px", 8, 100, 4, power=2) == CROP, "it is the same axis"


def test_a_bound_of_tokens_is_told_in_whole_rows() -> None:
    """B12: 2048 tokens are 24 rows of 82."""
    (axis,) = Bounds({"tokens": (1, 2048)}).clip((Axis("tokens", "tokens", 82, 4100, 82),))
    assert axis.at_bound == "tokens is at its bound 1968 (2048 in whole rows of 82)"


def test_what_to_write_is_told_where_no_whole_row_fits() -> None:
    """B34"""
    facts = RunFacts((Axis("tokens", "tokens", 82, 4100, 82),), Plan.of(tokens=82))
    with pytest.raises(InputError, match="write max_tokens: 82 or more"):
        Bounds({"tokens": (1, 50)}).check(facts, "Controller")
