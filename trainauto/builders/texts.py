"""Tokenizer and texts from options."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainauto.builders.components import locate_errors
from trainauto.core.errors import InputError, Problem
from trainauto.core.json_text import read_object, to_json
from trainauto.distributed.communicator import SINGLE_PROCESS, Communicator
from trainauto.options.load import LoadedOptions
from trainauto.options.text_options import TextOptions, TextTrainDataset, TextValDataset
from trainauto.storage.run_directory import RunDirectory
from trainauto.tasks.text.training.encoding import encode_samples
from trainauto.tasks.text.training.text_dataset import TextDataset
from trainauto.tasks.text.training.text_files import read_texts
from trainauto.tasks.text.training.text_samples import TextSample, set_aside
from trainauto.tasks.text.training.tokenizers import Vocabulary, holds_tokenizer, load_tokenizer, train_tokenizer

Loaded = LoadedOptions[TextOptions]


@dataclass(frozen=True)
class Texts:
    """What a language model reads.

    Attributes:
        tokenizer: of transformers.
        vocabulary: what the model has to know of it.
        train_set: what is trained on.
        val_sets: what is validated on, padded.
    """

    tokenizer: Any
    vocabulary: Vocabulary
    train_set: TextDataset
    val_sets: Sequence[TextDataset]


def kept_model(directory: RunDirectory) -> Path:
    """Return the folder of a run that holds its tokenizer, the model's configuration and, in the end, its weights."""
    return directory.path / "model"


def build_texts(loaded: Loaded, earlier: RunDirectory | None = None, ranks: Communicator = SINGLE_PROCESS) -> Texts:
    """Read the texts, and cut them into tokens.

    Args:
        loaded: the option file.
        earlier: the run that is resumed, whose tokenizer is this one's.
        ranks: have the first one's tokenizer, where one is trained.

    Raises:
        InputError: files or tokenizer cannot be used.
    """
    options = loaded.options
    samples = _read(loaded)
    tokenizer = _tokenizer(loaded, samples["train"], earlier, ranks)
    with locate_errors(loaded, ("tokenizer",)):
        vocabulary = Vocabulary.of(tokenizer)
    row = (options.train.row_length or options.datasets.train.max_length) if options.train.packed else None
    sets = {}
    for key, of_set in samples.items():
        sets[key] = _encoded(loaded, key, of_set, tokenizer, vocabulary, row if key == "train" else None)
    return Texts(tokenizer, vocabulary, sets.pop("train"), list(sets.values()))


def _read(loaded: Loaded) -> dict[str, list[TextSample]]:
    """Return the samples of each set by key, the training set first."""
    datasets, train = loaded.options.datasets, loaded.options.datasets.train
    samples = {"train": _of_files(loaded, "train", train, train.path)}
    for key, chosen in datasets.validation_sets.items() if loaded.options.val.val_enabled else ():
        with locate_errors(loaded, ("datasets", key)):
            if chosen.share is not None:
                samples["train"], samples[key] = set_aside(samples["train"], chosen.share, loaded.options.manual_seed)
            elif chosen.path is not None:
                samples[key] = _of_files(loaded, key, chosen, chosen.path)
    return samples


def _of_files(
    loaded: Loaded, key: str, chosen: TextTrainDataset | TextValDataset, roots: str | Sequence[str]
) -> list[TextSample]:
    with locate_errors(loaded, ("datasets", key)):
        return read_texts(roots, set_name=chosen.name, file_format=chosen.format, split=chosen.split)


def _tokenizer(loaded: Loaded, samples: Sequence[TextSample], earlier: RunDirectory | None, ranks: Communicator) -> Any:
    """Return the tokenizer: that of an earlier run, a trained one, or that of a folder or the hub."""
    options = loaded.options
    if earlier is not None and keeps_tokenizer(earlier, ranks):
        kept = load_tokenizer(kept_model(earlier))
        _check_same(loaded, kept, ranks.broadcast_object(lambda: read_object(earlier.config).get("tokenizer")))
        return kept
    if options.tokenizer.train is not None:
        with locate_errors(loaded, ("tokenizer", "train")):
            texts = (text for sample in samples for text in sample.texts)
            return train_tokenizer(texts, options.tokenizer.train.vocab_size, ranks=ranks)
    return pretrained_tokenizer(loaded)


def _check_same(loaded: Loaded, kept: Any, before: Any) -> None:
    """Refuse another tokenizer than that of the run which is resumed; the same one may lie elsewhere.

    Args:
        loaded: the option file.
        kept: the tokenizer of the run.
        before: the section of its options, where it is known.

    Raises:
        InputError: the texts would be cut otherwise, and the weights mean other tokens.
    """
    now = loaded.options.tokenizer.model_dump(mode="json")
    if before in (None, now):
        return
    if loaded.options.tokenizer.train is None and pretrained_tokenizer(loaded).get_vocab() == kept.get_vocab():
        return
    with locate_errors(loaded, ("tokenizer",)):
        message = "the run that is resumed has another tokenizer, which its weights are of"
        advice = f"Write it as it was, {to_json(before)}, or leave --auto_resume out: a run of its own begins."
        raise InputError(Problem(message, advice=advice))


def keeps_tokenizer(earlier: RunDirectory, ranks: Communicator) -> bool:
    """Whether a run has kept its tokenizer: the first rank's word, as file systems do not show all the same at once."""
    kept: bool = ranks.broadcast_object(lambda: holds_tokenizer(kept_model(earlier)))
    return kept


def pretrained_tokenizer(loaded: Loaded) -> Any:
    """Load the tokenizer that the option file names, or that of its model.

    Raises:
        InputError: there is none.
    """
    options = loaded.options
    source, path = options.tokenizer.pretrained, ("tokenizer",)
    if source is None:
        source, path = options.model.pretrained or "", ("model",)
    with locate_errors(loaded, path):
        return load_tokenizer(source)


def _encoded(
    loaded: Loaded,
    key: str,
    samples: Sequence[TextSample],
    tokenizer: Any,
    vocabulary: Vocabulary,
    row_length: int | None,
) -> TextDataset:
    options = loaded.options
    train = options.datasets.train
    chosen = train if key == "train" else options.datasets.validation_sets[key]
    source = train if getattr(chosen, "share", None) is not None else chosen
    with locate_errors(loaded, ("datasets", key)):
        encoded = encode_samples(
            samples,
            tokenizer,
            vocabulary,
            kind=options.model.kind,
            max_length=train.max_length,
            max_target_length=train.max_target_length,
            too_long=source.too_long,
            halves=source.halves,
            set_name=chosen.name,
        )
    with locate_errors(loaded, ("train",)):
        return TextDataset(chosen.name, encoded, options.model.kind, row_length)


def vocabulary_facts(vocabulary: Vocabulary) -> Mapping[str, int | None]:
    """Return a vocabulary as plain values."""
    return {name: getattr(vocabulary, name) for name in ("size", "pad", "end", "begin")}


def planned_vocabulary(loaded: Loaded, known: Mapping[str, int | None] | None) -> Vocabulary:
    """Return the vocabulary without reading texts: what is known of it, or what the option file says.

    Raises:
        InputError: the tokenizer cannot be loaded.
    """
    if known is not None:
        size, pad, end = (int(known[name] or 0) for name in ("size", "pad", "end"))
        return Vocabulary(size, pad, end, known["begin"])
    if loaded.options.tokenizer.train is not None:
        return Vocabulary.of_trained(loaded.options.tokenizer.train.vocab_size)
    return Vocabulary.of(pretrained_tokenizer(loaded))
