"""Tokenizers of language models: trained on the texts themselves, or taken from a folder or the hub."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from trainauto.core.errors import InputError, Problem
from trainauto.core.files import write_atomically
from trainauto.distributed.communicator import SINGLE_PROCESS, Communicator
from trainauto.tasks.text.training.hub import as_written_for_hub, hub_errors, is_local

logger = logging.getLogger(__name__)

PAD, END_OF_TEXT, END_OF_TURN = "<|pad|>", "<|endoftext|>", "<|end|>"
ROLES = ("<|system|>", "<|user|>", "<|assistant|>")
SPECIAL_TOKENS = (PAD, END_OF_TEXT, END_OF_TURN, *ROLES)
"""Of a trained tokenizer, in the order of their ids."""

BYTES = 256
SMALLEST_VOCABULARY = BYTES + len(SPECIAL_TOKENS)
"""Every byte is a token, so that no text is unknown."""

TOKENIZER_CONFIG = "tokenizer_config.json"
"""File of transformers in a tokenizer's folder."""

CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>\n{{ message['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
"""How chats become texts with a trained tokenizer; one that is loaded brings its own."""


@dataclass(frozen=True)
class Vocabulary:
    """What a model has to know of a tokenizer.

    Attributes:
        size: number of tokens.
        pad: id of the token that fills rows; it stands nowhere else.
        end: id of the token that ends a text.
        begin: id of the token that begins one; ``None`` where none does.
        source: what it is of, for messages.
    """

    size: int
    pad: int
    end: int
    begin: int | None = None
    source: str = "the tokenizer"

    @classmethod
    def of(cls, tokenizer: Any, source: str = "the tokenizer") -> "Vocabulary":
        """Return that of a tokenizer; one without a token for padding fills rows with that which ends a text.

        Raises:
            InputError: no token of it ends a text.
        """
        end = tokenizer.eos_token_id
        if end is None:
            advice = "Set its eos_token, or take another one."
            raise InputError(Problem(f"{source} has no token that ends a text", advice=advice))
        pad = tokenizer.pad_token_id
        return cls(len(tokenizer), end if pad is None else pad, end, tokenizer.bos_token_id, source)

    @classmethod
    def of_trained(cls, vocab_size: int) -> "Vocabulary":
        """Return what :func:`train_tokenizer` makes of enough text, without training it: for plans."""
        return cls(vocab_size, SPECIAL_TOKENS.index(PAD), SPECIAL_TOKENS.index(END_OF_TEXT))


def train_tokenizer(
    texts: Iterable[str], vocab_size: int, *, argument: str = "vocab_size", ranks: Communicator = SINGLE_PROCESS
) -> Any:
    """Train a byte-level BPE tokenizer; the same texts give the same one.

    R. Sennrich et al., "Neural Machine Translation of Rare Words with Subword Units", https://arxiv.org/abs/1508.07909;
    on bytes as of GPT-2.

    Args:
        texts: to count pairs in.
        vocab_size: most tokens, at least :data:`SMALLEST_VOCABULARY`.
        argument: what errors blame.
        ranks: all of them ask; the first one trains, and sends it to the others.

    Returns:
        A ``PreTrainedTokenizerFast`` that adds nothing to a text by itself.

    Raises:
        InputError: there is no room for all bytes.
    """
    if vocab_size < SMALLEST_VOCABULARY:
        message = f"a vocabulary of {vocab_size} tokens has no room for {BYTES} bytes and {len(SPECIAL_TOKENS)} others"
        advice = f"Take at least {SMALLEST_VOCABULARY}; 2048 suits a small set of texts."
        raise InputError(Problem(message, advice=advice, argument=argument))
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    made = ranks.broadcast_object(lambda: _trained(texts, vocab_size).to_str())
    fast = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(made),
        pad_token=PAD,
        eos_token=END_OF_TEXT,
        additional_special_tokens=[END_OF_TURN, *ROLES],
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = CHAT_TEMPLATE
    if len(fast) < vocab_size:
        logger.info("the texts give a vocabulary of %d tokens; %d were asked for", len(fast), vocab_size)
    return fast


def _trained(texts: Iterable[str], vocab_size: int) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def load_tokenizer(source: str | Path, *, argument: str = "pretrained") -> Any:
    """Load a tokenizer from a folder, which never asks the network, or by its name on the hub.

    Args:
        source: the folder or the name.
        argument: what errors blame.

    Raises:
        InputError: there is none.
    """
    with hub_errors(source, "tokenizer", argument):
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(as_written_for_hub(source), local_files_only=is_local(source))


def save_tokenizer(tokenizer: Any, folder: Path) -> None:
    """Write a tokenizer for :func:`load_tokenizer`; ``folder`` may be that of a model.

    Each file is whole or not there, and the one that tells that there is a tokenizer comes last.
    """
    with TemporaryDirectory() as made:
        tokenizer.save_pretrained(made)
        files = (file for file in sorted(Path(made).rglob("*")) if file.is_file())
        for file in sorted(files, key=lambda file: file.name == TOKENIZER_CONFIG):
            place = folder / file.relative_to(made)
            place.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(place, partial(_copy, file))


def holds_tokenizer(folder: Path) -> bool:
    """Say whether :func:`save_tokenizer` has written one into a folder."""
    return (folder / TOKENIZER_CONFIG).is_file()


def _copy(source: Path, place: Path) -> None:
    place.write_bytes(source.read_bytes())


def special_ids(vocabulary: Vocabulary) -> Mapping[str, int | None]:
    """Return the special tokens as keys of a model's configuration.

    A token that ends texts and fills rows, too, is none for padding there: embeddings of padding are not learned.
    """
    pad = vocabulary.pad if vocabulary.pad != vocabulary.end else None
    return {"pad_token_id": pad, "eos_token_id": vocabulary.end, "bos_token_id": vocabulary.begin}
