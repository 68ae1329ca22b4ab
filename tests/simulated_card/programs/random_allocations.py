"""Allocates at random with PyTorch's allocator and with the simulated one, and compares them after every event.

    python random_allocations.py SEED EVENTS [FILE.csv.gz]

Writes the history of PyTorch's allocator to the file, as scripts/bench/record_histories.py does. Prints what happened
as JSON. The card is to be small: memory runs out now and then, and caches are given back.
"""

import json
import math
import random
import sys
from itertools import count
from pathlib import Path
from typing import Any

import torch

from trainauto.memory.cuda_allocator.allocator import CachingAllocator, SimulatedOutOfMemoryError
from trainauto.memory.cuda_allocator.pools import ADDRESS_SPACE_BYTES, SMALL_SIZE_BYTES, rounded_bytes
from trainauto.memory.cuda_allocator.segments import uses_expandable_segments

LARGEST = 200 * 2**20


class Both:
    """The real allocator, which goes first, and the simulated one, which must do the same."""

    def __init__(self) -> None:
        self.expandable = uses_expandable_segments(torch.device("cuda", 0))
        torch.cuda.empty_cache()
        limit = torch.cuda.mem_get_info()[0]
        self.simulated = CachingAllocator(self.expandable, limit, placements=iter(lambda: self.latest, None))
        self.real: dict[int, Any] = {}
        self.names = count()
        self.bases: dict[bool, int] = {}
        self.counts = {"allocations": 0, "out_of_memory": 0, "retries": 0, "emptied": 0}
        self.latest: int | None = None  # a segment that is made for an allocation begins with it

    def allocate(self, size: int) -> None:
        """Allocate in both."""
        name = next(self.names)
        try:
            storage = torch.cuda.caching_allocator_alloc(size)
        except torch.OutOfMemoryError:
            storage = None
        self.latest = storage
        try:
            self.simulated.allocate(name, size)
        except SimulatedOutOfMemoryError:
            assert storage is None, f"allocation {name} of {size} bytes fits for real"
            self.counts["out_of_memory"] += 1
        else:
            assert storage is not None, f"allocation {name} of {size} bytes does not fit for real"
            self.real[name] = storage
            self.counts["allocations"] += 1
            assert self.place_of(storage, size) == self.simulated.address_of(name), f"allocation {name} of {size} bytes"
        self.compare()

    def place_of(self, address: int, size: int) -> int:
        """Return an address as the simulation has it, whose expandable segments begin elsewhere."""
        if not self.expandable:
            return address
        small = rounded_bytes(size) <= SMALL_SIZE_BYTES
        begin = 0 if small else ADDRESS_SPACE_BYTES
        return begin + address - self.bases.setdefault(small, address)

    def free(self, name: int) -> None:
        """Free in both."""
        torch.cuda.caching_allocator_delete(self.real.pop(name))
        self.simulated.free(name)
        self.compare()

    def empty(self) -> None:
        """Give both caches back."""
        torch.cuda.empty_cache()
        self.simulated.empty_cache()
        self.counts["emptied"] += 1
        self.compare()

    def compare(self) -> None:
        """Compare what is reserved, and how often caches were given back for want of memory."""
        real = torch.cuda.memory_stats()
        found = real["reserved_bytes.all.current"], real["num_alloc_retries"]
        assert found == (self.simulated.reserved_bytes, self.simulated.alloc_retries), (found, self.simulated)
        self.counts["retries"] = real["num_alloc_retries"]


def main(seed: int, events: int, file: Path | None = None) -> None:
    """Do so many events."""
    if file is not None:
        torch.cuda.memory._record_memory_history(max_entries=10**6, context=None)
    rng, both = random.Random(seed), Both()
    for _ in range(events):
        draw = rng.random()
        if draw < 0.002:
            both.empty()
        elif both.real and draw < 0.47:
            both.free(rng.choice(list(both.real)))
        else:
            # sizes that come again: of equal cached blocks the right one must be taken
            size = int(math.exp(rng.uniform(math.log(256), math.log(LARGEST))))
            both.allocate(size if rng.random() < 0.3 else 1 << size.bit_length() - 1)
    if file is not None:
        sys.path.append(str(Path(__file__).parents[3] / "scripts" / "bench"))
        from record_histories import write

        write(torch.cuda.memory._snapshot()["device_traces"][0], file)
    print(json.dumps({**both.counts, "expandable": both.expandable, "torch": torch.__version__}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *map(Path, sys.argv[3:]))
