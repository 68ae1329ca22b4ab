"""What a batch looks like, as a person writes it in a line: shapes whose sizes are numbers, samples and one size.

    {"ids": ("batch", "tokens", torch.int64), "labels": ("batch", "tokens", torch.int64)}
    (("batch", 3, "side", "side"), ("batch", torch.int64))
    {"image": ("batch", 3, "side", "side"), "latents": ("batch", 4, "side//8", "side//8")}

A shape is a tuple of dimensions, with the type behind them where that is not float32. ``"batch"`` counts samples; any
other word is the size of one, and there is at most one of them. Both may stand in sums, products and whole quotients.
"""

import ast
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from trainauto.core.errors import InputError, Problem
from trainauto.core.plan import BATCH_SIZE, Axis, Plan

Shape = tuple["int | str | torch.dtype", ...]
Shapes = Shape | Mapping[str, "Shapes"] | Sequence["Shapes"]
Bounds = Mapping[str, Sequence[int]]
"""By word, the smallest and the largest value, and what it has to be a multiple of where that is not 1."""

SAMPLES = "batch"
LARGEST_BATCH = 4096
"""Its default bound: a batch that is still larger makes few steps of an epoch, and is no matter of memory."""

_EXAMPLE = '("batch", "tokens", torch.int64)'
_ARITHMETIC: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}


@dataclass(frozen=True)
class _Leaf:
    """A tensor of the batch: its dimensions as they are computed, and its type."""

    name: str
    dimensions: tuple[ast.expr, ...]
    dtype: torch.dtype

    def make(self, sizes: Mapping[str, int]) -> torch.Tensor:
        return torch.zeros([_value(dimension, sizes) for dimension in self.dimensions], dtype=self.dtype)

    def degree(self, word: str) -> int:
        """Return the power of a word that the number of elements follows."""
        return sum(_degree(dimension, word) for dimension in self.dimensions)


class BatchShapes:
    """Batches of any make that follow a plan.

    Attributes:
        size: word of the one size; ``None`` where samples have none.
        counts: whether samples are counted.

    Args:
        shapes: see above; mappings, tuples and lists hold others.

    Raises:
        InputError: something in it is no shape, or there are two sizes.
    """

    def __init__(self, shapes: Shapes) -> None:
        self._tree = _parsed(shapes, "")
        words = {word for leaf in _leaves(self._tree) for d in leaf.dimensions for word in _words(d)}
        sizes = sorted(words - {SAMPLES})
        self.counts = SAMPLES in words
        self.size = sizes[0] if sizes else None
        if not words:
            raise InputError(Problem("no dimension of the batch can grow", advice=f"Write them as {_EXAMPLE}."))
        if len(sizes) > 1:
            advice = f"Samples are counted by '{SAMPLES}'; give numbers for all sizes but one."
            raise InputError(Problem(f"a batch has one size that grows, not {' and '.join(sizes)}", advice=advice))
        if self.size in (BATCH_SIZE, "micro_batches"):
            raise InputError(Problem(f"'{self.size}' cannot be a size", advice=f"Samples are counted by '{SAMPLES}'."))

    def axes(self, bounds: Bounds) -> tuple[Axis, ...]:
        """Return what grows, in the order of the bounds; samples without bounds come last.

        Memory follows a size as the smallest tensor with that size does: a side of images by its square, tokens by
        themselves. This holds even where a mask is as wide as it is long (what grows so is then found by traces).

        Raises:
            InputError: a bound is missing, is no bound, or is of nothing in the batch.
        """
        words = [word for word in (self.size, SAMPLES if self.counts else None) if word]
        if unknown := sorted(set(bounds) - set(words)):
            advice = f"What grows is {' and '.join(words)}."
            raise InputError(Problem(f"bounds of '{unknown[0]}', which is no dimension of the batch", advice=advice))
        if self.size is not None and self.size not in bounds:
            advice = f'Give the smallest and the largest, e.g. bounds={{"{self.size}": (16, 512)}}.'
            raise InputError(Problem(f"how far '{self.size}' may grow is not said", advice=advice))
        given = {**bounds, **({SAMPLES: bounds.get(SAMPLES, (1, LARGEST_BATCH))} if self.counts else {})}
        axes = tuple(self._axis(word, given[word]) for word in given)
        self._check_smallest({axis.name: axis.clamp(axis.minimum) for axis in axes})
        return axes

    def make(self, plan: Plan) -> Any:
        """Return a batch of a plan; its values are zeros."""
        return _made(self._tree, self._sizes(dict(plan.values)))

    def _axis(self, word: str, bound: Sequence[int]) -> Axis:
        is_count = word == SAMPLES
        powers = [power for leaf in _leaves(self._tree) if (power := leaf.degree(word))]
        try:
            low, high, multiple = map(operator.index, bound if len(bound) == 3 else (*bound, 1))
            return Axis(
                BATCH_SIZE if is_count else word,
                "samples" if is_count else "",
                low,
                high,
                multiple,
                power=1 if is_count else min(powers),
            )
        except (TypeError, ValueError):
            advice = "Give the smallest and the largest value, and what it has to be a multiple of, if anything."
            raise InputError(Problem(f"bounds of '{word}' are {bound!r}", advice=advice)) from None

    def _sizes(self, values: Mapping[str, int]) -> dict[str, int]:
        return {SAMPLES if name == BATCH_SIZE else name: value for name, value in values.items()}

    def _check_smallest(self, values: Mapping[str, int]) -> None:
        sizes = self._sizes(values)
        for leaf in _leaves(self._tree):
            for dimension in leaf.dimensions:
                if _value(dimension, sizes) < 1:
                    where = ", ".join(f"{word} {value}" for word, value in sizes.items())
                    text = f"'{ast.unparse(dimension)}' of {leaf.name} is {_value(dimension, sizes)} at {where}"
                    raise InputError(Problem(text, advice="Raise the smallest value of its bounds."))


def _parsed(shapes: Any, path: str) -> Any:
    if isinstance(shapes, Mapping):
        return {key: _parsed(child, f"{path}[{key!r}]") for key, child in shapes.items()}
    if isinstance(shapes, tuple) and shapes and all(isinstance(part, int | str | torch.dtype) for part in shapes):
        return _leaf(shapes, f"batch{path}")
    if isinstance(shapes, tuple | list):
        return _alike(shapes, [_parsed(child, f"{path}[{place}]") for place, child in enumerate(shapes)])
    raise InputError(Problem(f"batch{path} is {shapes!r}, which is no shape", advice=f"Write it as {_EXAMPLE}."))


def _leaf(shape: Shape, name: str) -> _Leaf:
    *dimensions, last = shape
    dtype = last if isinstance(last, torch.dtype) else torch.float32
    sizes = dimensions if isinstance(last, torch.dtype) else shape
    return _Leaf(name, tuple(_dimension(size, name) for size in sizes), dtype)


def _dimension(size: Any, name: str) -> ast.expr:
    try:
        expression = ast.parse(str(size).strip(), mode="eval").body
        _value(expression, dict.fromkeys(_words(expression), 1))
    except (SyntaxError, ZeroDivisionError, ValueError):
        advice = f"Dimensions are numbers, '{SAMPLES}', a word for the size, and + - * // of them."
        raise InputError(Problem(f"{name} has the dimension {size!r}", advice=advice)) from None
    return expression


def _value(node: ast.expr, sizes: Mapping[str, int]) -> int:
    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.Name(id=word):
            return sizes[word]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            return _ARITHMETIC[type(op)](_value(left, sizes), _value(right, sizes))
    raise ValueError(ast.unparse(node))


def _degree(node: ast.expr, word: str) -> int:
    match node:
        case ast.Name(id=name):
            return int(name == word)
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return _degree(left, word) + _degree(right, word)
        case ast.BinOp(left=left, op=ast.FloorDiv()):
            return _degree(left, word)
        case ast.BinOp(left=left, right=right):
            return max(_degree(left, word), _degree(right, word))
    return 0


def _words(node: ast.expr) -> list[str]:
    return [part.id for part in ast.walk(node) if isinstance(part, ast.Name)]


def _leaves(tree: Any) -> Iterator[_Leaf]:
    if isinstance(tree, _Leaf):
        yield tree
    else:
        for child in tree.values() if isinstance(tree, Mapping) else tree:
            yield from _leaves(child)


def _made(tree: Any, sizes: Mapping[str, int]) -> Any:
    if isinstance(tree, _Leaf):
        return tree.make(sizes)
    if isinstance(tree, dict):
        return {key: _made(child, sizes) for key, child in tree.items()}
    return _alike(tree, [_made(child, sizes) for child in tree])


def _alike(sequence: Any, children: list[Any]) -> Any:
    """Return other children in a sequence of the same kind; a named tuple takes them one by one."""
    kind = type(sequence)
    return kind(*children) if hasattr(kind, "_fields") else kind(children)
