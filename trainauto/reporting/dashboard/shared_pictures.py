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

    Two pictures are of one crop where the reference is the same. Of a run that has the reference with several inputs,
    the one with the same input is taken: what costs nothing is made of it. Where no crop is shared, the block says so;
    without any picture there is none.

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
    return [{**block, "note": _note(crops, called), "names": names, "rows": rows}]


def _shared(sets: Sequence[Sequence[PictureSet]]) -> list[_Crop]:
    """Return the crops of at least two runs: those of the same input first, then others of the same reference."""
    left = [(number, one) for number, of_run in enumerate(sets) for one in of_run if isinstance(one.reference, str)]
    crops: list[_Crop] = []
    for key_of in (lambda one: (one.reference, one.baseline), lambda one: one.reference):
        found: dict[object, _Crop] = {}
        for number, one in left:
            found.setdefault(str(key_of(one)), {}).setdefault(number, one)
        shared = [crop for crop in found.values() if len(crop) > 1]
        taken = {id(one) for crop in shared for one in crop.values()}
        left = [(number, one) for number, one in left if id(one) not in taken]
        crops += shared
    return crops


def _views(crop: _Crop, called: Sequence[str]) -> Iterator[list[str]]:
    """Yield each picture of a crop: what it is, its address, what else is known of it."""
    first = next(iter(crop.values()))
    baselines = {one.baseline: number for number, one in reversed(crop.items()) if isinstance(one.baseline, str)}
    for address, number in reversed(baselines.items()):
        yield [crop[number].baseline_name, address, called[number] if len(baselines) > 1 else ""]
    for number, one in crop.items():
        last = one.frames[-1]
        known = f"step {last.step}, {last.score}" if last.score else f"step {last.step}"
        yield [called[number], str(last.image), known]
    yield ["reference", str(first.reference), ""]


def _note(crops: Sequence[_Crop], called: Sequence[str]) -> str:
    """Return which runs have no part in the rows, and why; empty where all have."""
    if not crops:
        return "No pictures are side by side: no two of these runs show the same crop with its reference."
    out = [name for number, name in enumerate(called) if not any(number in crop for crop in crops)]
    return f"Without {', '.join(out)}, which shows none of these crops." if out else ""
