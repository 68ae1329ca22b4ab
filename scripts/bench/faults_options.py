"""Option files of enemies and of beginners: what is refused, and whether the refusal names the key and the way out."""

import copy
import json
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from faults_forks import run
from faults_tasks import OPTION_FILE, command, write_options
from faults_verdicts import BLOCK, SURVIVED, WRONG, Bench, Fault, Verdict, block_of, plainly_bad, refused, shown

REFUSED: Mapping[str, Sequence[tuple[str, Any]]] = {
    "sr": (
        ("datasets:train:lq_size", 10**9),
        ("datasets:train:lq_size", 65536),
        ("datasets:train:batch_size_per_gpu", 2**62),
        ("datasets:train:batch_size_per_gpu", 10**9),
        ("datasets:train:accum_iter", 50_000),
        ("datasets:train:lookahead", 10**9),
        ("datasets:train:num_worker_per_gpu", 10**9),
        ("datasets:train:dataroot_gt", "a/" * 2500),
        ("datasets:train:dataroot_gt", "a\0b"),
        ("datasets:train:dataroot_gt", "a\nb"),
        ("datasets:train:dataroot_gt", "/dev/zero"),
        ("network_g:num_conv", 10**8),
        ("network_g:num_feat", -1),
        ("num_threads", 10**9),
        ("scale", 10**30),
        ("manual_seed", 2**70),
        ("train:optim_g:lr", float("inf")),
        ("train:optim_g:lr", float("nan")),
        ("train:optim_g:lr", -1.0),
        ("train:optim_g:betas", [0.9, float("nan")]),
        ("train:grad_clip", float("nan")),
        ("train:ema_decay", 1.0),
        ("train:total_iter", 10**40),
        ("train:" + "k" * 1_000_000, 1),
        ("val:metrics:psnr:type", "x" * 100_000),
        ("path:experiments_root", "a" * 5000),
        ("path:pretrain_network_g", "a" * 5000),
        ("memory:budget", "1KiB"),
        ("memory:budget", "9" * 400 + "GiB"),
        ("plugins", ["a" * 5000]),
        ("training_automations:AdaptiveGradientClipping:percentile", 0.9),
        ("training_automations:DynamicBatchSizeOptimizer:min_batch_size", 2**62),
        ("name", "../../x"),
    ),
    "text": (
        ("train:tokens_per_batch", 2**62),
        ("train:optim:lr", float("inf")),
        ("datasets:train:max_length", 10**12),
        ("datasets:train:path", "a\0b"),
        ("model:config:n_embd", 10**9),
        ("model:config:n_layer", -3),
        ("tokenizer:train:vocab_size", 10**12),
        ("train:total_epochs", float("nan")),
    ),
    "multitask": (
        ("train:base_batch_size", 2**62),
        ("train:learning_rate", float("nan")),
        ("model:hidden_size", 10**9),
        ("datasets:train:samples", 10**15),
        ("tokenizer:train:vocab_size", "many"),
    ),
    "finetune": (
        ("training:per_device_train_batch_size", 2**62),
        ("training:gradient_accumulation_steps", 10**12),
        ("training:learning_rate", float("inf")),
        ("training:num_train_epochs", 10**400),
        ("model:name", "a" * 5000),
        ("dataset:path", "a\0b.jsonl"),
        ("lora:r", 10**9),
    ),
}
"""Values that no run can have, by task: each is to be refused at its key."""

HINTS: Sequence[tuple[str, Any, str]] = (
    ("datasets:train:dataroot_HR", "gt", "dataroot_gt"),
    ("datasets:train:dataroot_LR", "gt", "dataroot_lq"),
    ("datasets:train:HR_size", 32, "lq_size: 16"),
    ("datasets:train:mode", "LRHROTF", "type: GTImageDataset"),
    ("train:use_swa", True, "ema_decay"),
    ("train:warmup_iter", -1, "Remove it"),
    ("train:warmup_iter", 30, "warmup_steps"),
    ("train:lr", 1e-4, "optim_g"),
    ("train:pixel_opt", {"type": "L1Loss"}, "losses"),
    ("network_g:type", "compakt", "compact"),
    ("datasets:valid", {"dataroot_gt": "val"}, "val"),
    ("path:pretrain_network_g", "experiments/none", "pretrain_network_g"),
)
"""Keys of other programs, near misses, and what the refusal has to say of each."""

ODD_FILES: Mapping[str, tuple[str, str]] = {
    "a missing space": ("train:\n  total_iter:40\n", r"run\.yml:\d+"),
    "a tab": ("train:\n\ttotal_iter: 40\n", "tab"),
    "a key twice": ("name: a\nname: b\n", "name"),
    "nothing": ("", "no options"),
    "NULs": ("name: a\0b\n", "run.yml"),
    "60 brackets": ("name: " + "[" * 60, "run.yml"),
    "100,000 brackets": ("name: " + "[" * 100_000, "run.yml"),
    "aliases that multiply": (
        "a: &a [x, x, x, x, x, x, x, x, x]\n"
        + "".join(f"{b}: &{b} [{', '.join(['*' + a] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)),
        "run.yml",
    ),
    "an alias of itself": ("a: &a [*a]\n", "run.yml"),
    "TOML": ('[train]\ntotal_iter = 40\nname = "x"\n', "YAML|yml|TOML"),
}
COMMANDS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "a card that is not known": (("plan", "-opt", OPTION_FILE, "--card", "GTX 1080 Ti"), "--vram|11"),
    "a file that is not there": (("train", "-opt", "none.yml"), "none.yml"),
    "a folder as the file": (("train", "-opt", "gt"), "gt"),
    "a key that is forced and not known": (
        ("train", "-opt", OPTION_FILE, "--force_yml", "train:totl_iter=3"),
        "total_",
    ),
    "a run that is not there": (("report", "experiments/none"), "experiments"),
    "a command that is not known": (("trian",), "train"),
}


def with_value(options: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Return options with a value at a path."""
    changed = copy.deepcopy(options)
    *sections, key = path.split(":")
    holder: Any = changed
    for section in sections:
        if not isinstance(holder.get(section), dict):
            holder[section] = {}
        holder = holder[section]
    holder[key] = value
    return changed


def options_of(place: Path) -> dict[str, Any]:
    """Return the option file of a folder."""
    read: dict[str, Any] = yaml.safe_load((place / OPTION_FILE).read_text())
    return read


def _trained(bench: Bench, place: Path) -> Any:
    del bench
    return run(lambda: command("train", "-opt", OPTION_FILE), place, "first")


def _meet_value(bench: Bench, *, task: str, path: str, value: Any, words: str) -> Verdict:
    place = bench.begin(task)
    write_options(place, with_value(options_of(place), path, value))
    verdict = refused(_trained(bench, place), words)
    if verdict.outcome == BLOCK and (place / "experiments" / "tiny").exists():
        return Verdict(WRONG, verdict.message, "left a run behind")
    return verdict


def label(value: Any) -> str:
    """Return a value as a name of a fault shows it."""
    text = repr(value) if not isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 24 else f"{text[:12]} ... of {len(text)} characters"


def hostile() -> Iterator[Fault]:
    """Yield values that no run can have."""
    for task, given in REFUSED.items():
        for path, value in given:
            key = path.rsplit(":", maxsplit=1)[-1]
            shown_path = path if len(path) < 80 else f"{path[:12]} ... of {len(path)} characters"
            words = key[:6] if len(key) < 80 else "unknown key"
            meet = partial(_meet_value, task=task, path=path, value=value, words=words)
            yield Fault("options of enemies", f"{task}, {shown_path}: {label(value)}", meet)


ANY: Sequence[Any] = (
    None,
    True,
    -1,
    0,
    1e300,
    10**400,
    float("nan"),
    float("-inf"),
    "",
    "x",
    "a\0b",
    "a\nb",
    "9" * 5000,
    [],
    {},
    [[8]],
    {"type": "x"},
    {"x": {"y": 1}},
    "🙂",
    "\x1b[2J",
    2**31,
    0.5,
    "1e-4",
    "off",
)
SPARED = {"total_iter", "total_epochs", "num_train_epochs", "name", "experiments_root"}
"""Lengths of runs stay: one that is accepted has to end. Names stay, by which its folder is found."""


def leaves(tree: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """Yield the paths of all sections and values."""
    for key, value in tree.items():
        path = f"{above}{key}"
        if key not in SPARED:
            yield path
        if isinstance(value, Mapping):
            yield from leaves(value, f"{path}:")


def _meet_any(bench: Bench, *, task: str, changes: Sequence[tuple[str, Any]]) -> Verdict:
    place = bench.begin(task)
    options = options_of(place)
    for path, value in changes:
        options = with_value(options, path, value)
    write_options(place, options)
    ended = _trained(bench, place)
    bad = plainly_bad(ended)
    if bad is not None:
        return bad
    if ended.code:
        block, flaw = block_of(ended)
        return Verdict(WRONG if flaw else BLOCK, shown(block), flaw)
    return Verdict(SURVIVED, "accepted, and trained to its end")


def of_any_kind(base: Path, seed: int) -> Iterator[Fault]:
    """Yield option files of all tasks, of which one or two values are replaced by any others."""
    for task, count in {"sr": 16, "gan": 6, "text": 12, "multitask": 10, "finetune": 12}.items():
        numbers = random.Random(f"{seed} options {task}")
        paths = list(leaves(options_of(base / task)))
        for number in range(count):
            changes = [(numbers.choice(paths), numbers.choice(ANY)) for _ in range(numbers.choice((1, 1, 2)))]
            what = ", ".join(f"{path}: {label(value)}" for path, value in changes)
            yield Fault(
                "options of any kind", f"{task} {number}, {what}", partial(_meet_any, task=task, changes=changes)
            )


def _meet_file(bench: Bench, *, text: str, words: str) -> Verdict:
    place = bench.begin("sr")
    (place / OPTION_FILE).write_text(text)
    return refused(_trained(bench, place), words)


def _meet_command(bench: Bench, *, given: Sequence[str], words: str) -> Verdict:
    place = bench.begin("sr")
    return refused(run(lambda: command(*given), place, "first"), words)


def _meet_unreadable(bench: Bench, *, how: str) -> Verdict:
    place = bench.begin("sr")
    file = place / OPTION_FILE
    file.unlink()
    os.mkfifo(file) if how == "a FIFO" else file.symlink_to("/dev/zero")
    return refused(_trained(bench, place), "run.yml")


def hints() -> Iterator[Fault]:
    """Yield keys of other programs, odd files and commands."""
    for path, value, words in HINTS:
        meet = partial(_meet_value, task="sr", path=path, value=value, words=words)
        yield Fault("hints", f"{path}: {label(value)}", meet)
    for name, (text, words) in ODD_FILES.items():
        yield Fault("hints", f"an option file of {name}", partial(_meet_file, text=text, words=words))
    for name, (given, words) in COMMANDS.items():
        yield Fault("hints", name, partial(_meet_command, given=given, words=words))
    for how in ("a FIFO", "link to /dev/zero"):
        yield Fault("options of enemies", f"the option file is {how}", partial(_meet_unreadable, how=how))


def faults(base: Path, seed: int) -> Iterator[Fault]:
    """Yield all of this subject."""
    yield from hostile()
    yield from of_any_kind(base, seed)
    yield from hints()
