"""The first option file of a language model: texts, of which a share is set aside to validate on."""

import shlex
from dataclasses import dataclass

from trainauto.commands.first_files.machine import Machine
from trainauto.commands.first_files.writing import (
    CONTROLLER,
    GOODPUT,
    LIMIT,
    TARGET,
    FirstFile,
    check_apart,
    scalar,
    share_aside,
)
from trainauto.core.words import counted
from trainauto.tasks.text.training.text_files import TextFormat, TextSplit, read_texts

HELP_TEXTS = "package:pydoc_data/topics.py"
"""What ``help('assert')`` shows: texts that ship with Python."""


SPLITS: dict[TextSplit, str] = {
    "paragraphs": "a sample is what stands between empty lines; also: lines, files",
    "lines": "a sample is a line; also: paragraphs, files",
}
"""Of plain texts, in the order in which they are tried, with what is said of them."""


@dataclass(frozen=True)
class Texts:
    """What is trained on, and what is validated on.

    Attributes:
        path: value of ``path`` of the training set.
        format: how it is read.
        split: what of a plain text is a sample.
        val: texts of their own to validate on; ``None`` for a share of the others.
        count: samples there are.
        share: of them that is set aside where ``val`` is ``None``.
    """

    path: str
    format: TextFormat
    split: TextSplit
    val: str | None
    count: int
    share: str


def chosen_texts(path: str | None, val: str | None) -> Texts:
    """Look at texts, and choose what of them a sample is, and how many are set aside where none validate.

    Raises:
        InputError: there is no such file or folder, or it holds too few texts.
    """
    form: TextFormat = "strings" if path is None else "auto"
    path = path or HELP_TEXTS
    counts = {split: len(read_texts(path, set_name="texts", file_format=form, split=split)) for split in SPLITS}
    split: TextSplit = "lines" if counts["paragraphs"] < 2 else "paragraphs"
    if val is not None:
        read_texts(val, set_name="val", split=split)
        check_apart(path, val)
    share = share_aside(counts[split], path, "text") if val is None else ""
    return Texts(path, form, split, val, counts[split], share)


def text_file(name: str, texts: Texts, machine: Machine) -> FirstFile:
    """Return an option file that trains a GPT from random weights."""
    own = "texts that ship with Python" if texts.path == HELP_TEXTS else texts.path
    summary = f"A language model learns {own}, from random weights: {counted(texts.count, 'text')}."
    commands = [
        ("doctor -opt {opt}", "is this machine fit for it?"),
        ("plan -opt {opt}", "which batches fit on which card"),
        ("train -opt {opt}", "Ctrl-C stops it and saves; --auto_resume resumes"),
        (f"report {shlex.quote(f'experiments/{name}')} --serve --open", "its page, live"),
    ]
    # The texts that ship are few: large batches of a large model would leave a run too few steps to learn in.
    is_large = machine.card != "" and texts.path != HELP_TEXTS
    max_length = 512 if is_large else 128
    body = _model(name, machine, is_large) + _sets(texts, max_length) + _training(machine, is_large)
    packages = ("transformers", "peft")
    return FirstFile("text", summary, (), body, commands, extra="huggingface", packages=packages)


def _model(name: str, machine: Machine, is_large: bool) -> str:
    amp = "use_amp: true\t# computes in bfloat16, which cards have from Ampere on\n" if machine.has_bfloat16 else ""
    sizes = "n_embd: 512, n_layer: 8, n_head: 8, n_positions: 512"
    sizes = sizes if is_large else "n_embd: 128, n_layer: 2, n_head: 4, n_positions: 128"
    return f"""name: {scalar(name)}\t# runs go to experiments/{name}
task: text
{amp}
model:
  kind: causal
  # In place of config, `pretrained: FOLDER` continues from a model that transformers saved.
  config: {{ model_type: gpt2, {sizes} }}

tokenizer:
  train: {{ vocab_size: {16384 if is_large else 2048} }}\t# tokens; it learns them from the texts

"""


def _sets(texts: Texts, max_length: int) -> str:
    of_python = "    format: strings\t# the long strings of a Python file\n"
    val = f"share: {texts.share}\t# of the training texts, never trained on"
    if texts.val is not None:
        val = f"path: {scalar(texts.val)}\n    split: {texts.split}"
    return f"""datasets:
  train:
    path: {scalar(texts.path)}\t# a file or folder: .txt, .md, .rst, .jsonl
{of_python if texts.format == "strings" else ""}    split: {texts.split}\t# {SPLITS[texts.split]}
    max_length: {max_length}\t# tokens of the longest sample
    too_long: split\t# longer texts become several samples
  val:
    {val}

"""


def _training(machine: Machine, is_large: bool) -> str:
    tokens, rate, frequency = (8192, "6e-4", 500) if is_large else (2048, "3e-3", 100)
    return f"""train:
  total_epochs: 6\t# times that each text is trained
  optim: {{ type: AdamW, lr: {rate}, weight_decay: 0.01 }}
  scheduler: {{ type: cosine, end_factor: 0.05 }}\t# the rate falls to 5 % of it
  warmup_ratio: 0.05\t# share of the run in which it rises
  grad_clip: 1.0\t# largest gradient norm
  tokens_per_batch: {tokens}\t# of a step at the start; the controller goes on from there

val:
  val_freq: {frequency}\t# steps between validations

logger:
  print_freq: 50\t# steps between lines on the console
  save_checkpoint_freq: {frequency}\t# steps between checkpoints; a resume begins at the last one

{"" if machine.card else _BUDGET}training_automations:
  DynamicBatchSizeOptimizer:\t# {CONTROLLER}
{"" if machine.card else _GOODPUT}    target_vram_usage: 0.85\t# {TARGET if machine.card else LIMIT}
    adjustment_frequency: {100 if is_large else 25}\t# steps between its decisions
    max_tokens: {tokens * (16 if is_large else 2)}\t# of a step; larger ones leave a short run too few steps
"""


_GOODPUT = f"    objective: goodput\t# {GOODPUT}\n"
_BUDGET = """memory:
  cpu_budget: 192MiB\t# what steps may add to the process, enforced on Linux; larger batches need more
"""
