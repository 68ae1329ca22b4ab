"""A function over all texts: results in their order, and nothing lost when a batch does not fit (B17, B24, B42)."""

import logging
from typing import Any

import numpy as np
import pytest
import torch

from tests import tokenizers
from trainauto import build_dynamic_batch_dataloader
from trainauto.core.errors import InputError
from trainauto.data.packing import TokenCost
from trainauto.tasks.text.map_report import TextDoesNotFitError
from trainauto.tasks.text.text_batch import TextBatch
from trainauto.tasks.text.text_dataloader import TextDataLoader
from trainauto.tasks.text.tokenized_texts import TokenizedTexts

TEXTS = tokenizers.texts(160, longest=30)
WORDS = [len(text.split()) for text in TEXTS]


def loader_of(texts: list[str] = TEXTS, batch_size: int = 4, **more: Any) -> TextDataLoader:
    return build_dynamic_batch_dataloader(texts, tokenizers.fast_tokenizer(), batch_size, 64, num_workers=0, **more)


def words(batch: TextBatch) -> torch.Tensor:
    return batch["attention_mask"].sum(1) - 2  # [CLS] and [SEP]


class Limited:
    """Counts words where a batch has at most so many padded tokens, and runs out of memory elsewhere."""

    def __init__(self, most_tokens: int) -> None:
        self.most_tokens = most_tokens
        self.tried: list[tuple[int, int]] = []

    def __call__(self, batch: TextBatch) -> list[int]:
        self.tried.append(tuple(batch["input_ids"].shape))
        if batch["input_ids"].numel() > self.most_tokens:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return words(batch).tolist()


@pytest.mark.parametrize("kind", [torch.Tensor.tolist, np.asarray, tuple, torch.as_tensor], ids=lambda f: f.__name__)
def test_results_come_in_the_order_of_the_texts(kind: Any) -> None:
    mapped = loader_of().map(lambda batch: kind(words(batch)))
    assert [int(result) for result in mapped.results] == WORDS
    report = mapped.report
    assert (report.texts, report.tokens, report.out_of_memory) == (len(TEXTS), sum(WORDS) + 2 * len(TEXTS), 0)
    assert report.tokens <= report.padded_tokens < 1.3 * report.tokens
    assert report.batches == len(loader_of())


@pytest.mark.parametrize(
    "plan",
    [{}, {"friendly_batch_size": True}, {"steps": 2, "batch_end_range": 3.0}, {"pad_to_multiple_of": 16}],
    ids=str,
)
def test_what_fits_is_batched_as_planned(plan: dict[str, Any]) -> None:
    """B21, B22: candidates and their limits hold for a function over all texts, too."""
    seen: list[list[int]] = []
    loader = loader_of(batch_size=8, cost=TokenCost(), **plan)
    report = loader.map(lambda batch: seen.append(batch.indices)).report
    assert seen == [batch.indices for batch in loader]
    assert report.padded_tokens == sum(batch["input_ids"].numel() for batch in loader)


def test_what_does_not_fit_comes_again_in_smaller_batches(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    function = Limited(60)
    mapped = loader_of(batch_size=16, cost=TokenCost()).map(function)
    assert mapped.results == WORDS
    failed = [count * width for count, width in function.tried if count * width > 60]
    assert failed[:3] == [16 * 32, 8 * 32, 4 * 32]  # halved until it fits
    assert len(failed) == mapped.report.out_of_memory <= 6  # and remembered: later batches are planned smaller
    assert len(function.tried) - len(failed) == mapped.report.batches
    assert "trying them in smaller batches" in caplog.text
    assert f"out of memory {len(failed)} times" in caplog.text  # the report at the end


def test_no_more_is_tried_than_failed_before() -> None:
    function = Limited(200)
    loader_of(batch_size=16, cost=TokenCost()).map(function)
    assert max(count * width for count, width in function.tried[2:]) <= 0.75 * 16 * 32


def test_a_text_that_does_not_fit_alone_ends_it_with_what_there_is() -> None:
    loader = loader_of(["the"] * 5 + ["fox " * 20], batch_size=2)
    with pytest.raises(TextDoesNotFitError, match=r"text 5 .* runs out of memory alone") as error:
        loader.map(Limited(10))
    assert error.value.index == 5
    assert loader.mapped is not None
    assert loader.mapped.results == [None] * 6


@pytest.mark.parametrize("error", [RuntimeError("an illegal memory access"), KeyboardInterrupt()], ids=str)
def test_other_errors_end_it_with_what_there_is(error: BaseException) -> None:
    def fails(batch: TextBatch) -> list[int]:
        if len(batch.texts[0].split()) < 10:
            raise error
        return words(batch).tolist()

    loader = loader_of()
    with pytest.raises(type(error)):
        loader.map(fails)
    assert loader.mapped is not None
    done = [index for index, result in enumerate(loader.mapped.results) if result is not None]
    assert done == [index for index, count in enumerate(WORDS) if count >= 10]
    assert loader.mapped.report.texts == len(done)


def test_memory_that_runs_out_beside_the_function_is_recovered_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a batch is padded, for one; and words for it may not be had either."""

    class WordlessError(MemoryError):
        def __str__(self) -> str:
            raise MemoryError

    loader, batch, left = loader_of(), TokenizedTexts.batch, [3]

    def pads(texts: TokenizedTexts, indices: list[int]) -> TextBatch:
        left[0] -= 1
        if left[0] == 0:
            raise WordlessError
        return batch(texts, indices)

    monkeypatch.setattr(TokenizedTexts, "batch", pads)
    mapped = loader.map(words)
    assert (mapped.report.out_of_memory, [int(result) for result in mapped.results]) == (1, WORDS)


def test_results_that_are_views_keep_no_more_than_themselves() -> None:
    def first_columns(batch: TextBatch) -> torch.Tensor:
        return torch.ones(len(batch.indices), 500)[:, :2]

    for result in loader_of().map(first_columns).results:
        assert result.untyped_storage().nbytes() <= 24 * result.nbytes  # those of its batch


def test_ranks_have_texts_of_their_own() -> None:
    with pytest.raises(InputError, match="give each rank texts of its own"):
        loader_of(rank=0, world_size=2).map(words)


def test_a_function_may_return_nothing(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[int] = []
    assert loader_of().map(lambda batch: seen.extend(batch.indices)).results == [None] * len(TEXTS)
    assert sorted(seen) == list(range(len(TEXTS)))
    assert caplog.text.count("returns None") == 1
    with pytest.raises(InputError, match="needs a function of a batch, not str"):
        loader_of().map("embed")


def test_results_that_are_none_of_the_texts_are_refused() -> None:
    with pytest.raises(InputError, match="returned 3 results for 4 texts"):
        loader_of().map(lambda batch: [1, 2, 3])
    with pytest.raises(InputError, match="one result a text, not dict"):
        loader_of().map(lambda batch: {"logits": 1})
    with pytest.raises(InputError, match="not str"):
        loader_of().map(lambda batch: "abcd")
    with pytest.raises(InputError, match="not one number"):
        loader_of().map(lambda batch: torch.tensor(1.0))


def test_a_share_of_unknown_memory_is_refused() -> None:
    with pytest.raises(InputError, match="give a memory_budget as well"):
        loader_of().map(words, target_vram_usage=0.8)
    with pytest.raises(InputError, match="a share between 0 and 1, not 80"):
        loader_of().map(words, target_vram_usage=80)
    with pytest.raises(InputError, match=r"memory_budget: '2' is no size"):
        loader_of().map(words, memory_budget="2")


def test_no_texts_are_no_error() -> None:
    assert loader_of([]).map(words).results == []
