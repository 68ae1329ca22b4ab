"""Tokenizers that are trained on the texts, or loaded without asking the network (B23)."""

from pathlib import Path

import pytest

from tests import tokenizers
from tests.language_models import SENTENCES, small_tokenizer
from trainauto.core.errors import InputError
from trainauto.tasks.text.training.hub import is_local
from trainauto.tasks.text.training.tokenizers import (
    SMALLEST_VOCABULARY,
    Vocabulary,
    load_tokenizer,
    save_tokenizer,
    special_ids,
    train_tokenizer,
)


def test_the_same_texts_give_the_same_tokenizer() -> None:
    first, second = (train_tokenizer(SENTENCES, 300) for _ in range(2))
    assert first.get_vocab() == second.get_vocab()
    assert first(list(SENTENCES))["input_ids"] == second(list(SENTENCES))["input_ids"]
    assert len(first) == 300


def test_any_text_comes_back() -> None:
    tokenizer = small_tokenizer()
    for text in (*SENTENCES, "naïve façade\t日本語 \x00 🙂", " begins with a blank  "):
        ids = tokenizer(text)["input_ids"]
        assert tokenizer.decode(ids) == text
        assert tokenizer.eos_token_id not in ids


def test_the_vocabulary_is_known_before_training() -> None:
    assert Vocabulary.of(small_tokenizer()) == Vocabulary.of_trained(300)


def test_it_is_kept(tmp_path: Path) -> None:
    save_tokenizer(small_tokenizer(), tmp_path / "tokenizer")
    loaded = load_tokenizer(tmp_path / "tokenizer")
    assert loaded(list(SENTENCES))["input_ids"] == small_tokenizer()(list(SENTENCES))["input_ids"]
    assert loaded.chat_template == small_tokenizer().chat_template
    assert Vocabulary.of(loaded) == Vocabulary.of(small_tokenizer())


def test_texts_without_end_are_refused_and_padding_falls_back() -> None:
    with pytest.raises(InputError, match="toy has no token that ends a text"):
        Vocabulary.of(tokenizers.fast_tokenizer(), "toy")
    vocabulary = Vocabulary.of(tokenizers.bare_tokenizer())
    assert (vocabulary.pad, vocabulary.end) == (1, 1)
    assert special_ids(vocabulary) == {"pad_token_id": None, "eos_token_id": 1, "bos_token_id": None}


def test_a_vocabulary_holds_all_bytes() -> None:
    with pytest.raises(InputError, match=f"Take at least {SMALLEST_VOCABULARY}"):
        train_tokenizer(SENTENCES, SMALLEST_VOCABULARY - 1)
    assert len(train_tokenizer(SENTENCES, SMALLEST_VOCABULARY)) == SMALLEST_VOCABULARY


def test_few_texts_give_fewer_tokens(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        assert len(train_tokenizer(["abab"], 900)) < 300
    assert "900 were asked for" in caplog.text


def test_paths_are_told_from_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert not is_local("gpt2")
    assert not is_local("owner/name")
    assert all(map(is_local, ("./a", "../a", "/a", "~/a", "a/b/c", Path("a"))))
    Path("gpt2").mkdir()
    assert is_local("gpt2")


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no tokenizer .*missing"):
        load_tokenizer(tmp_path / "missing")
    with pytest.raises(InputError, match="cannot load the tokenizer") as refused:
        load_tokenizer(tmp_path)
    assert refused.value.problems[0].argument == "pretrained"
