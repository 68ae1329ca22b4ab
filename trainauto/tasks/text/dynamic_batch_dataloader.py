"""dynabatch's function: texts, a tokenizer and the batch that surely fits in; a loader of growing batches out."""

import inspect
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from trainauto.core.errors import InputError, Problem
from trainauto.data.packing import (
    BatchCost,
    CandidateCounts,
    LongestFirst,
    PackedBatchSampler,
    SampleSizes,
    ShuffledBatches,
    TokenCost,
    UncertainCost,
    candidate_counts,
)
from trainauto.tasks.text.padded_cost import PaddedCost
from trainauto.tasks.text.tokenizer_arguments import check_tokenizer_arguments, tokenizer_keywords

if TYPE_CHECKING:
    from trainauto.tasks.text.text_dataloader import TextDataLoader


def build_dynamic_batch_dataloader(
    texts: Sequence[str],
    tokenizer: Any,
    batch_size: int,
    max_input_token_length: int,
    threshold: float = 0.025,
    shuffle: bool = False,
    num_workers: int = 4,
    batch_start_range: float = 1.0,
    batch_end_range: float = 6.0,
    steps: int = 50,
    *,
    shuffle_seed: int = 21,
    shuffle_keep_first_n: int = 3,
    friendly_batch_size: bool = False,
    cost: BatchCost | None = None,
    pin_memory: bool = False,
    rank: int = 0,
    world_size: int = 1,
    **tokenizer_kwargs: Any,
) -> "TextDataLoader":
    """Return a loader of texts whose batches hold more of them the shorter they are.

    The first batch holds the ``batch_size`` longest texts. Every later one holds as many as are predicted to take no
    more memory than the first, out of ``steps`` candidates between ``batch_start_range`` and ``batch_end_range`` times
    ``batch_size``; where no candidate is admitted, ``batch_size``.

    Args:
        texts: strings of any length.
        tokenizer: any tokenizer of Hugging Face's.
        batch_size: texts of the first, hardest batch; one that surely fits.
        max_input_token_length: texts are cut to so many tokens.
        threshold: probability with which a batch may take more memory than the first. A cost that is exact, such as the
            number of tokens, has no such probability.
        shuffle: give the batches in random order; texts within one stay of similar length.
        num_workers: processes that pad batches ahead; 0 pads in this process.
        batch_start_range: smallest candidate, in multiples of ``batch_size``.
        batch_end_range: largest candidate.
        steps: number of candidates.
        shuffle_seed: decides the random order.
        shuffle_keep_first_n: so many of the batches of the longest texts come first all the same, so that what does not
            fit shows at once.
        friendly_batch_size: only 2^n and 3 * 2^n as candidates.
        cost: predicts what batches cost.
        pin_memory: have batches in memory that is copied to a GPU faster.
        rank: which of ``world_size`` processes this is; each gets as many batches.
        world_size: processes that share the texts.
        tokenizer_kwargs: keywords that the tokenizer's ``__call__`` names, and ``padding_side``,
            ``pad_to_multiple_of``.

    Raises:
        InputError: transformers is missing, or an argument cannot be used; each is named.
    """
    _check(batch_size, max_input_token_length, threshold, num_workers)
    _require_transformers()
    check_tokenizer_arguments(tokenizer_kwargs, tokenizer_keywords(tokenizer), OWN_KEYWORDS)
    from trainauto.tasks.text.text_dataloader import TextDataLoader
    from trainauto.tasks.text.tokenized_texts import tokenize

    candidates = candidate_counts(batch_size, batch_start_range, batch_end_range, steps, friendly=friendly_batch_size)
    tokenized = tokenize(texts, tokenizer, max_input_token_length, tokenizer_kwargs)
    cost = cost or TokenCost()
    margin = cost.margin(threshold) if isinstance(cost, UncertainCost) else 1.0
    padded = PaddedCost(cost, tokenized.padding.multiple)
    longest = tokenized.lengths.max(initial=0, keepdims=True)
    first = int(padded.cost(np.array([batch_size]), longest, np.zeros(1, np.int64))[0])
    rule = CandidateCounts(padded, int(first / margin), candidates, batch_size)
    order = ShuffledBatches(shuffle_keep_first_n) if shuffle else LongestFirst()
    sampler = PackedBatchSampler(
        SampleSizes(tokenized.lengths), rule, order, seed=shuffle_seed, rank=rank, world_size=world_size
    )
    return TextDataLoader(tokenized, rule, sampler, num_workers=num_workers, pin_memory=pin_memory)


def _check(batch_size: int, most_tokens: int, threshold: float, num_workers: int) -> None:
    problems = [
        Problem(f"{name} must be {least} or more, got {value}")
        for name, value, least in (
            ("batch_size", batch_size, 1),
            ("max_input_token_length", most_tokens, 1),
            ("num_workers", num_workers, 0),
        )
        if value < least
    ]
    if not 0 < threshold < 1:
        problems.append(Problem(f"threshold is a probability between 0 and 1, got {threshold}"))
    if problems:
        raise InputError(problems)


def _require_transformers() -> None:
    if find_spec("transformers") is None:
        raise InputError(
            Problem(
                "batches of texts need transformers, which is not installed",
                advice="Install the extra: pip install 'trainauto[huggingface]'.",
            )
        )


OWN_KEYWORDS = {
    name
    for name, parameter in inspect.signature(build_dynamic_batch_dataloader).parameters.items()
    if parameter.kind is not inspect.Parameter.VAR_KEYWORD
}
