"""What fits of a fine-tuning by number format, gradient checkpointing and 4 bits, and what each of these costs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from trainauto.builders.finetune import SAMPLE
from trainauto.builders.finetune_automations import settings_of_controller
from trainauto.core.plan import BATCH_SIZE, Axis, Plan
from trainauto.core.units import GIB
from trainauto.core.worker_process import WorkerProcess, start_tracing
from trainauto.forecast.card_answer import CardPlan
from trainauto.forecast.card_plan import CardTarget, by_kernels, plan_on_card, what_is_unknown, within_budget
from trainauto.forecast.finetune_plans import (
    TRACE_TIMEOUT_S,
    Loaded,
    conversations_axis,
    largest_conversation,
    notes_on,
    trained_words,
)
from trainauto.forecast.trace_process import TraceProcess
from trainauto.memory.cost.memory_forecast import MemoryForecast
from trainauto.memory.cuda_allocator.segments import planned_segments
from trainauto.options.cards import CardPreset
from trainauto.options.finetune_options import FinetuneOptions

TRACED_BATCHES = (1, 8)
"""Conversations of the passes that are traced: bytes follow their number in a line."""


@dataclass(frozen=True)
class NumberFormat:
    """In which formats a step computes and weights lie.

    Attributes:
        name: in tables.
        overrides: items of ``--force_yml``.
        costs: what they cost, in words.
    """

    name: str
    overrides: tuple[str, ...]
    costs: str


FORMATS = (
    NumberFormat("float32", ("use_amp=false", "model:dtype=float32"), "exact; products take a card's slowest units"),
    NumberFormat(
        "mixed",
        ("use_amp=true", "model:dtype=float32"),
        "use_amp: true, weights in float32; products are rounded to 16 bits",
    ),
    NumberFormat(
        "bfloat16",
        ("use_amp=true", "model:dtype=bfloat16"),
        "use_amp: true, dtype: bfloat16; weights are rounded, too: harmless beside adapters, but where all weights "
        "learn, small steps vanish",
    ),
)


@dataclass(frozen=True)
class Recipe:
    """A way to train a model, of which memory is known before.

    Attributes:
        format: of numbers.
        checkpoints: blocks run again in the backward pass.
        four_bits: linear layers lie in 4 bits.
    """

    format: NumberFormat
    checkpoints: bool
    four_bits: bool

    @property
    def overrides(self) -> tuple[str, ...]:
        """Items of ``--force_yml`` that make a file this one."""
        return (
            *self.format.overrides,
            f"memory:gradient_checkpointing={str(self.checkpoints).lower()}",
            f"model:load_in_4bit={str(self.four_bits).lower()}",
        )


@dataclass(frozen=True)
class RecipePlans:
    """A recipe on some cards.

    Attributes:
        recipe: the recipe.
        forecast: of its steps.
        multiplications: of a pass with one conversation.
        cards: what fits on each.
    """

    recipe: Recipe
    forecast: MemoryForecast
    multiplications: int
    cards: tuple[CardPlan, ...]

    def expected_bytes(self, conversations: int) -> int:
        """Return the likely peak of a pass with so many conversations."""
        return int(self.forecast.live.bytes(conversations, 1))


@dataclass(frozen=True)
class AllRecipes:
    """What fits where, by recipe.

    Attributes:
        name: of the run.
        network: and what is trained of it, in words.
        notes: what plans go by, and what they do not know.
        recipes: without 4 bits first, by format.
        cards: names.
        seconds: of all traces.
    """

    name: str
    network: str
    notes: tuple[str, ...]
    recipes: tuple[RecipePlans, ...]
    cards: tuple[str, ...]
    seconds: float


def recipes_of(options: FinetuneOptions) -> list[Recipe]:
    """Return the recipes of a file: 4 bits among them where adapters are trained."""
    kept = (False, True) if options.lora is not None else (False,)
    return [Recipe(form, again, packed) for packed in kept for form in FORMATS for again in (False, True)]


def plan_recipes(loaded: Loaded, cards: Sequence[CardPreset], child: WorkerProcess | None = None) -> AllRecipes:
    """Trace a file's step under every recipe and say what fits on each card.

    Args:
        loaded: the option file; what it says of formats, checkpoints and 4 bits is left aside.
        cards: the cards.
        child: a process that traces as on CUDA, where one was started already.

    Raises:
        InputError: the options cannot be used, or the model's configuration is not here.
        TraceError: the model cannot be traced.
    """
    options = loaded.options
    settings = settings_of_controller(loaded)
    axes = (conversations_axis(options, settings),)
    chosen, bounded_by = within_budget(cards, options)
    targets = {
        preset.name: CardTarget(
            preset,
            int(card.memory_gib * GIB),
            (settings or {}).get("target_vram_usage") or preset.target_vram_usage,
            preset.safety_margin,
        )
        for card, preset in zip(cards, chosen, strict=True)
    }
    largest = largest_conversation(loaded)
    known = {SAMPLE: largest.as_known()}
    found = []
    with child if child is not None else start_tracing(like_cuda=True) as worker:
        for recipe in recipes_of(options):
            asked = [*loaded.overrides, *recipe.overrides]
            tracer = TraceProcess(
                loaded.path,
                asked,
                segments=planned_segments(),
                worker=worker,
                timeout_s=TRACE_TIMEOUT_S,
                known=known,
            )
            forecast, on_cards = by_kernels(chosen, tracer, partial(_planned, tracer, targets, axes))
            found.append(RecipePlans(recipe, forecast, forecast.traced[TRACED_BATCHES[0], 1].multiplications, on_cards))
    return AllRecipes(
        options.name,
        trained_words(options),
        (*([bounded_by] if bounded_by else []), *notes_on(largest), *what_is_unknown()),
        tuple(found),
        tuple(targets),
        sum(one.forecast.seconds for one in found),
    )


def _planned(
    tracer: TraceProcess,
    targets: Mapping[str, CardTarget],
    axes: tuple[Axis, ...],
    cards: Sequence[CardPreset],
    known: MemoryForecast | None,
) -> tuple[MemoryForecast, Sequence[CardPlan]]:
    if known is None:
        traced = {(batch, 1): tracer.trace(Plan.of(**{BATCH_SIZE: batch})) for batch in TRACED_BATCHES}
        known = MemoryForecast.of(traced, 1, sum(one.seconds for one in traced.values()), 1)
    first = Plan.of(**{BATCH_SIZE: 1})
    return known, [plan_on_card(targets[card.name], axes, first, known) for card in cards]
