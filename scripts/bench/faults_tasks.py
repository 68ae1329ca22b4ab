"""The runs that faults.py disturbs: option files and data of seconds, a loop of one's own, a Trainer."""

import json
import logging
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from tests.integration.commands import merged
from tests.integration.multitask_runs import multitask_options

OPTION_FILE = "run.yml"
LOGS = ("training_log.jsonl", "validation.jsonl")
STEPS = 12
IMAGES = 3
OUTCOME = "outcome.safetensors"
"""The weights that runs without a run directory end with."""

Injected = Callable[[], AbstractContextManager[Any]]
"""Makes what is active while a run trains."""


def images(folder: Path) -> None:
    """Write a few cuts of a photograph into ``gt`` and ``val``."""
    import cv2
    from skimage import data

    photograph = data.astronaut()
    for name, first, count in (("gt", 0, IMAGES), ("val", 9, 2)):
        (folder / name).mkdir()
        for number in range(count):
            cut = photograph[100 + 17 * (first + number) :][:60, 90:160, ::-1]
            cv2.imwrite(str(folder / name / f"image_{number:03d}.png"), np.ascontiguousarray(cut))


def sr_options(**changes: Any) -> dict[str, Any]:
    """Return options of super-resolution: moving averages, clipping, pictures, checkpoints every five steps."""
    base: dict[str, Any] = {
        "name": "tiny",
        "scale": 2,
        "device": "cpu",
        "num_threads": 1,
        "manual_seed": 3,
        "datasets": {
            "train": {
                "type": "GTImageDataset",
                "dataroot_gt": "gt",
                "lq_size": 16,
                "batch_size_per_gpu": 4,
                "num_worker_per_gpu": 0,
                "lookahead": 4,
            },
            "val": {"type": "GTImageDataset", "dataroot_gt": "val"},
        },
        "network_g": {"type": "compact", "num_feat": 8, "num_conv": 1},
        "train": {
            "total_iter": STEPS,
            "losses": [{"type": "l1loss"}],
            "optim_g": {"type": "Adam", "lr": 1e-3, "eps": 1e-4},
            "ema_decay": 0.6,  # a longer average would be warned of
            "grad_clip": 0.05,
        },
        "val": {"val_freq": 6, "save_img": True, "metrics": {"psnr": {"type": "calculate_psnr"}}},
        "logger": {"print_freq": 4, "save_checkpoint_freq": 5, "use_tb_logger": False},
    }
    return merged(base, changes)


def sr(folder: Path) -> dict[str, Any]:
    """Prepare super-resolution."""
    images(folder)
    return sr_options()


def gan(folder: Path) -> dict[str, Any]:
    """Prepare the same against a discriminator with spectral norms: buffers that change once a pass."""
    images(folder)
    return sr_options(
        model_type="SRGANModel",
        network_d={"type": "unetdiscriminatorsn", "num_feat": 4},
        train={
            "losses": [{"type": "l1loss"}, {"type": "ganloss", "loss_weight": 0.1}],
            "optim_d": {"type": "Adam", "lr": 1e-3, "eps": 1e-4},
        },
    )


def steered(folder: Path) -> dict[str, Any]:
    """Prepare super-resolution whose batches a controller chooses."""
    images(folder)
    controller = {"adjustment_frequency": 4, "policy": "step", "max_batch_size": 8}
    return sr_options(training_automations={"DynamicBatchSizeOptimizer": controller})


NO_DROPOUT = {"attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0}
"""Random masks of micro-batches are other ones than those of a whole batch."""


def text(folder: Path) -> dict[str, Any]:
    """Prepare a language model."""
    numbers = np.random.default_rng(1)
    words = ["the", "cat", "dog", "ran", "sat", "flew", "on", "under", "a", "red", "blue", "mat", "slowly", "home"]
    lines = [" ".join(numbers.choice(words, numbers.integers(3, 24))) for _ in range(80)]
    (folder / "texts.txt").write_text("\n".join(lines))
    return {
        "name": "tiny",
        "task": "text",
        "device": "cpu",
        "num_threads": 1,
        "manual_seed": 3,
        "model": {
            "config": {"model_type": "gpt2", "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64, **NO_DROPOUT}
        },
        "tokenizer": {"train": {"vocab_size": 300}},
        "datasets": {"train": {"path": "texts.txt", "split": "lines", "max_length": 32}, "val": {"share": 0.1}},
        "train": {
            "total_epochs": 2,
            "optim": {"type": "AdamW", "lr": 1e-2, "eps": 1e-4},
            "scheduler": {"type": "cosine"},
            "tokens_per_batch": 256,
            "grad_clip": 0.5,
        },
        "val": {"val_freq": 5},
        "logger": {"print_freq": 4, "save_checkpoint_freq": 5, "use_tb_logger": False},
    }


def multitask(_folder: Path) -> dict[str, Any]:
    """Prepare one model on three tasks."""
    data = {"train": {"samples": 90}, "val": {"samples": 24}}
    return multitask_options(datasets=data, train={"total_epochs": 1, "target_batch_size": 8})


def finetune(folder: Path) -> dict[str, Any]:
    """Prepare a small vision-language model and conversations with no picture, one and two."""
    from tiny_vlm import chats, make_model, write_lines

    make_model(0, folder / "model")
    write_lines(folder / "chats.jsonl", chats(folder, 0))
    return {
        "name": "tiny",
        "device": "cpu",
        "num_threads": 1,
        "manual_seed": 3,
        "model": {"name": "model"},
        "dataset": {"path": "chats.jsonl", "val_share": 0.25},
        "training": {
            "num_train_epochs": 2,
            "per_device_train_batch_size": 2,
            "gradient_accumulation_steps": 2,
            "learning_rate": 1e-3,
            "logging_steps": 1,
            "save_steps": 2,
            "max_grad_norm": 0.5,
        },
    }


def own_loop(injected: Injected, folder: Path) -> int:
    """Train in an AdaptiveLoop two epochs, a checkpoint every four steps; go on from one that is there."""
    import torch
    from safetensors.torch import save_file
    from torch import nn

    from trainauto import AdaptiveLoop, ModelObjective

    torch.set_num_threads(1)
    torch.manual_seed(5)
    features = torch.randn(48, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    dataset = torch.utils.data.TensorDataset(features, features.mean((1, 2, 3), keepdim=False)[:, None])
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Dropout(0.2), nn.Flatten(), nn.Linear(288, 1))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, eps=1e-4)

    def loss(network: nn.Module, batch: Any) -> torch.Tensor:
        return nn.functional.mse_loss(network(batch[0]), batch[1])

    loop = AdaptiveLoop(model, ModelObjective("fit", optimizer, loss), dataset, batch_size=8, max_norm=0.1, seed=7)
    parts = {"model": model, "optimizer": optimizer, "loop": loop}
    kept = folder / "kept.pt"
    if kept.exists():
        state = torch.load(kept, weights_only=True)
        torch.set_rng_state(state.pop("random"))
        for name, part in parts.items():
            part.load_state_dict(state[name])
    with loop:
        for batch in loop.batches(epochs=2):
            with injected():
                step = loop.step(batch)
            if step.out_of_memory or step.pieces:
                print(f"out of memory {step.out_of_memory} times, in pieces {step.pieces}")
            if loop.progress.steps % 4 == 0:
                state = {name: part.state_dict() for name, part in parts.items()}
                torch.save({**state, "random": torch.get_rng_state()}, folder / "kept.new")
                os.replace(folder / "kept.new", kept)
    save_file({name: value.contiguous() for name, value in model.state_dict().items()}, folder / OUTCOME)
    return 0


def own_trainer(injected: Injected, folder: Path) -> int:
    """Train a Llama with MemoryAwareTrainer, evaluations and checkpoints every four steps; go on from one."""
    import torch
    from safetensors.torch import save_file
    from transformers import LlamaConfig, LlamaForCausalLM

    from trainauto.huggingface import MemoryAwareTrainer, MemoryAwareTrainingArguments

    torch.set_num_threads(1)
    torch.manual_seed(5)
    sizes = {"hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=40, **sizes))
    numbers = torch.Generator().manual_seed(1)
    tokens = [torch.randint(0, 40, (16,), generator=numbers) for _ in range(48)]
    rows = [{"input_ids": row, "labels": row.clone()} for row in tokens]
    arguments = MemoryAwareTrainingArguments(
        str(folder / "output"),
        per_device_train_batch_size=4,
        num_train_epochs=1,
        learning_rate=1e-3,
        adam_epsilon=1e-4,
        max_grad_norm=0.1,
        save_steps=4,
        eval_strategy="steps",
        eval_steps=4,
        logging_steps=4,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        seed=5,
    )
    trainer = MemoryAwareTrainer(model=model, args=arguments, train_dataset=rows[:40], eval_dataset=rows[40:])
    with injected():
        trainer.train(resume_from_checkpoint=any((folder / "output").glob("checkpoint-*")))
    save_file({name: value.clone() for name, value in model.state_dict().items()}, folder / OUTCOME)
    return 0


FILES: Mapping[str, Callable[[Path], dict[str, Any]]] = {
    "sr": sr,
    "gan": gan,
    "steered": steered,
    "text": text,
    "multitask": multitask,
    "finetune": finetune,
}
"""Tasks of option files."""

CODE = {"AdaptiveLoop": own_loop, "MemoryAwareTrainer": own_trainer}
"""Runs of code of one's own."""

TASKS = (*FILES, *CODE)


def write_options(folder: Path, options: Mapping[str, Any]) -> None:
    """Write the option file of a folder."""
    (folder / OPTION_FILE).write_text(yaml.safe_dump(dict(options), sort_keys=False))


def prepare(task: str, folder: Path) -> None:
    """Make a folder in which a task can be run."""
    folder.mkdir()
    if task in FILES:
        write_options(folder, FILES[task](folder))


def trained(task: str, *words: str, injected: Injected = nullcontext) -> int:
    """Train a task in the working directory, from where it stands; return the exit code.

    Args:
        task: which.
        words: of the command, behind ``train -opt run.yml --auto_resume``.
        injected: is active while it trains.
    """
    if task in CODE:
        logging.basicConfig(stream=sys.stdout)
        return printing_errors(lambda: CODE[task](injected, Path.cwd()))
    from trainauto.engine import loop

    train = loop.train

    def disturbed(run: Any) -> Any:
        with injected():
            return train(run)

    loop.train = disturbed
    return command("train", "-opt", OPTION_FILE, "--auto_resume", *words)


def command(*words: str) -> int:
    """Run a command of trainauto as a terminal does."""
    import torch

    from trainauto.cli import main

    torch.set_num_threads(1)
    sys.argv = ["trainauto", *words]  # messages advise commands by it
    return main(words)


def printing_errors(work: Callable[[], int]) -> int:
    """Print errors of ours as commands do: an own loop would catch them."""
    from trainauto.core.errors import TrainautoError

    try:
        return work()
    except TrainautoError as error:
        print(f"\n{error}\n", file=sys.stderr)
        return 1


@dataclass(frozen=True)
class Outcome:
    """What a run has left in its folder.

    Attributes:
        weights: contents of the last weights files, by name.
        steps: numbers of the steps in its log.
        lines: of the log of validations.
        pictures: that validations wrote.
        samples: of each step in its log.
    """

    weights: Mapping[str, bytes]
    steps: tuple[int, ...] = ()
    lines: int = 0
    pictures: int = 0
    samples: tuple[int, ...] = ()

    @classmethod
    def of(cls, folder: Path) -> "Outcome":
        """Read it; nothing where nothing was trained."""
        if (folder / OUTCOME).exists():
            return cls({OUTCOME: (folder / OUTCOME).read_bytes()})
        run = run_of(folder)
        checkpoint = newest_checkpoint(run) if run is not None else None
        if run is None or checkpoint is None:
            return cls({})
        weights = {file.name: file.read_bytes() for file in sorted(checkpoint.glob("*.safetensors"))}
        records, validations = (json_lines(run / name) for name in LOGS)
        records = [record for record in records if "step_s" in record]
        steps, samples = (tuple(record[key] for record in records) for key in ("step", "samples"))
        return cls(weights, steps, len(validations), len(list((run / "validation").rglob("*.png"))), samples)

    def tensors(self) -> dict[str, Any]:
        """Return the weights of all files."""
        from safetensors.torch import load

        return {f"{file} {name}": value for file, text in self.weights.items() for name, value in load(text).items()}

    def distance(self, other: "Outcome") -> float:
        """Return the largest difference of weights, as a share of the largest weight; infinite where they differ."""
        mine, theirs = self.tensors(), other.tensors()
        if mine.keys() != theirs.keys() or any(mine[name].shape != theirs[name].shape for name in mine):
            return float("inf")
        largest = max(float(value.abs().max()) for value in theirs.values())
        return max(float((mine[name] - theirs[name]).abs().max()) for name in mine) / max(largest, 1e-12)


def run_of(folder: Path) -> Path | None:
    """Return the newest run directory below a folder."""
    runs = sorted(log.parent for log in folder.rglob("checkpoints") if log.is_dir() and not log.is_symlink())
    return runs[-1] if runs else None


def newest_checkpoint(run: Path) -> Path | None:
    """Return the newest whole checkpoint of a run."""
    there = sorted(folder for folder in (run / "checkpoints").glob("step_*") if (folder / "state.pt").is_file())
    return there[-1] if there else None


def json_lines(file: Path) -> list[dict[str, Any]]:
    """Return the lines of a log that can be read."""
    made = []
    if file.is_file():
        for line in file.read_text(errors="replace").splitlines():
            try:
                made.append(json.loads(line))
            except ValueError:
                continue
    return made


def copied(source: Path, target: Path) -> Path:
    """Copy a folder, links and all."""
    shutil.copytree(source, target, symlinks=True)
    return target
