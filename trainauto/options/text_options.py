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
    """Low-rank adapters (peft): the model's own weights stay as they are, small matrices beside them are trained."""

    r: Annotated[int, Field(ge=1, le=2**16), BeforeValidator(whole)] = option(
        8, "Rank of the adapters.", reason="peft's value"
    )
    lora_alpha: Annotated[int, Field(ge=1, le=2**20), BeforeValidator(whole)] = option(
        16, "Adapters count lora_alpha / r times.", reason="twice the rank, as in most published recipes"
    )
    lora_dropout: Fraction = option(0.0, "Dropout of what goes into adapters.", reason="off")
    target_modules: list[str] = option(
        [],
        "Last parts of the names of layers that get adapters, e.g. [c_attn] of gpt2, [q_proj, v_proj] of llama.",
        reason="all linear layers but the head, as in QLoRA",
    )


class LanguageModelOptions(Section):
    """The model: made from a configuration, or loaded."""

    kind: Literal["causal", "encoder_decoder"] = option(
        "causal", "causal continues texts (gpt2, llama, ...); encoder_decoder turns a source into a target (t5, bart)."
    )
    config: dict[str, Any] | None = option(
        None,
        "Keys of a configuration of transformers, with model_type, e.g. {model_type: gpt2, n_layer: 2}: weights are "
        "random. The size of the vocabulary and special tokens are the tokenizer's.",
        reason="null: pretrained says which",
    )
    pretrained: PathText | None = option(
        None,
        "Folder of a saved model, or its name on Hugging Face's hub; a folder never asks the network.",
        reason="null: config says what to make",
    )
    attention: Literal["sdpa", "eager", "flex_attention"] = option(
        "sdpa", "How attention is computed; flex_attention needs a card.", reason="the fastest that every device has"
    )
    lora: LoraOptions | None = option(None, "Train adapters instead of the model.", reason="null: all weights learn")


class TokenizerTraining(Section):
    """A byte-level BPE, trained on the training texts and kept in the run directory."""

    vocab_size: Annotated[int, Field(ge=1, le=2**24), BeforeValidator(whole)] = option(
        8192, "Entries of the vocabulary, at most: short texts give fewer.", unit="tokens", reason="small models"
    )


class TokenizerOptions(Section):
    """What cuts texts into tokens: trained here, or loaded."""

    train: TokenizerTraining | None = option(None, "Train one on the training texts.", reason="null: pretrained")
    pretrained: PathText | None = option(
        None,
        "Folder of a saved tokenizer, or its name on Hugging Face's hub.",
        reason="null: that of model.pretrained, where train is not given",
    )


class TextSource(Section):
    """Where texts come from."""

    format: Literal["auto", "txt", "jsonl", "strings"] = option(
        "auto",
        'txt: plain text; jsonl: an object a line with "text", "prompt" and "completion", "source" and "target", or '
        '"messages" (the assistant\'s words are learned); strings: docstrings and other long strings of Python files.',
        reason="auto: by the file's name",
    )
    split: Literal["paragraphs", "lines", "files"] = option(
        "paragraphs", "What of a plain text is a sample: what stands between empty lines, a line, or the whole file."
    )
    too_long: Literal["cut", "drop", "split"] = option(
        "cut",
        "What becomes of samples above max_length: their first tokens, nothing, or (of plain texts) several samples; "
        "the log says how many there were.",
    )
    halves: bool = option(
        False, "For an encoder_decoder: the first half of a plain text is its source, the second its target."
    )


_PATH = (
    "A file of texts, a folder of them (.txt, .md, .rst, .jsonl, .ndjson), or a list. `package:NAME/PATH` means PATH "
    "inside the installed Python package NAME."
)


class TextTrainDataset(TextSource):
    """Where training texts come from."""

    path: Roots = option(..., _PATH)
    max_length: Tokens = option(
        256, "Tokens of the longest sample; of what an encoder reads.", unit="tokens", reason="small models"
    )
    max_target_length: Tokens | None = option(
        None, "Tokens of the longest target of an encoder_decoder.", unit="tokens", reason="null: max_length"
    )
    name: str = option("train", "Name of the set in messages.")
    num_worker_per_gpu: Processes = option(
        0, "Processes that make batches; 0 makes them in the training process.", reason="texts are tokenized before"
    )
    lookahead: Lookahead = option(
        2,
        "Batches drawn ahead of the step, the same for any number of workers: a larger plan acts after so many steps.",
        unit="batches",
        reason="batches of texts are made in no time",
    )


class TextValDataset(TextSource):
    """Texts to validate on: files of their own, or a share of the training texts."""

    path: Roots | None = option(None, f"{_PATH} null: share says which.")
    share: Annotated[float, Field(gt=0.0, lt=1.0)] | None = option(
        None,
        "Share of the training texts that is set aside for this set and never trained on; manual_seed says which.",
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
    """How texts are put into batches, how the model learns, and for how long."""

    total_epochs: Positive | None = option(
        None, "Length of the run; schedules count samples.", unit="passes over the training texts"
    )
    optim: Component = option(
        ...,
        "Optimizer with its arguments: Adam, AdamW, NAdam or SGD of torch, AdanScheduleFree, or one of the packages "
        "pytorch_optimizer and schedulefree by its name there, such as adan, lion, muon, prodigy, soap or "
        "AdamWScheduleFree.",
    )
    tokens_per_batch: Annotated[int, Field(ge=1, le=2**30), BeforeValidator(whole)] = option(
        2048,
        "Tokens of a step at the start of the run, of one rank, padding included; a controller goes from there.",
        unit="tokens",
        reason="fits 12 GB for most models of 100 M parameters",
    )
    packed: bool = option(
        False,
        "Lay whole texts one after another into rows, kept apart by their positions, instead of padding each to the "
        "longest of its batch; causal models only.",
        reason="neighbours by length have little padding, and long rows cost more attention",
    )
    row_length: Tokens | None = option(
        None, "With packed: tokens of a row, at least max_length.", unit="tokens", reason="null: max_length"
    )
    ema_decay: Fraction = option(
        0.0,
        "Decay a step of the moving average of weights that is validated and saved; 0 is off. A schedule-free optim "
        "has an average of its own.",
        reason="off",
    )


class TextValOptions(Section):
    """When validation runs."""

    val_enabled: bool = option(True, "Run validation: mean loss of a token, and perplexity.")
    val_freq: PositiveInt = option(1000, "Steps between validations; one more runs at the end.", unit="optimizer steps")
    tokens_per_batch: Annotated[int, Field(ge=1, le=2**30), BeforeValidator(whole)] | None = option(
        None,
        "Tokens of a batch of validation; one that does not fit is halved.",
        unit="tokens",
        reason="null: train.tokens_per_batch",
    )


class TextOptions(RunOptions):
    """One training run of a language model."""

    task: Literal["text"] = option(..., "What is learned: a language model.")
    model: LanguageModelOptions = option(..., "The model to train.")
    tokenizer: TokenizerOptions = option(TokenizerOptions(), "What cuts texts into tokens.")
    datasets: TextDatasets = option(..., "Training and validation texts.")
    train: TextTrainOptions = option(..., "Batches, optimizer, schedule, length.")
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
