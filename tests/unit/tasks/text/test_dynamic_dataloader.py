"""dynabatch's function as documented (B03 to B23), and what a torch loader is expected to do."""

import sys
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader
from transformers import T5Config, T5ForConditionalGeneration

from tests import tokenizers
from trainauto import build_dynamic_batch_dataloader
from trainauto.core.errors import InputError
from trainauto.data.packing import Bucketed, IntArray, PackingMismatchError, TokenCost
from trainauto.tasks.text.costs import RelativeCost
from trainauto.tasks.text.text_dataloader import TextDataLoader

TEXTS = tokenizers.texts(160, longest=30)
LENGTHS = [len(text.split()) + 2 for text in TEXTS]  # [CLS] and [SEP]


def loader_of(texts: list[str] = TEXTS, **more: Any) -> TextDataLoader:
    arguments = {"batch_size": 4, "max_input_token_length": 64, "num_workers": 0, "cost": TokenCost(), **more}
    return build_dynamic_batch_dataloader(texts, tokenizers.fast_tokenizer(), **arguments)


def indices(loader: TextDataLoader) -> list[list[int]]:
    return [batch.indices for batch in loader]


def test_the_first_batch_is_the_longest_texts_and_each_later_one_the_largest_candidate_that_is_admitted() -> None:
    """B06, B11-B13, B18, B19, B21, B22."""
    batches = indices(loader_of(batch_end_range=3.0, steps=4))
    candidates = [4, 7, 10, 12]  # 1 to 3 times 4 in four steps, rounded up
    longest_first = sorted(range(len(TEXTS)), key=lambda index: -LENGTHS[index])
    assert [index for batch in batches for index in batch] == longest_first
    assert len(batches[0]) == 4
    bound = 4 * LENGTHS[longest_first[0]]
    done = 4
    for batch in batches[1:-1]:
        admitted = [count for count in candidates if count * LENGTHS[longest_first[done]] <= bound]
        assert len(batch) == max(admitted, default=4)
        done += len(batch)
    assert len(TEXTS) - done == len(batches[-1]) <= 12


def test_it_is_a_torch_loader_of_padded_tensors() -> None:
    """B01, B03, B15, B23; and 0 workers are none (B10)."""
    loader = loader_of()
    batches = list(loader)
    assert isinstance(loader, DataLoader)
    assert (len(loader), loader.num_workers) == (len(batches), 0)
    for batch in batches:
        assert batch["input_ids"].shape == (len(batch.indices), max(LENGTHS[index] for index in batch.indices))
        assert batch["attention_mask"].sum(1).tolist() == [LENGTHS[index] for index in batch.indices]
        assert batch.texts == [TEXTS[index] for index in batch.indices]


def test_a_batch_is_what_generate_takes() -> None:
    """B16: of its keys all are for the model."""
    config = T5Config(
        vocab_size=64, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2, decoder_start_token_id=0, pad_token_id=0
    )
    model = T5ForConditionalGeneration(config).eval()
    batch = next(iter(loader_of(return_token_type_ids=False)))
    assert model.generate(**batch.to("cpu"), max_new_tokens=3).shape[0] == 4


def test_random_order_keeps_the_first_batches_and_is_another_each_epoch() -> None:
    """B09, B17."""
    plain = indices(loader_of())
    loader = loader_of(shuffle=True)
    first, second = indices(loader), indices(loader)
    assert first[:3] == second[:3] == plain[:3]
    assert first != second
    assert sorted(map(tuple, first)) == sorted(map(tuple, second)) == sorted(map(tuple, plain))
    assert indices(loader_of(shuffle=True)) == first
    assert indices(loader_of(shuffle=True, shuffle_seed=5)) != first
    assert indices(loader_of(shuffle=True, shuffle_keep_first_n=0))[:3] != plain[:3]


def test_an_iteration_that_is_left_is_not_continued_by_the_next() -> None:
    loader = loader_of(shuffle=True)
    epochs = [indices(loader) for _ in range(3)]
    loader = loader_of(shuffle=True)
    for number, batch in enumerate(loader):
        if number == 5:
            break
        assert batch.indices == epochs[0][number]
    assert indices(loader) == epochs[1]
    assert indices(loader) == epochs[2]


def test_of_two_iterators_the_newer_moves_the_position() -> None:
    loader = loader_of(shuffle=True)
    whole = indices(loader_of(shuffle=True))
    older, newer = iter(loader), iter(loader)
    next(older)
    next(newer)
    state = loader.state_dict()
    next(older)
    assert loader.state_dict() == state
    loader.load_state_dict({**state, "epoch": 0, "samples": len(whole[0])})
    next(newer)
    assert indices(loader) == whole[1:]


def test_an_epoch_may_be_set() -> None:
    loader = loader_of(shuffle=True)
    epochs = [indices(loader) for _ in range(3)]
    loader = loader_of(shuffle=True)
    loader.set_epoch(2)
    assert indices(loader) == epochs[2]
    loader.load_state_dict({**loader.state_dict(), "epoch": 1, "samples": len(epochs[1][0])})
    loader.set_epoch(1)
    assert indices(loader) == epochs[1][1:]


def test_a_torch_loader_of_its_parts_gives_the_same() -> None:
    """What libraries that wrap loaders do."""
    loader = loader_of()
    parts = DataLoader(loader.dataset, batch_sampler=loader.batch_sampler, collate_fn=loader.collate_fn)
    assert [batch.indices for batch in parts] == indices(loader_of())


def test_the_order_may_be_one_for_training() -> None:
    loader = loader_of(order=Bucketed())
    first, second = indices(loader), indices(loader)
    assert {frozenset(batch) for batch in first} != {frozenset(batch) for batch in second}
    assert sorted(index for batch in second for index in batch) == list(range(len(TEXTS)))


def test_without_a_cost_batches_grow_as_they_were_recorded_to_on_gpus() -> None:
    careful, bold = (indices(loader_of(cost=None, threshold=threshold)) for threshold in (0.025, 0.1))
    assert careful == indices(loader_of(cost=RelativeCost(0.025)))
    assert len(bold) < len(careful)
    with pytest.raises(InputError, match=r"threshold: a probability of at least 0.01"):
        loader_of(cost=None, threshold=0.001)


def test_a_cost_that_falls_is_refused() -> None:
    class Falls(Bytes):
        def cost(self, samples: IntArray, longest: IntArray, images: IntArray) -> IntArray:
            return samples * (1000 - longest)

    with pytest.raises(InputError, match="cost: a larger batch must not cost less"):
        loader_of(cost=Falls())


def test_texts_are_listed_once() -> None:
    """A generator is as good as a list, and a list that changes later changes nothing."""
    given = list(TEXTS)
    loader = loader_of(given)
    given[0] = "changed"
    given.append("another")
    assert [batch.texts for batch in loader] == [batch.texts for batch in loader_of(iter(TEXTS))]


@pytest.mark.parametrize("consumed", [0, 1, 7])
def test_a_saved_position_is_continued(consumed: int) -> None:
    loader = loader_of(shuffle=True)
    whole, next_epoch = indices(loader), indices(loader)
    loader = loader_of(shuffle=True)
    for _, _ in zip(range(consumed), loader, strict=False):
        pass
    state = loader.state_dict()
    resumed = loader_of(shuffle=True)
    resumed.load_state_dict(state)
    assert resumed.state_dict() == state
    assert indices(resumed) == whole[consumed:]
    assert indices(resumed) == next_epoch
    with pytest.raises(PackingMismatchError):
        loader_of(TEXTS[1:], shuffle=True).load_state_dict(state)


def test_ranks_share_the_texts() -> None:
    parts = [indices(loader_of(rank=rank, world_size=2)) for rank in (0, 1)]
    assert len(parts[0]) == len(parts[1])
    assert sorted(index for part in parts for batch in part for index in batch) == list(range(len(TEXTS)))


@dataclass(frozen=True)
class Bytes:
    """A prediction that may be wrong by half."""

    unit: str = "bytes"

    def cost(self, samples: IntArray, longest: IntArray, images: IntArray) -> IntArray:
        return 100 * samples * longest

    def margin(self, probability: float) -> float:
        return 1.5 if probability < 0.05 else 1.0


def test_a_cost_in_bytes_is_admitted_by_its_margin() -> None:
    """B08, B41: a smaller threshold, smaller batches."""
    aggressive, careful = indices(loader_of(cost=Bytes(), threshold=0.1)), indices(loader_of(cost=Bytes()))
    assert aggressive == indices(loader_of(cost=TokenCost()))
    assert len(careful[0]) == 4
    assert len(careful) > len(aggressive)
    widths = [max(LENGTHS[index] for index in batch) for batch in careful]
    for batch, width in zip(careful, widths, strict=True):
        assert len(batch) <= 4 or 1.5 * len(batch) * width <= 4 * widths[0]


def test_widths_are_what_is_counted() -> None:
    loader = loader_of(pad_to_multiple_of=16)
    for batch in loader:
        assert batch["input_ids"].shape[1] % 16 == 0
        assert len(batch.indices) <= 4 or batch["input_ids"].numel() <= 4 * 32


def test_friendly_sizes() -> None:
    """B17."""
    sizes = {len(batch) for batch in indices(loader_of(friendly_batch_size=True))[:-1]}
    assert len(sizes) > 2
    assert sizes <= {4, 6, 8, 12, 16, 24}


@pytest.mark.parametrize(
    ("texts", "batches"),
    [([], []), (["the fox"], [[0]]), (["the"] * 3, [[0, 1, 2]]), (["", "the fox", ""], [[1, 0, 2]])],
)
def test_few_texts(texts: list[str], batches: list[list[int]]) -> None:
    loader = loader_of(texts)
    assert indices(loader) == batches
    assert len(loader) == len(batches)


def test_one_giant_text_is_cut() -> None:
    """B07."""
    loader = loader_of([*TEXTS, "fox " * 5000], max_input_token_length=48)
    batch = next(iter(loader))
    assert (batch.indices[0], batch["input_ids"].shape) == (len(TEXTS), (4, 48))


def test_what_cannot_be_used_is_named() -> None:
    def message(**more: Any) -> str:
        with pytest.raises(InputError) as error:
            loader_of(**more)
        return str(error.value)

    refused = message(padding=True, max_length=9, text_pair=["a"], add_specal_tokens=False, num_worker=3)
    assert "padding: the loader sets it itself" in refused
    assert "it is called max_input_token_length here" in refused
    assert "text_pair: not possible here" in refused
    assert "Did you mean 'add_special_tokens'?" in refused
    assert "Did you mean 'num_workers'?" in refused
    wrong = message(batch_size=0, max_input_token_length=0, num_workers=-1, threshold=1.0)
    assert "batch_size must be a whole number, 1 or more, got 0" in wrong
    assert "max_input_token_length must be a whole number, 1 or more, got 0" in wrong
    assert "num_workers must be a whole number, 0 or more, got -1" in wrong
    assert "got 4.0" in message(batch_size=4.0)
    assert "argument of `loader.map(function, memory_budget=...)`" in message(memory_budget="2GiB")
    kinds = message(cost=TokenCost, order=Bucketed)
    assert "cost: an object such as TokenCost() is needed, not the class TokenCost" in kinds
    assert "order: an object such as Bucketed() is needed, not the class Bucketed" in kinds
    assert "not str" in message(cost="tokens")
    assert "pad_to_multiple_of must be 1 or more, got -4" in message(pad_to_multiple_of=-4)
    assert "threshold is a probability between 0 and 1, got 1.0" in wrong
    assert "no batch sizes" in message(batch_start_range=3.0, batch_end_range=2.0)


def test_without_transformers_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(InputError, match=r"pip install 'trainauto\[huggingface\]'"):
        build_dynamic_batch_dataloader(["a"], None, 1, 8)


def test_a_tokenizer_of_another_library_is_told_how_to_be_one_of_transformers() -> None:
    with pytest.raises(InputError, match=r"PreTrainedTokenizerFast\(tokenizer_object=...\)"):
        build_dynamic_batch_dataloader(TEXTS, tokenizers.fast_tokenizer().backend_tokenizer, 4, 64)


def test_keywords_of_the_tokenizer_are_forwarded() -> None:
    """B14."""
    batch = next(iter(loader_of(add_special_tokens=False, padding_side="left")))
    assert batch["input_ids"].shape[1] == max(LENGTHS) - 2
    assert torch.equal(batch["attention_mask"], batch["attention_mask"].sort(1).values)  # 0s on the left
