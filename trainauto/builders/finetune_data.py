"""The conversations of a fine-tuning run, looked through and ready to be drawn, from options."""

import logging
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from trainauto.builders.components import locate_errors
from trainauto.builders.finetune_words import Pair
from trainauto.core.errors import InputError, Problem
from trainauto.core.shuffling import shuffled_order
from trainauto.core.words import counted
from trainauto.options.finetune_options import FinetuneOptions
from trainauto.options.load import LoadedOptions
from trainauto.tasks.finetune.conversation_files import read_conversations
from trainauto.tasks.finetune.conversation_samples import ConversationSamples
from trainauto.tasks.finetune.conversations import Conversation
from trainauto.tasks.finetune.datasets import ConversationCollator, ConversationDataset
from trainauto.tasks.finetune.encoding import ConversationEncoder, Encoded
from trainauto.tasks.finetune.pictures import Pictures
from trainauto.tasks.finetune.preflight import LookedThrough, look_through
from trainauto.tasks.finetune.processors import limit_pixels, load_processor
from trainauto.tasks.text.training.marks import marks_of, say_marks

logger = logging.getLogger(__name__)

Loaded = LoadedOptions[FinetuneOptions]

NAMED = 3
"""Places that are named of conversations that were left out or cut."""


@dataclass(frozen=True)
class FinetuneData:
    """What a run learns from.

    Attributes:
        train: conversations to learn from.
        val: to measure on; ``None`` for none.
        collate: makes batches of either.
        looked_through: what the start says, by the name of the set.
        pictures: of the conversations to learn from.
    """

    train: ConversationDataset
    val: ConversationDataset | None
    collate: ConversationCollator
    looked_through: dict[str, LookedThrough]
    pictures: Pictures

    def facts(self) -> list[Pair]:
        """Return lines of the start."""
        pairs = []
        for name, looked in self.looked_through.items():
            pictures = sum(len(conversation.images) for conversation in looked.conversations)
            longest, mean = int(looked.lengths.max()), float(looked.lengths.mean())
            said = f"{counted(len(looked.lengths), 'conversation')}, {counted(pictures, 'picture')}"
            pairs.append((name, f"{said}; {mean:.0f} tokens on average, {longest} at most"))
            for words, places in (("left out", looked.dropped), ("cut", looked.cut)):
                if places:
                    named = ", ".join(places[:NAMED]) + (", ..." if len(places) > NAMED else "")
                    pairs.append(("", f"{len(places)} {words}, which were too long: {named}"))
        return pairs


def processor_of(loaded: Loaded) -> Any:
    """Return the processor of the option file's model.

    Raises:
        InputError: there is none, or it cannot be used as the file says.
    """
    model = loaded.options.model
    template = template_file(loaded, model.chat_template) if model.chat_template is not None else None
    with locate_errors(loaded, ("model",)):
        return load_processor(model.name, max_pixels=model.max_pixels, chat_template=template)


def template_file(loaded: LoadedOptions[Any], written: str) -> Path:
    """Return where the chat template of an option file lies: relative to the option file."""
    return (loaded.folder or loaded.path.parent) / written


def build_finetune_data(loaded: Loaded, processor: Any, most_tokens: int | None) -> FinetuneData:
    """Read the conversations of an option file and look through them.

    Args:
        loaded: the option file.
        processor: of the model.
        most_tokens: that the model takes.

    Raises:
        InputError: some cannot be used: it names file and line.
    """
    with locate_errors(loaded, ("model",)):
        encoder = ConversationEncoder(processor)
    chosen = loaded.options.dataset
    limit = _limit(loaded, most_tokens)
    sets = conversation_sets(loaded)
    with locate_errors(loaded, ("dataset",)):
        looked = {name: look_through(some, encoder, limit, chosen.too_long) for name, some in sets.items()}
    train, val = ConversationDataset(looked["train"].conversations, encoder, looked["train"].lengths), None
    if "val" in looked:
        val = ConversationDataset(looked["val"].conversations, encoder)
    everything = chain.from_iterable(some.conversations for some in looked.values())
    samples = ConversationSamples(padding_id(processor), processor.tokenizer.padding_side)
    for name, some in looked.items():
        texts = ((one.place, turn.text) for one in some.conversations for turn in one.turns)
        say_marks(texts, marks_of(processor.tokenizer), f"conversations of '{name}'")
    if not encoder.ends_answers(train[0]):
        logger.warning("the chat template ends answers with no mark: the model does not learn where to stop")
    collate = ConversationCollator(samples, encoded_with_pictures(everything, encoder), longest_first=True)
    pictures = Pictures(encoder, looked["train"], _fewest_pixels(loaded, processor))
    return FinetuneData(train, val, collate, looked, pictures)


def _fewest_pixels(loaded: Loaded, processor: Any) -> int | None:
    """Return how small pictures may become; ``None`` where they may not.

    Raises:
        InputError: the processor makes none so small.
    """
    fewest = loaded.options.memory.shrink_pictures_to
    if fewest is not None:
        tried = copy(processor)
        tried.image_processor = copy(processor.image_processor)
        with locate_errors(loaded, ("memory",)):
            limit_pixels(tried, fewest, argument="shrink_pictures_to")
    return fewest


def conversation_sets(loaded: Loaded) -> dict[str, list[Conversation]]:
    """Return the conversations of an option file: ``train``, and ``val`` where some are set aside.

    Raises:
        InputError: some cannot be read: it names file and line.
    """
    chosen = loaded.options.dataset
    with locate_errors(loaded, ("dataset",)):
        conversations = read_conversations(chosen.path, set_name="train", prompt=chosen.prompt)
        if chosen.val is not None:
            aside = read_conversations(chosen.val, set_name="val", prompt=chosen.prompt, argument="val")
            return {"train": conversations, "val": aside}
        if chosen.val_share is not None:
            return _set_aside(conversations, chosen.val_share, loaded.options.manual_seed)
    return {"train": conversations}


def _limit(loaded: Loaded, most_tokens: int | None) -> int | None:
    written = loaded.options.dataset.max_length
    if written is not None and most_tokens is not None and written > most_tokens:
        with locate_errors(loaded, ("dataset", "max_length")):
            message = f"conversations of {written} tokens are longer than the {most_tokens} that the model takes"
            raise InputError(Problem(message, advice=f"Write {most_tokens} at most, or leave it out."))
    return written if written is not None else most_tokens


def _set_aside(conversations: Sequence[Conversation], share: float, seed: int) -> dict[str, list[Conversation]]:
    """Divide conversations into those that are learned and those that are measured on; both keep their order."""
    count = max(1, round(share * len(conversations)))
    if count >= len(conversations):
        advice = "Add conversations, or name a set of its own (val)."
        raise InputError(
            Problem(f"a share of {share:g} of {len(conversations)} leaves none to learn from", advice=advice)
        )
    aside = np.zeros(len(conversations), np.bool_)
    aside[shuffled_order(len(conversations), seed, 0)[:count]] = True
    return {
        name: [conversation for conversation, is_aside in zip(conversations, aside, strict=True) if is_aside == wanted]
        for name, wanted in (("train", False), ("val", True))
    }


def padding_id(processor: Any) -> int:
    """Return the token that rows are padded with."""
    tokenizer = processor.tokenizer
    for token in (tokenizer.pad_token_id, tokenizer.eos_token_id):
        if token is not None:
            return int(token)
    return 0


def encoded_with_pictures(conversations: Iterable[Conversation], encoder: ConversationEncoder) -> Encoded | None:
    """Return an encoded conversation that has pictures; ``None`` where none has."""
    first = next((conversation for conversation in conversations if conversation.images), None)
    return encoder.encode(first) if first is not None else None
