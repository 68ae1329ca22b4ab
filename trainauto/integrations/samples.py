"""Samples of any kind as a workload: each tensor's first dimension is the sample, other leaves go with every part."""

import logging
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import gcd
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from trainauto.core.errors import InputError, Problem
from trainauto.core.plan import BatchShape
from trainauto.core.workload import Tensors
from trainauto.engine.handed_on import is_same
from trainauto.integrations.structure import Structure
from trainauto.integrations.weighing import number_of

logger = logging.getLogger(__name__)

Weigh = Callable[[Any], float]
"""Says what the loss of a batch is a mean over, where that is not its samples: supervised tokens, class weights."""

ROWS = (Tensor, np.ndarray)
"""What is divided along its first dimension, and cut along others."""

SizedDimensions = Mapping[str, Mapping[int, Fraction]]
"""By leaf, the dimensions that follow the size of samples, and how many times as large they are."""

PADDING_ADVICE = "; where batches are padded to a multiple (pad_to_multiple_of), round lengths up to that multiple"


@dataclass(frozen=True)
class Template:
    """What batches look like, learned from one of a single sample.

    Attributes:
        leaves: of a batch of one sample.
        structure: how they are put together.
        divided: leaves that have a part for each sample.
        sized: dimensions that follow the size of samples; none where samples have no size.
    """

    leaves: Mapping[str, Any]
    structure: Structure
    divided: frozenset[str]
    sized: SizedDimensions

    def samples_of(self, leaves: Mapping[str, Any]) -> int:
        """Return how many samples a batch has."""
        return next(length_of(leaves[name]) for name in leaves if name in self.divided)


class NestedSamples:
    """Batches whose tensors and arrays have samples in their first dimension; lists as long as that are divided, too.

    Args:
        template: what they look like.
        weigh: see :data:`Weigh`; samples where it is ``None``.
        counts_tokens: sizes are tokens of padded rows, so that batches are measured in tokens.
    """

    def __init__(self, template: Template, weigh: Weigh | None = None, *, counts_tokens: bool = False) -> None:
        self.template = template
        self.weighs_samples = weigh is None
        self._weigh = weigh
        self._counts_tokens = counts_tokens
        self._left_out: set[str] = set()

    @property
    def weigh(self) -> Weigh | None:
        """What the loss of a batch is a mean over; ``None`` for samples."""
        return self._weigh

    def weighed(self, weigh: Weigh | None) -> "NestedSamples":
        """Return the same kind of samples with other weights."""
        return NestedSamples(self.template, weigh, counts_tokens=self._counts_tokens)

    def part(self, tensors: Tensors, start: int, stop: int) -> dict[str, Tensor]:
        """Return samples ``start`` to ``stop``; what is no sample's goes with every part."""
        return {name: leaf[start:stop] if self._is_divided(name, leaf) else leaf for name, leaf in tensors.items()}

    def join(self, parts: Sequence[Tensors]) -> dict[str, Tensor]:
        """Return the samples of all parts; rows are padded with zeros to the longest.

        What losses have added without a part for each sample is left out where parts differ in it, which the log says.
        """
        names = dict.fromkeys(name for part in parts for name in part)
        apart = {name for name in names if not self._is_joinable(name, [part.get(name) for part in parts])}
        self._say_left_out(apart)
        return {name: self._joined(name, [part[name] for part in parts]) for name in names if name not in apart}

    def weight(self, tensors: Tensors) -> float:
        """Return what the loss of these samples is a mean over.

        Raises:
            InputError: ``weigh`` returns no number.
        """
        if self._weigh is None:
            return self.template.samples_of(tensors)
        return number_of(
            self._weigh(self.template.structure.rebuild({name: tensors[name] for name in self.template.leaves}))
        )

    def shape(self, tensors: Tensors) -> BatchShape:
        """Say how many samples a batch has, and how large they are."""
        samples, extent = self.template.samples_of(tensors), 1
        for name, dimensions in self.template.sized.items():
            for dimension, factor in dimensions.items():
                extent = max(extent, int(tensors[name].shape[dimension] / factor))
        return BatchShape(samples, extent, tokens=samples * extent if self._counts_tokens else 0, images=samples)

    def fullness(self, tensors: Tensors, largest: int) -> float:
        """Return how many values a sample has on average, over those of the template's.

        Args:
            tensors: of the batch.
            largest: samples that a pass of it holds.
        """
        del largest
        divided = self.template.divided
        values = sum(_values(leaf) for name, leaf in tensors.items() if name in divided)
        of_template = sum(_values(leaf) for name, leaf in self.template.leaves.items() if name in divided)
        return values / max(1, of_template * self.template.samples_of(tensors))

    def units(self, tensors: Tensors) -> int:
        """Return the tokens of a batch where sizes are tokens, else its samples."""
        shape = self.shape(tensors)
        return shape.tokens or shape.samples

    def shrink(self, tensors: Tensors, extent: int, smaller: int) -> dict[str, Tensor]:
        """Cut samples to a smaller size: their upper left part, their first tokens."""
        del extent
        return {name: self._cut(name, leaf, smaller) for name, leaf in tensors.items()}

    def dummy(self, samples: int, extent: int) -> dict[str, Tensor]:
        """Return a batch that repeats the template's sample, and what it holds along its sizes."""
        return {name: self._repeated(name, leaf, samples, extent) for name, leaf in self.template.leaves.items()}

    def told(self) -> Sequence[Tensor]:
        """Return the tensors of the template whose values say sizes of what a model computes; none do here.

        What :meth:`dummy` makes of them is believed where memory is predicted, other values never are.
        """
        return ()

    def check(self, leaves: Mapping[str, Any], samples: int) -> None:
        """Refuse a batch that is made in another way than the template.

        Raises:
            InputError: says what differs.
        """
        if leaves.keys() != self.template.leaves.keys():
            difference = ", ".join(sorted(leaves.keys() ^ self.template.leaves.keys()))
            raise InputError(f"batches differ in what they hold ({difference}): they must all be made alike")
        for name in self.template.divided:
            if length_of(leaves[name]) != samples:
                raise InputError(
                    f"'{name}' of a batch has {length_of(leaves[name])} parts for {samples} samples: where the first "
                    "dimension is not the sample, give a workload that says how batches are divided"
                )

    def _is_divided(self, name: str, leaf: Any) -> bool:
        return name in self.template.divided or (name not in self.template.leaves and length_of(leaf) >= 0)

    def _is_joinable(self, name: str, leaves: Sequence[Any]) -> bool:
        """Say whether parts agree in what they hold: rows all, or all the same."""
        return (
            name in self.template.leaves
            or all(self._is_divided(name, leaf) and type(leaf) is type(leaves[0]) for leaf in leaves)
            or all(is_same(leaf, leaves[0]) for leaf in leaves)
        )

    def _say_left_out(self, names: Collection[str]) -> None:
        new = set(names) - self._left_out
        if new:
            self._left_out |= new
            logger.warning(
                "a loss writes %s into its batch, and in each part of a batch that did not fit at once another value: "
                "objectives after it do not find it. Write a tensor with a row for each sample",
                ", ".join(sorted(new)),
            )

    def _joined(self, name: str, leaves: list[Any]) -> Any:
        if not self._is_divided(name, leaves[0]):
            return leaves[0]
        if not isinstance(leaves[0], ROWS):
            return [item for leaf in leaves for item in leaf]
        widest = [max(sizes) for sizes in zip(*(leaf.shape[1:] for leaf in leaves), strict=True)]
        padded = [_padded(leaf, widest) for leaf in leaves]
        return torch.cat(padded) if isinstance(leaves[0], Tensor) else np.concatenate(padded)

    def _cut(self, name: str, leaf: Any, smaller: int) -> Any:
        for dimension, factor in self.template.sized.get(name, {}).items():
            leaf = leaf[(*[slice(None)] * dimension, slice(int(smaller * factor)))]
        return leaf

    def _repeated(self, name: str, leaf: Any, samples: int, extent: int) -> Any:
        if name not in self.template.divided:
            return leaf
        if not isinstance(leaf, ROWS):
            return [leaf[0]] * samples
        for dimension, factor in self.template.sized.get(name, {}).items():
            leaf = _taken(leaf, dimension, int(extent * factor))
        return _taken(leaf, 0, samples)


def template_of(one: Any, three: Any, leaves: Callable[[Any], dict[str, Any]], sized: SizedDimensions) -> Template:
    """Learn what batches look like.

    Args:
        one: a batch of one sample.
        three: a batch of three.
        leaves: names what a batch holds.
        sized: see :class:`Template`.

    Raises:
        InputError: nothing in a batch has a part for each sample, or a tensor has neither that nor one value. So it is
            if the number of tensors depends on the number of samples, or an object of unknown make holds tensors.
    """
    single, several = leaves(one), leaves(three)
    if single.keys() != several.keys():
        difference = ", ".join(sorted(several.keys() ^ single.keys()))
        raise InputError(
            f"a batch of 3 samples holds others than one of 1 ({difference}): a list with a tensor for each sample "
            "cannot be divided; have collate_fn stack or pad them into one tensor, its first dimension the sample"
        )
    for name, leaf in several.items():
        if _has_tensors(leaf):
            message = f"'{name}' of a batch is a {type(leaf).__name__}, which is not known to be made of parts"
            advice = "Have collate_fn return tensors, tuples, dicts or dataclasses."
            raise InputError(Problem(f"{message}: batches cannot be divided", advice=advice))
    lengths = {name: (length_of(single[name]), length_of(leaf)) for name, leaf in several.items()}
    divided = frozenset(name for name, both in lengths.items() if both == (1, 3))
    if not divided:
        raise InputError("no tensor of a batch has the sample as its first dimension: batches cannot be divided")
    for name, leaf in several.items():
        if name not in divided and isinstance(leaf, ROWS) and leaf.ndim:
            raise InputError(
                f"'{name}' of a batch of 3 samples has the shape {tuple(leaf.shape)}: where the first dimension is not "
                "the sample, give a workload that says how batches are divided"
            )
    return Template(single, Structure.of(one), divided, sized)


def sized_dimensions(
    small: Mapping[str, Any], large: Mapping[str, Any], small_size: int, large_size: int
) -> dict[str, dict[int, Fraction]]:
    """Find the dimensions that follow the size of samples, by two batches of different sizes.

    Where all samples are of one size, those that are just as large; none where samples have no size (0).

    Raises:
        InputError: none does, or one follows it in no fixed proportion.
    """
    sized: dict[str, dict[int, Fraction]] = {}
    if not large_size:
        return sized
    for name, leaf in small.items():
        for dimension in range(1, leaf.ndim if isinstance(leaf, ROWS) else 0):
            before, after = leaf.shape[dimension], large[name].shape[dimension]
            if before == after and not (small_size == large_size == before):
                continue
            if before * large_size != after * small_size:
                raise InputError(
                    f"dimension {dimension} of '{name}' is {before} at size {small_size} and {after} at {large_size}: "
                    f"it must follow the size in proportion{_advice((small_size, large_size), (before, after))}"
                )
            sized.setdefault(name, {})[dimension] = Fraction(before, small_size)
    if not sized:
        raise InputError(
            f"no dimension of a batch follows the size of its samples, {small_size} to {large_size}{PADDING_ADVICE}"
        )
    return sized


def _values(leaf: Any) -> int:
    return math.prod(leaf.shape) if isinstance(leaf, ROWS) else 0


def _has_tensors(leaf: Any) -> bool:
    """Say whether a leaf is an object that holds tensors among its attributes."""
    if isinstance(leaf, ROWS):
        return False
    names = [*getattr(leaf, "__dict__", ()), *getattr(type(leaf), "__slots__", ())]
    return any(isinstance(held := getattr(leaf, name, None), ROWS) and held.ndim for name in names)


def length_of(leaf: Any) -> int:
    """Return the parts of a leaf; -1 where it is one thing."""
    if isinstance(leaf, ROWS):
        return int(leaf.shape[0]) if leaf.ndim else -1
    return len(leaf) if isinstance(leaf, list | tuple) and not hasattr(leaf, "_fields") else -1


def _advice(sizes: tuple[int, int], padded: tuple[int, int]) -> str:
    """Say what helps where sizes were rounded up to a multiple."""
    multiple = gcd(*padded)
    is_rounded = multiple > 1 and all(
        -(-size // multiple) * multiple == wide for size, wide in zip(sizes, padded, strict=True)
    )
    return PADDING_ADVICE if is_rounded else ""


def _taken(leaf: Any, dimension: int, count: int) -> Any:
    """Return so many entries along a dimension, over and over those there are."""
    places = np.arange(count) % leaf.shape[dimension]
    if isinstance(leaf, Tensor):
        return leaf.index_select(dimension, torch.as_tensor(places))
    return np.take(leaf, places, dimension)


def _padded(leaf: Any, widest: Sequence[int]) -> Any:
    missing = [wide - size for wide, size in zip(widest, leaf.shape[1:], strict=True)]
    if not any(missing):
        return leaf
    if not isinstance(leaf, Tensor):
        return np.pad(leaf, [(0, 0), *((0, count) for count in missing)])
    return functional.pad(leaf, [side for count in reversed(missing) for side in (0, count)])
