"""Epochs of batches on any ranks, from any position: pure, so it is tested without workers, files or torch."""

import zlib
from dataclasses import dataclass, field
from itertools import chain, islice, product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.unit.data.packing.sets_of_samples import lognormal, packing_inputs
from trainauto.core.errors import InputError
from trainauto.core.shuffling import shuffled_order
from trainauto.data.packing import (
    Bucketed,
    CandidateCounts,
    FewestBatches,
    LongestFirst,
    PackedBatchSampler,
    PackingMismatchError,
    PaddedCost,
    SampleSizes,
    SampleTooLargeError,
    ShuffledBatches,
    TokenCost,
    TooFewSamplesError,
)
from trainauto.data.packing.ranks import divided_among

ORDERS = st.one_of(
    st.just(LongestFirst()), st.builds(ShuffledBatches, st.integers(0, 4)), st.builds(Bucketed, st.integers(1, 30))
)
INPUTS = packing_inputs(least=6)


def samplers(inputs: tuple, order, world_size: int, seed: int = 5) -> list[PackedBatchSampler]:
    """Return one sampler a rank; inputs that give some rank fewer batches are passed over."""
    sizes, cost, bound = inputs
    rule = FewestBatches(cost, bound)
    try:
        of_ranks = [
            PackedBatchSampler(sizes, rule, order, seed=seed, rank=r, world_size=world_size) for r in range(world_size)
        ]
        for sampler in of_ranks:
            sampler.set_epoch(1)
            sampler.remaining()
            sampler.set_epoch(0)
    except TooFewSamplesError:
        assume(False)
    return of_ranks


@given(INPUTS, ORDERS, st.integers(1, 3))
def test_every_text_once_an_epoch_on_any_ranks(inputs: tuple, order, world_size: int) -> None:
    """And no batch above the bound, as many for each rank, the next epoch when iterated again."""
    sizes, cost, bound = inputs
    of_ranks = samplers(inputs, order, world_size)
    for epoch in range(2):
        assert {len(sampler) for sampler in of_ranks} == {len(of_ranks[0])}
        lengths = len(of_ranks[0])
        batches = [list(sampler) for sampler in of_ranks]
        assert [len(own) for own in batches] == [lengths] * world_size
        assert sorted(chain(*chain(*batches))) == list(range(len(sizes)))
        for batch in chain(*batches):
            images = 0 if sizes.images is None else sizes.images[batch].sum()
            assert cost.cost(np.array(len(batch)), sizes.tokens[batch].max(), np.array(images)) <= bound
        assert [(s.epoch, s.samples) for s in of_ranks] == [(epoch + 1, 0)] * world_size


@settings(deadline=None)  # another process on the core makes a case slow, not wrong
@given(INPUTS, ORDERS, st.integers(1, 6), st.data())
def test_resume_anywhere_gives_exactly_the_rest(inputs: tuple, order, world_size: int, data: st.DataObject) -> None:
    """From the state of a sampler that ran so far, and from pure arithmetic; in this epoch and in the next.

    With up to as many ranks as texts, most of the batches are cut, and many of them more than once.
    """
    whole, stopped, resumed = (samplers(inputs, order, world_size)[0] for _ in range(3))
    first = whole.state_dict()
    consumed = data.draw(st.integers(0, 2 * len(whole) - 1))
    expected = [*whole, *whole, *whole]
    drawn = list(islice(chain.from_iterable(iter(stopped) for _ in range(2)), consumed))
    assert drawn == expected[:consumed]
    assert stopped.state_dict() == resumed.advanced(first, consumed)
    some = data.draw(st.integers(0, consumed))
    assert resumed.advanced(resumed.advanced(first, some), consumed - some) == stopped.state_dict()
    resumed.load_state_dict(stopped.state_dict())
    rest = list(resumed)
    assert resumed.samples == 0
    while resumed.epoch < 3:
        rest += resumed
    assert rest == expected[consumed:]


@given(INPUTS, ORDERS, st.integers(1, 3), st.integers(1, 3), st.data())
def test_another_number_of_ranks_goes_on_with_the_rest(
    inputs: tuple, order, before: int, after: int, data: st.DataObject
) -> None:
    """No text of the epoch is lost or comes twice when ranks come or go in the middle of it."""
    ranks = samplers(inputs, order, before)
    rounds = data.draw(st.integers(0, len(ranks[0]) - 1))
    given_out = [list(islice(iter(sampler), rounds)) for sampler in ranks]
    others = samplers(inputs, order, after)
    for sampler in others:
        sampler.load_state_dict(ranks[0].state_dict())
    try:
        rest = [list(sampler) for sampler in others]
    except TooFewSamplesError:
        assume(False)
    assert len({len(own) for own in rest}) == 1
    assert sorted(chain(*chain(*given_out, *rest))) == list(range(len(inputs[0])))


@dataclass(frozen=True)
class GivenCounts:
    """Batches of given counts, whatever they hold."""

    counts: tuple[int, ...]
    cost: TokenCost = field(default_factory=TokenCost)
    bound: int = 0

    def check(self, sizes: SampleSizes) -> None:
        assert len(sizes) == sum(self.counts)

    def ends(self, ordered: SampleSizes, limits: np.ndarray) -> np.ndarray:
        return np.cumsum(self.counts)

    def to_dict(self) -> dict:
        return {"counts": list(self.counts)}


def resumed_from_each_round(counts: tuple[int, ...], world_size: int) -> tuple[list, list]:
    """Return what the first rank gets from each round on when it resumes there, and when it never stopped."""
    sizes, rule = SampleSizes(np.full(sum(counts), 8)), GivenCounts(counts)
    sampler, other = (PackedBatchSampler(sizes, rule, world_size=world_size) for _ in range(2))
    begin = sampler.state_dict()
    batches, resumed = list(sampler), []
    for rounds in range(len(batches)):
        other.load_state_dict(sampler.advanced(begin, rounds))
        resumed.append(list(other))
    return resumed, [batches[rounds:] for rounds in range(len(batches))]


def test_a_batch_that_is_cut_more_than_once_is_cut_there_on_resume_too() -> None:
    """Of 8 samples cut into 2, 2 and 4, what is left after the first 2 is not halved into 3 and 3."""
    different = []
    for counts in [(3, 1, 8, 1), *product((1, 3, 5, 8), repeat=4)]:
        for world_size in (3, 5, 6):
            if sum(counts) >= -(-len(counts) // world_size) * world_size:
                resumed, never_stopped = resumed_from_each_round(counts, world_size)
                different += [(counts, world_size)] * (resumed != never_stopped)
    assert not different


@given(INPUTS, st.integers(1, 6), st.integers(1, 6), st.data())
def test_ranks_that_came_resume_their_own_division(inputs: tuple, before: int, after: int, data: st.DataObject) -> None:
    """What another number of ranks divided anew, as many go on with, wherever they stop in turn."""
    first = samplers(inputs, LongestFirst(), before)[0]
    state = first.advanced(first.state_dict(), data.draw(st.integers(0, len(first) - 1)))
    whole, resumed = (samplers(inputs, LongestFirst(), after)[0] for _ in range(2))
    whole.load_state_dict(state)
    try:
        rest = list(whole)
    except TooFewSamplesError:
        assume(False)
    rounds = data.draw(st.integers(0, len(rest)))
    resumed.load_state_dict(resumed.advanced(state, rounds))
    assert resumed.epoch == (rounds == len(rest))
    if rounds < len(rest):
        assert list(resumed) == rest[rounds:]


@given(st.lists(st.integers(1, 9), min_size=1, max_size=20), st.integers(1, 7))
def test_the_largest_batches_are_cut_for_ranks(counts: list[int], world_size: int) -> None:
    ends = np.cumsum(counts)
    assume(-(-len(counts) // world_size) * world_size <= sum(counts))
    cut = divided_among(ends, world_size)
    assert len(cut) % world_size == 0
    assert len(cut) - len(ends) < world_size
    assert set(ends.tolist()) <= set(cut.tolist())
    new = np.diff(cut, prepend=0)
    assert new.min() > 0
    # Nothing was cut that is smaller than what was left whole.
    whole = set(zip((ends - counts).tolist(), ends.tolist(), strict=True))
    pieces = [b - a for a, b in zip((cut - new).tolist(), cut.tolist(), strict=True) if (a, b) not in whole]
    assert max(new, default=0) <= 2 * min(pieces, default=9) + 1


def test_fewer_samples_than_ranks_is_named() -> None:
    sizes, rule = SampleSizes(np.array([3, 4])), FewestBatches(TokenCost(), 9)
    with pytest.raises(TooFewSamplesError, match=r"2 samples .* 3 ranks"):
        PackedBatchSampler(sizes, rule, world_size=3)
    with pytest.raises(InputError, match="no rank 2 of 2"):
        PackedBatchSampler(sizes, rule, rank=2, world_size=2)


def test_what_does_not_fit_is_named_before_anything_runs() -> None:
    with pytest.raises(SampleTooLargeError, match=r"sample 1 \(99 tokens\)"):
        PackedBatchSampler(SampleSizes(np.array([3, 99])), FewestBatches(TokenCost(), 9))


def test_no_texts_are_no_batches() -> None:
    """B43"""
    for order in (LongestFirst(), ShuffledBatches(), Bucketed()):
        sampler = PackedBatchSampler(SampleSizes(np.zeros(0, np.int64)), FewestBatches(TokenCost(), 9), order)
        assert (len(sampler), list(sampler), sampler.advanced(sampler.state_dict(), 2)["samples"]) == (0, [], 0)


def test_the_first_batches_stay_and_the_others_are_shuffled() -> None:
    """B09, B17: the same batches in another order each epoch, the three of the longest first."""
    sizes, rule = lognormal(2000), FewestBatches(TokenCost(), 4096)
    packed = list(PackedBatchSampler(sizes, rule))
    sampler = PackedBatchSampler(sizes, rule, ShuffledBatches(), seed=21)
    epochs = [list(sampler) for _ in range(2)]
    for batches in epochs:
        assert batches[:3] == packed[:3]
        assert batches[3:] != packed[3:]
        assert sorted(batches) == sorted(packed)
    assert epochs[0] != epochs[1]
    assert list(PackedBatchSampler(sizes, rule, ShuffledBatches(), seed=22)) != epochs[0]


def test_windows_hold_samples_of_any_length_and_batches_such_of_one() -> None:
    """Bucketed: batches of an epoch fall into windows of the shuffled order, and hold other company in the next."""
    sizes, rule = lognormal(2000), FewestBatches(TokenCost(), 2048)
    sampler = PackedBatchSampler(sizes, rule, Bucketed(window=500), seed=1)
    first, second = ({frozenset(batch) for batch in sampler} for _ in range(2))
    assert not first & {batch for batch in second if len(batch) > 2}
    of_windows = [{frozenset(b) for b in first if b & set(window)} for window in windows_of(2000, 500, seed=1)]
    assert sum(map(len, of_windows)) == len(first)


def windows_of(samples: int, window: int, seed: int) -> list[list[int]]:
    order = shuffled_order(samples, seed, 0).tolist()
    return [order[start : start + window] for start in range(0, samples, window)]


def other_than(**changes) -> PackedBatchSampler:
    given = {
        "samples": 300,
        "bound": 2048,
        "multiple": 1,
        "seed": 3,
        "order": Bucketed(64),
        "most_samples": None,
        **changes,
    }
    rule = FewestBatches(PaddedCost(TokenCost(), given["multiple"]), given["bound"], given["most_samples"])
    return PackedBatchSampler(lognormal(given["samples"]), rule, given["order"], seed=given["seed"])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"samples": 301}, "the number of samples was 300 and is 301 now"),
        ({"bound": 2049}, "bound was 2048 and is 2049"),
        ({"seed": 4}, "seed was 3 and is 4"),
        ({"order": Bucketed(65)}, r"order was Bucketed\(window=64\) and is Bucketed\(window=65\)"),
        ({"order": LongestFirst()}, r"order was .* is LongestFirst\(\)"),
        ({"most_samples": 9}, "most samples was None and is 9"),
        ({"multiple": 8}, "the sizes or the cost of samples"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_position_among_other_batches_is_refused(changes: dict, said: str) -> None:
    saved = other_than()
    state = saved.advanced(saved.state_dict(), 3)
    other = other_than(**changes)
    with pytest.raises(PackingMismatchError, match=said) as error:
        other.load_state_dict(state)
    assert error.value.exit_code == 2
    assert (other.epoch, other.samples) == (0, 0)
    other_than().load_state_dict(state)


def test_epochs_are_set_and_left_under_way() -> None:
    """What is resumed in mid-epoch stays there when a training loop names the epoch."""
    sampler = other_than()
    first = list(islice(sampler, 2))
    cursor = sampler.samples
    assert cursor == sum(map(len, first))
    sampler.set_epoch(0)
    assert sampler.samples == cursor
    sampler.set_epoch(3)
    third = list(sampler)
    sampler.set_epoch(3)
    assert (sampler.samples, list(sampler)) == (0, third)


def test_an_iterator_left_behind_moves_nothing() -> None:
    """A loader may hold an old one for a while: of two, only the newer counts."""
    sampler = other_than()
    old = iter(sampler)
    next(old)
    new = iter(sampler)
    next(new)
    cursor = sampler.samples
    next(old)
    assert sampler.samples == cursor
    state = other_than().state_dict()
    sampler.load_state_dict(state)
    next(new)
    assert sampler.state_dict() == state


@pytest.mark.parametrize(
    ("order", "rule", "checksum"),
    [
        (LongestFirst(), FewestBatches(TokenCost(), 2048), 139519778),
        (ShuffledBatches(), FewestBatches(PaddedCost(TokenCost(), 8), 2048), 1958165975),
        (Bucketed(), FewestBatches(TokenCost(), 2048), 1726727858),
        (LongestFirst(), CandidateCounts(TokenCost(), 2048, (4, 8, 16, 24), 4), 1870982753),
    ],
    ids=["longest first", "shuffled", "bucketed", "candidates"],
)
def test_batches_are_pinned(order, rule, checksum: int) -> None:
    """The same on every platform, under every version of numpy: a run that is resumed elsewhere goes on."""
    # Lengths without a generator, and without fractions.
    sizes = SampleSizes(np.array([3 + (i * i * 7919) % 251 for i in range(1000)]))
    of_ranks = [PackedBatchSampler(sizes, rule, order, seed=7, rank=rank, world_size=2) for rank in (0, 1)]
    epochs = [[list(sampler) for sampler in of_ranks] for _ in range(2)]
    assert zlib.crc32(repr(epochs).encode()) == checksum
