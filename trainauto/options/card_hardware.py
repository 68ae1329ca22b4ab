"""What kernels ask of a card: compute capability and multiprocessors, as NVIDIA publishes them."""

import re

_CAPABILITIES = (
    (r"RTX \d{4} Ada|RTX 40\d\d|L4\b|L40S?\b", (8, 9)),
    (r"RTX 50\d\d|Blackwell", (12, 0)),
    (r"B200|GB200", (10, 0)),
    (r"B300|GB300", (10, 3)),
    (r"H100|H200|H800|H20\b|GH200", (9, 0)),
    (r"RTX 30\d\d|RTX A\d000|A10G?\b|A16\b|A40\b", (8, 6)),
    (r"A30\b|A100|A800", (8, 0)),
    (r"T4\b|TITAN RTX|Quadro RTX|RTX 20\d\d|GTX 16\d\d", (7, 5)),
    (r"V100|TITAN V", (7, 0)),
    (r"GTX 10\d\d|P40\b|P4\b|TITAN Xp?", (6, 1)),
    (r"P100", (6, 0)),
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
    model = re.search(r"(RTX \d{4}(?: Ti| SUPER| Laptop)*|[A-Z]+\d+S?)\b", name)
    return _MULTIPROCESSORS.get(model[1]) if model and "NVL" not in name else None
