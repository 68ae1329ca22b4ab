"""The blocks that a page is made of; page.js shows them, and knows nothing of runs."""

from collections.abc import Mapping, Sequence
from typing import Any

from trainauto.core.words import visible
from trainauto.reporting.dashboard.bounded_curves import Curves, rounded

Block = dict[str, Any]

GRID = "grid"
"""Stands for the steps that most curves of a page share."""

MOST_BANDS = 6
"""Series of a chart that have bands from the least to the greatest value."""

LONGEST_TEXT = 300
"""Characters of a name or a value."""


def line(name: str, curves: Curves, curve: str, *, x: Any = GRID, style: str = "line", highest: bool = False) -> Block:
    """Return a series of the mean of each range of steps, or of its greatest value, with the band of all values.

    Args:
        name: what the page calls it.
        curves: where it is.
        curve: its name there.
        x: its steps, where it does not share those of the page.
        style: ``line``, ``steps``, ``points`` or ``dash``.
        highest: whether the greatest value of a range is what counts, as of memory.
    """
    values = curves.greatest(curve) if highest else curves.means(curve)
    series = {"name": visible(name, LONGEST_TEXT), "style": style, "x": x, "y": values}
    if curves.are_summed_up and style == "line":
        series |= {"low": curves.least(curve), "high": curves.greatest(curve)}
    return series


def ratio(name: str, curves: Curves, above: str, below: str) -> Block:
    """Return a series of one curve over another, e.g. samples over seconds."""
    return {"name": name, "style": "line", "x": GRID, "y": curves.ratio(above, below)}


def points(name: str, x: Sequence[int], y: Sequence[float | None], style: str) -> Block:
    """Return a series of its own steps."""
    values = [None if value is None else rounded(value) for value in y]
    return {"name": visible(name, LONGEST_TEXT), "style": style, "x": list(x), "y": values}


def chart(
    ident: str,
    title: str,
    series: Sequence[Block],
    *,
    unit: str = "number",
    axis: str = "linear",
    note: str = "",
    from_zero: bool = False,
    marks: Sequence[Mapping[str, Any]] = (),
) -> list[Block]:
    """Return a chart; none where no series has a value. Bands are left out where they would hide each other."""
    there = [one for one in series if any(value is not None for value in one["y"])]
    if not there:
        return []
    if len(there) > MOST_BANDS:
        there = [{name: value for name, value in one.items() if name not in ("low", "high")} for one in there]
    head = {"type": "chart", "id": ident, "title": visible(title, LONGEST_TEXT), "note": visible(note, LONGEST_TEXT)}
    return [{**head, "unit": unit, "axis": axis, "from_zero": from_zero, "series": there, "marks": list(marks)}]


def table(
    ident: str,
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    marked: Sequence[tuple[int, int]] = (),
    *,
    has_figures: bool = True,
) -> list[Block]:
    """Return a table, of which all columns but the first have figures unless told otherwise; none without rows."""
    if not rows:
        return []
    shown = [[visible(cell, LONGEST_TEXT) for cell in row] for row in rows]
    numeric = [False] + [has_figures] * (len(columns) - 1)
    heads = [visible(column, LONGEST_TEXT) for column in columns]
    head = {"type": "table", "id": ident, "title": visible(title, LONGEST_TEXT), "columns": heads}
    return [{**head, "numeric": numeric, "rows": shown, "marked": [list(place) for place in marked]}]


def pairs(ident: str, title: str, rows: Sequence[tuple[str, str]], *, folded: bool = False) -> list[Block]:
    """Return labels with their texts; none without."""
    shown = [[visible(label, LONGEST_TEXT), visible(text, LONGEST_TEXT)] for label, text in rows if text]
    return [{"type": "pairs", "id": ident, "title": title, "folded": folded, "rows": shown}] if shown else []


def tile(label: str, value: str, note: str = "", tone: str = "") -> Block:
    """Return a figure of the headline."""
    return {"label": label, "value": visible(value, 60), "note": visible(note, 120), "tone": tone}


def section(ident: str, title: str, *blocks: Sequence[Block], lead: str = "") -> list[Block]:
    """Return a section, which begins with what ``lead`` says of it; none without blocks."""
    held = [block for some in blocks for block in some]
    return [{"id": ident, "title": title, "lead": visible(lead), "blocks": held}] if held else []
