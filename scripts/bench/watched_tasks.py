"""Two tasks of seconds on real data, trained in an AdaptiveLoop with automations, healthy or with something planted.

``photographs``: a small network enlarges crops of scikit-image's photographs twofold. ``bytes``: a small recurrent
network says the next byte of Python's own help.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import torch
from skimage import data as photographs
from torch import Tensor, nn
from torch.nn import functional

from trainauto import AdaptiveLoop, ModelObjective, Range
from trainauto.core.decisions import Decision
from trainauto.core.errors import TrainautoError

BATCH, CROP, TEXT = 8, 24, 32
KEPT_EVERY = 100
"""Steps between checkpoints of runs that may go back."""

VALIDATED = 64
"""Samples of a validation."""

Sample = tuple[Tensor, Tensor]


class Crops:
    """Crops of photographs, (3, CROP, CROP) in 0 to 1, each drawn by its number; some targets may be damaged.

    Args:
        count: how many.
        seed: which.
        damaged: share whose targets are fifty times too bright.
    """

    def __init__(self, count: int, seed: int, damaged: float = 0.0) -> None:
        images = [photographs.astronaut(), photographs.coffee(), photographs.chelsea(), photographs.rocket()]
        self._images = [torch.from_numpy(image).permute(2, 0, 1).float() / 255 for image in images]
        self._count, self._seed, self.damaged = count, seed, damaged

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Sample:
        draw = torch.Generator().manual_seed(self._seed * 1_000_003 + index)
        image = self._images[int(torch.randint(len(self._images), (), generator=draw))]
        top, left = (int(torch.randint(side - CROP, (), generator=draw)) for side in image.shape[1:])
        crop = image[:, top : top + CROP, left : left + CROP]
        small = functional.interpolate(crop[None], scale_factor=0.5, mode="bicubic", antialias=True)[0]
        is_damaged = float(torch.rand((), generator=draw)) < self.damaged
        return small, crop * (50.0 if is_damaged else 1.0)


class Texts:
    """Pieces of Python's help: bytes, and those that follow them, (TEXT,) each.

    Args:
        count: how many.
        seed: which.
        damaged: share of them whose bytes are noise.
    """

    _bytes = torch.frombuffer(bytearray("\n".join(topics[name] for name in sorted(topics)).encode()), dtype=torch.uint8)

    def __init__(self, count: int, seed: int, damaged: float = 0.0) -> None:
        self._count, self._seed, self.damaged = count, seed, damaged

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Sample:
        draw = torch.Generator().manual_seed(self._seed * 1_000_003 + index)
        start = int(torch.randint(len(self._bytes) - TEXT - 1, (), generator=draw))
        piece = self._bytes[start : start + TEXT + 1].long()
        if float(torch.rand((), generator=draw)) < self.damaged:
            piece = torch.randint(256, piece.shape, generator=draw)
        return piece[:-1], piece[1:]


class Enlarger(nn.Module):
    """Adds detail to a bicubic enlargement, (N, 3, H, W) to (N, 3, 2H, 2W)."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 12, 1)
        )

    def forward(self, small: Tensor) -> Tensor:
        """Return the enlargement."""
        detail: Tensor = functional.pixel_shuffle(self.body(small), 2)
        return functional.interpolate(small, scale_factor=2, mode="bicubic") + detail


class NextByte(nn.Module):
    """Bytes, (N, T), to scores of the next one, (N, T, 256)."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes, self.memory, self.head = nn.Embedding(256, 24), nn.GRU(24, 48, batch_first=True), nn.Linear(48, 256)

    def forward(self, text: Tensor) -> Tensor:
        """Return the scores."""
        scores: Tensor = self.head(self.memory(self.bytes(text))[0])
        return scores


def enlarging_loss(model: nn.Module, batch: Any) -> Tensor:
    """Mean absolute error."""
    return functional.l1_loss(model(batch[0]), batch[1])


def squared_loss(model: nn.Module, batch: Any) -> Tensor:
    """Mean squared error, whose gradient grows with the error."""
    return functional.mse_loss(model(batch[0]), batch[1])


def text_loss(model: nn.Module, batch: Any) -> Tensor:
    """Cross-entropy in nats a byte."""
    return functional.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten())


@dataclass(frozen=True)
class Task:
    """A task.

    Attributes:
        model: makes the network.
        samples: makes a set of so many samples of a seed, with a share of damaged ones.
        loss: of a batch.
        rate: a learning rate of Adam that suits it.
    """

    model: Callable[[], nn.Module]
    samples: Callable[..., Any]
    loss: Callable[[nn.Module, Any], Tensor]
    rate: float


class States:
    """Checkpoints in memory, of every so many steps.

    Args:
        parts: what has a state, by name.
    """

    def __init__(self, parts: dict[str, Any]) -> None:
        self.parts = parts
        self._kept: dict[int, dict[str, Any]] = {}

    def keep(self, step: int) -> None:
        """Keep the states after a step, where one is due."""
        if step % KEPT_EVERY == 0:
            self._kept[step] = {name: deepcopy(part.state_dict()) for name, part in self.parts.items()}

    def load(self, good_until: int) -> None:
        """Load the newest states that are of a step or before."""
        states = self._kept[max(step for step in self._kept if step <= good_until)]
        for name, part in self.parts.items():
            part.load_state_dict(deepcopy(states[name]))


SQUARED = Task(Enlarger, Crops, squared_loss, 1e-3)
"""The photographs with a loss that damaged targets spoil."""

TASKS = {
    "photographs": Task(Enlarger, Crops, enlarging_loss, 1e-3),
    "bytes": Task(NextByte, Texts, text_loss, 3e-3),
}


@dataclass
class Course:
    """What became of a run.

    Attributes:
        measured: loss on samples never trained on, by step.
        trained: loss of each step.
        norms: gradient norm of each step, and the norm it was clipped at; ``None`` where it was not.
        decisions: by the step they were made after.
        reason: why it ended before its length; empty where it did not.
    """

    measured: dict[int, float] = field(default_factory=dict)
    trained: list[float] = field(default_factory=list)
    norms: list[tuple[float, float | None]] = field(default_factory=list)
    decisions: list[tuple[int, Decision]] = field(default_factory=list)
    reason: str = ""


def run(
    task: Task,
    seed: int,
    steps: int,
    automations: Mapping[str, Any] | None = None,
    *,
    rate: Callable[[int], float] = lambda _step: 1.0,
    samples: int = 100_000,
    damaged: float = 0.0,
    every: int = 50,
    folder: Path | None = None,
    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.Adam,
    grown: tuple[int, int] = (0, 1),
    plant: Callable[[int, nn.Module], object] = lambda _step, _model: None,
    worse: tuple[int, float] = (0, 0.0),
) -> Course:
    """Train a task.

    Args:
        task: which.
        seed: of weights and samples.
        steps: length.
        automations: as ``training_automations`` of an option file.
        rate: factor on the task's rate, by step: the schedule of the loop.
        samples: of the training set.
        damaged: share of them that is damaged.
        every: steps between validations.
        folder: of runs, to write a run directory into; ``None`` writes nothing.
        optimizer: makes it.
        grown: a step, and how many times as large batches are once that is trained.
        plant: called before each step with how many were trained, to do some harm.
        worse: a step, and the share of samples that is damaged once that is trained.
    """
    course = Course()
    torch.manual_seed(seed)
    model = task.model()
    own = optimizer(model.parameters(), task.rate)
    states = States({"model": model, "optimizer": own})
    training_set = task.samples(samples, seed, damaged)
    loop = AdaptiveLoop(
        model,
        ModelObjective("train", own, task.loss),
        training_set,
        batch_size=Range(BATCH, BATCH * grown[1]),
        automations=automations,
        go_back=states.load,
        seed=seed,
        run_directory=folder,
    )
    states.parts["loop"] = loop
    unseen = [task.samples(VALIDATED, 10_000_019)[index] for index in range(VALIDATED)]
    held_out = tuple(torch.stack(part) for part in zip(*unseen, strict=True))
    with loop:
        for batch in loop.batches():
            for group in own.param_groups:
                group["lr"] = task.rate * rate(loop.progress.steps)
            max_norm = loop.training.controls.max_norm_of("train")
            if automations and "SpikeGuard" in automations:
                states.keep(loop.progress.steps)
            plant(loop.progress.steps, model)
            try:
                step = loop.step(batch)
            except TrainautoError as error:
                course.reason = str(error).splitlines()[0]
                return course
            done = loop.progress.steps
            del course.trained[done - 1 :], course.norms[done - 1 :]  # what a rollback has undone
            course.trained.append(step.losses["loss"])
            course.norms.append((step.grad_norms["train"], max_norm))
            decisions: Sequence[Decision] = step.decisions
            if done == worse[0]:
                training_set.damaged = worse[1]
            if done == grown[0]:
                loop.training.loader.update_plan(loop.plan.changed(batch_size=BATCH * grown[1]))
            if done % every == 0:
                with torch.no_grad():
                    course.measured[done] = float(task.loss(model, held_out))
                decisions = (*decisions, *loop.validated({"loss": course.measured[done]}))
            course.decisions += [(done, decision) for decision in decisions]
            if done >= steps or loop.stop_reason:
                break
    course.reason = loop.stop_reason
    return course


def clipped_share(course: Course, by: float = 1.0) -> float:
    """Return the share of steps whose gradient was scaled down to less than a ``by``-th of itself."""
    cut = sum(limit is not None and norm > by * limit for norm, limit in course.norms)
    return cut / max(1, len(course.norms))
