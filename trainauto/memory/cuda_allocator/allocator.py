"""Reserved bytes of a training step, from its allocations: torch's CUDA caching allocator, simulated.

What a step needs of the card is more than its tensors hold: blocks are rounded, segments come in lumps, and free
blocks lie where they fit nothing. All of that follows from the order and the sizes of allocations.

The rules are torch's with default settings: no ``roundup_power2_divisions`` (sizes are rounded up to 512 bytes, that
is all), no ``max_split_size`` (any block may be split; nothing is released before everything is), no
``garbage_collection_threshold``, no private pools or CUDA graphs. A freed block can be used again at once, on the
stream that it was allocated on: no tensor is told of a second stream (``record_stream``), as in FSDP2.
Kernel workspaces are allocations like any other; the code that makes the events has to know them. The CUDA context and
what libraries take with ``cudaMalloc`` themselves are in no figure of torch's allocator, nor in ours.
"""

import platform
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch

from trainauto.core.units import MIB
from trainauto.memory.cuda_allocator.pools import (
    SMALL_SIZE_BYTES,
    Block,
    DeviceMemory,
    ExpandablePool,
    NativePool,
    rounded_bytes,
    ties_of,
)

DESCENDING = platform.system() == "Linux"
"""Whether the driver of this platform places large native segments downwards."""

RUNNING = (int(torch.__version__.split(".")[0]), int(torch.__version__.split(".")[1]))
"""Major and minor version of the torch that runs."""


STREAM_SHIFT = 56
"""Bits of an ident above these are the number of the stream that it is allocated on; 0 is the default stream."""


class AllocationEvent(NamedTuple):
    """``ident`` is allocated with a size above 0 bytes, or freed: size 0; for its stream see :data:`STREAM_SHIFT`."""

    ident: int
    size_bytes: int


class BlockView(NamedTuple):
    """A block of a segment, live or cached; ``requested_bytes`` of a cached one is 0."""

    address: int
    size_bytes: int
    requested_bytes: int
    live: bool


class SimulatedOutOfMemoryError(Exception):
    """The simulated device has too little memory, even with all released that can be; no torch.OutOfMemoryError."""


class CachingAllocator:
    """State of the allocator; figures are named as in ``torch.cuda.memory_stats()``.

    ``descending`` says how native segments are placed (see ``pools.NativePool``): by default as
    the driver of this platform does. ``placements`` gives the address of each native segment instead, in the order in
    which they are made, as a recorded history has them. ``torch_version`` (major, minor) decides which of equal cached
    blocks is taken; by default it is that of the torch that runs.

    ``limit_bytes`` is the memory of the device, beyond which ``cudaMalloc`` and ``cuMemCreate`` fail. A limit set by
    ``set_per_process_memory_fraction`` is the same to native segments. Before an expandable one grows, ``alloc_block``
    holds the size of a native segment against it, not what has to be mapped: there are more retries, and memory
    runs out some 20 MiB before that limit or behind it.

    Attributes:
        requested_bytes: live bytes as asked for.
        allocated_bytes: live bytes as blocks, with rounding and rests that were not split off.
        peak_requested_bytes: highest ``requested_bytes`` since ``reset_peaks``.
        peak_allocated_bytes: highest ``allocated_bytes`` since ``reset_peaks``.
        alloc_retries: how often everything cached was released because the device had too little memory.
    """

    def __init__(
        self,
        expandable: bool,
        limit_bytes: int | None = None,
        *,
        descending: bool = DESCENDING,
        placements: Iterator[int] | None = None,
        torch_version: tuple[int, int] | None = None,
    ) -> None:
        self.requested_bytes = self.peak_requested_bytes = 0
        self.allocated_bytes = self.peak_allocated_bytes = 0
        self.alloc_retries = 0
        self._device = DeviceMemory(limit_bytes)
        ties = ties_of(torch_version or RUNNING)

        def new_pools() -> tuple[NativePool, NativePool]:
            """Return the pools of small and of large blocks of one stream."""
            if expandable:
                return ExpandablePool(True, self._device, ties), ExpandablePool(False, self._device, ties)
            large = NativePool(False, self._device, ties, descending=descending, placements=placements)
            return NativePool(True, self._device, ties, descending=descending, placements=placements), large

        self._pools: dict[int, tuple[NativePool, NativePool]] = defaultdict(new_pools)  # by stream
        self._live: dict[int, Block] = {}

    @property
    def reserved_bytes(self) -> int:
        """Bytes taken from the device, in use or cached."""
        return self._device.reserved_bytes

    @property
    def peak_reserved_bytes(self) -> int:
        """Highest ``reserved_bytes`` since ``reset_peaks``."""
        return self._device.peak_reserved_bytes

    def allocate(self, ident: int, size_bytes: int) -> None:
        """Allocate at least one byte under a name that is not in use.

        Raises:
            SimulatedOutOfMemoryError: the device has too little memory; the allocator continues as torch's does.
            ValueError: no bytes, or ``ident`` is live.
        """
        if size_bytes <= 0 or ident in self._live:
            raise ValueError(f"allocation {ident} of {size_bytes} bytes: it is live already, or has no size")
        size = rounded_bytes(size_bytes)
        pool = self._pools[ident >> STREAM_SHIFT][size > SMALL_SIZE_BYTES]
        block = pool.take(size) or self._grow(pool, size)
        pool.cut(block, size)
        block.requested_bytes = size_bytes
        self._live[ident] = block
        self.requested_bytes += size_bytes
        self.allocated_bytes += block.size_bytes
        if self.requested_bytes > self.peak_requested_bytes:
            self.peak_requested_bytes = self.requested_bytes
        if self.allocated_bytes > self.peak_allocated_bytes:
            self.peak_allocated_bytes = self.allocated_bytes

    def _grow(self, pool: NativePool, size_bytes: int) -> Block:
        """Return a block of new memory, if need be after everything cached was released (``malloc``)."""
        block = pool.grow(size_bytes)
        if block is None:
            self.empty_cache()
            self.alloc_retries += 1
            block = pool.grow(size_bytes)
        if block is None:
            limit_mib, reserved_mib = self._device.limit_bytes / MIB, self.reserved_bytes / MIB
            raise SimulatedOutOfMemoryError(
                f"{size_bytes / MIB:.1f} MiB do not fit: {reserved_mib:.1f} of {limit_mib:.1f} MiB are reserved"
            )
        return block

    def free(self, ident: int) -> None:
        """Free a live allocation; its block stays cached.

        Raises:
            ValueError: ``ident`` is not live.
        """
        block = self._live.pop(ident, None)
        if block is None:
            raise ValueError(f"allocation {ident} is freed, but it is not live")
        self.requested_bytes -= block.requested_bytes
        self.allocated_bytes -= block.size_bytes
        block.requested_bytes = 0
        # small blocks keep no rest, so a live block's size tells its pool as the rounded size did
        self._pools[ident >> STREAM_SHIFT][block.size_bytes > SMALL_SIZE_BYTES].put_back(block)

    def address_of(self, ident: int) -> int:
        """Return where a live allocation lies."""
        return self._live[ident].address

    def empty_cache(self) -> None:
        """Return what can be returned to the device (``release_cached_blocks``, ``torch.cuda.empty_cache``)."""
        for position in (1, 0):  # large blocks first
            for pools in self._pools.values():
                pools[position].release()

    def reset_peaks(self) -> None:
        """Let peaks count from here (``torch.cuda.reset_peak_memory_stats``)."""
        self.peak_requested_bytes = self.requested_bytes
        self.peak_allocated_bytes = self.allocated_bytes
        self._device.peak_reserved_bytes = self._device.reserved_bytes

    def segments(self) -> list[list[BlockView]]:
        """Return the blocks of every segment, as ``torch.cuda.memory_snapshot()`` does.

        Of an expandable segment, every run of memory without a hole counts as one.
        """
        return [run for pools in self._pools.values() for run in _runs(pools)]

    def reserved_by_stream(self) -> dict[int, int]:
        """Return the bytes taken from the device by the stream that they were taken for."""
        return {
            stream: sum(block.size_bytes for run in _runs(pools) for block in run)
            for stream, pools in sorted(self._pools.items())
        }


def _runs(pools: Iterable[NativePool]) -> Iterator[list[BlockView]]:
    """Yield the blocks of each run of memory without a hole."""
    for pool in pools:
        for head in pool.chains.values():
            run: list[BlockView] = []
            block: Block | None = head
            while block is not None:
                if block.mapped:
                    run.append(BlockView(block.address, block.size_bytes, block.requested_bytes, not block.free))
                elif run:
                    yield run
                    run = []
                block = block.next
            if run:
                yield run


def replay(events: Iterable[AllocationEvent], allocator: CachingAllocator) -> None:
    """Carry out events in their order.

    Raises:
        SimulatedOutOfMemoryError: the allocator's device has too little memory.
        ValueError: an ident is allocated while live, or freed while not.
    """
    allocate, free = allocator.allocate, allocator.free
    for ident, size_bytes in events:
        if size_bytes:
            allocate(ident, size_bytes)
        else:
            free(ident)
