"""Units of memory, and bytes as people read them."""

KIB = 2**10
MIB = 2**20
GIB = 2**30


def size_text(size_bytes: float, mib_decimals: int = 1) -> str:
    """Return a size in GiB with two decimals; below 1 GiB in MiB with ``mib_decimals``."""
    return f"{size_bytes / GIB:.2f} GiB" if size_bytes >= GIB else f"{size_bytes / MIB:.{mib_decimals}f} MiB"
