"""What a MemoryAwareTrainer costs over the stock Trainer, at the same fixed batch and without a budget.

    python scripts/bench/huggingface_overhead.py [--processes 6] [--pairs 10] [--steps 10] [--json FILE]

Three Trainers of transformers train one and the same network on the same rows in one process, by turns, a step each,
every one in a thread of its own that waits for its turn: stock, ours, stock again. The figure is the CPU time between
the ends of two steps of ours over that of the stock Trainer, of a round of steps; the two stock ones give the noise
(A/A). Medians of all rounds.

With a network and an arena of the allocator each, one of three like threads was up to 3 % slower than another by where
its memory lay, and which one differed from process to process. They share both here. What is left of it goes into the
medians of several processes, each of which begins the Trainers in another order.

Exit code 1 if the median is above 1.02.
"""

import argparse
import itertools
import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments

from trainauto.huggingface import MemoryAwareTrainer

ROWS, LENGTH, VOCABULARY, WIDTH, LAYERS, BATCH = 4096, 64, 512, 128, 3, 16
WARM_UP_STEPS = 6
MOST_RATIO = 1.02


class Rows(Dataset[dict[str, torch.Tensor]]):
    """Rows of equal length."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        self.ids = torch.randint(VOCABULARY, (ROWS, LENGTH), generator=generator)

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        """Return a sample."""
        return {"input_ids": self.ids[index], "labels": self.ids[index]}


class Turns(TrainerCallback):  # type: ignore[misc]
    """Lets a Trainer in a thread of its own make a step when it is asked to."""

    def __init__(self) -> None:
        self._may_step, self._has_stepped = threading.Semaphore(0), threading.Semaphore(0)
        self.is_over = False

    def on_step_end(self, _args: Any, _state: Any, control: Any, **_options: Any) -> Any:
        """Wait for the next turn."""
        self._has_stepped.release()
        self._may_step.acquire()
        control.should_training_stop = self.is_over
        return control

    def step(self) -> None:
        """Have a step made, and wait for its end."""
        self._may_step.release()
        self._has_stepped.acquire()

    def end(self, thread: threading.Thread) -> None:
        """Have the training end."""
        self.is_over = True
        self._may_step.release()
        thread.join()


def network() -> LlamaForCausalLM:
    """Return what is trained."""
    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=WIDTH,
            intermediate_size=4 * WIDTH,
            num_hidden_layers=LAYERS,
            num_attention_heads=4,
        )
    )


def begin(kind: type, model: LlamaForCausalLM, steps: int, folder: str) -> tuple[Turns, threading.Thread]:
    """Start a Trainer; it has made its first step when this returns."""
    quiet: dict[str, Any] = {"report_to": [], "use_cpu": True, "disable_tqdm": True, "save_strategy": "no"}
    given = TrainingArguments(
        folder, max_steps=steps, per_device_train_batch_size=BATCH, logging_strategy="no", **quiet
    )
    turns = Turns()
    trainer = kind(model=model, args=given, train_dataset=Rows(), callbacks=[turns])
    thread = threading.Thread(target=trainer.train)
    thread.start()
    turns._has_stepped.acquire()
    return turns, thread


def measure(pairs: int, steps: int, order: int, folder: str) -> dict[str, Any]:
    """Return the ratios of CPU time of every round in this process, and the milliseconds of a stock step.

    Args:
        pairs: rounds.
        steps: of each Trainer in a round.
        order: in which of the six orders the Trainers begin.
        folder: theirs, for what they write.
    """
    torch.set_num_threads(1)
    kinds = {"stock": Trainer, "ours": MemoryAwareTrainer, "again": Trainer}
    begun_in = list(itertools.permutations(kinds))[order % 6]
    model = network()
    running = {name: begin(kinds[name], model, pairs * steps + 100, folder) for name in begun_in}
    for turns, _ in running.values():
        for _ in range(WARM_UP_STEPS):
            turns.step()
    rounds: list[dict[str, float]] = []
    orders = itertools.cycle(itertools.permutations(running))
    for _ in range(pairs):
        spent = dict.fromkeys(running, 0.0)
        for _ in range(steps):
            for name in next(orders):
                begun = time.process_time()
                running[name][0].step()
                spent[name] += time.process_time() - begun
        rounds.append(spent)
    for turns, thread in running.values():
        turns.end(thread)
    return {
        "step_ms": 1000 * median(spent["stock"] for spent in rounds) / steps,
        "ours/stock": [spent["ours"] / spent["stock"] for spent in rounds],
        "again/stock": [spent["again"] / spent["stock"] for spent in rounds],
    }


def in_a_process(arguments: argparse.Namespace, order: int) -> dict[str, Any]:
    """Return what :func:`measure` finds in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        command = [sys.executable, __file__, "--order", str(order), "--json", str(result)]
        sizes = ["--pairs", str(arguments.pairs), "--steps", str(arguments.steps)]
        subprocess.run(
            [*command, *sizes],
            check=True,
            env={**os.environ, "MALLOC_ARENA_MAX": "1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        found: dict[str, Any] = json.loads(result.read_text())
        return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=6)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--steps", type=int, default=10, help="of a round")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--order", type=int, help=argparse.SUPPRESS)  # of a process that this script starts
    arguments = parser.parse_args()
    if arguments.order is not None:
        with tempfile.TemporaryDirectory() as folder:
            found = measure(arguments.pairs, arguments.steps, arguments.order, folder)
        arguments.json.write_text(json.dumps(found))
        return 0
    each = [in_a_process(arguments, order) for order in range(arguments.processes)]
    middles = {name: [median(found[name]) for found in each] for name in ("ours/stock", "again/stock")}
    step_ms = median(found["step_ms"] for found in each)
    print(
        f"a stock step: {step_ms:.1f} ms of CPU time, {arguments.processes} processes, "
        f"{arguments.pairs} pairs of {arguments.steps} steps in each"
    )
    for name, ratios in middles.items():
        print(f"{name:12}{median(ratios):.4f}  (of a process: {', '.join(f'{ratio:.4f}' for ratio in ratios)})")
    if arguments.json:
        machine = {"cpus": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version()}
        result = {"step_ms": step_ms, "pairs": arguments.pairs, "steps": arguments.steps, **middles, **machine}
        arguments.json.write_text(json.dumps({**result, "torch": torch.__version__}, indent=1) + "\n")
    return int(median(middles["ours/stock"]) > MOST_RATIO)


if __name__ == "__main__":
    sys.exit(main())
