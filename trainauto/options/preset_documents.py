"""What presets fill in for the controller, as tables of the reference of option files."""

from collections.abc import Iterator

from trainauto.core.units import MIB
from trainauto.options.cards import CARDS, CardPreset, cpu_preset

SECTION_TITLE = "Presets of the controller"
_BUDGETS_MIB = (64, 256, 1024, 4096, 16384, 65536)
"""Of the table for CPUs: examples, since every budget has its own row."""

_TEXT = """\
What an option file leaves open of `DynamicBatchSizeOptimizer` is filled in by the memory that the run has: on CUDA that
of the card, or `memory: budget` where that is less; on a CPU the budget. `python -m trainauto list cards` prints the
row of each card; a card that is not listed has that of its memory.

What the file says wins. Where a preset's value would contradict it, or the `lq_size` and `batch_size_per_gpu` that the
run begins with, the preset's value yields. The start of a run shows the bounds, training.log where each comes from.

`safety_margin` written alone, and not below the preset's target, would leave nothing to fill. The target is then raised
to halfway between the margin and 1, and a warning says so: write `target_vram_usage` beside it.

Bounds are walls that no run passes, however much memory is left: `DynamicBatchSizeOptimizer: {}` fills the memory only
as far as they allow."""

_CPU_TEXT = """\
Under a budget on a CPU a byte counts for 16 of a card, since networks that are trained there are small; minima are 8 px
and one sample. For very small networks these bounds end growth long before the memory does: with `{}` the quick start's
network stays at 4 crops of the 32 px its file begins with, 15 % of 64 MiB. Its file therefore writes `max_lq_size` and
`max_batch_size`, and so should yours where the log says that both are at their bounds."""

_HEADINGS = (
    "`target_vram_usage`",
    "`safety_margin`",
    "`min_batch_size`-`max_batch_size`",
    "`min_lq_size`-`max_lq_size`",
)


def preset_tables() -> Iterator[str]:
    """Yield the section on presets as lines of Markdown."""
    yield f"## {SECTION_TITLE}"
    yield ""
    yield from _TEXT.splitlines()
    yield ""
    yield from _table("card", ((f"{card.memory_gib:g} GiB", card) for card in _one_a_memory()))
    yield from _CPU_TEXT.splitlines()
    yield ""
    yield from _table("budget on a CPU", ((_size(mib), cpu_preset(mib * MIB)) for mib in _BUDGETS_MIB))


def _one_a_memory() -> list[CardPreset]:
    """Return a preset for each size of memory, smallest first: that is all it depends on."""
    by_memory = {card.memory_gib: card for card in reversed(CARDS)}
    return [by_memory[size] for size in sorted(by_memory)]


def _table(heading: str, rows: Iterator[tuple[str, CardPreset]]) -> Iterator[str]:
    yield f"| {' | '.join((heading, *_HEADINGS))} |"
    yield f"|{' --- |' * (len(_HEADINGS) + 1)}"
    for name, card in rows:
        batch, crop = (
            f"{card.min_batch_size}-{card.max_batch_size}",
            f"{card.min_lq_size}-{card.max_lq_size} px",
        )
        yield f"| {name} | {card.target_vram_usage:.2f} | {card.safety_margin:.2f} | {batch} | {crop} |"
    yield ""


def _size(mib: int) -> str:
    return f"{mib} MiB" if mib < 1024 else f"{mib // 1024} GiB"
