"""What the classifier foretold of runs kept out, and what was seen: a table, and a plot in plain SVG."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple
from xml.sax.saxutils import escape

import numpy as np
from classifier_data import Rows
from classifier_evaluation import KeptOut

ENDS = (0, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95, 1.0001)


class Foretold(NamedTuple):
    """Batches of which about the same was foretold, over all divisions of the runs.

    Attributes:
        probability: that was foretold, on average.
        rows: batches a division, on average.
        seen: share of them that spiked, the median of the divisions.
        least: the smallest of them.
        most: the largest.
    """

    probability: float
    rows: float
    seen: float
    least: float
    most: float


def foretold_and_seen(rows: Rows, judged: Sequence[KeptOut]) -> list[Foretold]:
    """Return what became of batches by what was foretold, those left out that it abstained from."""
    result = []
    for low, high in pairwise(ENDS):
        of = [split.known & (split.probabilities >= low) & (split.probabilities < high) for split in judged]
        seen = [float(rows.spikes[some].mean()) for some in of if some.any()]
        if seen:
            said = np.concatenate([split.probabilities[some] for split, some in zip(judged, of, strict=True)])
            result.append(
                Foretold(float(said.mean()), len(said) / len(judged), float(np.median(seen)), min(seen), max(seen))
            )
    return result


def reliability(bins: Sequence[Foretold]) -> Iterator[str]:
    """Yield the table."""
    yield "| predicted | rows a division | observed | range |"
    yield "|---:|---:|---:|---|"
    for of in bins:
        yield f"| {of.probability:.1%} | {of.rows:.0f} | {of.seen:.1%} | {of.least:.1%} to {of.most:.1%} |"


PANEL, LEFT, TOP, GAP = 240, 62, 44, 80
"""Pixels: sides of a panel, what is left of the first and above, between the two."""


def calibration_plot(bins: Sequence[Foretold]) -> str:
    """Return the plot: all of it, and its lower corner, where batches are admitted."""
    width, height = LEFT + 2 * PANEL + GAP + 24, TOP + PANEL + 62
    title = "Spikes predicted and observed in held-out runs: medians and ranges of all divisions"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{LEFT}" y="22" font-size="13">{escape(title)}</text>',
        *_panel(LEFT, bins, 100, 20),
        *_panel(LEFT + PANEL + GAP, bins, 20, 5),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _panel(left: int, bins: Sequence[Foretold], most: int, step: int) -> Iterator[str]:
    """Yield axes from 0 to ``most`` per cent, the line on which both are equal, and the batches."""
    bottom = TOP + PANEL

    def x(share: float) -> str:
        return f"{left + PANEL * min(100 * share / most, 1):.1f}"

    def y(share: float) -> str:
        return f"{bottom - PANEL * min(100 * share / most, 1):.1f}"

    yield f'<rect x="{left}" y="{TOP}" width="{PANEL}" height="{PANEL}" fill="none" stroke="#888"/>'
    for tick in range(0, most + 1, step):
        at_x, at_y = x(tick / 100), y(tick / 100)
        yield f'<line x1="{at_x}" y1="{bottom}" x2="{at_x}" y2="{bottom + 4}" stroke="#888"/>'
        yield f'<line x1="{left - 4}" y1="{at_y}" x2="{left}" y2="{at_y}" stroke="#888"/>'
        yield f'<text x="{at_x}" y="{bottom + 18}" text-anchor="middle">{tick}</text>'
        yield f'<text x="{left - 8}" y="{at_y}" text-anchor="end" dominant-baseline="middle">{tick}</text>'
    yield f'<line x1="{left}" y1="{bottom}" x2="{left + PANEL}" y2="{TOP}" stroke="#888" stroke-dasharray="4 3"/>'
    middle = left + PANEL / 2
    yield f'<text x="{middle}" y="{bottom + 42}" text-anchor="middle">predicted probability of a spike, %</text>'
    turned = f"rotate(-90 {left - 40} {TOP + PANEL / 2})"
    label = "share of batches that spiked, %"
    yield f'<text x="{left - 40}" y="{TOP + PANEL / 2}" text-anchor="middle" transform="{turned}">{label}</text>'
    for of in (each for each in bins if 100 * each.probability <= most):
        at = x(of.probability)
        said = f"predicted {of.probability:.1%}, observed {of.seen:.1%}"
        yield f'<line x1="{at}" y1="{y(of.least)}" x2="{at}" y2="{y(of.most)}" stroke="#1f77b4" stroke-width="2"/>'
        if 100 * of.seen <= most:
            yield f'<circle cx="{at}" cy="{y(of.seen)}" r="4" fill="#1f77b4"><title>{said}</title></circle>'
