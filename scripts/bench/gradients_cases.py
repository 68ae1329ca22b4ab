"""Losses, misuses and cells of ``gradients.py``: what is minimised, and what is done to it.

All losses go with all models: they compare rows (N, R, K) with labels (N, R), values (N, R, K) or a mask (N, R, K).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from gradients_models import LEFT_OUT, MODELS, ModelCase
from torch import Tensor, nn
from torch.nn import functional as F

TOTAL = "loss"
DECLARED, ACCUMULATES = "declared to the Trainer", "the Trainer accumulates"
FLOAT_SHARE = 0.003
"""What weights are multiplied by where they are floats below 1: the gradients stay what they are."""


@dataclass(frozen=True)
class LossCase:
    """A loss.

    Attributes:
        name: in tables.
        of: of a model's rows and a batch; a dict holds the total as ``loss``, and its parts.
        weigh: what it is a mean over.
        couples: whether it is no mean over samples, so that no parts make up the whole.
        weighs: ``samples``, ``labels`` that count, which a Trainer can find out, or what is known to the loss alone.
    """

    name: str
    of: Callable[[Tensor, Mapping[str, Tensor]], Tensor | dict[str, Tensor]]
    weigh: Callable[[Mapping[str, Tensor]], float]
    couples: bool = False
    weighs: str = "samples"

    def total(self, rows: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        """Return what is minimised."""
        result = self.of(rows, batch)
        return result[TOTAL] if isinstance(result, dict) else result


@dataclass(frozen=True)
class Misuse:
    """What is done to a run, besides that memory runs out.

    Attributes:
        name: in tables.
        change: changes a batch in place, before it is used.
        from_step: from which step on.
        is_fresh: the model's head is so small that the losses of all batches are about the same.
        weighs_floats: weights are floats below 1.
        declares: a Trainer is told weights, and which losses couple samples.
        fails_in_optimizer: step, and place among the operators of its update, from 0 to 1, at which memory runs out.
        passes: of a step that a Trainer is asked for, as accumulation.
        samples: of a step.
        room: samples that there is memory for.
        budget: memory budget under which plans are predicted and measured before the first step.
    """

    name: str
    change: Callable[[Mapping[str, Tensor]], None] | None = None
    from_step: int = 0
    is_fresh: bool = False
    weighs_floats: bool = False
    declares: bool = False
    fails_in_optimizer: tuple[int, float] | None = None
    passes: int = 1
    samples: int = 8
    room: int = 3
    budget: str | None = None

    @property
    def total_samples(self) -> int:
        """Samples of the whole run: three steps."""
        return 3 * self.samples

    def prepare(self, batch: Mapping[str, Tensor], step: int) -> None:
        """Change a batch as its loss would."""
        if self.change is not None and step >= self.from_step:
            self.change(batch)


def _class_weights(rows: Tensor) -> Tensor:
    return torch.linspace(0.05, 0.9, rows.shape[-1], dtype=rows.dtype)


def _cross_entropy(rows: Tensor, batch: Mapping[str, Tensor], labels: str = "classes", **options: Any) -> Tensor:
    return F.cross_entropy(rows.flatten(0, 1), batch[labels].flatten(), **options)


def _weighted_entropy(rows: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
    return _cross_entropy(rows, batch, weight=_class_weights(rows))


def _weight_of_classes(batch: Mapping[str, Tensor]) -> float:
    return float(_class_weights(batch["values"])[batch["classes"]].sum())


def _charbonnier(rows: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
    return ((rows - batch["values"]).square() + 1e-6).sqrt().mean()


def _masked(rows: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
    return ((rows - batch["values"]).square() * batch["mask"]).sum() / batch["mask"].sum()


def _bce(rows: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
    weights = torch.linspace(0.5, 4.0, rows.shape[-1], dtype=rows.dtype)
    return F.binary_cross_entropy_with_logits(rows, batch["mask"], pos_weight=weights)


def _total_and_parts(rows: Tensor, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    parts = {"ce": _cross_entropy(rows, batch), "l2": rows.square().mean()}
    return {TOTAL: parts["ce"] + parts["l2"], **parts}


def _contrastive(rows: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
    mine, theirs = F.normalize(rows.flatten(1), dim=1), F.normalize(batch["values"].flatten(1), dim=1)
    return F.cross_entropy(mine @ theirs.T / 0.1, torch.arange(len(mine)))


def samples_of(batch: Mapping[str, Tensor]) -> float:
    """Return the samples of a batch."""
    return len(batch["number"])


LOSSES = (
    LossCase("L1", lambda rows, batch: F.l1_loss(rows, batch["values"]), samples_of),
    LossCase("Charbonnier", _charbonnier, samples_of),
    LossCase("cross entropy", _cross_entropy, samples_of),
    LossCase("with class weights", _weighted_entropy, _weight_of_classes, weighs="its own"),
    LossCase("masked MSE", _masked, lambda batch: float(batch["mask"].sum()), weighs="its own"),
    LossCase("smoothed labels", partial(_cross_entropy, label_smoothing=0.1), samples_of),
    LossCase("BCE, pos_weight", _bce, samples_of),
    LossCase("total and parts", _total_and_parts, samples_of),
    LossCase("contrastive", _contrastive, samples_of, couples=True),
    LossCase(
        "tokens",
        partial(_cross_entropy, labels="labels"),
        lambda batch: float((batch["labels"] != LEFT_OUT).sum()),
        weighs="labels",
    ),
)


def _in_place(batch: Mapping[str, Tensor]) -> None:
    """Normalise as ``x.sub_(m).div_(s)`` does; tokens are shifted."""
    if batch["x"].is_floating_point():
        batch["x"].sub_(0.5).div_(2.0)
    else:
        batch["x"].add_(1).remainder_(11)
    batch["values"].sub_(0.5).div_(2.0)


def _by_data(batch: Mapping[str, Tensor]) -> None:
    _in_place({name: tensor.data for name, tensor in batch.items()})


def _by_numpy(batch: Mapping[str, Tensor]) -> None:
    x, values = batch["x"].numpy(), batch["values"].numpy()
    if batch["x"].is_floating_point():
        x -= 0.5
        x /= 2.0
    else:
        x += 1
        x %= 11
    values -= 0.5
    values /= 2.0


MISUSES = (
    Misuse("none"),
    Misuse("batch changed in place", _in_place),
    Misuse("the same by .data", _by_data),
    Misuse("the same by numpy", _by_numpy),
    Misuse("in place from the second step", _in_place, from_step=1),
    Misuse("fresh head", is_fresh=True),
    Misuse("weights below 1", weighs_floats=True, declares=True),
    Misuse(DECLARED, declares=True),
    Misuse(ACCUMULATES, passes=2),
    Misuse("optimizer, first operator", fails_in_optimizer=(0, 0.0)),
    Misuse("optimizer, half of its second update", fails_in_optimizer=(1, 0.5)),
    Misuse("a remainder of 1", samples=3, room=2),
    Misuse("measured first", budget="256MiB"),
)


@dataclass(frozen=True)
class Cell:
    """A loss, a model and a misuse, and the way in which they are trained: ``engine``, ``loop`` or ``trainer``."""

    way: str
    loss: LossCase
    model: ModelCase
    misuse: Misuse

    @property
    def key(self) -> str:
        """Name of the cell."""
        return f"{self.way} | {self.misuse.name} | {self.loss.name} | {self.model.name}"

    @property
    def couples(self) -> bool:
        """Whether the batch must not be run in parts."""
        return self.loss.couples or self.model.couples

    def net(self) -> nn.Module:
        """Return the model as the run begins with it."""
        net = self.model.make()
        if self.misuse.is_fresh:
            with torch.no_grad():
                for parameter in net.head.parameters():  # type: ignore[union-attr]
                    parameter.mul_(1e-3)
        return net

    def weigh(self, batch: Mapping[str, Tensor]) -> float:
        """Return what parts weigh, as the run is told."""
        return self.loss.weigh(batch) * (FLOAT_SHARE if self.misuse.weighs_floats else 1.0)


WAYS = ("engine", "loop", "trainer")


def all_cells() -> list[Cell]:
    """Return every cell that can be: the engine measures nothing, and is told all there is to declare, as loops are."""
    only_loops, only_trainers = ("loop", "trainer"), ("trainer",)
    return [
        Cell(way, loss, model, misuse)
        for misuse in MISUSES
        for way in (only_trainers if misuse.name in (DECLARED, ACCUMULATES) else only_loops if misuse.budget else WAYS)
        for loss in LOSSES
        for model in MODELS
    ]


def cells_for_tests() -> list[Cell]:
    """Return a few: every misuse in every way, losses and models in turn; and each loss once as a Trainer gets it."""
    cells = all_cells()
    chosen: dict[str, Cell] = {}
    for number, (way, misuse) in enumerate(dict.fromkeys((cell.way, cell.misuse.name) for cell in cells)):
        here = [cell for cell in cells if (cell.way, cell.misuse.name) == (way, misuse)]
        cell = here[(number * 13) % len(here)]
        chosen[cell.key] = cell
    for number, loss in enumerate(LOSSES):
        for way in WAYS:
            wanted = (way, loss.name, MODELS[number % len(MODELS)].name)
            cell = next(c for c in cells if (c.way, c.loss.name, c.model.name) == wanted)
            chosen.setdefault(cell.key, cell)
    return list(chosen.values())
