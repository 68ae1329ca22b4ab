"""Crops that several runs have validated, side by side."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trainauto.core.words import visible
from trainauto.reporting.dashboard.blocks import LONGEST_TEXT, Block
from trainauto.reporting.dashboard.pictures import MOST_PICTURES, MOST_SETS, PictureSet, sets_in

COMPARED = "compared"
"""Type of the block."""

_Crop = dict[int, PictureSet]
"""One crop as runs have it, by their numbers."""


def shared_pictures(pages: Sequence[Sequence[Mapping[str, Any]]], called: Sequence[str]) -> list[Block]:
    """Return the crops that at least two runs have: a row each of what costs nothing, last outputs and the reference.

    Two pictures are of one crop where the reference is the same, pixel for pixel. Where no crop is shared, the block
    says so; without any picture there is none.

    Args:
        pages: the blocks of pictures of each run's page.
        called: the names of the runs.
    """
    sets = [[one for one in sets_in(blocks) if one.frames] for blocks in pages]
    if not any(sets):
        return []
    most_views = len(called) + 2
    crops = _shared(sets)[: max(1, min(MOST_SETS, MOST_PICTURES // most_views))]
    block = {"type": COMPARED, "id": "compared", "title": "The same crops, after the last validation of each run"}
    names = [visible(next(iter(crop.values())).name, LONGEST_TEXT) for crop in crops]
    rows = [list(_views(crop, called)) for crop in crops]
    return [{**block, "note": _note(sets, crops, called), "names": names, "rows": rows}]


def _shared(sets: Sequence[Sequence[PictureSet]]) -> list[_Crop]:
    """Return the crops of at least two runs."""
    found: dict[str, _Crop] = {}
    for number, of_run in enumerate(sets):
        for one in of_run:
            if isinstance(one.reference, str):
                found.setdefault(one.reference, {}).setdefault(number, one)
    return [crop for crop in found.values() if len(crop) > 1]


def _views(crop: _Crop, called: Sequence[str]) -> Iterator[list[str]]:
    """Yield each picture of a crop: what it is, its address, what else is known of it."""
    baselines = {one.baseline: number for number, one in reversed(crop.items()) if isinstance(one.baseline, str)}
    for address, number in reversed(baselines.items()):
        yield [crop[number].baseline_name, address, called[number] if len(baselines) > 1 else ""]
    for number, one in crop.items():
        last = one.frames[-1]
        known = f"step {last.step}, {last.score}" if last.score else f"step {last.step}"
        yield [called[number], str(last.image), known]
    yield ["reference", str(next(iter(crop.values())).reference), ""]


def _note(sets: Sequence[Sequence[PictureSet]], crops: Sequence[_Crop], called: Sequence[str]) -> str:
    """Return which runs have no part in the rows, and why; empty where all have."""
    if not crops and all(sets):
        return "No pictures are side by side: these runs have no validation image in common."
    out = [name for number, name in enumerate(called) if not any(number in crop for crop in crops)]
    if not crops:
        out = [name for name, of_run in zip(called, sets, strict=True) if not of_run]
        return f"No pictures are side by side: {', '.join(out)} {'has' if len(out) == 1 else 'have'} none."
    return f"Without {', '.join(out)}, which validated none of these images." if out else ""
