"""What ``python -m trainauto list`` prints: tables of what is known, as text or as JSON."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict

from trainauto.options.cards import CARDS, CardPreset

_HEADINGS = ("card", "GiB", "target", "margin", "lq_size px", "batch", "numbers")
_LEFT_ALIGNED = frozenset({"card", "numbers", "format", "checkpoints", "4 bits"})


def cards_table(cards: Sequence[CardPreset] = CARDS) -> str:
    """Return presets of cards as a table of at most 100 columns, smallest memory first."""
    rows = [_cells(card) for card in _by_memory(cards)]
    notes = dict.fromkeys(card.rule for card in _by_memory(cards))
    return "\n".join([*aligned(_HEADINGS, rows), "", *notes])


def cards_json(cards: Sequence[CardPreset] = CARDS) -> str:
    """Return the same as JSON: a list of objects with the fields of `CardPreset`."""
    return json.dumps([asdict(card) for card in _by_memory(cards)], indent=2)


def _by_memory(cards: Sequence[CardPreset]) -> list[CardPreset]:
    return sorted(cards, key=lambda card: (card.memory_gib, card.name))


def _cells(card: CardPreset) -> tuple[str, ...]:
    return (
        card.name,
        f"{card.memory_gib:g}",
        f"{card.target_vram_usage:.2f}",
        f"{card.safety_margin:.2f}",
        f"{card.min_lq_size}-{card.max_lq_size}",
        f"{card.min_batch_size}-{card.max_batch_size}",
        card.rule.split()[0].rstrip(":"),
    )


def most_text(batch_size: int, looked_at: int) -> str:
    """Return the largest batch that fits, marked where larger ones were not looked at."""
    return f"{batch_size}+" if batch_size >= looked_at else str(batch_size)


def beyond_text(batch_sizes: Iterable[int], looked_at: int) -> str:
    """Return what marked batches are; empty where :func:`most_text` marks none of these."""
    is_marked = any(batch_size >= looked_at for batch_size in batch_sizes)
    return f"{looked_at}+: that many fit, and more were not looked at." if is_marked else ""


def aligned(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return lines with columns of equal width, words to the left and figures to the right."""
    lines = [headings, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if heading in _LEFT_ALIGNED else cell.rjust(width)
            for heading, cell, width in zip(headings, line, widths, strict=True)
        ).rstrip()
        for line in lines
    ]
