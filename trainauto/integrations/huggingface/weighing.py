"""How the losses of parts make up that of a batch: found out by a few forward passes before the first step."""

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from trainauto.engine.snapshot import StepSnapshot
from trainauto.integrations.huggingface.cuts import (
    DECLARE,
    SIGNIFICANT,
    TOLERANCE,
    Cut,
    Found,
    is_sum,
    judged,
    reads_divisors,
    tells,
)
from trainauto.integrations.huggingface.divisors import divisor_of
from trainauto.integrations.huggingface.loss import TrainerLoss, Weighing, has_counted_labels
from trainauto.integrations.map_samples import MapSamples
from trainauto.integrations.samples import NestedSamples
from trainauto.integrations.structure import Structure
from trainauto.memory.monitor.oom import is_out_of_memory

logger = logging.getLogger(__name__)

LOOKED_AT = 4
"""Samples by which is found out how losses of parts make up that of the whole."""

REPEATS = 3
"""How often one batch is run: a loss that draws noise may come out alike twice."""

MOST_SEARCHED = 64
"""Samples among which those with other labels are looked for: each is read before the first step."""


ALL_MASKED = (
    f"none of the first {MOST_SEARCHED} samples of train_dataset has a label that counts: all are -100, and nothing is "
    "learned from such samples. Look at what makes the labels: a mask of prompts, a max_length that cuts answers off."
)


def telling_samples(loss: TrainerLoss, samples: MapSamples, structure: Structure) -> Mapping[str, Any]:
    """Return a batch of some of the first samples, whose labels differ: in how many count, and in what they are.

    A mean over no labels is not a number, and samples that weigh alike tell nothing of what others do.
    """
    first = list(range(min(len(samples), LOOKED_AT)))
    if not has_counted_labels(structure.rebuild(samples.some(first))):
        return samples.some(first)
    kinds: dict[Any, int] = {}
    alike: list[int] = []
    for index in range(min(len(samples), MOST_SEARCHED)):
        kind = _kind_of(loss, structure.rebuild(samples.some([index])))
        if kind is not None and kinds.setdefault(kind, index) != index:
            alike.append(index)
        if len(kinds) == LOOKED_AT:
            break
    chosen = [*kinds.values(), *alike][:LOOKED_AT]
    return samples.some(chosen or first)


def _kind_of(loss: TrainerLoss, batch: Any) -> tuple[int, int] | None:
    """Return what a sample's labels are told apart by, how many and which; ``None`` where none of them counts."""
    count, labels = loss.labels_in(batch), batch["labels"]
    return (count, int(labels) if labels.numel() == 1 else 0) if count else None


def learn_weighing(
    loss: TrainerLoss, module: nn.Module, workload: NestedSamples, structure: Structure, leaves: Mapping[str, Any]
) -> Found:
    """Find out how the losses of parts make up that of the whole, by a few forward passes.

    What a loss does with its labels, and with ``num_items_in_batch``, cannot be seen from outside. Losses of a model
    that has learned nothing agree, whatever they are means over: its weights are disturbed for some of the passes.

    Args:
        loss: of the Trainer.
        module: its model; weights, modes, buffers and random generators are as before.
        workload: divides batches.
        structure: puts them together.
        leaves: of some samples, on the device.
    """
    if workload.template.samples_of(leaves) < 2:
        return _taken_for_granted(loss, structure.rebuild(leaves), "there is one sample only")
    was_training = module.training
    snapshot = StepSnapshot([module], next(module.parameters()).device)
    snapshot.take()
    module.eval()  # dropout would hide what is to be seen
    comparison = _Comparison(loss, module, workload, structure, leaves, snapshot.restore)
    try:
        for reads in (True, False):  # to read what losses are divided by takes the memory of gradients
            try:
                with torch.set_grad_enabled(reads):
                    return comparison.result()
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
        return _taken_for_granted(loss, structure.rebuild(leaves), "memory ran out while losses were compared")
    finally:
        module.train(was_training)
        snapshot.restore()


class _Comparison:
    """Losses of some samples, as a whole and in parts."""

    def __init__(
        self,
        loss: TrainerLoss,
        module: nn.Module,
        workload: NestedSamples,
        structure: Structure,
        leaves: Mapping[str, Any],
        restore: Callable[[], None],
    ) -> None:
        self._loss, self._module, self._restore = loss, module, restore
        self._samples = workload.template.samples_of(leaves)
        self._workload, self._structure, self._leaves = workload, structure, leaves
        self._items = loss.items_here(self._batch())

    def _batch(self) -> Any:
        return self._part(0, self._samples)

    def _part(self, start: int, stop: int) -> Any:
        """Return a copy of some samples: a loss may change its batch in place."""
        return self._structure.rebuild(deepcopy(self._workload.part(self._leaves, start, stop)))

    def result(self) -> Found:
        """Compare losses of the model as it is; where these agree, or terms of them may, of one that is disturbed."""
        batch = self._batch()
        if has_counted_labels(batch) and not self._loss.labels_in(batch):  # telling_samples has found no other
            return replace(_taken_for_granted(self._loss, batch, ""), doubt=ALL_MASKED)
        same = [self._value(self._batch(), None)[0] for _ in range(REPEATS)]
        if max(same) - min(same) > SIGNIFICANT * max(map(abs, same)):
            return self._of_noisy()
        cuts = self._cuts()
        if is_sum(cuts):
            return Found(Weighing.SUM, by_labels=True)
        # Where one term of a loss tells, another may not: unless all are seen to be divided alike, they are disturbed.
        is_settled = reads_divisors(cuts)
        for factor in FACTORS:
            if is_settled and tells(cuts):
                break
            is_settled = True
            with disturbed(self._module, factor) as is_disturbed:
                cuts += self._cuts_of_disturbed() if is_disturbed else []
        if not cuts:
            return _taken_for_granted(self._loss, self._batch(), "no loss was a finite number")
        return judged(cuts)

    def _cuts_of_disturbed(self) -> list[Cut]:
        """Return what is found; nothing where the loss refuses what a disturbed model gives."""
        try:
            return self._cuts()
        except (ArithmeticError, AssertionError, LookupError, RuntimeError, ValueError) as error:
            if is_out_of_memory(error):
                raise
            logger.debug("the loss of a disturbed model: %s", error)
            return []

    def _cuts(self) -> list[Cut]:
        """Return what is found where batches are cut behind the first sample, in the middle, and before the last."""
        places = sorted({1, self._samples // 2, self._samples - 1})
        whole = self._measured(0, self._samples)
        cuts = [
            _cut(whole, self._measured(0, place), self._measured(place, self._samples), (place, self._samples - place))
            for place in places
        ]
        return [cut for cut in cuts if cut.is_usable]

    def _measured(self, start: int, stop: int) -> "_Measured":
        batch = self._part(start, stop)
        mean, divisor = self._value(batch, None)
        total = None
        if self._items is not None:
            with torch.no_grad():
                total = self._value(self._part(start, stop), self._items)[0]
        labels = self._loss.labels_in(batch) if has_counted_labels(batch) else None
        return _Measured(mean, total, divisor, labels)

    def _value(self, batch: Any, items: Any) -> tuple[float, float | None]:
        """Return the loss of a batch, and what it is divided by, where that can be read."""
        value = self._loss.of(self._module, batch, items)
        return float(value.detach()), divisor_of(value)

    def _of_noisy(self) -> Found:
        """Return the weighing of a loss that draws noise: parts drawn anew cannot be compared with the whole.

        Whether it divides by ``num_items_in_batch`` shows with the same noise twice; what else it is divided by must
        add up. Where neither shows, each sample counts as much.
        """
        if self._items is not None:
            values = []
            for given in (self._items, self._items * 2):
                self._restore()
                values.append(self._value(self._batch(), given)[0])
            if abs(values[0] - 2 * values[1]) <= TOLERANCE * abs(values[0]):
                return Found(Weighing.SUM, by_labels=True)
        divisors = [self._value(self._part(*cut), None)[1] for cut in [(0, self._samples), (0, 1), (1, self._samples)]]
        whole, *parts = (math.nan if divisor is None else divisor for divisor in divisors)
        if math.isclose(sum(parts), whole, rel_tol=SIGNIFICANT):
            return Found(Weighing.DIVISOR, by_labels=_counts_labels(self._loss, self._batch(), whole))
        doubt = "the loss draws noise, so that its parts cannot be compared with the whole: they weigh by their samples"
        return Found(Weighing.SAMPLES, doubt=doubt)


def _counts_labels(loss: TrainerLoss, batch: Any, divisor: float) -> bool:
    return has_counted_labels(batch) and loss.labels_in(batch) == divisor


@dataclass(frozen=True)
class _Measured:
    """Of a batch: its loss, that with the labels of the whole, what it is divided by, its labels."""

    mean: float
    total: float | None
    divisor: float | None
    labels: int | None


def _cut(whole: _Measured, first: _Measured, second: _Measured, samples: tuple[int, int]) -> Cut:
    all_of = (whole, first, second)
    weights: dict[Weighing, tuple[float, float]] = {}
    if whole.divisor is not None and first.divisor is not None and second.divisor is not None:
        weights[Weighing.DIVISOR] = first.divisor, second.divisor
    if first.labels is not None and second.labels is not None:
        weights[Weighing.ITEMS] = first.labels, second.labels
    weights[Weighing.SAMPLES] = samples
    sums = tuple(one.total for one in all_of if one.total is not None)
    return Cut((whole.mean, first.mean, second.mean), sums, weights)


def _taken_for_granted(loss: TrainerLoss, batch: Any, why: str) -> Found:
    """Return what the Trainer itself takes for granted, where nothing could be compared."""
    takes_items = loss.items_here(batch) is not None
    weighing = Weighing.SUM if takes_items else Weighing.SAMPLES
    return Found(weighing, takes_items, f"{why}: what parts of a batch weigh is not known. {DECLARE}")


FACTORS = (1.0, 4.0, 16.0)
"""By what weights are multiplied where losses agree, as those of a fresh head do: first by as little as will do."""


@contextmanager
def disturbed(module: nn.Module, factor: float) -> Iterator[bool]:
    """Have a model give other outputs for other samples; say whether there was memory for a copy of its weights.

    Those it trains get noise of the size that layers begin with, and are multiplied.
    """
    weights = [weight for weight in module.parameters() if weight.requires_grad and weight.ndim > 1]
    kept: list[Tensor] = []
    try:
        kept += [weight.detach().clone() for weight in weights]
        generator = torch.Generator(weights[0].device).manual_seed(0) if weights else None
        with torch.no_grad():
            for weight in weights:
                size = (weight.shape[0] / weight.numel()) ** 0.5
                weight.add_(torch.empty_like(weight).normal_(0, size, generator=generator)).mul_(factor)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        _put_back(weights, kept)
        yield False
        return
    try:
        yield True
    finally:
        _put_back(weights, kept)


def _put_back(weights: Sequence[Tensor], kept: Sequence[Tensor]) -> None:
    with torch.no_grad():
        for weight, copy in zip(weights, kept, strict=False):
            weight.copy_(copy)
