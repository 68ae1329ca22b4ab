"""Predicted and measured memory of mixed batches under a real budget, in a process of its own; prints JSON.

    python mixed_memory_worker.py accuracy RECORDS | guardian TRIALS RECORDS

``accuracy``: real training steps on one, two and four images, none of which was predicted from itself. ``guardian``:
safe sizes under limits drawn at random, and whether they and the next larger ones fit.
"""

import json
import random
import sys
from typing import Any

from trainauto import set_environment

set_environment()  # before torch is loaded, as for every CPU budget

import torch  # noqa: E402
from torch import Tensor  # noqa: E402

from tests.mixed_samples import IMAGES, VOCABULARY, MixedSamples, collate, model_of  # noqa: E402
from trainauto.memory.monitor.budget import calm_allocator  # noqa: E402
from trainauto.memory.monitor.meter import MemoryMeter  # noqa: E402
from trainauto.memory.monitor.oom import is_out_of_memory  # noqa: E402
from trainauto.memory.monitor.release import release_memory  # noqa: E402
from trainauto.tasks.multitask.prediction.batch_memory import PaddedShape  # noqa: E402
from trainauto.tasks.multitask.prediction.memory_predictor import MemoryPredictor  # noqa: E402
from trainauto.tasks.multitask.prediction.oom_guardian import OOMGuardian  # noqa: E402

MIB = 2**20
LONGEST, SIDE = 32, 48
LARGEST_BUDGET_MIB = 2000
LIMITS_MIB = (380, 760)
"""Of safe sizes: peaks of 300 MiB and more, beside which what a process keeps for itself is small."""
CURVE = 8
"""Sizes of each task whose peaks are measured, to know those of all sizes between them."""


class Run:
    """A model that trains under a budget; what it holds by then is in use whatever the batch is."""

    def __init__(self) -> None:
        calm_allocator()
        self.model = model_of(width=64, layers=3)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.samples = MixedSamples(60, longest=LONGEST, side=SIDE)
        self.predictor = MemoryPredictor(
            "cpu", model=self.model, optimizer=self.optimizer, samples=self.samples, collator=collate
        )
        self.predictor.predict_batch_memory(["one"])  # traced before use is counted
        self.meter = MemoryMeter(torch.device("cpu"))
        self.step(self.batch(PaddedShape(2, 8, 1)))
        release_memory(self.meter.device)
        self.meter.set_budget(LARGEST_BUDGET_MIB * MIB)
        self.held_bytes = 0

    def batch(self, shape: PaddedShape) -> dict[str, Tensor]:
        ids = torch.randint(0, VOCABULARY, (shape.samples, shape.tokens))
        pixels = torch.rand(shape.samples, shape.images, 3, SIDE, SIDE)
        return {"input_ids": ids, "labels": ids.clone(), "pixel_values": pixels}

    def step(self, batch: dict[str, Tensor]) -> None:
        self.model(**batch)["loss"].backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def peak_bytes(self, shape: PaddedShape, limit_mib: float = LARGEST_BUDGET_MIB) -> int | None:
        """Return the peak of a step; ``None`` where it runs out of memory."""
        self.meter.limit_bytes = int(limit_mib * MIB)
        self.held_bytes, failed = self.meter.now_bytes(), False
        with self.meter.window() as window:
            try:
                self.step(self.batch(shape))
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                failed = True
        self.optimizer.zero_grad(set_to_none=True)
        if failed:
            release_memory(self.meter.device)
            return None
        assert window.reading is not None
        return window.reading.allocated

    def drawn(self, generator: random.Random, task: str, most_mib: float = 700) -> tuple[list[str], PaddedShape]:
        """Return tasks and shape of a batch of half of so much to all of it, most samples of which are of a task."""
        target = generator.uniform(0.48 * most_mib, most_mib) * MIB
        others = [name for name in IMAGES if IMAGES[name] <= IMAGES[task]]
        tokens, size = generator.randint(8, LONGEST), 2
        while self.predictor.predict_bytes(PaddedShape(size, tokens, IMAGES[task]), [task]) < target:
            size += max(1, size // 16)
        mixed = generator.random() < 0.5
        tasks = [task if not mixed or generator.random() < 0.8 else generator.choice(others) for _ in range(size - 1)]
        return [task, *tasks], PaddedShape(size, tokens, IMAGES[task])


def accuracy(records: str) -> dict[str, Any]:
    """Return errors before any record, and after so many of each task: predicted, then recorded."""
    run, generator = Run(), random.Random(0)
    before: dict[str, list[float]] = {task: [] for task in IMAGES}
    after: dict[str, list[float]] = {task: [] for task in IMAGES}
    peaks_mib = []
    untrained = run.predictor.state_dict()
    for number in range(2 * int(records)):
        for task in IMAGES:
            tasks, shape = run.drawn(generator, task)
            peak = run.peak_bytes(shape)
            assert peak is not None
            peaks_mib.append(peak / MIB)
            if number < int(records):
                known = run.predictor.state_dict()
                run.predictor.load_state_dict(untrained)
                before[task].append(run.predictor.predict_bytes(shape, tasks) / peak - 1)
                run.predictor.load_state_dict(known)
            else:
                after[task].append(run.predictor.predict_bytes(shape, tasks) / peak - 1)
            run.predictor.record_batch(tasks, peak, tokens=shape.tokens, images=shape.images)
    return {
        "before": before,
        "after": after,
        "peaks_mib": peaks_mib,
        "accuracy": run.predictor.get_calibration_accuracy(),
        "held_mib": run.predictor.held_bytes / MIB,
    }


def guardian(trials: str, records: str) -> dict[str, Any]:
    """Return what safe sizes took, and what sizes would have taken that lie beyond what may be missing."""
    run, generator = Run(), random.Random(1)
    for _ in range(int(records)):
        for task in IMAGES:
            tasks, shape = run.drawn(generator, task)
            peak = run.peak_bytes(shape)
            assert peak is not None
            held = run.held_bytes  # what libraries keep is in use when sizes are asked for, too
            run.predictor.record_batch(tasks, peak, tokens=shape.tokens, images=shape.images, held_bytes=held)
    found = []
    for number in range(int(trials)):
        task, limit_mib = generator.choice(list(IMAGES)), generator.uniform(*LIMITS_MIB)
        margin = generator.uniform(0.02, 0.2)
        run.meter.limit_bytes = int(limit_mib * MIB)
        watch = OOMGuardian("cpu", margin, predictor=run.predictor, max_memory_mb=limit_mib, meter=run.meter)
        safe = watch.estimate_safe_batch_size(task)
        peak = run.peak_bytes(PaddedShape(safe, LONGEST, IMAGES[task]), limit_mib)
        target_bytes = limit_mib * (1 - margin) * MIB
        # The least count of which the safe one falls short by more than one sample and 15 %.
        beyond = next(n for n in range(safe + 1, 2 * safe + 4) if n - max(1.0, 0.15 * n) > safe)
        found.append({"task": task, "safe": safe, "peak": peak, "beyond": beyond, "target": target_bytes})
        print(number, found[-1], file=sys.stderr, flush=True)
    return {"trials": found, "curves": {task: _curve(run, task, found) for task in IMAGES}}


def _curve(run: Run, task: str, found: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """Return measured peaks of a task over all sizes that matter, so close that lines between them serve."""
    sizes = [trial["beyond"] for trial in found if trial["task"] == task]
    if not sizes:
        return []
    steps = min(CURVE, max(sizes) - min(sizes) + 1)
    spread = sorted({min(sizes) + (max(sizes) - min(sizes)) * i // max(1, steps - 1) for i in range(steps)})
    return [(size, run.peak_bytes(PaddedShape(size, LONGEST, IMAGES[task])) or 0) for size in spread]


if __name__ == "__main__":
    torch.set_num_threads(1)
    kind = {"accuracy": accuracy, "guardian": guardian}[sys.argv[1]]
    print(json.dumps(kind(*sys.argv[2:])))
