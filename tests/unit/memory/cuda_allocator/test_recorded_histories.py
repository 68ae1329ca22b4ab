"""The simulated allocator against histories that real cards recorded: bytes and addresses equal after every event."""

import csv
import gzip
from pathlib import Path

import pytest

from trainauto.memory.cuda_allocator.allocator import CachingAllocator

HISTORIES = sorted((Path(__file__).parents[3] / "assets" / "cuda_histories").glob("*.csv.gz"))

RECORDED = (2, 11)
"""The newest torch of these histories; older ones take equal blocks by the same rule."""


def rows_of(history: Path) -> list[dict[str, str]]:
    with gzip.open(history, "rt", newline="") as lines:
        return list(csv.DictReader(lines))


def test_there_are_ten_of_our_own_and_nine_of_others() -> None:
    assert sum(history.name.startswith("h200_") for history in HISTORIES) == 10
    assert len(HISTORIES) == 19


@pytest.mark.parametrize("history", HISTORIES, ids=lambda path: path.name.split(".")[0].removeprefix("NiuHuangxiaozi_"))
def test_bytes_and_addresses_equal_after_every_event(history: Path) -> None:
    """Given where the driver placed native segments; the address space of expandable ones is the simulation's own."""
    rows = rows_of(history)
    placements = [int(row["address"]) for row in rows if row["event"] == "segment_alloc"]
    allocator = CachingAllocator(
        expandable=not placements, placements=iter(placements) if placements else None, torch_version=RECORDED
    )
    idents: dict[str, int] = {}
    releasing = False
    for number, row in enumerate(rows):
        event, address = row["event"], row["address"]
        if event in ("segment_free", "segment_unmap") and not releasing:
            allocator.empty_cache()
        releasing = event in ("segment_free", "segment_unmap")
        if event == "alloc":
            idents[address] = number
            allocator.allocate(number, int(row["size"]))
            assert not placements or allocator.address_of(number) == int(address), f"event {number}"
        elif event == "free_completed":
            allocator.free(idents.pop(address))
        else:
            continue
        found = allocator.requested_bytes, allocator.reserved_bytes
        assert found == (int(row["recorded_allocated"]), int(row["recorded_reserved"])), f"event {number}"


@pytest.mark.parametrize("descending", [False, True], ids=["ascending", "descending"])
@pytest.mark.parametrize("history", HISTORIES, ids=lambda path: path.name.split(".")[0].removeprefix("NiuHuangxiaozi_"))
def test_the_assumed_placement_is_near(history: Path, descending: bool) -> None:
    """Where the driver's placement is not known, the peak of reserved bytes is still within 2 %."""
    rows = rows_of(history)
    expandable = not any(row["event"] == "segment_alloc" for row in rows)
    if expandable and descending:
        return
    allocator = CachingAllocator(expandable, descending=descending, torch_version=RECORDED)
    idents: dict[str, int] = {}
    for number, row in enumerate(rows):
        if row["event"] == "alloc":
            idents[row["address"]] = number
            allocator.allocate(number, int(row["size"]))
        elif row["event"] == "free_completed":
            allocator.free(idents.pop(row["address"]))
    recorded = max(int(row["recorded_reserved"]) for row in rows)
    assert allocator.peak_reserved_bytes == pytest.approx(recorded, rel=0.02)
