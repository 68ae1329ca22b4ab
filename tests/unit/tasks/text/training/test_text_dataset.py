"""Draws of texts: each once an epoch under changing budgets, and exactly so after a resume (B14, B15)."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.language_models import causal_samples, pair_samples
from trainauto.core.batch import Batch
from trainauto.core.errors import InputError
from trainauto.core.plan import Plan
from trainauto.core.sharding import SINGLE_PROCESS, SampleSharding
from trainauto.data.dynamic_loader import DynamicDataLoader
from trainauto.engine.probe import _largest_batch
from trainauto.tasks.text.training.text_dataset import TextDataset, draws_of, token_axis

LENGTHS = np.random.default_rng(4).integers(2, 20, 61)


def dataset_of(kind: str) -> TextDataset:
    if kind == "pairs":
        return TextDataset("texts", pair_samples(LENGTHS, LENGTHS[::-1]), "encoder_decoder")
    return TextDataset("texts", causal_samples(LENGTHS), row_length=24 if kind == "packed" else None)


def loader_of(
    dataset: TextDataset, rows: int, workers: int = 0, sharding: SampleSharding = SINGLE_PROCESS, rank: int = 0
) -> DynamicDataLoader:
    stream, batcher = draws_of(dataset, 5, sharding)
    plan = Plan.of(tokens=rows * dataset.row_tokens)
    return DynamicDataLoader(
        dataset,
        plan,
        seed=5,
        num_workers=workers,
        lookahead=2,
        sharding=sharding,
        rank=rank,
        stream=stream,
        new_batcher=lambda *_: batcher,
    )


def drawn(dataset: TextDataset, loader: DynamicDataLoader, changes: dict[int, int]) -> Iterator[Batch]:
    """Yield batches; after so many of them other budgets are asked for, in rows."""
    for number, batch in enumerate(loader, start=1):
        assert batch.shape.tokens <= batch.plan.size
        yield batch
        if number in changes:
            loader.update_plan(Plan.of(tokens=changes[number] * dataset.row_tokens))


@pytest.mark.parametrize("kind", ["padded", "packed", "pairs"])
@pytest.mark.parametrize("changes", [{}, {2: 8, 5: 3, 9: 12}])
def test_every_text_comes_once_an_epoch(kind: str, changes: dict[int, int]) -> None:
    dataset = dataset_of(kind)
    with loader_of(dataset, 4) as loader:
        names: list[str] = []
        for batch in drawn(dataset, loader, changes):
            names += batch.names
            assert len(names) % len(LENGTHS) == 0 or len(names) // len(LENGTHS) == batch.first_sample // len(LENGTHS)
            if len(names) == 3 * len(LENGTHS):
                break
    epochs = [names[start : start + len(LENGTHS)] for start in range(0, len(names), len(LENGTHS))]
    assert len(epochs) == 3
    for epoch in epochs:
        assert sorted(epoch) == sorted(dataset.samples.places)
    assert epochs[0] != epochs[1]


@pytest.mark.parametrize("kind", ["padded", "packed", "pairs"])
@pytest.mark.parametrize("shares", [(1.0, 1.0), (1.0, 1.0, 1.0), (1.0, 0.5), (0.4, 1.0, 0.7)])
def test_ranks_draw_every_text_once_within_their_shares(kind: str, shares: tuple[float, ...]) -> None:
    """Under plans that change, equal or not: what does not fit on one rank ends the draw of all."""
    dataset, changes, sharding = dataset_of(kind), {2: 8, 5: 3, 9: 12}, SampleSharding(shares)
    loaders = [loader_of(dataset, 6, sharding=sharding, rank=rank) for rank in range(len(shares))]
    names: list[str] = []
    for number, step in enumerate(zip(*loaders, strict=True), start=1):
        assert len({(batch.first_sample, batch.plan, batch.step_samples) for batch in step}) == 1
        assert step[0].first_sample == len(names)
        for share, batch in zip(shares, step, strict=True):
            assert batch.shape.tokens <= max(dataset.row_tokens, batch.plan.size * share)
            names += batch.names
        if number in changes:
            for loader in loaders:
                loader.update_plan(Plan.of(tokens=changes[number] * dataset.row_tokens))
        if len(names) >= 2 * len(LENGTHS):
            break
    for epoch in (names[: len(LENGTHS)], names[len(LENGTHS) : 2 * len(LENGTHS)]):
        assert sorted(epoch) == sorted(dataset.samples.places)


@pytest.mark.parametrize("kind", ["padded", "packed"])
@pytest.mark.parametrize("shares", [(1.0, 1.0), (1.0, 0.5), (0.3, 1.0, 0.7)])
def test_what_is_left_of_a_draw_fits_each_rank_under_smaller_plans(kind: str, shares: tuple[float, ...]) -> None:
    """Draws of many texts are cut in their middle, again and again, as after running out of memory."""
    dataset, sharding = dataset_of(kind), SampleSharding(shares)
    for seed in range(12):
        loaders = [loader_of(dataset, 9, sharding=sharding, rank=rank) for rank in range(len(shares))]
        for loader in loaders:
            loader._stream.seed = seed  # another order of the texts
        for number, step in enumerate(zip(*loaders, strict=True)):
            for batch in step:
                assert batch.shape.tokens <= max(dataset.row_tokens, batch.plan.size), (seed, number)
            for loader in loaders:
                loader.update_plan(Plan.of(tokens=(5, 2, 7, 1, 3)[number % 5] * dataset.row_tokens))
            if number == 14:
                break


@pytest.mark.parametrize("kind", ["padded", "packed"])
@pytest.mark.parametrize("stop", [1, 4, 7, 11])
def test_a_resume_in_mid_epoch_gives_the_rest(kind: str, stop: int) -> None:
    dataset, changes = dataset_of(kind), {2: 7, 6: 3}
    with loader_of(dataset, 4) as loader:
        whole = [batch.names for batch in islice(drawn(dataset, loader, changes), 18)]
    with loader_of(dataset, 4) as loader:
        for _ in islice(drawn(dataset, loader, changes), stop):
            pass
        if stop in changes:
            loader.update_plan(Plan.of(tokens=changes[stop] * dataset.row_tokens))
        state = loader.state_dict()
    later = {number - stop: rows for number, rows in changes.items() if number > stop}
    with loader_of(dataset, 4) as loader:
        loader.load_state_dict(state)
        rest = [batch.names for batch in islice(drawn(dataset, loader, later), 18 - stop)]
    assert rest == whole[stop:]


def test_budgets_are_whole_rows() -> None:
    axis = token_axis(24, 100, 1000)
    assert (axis.minimum, axis.maximum, axis.multiple) == (96, 984, 24)
    assert token_axis(24, 10, 1).values == range(24, 25, 24)
    assert dataset_of("packed").row_tokens == 24
    assert dataset_of("padded").row_tokens == LENGTHS.max()


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(InputError, match="rows of 8 tokens hold no text of 19"):
        TextDataset("texts", causal_samples(LENGTHS), row_length=8)
    with pytest.raises(InputError, match="packed rows are for causal models"):
        TextDataset("texts", pair_samples([3], [3]), "encoder_decoder", row_length=8)


def test_a_scan_names_the_shortest_text() -> None:
    dataset = dataset_of("padded")
    scan = dataset.scan()
    assert (scan.samples, scan.smallest_size) == (61, LENGTHS.min())
    assert scan.smallest_name == dataset.sample_name(int(np.argmin(LENGTHS)))
    assert dataset.sizes[dataset.largest_sample] == LENGTHS.max()


def of_files(lengths: np.ndarray, changed: int | None = None) -> TextDataset:
    """Texts of two files, the token of one of them perhaps another."""
    samples = causal_samples(lengths)
    places = [f"{'a' if number < 30 else 'b'}.txt:{number + 1}" for number in range(len(lengths))]
    tokens = samples.tokens.copy()
    if changed is not None:
        tokens[samples.ends[changed] - 1] += 1
    return TextDataset("texts", replace(samples, places=places, tokens=tokens))


def test_a_resume_on_other_texts_is_refused_with_their_file() -> None:
    """B18: as many as before, one of them rewritten; positions would mean others."""
    with loader_of(of_files(LENGTHS), 4) as loader:
        next(iter(loader))
        state = loader.state_dict()
    with loader_of(of_files(LENGTHS), 4) as loader:
        loader.load_state_dict(state)
    words = r"(?s)not what the checkpoint was written with: what is read of b.txt differs.*Restore the texts"
    with loader_of(of_files(LENGTHS, changed=40), 4) as loader, pytest.raises(InputError, match=words):
        loader.load_state_dict(state)
    words = r"(?s)has 60 samples, the checkpoint was written with 61: what is read of b.txt differs.*auto_resume"
    with loader_of(of_files(LENGTHS[:-1]), 4) as loader, pytest.raises(InputError, match=words):
        loader.load_state_dict(state)


def test_what_is_measured_before_the_run_is_a_ranks_own_share() -> None:
    """The larger rank tries the whole plan, the smaller one its share: readings are scaled to the larger one's."""
    dataset = dataset_of("padded")
    for rank, rows in ((0, 10), (1, 5)):
        loader = SimpleNamespace(dataset=dataset, sharding=SampleSharding((1.0, 0.5)))
        run: Any = SimpleNamespace(loader=loader, ranks=SimpleNamespace(rank=rank))
        assert _largest_batch(run, Plan.of(tokens=10 * dataset.row_tokens)).shape.tokens == rows * dataset.row_tokens
