"""Batches of the loader as the shipped classifier admits them, each held against the rule; for text_batching.py."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from text_rivals import median_seconds, padded_tokens
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from trainauto import build_dynamic_batch_dataloader
from trainauto.data.packing import CandidateCounts, IntArray, SampleSizes, TokenCost, candidate_counts, pack_by
from trainauto.tasks.text.batch_features import BatchSizes
from trainauto.tasks.text.classified_counts import ClassifiedCounts
from trainauto.tasks.text.costs import RelativeCost
from trainauto.tasks.text.spike_classifier import shipped_classifier

LONGEST = 512
THRESHOLDS = (0.01, 0.025, 0.1)
BASES = (8, 16, 64)


@dataclass(frozen=True)
class ClassifiedRow:
    """What the loader plans with the classifier.

    Attributes:
        lengths: their distribution.
        base: texts of the first batch.
        threshold: probability with which an admitted batch may spike.
        batches: how many.
        larger: of them, those that hold more texts than the base.
        most_texts: of a batch.
        padded_tokens: tokens with padding.
        waste: share of them that is padding.
        seconds: that a plan takes, without tokenizing.
        relative_batches: how many the loader plans by its relative cost, the default, at the same threshold.
    """

    lengths: str
    base: int
    threshold: float
    batches: int
    larger: int
    most_texts: int
    padded_tokens: int
    waste: float
    seconds: float
    relative_batches: int


def distributions(texts: int) -> dict[str, IntArray]:
    """Return lengths in tokens: as those of texts often are (median 40), all as likely, and nearly equal."""
    drawn = np.random.default_rng(0)
    lognormal = np.clip(np.round(drawn.lognormal(np.log(40), 0.9, texts)), 1, LONGEST).astype(np.int64)
    return {
        "lognormal": lognormal,
        "uniform, 1 to 512": np.random.default_rng(1).integers(1, LONGEST + 1, texts),
        "nearly equal, 120 to 128": np.random.default_rng(3).integers(120, 129, texts),
    }


def classified_rows(texts: int, repeats: int) -> list[ClassifiedRow]:
    """Return a row for each distribution, base and threshold.

    Raises:
        RuntimeError: a batch is not what the rule says.
    """
    tokenizer = words_as_tokens()
    return [
        row
        for name, lengths in distributions(texts).items()
        for base in BASES
        for row in _rows_of(name, lengths, base, tokenizer, repeats)
    ]


def words_as_tokens() -> PreTrainedTokenizerFast:
    """Return a tokenizer by which a text has as many tokens as words."""
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]"}
    backend = Tokenizer(models.WordLevel({"[PAD]": 0, "[UNK]": 1, "a": 2}, unk_token=special["unk_token"]))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=backend, **special)


def _rows_of(
    name: str, lengths: IntArray, base: int, tokenizer: PreTrainedTokenizerFast, repeats: int
) -> Iterator[ClassifiedRow]:
    for threshold in THRESHOLDS:
        rule = rule_of(lengths, base, threshold)
        batches = [batch.tolist() for batch in pack_by(rule, SampleSizes(lengths)).batches()]
        check_rule(rule, lengths, batches)
        if threshold == max(THRESHOLDS) and batches != batches_of_loader(lengths, tokenizer, base, threshold):
            raise RuntimeError(f"{name}, {base} texts: the loader gives other batches")
        padded = padded_tokens(batches, lengths.tolist())
        counts = [len(batch) for batch in batches]
        yield ClassifiedRow(
            name,
            base,
            threshold,
            len(batches),
            sum(count > base for count in counts),
            max(counts),
            padded,
            1 - int(lengths.sum()) / padded,
            median_seconds(lambda rule=rule: pack_by(rule, SampleSizes(lengths)), repeats),  # type: ignore[misc]
            len(pack_by(relative_rule(lengths, base, threshold), SampleSizes(lengths))),
        )


def batches_of_loader(
    lengths: IntArray, tokenizer: PreTrainedTokenizerFast, base: int, threshold: float
) -> list[list[int]]:
    """Return what the loader plans of texts of these lengths."""
    texts = ["a " * length for length in lengths.tolist()]
    loader = build_dynamic_batch_dataloader(
        texts, tokenizer, base, LONGEST, threshold=threshold, num_workers=0, classifier="shipped"
    )
    return [list(batch) for batch in loader.batch_sampler]


def rule_of(lengths: IntArray, base: int, threshold: float) -> ClassifiedCounts:
    """Return the rule that the loader goes by with the classifier."""
    longest = np.sort(lengths)[::-1][:base]
    first = BatchSizes(np.array([base]), longest[:1], longest.sum(keepdims=True))
    counts = candidate_counts(base)
    return ClassifiedCounts(TokenCost(), 1, counts, base, shipped_classifier(), threshold, first, LONGEST)


def relative_rule(lengths: IntArray, base: int, threshold: float) -> CandidateCounts:
    """Return the rule that the loader goes by without a classifier."""
    cost = RelativeCost(threshold)
    first = int(cost.cost(np.array([base]), lengths.max(keepdims=True), np.zeros(1, np.int64))[0])
    return CandidateCounts(cost, int(first / cost.margin(threshold)), candidate_counts(base), base)


def check_rule(rule: ClassifiedCounts, lengths: IntArray, batches: Sequence[Sequence[int]]) -> None:
    """Hold every batch against the bound, candidate by candidate and without the rule's search.

    Raises:
        RuntimeError: texts are missing or in another order; the first batch has not the base size; what is admitted of
            the candidates is no prefix of them; or a batch is not the largest admitted, and the base where none is.
    """
    taken = [index for batch in batches for index in batch]
    ordered = lengths[taken]
    if sorted(taken) != list(range(len(lengths))) or (np.diff(ordered) > 0).any():
        raise RuntimeError("batches do not hold every text once, the longest first")
    place = 0
    for number, batch in enumerate(batches):
        left = len(ordered) - place
        tried = np.array(sorted({min(count, left) for count in rule.candidates}))
        tokens = np.cumsum(ordered[place : place + tried[-1]])[tried - 1]
        is_admitted = rule.admits(BatchSizes(tried, np.full_like(tried, ordered[place]), tokens))
        if (np.diff(is_admitted.astype(int)) > 0).any():
            raise RuntimeError(f"batch {number}: fewer texts are refused than are admitted")
        right = int(tried[is_admitted][-1]) if number and is_admitted.any() else min(rule.base, left)
        if len(batch) != right:
            raise RuntimeError(f"batch {number} has {len(batch)} texts; the rule says {right}")
        place += len(batch)
