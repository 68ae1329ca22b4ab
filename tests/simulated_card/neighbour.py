"""Another program on a simulated card: it holds as many bytes as the last line of its input says, and needs no torch.

It writes the row of the table that ``src/holders.h`` describes, and answers each line once the card shows it.
"""

import fcntl
import mmap
import os
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager

CARDS, ROWS = 8, 256
ROW = struct.Struct(f"=ii{CARDS}Q")


@contextmanager
def row_of_table(path: str) -> Iterator[tuple[mmap.mmap, int]]:
    """Yield the table, and the place of a row that is ours until the end."""
    with open(path, "r+b") as file:
        os.ftruncate(file.fileno(), ROWS * ROW.size)
        table = mmap.mmap(file.fileno(), ROWS * ROW.size)
        fcntl.flock(file, fcntl.LOCK_EX)
        # From the end: the card's own processes take rows from the start.
        place = next(at for at in range((ROWS - 1) * ROW.size, -1, -ROW.size) if not ROW.unpack_from(table, at)[0])
        ROW.pack_into(table, place, os.getpid(), 0, *[0] * CARDS)
        fcntl.flock(file, fcntl.LOCK_UN)
        try:
            yield table, place
        finally:
            ROW.pack_into(table, place, 0, 0, *[0] * CARDS)


def main() -> None:
    """Hold what each line says, of every card."""
    with row_of_table(os.environ["SIMULATED_CARD_TABLE"]) as (table, place):
        for line in sys.stdin:
            ROW.pack_into(table, place, os.getpid(), 0, *[int(line)] * CARDS)
            print("held", flush=True)


if __name__ == "__main__":
    main()
