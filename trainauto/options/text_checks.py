"""Options of language models that are fine alone and impossible together, each one small pure check."""

from collections.abc import Iterator

from trainauto.core.words import counted
from trainauto.options.checks import CombinationChecks, averages_there_are, names_differ, warmup_ends
from trainauto.options.overrides import LENGTHS
from trainauto.options.source_locations import KeyPath, dotted
from trainauto.options.text_options import (
    TextDatasets,
    TextOptions,
    TextSource,
    TextTrainDataset,
    TextValDataset,
    row_width,
)
from trainauto.options.validation_errors import Finding

_CHECKS = CombinationChecks(TextOptions)
_reads = _CHECKS.reads
impossible_texts = _CHECKS.findings

OF_FILES = frozenset(TextSource.model_fields)
"""Keys of a set that say how its files are read."""


def text_sets(datasets: TextDatasets) -> Iterator[tuple[KeyPath, TextTrainDataset | TextValDataset]]:
    """Iterate over all sets with their paths in the file, the training set first."""
    yield ("datasets", "train"), datasets.train
    for key, dataset in datasets.validation_sets.items():
        yield ("datasets", key), dataset


@_reads("model")
def model_from_one_place(options: TextOptions) -> Iterator[Finding]:
    """A model is made, or it is loaded."""
    model = options.model
    if model.config is not None and model.pretrained is not None:
        message = "the model is given twice, as config and as pretrained"
        yield Finding(("model", "pretrained"), message, "Remove one.", at_key=True)
    if model.config is None and model.pretrained is None:
        advice = "Add config: {model_type: gpt2, ...} (from scratch), or pretrained: a folder or a name on the hub."
        yield Finding(("model",), "the model has neither config nor pretrained", advice, at_key=True)
    if model.config is not None and not isinstance(model.config.get("model_type"), str):
        advice = "Add model_type, the kind of model as transformers calls it, e.g. model_type: gpt2."
        yield Finding(("model", "config"), "config does not say which kind of model it is", advice, at_key=True)


_MOST_LAYERS, _MOST_ELSE = 4096, 2**30
_SIZES = frozenset(
    ("n_embd", "n_head", "n_positions", "hidden_size", "intermediate_size", "max_position_embeddings", "vocab_size")
) | {"num_attention_heads", "num_key_value_heads", "d_model", "d_ff", "d_kv", "num_heads"}
"""Keys of configurations that are 1 or more in any model."""


@_reads("model")
def model_that_can_be_made(options: TextOptions) -> Iterator[Finding]:
    """Layers are made one after another: to count to a hundred million takes days."""
    for key, value in (options.model.config or {}).items():
        most = _MOST_LAYERS if "layer" in key else _MOST_ELSE
        if isinstance(value, int) and not isinstance(value, bool) and value > most:
            yield Finding(("model", "config", key), f"{key} is above {most}, which no model has", "Write less.")
        elif "layer" in key and isinstance(value, int) and value < 0:
            yield Finding(("model", "config", key), f"{key} is {value}, and a model has layers", "Write 1 or more.")
        elif key in _SIZES and isinstance(value, int) and value < 1:
            yield Finding(("model", "config", key), f"{key} is {value}, which no model has", "Write 1 or more.")


@_reads("model", "tokenizer")
def tokenizer_from_one_place(options: TextOptions) -> Iterator[Finding]:
    """A tokenizer is trained, or loaded, or comes with the model."""
    chosen = options.tokenizer
    if chosen.train is not None and chosen.pretrained is not None:
        message = "the tokenizer is given twice, as train and as pretrained"
        yield Finding(("tokenizer", "pretrained"), message, "Remove one.", at_key=True)
    if chosen.train is None and chosen.pretrained is None and options.model.pretrained is None:
        advice = (
            "Add tokenizer: {train: {vocab_size: 8192}}, or tokenizer: {pretrained: a folder or a name on the hub}."
        )
        path: KeyPath = ("tokenizer",) if "tokenizer" in options.model_fields_set else ("model",)
        yield Finding(path, "nothing says what cuts texts into tokens", advice, at_key=True)


@_reads("model", "device")
def attention_of_the_device(options: TextOptions) -> Iterator[Finding]:
    """Flex attention has no backward pass on a CPU."""
    if options.model.attention == "flex_attention" and options.device == "cpu":
        message = "flex_attention has no backward pass on a CPU"
        yield Finding(("model", "attention"), message, "Write attention: sdpa.")


@_reads("train")
def one_length(options: TextOptions) -> Iterator[Finding]:
    """A run has one length, in one unit."""
    given = [key for key in LENGTHS if getattr(options.train, key)]
    if len(given) > 1:
        message = f"the run has {counted(len(given), 'length')}, {' and '.join(given)}"
        advice = "Keep one: stop and schedules follow it."
        yield Finding(("train", given[0]), message, advice, at_key=True)
    if not given:
        advice = "Add total_epochs (passes over the texts), total_samples or total_iter (optimizer steps) to train."
        yield Finding(("train",), "the run has no length", advice, at_key=True)


@_reads("train")
def averages_begin_somewhere(options: TextOptions) -> Iterator[Finding]:
    """How an average begins is said of one that there is."""
    train = options.train
    yield from averages_there_are(train, train.ema_decay, train.optim, {"optim": train.optim})


@_reads("train")
def one_warmup(options: TextOptions) -> Iterator[Finding]:
    """Warm-up is given once, in the unit of the run, and ends before the run does."""
    yield from warmup_ends(options.train, counts_samples=not options.train.total_iter)


@_reads("train", "datasets", "model")
def rows_hold_samples(options: TextOptions) -> Iterator[Finding]:
    """Whole texts go into rows, and rows into batches."""
    train, longest = options.train, options.datasets.train.max_length
    if train.packed and options.model.kind != "causal":
        message = f"packed rows are for causal models, and this one is {options.model.kind}"
        yield Finding(("train", "packed"), message, "Write packed: false.")
    if train.row_length is not None and not train.packed:
        advice = "Write packed: true, or remove row_length."
        yield Finding(("train", "row_length"), "row_length is that of packed rows, and packed is false", advice)
    if train.packed and train.row_length is not None and train.row_length < longest:
        message = f"rows of {train.row_length} tokens cannot hold samples of {longest}"
        yield Finding(("train", "row_length"), message, "Write a larger row_length, or a smaller max_length.")
    widest = row_width(options)
    if train.tokens_per_batch < widest:
        message = f"{train.tokens_per_batch} tokens hold no row of {widest}"
        advice = f"Write tokens_per_batch: {widest} or more, or a smaller max_length."
        is_written = "tokens_per_batch" in train.model_fields_set
        path: KeyPath = ("train", "tokens_per_batch") if is_written else ("datasets", "train", "max_length")
        yield Finding(path, message, advice)


@_reads("datasets")
def workers_within_lookahead(options: TextOptions) -> Iterator[Finding]:
    """More workers than batches drawn ahead would idle."""
    train = options.datasets.train
    if train.num_worker_per_gpu > train.lookahead:
        ahead = counted(train.lookahead, "batch")
        message = f"{train.num_worker_per_gpu} workers cannot all be busy with {ahead} drawn ahead"
        advice = f"Write lookahead: {train.num_worker_per_gpu}, or fewer workers."
        yield Finding(("datasets", "train", "num_worker_per_gpu"), message, advice)


@_reads("datasets")
def texts_from_one_place(options: TextOptions) -> Iterator[Finding]:
    """Sets have a path, or (one of those for validation) a share of the training texts."""
    shared = [path for path, dataset in text_sets(options.datasets) if getattr(dataset, "share", None) is not None]
    for path, dataset in text_sets(options.datasets):
        names = [dataset.path] if isinstance(dataset.path, str) else dataset.path
        if path in shared and names is not None:
            message = f"{dotted(path)} is given twice, as path and as share of the training texts"
            yield Finding((*path, "share"), message, "Remove one.", at_key=True)
        elif path in shared and (own := OF_FILES & dataset.model_fields_set):
            key = next(key for key in type(dataset).model_fields if key in own)
            message = f"{key} is that of files, and {dotted(path)} is a share of the training texts"
            yield Finding((*path, key), message, "Remove it: what holds for these holds for their share.", at_key=True)
        elif path not in shared and names is None:
            advice = "Add path: a file or a folder, or share: 0.1, a tenth of the training texts."
            yield Finding(path, f"{dotted(path)} has no texts", advice, at_key=True)
        elif path not in shared and not all(names or [""]):
            advice = "Write the path of a file or a folder of texts."
            yield Finding((*path, "path"), "path names nothing", advice, at_key=True)
    for path in shared[1:]:
        message = f"{dotted(shared[0])} takes a share of the training texts already"
        yield Finding((*path, "share"), message, "Give this set a path of its own.", at_key=True)


@_reads("datasets", "model")
def halves_have_a_decoder(options: TextOptions) -> Iterator[Finding]:
    """Only encoder-decoders read a half and write the other."""
    for path, dataset in text_sets(options.datasets):
        if dataset.halves and options.model.kind == "causal":
            message = "a causal model learns whole texts, not one half from the other"
            yield Finding((*path, "halves"), message, "Remove halves, or write kind: encoder_decoder.")


@_reads("datasets", "model")
def targets_have_a_decoder(options: TextOptions) -> Iterator[Finding]:
    """Only encoder-decoders have targets."""
    if options.datasets.train.max_target_length is not None and options.model.kind == "causal":
        path = ("datasets", "train", "max_target_length")
        yield Finding(path, "a causal model has no targets beside its texts", "Remove max_target_length.", at_key=True)


@_reads("datasets")
def sets_differ(options: TextOptions) -> Iterator[Finding]:
    """Names of sets become names of curves."""
    yield from names_differ(text_sets(options.datasets))


@_reads("datasets", "val")
def validation_has_texts(options: TextOptions) -> Iterator[Finding]:
    """Validation that was asked for needs texts."""
    is_requested = options.val.val_enabled and bool(options.val.model_fields_set)
    if is_requested and not options.datasets.validation_sets:
        advice = "Add datasets.val, or write val_enabled: false."
        yield Finding(("val",), "there are validation options, and no validation set", advice, at_key=True)
