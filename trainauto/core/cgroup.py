"""What a control group (container, job of a cluster) leaves of a machine: memory and CPU time, versions 1 and 2.

Limits hold at every level: a container's own may be off while that of the pod around it is on. Everything here reads
files below a folder that is given, so that it can be tried with files of any machine.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

OWN = Path("/proc/self/cgroup")
ROOT = Path("/sys/fs/cgroup")

UNLIMITED_BYTES = 2**60
"""Version 1 writes the largest number of pages where there is no limit."""


@dataclass(frozen=True)
class MemoryLimit:
    """A limit of memory.

    Attributes:
        limit_bytes: what all processes of the group may use.
        used_bytes: what they use; file pages that can be dropped at once are not counted.
        folder: the group.
    """

    limit_bytes: int
    used_bytes: int
    folder: Path

    @property
    def free_bytes(self) -> int:
        """What is left."""
        return max(0, self.limit_bytes - self.used_bytes)


def tightest_memory_limit(own: Path = OWN, root: Path = ROOT) -> MemoryLimit | None:
    """Return the limit that leaves least to this process; ``None`` where there is none.

    Raises:
        OSError: this is not Linux, or groups are not to be seen.
    """
    limits = [limit for folder in _folders(own, root, "memory") if (limit := _memory_of(folder)) is not None]
    return min(limits, key=lambda limit: limit.free_bytes, default=None)


def cpu_quota(own: Path = OWN, root: Path = ROOT) -> float | None:
    """Return how many cores' time this process may use; ``None`` where nothing bounds it.

    Raises:
        OSError: as above.
    """
    return min(
        (quota for folder in _folders(own, root, "cpu") if (quota := _quota_of(folder)) is not None), default=None
    )


def _folders(own: Path, root: Path, controller: str) -> Iterator[Path]:
    """Yield the groups of this process that a controller may bound, from the innermost to the root's.

    In a container the paths may be those of the host, of which only the end is mounted: what is not there is left out.
    """
    seen: set[Path] = set()
    for line in own.read_text(encoding="utf-8").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        bases = [root / controllers, root / controller] if controllers else [root, root / "unified"]
        base = next((base for base in bases if base.is_dir()), None)
        if base is None:
            continue
        inside = [part for part in path.split("/") if part not in ("", "..")]
        for depth in range(len(inside), -1, -1):
            folder = base.joinpath(*inside[:depth])
            if folder not in seen and folder.is_dir():
                seen.add(folder)
                yield folder


def _memory_of(folder: Path) -> MemoryLimit | None:
    for limit_name, used_name, dropped_name in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        limit, used = _number(folder / limit_name), _number(folder / used_name)
        if limit is not None and used is not None and limit < UNLIMITED_BYTES:
            return MemoryLimit(limit, max(0, used - _statistic(folder / "memory.stat", dropped_name)), folder)
    return None


def _quota_of(folder: Path) -> float | None:
    words = _words(folder / "cpu.max")  # "200000 100000", or "max 100000"
    if not words:
        words = [*_words(folder / "cpu.cfs_quota_us"), *_words(folder / "cpu.cfs_period_us")]  # -1: no limit
    if len(words) != 2 or not all(word.isdigit() for word in words) or int(words[1]) == 0:
        return None
    return int(words[0]) / int(words[1])


def _words(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8").split()
    except OSError:
        return []


def _number(file: Path) -> int | None:
    words = _words(file)
    return int(words[0]) if words and words[0].isdigit() else None


def _statistic(file: Path, name: str) -> int:
    words = _words(file)
    return next((int(value) for key, value in zip(words[::2], words[1::2], strict=False) if key == name), 0)
