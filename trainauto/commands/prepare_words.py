"""What ``prepare`` prints."""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from trainauto.core.words import counted, visible
from trainauto.reporting.formatting import duration, wrapped
from trainauto.tasks.sr.preparation.journal import Entry
from trainauto.tasks.sr.preparation.verdicts import BLOCKY, DUPLICATE, LOW_DETAIL, Thresholds, Verdict

EVERY_S = 5.0
COLUMNS, REASON_COLUMNS = 80, 16
SHOWN_DAMAGED = 10


class Progress:
    """Prints how far a loop is, a line every few seconds.

    Args:
        doing: what is done, e.g. ``looking at images``.
        total: how many there are.
    """

    def __init__(self, doing: str, total: int) -> None:
        self._doing, self._total, self._done = doing, total, 0
        self._start = self._said = time.monotonic()

    def step(self) -> None:
        """Count one more."""
        self._done += 1
        now = time.monotonic()
        if now - self._said < EVERY_S:
            return
        self._said = now
        rate = self._done / (now - self._start)
        left = duration((self._total - self._done) / rate)
        print(f"{self._doing}: {self._done}/{self._total}, {rate:.3g} a second, {left} left", flush=True)


def dropped_lines(entries: Mapping[str, Entry], found: Mapping[str, Verdict], thresholds: Thresholds) -> Iterator[str]:
    """Yield what is left out and why: counts, and the first names."""
    damaged = sorted(name for name, entry in entries.items() if entry.damage)
    if damaged:
        yield f"  {'damaged':<{REASON_COLUMNS}}{counted(len(damaged), 'image')}:"
        for name in damaged[:SHOWN_DAMAGED]:
            yield from (f"    {line}" for line in wrapped(entries[name].damage, COLUMNS - 4))
        if len(damaged) > SHOWN_DAMAGED:
            yield f"    and {len(damaged) - SHOWN_DAMAGED} more, which report.json names"
    alike = {name: verdict.like for name, verdict in sorted(found.items()) if verdict.like}
    if alike:
        pairs = (f"{name} (as {like})" for name, like in alike.items())
        yield _line("near-duplicate", counted(len(alike), "image"), pairs)
    for reason, words, threshold in (
        (LOW_DETAIL, "low detail", f"below {thresholds.detail}"),
        (BLOCKY, "blocky", f"above {thresholds.blockiness}"),
    ):
        tiles = [(name, number) for name in sorted(found) for number in found[name].dropped.get(reason, ())]
        if tiles:
            names = (f"{name}_s{number:03d}" for name, number in tiles)
            yield _line(words, f"{counted(len(tiles), 'tile')} {threshold}", names)


def tiles_dropped(found: Mapping[str, Verdict]) -> dict[str, int]:
    """Return how many tiles are dropped, by reason."""
    counts = dict.fromkeys((DUPLICATE, LOW_DETAIL, BLOCKY), 0)
    for verdict in found.values():
        for reason, numbers in verdict.dropped.items():
            counts[reason] += len(numbers)
    return counts


def remark_lines(entries: Iterable[Entry]) -> Iterator[str]:
    """Yield what images were before they became RGB, with counts."""
    used = [entry for entry in entries if not entry.damage]
    remarks = Counter(remark for entry in used for remark in entry.remarks)
    remarks["16 bits, kept"] = sum(entry.bits == 16 for entry in used)
    said = [f"{remark} {count}" for remark, count in sorted(remarks.items()) if count]
    if said:
        yield from wrapped(f"images that are not plain RGB: {', '.join(said)}", COLUMNS)


def _line(reason: str, count: str, names: Iterable[str]) -> str:
    """Return a line of 80 columns: a reason, a count, and as many names as fit."""
    line = f"  {reason:<{REASON_COLUMNS}}{count}"
    given: Sequence[str] = [visible(name) for name in names]
    for place, name in enumerate(given):
        more = ", ..." if place + 1 < len(given) else ""
        joined = f"{line}{', ' if place else ': '}{name}"
        if len(joined + more) > COLUMNS:
            return f"{line}, ..." if place else f"{line}: {name}"
        line = joined
    return line
