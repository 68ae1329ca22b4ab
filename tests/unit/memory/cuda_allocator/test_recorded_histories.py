"""The simulated allocator against histories that real cards recorded: reserved bytes equal after every event."""

import csv
import gzip
from pathlib import Path

import pytest

from trainauto.memory.cuda_allocator.allocator import CachingAllocator

HISTORIES = sorted((Path(__file__).parents[3] / "assets" / "cuda_histories").glob("*.csv.gz"))


def test_there_are_nine() -> None:
    assert len(HISTORIES) == 9


@pytest.mark.parametrize("descending", [False, True], ids=["ascending", "descending"])
@pytest.mark.parametrize("history", HISTORIES, ids=lambda path: path.name.split("_")[-1].split(".")[0])
def test_reserved_bytes_equal_after_every_event(history: Path, descending: bool) -> None:
    """None of the nine depends on where large segments lie."""
    allocator = CachingAllocator(expandable=False, descending=descending)
    idents: dict[str, int] = {}
    with gzip.open(history, "rt", newline="") as lines:
        for number, row in enumerate(csv.DictReader(lines)):
            if row["event"] == "alloc":
                idents[row["address"]] = number
                allocator.allocate(number, int(row["size"]))
            elif row["event"] == "free_completed":
                allocator.free(idents.pop(row["address"]))
            else:
                continue
            found = allocator.requested_bytes, allocator.reserved_bytes
            assert found == (int(row["recorded_allocated"]), int(row["recorded_reserved"])), f"event {number}"
