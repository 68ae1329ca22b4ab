"""Batches as the shipped classifier admits them: the rule of B22, and what may be said of it (B21 to B33, B41)."""

import hashlib
import logging
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import tokenizers
from trainauto import build_dynamic_batch_dataloader
from trainauto.core.errors import InputError
from trainauto.data.packing import (
    Bucketed,
    IntArray,
    LongestFirst,
    SampleSizes,
    TokenCost,
    candidate_counts,
    pack_by,
)
from trainauto.tasks.text.batch_features import FEATURES, BatchSizes, features_of
from trainauto.tasks.text.boosted_trees import BoostedTrees
from trainauto.tasks.text.classified_counts import ClassifiedCounts
from trainauto.tasks.text.spike_classifier import (
    SHIPPED,
    Calibration,
    SpikeClassifier,
    TrainingRange,
    shipped_classifier,
)


def lognormal(texts: int) -> IntArray:
    return np.clip(np.round(np.random.default_rng(0).lognormal(np.log(40), 0.9, texts)), 1, 512).astype(np.int64)


def uniform(texts: int) -> IntArray:
    return np.random.default_rng(1).integers(1, 513, texts)


def geometric(texts: int) -> IntArray:
    return np.random.default_rng(2).geometric(0.05, texts).clip(1, 512)


def rule_of(lengths: IntArray, base: int = 64, threshold: float = 0.1, multiple: int = 1) -> ClassifiedCounts:
    longest = np.sort(lengths)[::-1][:base]
    width = -(-longest[:1] // multiple) * multiple
    first = BatchSizes(np.array([base]), width, longest.sum(keepdims=True))
    return ClassifiedCounts(
        TokenCost(), 1, candidate_counts(base), base, shipped_classifier(), threshold, first, 512, multiple
    )


def near_constant(texts: int) -> IntArray:
    return np.random.default_rng(3).integers(120, 129, texts)


def expected_ends(rule: ClassifiedCounts, ordered: IntArray, limits: IntArray) -> list[int]:
    """B22: of all candidates, the largest that is admitted; without a search."""
    ends, place = [], 0
    while place < len(ordered):
        left = int(limits[place]) - place
        last = [left] if left <= rule.candidates[-1] else []
        counts = np.array([count for count in rule.candidates if count < left] + last)
        tokens = np.cumsum(ordered[place : place + left])[counts - 1]
        admitted = counts[rule.admits(BatchSizes(counts, np.full_like(counts, ordered[place]), tokens))]
        place += min(rule.base, left) if place == 0 or left <= rule.base else max(admitted, default=rule.base)
        ends.append(int(place))
    return ends


@pytest.mark.parametrize("lengths", [lognormal(20_000), uniform(20_000), near_constant(20_000), geometric(1500)])
@pytest.mark.parametrize(("base", "threshold"), [(16, 0.1), (64, 0.2)])
def test_each_batch_is_the_largest_admitted(lengths: IntArray, base: int, threshold: float) -> None:
    """B19, B21, B22, B41: that of a search from batch to batch, and of many batches at once, is what it should be."""
    rule, ordered = rule_of(lengths, base, threshold), np.sort(lengths)[::-1]
    packed = pack_by(rule, SampleSizes(lengths))
    assert packed.ends.tolist() == expected_ends(rule, ordered, np.full(len(lengths), len(lengths)))
    assert packed.counts[0] == base


@pytest.mark.parametrize("candidates", [candidate_counts(8), candidate_counts(8, 0.4, 0.8), (3, 50)])
def test_so_it_is_within_windows(candidates: tuple[int, ...]) -> None:
    """B22: lengths rise again where a window begins, and what is left of one is a candidate."""
    windows = [np.sort(lognormal(2000)[begin : begin + 130])[::-1] for begin in range(0, 2000, 130)]
    ordered = np.concatenate(windows)
    limits = np.repeat(np.cumsum([len(window) for window in windows]), [len(window) for window in windows])
    rule = replace(rule_of(ordered, 8, 0.2), candidates=candidates)
    ends = rule.ends(SampleSizes(ordered), limits)
    assert ends.tolist() == expected_ends(rule, ordered, limits)
    assert len(set(np.diff(ends).tolist())) > 2


DIGESTS = {
    ("lognormal", 8): "1f6d03657936", ("uniform", 8): "1251cb845317", ("near_constant", 8): "0f2e032cdc23",
    ("lognormal", 16): "d28807ca12ff", ("uniform", 16): "8bcb81cfd4a9", ("near_constant", 16): "5c8cc4735d17",
    ("lognormal", 64): "e77c4daa2ddd", ("uniform", 64): "266b110586e6", ("near_constant", 64): "c162902cab40",
}  # fmt: skip
"""Of where the batches of 20,000 texts end, by distribution and base, under the shipped classifier at 0.1."""


@pytest.mark.parametrize(("name", "base"), DIGESTS)
def test_batches_are_the_same_everywhere_and_planned_at_once(name: str, base: int) -> None:
    """B22: equal on every platform; 20,000 texts take 0.01 to 0.03 s of one thread (docs/classifier.md)."""
    lengths = {"lognormal": lognormal, "uniform": uniform, "near_constant": near_constant}[name](20_000)
    rule, ordered = rule_of(lengths, base), SampleSizes(np.sort(lengths)[::-1])
    seconds = []
    for _ in range(3):
        start = time.process_time()
        ends = rule.ends(ordered, np.full(20_000, 20_000))
        seconds.append(time.process_time() - start)
    assert hashlib.sha256(ends.astype("<i8").tobytes()).hexdigest()[:12] == DIGESTS[name, base]
    assert min(seconds) < 0.15


def test_batches_grow_and_more_so_the_bolder() -> None:
    """B41, B42."""
    lengths = geometric(20_000)
    batches = [len(pack_by(rule_of(lengths, threshold=each), SampleSizes(lengths))) for each in (0.01, 0.1, 0.4)]
    assert batches[0] >= batches[1] > batches[2]
    assert batches[1] < 0.8 * len(lengths) / 64


def test_more_texts_never_score_less() -> None:
    """B22: so that what is admitted is a prefix of the candidates."""
    generator = np.random.default_rng(3)
    for _ in range(100):
        lengths = np.sort(generator.integers(1, 513, 200))[::-1]
        base = int(generator.integers(1, 32))
        first = BatchSizes(np.array([base]), lengths[:1], lengths[:base].sum(keepdims=True))
        place = int(generator.integers(0, 100))
        counts = np.arange(1, 100)
        batches = BatchSizes(counts, np.full(99, lengths[place]), np.cumsum(lengths[place:])[:99])
        assert (np.diff(shipped_classifier().scores(first, batches, np.array(512))) >= 0).all()


def test_features_are_the_documented_ones() -> None:
    """B27 to B33: no padding is drawn at random."""
    assert len(FEATURES) == 13
    first, batch = BatchSizes(*map(np.array, ([4], [10], [38]))), BatchSizes(*map(np.array, ([8], [5], [40])))
    assert features_of(first, batch, np.array(256))[:, 0].tolist() == [
        256, 10, 5, 0.5, 4, 8, 2, 38, 40, 40 / 38, 2, 0, 0.5,
    ]  # fmt: skip


def test_it_abstains_from_what_nobody_recorded() -> None:
    classifier = shipped_classifier()

    def admitted(first: tuple[int, int], batch: tuple[int, int]) -> bool:
        x = BatchSizes(np.array([first[0]]), np.array([first[1]]), np.array([first[0] * first[1] * 3 // 4]))
        y = BatchSizes(np.array([batch[0]]), np.array([batch[1]]), np.array([batch[0] * batch[1] - 2]))
        return bool(classifier.admits(x, y, np.array(512), 0.4)[0])

    assert admitted((64, 512), (70, 128))
    assert not admitted((64, 128), (8, 129))  # longer than the first
    assert not admitted((64, 512), (64 * 40, 1))  # more texts than ever
    assert not admitted((64, 8192), (70, 2048))  # another first batch than any
    assert not admitted((4096, 512), (4200, 128))


def test_files_are_data_and_checked(tmp_path: Path) -> None:
    """B25: no pickle."""
    with np.load(SHIPPED, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    assert all(array.dtype.kind in "iufU" for array in arrays.values())
    copy = tmp_path / "copy.npz"
    shipped_classifier().save(copy)
    assert copy.read_bytes() == SHIPPED.read_bytes()

    def refused(why: str, **other: Any) -> None:
        np.savez(tmp_path / "other.npz", **{**arrays, **other})
        with pytest.raises(InputError, match=re.escape(why)):
            SpikeClassifier.load(tmp_path / "other.npz")

    refused("format is 7", format=np.array(7))
    refused("other features", names=arrays["names"][::-1])
    refused("do not belong together", children=arrays["children"] + 10**6)
    refused("do not belong together", thresholds=arrays["thresholds"][1:])
    refused("features that there are not", features=arrays["features"] + 13)
    refused("fall as scores rise", probabilities=arrays["probabilities"][::-1])
    refused("do not rise", knots=arrays["knots"][1:])
    for depth in (1, 0, -3, 10**12):
        refused("leaf" if depth >= 0 else "depth holds", depth=np.array(depth))
    refused("format is of int64 in 1 dimensions", format=np.array([1, 1]))
    refused("knots is of int64 in 0 dimensions", knots=np.array(3))
    refused("roots is of int64 in 2 dimensions", roots=arrays["roots"][None])
    refused("do not belong together", roots=arrays["roots"][:0])
    refused("children is of float64", children=arrays["children"] + 0.5)
    refused("runs are no list", runs=np.array("one run"))
    refused("baseline is of float64", baseline=np.array(1e300))
    refused("do not fit whole numbers", baseline=np.array(2**62))
    refused("of two sizes", least_first=np.ones(3))
    refused("probabilities holds", probabilities=arrays["probabilities"] * 1.1)
    for name in ("thresholds", "probabilities", "length_ratios", "most_growth", "least_first", "most_first"):
        for wrong in (np.nan, np.inf):
            refused(f"{name} holds what is not a number", **{name: np.append(arrays[name][:-1], wrong)})
    without = {name: array for name, array in arrays.items() if name != "knots"}
    np.savez(tmp_path / "less.npz", **without)
    with pytest.raises(InputError, match="has no 'knots'"):
        SpikeClassifier.load(tmp_path / "less.npz")


def test_damaged_files_are_refused_in_words(tmp_path: Path) -> None:
    """B25: whatever zipfile, zlib or numpy make of them."""
    whole = SHIPPED.read_bytes()
    with np.load(SHIPPED) as file:
        np.save(tmp_path / "array.npy", file["values"])
    flipped = bytearray(whole)
    flipped[2000:2010] = bytes(byte ^ 0xFF for byte in flipped[2000:2010])
    damaged = {"cut.npz": whole[: len(whole) // 2], "empty.npz": b"", "flipped.npz": flipped, "text.npz": b"no npz"}
    for name, content in damaged.items():
        (tmp_path / name).write_bytes(content)
    for path in (*map(tmp_path.joinpath, damaged), tmp_path / "array.npy", tmp_path / "none.npz", tmp_path, True, [1]):
        with pytest.raises(InputError, match="no classifier that"):
            SpikeClassifier.load(path)  # type: ignore[arg-type]


TEXTS = tokenizers.texts(400, longest=30)


def loader_of(**more: Any) -> Any:
    arguments = {"batch_size": 8, "max_input_token_length": 64, "num_workers": 0, "classifier": "shipped", **more}
    return build_dynamic_batch_dataloader(TEXTS, tokenizers.fast_tokenizer(), **arguments)


def test_the_loader_takes_it(tmp_path: Path) -> None:
    """B22, B40: ``classifier=PATH`` is as the shipped one, if it is the same."""
    shipped = [batch.indices for batch in loader_of(threshold=0.2)]
    path = tmp_path / "own.npz"
    shipped_classifier().save(path)
    assert [batch.indices for batch in loader_of(threshold=0.2, classifier=path)] == shipped
    assert len(shipped[0]) == 8
    assert max(map(len, shipped)) > 8
    assert sorted(index for batch in shipped for index in batch) == list(range(len(TEXTS)))
    widths = [max(len(TEXTS[index].split()) for index in batch) for batch in shipped]
    assert widths == sorted(widths, reverse=True)
    with pytest.raises(InputError, match="a cost or a classifier, not both"):
        loader_of(cost=TokenCost())


def asks_for(feature: str, most: float) -> SpikeClassifier:
    """Return a classifier that admits what has at most so much of a feature, and knows all batches."""
    number = [name for name, _ in FEATURES].index(feature)
    leaves = np.array([[1, 2], [1, 1], [2, 2]])
    trees = BoostedTrees(
        np.array([0]), np.array([number, 0, 0]), np.array([most, 0.0, 0.0]), leaves, np.array([0, -1, 1]), 0, 1
    )
    everything = TrainingRange(np.array([100.0]), np.array([1e6, 0.0]), np.zeros(2), np.full(2, 1e6))
    return SpikeClassifier(trees, Calibration(np.array([0]), np.array([0.05, 0.95])), everything, ("by hand",))


@pytest.mark.parametrize(
    ("feature", "most", "more", "is_admitted"),
    [
        ("max_input_length", 100, {"max_input_token_length": 64}, True),
        ("max_input_length", 100, {"max_input_token_length": 128}, False),
        ("token_size_x", 40, {}, True),
        ("token_size_x", 40, {"pad_to_multiple_of": 64}, False),
        ("token_size_y", 40, {}, True),
        ("token_size_y", 40, {"pad_to_multiple_of": 64}, False),
    ],
)
def test_it_is_asked_of_the_batches_there_will_be(
    tmp_path: Path, feature: str, most: float, more: dict[str, Any], is_admitted: bool
) -> None:
    """B23, B27 to B31: texts of up to 32 tokens, widths that padding makes of them, and the length they are cut to."""
    asks_for(feature, most).save(tmp_path / "own.npz")
    batches = list(loader_of(classifier=tmp_path / "own.npz", threshold=0.1, **more).batch_sampler)
    assert (max(map(len, batches)) > 8) == is_admitted


def test_a_threshold_admits_what_has_just_that_probability() -> None:
    """B22: at most the threshold."""
    calibration = Calibration(np.array([0, 5]), np.array([0.1, 0.2, 0.3]))
    assert calibration.probability(np.array([0, 1, 5, 6])).tolist() == [0.1, 0.2, 0.2, 0.3]
    limits = np.iinfo(np.int64)
    thresholds = {0.09: limits.min, 0.1: 0, 0.19: 0, 0.2: 5, 0.3: limits.max}
    assert {threshold: calibration.greatest_score(threshold) for threshold in thresholds} == thresholds


def test_it_says_where_nothing_is_admitted_and_of_how_many_it_knows_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """B22: batches of the base size throughout are no result to be taken for one."""
    caplog.set_level(logging.INFO)
    batches = len(loader_of(threshold=0.001))
    (warning,) = caplog.records
    assert warning.levelname == "WARNING"
    assert f"admits no larger batch at a threshold of 0.001: of {batches} batches 0 hold more than 8" in warning.message
    assert "abstained from 0" in warning.message
    assert f"{shipped_classifier().calibration.probabilities[0]:.3g} at least" in warning.message
    caplog.clear()
    larger = sum(len(batch) > 8 for batch in loader_of(threshold=0.2).batch_sampler)
    (record,) = caplog.records
    assert record.levelname == "INFO"
    assert f"{larger} hold more than 8 texts, and it abstained from 0" in record.message
    caplog.clear()
    # Texts of 3 tokens and first ones of 1000: of such batches nobody has recorded any.
    texts = ["the fox " * 500] * 8 + ["the"] * 80
    arguments = {"num_workers": 0, "classifier": "shipped", "threshold": 0.2}
    loader = build_dynamic_batch_dataloader(texts, tokenizers.fast_tokenizer(), 8, 1200, **arguments)
    assert f"of {len(loader)} batches 0 hold more than 8 texts, and it abstained from {len(loader)}" in caplog.text


def test_orders_positions_and_map_go_with_it() -> None:
    for order in (LongestFirst(), Bucketed(100)):
        loader = loader_of(order=order, threshold=0.2)
        whole = [batch.indices for batch in loader]
        assert sorted(index for batch in whole for index in batch) == list(range(len(TEXTS)))
        loader = loader_of(order=order, threshold=0.2)
        for _, _ in zip(range(3), loader, strict=False):
            pass
        resumed = loader_of(order=order, threshold=0.2)
        resumed.load_state_dict(loader.state_dict())
        assert [batch.indices for batch in resumed] == whole[3:]
    mapped = loader_of(pad_to_multiple_of=8).map(lambda batch: [len(text) for text in batch.texts])
    assert mapped.results == [len(text) for text in TEXTS]


@pytest.mark.parametrize("texts", [[], ["the fox"], ["the"] * 8, ["the fox"] * 9])
def test_few_texts(texts: list[str]) -> None:
    loader = build_dynamic_batch_dataloader(
        texts, tokenizers.fast_tokenizer(), 8, 64, num_workers=0, classifier="shipped"
    )
    assert sorted(index for batch in loader for index in batch.indices) == list(range(len(texts)))
