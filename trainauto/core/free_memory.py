"""How much memory this machine, or the container it runs in, can still give away."""

from contextlib import suppress
from pathlib import Path

from trainauto.core.cgroup import tightest_memory_limit

MEMORY_FACTS = Path("/proc/meminfo")


def free_memory_bytes() -> int | None:
    """Return what the machine and the control group both leave; ``None`` where neither says (not Linux)."""
    sizes = [_of_machine()]
    with suppress(OSError):  # no groups are to be seen
        limit = tightest_memory_limit()
        sizes.append(limit.free_bytes if limit is not None else None)
    return min((size for size in sizes if size is not None), default=None)


def _of_machine() -> int | None:
    if not MEMORY_FACTS.exists():
        return None
    lines = MEMORY_FACTS.read_text(encoding="ascii", errors="replace").splitlines()
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)
