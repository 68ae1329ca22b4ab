"""The picture of scripts/demo.py, as SVG: memory of each step against the budget."""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

WIDTH, HEIGHT = 1000, 380
LEFT, RIGHT, TOP, BOTTOM = 64, 24, 56, 84
MOST_MIB = 72
OURS, LOST, FIXED, INK, FAINT = "#0f766e", "#94a3b8", "#c2261c", "#1f2937", "#64748b"


def draw(happened: Mapping[str, Any]) -> str:
    """Return the picture of what :func:`demo.show` returns."""
    return "\n".join([*_frame(happened), *_fixed(happened), *_ours(happened), *_words(happened), "</svg>", ""])


def _x(step: float, steps: int) -> float:
    return round(LEFT + (WIDTH - LEFT - RIGHT) * step / steps, 1)


def _y(mib: float) -> float:
    return round(TOP + (HEIGHT - TOP - BOTTOM) * (1 - mib / MOST_MIB), 1)


def _text(
    x: float, y: float, words: str, colour: str = INK, size: int = 15, anchor: str = "start", bold: bool = False
) -> str:
    weight = ' font-weight="600"' if bold else ""
    look = f'fill="{colour}" font-size="{size}" text-anchor="{anchor}"{weight}'
    return f'<text x="{x}" y="{y}" {look}>{escape(words)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, width: float = 1.0, dashes: str = "") -> str:
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{colour}" stroke-width="{width}"{dashed}/>'


def _frame(happened: Mapping[str, Any]) -> Iterator[str]:
    budget, steps = happened["budget_mib"], happened["steps"]
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"'
    yield ' font-family="system-ui, -apple-system, Segoe UI, Roboto, sans-serif">'
    yield f"<title>One option file under one budget of {budget} MiB: a fixed batch dies, trainauto trains</title>"
    yield f'<rect width="{WIDTH}" height="{HEIGHT}" rx="8" fill="#ffffff" stroke="#e2e8f0"/>'
    yield _text(
        LEFT,
        30,
        f"One option file, one enforced memory budget of {budget} MiB: peak memory of each step",
        bold=True,
        size=17,
    )
    for mib in (0, 16, 32, 48):
        yield _line(LEFT, _y(mib), WIDTH - RIGHT, _y(mib), "#e2e8f0")
    for mib in (0, 16, 32, 48, budget):
        yield _text(LEFT - 8, _y(mib) + 5, f"{mib} MiB" if mib == budget else f"{mib}", FAINT, 13, "end")
    yield _line(LEFT, _y(budget), WIDTH - RIGHT, _y(budget), FIXED, 1.5, "6 4")
    yield _text(WIDTH - RIGHT, _y(budget) - 8, "the budget: past it, the allocator refuses", FIXED, 13, "end")
    for step in range(0, steps + 1, 20):
        yield _text(
            _x(step, steps),
            _y(0) + 20,
            f"step {step}" if step == steps else f"{step}",
            FAINT,
            13,
            "end" if step == steps else "middle",
        )


def _fixed(happened: Mapping[str, Any]) -> Iterator[str]:
    fixed, steps = happened["fixed"], happened["steps"]
    x, top = _x(fixed["steps"] + 1, steps), _y(happened["budget_mib"])
    yield _line(x, _y(0), x, top, FIXED, 3)
    yield f'<path d="M{x - 7} {top - 7}l14 14m0 -14l-14 14" stroke="{FIXED}" stroke-width="4"/>'
    yield _text(
        x + 16, top - 8, f"{fixed['plan']}, fixed: out of memory in step {fixed['steps'] + 1}", FIXED, bold=True
    )


def _ours(happened: Mapping[str, Any]) -> Iterator[str]:
    steps, whole, killed, start = (happened[name] for name in ("steps", "whole", "killed", "resumed_from"))
    yield _curve(killed[start:], steps, LOST, 3)
    yield _curve(whole[:start], steps, OURS, 3)
    yield _curve(whole[start:], steps, OURS, 3)
    x, last = _x(killed[-1]["step"], steps), _y(killed[-1]["peak_mib"])
    yield _line(x, last - 14, x, _y(0), INK, 1.5, "3 3")
    yield _text(x - 8, _y(22), f"kill -9 after step {killed[-1]['step']}", anchor="end", bold=True)
    yield _text(
        x - 8,
        _y(22) + 19,
        f"resumed from the checkpoint of step {start}: what followed it is trained again",
        FAINT,
        13,
        "end",
    )
    first = whole[0]
    yield _text(
        _x(4, steps),
        _y(first["peak_mib"]) + 24,
        f"trainauto: {first['plan']}, chosen before the first step",
        OURS,
        bold=True,
    )


def _curve(points: Sequence[Mapping[str, Any]], steps: int, colour: str, width: float) -> str:
    places = " ".join(f"{_x(point['step'], steps)},{_y(point['peak_mib'])}" for point in points)
    return f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="{width}"/>'


def _words(happened: Mapping[str, Any]) -> Iterator[str]:
    resumed, unbroken = (digest[:16] for digest in happened["digests"])
    yield _text(LEFT, HEIGHT - 34, f"SHA-256 of the weights after kill -9 and resume: {resumed}…", INK, 14)
    equal = "the same" if resumed == unbroken else "different"
    yield _text(
        LEFT,
        HEIGHT - 13,
        f"SHA-256 of the weights after `replay` of its {happened['steps']} steps in one go: {unbroken}… {equal}",
        INK,
        14,
    )
