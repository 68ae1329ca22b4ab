"""Where the driver places segments is assumed: the simulated allocator's peaks against those of recorded histories.

Given the placement, every byte and address is equal: tests/unit/scripts/test_recorded_gpus.py.
"""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[4] / "scripts"))
sys.path.append(str(Path(__file__).parents[4] / "scripts" / "bench"))
from allocator_histories import ALLOC, EXPANDABLE, FREE, histories_of
from data_of_others import CUDA_HISTORIES

from trainauto.memory.cuda_allocator.allocator import CachingAllocator

HISTORIES = [
    *CUDA_HISTORIES.glob("*.csv.gz"),
    *(Path(__file__).parents[3] / "assets" / "cuda_histories").glob("*.csv.gz"),
]
STEPS = sorted(path for path in HISTORIES if "random" not in path.name)  # what is at random is no step of a training


@pytest.mark.parametrize("descending", [False, True], ids=["ascending", "descending"])
@pytest.mark.parametrize("path", STEPS, ids=lambda path: path.name.split(".csv")[0].removeprefix("NiuHuangxiaozi_"))
def test_the_assumed_placement_is_near(path: Path, descending: bool) -> None:
    """The peak of reserved bytes is within 2 %."""
    history = histories_of(path)[0]
    if history.segments == EXPANDABLE and descending:
        return
    allocator = CachingAllocator(
        history.segments == EXPANDABLE, descending=descending, torch_version=history.torch_version
    )
    idents: dict[int, int] = {}
    for number, event in enumerate(history.events):
        if event.action == ALLOC:
            idents[event.address] = number
            allocator.allocate(number, event.size)
        elif event.action == FREE:
            allocator.free(idents.pop(event.address))
    recorded = max(event.reserved for event in history.events)
    assert allocator.peak_reserved_bytes == pytest.approx(recorded, rel=0.02)
