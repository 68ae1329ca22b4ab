"""What suits so much memory: a target and bounds for the search of plans, from GiB alone.

One source documents three cards (traiNNer-redux, "Enhanced Dynamic VRAM Management"):

| card | target | margin | crop, px of the low-quality image | batch |
|---|---|---|---|---|
| RTX 3080 10 GB | 0.80 | 0.05 | 32-192 | 2-32 |
| RTX 3060 12 GB | 0.85 | 0.05 | 32-256 | 2-64 |
| RTX 4090 24 GB | 0.90 | 0.05 | 64-512 | 4-128 |

The rule below gives exactly these rows at 10, 12 and 24 GiB, and one for any other memory. Memory is the only thing it
knows; which plan really fits is measured in the run, and these are the walls it is measured between.
"""

import math
import re
from dataclasses import dataclass, replace

DOCUMENTED = "documented: traiNNer-redux, Enhanced Dynamic VRAM Management"
COMPUTED = "computed from the memory"

SAFETY_MARGIN = 0.05
"""Width of the band below the target that is left alone; the same on all three documented cards."""

CARD_FIXED_GIB = 1.5
"""What a card holds beside tensors: CUDA context, kernels, a desktop. With `_LOST_SHARE` it explains all targets."""

_CPU_FIXED_GIB = 24 / 1024
"""By what a process's memory grew over 24 changes of shape on the CPU, with a calm allocator: 22 MB, measured."""

_CPU_BYTE_COUNTS = 16
"""How many bytes of a card one byte of a CPU budget counts for; `cpu_preset` says why."""

_LOST_SHARE = 1 / 24
"""What the caching allocator reserves and cannot hand out, as a share of the memory: blocks of unfit sizes."""

_REFERENCE_GIB = 12
"""The card the other bounds are measured by: 32-256 px, 2-64 samples."""


@dataclass(frozen=True)
class CardPreset:
    """Where the search of plans begins on a card, or under a memory budget.

    Attributes:
        name: the card and its memory, e.g. ``RTX 3060 12GB``.
        memory_gib: nominal memory, binary: what is sold as "12 GB" is 12 GiB, of which drivers report a little less.
        target_vram_usage: share of the memory that peak use may reach.
        safety_margin: width of the band below the target in which nothing is changed, as a share of the memory.
        min_batch_size: fewest samples of a step.
        max_batch_size: most samples of a step.
        min_lq_size: smallest crop, px of the low-quality image.
        max_lq_size: largest crop, px of the low-quality image.
        rule: where the numbers come from: `DOCUMENTED`, or computed and from what.
    """

    name: str
    memory_gib: float
    target_vram_usage: float
    safety_margin: float
    min_batch_size: int
    max_batch_size: int
    min_lq_size: int
    max_lq_size: int
    rule: str

    @property
    def capability(self) -> tuple[int, int] | None:
        """Compute capability; ``None`` where the card is not known by its name."""
        return capability_of(self.name)

    @property
    def multiprocessors(self) -> int | None:
        """How many multiprocessors it has; ``None`` where that is not known."""
        return multiprocessors_of(self.name)


def preset_for(name: str, memory_gib: float, rule: str = COMPUTED) -> CardPreset:
    """Return the preset of a card by its memory alone.

    Bounds grow in proportion to memory, as the documented ones do. Maxima are rounded down, so that a card is never
    promised more than a larger one; minima go to the nearest power of two. They end at 1024 px (a 4K photograph
    has 960 at x4) and 256 samples (more gain little), and begin at 8 px and one sample. Minima end at 64 px and 4
    samples, the source's largest: they are floors under pressure, and a large card under pressure needs low ones too.

    Args:
        name: how to call it.
        memory_gib: its nominal memory, GiB, above 0.
        rule: where the numbers come from.
    """
    scale = memory_gib / _REFERENCE_GIB
    return CardPreset(
        name=name,
        memory_gib=memory_gib,
        target_vram_usage=target_share(memory_gib, CARD_FIXED_GIB),
        safety_margin=SAFETY_MARGIN,
        min_batch_size=_clamped(_nearest_power(2 * scale), 1, 4),
        max_batch_size=_clamped(_power_below(64 * scale), 1, 256),
        min_lq_size=_clamped(_nearest_power(32 * scale), 8, 64),
        max_lq_size=_clamped(_friendly_below(256 * scale), 8, 1024),
        rule=rule,
    )


def cpu_preset(budget_bytes: int) -> CardPreset:
    """Return the preset of a CPU under a memory budget.

    There is no context to hold, and the budget counts only what training adds to the process. A byte counts for
    sixteen of a card, since networks trained on a CPU are small: at 100 MiB the largest plan is then 8 crops of 32 px,
    12.8 KB a pixel. A compact network of 64 channels and 16 layers keeps 8.7 KB of activations for each, one of 8
    channels and one layer 0.14 KB, SPAN with 48 channels 30 KB. Minima are 8 px and one sample for any budget: a budget
    is the person's choice, and a small plan that runs is better than none.

    Args:
        budget_bytes: what training may add to the process, bytes.

    Raises:
        ValueError: ``budget_bytes`` is not above 0.
    """
    _require_memory(budget_bytes)
    gib = budget_bytes / 2**30
    return replace(
        preset_for(f"CPU {budget_bytes / 2**20:.0f}MiB", _CPU_BYTE_COUNTS * gib),
        memory_gib=gib,
        target_vram_usage=target_share(gib, _CPU_FIXED_GIB),
        min_batch_size=1,
        min_lq_size=8,
        rule="computed from the budget",
    )


def target_share(memory_gib: float, fixed_gib: float) -> float:
    """Return the share of the memory that peak use may reach: what overheads leave, to the nearest 0.05.

    It rises with memory, for the fixed overhead shrinks as a share. It never goes below 0.5, where a run is better off
    with a real failure than with half of its memory unused.

    Args:
        memory_gib: the memory, GiB, above 0.
        fixed_gib: overhead that does not grow with the memory, GiB.
    """
    twentieths = 20 * (1 - fixed_gib / memory_gib - _LOST_SHARE)
    return max(10, round(twentieths)) / 20


def nominal_gib(memory_bytes: int) -> int:
    """Return the memory a card was sold with, by what its driver reports: the next whole GiB.

    Raises:
        ValueError: ``memory_bytes`` is not above 0.
    """
    _require_memory(memory_bytes)
    return math.ceil(memory_bytes / 2**30)


def _power_below(value: float) -> float:
    return float(2.0 ** math.floor(math.log2(value)))


def _nearest_power(value: float) -> float:
    return float(2.0 ** round(math.log2(value)))


def _friendly_below(value: float) -> float:
    """Return the largest 2^n or 3 * 2^n, of those that 8 divides, not above ``value``; below 8 it returns less."""
    power = _power_below(value)
    return 1.5 * power if 1.5 * power <= value and power >= 16 else power


def _clamped(value: float, low: int, high: int) -> int:
    return int(min(max(value, low), high))


def _require_memory(memory_bytes: int) -> None:
    if memory_bytes <= 0:
        raise ValueError(f"memory of {memory_bytes} bytes; it must be above 0")


HAS_BFLOAT16 = (8, 0)
"""Compute capability from which cards compute in bfloat16; earlier ones do so by way of float32, slowly."""

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
