"""Which keywords a tokenizer is given: those it knows. Tokenizers themselves swallow anything."""

import inspect
from collections.abc import Mapping
from typing import Any

from trainauto.core.errors import InputError, Problem, nearest

OURS = {
    "padding": "every batch is padded to its longest text",
    "truncation": "texts are cut to max_input_token_length",
    "max_length": "it is called max_input_token_length here",
    "return_tensors": "batches hold torch tensors",
}
"""Keywords of a tokenizer that the loader sets itself, and to what."""

UNFIT = {
    "text": "the texts are given as texts",
    "text_pair": "each text is a row of its own",
    "text_target": "each text is a row of its own",
    "text_pair_target": "each text is a row of its own",
    "is_split_into_words": "each text is one string",
    "return_overflowing_tokens": "it makes several rows of one text",
    "return_offsets_mapping": "offsets are pairs, which have no padding",
    "return_length": "lengths are in the loader's dataset: `loader.dataset.lengths`",
    "tokenizer_kwargs": "give its keywords directly",
    "target_vram_usage": "it is an argument of `loader.map(function, target_vram_usage=...)`",
    "memory_budget": "it is an argument of `loader.map(function, memory_budget=...)`",
}
"""Keywords that have no meaning here, or one elsewhere."""

NOT_A_KEYWORD = {"self", "args", "kwargs"}


def check_tokenizer_arguments(arguments: Mapping[str, Any], known: Mapping[str, Any], own: set[str]) -> None:
    """Refuse keywords that are none of a tokenizer's, or that the loader sets itself.

    Args:
        arguments: what is to be forwarded.
        known: the tokenizer's, as :func:`tokenizer_keywords` returns them.
        own: keywords of the loader itself, for advice on a misspelt one.

    Raises:
        InputError: naming each of them.
    """
    problems = []
    for name in arguments:
        if name in OURS:
            problems.append(Problem(f"{name}: the loader sets it itself", advice=f"Leave it out: {OURS[name]}."))
        elif name in UNFIT:
            problems.append(Problem(f"{name}: not possible here", advice=f"Leave it out: {UNFIT[name]}."))
        elif name not in known:
            choices = {*known, *own} - OURS.keys() - UNFIT.keys()
            message = f"{name}: neither the loader nor the tokenizer knows this keyword"
            problems.append(Problem(message, advice=nearest(name, choices)))
    if problems:
        raise InputError(problems)


def tokenizer_keywords(tokenizer: object) -> Mapping[str, Any]:
    """Return the named parameters of a tokenizer's ``__call__``, those of its base class included."""
    names: dict[str, Any] = {}
    for kind in reversed(type(tokenizer).__mro__):
        if "__call__" in vars(kind):
            names |= inspect.signature(vars(kind)["__call__"]).parameters
    return {name: parameter for name, parameter in names.items() if name not in NOT_A_KEYWORD}
