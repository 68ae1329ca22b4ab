"""Runs an example as its user does, looks on, and writes down what its loop did; in a process of its own.

    python example_worker.py EXAMPLE RESULT.json MODE [ARGUMENT ...]

MODE is ``plain``; ``neighbour:WHOLE:STEPS:MIB``, where another process holds so much memory beside so many steps, once
a plan has trained WHOLE whole batches and another one comes; or
``walk``: no controller, but one plan after another, until the largest is known whose peaks stay at the target.
"""

import importlib
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any

import trainauto

trainauto.set_environment()

import torch  # noqa: E402

from trainauto.core.batch import Batch  # noqa: E402
from trainauto.core.decisions import decision_to_dict  # noqa: E402
from trainauto.core.process import without_memory_limit  # noqa: E402
from trainauto.integrations.adaptive_loop import AdaptiveLoop, LoopStep  # noqa: E402

EXAMPLES = Path(__file__).parents[2] / "examples"
MIB = 2**20
WALKED_STEPS = 10
"""Whole steps whose largest peak is that of a plan: as many as periods of the examples have."""
FIRST_STRIDE, FINE = 0.04, 0.01
"""Shares of a plan by which the walk leaves the one it began with, and at which it ends."""


class WatchedLoop(AdaptiveLoop):
    """A loop whose steps are written down; beside some of them, another process holds memory."""

    neighbour = (0, 0, 0)

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.steps: list[dict[str, Any]] = []
        self._arrived: int | None = None

    def step(self, batch: Batch) -> LoopStep:
        with self._beside(batch):
            step = super().step(batch)
        self.steps.append(
            {
                "trained": step.trained,
                "names": batch.names,
                "plan": dict(step.plan.values),
                "is_whole": is_whole(batch, step),
                "out_of_memory": step.out_of_memory,
                "peak_bytes": step.peak_bytes,
                "decisions": [decision_to_dict(self.progress.steps, decision) for decision in step.decisions],
            }
        )
        return step

    @contextmanager
    def _beside(self, batch: Batch) -> Iterator[None]:
        whole, steps, mib = self.neighbour
        held, number = None, len(self.steps)
        known = sum(step["is_whole"] and step["plan"] == dict(batch.plan.values) for step in self.steps)
        if self._arrived is None and steps and known >= whole and is_as_planned(batch):
            self._arrived = number
        if self._arrived is not None and number < self._arrived + steps:
            with without_memory_limit():
                held = torch.ones(mib * MIB, dtype=torch.uint8)
        yield
        del held

    def written(self) -> dict[str, Any]:
        return {"samples": len(self._samples), "target_bytes": self.training.memory_target_bytes, "steps": self.steps}


class WalkEndError(Exception):
    """The plan that was looked for is known, and the example need not go on."""


class WalkedLoop(WatchedLoop):
    """A loop that trains plan after plan and halves the gap between what stays at the target and what does not."""

    def batches(self, epochs: int | None = None) -> Iterator[Batch]:
        """Walk, and end."""
        self._stream = super().batches()
        next(self._stream)
        self.training.journal.automations = []
        axis, target = self.training.axes[-1], self.training.memory_target_bytes
        self.peaks: dict[int, list[int]] = {}
        low = high = self.plan[axis.name]
        stride = max(axis.multiple, axis.clamp(int(FIRST_STRIDE * low)))
        while self._peak(axis.name, low) > target:
            low, high = axis.clamp(low - stride), low
        while low == high or self._peak(axis.name, high) <= target:
            low, high = high, axis.clamp(high + stride)
        while (middle := axis.clamp((low + high) // 2)) > low and high - low > FINE * low:
            low, high = (low, middle) if self._peak(axis.name, middle) > target else (middle, high)
        self.best = low
        yield from ()
        raise WalkEndError

    def _peak(self, axis: str, value: int) -> int:
        """Train under a plan until enough whole batches of it were trained; return their largest peak."""
        self.training.loader.update_plan(self.plan.changed(**{axis: value}))
        while len(self.peaks.setdefault(value, [])) < WALKED_STEPS:
            batch = next(self._stream)
            step = super().step(batch)
            if is_whole(batch, step) and batch.plan[axis] == value:
                self.peaks[value].append(step.peak_bytes or 0)
        return max(self.peaks[value])

    def written(self) -> dict[str, Any]:
        return {**super().written(), "best": self.best, "use_bytes": median(self.peaks[self.best])}


def is_whole(batch: Batch, step: LoopStep) -> bool:
    """Say whether a step's peak is its plan's."""
    return step.trained and not step.out_of_memory and is_as_planned(batch)


def is_as_planned(batch: Batch) -> bool:
    """Say whether a batch is as large as planned; of tokens, nearly all of them."""
    if "tokens" in batch.plan:
        return batch.drawn == batch.plan and batch.shape.tokens >= 0.95 * batch.plan["tokens"]
    return batch.drawn == batch.plan and len(batch) == batch.plan.batch_size


def main(example: str, result: str, mode: str, *arguments: str) -> None:
    torch.set_num_threads(1)
    loops: list[WatchedLoop] = []

    def watched(*given: Any, **options: Any) -> WatchedLoop:
        kind = WalkedLoop if mode == "walk" else WatchedLoop
        loops.append(kind(*given, **options))
        if mode.startswith("neighbour:"):
            loops[0].neighbour = tuple(map(int, mode.split(":")[1:]))
        return loops[0]

    trainauto.AdaptiveLoop = watched  # what the example finds under this name
    sys.path.insert(0, str(EXAMPLES))
    with suppress(WalkEndError):
        importlib.import_module(example).main(list(arguments))
    Path(result).write_text(json.dumps(loops[0].written()))


if __name__ == "__main__":
    main(*sys.argv[1:])
