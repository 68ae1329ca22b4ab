"""What kernels ask of a card: compute capability and multiprocessors, as NVIDIA publishes them."""

import re

_CAPABILITIES = (
    (r"T4\b|TITAN RTX|Quadro RTX|RTX 20\d\d", (7, 5)),
    (r"V100", (7, 0)),
    (r"A30\b|A100", (8, 0)),
    (r"RTX 30\d\d|RTX A\d000|A10G?\b|A40\b", (8, 6)),
    (r"RTX 40\d\d|RTX 6000 Ada|L4\b|L40S?\b", (8, 9)),
    (r"H100|H200", (9, 0)),
    (r"B200", (10, 0)),
    (r"RTX 50\d\d|Blackwell", (12, 0)),
)
"""By a pattern of the model's name."""

_MULTIPROCESSORS = {
    "T4": 40, "RTX 2060": 30, "RTX 3060": 28, "RTX 3090": 82, "RTX 4090": 128, "L4": 58, "L40S": 142, "A100": 108,
    "H100": 132, "H200": 132, "B200": 148,
}  # fmt: skip


def capability_of(name: str) -> tuple[int, int] | None:
    """Return the compute capability of a card by its name, e.g. ``RTX 3060 12GB``; ``None`` where it is not known."""
    return next((capability for pattern, capability in _CAPABILITIES if re.search(pattern, name)), None)


def multiprocessors_of(name: str) -> int | None:
    """Return how many multiprocessors a card has by its name; ``None`` where that is not known."""
    return _MULTIPROCESSORS.get(re.sub(r" \d+(\.\d+)? ?G(i?)B$", "", name))
