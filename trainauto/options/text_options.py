"""Every key of an option file of `task: text`: type, default, unit, and why the default is what it is."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from trainauto.options.fields import (
    Component,
    FolderName,
    Fraction,
    Lookahead,
    PathText,
    PositiveInt,
    Processes,
    Roots,
    Section,
    Tokens,
    option,
    whole,
)
from trainauto.options.run_options import OF_STEPS, AveragedTraining, RunOptions

Positive = Annotated[float, Field(gt=0.0)]


class LoraOptions(Section):
    """Low-rank adapters (peft): small trained matrices beside the model's weights, which stay frozen."""

    r: Annotated[int, Field(ge=1, le=2**16), BeforeValidator(whole)] = option(
        8, "Rank of the adapters.", reason="peft's value"
    )
    lora_alpha: Annotated[int, Field(ge=1, le=2**20), BeforeValidator(whole)] = option(
        16,
        "Scale of the adapters: their output is multiplied by lora_alpha / r.",
        reason="twice the rank, as in most published recipes",
    )
    lora_dropout: Fraction = option(0.0, "Dropout on the input of adapters.", reason="off")
    target_modules: list[str] = option(
        [],
        "Layers that get adapters, by the last part of their names, e.g. [c_attn] for gpt2, [q_proj, v_proj] for "
        "llama.",
        reason="all linear layers but the head, as in QLoRA",
    )


class LanguageModelOptions(Section):
    """The model, made from a configuration or loaded."""

    kind: Literal["causal", "encoder_decoder"] = option(
        "causal",
        "`causal` continues texts (gpt2, llama, ...). `encoder_decoder` maps a source text to a target text (t5, "
        "bart).",
    )
    config: dict[str, Any] | None = option(
        None,
        "Keys of a transformers configuration, with model_type, e.g. {model_type: gpt2, n_layer: 2}. Weights start "
        "random. The tokenizer sets the vocabulary size and special tokens.",
        reason="null: pretrained names the model",
    )
    pretrained: PathText | None = option(
        None,
        "Folder of a saved model, or its name on the Hugging Face Hub. A folder never accesses the network.",
        reason="null: config describes the model",
    )
    attention: Literal["sdpa", "eager", "flex_attention"] = option(
        "sdpa", "Attention implementation; `flex_attention` needs a GPU.", reason="the fastest that every device has"
    )
    lora: LoraOptions | None = option(
        None, "Train LoRA adapters instead of the model's weights.", reason="null: train all weights"
    )


class TokenizerTraining(Section):
    """A byte-level BPE tokenizer, trained on the training texts and saved in the run directory."""

    vocab_size: Annotated[int, Field(ge=1, le=2**24), BeforeValidator(whole)] = option(
        8192,
        "Maximum size of the vocabulary; short texts give a smaller one.",
        unit="tokens",
        reason="suits small models",
    )


class TokenizerOptions(Section):
    """The tokenizer, trained here or loaded."""

    train: TokenizerTraining | None = option(
        None, "Train a tokenizer on the training texts.", reason="null: load pretrained"
    )
    pretrained: PathText | None = option(
        None,
        "Folder of a saved tokenizer, or its name on the Hugging Face Hub.",
        reason="null: that of model.pretrained, unless train is given",
    )


class TextSource(Section):
    """Where texts come from."""

    format: Literal["auto", "txt", "jsonl", "strings"] = option(
        "auto",
        'txt: plain text. jsonl: one object per line with "text", with "prompt" and "completion", with '
        '"source" and "target", or with "messages" (labels are the assistant\'s words). strings: docstrings '
        "and other long strings of Python files.",
        reason="auto: by the file name",
    )
    split: Literal["paragraphs", "lines", "files"] = option(
        "paragraphs",
        "Unit of a plain text that becomes a sample: a paragraph between empty lines, a line, or the whole file.",
    )
    too_long: Literal["cut", "drop", "split"] = option(
        "cut",
        "Treatment of samples longer than max_length. `cut` keeps their first tokens, `drop` leaves them out, and "
        "`split` makes several samples of a plain text. The log reports how many there were.",
    )
    halves: bool = option(
        False, "With encoder_decoder: use the first half of a plain text as source and the second as target."
    )


_PATH = (
    "A file of texts, a folder of them (.txt, .md, .rst, .jsonl, .ndjson), or a list. `package:NAME/PATH` means PATH "
    "inside the installed Python package NAME."
)


class TextTrainDataset(TextSource):
    """Where training texts come from."""

    path: Roots = option(..., _PATH)
    max_length: Tokens = option(
        256,
        "Maximum tokens of a sample; with encoder_decoder, of the source.",
        unit="tokens",
        reason="suits small models",
    )
    max_target_length: Tokens | None = option(
        None, "Maximum tokens of a target of an encoder_decoder.", unit="tokens", reason="null: max_length"
    )
    name: str = option("train", "Name of the set in messages.")
    num_worker_per_gpu: Processes = option(
        0,
        "Worker processes that make batches; 0 makes them in the training process.",
        reason="texts are tokenized before the run",
    )
    lookahead: Lookahead = option(
        2,
        "Batches drawn ahead of the step, whatever the number of workers. A larger plan takes effect after this "
        "many steps.",
        unit="batches",
        reason="making a batch of texts takes almost no time",
    )


class TextValDataset(TextSource):
    """Texts for validation: separate files, or a share of the training texts."""

    path: Roots | None = option(None, f"{_PATH} null: share says which.")
    share: Annotated[float, Field(gt=0.0, lt=1.0)] | None = option(
        None,
        "Share of the training texts that is held out for this set and never trained on. manual_seed decides which.",
        unit="share of the samples",
    )
    name: FolderName = option("val", "Name of the set in logs and curves.")


class TextDatasets(BaseModel):
    """Training set and validation sets (`val`, and any number of `val_*`)."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)
    __pydantic_extra__: dict[str, TextValDataset]

    train: TextTrainDataset = option(..., "Training set.")
    val: TextValDataset | None = option(None, "First validation set.")

    @property
    def validation_sets(self) -> dict[str, TextValDataset]:
        """All validation sets by key, in file order."""
        sets = {"val": self.val} if self.val else {}
        return {**sets, **(self.__pydantic_extra__ or {})}


class TextTrainOptions(AveragedTraining):
    """Batches, optimizer, schedule and length."""

    total_epochs: Positive | None = option(
        None, "Length of the run in epochs. The schedule then counts samples.", unit="passes over the training texts"
    )
    optim: Component = option(
        ...,
        "Optimizer with its arguments: Adam, AdamW, NAdam or SGD of torch, AdanScheduleFree, or an optimizer of the "
        "packages pytorch_optimizer and schedulefree by its name there, such as adan, lion, muon, prodigy, soap or "
        "AdamWScheduleFree.",
    )
    tokens_per_batch: Annotated[int, Field(ge=1, le=2**30), BeforeValidator(whole)] = option(
        2048,
        "Tokens per step and rank at the start of the run, padding included. A controller adjusts this number.",
        unit="tokens",
        reason="fits 12 GB for most models of 100 M parameters",
    )
    packed: bool = option(
        False,
        "Pack whole texts one after another into rows instead of padding each to the longest of its batch. Position "
        "ids keep them apart. Causal models only.",
        reason="texts of similar length need little padding, and attention costs more over long rows",
    )
    row_length: Tokens | None = option(
        None, "With packed: tokens per row, at least max_length.", unit="tokens", reason="null: max_length"
    )
    ema_decay: Fraction = option(
        0.0,
        "Decay per step of the moving average of weights, which is validated and saved. 0 disables it. A "
        "schedule-free optim keeps its own average.",
        reason="off",
    )


class TextValOptions(Section):
    """When validation runs."""

    val_enabled: bool = option(True, "Run validation: mean loss per token, and perplexity.")
    val_freq: PositiveInt = option(
        1000, "Steps between two validations; another one runs at the end.", unit="optimizer steps"
    )
    tokens_per_batch: Annotated[int, Field(ge=1, le=2**30), BeforeValidator(whole)] | None = option(
        None,
        "Tokens of a validation batch. A batch that runs out of memory is halved.",
        unit="tokens",
        reason="null: train.tokens_per_batch",
    )


class TextOptions(RunOptions):
    """One training run of a language model."""

    task: Literal["text"] = option(..., "Task to train for: a language model.")
    model: LanguageModelOptions = option(..., "The model to train.")
    tokenizer: TokenizerOptions = option(TokenizerOptions(), "Tokenizer, trained here or loaded.")
    datasets: TextDatasets = option(..., "Training and validation texts.")
    train: TextTrainOptions = option(..., "Batches, optimizer, schedule and length.")
    val: TextValOptions = option(TextValOptions(), "Validation.")

    @property
    def loading(self) -> tuple[int, int]:
        """Processes that make samples, and batches that are drawn ahead of the step."""
        return self.datasets.train.num_worker_per_gpu, self.datasets.train.lookahead

    def of_steps(self, world_size: int) -> dict[str, Any]:
        """Return the options that the memory of a step depends on."""
        train = {"optim", "ema_decay", "grad_clip", "packed", "row_length"}
        included: dict[str, Any] = {
            **dict.fromkeys(("task", "model", *OF_STEPS), True),
            "train": train,
            "datasets": {"train": {"max_length"}},
        }
        return self.model_dump(mode="json", include=included) | self.of_sums(world_size)


def row_width(options: TextOptions) -> int:
    """Return the tokens of the widest row there can be: what the tokens of a batch are multiples of, at most."""
    train = options.datasets.train
    if options.train.packed:
        return options.train.row_length or train.max_length
    return train.max_length + (_target_length(options) if options.model.kind == "encoder_decoder" else 0)


def _target_length(options: TextOptions) -> int:
    train = options.datasets.train
    return train.max_target_length or train.max_length
