"""A picture of what plans need: crop across, batch upwards, colour by bytes, and how far each card goes."""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from math import exp, log
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from trainauto.core.files import write_atomically
from trainauto.core.units import size_text

WIDTH_PX, HEIGHT_PX = 960, 640
LEFT_PX, TOP_PX, RIGHT_PX, BOTTOM_PX = 70, 50, 250, 60
DOT_PX = 6
INK, PAPER = (30, 30, 30), (255, 255, 255)

SCALE = ((68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37))
"""Dark is little, light is much; distinct in print and by colour-blind eyes."""

LINES = ((230, 30, 30), (255, 140, 0), (255, 255, 255), (0, 0, 0), (255, 0, 200), (0, 190, 255))

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont
Predict = Callable[[int, int], float]
"""Bytes of (batch, crop)."""


def draw_heat_map(
    path: Path,
    title: str,
    crops: Sequence[int],
    batches: Sequence[int],
    predict: Predict,
    frontiers: Mapping[str, Sequence[tuple[int, int]]],
    chosen: Mapping[str, tuple[int, int]],
    across: str = "lq_size, px of the low-quality image",
    unit: str = " px",
) -> None:
    """Write the picture.

    Args:
        path: PNG file to write.
        title: line above it.
        crops: admissible crops in px of the low-quality image, ascending.
        batches: admissible batches, ascending.
        predict: bytes expected of a plan.
        frontiers: by card, (crop, largest batch that fits) in ascending crops.
        chosen: by card, the (crop, batch) that a run would take.
        across: what crops are, where they are none.
        unit: of their sizes.
    """
    image = Image.new("RGB", (WIDTH_PX, HEIGHT_PX), PAPER)
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(14)
    field = _Field(crops, batches)
    low, high = log(predict(batches[0], crops[0])), log(predict(batches[-1], crops[-1]))
    for crop in crops:
        for batch in batches:
            share = (log(predict(batch, crop)) - low) / max(1e-9, high - low)
            draw.rectangle(field.cell(crop, batch), fill=_colour(share))
    lines = dict(zip(frontiers, _cycle(len(frontiers)), strict=True))
    for number, (card, points) in enumerate(frontiers.items()):
        # The first is the widest, so that of lines that run together all are seen.
        _draw_frontier(draw, field, points, lines[card], 3 + 4 * (len(frontiers) - 1 - number))
    for (x, y), card in _dots(field, chosen):
        draw.ellipse((x - DOT_PX, y - DOT_PX, x + DOT_PX, y + DOT_PX), fill=lines[card], outline=INK, width=2)
    _draw_frame(draw, font, field, title, across)
    _draw_legend(draw, font, list(frontiers), chosen, (low, high), unit)
    write_atomically(path, lambda file: image.save(file, "PNG"))


class _Field:
    """Where plans lie in the picture."""

    def __init__(self, crops: Sequence[int], batches: Sequence[int]) -> None:
        self.crops, self.batches = list(crops), list(batches)
        self.wide = (WIDTH_PX - LEFT_PX - RIGHT_PX) / len(self.crops)
        self.high = (HEIGHT_PX - TOP_PX - BOTTOM_PX) / len(self.batches)

    def cell(self, crop: int, batch: int) -> tuple[float, float, float, float]:
        left = LEFT_PX + _place(self.crops, crop) * self.wide
        top = HEIGHT_PX - BOTTOM_PX - (_place(self.batches, batch) + 1) * self.high
        return left, top, left + self.wide, top + self.high

    def middle(self, crop: int, batch: int) -> tuple[float, float]:
        left, top, right, bottom = self.cell(crop, batch)
        return (left + right) / 2, (top + bottom) / 2


def _dots(field: _Field, chosen: Mapping[str, tuple[int, int]]) -> list[tuple[tuple[float, float], str]]:
    """Return where the dot of each card is drawn: beside those that it would hide, within the picture."""
    places: list[tuple[float, float]] = []
    dots = []
    for card, plan in chosen.items():
        x, y = field.middle(*plan)
        while any(abs(x - left) < 2 * DOT_PX and abs(y - top) < 2 * DOT_PX for left, top in places):
            x -= 2 * DOT_PX + 2
        places.append((x, y))
        dots.append(((x, y), card))
    return dots


def _draw_frontier(
    draw: ImageDraw.ImageDraw,
    field: _Field,
    points: Sequence[tuple[int, int]],
    colour: tuple[int, int, int],
    width_px: int,
) -> None:
    """Draw steps along the upper edges of the largest batches."""
    steps: list[tuple[float, float]] = []
    for crop, batch in points:
        if crop in field.crops:
            left, top, right, _ = field.cell(crop, batch)
            steps += [(left, top), (right, top)]
    if steps:
        draw.line([*steps, (steps[-1][0], HEIGHT_PX - BOTTOM_PX)], fill=colour, width=width_px)


def _draw_frame(draw: ImageDraw.ImageDraw, font: Font, field: _Field, title: str, across: str) -> None:
    draw.text((LEFT_PX, 8), title, fill=INK, font=font)
    for crop in _some(field.crops, 10):
        x, _ = field.middle(crop, field.batches[0])
        draw.text((x, HEIGHT_PX - BOTTOM_PX + 6), str(crop), fill=INK, font=font, anchor="ma")
    for batch in _some(field.batches, 10):
        _, y = field.middle(field.crops[0], batch)
        draw.text((LEFT_PX - 8, y), str(batch), fill=INK, font=font, anchor="rm")
    middle = LEFT_PX + (WIDTH_PX - LEFT_PX - RIGHT_PX) / 2
    draw.text((middle, HEIGHT_PX - 28), across, fill=INK, font=font, anchor="ma")
    draw.text((8, TOP_PX - 20), "batch_size", fill=INK, font=font)


def _draw_legend(
    draw: ImageDraw.ImageDraw,
    font: Font,
    cards: Sequence[str],
    chosen: Mapping[str, tuple[int, int]],
    ends: tuple[float, float],
    unit: str,
) -> None:
    left, top = WIDTH_PX - RIGHT_PX + 20, TOP_PX
    for position in range(100):
        y = top + 1.5 * position
        draw.rectangle((left, y, left + 20, y + 1.5), fill=_colour(1 - position / 99))
    for share, y in ((1.0, top), (0.5, top + 75), (0.0, top + 150)):
        count = exp(ends[0] + share * (ends[1] - ends[0]))
        draw.text((left + 28, y), size_text(count), fill=INK, font=font, anchor="lm")
    words = "colour: expected peak\nline: largest batch whose\n99 % bound is within target\ndot: the plan of a run"
    draw.text((left, top + 166), words, fill=INK, font=ImageFont.load_default(12))
    for row, (line, card) in enumerate(zip(_cycle(len(cards)), cards, strict=True)):
        y = top + 250 + 44 * row
        draw.rectangle((left, y, left + 20, y + 6), fill=line, outline=INK)
        # In the order of the table that is printed beside it.
        words = f"{chosen[card][0]}{unit}, batch {chosen[card][1]}" if card in chosen else "no plan fits"
        draw.text((left + 28, y - 4), f"{card}\n{words}", fill=INK, font=font)


def _colour(share: float) -> tuple[int, int, int]:
    place = min(max(share, 0.0), 1.0) * (len(SCALE) - 1)
    index = min(int(place), len(SCALE) - 2)
    weight = place - index
    low, high = SCALE[index], SCALE[index + 1]
    red, green, blue = (round(a + weight * (b - a)) for a, b in zip(low, high, strict=True))
    return red, green, blue


def _place(values: Sequence[int], value: int) -> int:
    """Return the position of a value, or of the next smaller one that is shown."""
    return max(0, bisect_right(values, value) - 1)


def _some(values: Sequence[int], most: int) -> Sequence[int]:
    return values[:: max(1, -(-len(values) // most))]


def _cycle(count: int) -> list[tuple[int, int, int]]:
    return [LINES[index % len(LINES)] for index in range(count)]
