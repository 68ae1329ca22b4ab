"""Batches are what the tokenizer itself would make of the same texts (B05, B07, B14, B15, B23)."""

import copy
import pickle
from typing import Any

import pytest
import torch
from torch.utils.data._utils.pin_memory import pin_memory

from tests import tokenizers
from trainauto.core.errors import InputError
from trainauto.tasks.text import tokenized_texts
from trainauto.tasks.text.tokenized_texts import TokenizedTexts, tokenize

TEXTS = tokenizers.texts(41)
SOME = [7, 3, 40, 0, 12]


def tokenizer_of(kind: str, folder: Any, **settings: Any) -> Any:
    if kind == "slow":
        return tokenizers.slow_tokenizer(folder, **settings)
    return {"fast": tokenizers.fast_tokenizer, "bytes": tokenizers.byte_tokenizer}[kind](**settings)


@pytest.mark.parametrize("kind", ["fast", "slow", "bytes"])
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("arguments", [{}, {"pad_to_multiple_of": 3}, {"add_special_tokens": False}], ids=str)
def test_a_batch_is_the_tokenizers_own(kind: str, side: str, arguments: dict[str, Any], tmp_path: Any) -> None:
    tokenizer = tokenizer_of(kind, tmp_path, padding_side=side)
    batch = tokenize(TEXTS, tokenizer, 9, arguments).batch(SOME)
    expected = tokenizer(
        [TEXTS[place] for place in SOME], padding=True, truncation=True, max_length=9, return_tensors="pt", **arguments
    )
    assert dict(batch).keys() == dict(expected).keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(batch[name], tensor, rtol=0, atol=0)


def test_keywords_of_the_tokenizer_reach_it() -> None:
    tokenizer = tokenizers.fast_tokenizer()
    batch = tokenize(TEXTS, tokenizer, 9, {"return_special_tokens_mask": True, "padding_side": "left"}).batch(SOME)
    assert batch["special_tokens_mask"][0].tolist()[-1] == 1  # the last token of a text is [SEP]
    assert batch["attention_mask"][3].tolist() == [0] * 7 + [1, 1]  # the shortest has [CLS] and [SEP] alone


def test_texts_come_in_several_calls_of_the_tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = tokenize(TEXTS, tokenizers.fast_tokenizer(), 9, {})
    monkeypatch.setattr(tokenized_texts, "TEXTS_AT_ONCE", 4)
    parts = tokenize(TEXTS, tokenizers.fast_tokenizer(), 9, {})
    assert parts.lengths.tolist() == whole.lengths.tolist()
    assert torch.equal(parts.batch(SOME)["input_ids"], whole.batch(SOME)["input_ids"])


def test_an_empty_text_has_a_row_and_a_column() -> None:
    tokens = tokenize(["", "the fox"], tokenizers.bare_tokenizer(pad_token="[END]"), 9, {})
    assert tokens.lengths.tolist() == [0, 2]
    assert tokens.batch([0])["attention_mask"].tolist() == [[0]]
    assert tokens.batch([0, 1])["attention_mask"].tolist() == [[0, 0], [1, 1]]


def test_no_texts_are_no_error() -> None:
    assert len(tokenize([], tokenizers.fast_tokenizer(), 9, {})) == 0


def test_what_cannot_be_tokenized_is_refused_by_name() -> None:
    with pytest.raises(InputError, match=r"texts\[1\] is no string but NoneType"):
        tokenize(["a", None], tokenizers.fast_tokenizer(), 9, {})  # type: ignore[list-item]
    with pytest.raises(InputError, match="one string"):
        tokenize("abc", tokenizers.fast_tokenizer(), 9, {})
    with pytest.raises(InputError, match=r"tokenizer.pad_token = tokenizer.eos_token"):
        tokenize(["a"], tokenizers.bare_tokenizer(), 9, {})
    with pytest.raises(InputError, match="'left' or 'right', not 'middle'"):
        tokenize(["a"], tokenizers.fast_tokenizer(), 9, {"padding_side": "middle"})
    with pytest.raises(InputError, match="9 is no multiple of pad_to_multiple_of 8"):
        tokenize(["a"], tokenizers.fast_tokenizer(), 9, {"pad_to_multiple_of": 8})


def test_a_length_beyond_the_models_is_said(caplog: pytest.LogCaptureFixture) -> None:
    tokenize(["a"], tokenizers.fast_tokenizer(model_max_length=8), 9, {})
    assert "its model takes 8 tokens" in caplog.text


def a_batch() -> tuple[TokenizedTexts, Any]:
    tokens = tokenize(TEXTS, tokenizers.fast_tokenizer(), 9, {})
    return tokens, tokens.batch(SOME)


def test_texts_and_places_are_beside_the_tensors() -> None:
    _, batch = a_batch()
    assert batch.texts == batch["texts"] == [TEXTS[place] for place in SOME]
    assert batch.indices == batch["indices"] == SOME
    assert {**batch}.keys() == {"input_ids", "attention_mask"}  # what model(**batch) is called with
    with pytest.raises(AttributeError):
        _ = batch.labels


@pytest.mark.parametrize(
    "carry", [lambda b: pickle.loads(pickle.dumps(b)), copy.copy, copy.deepcopy, lambda b: b.to("cpu")]
)
def test_texts_and_places_travel_with_the_batch(carry: Any) -> None:
    _, batch = a_batch()
    carried = carry(batch)
    assert (carried.texts, carried.indices) == (batch.texts, SOME)
    assert torch.equal(carried["input_ids"], batch["input_ids"])
    assert carried.n_sequences is None


def test_pinning_keeps_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor.clone())  # no accelerator here to pin for
    _, batch = a_batch()
    pinned = pin_memory(batch)
    assert (type(pinned), pinned.texts, pinned.indices) == (type(batch), batch.texts, SOME)
    assert pinned["input_ids"] is not batch["input_ids"]
