"""Texts as a workload: divided, joined, weighed by what is learned (B05, B07)."""

from typing import Any

import numpy as np
import pytest
import torch

from tests.language_models import causal_samples, pair_samples
from trainauto.core.plan import BatchShape
from trainauto.core.workload import split
from trainauto.tasks.text.training.row_layouts import PackedRows, PaddedRows
from trainauto.tasks.text.training.text_dataset import TextDataset
from trainauto.tasks.text.training.token_samples import TokenSamples
from trainauto.tasks.text.training.tokenized_samples import NOT_LEARNED

LENGTHS = [5, 9, 2, 7, 7, 3]
TARGETS = [3, 1, 4, 6, 2, 2]


def datasets() -> list[TextDataset]:
    texts = causal_samples(LENGTHS, unlearned=2)
    pairs = TextDataset("pairs", pair_samples(LENGTHS, TARGETS), "encoder_decoder")
    return [TextDataset("padded", texts), TextDataset("packed", texts, row_length=12), pairs]


def same(left: Any, right: Any) -> bool:
    return left.keys() == right.keys() and all(np.array_equal(left[name], right[name]) for name in left)


@pytest.mark.parametrize("dataset", datasets(), ids=lambda dataset: dataset.name)
@pytest.mark.parametrize("largest", [1, 2, 4])
def test_parts_hold_their_samples_and_joined_they_are_the_whole(dataset: TextDataset, largest: int) -> None:
    whole, workload = dataset.batch(range(6)), dataset.workload
    parts = [part for _, part in split(workload, whole, 6, largest)]
    assert same(workload.join(parts), whole)
    assert sum(workload.weight(part) for part in parts) == workload.weight(whole)
    assert sum(workload.shape(part).samples for part in parts) == 6
    assert same(parts[0], dataset.batch(range(workload.shape(parts[0]).samples)))


def test_weights_are_the_tokens_that_are_learned() -> None:
    padded, _, pairs = datasets()
    assert padded.workload.weight(padded.batch([0, 1, 2])) == 3 + 7 + 0
    assert pairs.workload.weight(pairs.batch([0, 1])) == 3 + 1


def test_shapes_count_padding_and_units_do_not() -> None:
    padded, packed, pairs = datasets()
    assert padded.workload.shape(padded.batch([0, 1])) == BatchShape(2, 9, tokens=18)
    assert packed.workload.shape(packed.batch([0, 1, 2])) == BatchShape(3, 9, tokens=18)
    assert pairs.workload.shape(pairs.batch([0, 1])).tokens == 2 * 9 + 2 * 3
    assert [d.workload.units(d.batch([0, 1])) for d in (padded, packed, pairs)] == [14, 14, 18]


def test_the_size_of_pairs_bounds_what_is_padded() -> None:
    numbers = np.random.default_rng(1)
    pairs = TextDataset("p", pair_samples(numbers.integers(1, 90, 60), numbers.integers(1, 20, 60)), "encoder_decoder")
    for _ in range(50):
        some = numbers.choice(60, 7, replace=False).tolist()
        shape = pairs.workload.shape(pairs.batch(some))
        assert shape.tokens <= shape.samples * shape.extent
    largest = pairs.workload.largest(5 * pairs.row_tokens)
    assert pairs.workload.shape(largest) == BatchShape(5, pairs.row_tokens, tokens=5 * pairs.row_tokens)


@pytest.mark.parametrize("dataset", datasets(), ids=lambda dataset: dataset.name)
def test_cut_samples_are_the_beginnings(dataset: TextDataset) -> None:
    whole, workload = dataset.batch(range(6)), dataset.workload
    cut = workload.shrink(whole, workload.shape(whole).extent, 6)
    assert workload.shape(cut).extent <= 6
    limits = {"input_ids": 6, "labels": 6} if workload.kind == "causal" else {"input_ids": 3, "labels": 2}
    for name, lengths in (("input_ids", "lengths"), ("labels", "label_lengths")):
        rows = torch.split(whole[name], whole[lengths].tolist())
        assert torch.equal(cut[name], torch.cat([row[: limits[name]] for row in rows]))
    learned = [int((row != NOT_LEARNED).sum()) for row in torch.split(cut["labels"], cut["label_lengths"].tolist())]
    assert cut["learned"].tolist() == learned


def test_the_largest_packed_batch_has_full_rows_of_several_texts() -> None:
    workload = TokenSamples("causal", PackedRows(13), 10)
    batch = workload.largest(3 * 13)
    assert workload.shape(batch) == BatchShape(6, 7, tokens=39)
    assert workload.units(batch) == 39


def test_pairs_are_not_packed() -> None:
    with pytest.raises(ValueError, match="pairs are padded"):
        TokenSamples("encoder_decoder", PackedRows(8), 4, 4)
    assert TokenSamples("causal", PaddedRows(), 4).join([{}, {}]) == {}  # a pass hands nothing on
