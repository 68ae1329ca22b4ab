"""What ``python -m trainauto plan`` prints: the plan of each card, the largest batches, what was tried."""

from trainauto.commands.tables import aligned, beyond_text, most_text
from trainauto.core.plan import Plan, count_axis, size_axis
from trainauto.core.units import size_text
from trainauto.core.words import counted
from trainauto.forecast.benchmark_plans import DeviceBenchmark, PlanBenchmark
from trainauto.forecast.card_answer import FITTING, CardPlan, CardPlans, KeptPlan
from trainauto.forecast.loss_bytes import LossBytes
from trainauto.forecast.plan_memory import KINDS, Likely, PlanMemory
from trainauto.memory.tracing.holders import PeakHolders
from trainauto.memory.tracing.phases import BACKWARD, FORWARD, OPTIMIZER, OTHER, PHASES
from trainauto.reporting.formatting import IMAGE_SIZE, WIDTH, wrapped
from trainauto.reporting.step_stats import error_text

FITS = "fits: the largest batch that fits, even beyond the bounds of a run. "

MOST_HOLDERS = 10
PHASE_WORDS = {
    FORWARD: "forward pass",
    BACKWARD: "backward pass",
    OPTIMIZER: "optimizer's step",
    OTHER: "part after the backward pass",
}
MOST_CROPS = 8
"""Columns that fit beside the name of a card."""


def table(answer: CardPlans) -> str:
    """Return the answer in words, within 80 columns."""
    fits = ("fits",) if _fits_more(answer) else ()
    whole = "budget" if any(card.limit_bytes < card.memory_bytes for card in answer.cards) else "card"
    sizes = _SizeWords(answer)
    looked_at = _looked_at(answer) if fits else 0
    rows = [_row(card, sizes, looked_at) for card in answer.cards]
    headings = "expected", f"of {whole}", "99 % bound", "target"
    traced = counted(len(answer.forecast.traced), "size")
    lines = [
        *wrapped(f"{answer.name}: {answer.network}, {traced} followed in {answer.forecast.seconds:.1f} s", WIDTH, ""),
        f"weights, optimizer state and averages hold {size_text(answer.forecast.persistent_bytes)} between steps",
        *([losses_text(answer.losses)] if answer.losses is not None else []),
        *(wrapped(answer.bounded_by, WIDTH, "") if answer.bounded_by else []),
        "",
        *_kept(answer, sizes, whole),
        f"the plan that {_taker(answer)} would take: the 99 % bound is below the target",
        *aligned(("card", *sizes.headings, "batch", *fits, *sizes.token_headings, *headings), rows),
        *_explained(
            f"{sizes.explained}{_fits_words(answer) if fits else ''}"
            f"expected: likely peak memory of a step, and its share of the {whole}. "
            "99 % bound: the peak stays below it with a probability of 99 %. target: the memory that a run aims for."
        ),
        "",
        *_reasons(answer),
        *_frontiers(answer, sizes),
        *_marks(answer),
        *(_memory(answer.memory) if answer.memory else []),
        *(_tried(answer.trials) if answer.trials else []),
        *(line for note in answer.notes for line in wrapped(note, WIDTH, "  ")),
    ]
    return "\n".join(lines)


def _row(card: CardPlan, sizes: "_SizeWords", looked_at: int) -> tuple[str, ...]:
    """Return what a run would take on a card, and what fits of so many that were looked at; 0 has no such column."""
    if card.plan is None:
        batches = ("-", "-") if looked_at else ("-",)
        lacking = ("-", "-", "nothing fits", size_text(card.target_bytes))
        return (card.preset.name, *sizes.cells("-"), *batches, *sizes.tokens("-"), *lacking)
    fitting = (most_text(card.frontier[-1].batch_size, looked_at),) if looked_at else ()
    return (
        card.preset.name,
        *sizes.cells(card.plan),
        _batch(card, card.plan),
        *fitting,
        *sizes.tokens(card.plan),
        size_text(card.expected_bytes),
        f"{card.expected_bytes / card.limit_bytes:.0%}",
        size_text(card.most_bytes),
        size_text(card.target_bytes),
    )


def _memory(memory: PlanMemory) -> list[str]:
    """Return what a plan takes of its card, by kind of segments and by module."""
    kinds = [(kind, memory.reserved[kind]) for kind in KINDS]
    rows = [("allocated", *_likely(memory.allocated), "", "")]
    for kind, reserved in kinds:
        here = "out of memory" if reserved.on_card_bytes is None else size_text(reserved.on_card_bytes)
        here += ", flushes" if reserved.flushes else ""
        rows.append((f"reserved, {kind}", *_likely(reserved.unlimited), size_text(reserved.least.expected_bytes), here))
    peaks = memory.trace.phase_peaks_bytes
    phases = ", ".join(f"{PHASE_WORDS[phase]} {size_text(peaks[phase])}" for phase in PHASES if phase in peaks)
    held = memory.trace.held_at_peak
    return [
        *wrapped(
            f"memory of {_plan_words(memory.plan)}, with {size_text(memory.available_bytes)} available:", WIDTH, "  "
        ),
        *aligned(("", "expected", "99 % bound", "least", "on this card"), rows),
        *_explained(
            "allocated: blocks in use. reserved: what the allocator takes of a card with plenty of memory; least: of "
            "the smallest on which no step flushes the cache. native, expandable: segments, PYTORCH_ALLOC_CONF."
        ),
        *wrapped(f"peak by phase: {phases}", WIDTH, "  "),
        "",
        *(_held(memory.plan, held) if held else []),
    ]


def _likely(likely: Likely) -> tuple[str, str]:
    return size_text(likely.expected_bytes), size_text(likely.most_bytes)


def _plan_words(plan: Plan) -> str:
    unit = " px" if IMAGE_SIZE in plan else ""
    return f"batch {plan.batch_size}{'' if plan.size == 1 else f' x {plan.size}{unit}'}"


def _held(plan: Plan, held: PeakHolders) -> list[str]:
    """Return what is live at a plan's peak, the largest first."""
    rows = [
        (
            size_text(holder.size_bytes),
            holder.kind,
            holder.module + (f" x{holder.modules}" if holder.modules > 1 else ""),
        )
        for holder in held.holders[:MOST_HOLDERS]
    ]
    if rest := held.holders[MOST_HOLDERS:]:
        rows.append((size_text(sum(holder.size_bytes for holder in rest)), "all others", ""))
    kinds = max(len(kind) for _, kind, _ in rows)
    what = (
        f"what is live at the peak of {_plan_words(plan)}, in the {PHASE_WORDS[held.phase]}: "
        f"{size_text(held.peak_bytes)}"
    )
    lines = (f"{size_words:>10}  {kind:{kinds}}  {module}".rstrip() for size_words, kind, module in rows)
    return [*wrapped(what, WIDTH, "  "), *lines, ""]


def losses_text(losses: LossBytes) -> str:
    """Return by how much each loss raises the peak of the option file's own plan, the largest first."""
    plan = losses.plan
    largest_first = sorted(losses.added.items(), key=lambda item: -item[1])
    each = ", ".join(f"{name} +{size_text(added)}" for name, added in largest_first if added > 0)
    nothing = ", ".join(name for name, added in largest_first if added <= 0)
    at = f"each loss by itself adds at batch {plan.batch_size} x {plan.size} px:"
    words = "; ".join(part for part in (each, f"nothing to the peak: {nothing}" if nothing else "") if part)
    return "\n".join(wrapped(f"{at} {words}", WIDTH, "  "))


def _taker(answer: CardPlans) -> str:
    return "a controller" if any(card.kept for card in answer.cards) else "a run"


def _kept(answer: CardPlans, sizes: "_SizeWords", whole: str) -> list[str]:
    """Return a table of the option file's own plan, where a run stays with it."""
    rows = [_kept_row(card, card.kept, sizes) for card in answer.cards if card.kept is not None]
    if not rows:
        return []
    headings = "card", *sizes.headings, "batch", *sizes.token_headings, "expected", f"of {whole}", "99 % bound", "fits"
    return [
        "the file's own plan, which a run keeps: no controller is enabled",
        *aligned(headings, rows),
        *_explained(
            "fits: yes, with a probability of 99 %; likely, with less; no: its steps run in micro-batches, or not at "
            "all. DynamicBatchSizeOptimizer in the file enables a controller, whose plan is below: docs/memory.md."
        ),
        "",
    ]


def _kept_row(card: CardPlan, kept: KeptPlan, sizes: "_SizeWords") -> tuple[str, ...]:
    return (
        card.preset.name,
        *sizes.cells(kept.plan),
        str(kept.plan.batch_size),
        *sizes.tokens(kept.plan),
        size_text(kept.expected_bytes),
        f"{kept.expected_bytes / card.limit_bytes:.0%}",
        size_text(kept.most_bytes),
        FITTING[kept.fits],
    )


class _SizeWords:
    """What the size of samples is called, if they have one.

    Attributes:
        headings: of its column, if there is one.
        token_headings: of the column of a batch's tokens, where sizes are tokens.
        many: what the largest batch is listed by.
        explained: what the column means, where its name does not say.
        bound: what bounds batches.
    """

    def __init__(self, answer: CardPlans) -> None:
        axis = size_axis(answer.axes)
        self.headings = (axis.name,) if axis else ()
        self.token_headings = ("tokens",) if axis and axis.unit == "tokens" else ()
        self._unit = f" {axis.unit}" if axis and axis.unit else ""
        is_crop = axis is not None and axis.unit == "px"
        self.many = "crop" if is_crop else axis.name if axis else ""
        self.many += " in tokens" if self.token_headings else ""
        self.explained = "lq_size: side of a crop of the input. " if is_crop else ""
        most_tokens = next((card.most_tokens for card in answer.cards if card.most_tokens), None)
        count = count_axis(answer.axes)
        of_code = (count.capped_by if count else "") or "its bounds"
        self.bound = "max_batch_size" if is_crop else f"max_tokens, {most_tokens}" if most_tokens else of_code

    def cells(self, plan: Plan | str) -> tuple[str, ...]:
        """Return the cell of a plan in a row, or one in its place; none where there is no column."""
        return tuple(plan if isinstance(plan, str) else self.short(plan.size) for _ in self.headings)

    def short(self, size: int) -> str:
        """Return a size with its unit, where there is room for that."""
        return str(size) if self.token_headings else self.text(size)

    def tokens(self, plan: Plan | str) -> tuple[str, ...]:
        """Return the cell of a batch's tokens, or one in its place; none where there is no column."""
        return tuple(plan if isinstance(plan, str) else str(plan.batch_size * plan.size) for _ in self.token_headings)

    def text(self, size: int) -> str:
        """Return a size with its unit."""
        return f"{size}{self._unit}"


def _fits_more(answer: CardPlans) -> bool:
    """Say whether more samples than a run takes were looked at, where these have no size that a table of it has."""
    count = count_axis(answer.axes)
    return size_axis(answer.axes) is None and any(count and card.largest_batch < count.maximum for card in answer.cards)


def _looked_at(answer: CardPlans) -> int:
    """Return the largest batch that was looked at, whatever a run takes."""
    count = count_axis(answer.axes)
    return count.maximum if count else 1


def _fits_words(answer: CardPlans) -> str:
    """Return what the column of what fits means, and what marked batches in it are, if any is."""
    beyond = beyond_text((card.frontier[-1].batch_size for card in answer.cards if card.plan), _looked_at(answer))
    return f"{FITS}{beyond} " if beyond else FITS


def _reasons(answer: CardPlans) -> list[str]:
    """Return why nothing fits, where that is so."""
    reasons = [f"{card.preset.name}: {card.reason}" for card in answer.cards if card.plan is None]
    if not reasons:
        return []
    help_ = "To use less memory: smaller minimum sizes, gradient checkpointing, lower precision, a smaller network."
    return [*(line for text in [*reasons, help_] for line in wrapped(text, WIDTH, "  ")), ""]


def _frontiers(answer: CardPlans, sizes: _SizeWords) -> list[str]:
    """Return a table of the largest batch for some sizes."""
    if not sizes.headings:
        return []
    crops = sorted({plan.size for card in answer.cards for plan in card.frontier})
    some = [crop for crop in crops if crop % 32 == 0] or crops
    chosen = {card.plan.size for card in answer.cards if card.plan}.intersection(crops)
    spaced = some[:: max(1, -(-len(some) // 7))]
    some = sorted(list(dict.fromkeys([*chosen, *crops[-1:], *spaced]))[:MOST_CROPS])
    if not some:
        return []
    rows = []
    for card in answer.cards:
        largest = {plan.size: _batch(card, plan) for plan in card.frontier}
        rows.append((card.preset.name, *(largest.get(crop, "-") for crop in some)))
    return [
        f"largest batch by {sizes.many}, for the same target:",
        *aligned(("card", *map(sizes.short, some)), rows),
        "",
    ]


def _tried(trials: DeviceBenchmark) -> list[str]:
    """Return a table of what was tried, failures below it."""
    bound = f", which may use {size_text(trials.limit_bytes)}" if trials.limit_bytes is not None else ""
    rows = [
        (*_plan_cells(benchmark.plan), size_text(benchmark.predicted_bytes), *_measured_cells(benchmark))
        for benchmark in trials.plans
    ]
    failures = [f"{benchmark.plan}: {benchmark.failed}" for benchmark in trials.plans if benchmark.failed]
    headings = ("lq_size", "batch", "predicted", "measured", "off by", "s a step")
    return [
        *wrapped(f"tried on {trials.device}{bound}:", WIDTH, "  "),
        *aligned(headings, rows),
        *(line for failure in failures for line in wrapped(failure, WIDTH, "  ")),
        *_explained(
            "predicted, measured: peak memory of a step. off by: predicted minus measured, as a share of "
            "measured, or in MiB where that is little. s a step: seconds that a step took here, on random data."
        ),
        "",
    ]


def _explained(text: str) -> list[str]:
    """Return lines below a table, on what its columns mean."""
    return wrapped(text, WIDTH, "")


def _plan_cells(plan: Plan) -> tuple[str, str]:
    return f"{plan.size} px", str(plan.batch_size)


def _measured_cells(benchmark: PlanBenchmark) -> tuple[str, str, str]:
    if benchmark.failed:
        return "-", "-", "-"
    off_by = error_text(benchmark.predicted_bytes, benchmark.measured_bytes)
    return size_text(benchmark.measured_bytes), off_by, f"{benchmark.seconds:.2f}"


def _batch(card: CardPlan, plan: Plan) -> str:
    """Return the batch of a plan, marked where it is no memory that bounds it."""
    return f"{plan.batch_size}{'*' if card.is_bounded(plan) else ''}"


def _marks(answer: CardPlans) -> list[str]:
    marked = any(card.is_bounded(plan) for card in answer.cards for plan in card.frontier)
    return [f"* bounded by {_SizeWords(answer).bound}, not by memory", ""] if marked else []
