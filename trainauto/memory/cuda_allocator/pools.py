"""Pools of torch's CUDA caching allocator: how blocks are found, split, merged, made and released, on one stream.

Written after ``c10/cuda/CUDACachingAllocator.cpp`` and ``c10/core/AllocatorConfig.h``; their constants and functions
are named beside ours. The constants were checked in the headers of torch 2.13; the rules are the same in the sources of
2024 and of 2026.
``trainauto/memory/cuda_allocator/allocator.py`` is the interface to this file.

A pool holds chains of blocks without gaps. A block is live, cached (``free``) or, in an expandable segment only,
address space without memory (not ``mapped``). Of two blocks that merge the left one stays: a chain keeps its head.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator
from itertools import count
from typing import Literal

from trainauto.core.units import MIB

MIN_BLOCK_BYTES = 512  # kMinBlockSize: sizes are rounded up to multiples of it
SMALL_SIZE_BYTES = 1 * MIB  # kSmallSize: rounded sizes up to here are the small pool's
SMALL_BUFFER_BYTES = 2 * MIB  # kSmallBuffer: a segment of the small pool; its granule where segments expand
LARGE_BUFFER_BYTES = 20 * MIB  # kLargeBuffer, now large_segment_size(): the same for the large pool
MIN_LARGE_ALLOC_BYTES = 10 * MIB  # kMinLargeAlloc: from here a native segment is made to measure
ROUND_LARGE_BYTES = 2 * MIB  # kRoundLarge: segments made to measure are multiples of it
DESCENDING_BYTES = 32 * MIB  # from here on, Linux' driver places each native segment below the one before

Ties = Literal["address", "block", "segment"]
"""Which of equal cached blocks is taken: the one at the lowest address, that which became a block first, or that of the
segment which was made first and, of several, the lowest. What is cut off the start of a block counts as made then."""

ADDRESS_BITS = 60
MADE_BITS = 40
ADDRESS_SPACE_BYTES = LARGE_BUFFER_BYTES << 34  # of one pool; a multiple of both granules


def ties_of(torch_version: tuple[int, int]) -> Ties:
    """Return the rule of a release: 2.12 took up blocks by their age (PR 178362), 2.13 segments by it (PR 183591)."""
    return "address" if torch_version < (2, 12) else "block" if torch_version < (2, 13) else "segment"


def rounded_bytes(size_bytes: int) -> int:
    """Return the size of the block for a request of at least one byte (``round_size``)."""
    return -(-size_bytes // MIN_BLOCK_BYTES) * MIN_BLOCK_BYTES


def segment_bytes(block_bytes: int) -> int:
    """Return the size of the native segment that is made for a block of a rounded size (``get_allocation_size``)."""
    if block_bytes <= SMALL_SIZE_BYTES:
        return SMALL_BUFFER_BYTES
    if block_bytes < MIN_LARGE_ALLOC_BYTES:
        return LARGE_BUFFER_BYTES
    return -(-block_bytes // ROUND_LARGE_BYTES) * ROUND_LARGE_BYTES


class DeviceMemory:
    """What the pools hold of the device (``reserved_bytes``), and the most that they can have."""

    def __init__(self, limit_bytes: int | None) -> None:
        self.limit_bytes = ADDRESS_SPACE_BYTES if limit_bytes is None else limit_bytes
        self.reserved_bytes = 0
        self.peak_reserved_bytes = 0

    def reserve(self, size_bytes: int) -> bool:
        """Take memory from the device; return if there was enough."""
        reserved = self.reserved_bytes + size_bytes
        if reserved > self.limit_bytes:
            return False
        self.reserved_bytes = reserved
        self.peak_reserved_bytes = max(self.peak_reserved_bytes, reserved)
        return True

    def give_back(self, size_bytes: int) -> None:
        """Return memory to the device."""
        self.reserved_bytes -= size_bytes


class Block:
    """A range of addresses, between its neighbours in a chain; ``made`` is its place among equals, see `Ties`."""

    __slots__ = ("address", "free", "made", "mapped", "next", "previous", "requested_bytes", "size_bytes")

    def __init__(self, address: int, size_bytes: int, mapped: bool = True, made: int = 0) -> None:
        self.address = address
        self.made = made
        self.size_bytes = size_bytes
        self.requested_bytes = 0
        self.free = False
        self.mapped = mapped
        self.previous: Block | None = None
        self.next: Block | None = None

    def split_off(self, size_bytes: int) -> "Block":
        """Keep the first ``size_bytes``; return the rest, a block of its own."""
        rest = Block(self.address + size_bytes, self.size_bytes - size_bytes, self.mapped, self.made)
        self.size_bytes = size_bytes
        rest.previous = self
        rest.next = following = self.next
        self.next = rest
        if following is not None:
            following.previous = rest
        return rest

    def absorb(self, neighbour: "Block") -> None:
        """Take in the block that follows this one."""
        self.size_bytes += neighbour.size_bytes
        self.next = following = neighbour.next
        if following is not None:
            following.previous = self

    def reach_bytes(self) -> int:
        """Return the size that this block can have once it grows into address space behind it (``expandable_size``)."""
        following = self.next
        return self.size_bytes if following is None or following.mapped else self.size_bytes + following.size_bytes


class FreeList:
    """Cached blocks by size, ``made`` and address, all in one integer, which is fast to search.

    In torch: ``BlockComparatorSize``, from 2.13 on ``BlockComparatorSizeCounterAddress``.
    """

    def __init__(self) -> None:
        self.keys: list[int] = []
        self.blocks: list[Block] = []

    def add(self, block: Block) -> None:
        """Cache a block."""
        key = self._key(block)
        place = bisect_left(self.keys, key)
        self.keys.insert(place, key)
        self.blocks.insert(place, block)
        block.free = True

    def remove(self, block: Block) -> None:
        """Take out a block, before its size changes."""
        self.pop(bisect_left(self.keys, self._key(block)))

    @staticmethod
    def _key(block: Block) -> int:
        return (block.size_bytes << MADE_BITS | block.made) << ADDRESS_BITS | block.address

    def place_of_fit(self, size_bytes: int) -> int:
        """Return the place of the smallest block of at least this size; of equals, of the first."""
        return bisect_left(self.keys, size_bytes << MADE_BITS + ADDRESS_BITS)

    def pop(self, place: int) -> Block:
        """Take out the block at a place."""
        del self.keys[place]
        block = self.blocks.pop(place)
        block.free = False
        return block


class NativePool:
    """Pool of segments that are one ``cudaMalloc`` each and go back only when no part of them is live.

    Addresses only say which of equal cached blocks is taken (`Ties`). Where a segment lies is the driver's choice: seen
    in 142 recorded histories, segments ascend, but on Linux those of 32 MiB and more descend. A history that tells
    where the driver placed its segments is replayed with those addresses, in their order: ``placements``.
    """

    def __init__(
        self,
        small: bool,
        device: DeviceMemory,
        ties: Ties,
        *,
        descending: bool = False,
        placements: Iterator[int] | None = None,
    ) -> None:
        self.device, self.ties = device, ties
        self.made = count(1)
        self.cached = FreeList()
        self.chains: dict[int, Block] = {}  # first blocks by address
        self.next_address = 0 if small else ADDRESS_SPACE_BYTES
        self.descending = descending
        self.placements = placements
        self.end_address = self.next_address + ADDRESS_SPACE_BYTES
        # should_split(): in large segments a rest of up to kSmallSize stays with its block
        self.least_rest_bytes = MIN_BLOCK_BYTES if small else SMALL_SIZE_BYTES + MIN_BLOCK_BYTES

    def take(self, size_bytes: int) -> Block | None:
        """Return the cached block that fits best, if one fits (``get_free_block``)."""
        cached = self.cached
        place = cached.place_of_fit(size_bytes)
        return cached.pop(place) if place < len(cached.blocks) else None

    def grow(self, size_bytes: int) -> Block | None:
        """Return a block of new memory, at least this large; None where the device has too little (``alloc_block``)."""
        segment = segment_bytes(size_bytes)
        if not self.device.reserve(segment):
            return None
        address = self._place(segment)
        block = self.chains[address] = Block(address, segment, made=0 if self.ties == "address" else next(self.made))
        return block

    def _place(self, segment_bytes: int) -> int:
        """Return the address of a new segment."""
        if self.placements is not None:
            return next(self.placements)
        if self.descending and segment_bytes >= DESCENDING_BYTES:
            self.end_address -= segment_bytes
            return self.end_address
        self.next_address += segment_bytes
        return self.next_address - segment_bytes

    def cut(self, block: Block, size_bytes: int) -> None:
        """Cache what a block has beyond the size asked for, unless that is too little (``should_split``)."""
        if block.size_bytes - size_bytes >= self.least_rest_bytes:
            self.cached.add(block.split_off(size_bytes))
            self._renew(block)

    def _renew(self, block: Block) -> None:
        """Let a block be a new object where torch makes one, which tells only where ties follow the age of blocks."""
        if self.ties == "block":
            block.made = next(self.made)

    def put_back(self, block: Block) -> None:
        """Cache a block, merged with cached neighbours (``free_block``, ``try_merge_blocks``)."""
        before, after = block.previous, block.next
        if after is not None and after.free:
            self.cached.remove(after)
            block.absorb(after)
        if before is not None and before.free:
            self.cached.remove(before)
            before.absorb(block)
            before.made = block.made  # torch keeps the object that was freed
            block = before
        self.cached.add(block)

    def release(self) -> None:
        """Return every segment that is one cached block (``release_blocks``)."""
        for block in [block for block in self.cached.blocks if block.previous is None and block.next is None]:
            self.cached.remove(block)
            del self.chains[block.address]
            self.device.give_back(block.size_bytes)


class ExpandablePool(NativePool):
    """Pool of one segment, mapped and unmapped by granules of 2 MiB (small) or 20 MiB: ``expandable_segments:True``.

    Torch gives a segment 9/8 of the card as address space, and starts another one when nothing fits there. Here it is
    as good as endless; that differs only where holes too short for anything take up an eighth of the card.
    """

    def __init__(self, small: bool, device: DeviceMemory, ties: Ties) -> None:
        super().__init__(small, device, ties)
        self.least_rest_bytes = MIN_BLOCK_BYTES
        self.granule_bytes = SMALL_BUFFER_BYTES if small else LARGE_BUFFER_BYTES
        space = self.chains[self.next_address] = Block(self.next_address, ADDRESS_SPACE_BYTES, mapped=False)
        self.holes = [space]  # all address space without memory, by address

    def take(self, size_bytes: int) -> Block | None:
        """Return the cached block that fits best; one that can still grow counts as large as it can get."""
        cached = self.cached
        place, end = cached.place_of_fit(size_bytes), len(cached.blocks)
        if place == end:
            return None
        reach = cached.blocks[place].reach_bytes()
        while place + 1 < end and (following := cached.blocks[place + 1].reach_bytes()) < reach:
            place, reach = place + 1, following
        return cached.pop(place)

    def grow(self, size_bytes: int) -> Block | None:
        """Map memory behind the cached block, or in the hole, that comes first (``try_allocate_expandable_block``).

        What was mapped before the device ran out is cached then, and goes back with the rest.
        """
        block = self._first_room(size_bytes)
        if block is None or not (block.mapped or self._map(block, min(size_bytes, block.size_bytes))):
            return None
        while (missing := size_bytes - block.size_bytes) > 0:
            hole = block.next
            if hole is None or not self._map(hole, min(missing, hole.size_bytes)):
                return None
        self.cached.remove(block)
        return block

    def _first_room(self, size_bytes: int) -> Block | None:
        """Return the start of the first run of cached blocks and holes that is long enough."""
        for hole in self.holes:  # find_expandable_block()
            before = hole.previous
            start = before if before is not None and before.free else hole
            room, block = 0, start
            while room < size_bytes and (block.free or not block.mapped):
                room += block.size_bytes
                if block.next is None:
                    break
                block = block.next
            if room >= size_bytes:
                return start
        return None

    def _map(self, hole: Block, size_bytes: int) -> bool:
        """Give whole granules of memory to the start of a hole (``map_block``): all that are needed, or none."""
        mapped = -(-size_bytes // self.granule_bytes) * self.granule_bytes
        if not self.device.reserve(mapped):
            return False
        place = self.holes.index(hole)
        if mapped < hole.size_bytes:
            self.holes[place] = hole.split_off(mapped)
            self._renew(self.holes[place])
        else:
            del self.holes[place]
        hole.mapped = True
        self.put_back(hole)
        return True

    def release(self) -> None:
        """Return every whole granule inside cached blocks, wherever it lies (``unmap_block``)."""
        for block in list(self.cached.blocks):
            begin = -(-block.address // self.granule_bytes) * self.granule_bytes
            end = (block.address + block.size_bytes) // self.granule_bytes * self.granule_bytes
            if begin < end:
                self._unmap(block, begin, end)

    def _unmap(self, block: Block, begin: int, end: int) -> None:
        """Turn the addresses from ``begin`` to ``end`` of a cached block into a hole, merged with holes beside it."""
        self.cached.remove(block)
        hole = block
        if begin > block.address:
            hole = block.split_off(begin - block.address)
            self._renew(block)
            self.cached.add(block)
        if end < hole.address + hole.size_bytes:
            rest = hole.split_off(end - begin)
            self._renew(rest)
            self.cached.add(rest)
        hole.mapped = False
        self.device.give_back(end - begin)
        before, after = hole.previous, hole.next
        if after is not None and not after.mapped:
            self.holes.remove(after)
            hole.absorb(after)
        if before is not None and not before.mapped:
            before.absorb(hole)
            before.made = hole.made
        else:
            insort(self.holes, hole, key=lambda other: other.address)
