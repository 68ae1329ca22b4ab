"""What a module makes of constants is known in a trace, and what follows from what it is told; data never is."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from trainauto.memory.tracing.contents import MOST_ELEMENTS
from trainauto.memory.tracing.fake_tensors import fake_world
from trainauto.memory.tracing.live_module import LiveModuleTracer
from trainauto.memory.tracing.trace import Trace, TraceError, trace

WIDE = 1 << 20
UNKNOWN = "the memory of a step depends on data"


class Asking(nn.Module):
    """Takes much more memory where an answer is true."""

    def __init__(self, ask: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.ask = ask

    def forward(self, x: Tensor) -> Tensor:
        return x.repeat(WIDE, 1) if self.ask(x) else x + 1


def traced(ask: Callable[[Tensor], Any]) -> Trace:
    with fake_world():
        module = Asking(ask)
        return trace(lambda: module(torch.empty(4, 8)))


def written(x: Tensor) -> Tensor:
    mask = torch.ones(4, 8)
    mask[0, 0] = x[0, 0]
    return mask.all()


def written_through_a_view(x: Tensor) -> Tensor:
    mask = torch.ones(4, 8)
    row = mask[1]
    row.copy_(x[0])
    return mask.all()


def read_through_a_view(x: Tensor) -> Tensor:
    mask = torch.ones(4, 8)
    row = mask[1]
    mask.mul_(x)
    return row.all()


def of_storages_that_ended(x: Tensor) -> bool:
    """Others have their addresses then."""
    kept = [torch.ones(4, 8) for _ in range(50)]
    kept.clear()
    left_empty = [torch.empty(4, 8) for _ in range(50)]
    return any(mask.all() for mask in left_empty)


def overwritten_with_constants(x: Tensor) -> Tensor:
    mask = torch.zeros(4, 8)
    row = mask[1]
    row[2:4] = 1
    return mask.sum() == 2


KNOWN: dict[str, tuple[Callable[[Tensor], Any], bool]] = {
    "ones": (lambda x: torch.ones(4, 8).to(torch.bool).all(), True),
    "zeros": (lambda x: torch.zeros(4, 8).any(), False),
    "like a tensor": (lambda x: torch.ones_like(x).sum() == x.numel(), True),
    "new": (lambda x: x.new_zeros(3).any(), False),
    "texts behind each other": (lambda x: (torch.arange(8)[None].expand(4, -1).diff(dim=-1) != 1).any(), False),
    "a whole number": (lambda x: torch.arange(8).max().item() == 7, True),
    "another one": (lambda x: torch.full((2,), 3).sum().item() > 6, False),
    "equal": (lambda x: torch.equal(torch.ones(3), torch.zeros(3) + 1), True),
    "written with constants": (overwritten_with_constants, True),
    "a list": (lambda x: torch.arange(3).tolist() == [0, 1, 2], True),
    "numbers in a list": (lambda x: torch.tensor([torch.arange(4).max(), 5]).sum() == 8, True),
    "not equal": (lambda x: torch.equal(torch.ones(3), torch.zeros(3)), False),
}
UNKNOWABLE: dict[str, Callable[[Tensor], Any]] = {
    "data": lambda x: x.bool().all(),
    "meets data": lambda x: (torch.ones(4, 8) * x).all(),
    "left empty": lambda x: torch.empty_like(torch.ones(4)).all(),
    "random": lambda x: torch.bernoulli(torch.ones(4)).all(),
    "larger than is computed": lambda x: torch.ones(MOST_ELEMENTS + 1).all(),
    "written": written,
    "written through a view": written_through_a_view,
    "read through a view": read_through_a_view,
    "of storages that ended": of_storages_that_ended,
}


@pytest.mark.parametrize("name", KNOWN)
def test_constants_are_read_as_they_are(name: str) -> None:
    ask, is_true = KNOWN[name]
    assert (traced(ask).peak_bytes > WIDE * 8 * 4) == is_true


@pytest.mark.parametrize("name", UNKNOWABLE)
def test_what_follows_from_data_stays_unknown(name: str) -> None:
    with pytest.raises(TraceError, match=UNKNOWN):
        traced(UNKNOWABLE[name])


def test_what_a_batch_holds_is_not_believed() -> None:
    """Its maker is asked for shapes: a mask of ones stands for any mask."""
    with pytest.raises(TraceError, match=UNKNOWN):
        LiveModuleTracer(Asking(Tensor.all), lambda module, mask: (module(mask), None)[1], torch.ones).trace(4, 8)


def test_nor_is_what_a_step_makes_after_a_module() -> None:
    with fake_world():
        module = Asking(Tensor.all)
        with pytest.raises(TraceError, match=UNKNOWN):
            trace(lambda: (nn.Identity()(torch.empty(1)), module(torch.ones(4, 8))))


def test_what_is_computed_again_knows_what_was_known() -> None:
    """Otherwise a checkpoint might save other tensors the second time, which torch refuses."""

    def block(x: Tensor) -> Tensor:
        places = torch.arange(8).sum().item()
        return x.sin().cos() * places

    with fake_world():
        weight = torch.empty(4, 8, requires_grad=True)

        class Whole(nn.Module):
            def forward(self, x: Tensor) -> Tensor:
                return checkpoint(block, x, use_reentrant=False)

        module = Whole()
        assert trace(lambda: module(weight).sum().backward()).peak_bytes > 0


def test_contents_are_no_memory_of_the_step() -> None:
    ones = traced(lambda x: torch.ones(64, 64).sum() == 0)
    empty = traced(lambda x: bool(torch.empty(64, 64).sum() == 0) and False)
    assert ones.sizes() == empty.sizes()


GRIDS = [[1, 4, 6], [1, 2, 2]]
TOKENS = [[7, 1, 1, 9], [1, 8, 0, 0]]


class Told(NamedTuple):
    """What a trace was told, and data of as many rows, as a module gets them."""

    grids: Tensor
    tokens: Tensor
    data: Tensor


Compute = Callable[[Told], Tensor]


def picked_with_gradient(of: Told) -> Tensor:
    weight = of.data.requires_grad_()
    weight.masked_scatter(of.tokens == 1, weight.new_ones(3)).sum().backward()
    return weight[of.tokens == 1]


def written(of: Told) -> Tensor:
    places = torch.zeros(2, 4, dtype=torch.long)
    places[of.tokens == 1] = torch.arange(3)
    places[:, 1:][of.tokens[:, 1:] == 9] += 5
    return of.data.new_empty(places.sum().item())


FOLLOWING: dict[str, tuple[Compute, tuple[int, ...]]] = {
    "a product": (lambda of: of.data.new_empty(of.grids.prod(1).tolist()), (24, 4)),
    "pieces": (lambda of: of.data.flatten().split((of.grids[:, 1] + 1).tolist())[0], (5,)),
    "counts": (lambda of: of.data.repeat_interleave(of.grids[:, 1], 0), (6, 4)),
    "a mask": (lambda of: of.data[of.tokens == 1], (3,)),
    "a mask of rows": (lambda of: of.data[(of.tokens == 8).any(1)], (1, 4)),
    "a mask of one dimension among others": (lambda of: of.data[:, of.tokens[0] == 1], (2, 2)),
    "a mask that repeats": (
        lambda of: of.data[..., None].expand(2, 4, 5)[(of.tokens == 1)[..., None].expand(2, 4, 5)],
        (15,),
    ),
    "places": (lambda of: (of.tokens == 1).nonzero(), (3, 2)),
    "what is known is picked": (lambda of: of.tokens[of.tokens > 1].unique(), (3,)),
    "picked by a mask that is wider": (lambda of: of.data[0].masked_select(of.tokens == 1), (3,)),
    "several results": (lambda of: of.tokens.flatten().unique_consecutive(return_counts=True)[1], (6,)),
    "what was written": (written, (8,)),
    "numbers in a list": (lambda of: of.data.new_empty(torch.tensor([of.grids[0].max(), 3]).max().item()), (6,)),
    "fractions in a list": (
        lambda of: of.data.new_empty(int(torch.tensor([of.grids[0].max() / 4, 0.25]).sum().item() * 4)),
        (7,),
    ),
    "the gradient of what was picked": (picked_with_gradient, (3,)),
}


def followed(compute: Compute, told: bool = True) -> list[tuple[int, ...]]:
    """Return the sizes that a module sees in a trace."""
    grids, tokens = torch.tensor(GRIDS), torch.tensor(TOKENS)
    sizes = []

    class Module(nn.Module):
        def forward(self, of: Told) -> None:
            sizes.append(tuple(compute(of).shape))

    with fake_world():
        module = Module()

        def step() -> None:
            first, rest = (torch.cat([part]) for part in (grids[:1], grids[1:]))
            module(Told(torch.cat([first, rest]), torch.cat([tokens]), torch.empty(2, 4)))

        trace(step, told=[grids, tokens] if told else [])
    assert (grids.tolist(), tokens.tolist()) == (GRIDS, TOKENS)
    return sizes


@pytest.mark.parametrize("name", FOLLOWING)
def test_sizes_follow_from_what_is_told(name: str) -> None:
    compute, size = FOLLOWING[name]
    assert set(followed(compute)) == {size}
    real = Told(torch.tensor(GRIDS), torch.tensor(TOKENS), torch.rand(2, 4))
    assert compute(real).shape == size


@pytest.mark.parametrize("name", FOLLOWING)
def test_they_do_not_where_nothing_is(name: str) -> None:
    with pytest.raises(TraceError, match=r"whole number|size of what|not allocated"):
        followed(FOLLOWING[name][0], told=False)


def test_what_picks_by_data_is_refused_all_the_same() -> None:
    with pytest.raises(TraceError, match=r"the size of what .* gives depends on data"):
        followed(lambda of: of.tokens[of.data > 0])


def test_told_tensors_are_no_longer_known_once_data_was_written_to_them() -> None:
    def compute(of: Told) -> Tensor:
        of.tokens[0] = of.data[0]
        return of.data[of.tokens == 1]

    with pytest.raises(TraceError, match="depends on data"):
        followed(compute)
