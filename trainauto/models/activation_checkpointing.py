"""Gradient checkpointing of any network: its repeated blocks keep their inputs, and run again in the backward pass.

T. Chen et al., "Training Deep Nets with Sublinear Memory Cost", https://arxiv.org/abs/1604.06174. Modules change their
class and nothing else: names of weights, copies and saved files stay as they are.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache, partial
from math import ceil, sqrt
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from trainauto.core.errors import TrainautoError

NAMED_BLOCKS = "checkpoint_blocks"
"""Attribute by which a network names its blocks itself: modules of its own."""

MOST_OF = 0.5
"""Blocks within blocks are taken instead of these if they hold at least so much of the weights."""

SHORTEST_CHAIN = 7
"""Layers; of fewer, the inputs of all segments and the inside of one are no less than the inputs of all."""

_PLAIN_CLASS = "_plain_class"
_CHANGING = "_changing_buffers"
_ONLY = "_only_segments"


class ActivationCheckpointingError(TrainautoError):
    """What a network does cannot be done again; the message says why."""


@dataclass(frozen=True)
class Blocks:
    """What runs again in the backward pass.

    Attributes:
        modules: blocks; or one chain of layers, which is cut into segments, since a layer alone saves nothing.
        is_chain: which of both.
    """

    modules: tuple[nn.Module, ...] = ()
    is_chain: bool = False

    @property
    def weights(self) -> int:
        """Numbers that are trained in them."""
        return sum(parameter.numel() for module in self.modules for parameter in module.parameters())

    def __str__(self) -> str:
        if self.is_chain:
            (chain,) = self.modules
            layers = list(chain.children())
            return f"{len(segments_of(layers))} segments of a chain of {len(layers)} layers"
        kinds = Counter(type(module).__name__ for module in self.modules)
        return ", ".join(f"{count} {kind}" for kind, count in kinds.items())


@dataclass(frozen=True)
class Part:
    """What can run again by itself: a block, or a segment of a chain.

    Attributes:
        modules: it consists of, by their paths in the network.
        owner: what changes its class.
        start: of the segment in the chain; ``None`` for a block.
    """

    modules: Mapping[str, nn.Module]
    owner: nn.Module
    start: int | None = None


def parts_of(network: nn.Module) -> dict[str, Part]:
    """Return the parts of a network that can run again by themselves, by name, in its order.

    Blocks are called as their paths (``body.0``), segments as those of their chain and the layers (``body[0:4]``).

    Raises:
        ActivationCheckpointingError: as :func:`blocks_of`.
    """
    blocks = blocks_of(network)
    paths = {id(module): path for path, module in network.named_modules()}
    if not blocks.is_chain:
        return {paths[id(module)]: Part({paths[id(module)]: module}, module) for module in blocks.modules}
    (chain,) = blocks.modules
    path, layers = paths[id(chain)], list(chain.children())
    return {
        f"{path}[{start}:{stop}]": Part({paths[id(layer)]: layer for layer in layers[start:stop]}, chain, start)
        for start, stop in segments_of(layers)
    }


def switch_on(network: nn.Module, only: Collection[str] | None = None) -> Blocks:
    """Have the blocks of a network run again in backward passes, and return them. A second call changes nothing.

    Args:
        network: the network.
        only: names of some of its parts, see :func:`parts_of`, beside those for which it is on; ``None`` for all.

    Results stay what they were: random numbers are drawn again as they were drawn, and buffers that a block changes
    (batch statistics) are changed once. Where no gradients are computed, nothing is kept anyway.

    Raises:
        ActivationCheckpointingError: there are no repeated blocks.
        KeyError: a name is that of none of its parts.
    """
    blocks, parts = blocks_of(network), parts_of(network)
    for name in parts if only is None else only:
        module, start = parts[name].owner, parts[name].start
        if not is_on(module):
            vars(module)[_ONLY] = set()
            module.__class__ = _checkpointed(type(module), blocks.is_chain)  # type: ignore[arg-type]
        if start is not None:
            vars(module)[_ONLY].add(start)
    return blocks


def parts_on(network: nn.Module) -> list[str]:
    """Return the names of the parts that run again in backward passes.

    Raises:
        ActivationCheckpointingError: as :func:`blocks_of`.
    """
    return [
        name
        for name, part in parts_of(network).items()
        if is_on(part.owner) and (part.start is None or part.start in vars(part.owner)[_ONLY])
    ]


def is_on(module: nn.Module) -> bool:
    """Say whether this very module runs again in backward passes."""
    return _PLAIN_CLASS in vars(type(module))


def switch_off(network: nn.Module) -> None:
    """Have no block of a network run again; one that :func:`switch_on` was not called for stays as it is."""
    for module in network.modules():
        if is_on(module):
            module.__class__ = vars(type(module))[_PLAIN_CLASS]
            for kept in (_CHANGING, _ONLY):
                vars(module).pop(kept, None)


def blocks_of(network: nn.Module) -> Blocks:
    """Return what is to run again.

    That is what the network names, else the children of a list or chain that are of one class and hold the most
    weights. Where these consist of such blocks themselves, those, for the smaller a block, the less is kept.

    Raises:
        ActivationCheckpointingError: there is nothing of the kind, or what the network names are no modules of it.
    """
    named = getattr(network, NAMED_BLOCKS, None)
    if named is not None:
        if not named or not (set(network.modules()) - {network}).issuperset(named):
            raise ActivationCheckpointingError(
                f"{NAMED_BLOCKS} of {type(network).__name__} must name modules of the network"
            )
        return Blocks(tuple(named))
    blocks = _repeated(network)
    if not blocks.modules:
        raise ActivationCheckpointingError(
            f"{type(network).__name__} has no list of repeated blocks, and no attribute {NAMED_BLOCKS} that names some"
        )
    return blocks


def in_words(blocks: Mapping[str, Blocks]) -> str:
    """Return blocks by the name of their network in words: ``net_g: 23 RRDB``."""
    return "; ".join(f"{name}: {repeated}" for name, repeated in blocks.items())


def segments_of(layers: Sequence[nn.Module]) -> list[tuple[int, int]]:
    """Cut a chain of ``n`` layers into about ``sqrt(n)`` segments of as many layers: (first, one past the last).

    The inputs of all segments and the inside of one are then least. No segment begins with an activation that
    overwrites its input, since that input is needed again.
    """
    length = ceil(sqrt(len(layers)))
    starts = [0]
    for position, layer in enumerate(layers):
        if position >= starts[-1] + length and not getattr(layer, "inplace", False):
            starts.append(position)
    return list(zip(starts, [*starts[1:], len(layers)], strict=True))


def _repeated(network: nn.Module) -> Blocks:
    best = Blocks()
    for container in network.modules():
        if isinstance(container, nn.ModuleList | nn.Sequential):
            for kind in dict.fromkeys(_plain(child) for child in container):
                candidate = _alike(container, kind)
                best = candidate if candidate.weights > best.weights else best
    if best.is_chain:
        return best
    inner = [_repeated(block) for block in best.modules]
    if any(blocks.is_chain for blocks in inner) or any(
        blocks.weights < MOST_OF * Blocks((block,)).weights for blocks, block in zip(inner, best.modules, strict=True)
    ):
        return best
    return Blocks(tuple(module for blocks in inner for module in blocks.modules))


def _alike(container: nn.ModuleList | nn.Sequential, kind: type[nn.Module]) -> Blocks:
    """Return the children of a class if there are several; where they are single layers, the chain that they are in."""
    alike = tuple(child for child in container if _plain(child) is kind)
    if len(alike) < 2:
        return Blocks()
    if any(True for _ in alike[0].children()):
        return Blocks(alike)
    has_chain = getattr(_plain(container), "forward", None) is nn.Sequential.forward
    has_chain = has_chain and len(container) >= SHORTEST_CHAIN
    return Blocks((container,), is_chain=True) if has_chain else Blocks()


def _plain(module: nn.Module) -> type[nn.Module]:
    """Return the class of a module as it was written."""
    kind: type[nn.Module] = getattr(type(module), _PLAIN_CLASS, type(module))
    return kind


# --- running ---


@cache
def _checkpointed(kind: type[nn.Module], is_chain: bool) -> type[nn.Module]:
    """Return a class that differs from ``kind`` in how it runs."""

    def run_block(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        return _run(self, 0, (self,), partial(kind.forward, self), args, kwargs)

    def run_chain(self: nn.Module, features: Any) -> Any:
        layers = list(self.children())
        for start, stop in segments_of(layers):
            part = layers[start:stop]
            if start not in vars(self)[_ONLY]:
                features = _through(part, features)
                continue
            features = _run(self, start, part, partial(_through, part), (features,), {})
        return features

    body = {"forward": run_chain if is_chain else run_block, "__module__": kind.__module__, "__doc__": kind.__doc__}
    return type(kind.__name__, (kind,), {**body, _PLAIN_CLASS: kind})


def _through(layers: Sequence[nn.Module], features: Any) -> Any:
    for layer in layers:
        features = layer(features)
    return features


def _run(
    owner: nn.Module,
    part: int,
    modules: Sequence[nn.Module],
    forward: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> Any:
    """Run a part of ``owner`` that consists of ``modules``, so that it can be run again."""
    if not (owner.training and torch.is_grad_enabled()):
        return forward(*args, **kwargs)

    # All are handed on by position: from these, torch finds the devices whose random numbers are to be drawn again.
    def by_position(*inputs: Any) -> Any:
        return forward(*inputs[: len(args)], **dict(zip(kwargs, inputs[len(args) :], strict=True)))

    inputs = (*args, *kwargs.values())
    versions = _versions(inputs)
    out = checkpoint(
        by_position,
        *inputs,
        use_reentrant=False,
        preserve_rng_state=True,
        context_fn=partial(_buffers_kept, owner, part, modules),
    )
    if _versions(inputs) != versions:
        raise ActivationCheckpointingError(
            f"a block of class {type(owner).__name__} overwrites its input, which gradient checkpointing needs again\n"
            "  Set `inplace=False` where the block begins, or switch gradient checkpointing off."
        )
    return out


def _versions(inputs: Sequence[Any]) -> list[int]:
    return [tensor._version for tensor in inputs if isinstance(tensor, Tensor)]


def _buffers_kept(
    owner: nn.Module, part: int, modules: Sequence[nn.Module]
) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """Return what surrounds the first and the second run of a part, so that its buffers change once.

    The second run finds them as the first did (a spectral norm follows from them) and leaves them as it found them.
    Which of them change is seen in the part's first run.
    """
    buffers = [buffer for module in modules for buffer in module.buffers()]
    changing: dict[int, tuple[int, ...]] = vars(owner).setdefault(_CHANGING, {})
    is_known = part in changing
    watched = [buffers[position] for position in changing[part]] if is_known else buffers
    if not watched:
        return nullcontext(), nullcontext()
    before: list[tuple[Tensor, Tensor]] = []

    @contextmanager
    def first() -> Iterator[None]:
        before.extend(_copied(watched))
        yield
        if not is_known:
            changing[part] = tuple(position for position, pair in enumerate(before) if not torch.equal(*pair))
            before[:] = [before[position] for position in changing[part]]

    @contextmanager
    def again() -> Iterator[None]:
        now = _copied([buffer for buffer, _ in before])
        _put_back(before)
        try:
            yield
        finally:
            _put_back(now)

    return first(), again()


def _copied(buffers: Sequence[Tensor]) -> list[tuple[Tensor, Tensor]]:
    return [(buffer, buffer.detach().clone()) for buffer in buffers]


@torch.no_grad()
def _put_back(copies: Sequence[tuple[Tensor, Tensor]]) -> None:
    for buffer, copy in copies:
        buffer.copy_(copy)
