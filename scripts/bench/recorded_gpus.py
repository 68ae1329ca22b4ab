"""Histories of torch's CUDA allocator, of cards of others or of your own, replayed by the simulated one.

    python scripts/bench/recorded_gpus.py [FOLDER] [--write docs/benchmarks]

A history of your own card, begun before anything is on it:

    torch.cuda.memory._record_memory_history(max_entries=10**7, context=None)
    ...                                              # a few steps of training
    torch.cuda.memory._dump_snapshot("my card, torch 2.13, Linux.pickle")

The folder's snapshots (``.pickle``, ``.pkl``) and tables (``.csv.gz``, as in ``tests/assets/cuda_histories``) are read,
and every device becomes a row: after how many events the simulation has other bytes reserved than the card had, and
both peaks. A history that cannot be replayed says why.

Exit code 1 where reserved bytes differ after some event, 2 where a file cannot be read.
"""

import argparse
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from allocator_histories import ALLOC, EXPANDABLE, MIB, RELEASE, Event, History, UnreadableError, histories_of

from trainauto.memory.cuda_allocator.allocator import CachingAllocator

HISTORIES = Path(__file__).resolve().parents[2] / "tests" / "assets" / "cuda_histories"
PAGE = "recorded_histories.md"
HEAD = """# Recorded histories of real cards against the simulated allocator

`python scripts/bench/recorded_gpus.py`: what torch's CUDA allocator did on cards of others, replayed without one. Where
the files come from: `tests/assets/cuda_histories/README.md`; which card and which torch is not in them. Allocated bytes
are as asked for, reserved ones are what torch takes from the card; "differ" counts the events after which other bytes
are reserved than the card had. The head of the script says how to record a history of your own card; given the folder
of that file, it prints its row.

| history | segments | events | differ | allocated, recorded | simulated | reserved, recorded | simulated |
|---|---|---:|---:|---:|---:|---:|---:|"""


@dataclass(frozen=True)
class Row:
    """A history, recorded and simulated: how many events, after how many of them reserved bytes differ, peaks in bytes.

    ``allocated`` is as asked for. ``None`` where it is not known; simulated figures are not where ``refused`` says why.
    """

    name: str
    segments: str
    events: int
    allocated: int | None
    reserved: int
    differing: int | None = None
    allocated_simulated: int | None = None
    reserved_simulated: int | None = None
    refused: str = ""


def replayed(history: History) -> Row:
    """Replay a history; native segments under the order of addresses that differs less: it is the driver's choice."""
    recorded = (
        history.name,
        history.segments,
        sum(event.action != RELEASE for event in history.events),
        None if history.begins else max((event.allocated for event in history.events), default=0),
        max((event.reserved for event in history.events), default=0),
    )
    if history.refused:
        return Row(*recorded, refused=history.refused)
    tries = []
    for descending in (False,) if history.segments == EXPANDABLE else (False, True):
        allocator = CachingAllocator(history.segments == EXPANDABLE, descending=descending)
        tries.append((_differing(history.events, allocator), allocator))
    differing, allocator = min(tries, key=lambda attempt: attempt[0])
    return Row(*recorded, differing, allocator.peak_requested_bytes, allocator.peak_reserved_bytes)


def _differing(events: Iterable[Event], allocator: CachingAllocator) -> int:
    """Carry events out; return after how many of them other bytes are reserved than were recorded."""
    idents: dict[int, int] = {}
    differing = 0
    for number, event in enumerate(events):
        if event.action == RELEASE:
            allocator.empty_cache()
            continue
        if event.action == ALLOC:
            idents[event.address] = number
            allocator.allocate(number, event.size)
        else:
            allocator.free(idents.pop(event.address))
        differing += allocator.reserved_bytes != event.reserved
    return differing


def page(rows: Sequence[Row]) -> str:
    """Return the page in Markdown."""
    lines = [HEAD]
    for row in rows:
        cells = [row.name, row.segments, f"{row.events}", "-" if row.differing is None else f"{row.differing}"]
        cells += [_mib(row.allocated), _mib(row.allocated_simulated), _mib(row.reserved), _mib(row.reserved_simulated)]
        lines.append(f"| {' | '.join(cells)} |")
    if refused := [row for row in rows if row.refused]:
        lines += ["", "Not replayed:", "", *(f"- {row.name}: {row.refused}." for row in refused)]
    return "\n".join(lines) + "\n"


def _mib(size_bytes: int | None) -> str:
    return "-" if size_bytes is None else f"{size_bytes / MIB:.2f} MiB"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=HISTORIES, help="of histories; default: the tests' own")
    parser.add_argument("--write", type=Path, help=f"folder for {PAGE}")
    parsed = parser.parse_args(arguments)
    try:
        rows = [replayed(history) for file in sorted(parsed.folder.iterdir()) for history in histories_of(file)]
    except (UnreadableError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    print(page(rows))
    if parsed.write:
        (parsed.write / PAGE).write_text(page(rows))
    return int(any(row.differing for row in rows))


if __name__ == "__main__":
    sys.exit(main())
