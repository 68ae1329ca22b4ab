"""How texts of any length become rows of one width: padded, each in a row of its own, or packed, several in a row."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from trainauto.data.packing import IntArray


class RowLayout(Protocol):
    """Where the tokens of texts go; texts lie behind each other in one flat array."""

    def tokens(self, lengths: IntArray) -> int:
        """Return the tokens of a batch of texts of these lengths, padding included."""

    def lay_out(self, lengths: IntArray) -> tuple[IntArray, IntArray | None]:
        """Return which token stands where, and each token's position in its text; both of shape (rows, width).

        Where no token stands, the first says how many there are; positions are ``None`` where rows begin with theirs.
        """


@dataclass(frozen=True)
class PaddedRows:
    """A row for each text, filled at its end: what stands behind a text, a causal model never sees."""

    def tokens(self, lengths: IntArray) -> int:
        """Return texts times the longest of them."""
        return len(lengths) * int(lengths.max(initial=0))

    def lay_out(self, lengths: IntArray) -> tuple[IntArray, None]:
        """Return which token stands where; every row begins with its text."""
        starts, columns = np.cumsum(lengths) - lengths, np.arange(int(lengths.max(initial=0)))
        return np.where(columns < lengths[:, None], starts[:, None] + columns, int(lengths.sum())), None


@dataclass(frozen=True)
class PackedRows:
    """Whole texts behind each other in rows, each in the first row that has room for it.

    Which row a text goes to depends on those before it alone, so that more texts never take fewer rows.

    Attributes:
        row_length: most tokens of a row; no text is longer.
    """

    row_length: int

    def tokens(self, lengths: IntArray) -> int:
        """Return the rows that texts take, times the fullest of them: no row has to be wider."""
        rows, columns = self._corners(lengths)
        return (int(rows.max(initial=-1)) + 1) * int((columns + lengths).max(initial=0))

    def lay_out(self, lengths: IntArray) -> tuple[IntArray, IntArray]:
        """Return which token stands where, and its position in its text; what fills a row is a text of its own."""
        rows, columns = self._corners(lengths)
        filled = np.zeros(int(rows.max(initial=-1)) + 1, np.int64)
        np.maximum.at(filled, rows, columns + lengths)
        shape, total = (len(filled), int(filled.max(initial=0))), int(lengths.sum())
        in_text = np.arange(total) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        standing = np.repeat(rows, lengths), np.repeat(columns, lengths) + in_text
        places, positions = np.full(shape, total), np.arange(shape[1]) - filled[:, None]
        places[standing] = np.arange(total)
        positions[standing] = in_text
        return places, positions

    def fitting(self, lengths: IntArray, rows: int) -> int:
        """Return how many of these texts, from the first on, fit into so many rows; at least one."""
        within = int(np.searchsorted(np.cumsum(lengths), rows * self.row_length, "right"))
        beyond = self._corners(lengths[:within])[0] >= rows
        return max(1, int(np.argmax(beyond)) if beyond.any() else within)

    def _corners(self, lengths: IntArray) -> tuple[IntArray, IntArray]:
        """Return the row that each text goes to, and the column it begins in."""
        if lengths.max(initial=0) > self.row_length:
            raise ValueError(f"a text of {lengths.max()} tokens fits no row of {self.row_length}")
        room = np.full(len(lengths), self.row_length)
        rows, columns = np.zeros(len(lengths), np.int64), np.zeros(len(lengths), np.int64)
        # Rows of which none has more room than the shortest text needs are not looked at again.
        first, shortest = 0, int(lengths.min(initial=self.row_length))
        for place, length in enumerate(lengths.tolist()):
            while room[first] < shortest:
                first += 1
            row = first + int(np.argmax(room[first:] >= length))
            rows[place], columns[place] = row, self.row_length - room[row]
            room[row] -= length
        return rows, columns
