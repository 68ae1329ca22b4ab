"""The first option file of fine-tuning: a vision-language model learns conversations by adapters."""

import shlex
from dataclasses import dataclass
from pathlib import Path

from trainauto.commands.first_files.machine import Machine
from trainauto.commands.first_files.writing import CONTROLLER, TARGET, FirstFile, check_apart, scalar, share_aside
from trainauto.core.errors import InputError, Problem
from trainauto.core.free_memory import free_memory_bytes
from trainauto.core.units import GIB
from trainauto.core.words import counted

ROOT = "training_output"


@dataclass(frozen=True)
class Conversations:
    """What is trained on, and what is measured on.

    Attributes:
        path: a file or a folder.
        val: conversations of their own to measure on; ``None`` for a share of the others.
        count: conversations there are.
        share: of them that is set aside where ``val`` is ``None``.
    """

    path: str
    val: str | None
    count: int
    share: str


def chosen_conversations(path: str, val: str | None) -> Conversations:
    """Look at conversations, and choose how many of them are set aside where none are given to measure on.

    Raises:
        InputError: there is no such file or folder, it holds too few conversations, or one cannot be used.
    """
    from trainauto.tasks.finetune.conversation_files import read_conversations

    count = len(read_conversations(path, set_name="conversations"))
    if val is not None:
        read_conversations(val, set_name="val")
        check_apart(path, val)
    return Conversations(path, val, count, share_aside(count, path, "conversation", 0.1) if val is None else "")


def check_model(model: str) -> None:
    """Refuse a folder that is none, or that no model was saved to.

    Raises:
        InputError: a path leads to no model.
    """
    from trainauto.tasks.text.training.hub import is_local

    folder = Path(model).expanduser()
    if is_local(model) and not (folder / "config.json").is_file():
        message = f"--model {model}: there is no {'config.json in it' if folder.is_dir() else 'such folder'}"
        advice = "Name a folder that transformers saved a model to, or a name on the hub: Qwen/Qwen3-VL-2B-Instruct."
        raise InputError(Problem(message, advice=advice))


def finetune_file(name: str, model: str, conversations: Conversations, machine: Machine) -> FirstFile:
    """Return an option file that trains adapters beside a model."""
    held = counted(conversations.count, "conversation")
    summary = f"Fine-tuning: {model} learns the assistant's words of {conversations.path}, {held}."
    folder = shlex.quote(f"{ROOT}/{name}")
    commands = [
        ("doctor -opt {opt}", "is this machine fit for it?"),
        ("plan -opt {opt}", "which batches fit on which card"),
        ("train -opt {opt}", "Ctrl-C stops it and saves; --auto_resume resumes"),
        (f"report {folder} --serve --open", "its page, live"),
        (f"test {folder}", "answers to what was set aside"),
    ]
    body = _model(name, model, conversations, machine) + _training(name, machine)
    packages = ("transformers", "peft")
    return FirstFile("finetune", summary, (), body, commands, extra="finetune", packages=packages)


def _model(name: str, model: str, conversations: Conversations, machine: Machine) -> str:
    amp = "use_amp: true\t# computes in bfloat16, which cards have from Ampere on\n" if machine.has_bfloat16 else ""
    aside = f"val_share: {conversations.share}\t# of the conversations, set aside to measure on after each epoch"
    return f"""name: {scalar(name)}
task: finetune
{amp}
model:
  name: {scalar(model)}
  # max_pixels: 262144\t# reduces larger pictures to 512x512 px, keeping their shape
  # load_in_4bit: true\t# keeps weights in 4 bits; needs the package bitsandbytes

lora:\t# trains small matrices beside all linear layers but the head
  r: 8\t# their rank
  lora_alpha: 16\t# they count lora_alpha / r times

dataset:
  path: {scalar(conversations.path)}\t# chats as JSON lines, or a folder of pictures with captions
  {aside if conversations.val is None else f"val: {scalar(conversations.val)}"}

"""


def _training(name: str, machine: Machine) -> str:
    return f"""training:
  num_train_epochs: 3\t# times that each conversation is trained
  per_device_train_batch_size: 1\t# conversations of a pass at the start; memory decides from there
  gradient_accumulation_steps: 8\t# passes: a step has 8 conversations, whatever fits
  learning_rate: 1.0e-4\t# for adapters; all weights of a model want a tenth of it
  warmup_ratio: 0.05\t# share of the run in which it rises
  logging_steps: 1\t# steps between lines on the console
  output_dir: {scalar(f"{ROOT}/{name}")}

{"" if machine.card else _budget()}training_automations:
  DynamicBatchSizeOptimizer:\t# {CONTROLLER}
    target_vram_usage: 0.85\t# {TARGET}
"""


def _budget() -> str:
    """Return the section that bounds a run on a CPU; nothing where this machine does not say what it has."""
    free = free_memory_bytes()
    half = f"{max(1, free // 2 // GIB)}GiB" if free is not None else ""
    said = "what steps may add to the process: half of what was free here"
    return f"memory:\n  cpu_budget: {half}\t# {said}\n" if half else ""
