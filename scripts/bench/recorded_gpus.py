"""Histories of torch's CUDA allocator, of cards of others or of your own, replayed by the simulated one.

    python scripts/bench/recorded_gpus.py [FOLDER] [--write docs/benchmarks]

A history of your own card, begun before anything is on it:

    torch.cuda.memory._record_memory_history(max_entries=10**7, context=None)
    ...                                              # a few steps of training
    torch.cuda.memory._dump_snapshot("my card, torch 2.13, Linux.pickle")

The folder's snapshots (``.pickle``, ``.pkl``) and tables (``.csv.gz``, as in ``tests/assets/cuda_histories``) are read.
Every device becomes a row: after how many events the simulation has other bytes reserved than the card had, how many
blocks it has placed elsewhere, and both peaks. A history that cannot be replayed says why.

Exit code 1 where reserved bytes or addresses differ, 2 where a file cannot be read.
"""

import argparse
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from allocator_histories import ALLOC, EXPANDABLE, MIB, RELEASE, Event, History, UnreadableError, histories_of

from trainauto.memory.cuda_allocator.allocator import CachingAllocator
from trainauto.memory.cuda_allocator.pools import SMALL_SIZE_BYTES

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "scripts"))

from data_of_others import CUDA_HISTORIES, missing  # noqa: E402

HISTORIES = ROOT / "tests" / "assets" / "cuda_histories"
PAGE = "recorded_histories.md"
HEAD = """# Recorded histories of real GPUs compared with the simulated allocator

`python scripts/bench/recorded_gpus.py`: the events of torch's CUDA allocator, replayed without a GPU. Rows that begin
with torch are from PyTorch's real allocator on a simulated GPU ([simulated_card.md](../simulated_card.md)). They are
random allocations under a limit, with cache releases and out-of-memory errors, and training steps of this project.
Rows that begin with h200 are training steps on an NVIDIA H200 (torch 2.11, CUDA 13.0, driver 580.159.04), recorded by
`scripts/bench/record_histories.py`. Other projects recorded the rest. Their files name neither GPU nor torch version,
and are not in this repository. `tests/assets/cuda_histories/README.md` lists the sources.

Allocated bytes are those requested; reserved bytes are what torch takes from the GPU. "Differ" counts the events
after which the simulated reserved bytes differ from the GPU's. "Misplaced" counts the blocks at another address,
given the driver's addresses of native segments and the start of expandable ones. The head of the script explains how
to record a history of your own GPU. Pass the folder of that file, and the script prints its row.

| history | segments | events | differ | misplaced | allocated, recorded | simulated | reserved, recorded | simulated |
|---|---|---:|---:|---:|---:|---:|---:|---:|"""


@dataclass(frozen=True)
class Row:
    """A history, recorded and simulated: after how many of its events something differs, and peaks in bytes.

    ``differing`` counts events after which other bytes are reserved, ``misplaced`` allocations at another address: in
    segments that expand, at another distance from where the segment begins. ``allocated`` is as asked for. ``None``
    where it is not known; simulated figures are not where ``refused`` says why.
    """

    name: str
    segments: str
    events: int
    allocated: int | None
    reserved: int
    differing: int | None = None
    misplaced: int | None = None
    allocated_simulated: int | None = None
    reserved_simulated: int | None = None
    refused: str = ""


def replayed(history: History) -> Row:
    """Replay a history; native segments lie where the driver placed them."""
    recorded = (
        history.name,
        history.segments,
        sum(event.action != RELEASE for event in history.events),
        None if history.begins else max((event.allocated for event in history.events), default=0),
        max((event.reserved for event in history.events), default=0),
    )
    if history.refused:
        return Row(*recorded, refused=history.refused)
    expandable = history.segments == EXPANDABLE
    placements = None if expandable else iter(history.placements)
    allocator = CachingAllocator(expandable, placements=placements, torch_version=history.torch_version)
    differing, misplaced = _carry_out(history.events, allocator, expandable=expandable)
    peaks = allocator.peak_requested_bytes, allocator.peak_reserved_bytes
    return Row(*recorded, differing, misplaced, *peaks)


def _carry_out(events: Iterable[Event], allocator: CachingAllocator, *, expandable: bool) -> tuple[int, int]:
    """Return after how many events other bytes are reserved than were recorded, and how many blocks lie elsewhere."""
    live: dict[int, tuple[int, bool]] = {}  # numbers, and whether they are in the small pool, by address
    begins: dict[bool, int] = {}  # how much higher than in the simulation a pool's segment lies, where it expands
    differing = misplaced = 0
    for number, event in enumerate(events):
        if event.action == RELEASE:
            allocator.empty_cache()
            # A segment of which nothing is left is another one next time.
            begins = {small: higher for small, higher in begins.items() if small in {pool for _, pool in live.values()}}
            continue
        if event.action == ALLOC:
            small = event.size <= SMALL_SIZE_BYTES
            live[event.address] = number, small
            allocator.allocate(number, event.size)
            higher = event.address - allocator.address_of(number)
            misplaced += higher != (begins.setdefault(small, higher) if expandable else 0)
        else:
            allocator.free(live.pop(event.address)[0])
        differing += allocator.reserved_bytes != event.reserved
    return differing, misplaced


def page(rows: Sequence[Row]) -> str:
    """Return the page in Markdown."""
    lines = [HEAD]
    for row in rows:
        cells = [row.name, row.segments, f"{row.events}", _count(row.differing), _count(row.misplaced)]
        cells += [_mib(row.allocated), _mib(row.allocated_simulated), _mib(row.reserved), _mib(row.reserved_simulated)]
        lines.append(f"| {' | '.join(cells)} |")
    if refused := [row for row in rows if row.refused]:
        lines += ["", "Not replayed:", "", *(f"- {row.name}: {row.refused}." for row in refused)]
    return "\n".join(lines) + "\n"


def _count(number: int | None) -> str:
    return "-" if number is None else f"{number}"


def _mib(size_bytes: int | None) -> str:
    return "-" if size_bytes is None else f"{size_bytes / MIB:.2f} MiB"


def _files(folder: Path | None) -> list[Path]:
    if folder is not None:
        return sorted(folder.iterdir())
    others = sorted(CUDA_HISTORIES.glob("*.csv.gz"))
    if reason := missing(CUDA_HISTORIES):
        print(f"{reason}; the page is not whole", file=sys.stderr)
    return [*others, *sorted(HISTORIES.iterdir())]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "folder", type=Path, nargs="?", help="of histories; default: the tests' own and those of others"
    )
    parser.add_argument("--write", type=Path, help=f"folder for {PAGE}")
    parsed = parser.parse_args(arguments)
    try:
        rows = [replayed(history) for file in _files(parsed.folder) for history in histories_of(file)]
    except (UnreadableError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    print(page(rows))
    if parsed.write:
        (parsed.write / PAGE).write_text(page(rows))
    return int(any(row.differing or row.misplaced for row in rows))


if __name__ == "__main__":
    sys.exit(main())
