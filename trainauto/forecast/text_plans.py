"""Which batches of texts fit at which length on which card, without one, for the option file of a language model."""

from trainauto.builders.automations import controller_arguments, is_controller
from trainauto.builders.memory import GROWTH, MAX_TOKENS
from trainauto.core.plan import BATCH_SIZE, Axis, Plan
from trainauto.core.units import size_text
from trainauto.forecast.card_answer import CardPlans
from trainauto.forecast.card_plan import newest_of
from trainauto.forecast.step_plans import plan_steps
from trainauto.forecast.task import CardsRequest
from trainauto.memory.tracing.libraries import cublas_workspace_bytes
from trainauto.options.load import LoadedOptions
from trainauto.options.text_options import TextOptions, row_width

LENGTH = "length"
SHORTEST = 64
"""Tokens of the shortest rows that are planned for, where samples may be as long."""
MOST_ROWS = 4096


def plan_language_model(loaded: LoadedOptions[TextOptions], request: CardsRequest) -> CardPlans:
    """Trace the run of an option file and say what fits on each card. No weights are made, and no texts are read.

    Args:
        loaded: the option file.
        request: the cards.

    Raises:
        InputError: the options cannot be used, or plans are to be measured.
        TraceError: the model cannot be traced.
    """
    options = loaded.options
    return plan_steps(
        loaded,
        request,
        _words_of(options),
        planned_axes(options),
        (controller_arguments(options) or {}).get("target_vram_usage"),
        notes=notes_on(options, cublas_workspace_bytes(newest_of(request.cards).capability)),
        kept=kept_plan(options),
        most_tokens=most_tokens(options),
    )


def notes_on(options: TextOptions, workspace_bytes: int) -> tuple[str, ...]:
    """Say what lengths mean, what is held beside weights, and what a plan cannot know without reading the texts."""
    pairs = ", source and target together" if options.model.kind == "encoder_decoder" else ""
    row = row_width(options)
    most = most_tokens(options)
    first = _first_tokens(options)
    bound = (
        f"Without a controller a run stays at {first} tokens (tokens_per_batch, in whole rows)."
        if most is None
        else f"A run takes at most {most} tokens (max_tokens, else {GROWTH} times those it begins with), {first} to "
        "begin with (tokens_per_batch, in whole rows)."
    )
    unread = f"No text is read: rows are taken to be as long as they may be, {row} tokens"
    vocabulary = options.tokenizer.train
    if vocabulary is not None:
        unread += (
            f", and the tokenizer to come to {vocabulary.vocab_size} tokens (vocab_size). Few texts make a smaller "
            "one, whose embeddings hold less: `validate` reads them and says what the weights hold"
        )
    return (
        f"length: tokens of the longest sample of a batch{pairs}. A run counts its batches in tokens "
        "(tokens_per_batch): so many rows of the longest, or more that are shorter.",
        bound,
        f"{unread}.",
        f"What is held between steps counts {size_text(2 * workspace_bytes)} in that cuBLAS keeps on a card; "
        "a run on a CPU does not have them.",
    )


def most_tokens(options: TextOptions) -> int | None:
    """Return the most tokens of a batch that a controller of the file goes up to; ``None`` without a controller."""
    active = options.training_automations.active
    otherwise = GROWTH * _first_tokens(options)
    bounds = [switch.arguments.get(MAX_TOKENS) or otherwise for name, switch in active.items() if is_controller(name)]
    return min(bounds, default=None)


def kept_plan(options: TextOptions) -> Plan | None:
    """Return the plan of a run that no controller steers: rows as long as they may be, as many as it begins with."""
    return first_rows(options) if most_tokens(options) is None else None


def first_rows(options: TextOptions) -> Plan:
    """Return the plan that a run begins with, in rows as long as they may be."""
    row = row_width(options)
    return Plan.of(**{LENGTH: row, BATCH_SIZE: _first_tokens(options) // row})


def _first_tokens(options: TextOptions) -> int:
    """Return the tokens of the first batch, in whole rows."""
    row = row_width(options)
    return max(1, options.train.tokens_per_batch // row) * row


def _words_of(options: TextOptions) -> str:
    """Return the model in words."""
    model = options.model
    kind = str((model.config or {}).get("model_type", "")) or str(model.pretrained)
    return f"{kind}, LoRA r={model.lora.r}" if model.lora is not None else kind


def planned_axes(options: TextOptions) -> tuple[Axis, ...]:
    """Return what grows: rows become as long as samples may be, then more."""
    longest = row_width(options)
    shortest = longest if options.train.packed else min(SHORTEST, longest)
    multiple = shortest if longest % shortest == 0 else 1
    return (
        Axis(LENGTH, "tokens", shortest, longest, multiple, capped_by="max_length"),
        Axis(BATCH_SIZE, "samples", 1, MOST_ROWS),
    )
