"""Tokenizers of every kind that transformers has, made on the spot: fast and slow, nothing from a hub."""

from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertTokenizerLegacy, ByT5Tokenizer, PreTrainedTokenizerFast

WORDS = tuple("the quick brown fox jumps over a lazy dog while seven boats sail past an old bridge".split())  # noqa: SIM905
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")


def fast_tokenizer(**settings: Any) -> PreTrainedTokenizerFast:
    """Words as tokens, with [CLS] before and [SEP] behind."""
    vocabulary = {word: number for number, word in enumerate([*SPECIAL, *WORDS])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        **{"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", **settings},
    )


def bare_tokenizer(**settings: Any) -> PreTrainedTokenizerFast:
    """The same without special tokens, so that an empty text has none; without a padding token unless one is set."""
    vocabulary = {word: number for number, word in enumerate(["[UNK]", "[END]", *WORDS])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]", eos_token="[END]", **settings)


def slow_tokenizer(folder: Path, **settings: Any) -> BertTokenizerLegacy:
    """BERT's in Python, which returns token types."""
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL, *WORDS]), encoding="utf-8")
    return BertTokenizerLegacy(folder / "vocab.txt", **settings)


def byte_tokenizer(**settings: Any) -> ByT5Tokenizer:
    """A slow one whose tokens are bytes."""
    return ByT5Tokenizer(**settings)


def texts(count: int, longest: int = 12) -> list[str]:
    """Return texts of 0 to ``longest`` words, the same ones whenever it is called."""
    lengths = ((7 * number + number * number) % (longest + 1) for number in range(count))
    return [" ".join(WORDS[(number + place) % len(WORDS)] for place in range(n)) for number, n in enumerate(lengths)]
