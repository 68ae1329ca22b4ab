"""Two curves over steps as a picture that needs nothing but a browser, in its light and dark colours."""

from collections.abc import Mapping, Sequence
from html import escape
from math import floor, isfinite, log10

WIDTH, HEIGHT = 680, 260
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 34, 34
TICKS = 5

_STYLE = (
    "text{font:12px sans-serif;fill:#30363d}.grid{stroke:#8c959f;stroke-opacity:.25}"
    ".off,.on{fill:none;stroke-width:1.8}"
    ".off{stroke:#b35900}.on{stroke:#0969da}.off-text{fill:#b35900}.on-text{fill:#0969da}"
    ".mark{stroke:#8250df;stroke-dasharray:3 3}"
    "@media(prefers-color-scheme:dark){text{fill:#c9d1d9}.off{stroke:#f0883e}.on{stroke:#58a6ff}.off-text{fill:#f0883e}"
    ".on-text{fill:#58a6ff}.mark{stroke:#bc8cff}}"
)


def curve_picture(
    title: str, off: Mapping[int, float], on: Mapping[int, float], name: str, marks: Sequence[int] = ()
) -> str:
    """Return an SVG of a figure by step, without something and with it; steps at which it decided are marked.

    Values that are far above most are cut off at the upper edge.

    Args:
        title: what is shown.
        off: values without it, by step.
        on: values with it.
        name: of what makes the difference.
        marks: steps at which it decided.
    """
    values = sorted(value for curve in (off, on) for value in curve.values() if isfinite(value))
    low, high = values[0], max(values[0] * 1.05, min(values[-1], 3 * values[len(values) // 4]))
    last = max([*off, *on])
    low, high, step = _rounded(low, high)

    def place(at: float, value: float) -> str:
        x = LEFT + (WIDTH - LEFT - RIGHT) * at / last
        y = TOP + (HEIGHT - TOP - BOTTOM) * (high - min(max(value, low), high)) / (high - low)
        return f"{x:.1f},{y:.1f}"

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"',
        f'aria-label="{escape(title)}">',
        f"<style>{_STYLE}</style>",
        f'<text x="{LEFT}" y="16">{escape(title)}</text>',
    ]
    for number in range(round((high - low) / step) + 1):
        value = low + number * step
        (x, y), right = place(0, value).split(","), WIDTH - RIGHT
        lines.append(f'<line class="grid" x1="{x}" y1="{y}" x2="{right}" y2="{y}"/>')
        lines.append(f'<text x="{LEFT - 6}" y="{float(y) + 4:.1f}" text-anchor="end">{value:.4g}</text>')
    for number in range(TICKS + 1):
        at = round(last * number / TICKS)
        lines.append(
            f'<text x="{place(at, low).split(",")[0]}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{at}</text>'
        )
    for at in marks:
        x = place(at, low).split(",")[0]
        lines.append(f'<line class="mark" x1="{x}" y1="{TOP}" x2="{x}" y2="{HEIGHT - BOTTOM}"/>')
    for kind, curve in (("off", off), ("on", on)):
        points = " ".join(place(at, value) for at, value in sorted(curve.items()) if isfinite(value))
        lines.append(f'<polyline class="{kind}" points="{points}"/>')
    lines.append(f'<text class="off-text" x="{WIDTH - RIGHT - 250}" y="16">without</text>')
    lines.append(f'<text class="on-text" x="{WIDTH - RIGHT - 190}" y="16">with {escape(name)}</text>')
    lines.append(f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 2}" text-anchor="end">steps</text>')
    return "\n".join([*lines, "</svg>", ""])


def _rounded(low: float, high: float) -> tuple[float, float, float]:
    """Return bounds around a range that are whole multiples of a round step, and the step."""
    rough = (high - low) / TICKS
    power = 10.0 ** floor(log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    return floor(low / step) * step, -floor(-high / step) * step, step
