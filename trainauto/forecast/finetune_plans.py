"""Which batches of conversations fit on which card, without one, for the option file of a fine-tuning."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainauto.builders.components import locate_errors
from trainauto.builders.finetune import SAMPLE
from trainauto.builders.finetune_automations import settings_of_controller
from trainauto.builders.finetune_data import build_finetune_data, processor_of
from trainauto.core.plan import BATCH_SIZE, Axis
from trainauto.core.words import counted, path_words
from trainauto.forecast.card_answer import CardPlans
from trainauto.forecast.step_plans import plan_steps
from trainauto.forecast.task import CardsRequest
from trainauto.options.finetune_options import FinetuneOptions, step_conversations
from trainauto.options.load import LoadedOptions
from trainauto.tasks.finetune.largest_conversation import LargestConversation, can_encode, picture_of_most_pixels
from trainauto.tasks.finetune.models import configuration_here, most_positions_of

logger = logging.getLogger(__name__)

Loaded = LoadedOptions[FinetuneOptions]

MOST_CONVERSATIONS = 512
"""Of a pass, that are looked at: models of some billion weights fit no more anywhere."""

LARGEST_TRACED = 16
"""Conversations of the largest pass that is traced at first: bytes follow their number in a line, and larger ones take
longer to follow."""

TRACE_TIMEOUT_S = 300.0
"""Of building a model of some ten billion weights and tracing it, on cores that others use."""


def plan_finetuning(loaded: Loaded, request: CardsRequest) -> CardPlans:
    """Trace the step of an option file and say what fits on each card. No weights are made, and nothing is downloaded.

    Args:
        loaded: the option file.
        request: the cards.

    Raises:
        InputError: the options cannot be used, the model's configuration is not here, or plans are to be measured.
        TraceError: the model cannot be traced.
    """
    options = loaded.options
    settings = settings_of_controller(loaded)
    largest = largest_conversation(loaded)
    return plan_steps(
        loaded,
        request,
        words_of(options),
        (conversations_axis(options, settings),),
        (settings or {}).get("target_vram_usage"),
        known={SAMPLE: largest.as_known()},
        timeout_s=TRACE_TIMEOUT_S,
        notes=(*notes_on(largest), *note_on_format(options)),
        most_samples=most_of_a_pass(options, settings),
        largest_traced=LARGEST_TRACED,
    )


def largest_conversation(loaded: Loaded) -> LargestConversation:
    """Return the largest conversation of a run: of its data where they and the processor are here, else made up.

    Raises:
        InputError: the model's configuration is not here, the data cannot be used, or nothing says how large pictures
            are.
    """
    options = loaded.options
    with locate_errors(loaded, ("model",)):
        config, folder = configuration_here(options.model.name)
    paths = options.dataset.path
    missing = [path for path in ([paths] if isinstance(paths, str) else paths) if not Path(path).expanduser().exists()]
    if can_encode(folder) and not missing:
        return _of_data(loaded, config, folder)
    with locate_errors(loaded, ("model",)):
        made = picture_of_most_pixels(config, folder, options.model.max_pixels, options.dataset.max_length)
    why = f"there is no {path_words(missing[0])}" if missing else f"{folder} has no processor and tokenizer"
    return LargestConversation(made.leaves, f"{made.origin}, since {why}")


def _of_data(loaded: Loaded, config: Any, folder: Path) -> LargestConversation:
    here = loaded.options.model.model_copy(update={"name": str(folder)})
    local = loaded.with_options(loaded.options.model_copy(update={"model": here}))
    data = build_finetune_data(local, processor_of(local), most_positions_of(config))
    count = counted(len(data.train), "conversation")
    return LargestConversation(
        data.collate([data.train[data.pictures.longest]]), f"the longest of the {count} of the data"
    )


def conversations_axis(options: FinetuneOptions, settings: Mapping[str, Any] | None) -> Axis:
    """Return what grows: the conversations of a pass, as far as there is memory."""
    most = most_of_a_pass(options, settings)
    why = f"the {counted(most, 'conversation')} of a step"
    if settings is None:
        why = "per_device_train_batch_size, since nothing steers batches"
    elif options.training.max_batch_size is not None:
        why = f"max_batch_size, {most}"
    return Axis(BATCH_SIZE, "samples", 1, max(MOST_CONVERSATIONS, most), capped_by=why)


def most_of_a_pass(options: FinetuneOptions, settings: Mapping[str, Any] | None) -> int:
    """Return the conversations that a run puts into a pass at most, whatever fits.

    Args:
        options: of the run.
        settings: of its controller; ``None`` where it is switched off.
    """
    training = options.training
    if settings is None:
        return training.per_device_train_batch_size
    return training.max_batch_size or step_conversations(training)


def trained_words(options: FinetuneOptions) -> str:
    """Return model and what is trained of it, in words."""
    lora = options.lora
    return f"{Path(options.model.name).name}, {f'LoRA r={lora.r}' if lora is not None else 'all weights'}"


def words_of(options: FinetuneOptions) -> str:
    """Return what is trained, and how, in words."""
    parts = [
        trained_words(options),
        *(["4 bits"] if options.model.load_in_4bit else []),
        *(["gradient checkpointing"] if options.memory.gradient_checkpointing else []),
    ]
    return ", ".join(parts)


def notes_on(largest: LargestConversation) -> tuple[str, ...]:
    """Say what plans go by, and what they cannot know."""
    shown = f"{counted(largest.tokens, 'token')}, {counted(largest.pictures, 'picture')}"
    return (
        f"Planned for conversations as large as the largest, {shown}: {largest.origin}.",
        "A pass that is smaller than a step runs several times; that changes what a step costs in time, not what it "
        "learns.",
    )


def note_on_format(options: FinetuneOptions) -> tuple[str, ...]:
    """Say in which format weights are taken to be kept, where no option does and a card might do otherwise."""
    if options.device != "cpu" or options.model.dtype is not None:
        return ()
    others = "weights that are not in 4 bits" if options.model.load_in_4bit else "weights"
    return (f"The file says device: cpu, and no dtype: {others} are taken to be kept as there, in float32.",)
