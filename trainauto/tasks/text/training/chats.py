"""Chats as tokens: by the tokenizer's own template, and which of them are the assistant's words."""

from collections.abc import Sequence
from typing import Any

from trainauto.core.errors import InputError, Problem

ASSISTANT = "assistant"


def chat_tokens(tokenizer: Any, messages: Sequence[tuple[str, str]], place: str) -> tuple[list[int], list[bool]]:
    """Return the tokens of a chat, and which of them the assistant said.

    Those are what a template adds for a message of the assistant behind what it writes to ask for one. Most templates
    do not mark them (``{% generation %}``), so the chat is rendered up to each of its turns.

    Args:
        tokenizer: a fast one of transformers, with a chat template.
        messages: (role, words) in turns.
        place: of the chat, for messages.

    Raises:
        InputError: there is no template, or it refuses the chat, or it renders what was said otherwise later on.
    """
    if not tokenizer.is_fast:
        raise InputError(Problem("chats need a fast tokenizer", advice="Take one that transformers has in Rust."))
    if not tokenizer.chat_template:
        advice = "Take a tokenizer that has one (those of chat models), or write the samples as prompt and completion."
        raise InputError(Problem("the tokenizer has no chat template", advice=advice))
    turns = [{"role": role, "content": words} for role, words in messages]
    whole = _rendered(tokenizer, turns, place)
    spans = []
    for number, turn in enumerate(turns):
        if turn["role"] != ASSISTANT:
            continue
        start = _rendered(tokenizer, turns[:number], place, asks=True) if number else ""
        end = _rendered(tokenizer, turns[: number + 1], place)
        if not (whole.startswith(end) and end.startswith(start)):
            advice = "Write such chats as prompt and completion, a line for each answer that is to be learned."
            message = f"{place}: the chat template changes earlier turns, so that answer {number + 1} cannot be told"
            raise InputError(Problem(message, advice=advice))
        spans.append((len(start), len(end)))
    encoded = tokenizer(whole, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    said = [
        any(first <= start < last and end > start for first, last in spans) for start, end in encoded["offset_mapping"]
    ]
    return encoded["input_ids"], said


def _rendered(tokenizer: Any, turns: Sequence[dict[str, str]], place: str, *, asks: bool = False) -> str:
    try:
        text = tokenizer.apply_chat_template(list(turns), tokenize=False, add_generation_prompt=asks)
    except Exception as error:  # templates are programs: they raise what they like
        lines = str(error).strip().splitlines()
        what = lines[0] if lines else type(error).__name__
        raise InputError(f"{place}: the tokenizer's chat template refuses this chat: {what}") from error
    return str(text)
