"""Texts become rows: every token stands in one place, packed rows hold whole texts (B05)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainauto.tasks.text.training.row_layouts import PackedRows, PaddedRows

LENGTHS = st.lists(st.integers(1, 16), min_size=1, max_size=40).map(lambda values: np.array(values, np.int64))


@given(LENGTHS, st.sampled_from([PaddedRows(), PackedRows(16), PackedRows(23)]))
def test_every_token_stands_in_one_place(lengths: np.ndarray, layout: PaddedRows | PackedRows) -> None:
    places, total = layout.lay_out(lengths)[0], int(lengths.sum())
    assert sorted(places[places < total]) == list(range(total))
    assert (places <= total).all()
    assert places.size == layout.tokens(lengths)


@given(LENGTHS)
def test_packed_texts_are_whole_and_have_positions_of_their_own(lengths: np.ndarray) -> None:
    places, positions = PackedRows(16).lay_out(lengths)
    starts, total = np.cumsum(lengths) - lengths, int(lengths.sum())
    for start, length in zip(starts, lengths, strict=True):
        (row,), (column,) = np.where(places == start)
        assert (places[row, column : column + length] == np.arange(start, start + length)).all()
        assert (positions[row, column : column + length] == np.arange(length)).all()
    for row, places_of_row in zip(positions, places, strict=True):
        filling = row[places_of_row == total]
        assert (filling == np.arange(len(filling))).all()  # a text of its own


@given(LENGTHS, st.integers(1, 6))
def test_what_fits_into_rows_is_as_many_as_possible_and_parts_of_it_fit(lengths: np.ndarray, rows: int) -> None:
    layout = PackedRows(16)
    count = layout.fitting(lengths, rows)
    assert len(layout.lay_out(lengths[:count])[0]) <= rows
    assert count == len(lengths) or len(layout.lay_out(lengths[: count + 1])[0]) > rows
    assert layout.tokens(lengths[:count]) <= 16 * rows
    counted = [layout.tokens(lengths[:some]) for some in range(count + 1)]
    assert counted == sorted(counted)


def test_rows_are_nearly_full() -> None:
    lengths = np.random.default_rng(0).integers(4, 128, 500)
    assert lengths.sum() / PackedRows(256).tokens(lengths) > 0.9


def test_rows_are_no_wider_than_the_fullest() -> None:
    """A text that is tried alone, after running out of memory, takes no more than itself."""
    assert PackedRows(256).tokens(np.array([7])) == 7
    assert PackedRows(8).lay_out(np.array([3, 4, 2]))[0].shape == (2, 7)


def test_a_text_longer_than_a_row_is_refused() -> None:
    with pytest.raises(ValueError, match="a text of 5 tokens fits no row of 4"):
        PackedRows(4).tokens(np.array([5]))
