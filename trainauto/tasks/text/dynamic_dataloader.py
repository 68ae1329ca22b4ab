"""dynabatch's function: texts, a tokenizer and the batch that surely fits in; a loader of growing batches out."""

import inspect
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from trainauto.core.errors import InputError, Problem
from trainauto.data.packing import (
    BatchCost,
    BatchOrder,
    CandidateCounts,
    LongestFirst,
    PackedBatchSampler,
    Packing,
    PaddedCost,
    SampleSizes,
    ShuffledBatches,
    UncertainCost,
    candidate_counts,
    check_monotone,
    padded_width,
)
from trainauto.tasks.text.costs import FORMS, RelativeCost
from trainauto.tasks.text.tokenizer_arguments import check_tokenizer_arguments, tokenizer_keywords

if TYPE_CHECKING:
    from trainauto.tasks.text.spike_classifier import SpikeClassifier
    from trainauto.tasks.text.text_dataloader import TextDataLoader
    from trainauto.tasks.text.tokenized_texts import TokenizedTexts


def build_dynamic_batch_dataloader(
    texts: Iterable[str],
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
    classifier: str | Path | None = None,
    order: BatchOrder | None = None,
    rank: int = 0,
    world_size: int = 1,
    pin_memory: bool = False,
    **tokenizer_kwargs: Any,
) -> "TextDataLoader":
    """Return a loader of texts whose batches hold the more of them the shorter they are.

    The first batch holds the ``batch_size`` longest. Each later one holds the largest of the candidates that are
    predicted to take no more memory than the first, or ``batch_size`` where none is. docs/texts.md says more.

    Args:
        texts: strings of any length.
        tokenizer: any tokenizer of Hugging Face's.
        batch_size: texts of the first, hardest batch: a number that surely fits.
        max_input_token_length: texts are cut to so many tokens.
        threshold: probability with which a batch may take more memory than the first. Costs that are exact, such as
            tokens, have no such probability.
        shuffle: give the batches in random order; texts within one stay of similar length.
        num_workers: processes that pad batches ahead; 0 pads in this process.
        batch_start_range: smallest candidate, in multiples of ``batch_size``.
        batch_end_range: largest candidate.
        steps: how many candidates lie evenly between them.
        shuffle_seed: decides the random order.
        shuffle_keep_first_n: so many batches of the longest texts come first all the same, so that what does not fit
            shows at once.
        friendly_batch_size: only 2^n and 3 * 2^n as candidates.
        cost: predicts what batches cost; by default one relative to the first batch, fitted to what others measured
            with ``generate`` on GPUs (docs/benchmarks/text_margins.md).
        classifier: admits batches in place of a cost: the path of a file that ``scripts/train_classifier.py`` wrote, or
            ``"shipped"`` for the one that is part of the package (docs/classifier.md).
        order: of the batches, in place of ``shuffle``: such as ``Bucketed()`` for training.
        rank: which of ``world_size`` processes this is; each gets as many batches.
        world_size: processes that share the texts.
        pin_memory: have batches in memory that is copied to a GPU faster.
        tokenizer_kwargs: what else the tokenizer's ``__call__`` names, and ``padding_side``, ``pad_to_multiple_of``.

    Raises:
        InputError: transformers is missing, or arguments cannot be used; each is named.
    """
    _check(batch_size, max_input_token_length, threshold, num_workers)
    if cost is not None and classifier is not None:
        raise InputError("give a cost or a classifier, not both: either says how large batches may be")
    _check_kinds(tokenizer, cost, order)
    admitting = None if classifier is None else _classifier(classifier)
    check_tokenizer_arguments(tokenizer_kwargs, tokenizer_keywords(tokenizer), OWN_KEYWORDS)
    candidates = candidate_counts(batch_size, batch_start_range, batch_end_range, steps, friendly=friendly_batch_size)
    from trainauto.tasks.text.text_dataloader import TextDataLoader
    from trainauto.tasks.text.tokenized_texts import tokenize

    tokenized = tokenize(texts, tokenizer, max_input_token_length, tokenizer_kwargs)
    # Beside a classifier, the cost is what measured peaks correct: as careful as asked for, as far as it can be.
    by_cost = threshold if admitting is None else max(threshold, min(FORMS))
    rule = _rule(cost or _relative_cost(by_cost), by_cost, tokenized, candidates, batch_size)
    if admitting is not None:
        rule = _classified(rule, admitting, threshold, tokenized, max_input_token_length)
    order = order or (ShuffledBatches(shuffle_keep_first_n) if shuffle else LongestFirst())
    sizes = SampleSizes(tokenized.lengths)
    sampler = PackedBatchSampler(sizes, rule, order, seed=shuffle_seed, rank=rank, world_size=world_size)
    if admitting is not None and rank == 0:
        _log_plan(rule, sizes, sampler.packed)
    return TextDataLoader(tokenized, rule, sampler, num_workers=num_workers, pin_memory=pin_memory)


def _check_kinds(tokenizer: object, cost: object, order: object) -> None:
    """Refuse what is none of what it should be, in words: its first use would be far from here."""
    problems = []
    if not hasattr(tokenizer, "pad_token_id"):
        advice = "Wrap one of the tokenizers library: PreTrainedTokenizerFast(tokenizer_object=...)."
        problems.append(Problem(f"tokenizer: no tokenizer of transformers but {_kind(tokenizer)}", advice=advice))
    if cost is not None and (isinstance(cost, type) or not hasattr(cost, "cost")):
        problems.append(Problem(f"cost: an object such as TokenCost() is needed, not {_kind(cost)}"))
    if order is not None and (isinstance(order, type) or not hasattr(order, "epoch")):
        problems.append(Problem(f"order: an object such as Bucketed() is needed, not {_kind(order)}"))
    if problems:
        raise InputError(problems)


def _kind(value: object) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__


def _rule(
    cost: BatchCost, threshold: float, texts: "TokenizedTexts", candidates: tuple[int, ...], batch_size: int
) -> CandidateCounts:
    """Return the rule by which no batch costs more than the first, with so much probability."""
    padded = PaddedCost(cost, texts.padding.multiple)
    try:
        check_monotone(padded, int(texts.lengths.max(initial=0)), candidates[-1])
    except ValueError as error:
        raise InputError(f"cost: {error}") from None
    longest = texts.lengths.max(initial=0, keepdims=True)
    first = int(padded.cost(np.array([batch_size]), longest, np.zeros(1, np.int64))[0])
    margin = cost.margin(threshold) if isinstance(cost, UncertainCost) else 1.0
    return CandidateCounts(padded, int(first / margin), candidates, batch_size)


def _classifier(path: str | Path) -> "SpikeClassifier":
    from trainauto.tasks.text.spike_classifier import SHIPPED, SpikeClassifier

    return SpikeClassifier.load(SHIPPED if path == "shipped" else path)


def _classified(
    rule: CandidateCounts, classifier: "SpikeClassifier", threshold: float, texts: "TokenizedTexts", most_tokens: int
) -> CandidateCounts:
    """Return the rule by which the classifier admits what is larger than the first batch."""
    from trainauto.tasks.text.batch_features import BatchSizes
    from trainauto.tasks.text.classified_counts import ClassifiedCounts

    multiple, longest = texts.padding.multiple, np.sort(texts.lengths)[::-1][: rule.base]
    samples, tokens = np.array([rule.base]), longest.sum(keepdims=True)
    first = BatchSizes(samples, padded_width(longest[:1], multiple), tokens) if len(longest) else None
    if first is None or len(longest) < rule.base:
        return rule  # all texts are the first batch
    return ClassifiedCounts(
        rule.cost, rule.bound, rule.candidates, rule.base, classifier, threshold, first, most_tokens, multiple
    )


def _log_plan(rule: CandidateCounts, sizes: SampleSizes, packing: Packing) -> None:
    from trainauto.tasks.text.classified_counts import ClassifiedCounts

    if isinstance(rule, ClassifiedCounts):
        rule.log(sizes, packing)


def _relative_cost(threshold: float) -> BatchCost:
    try:
        return RelativeCost(threshold)
    except ValueError as error:
        raise InputError(f"threshold: {error}") from None


def _check(batch_size: int, most_tokens: int, threshold: float, num_workers: int) -> None:
    least = {
        "batch_size": (batch_size, 1),
        "max_input_token_length": (most_tokens, 1),
        "num_workers": (num_workers, 0),
    }
    problems = [
        Problem(f"{name} must be a whole number, {limit} or more, got {value}")
        for name, (value, limit) in least.items()
        if not isinstance(value, int | np.integer) or value < limit
    ]
    if not 0 < threshold < 1:
        problems.append(Problem(f"threshold is a probability between 0 and 1, got {threshold}"))
    if problems:
        raise InputError(problems)
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
