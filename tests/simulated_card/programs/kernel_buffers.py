"""Compares what kernels take and free, and in which order, with what traces say, on random shapes.

    python kernel_buffers.py SEED CALLS

Prints the operators that were compared, as JSON; fails at the first that differs.
"""

import json
import os
import random
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from trainauto.memory.tracing.host_reads import ModelReads
from trainauto.memory.tracing.libraries import card_libraries
from trainauto.memory.tracing.operators import facts_of
from trainauto.memory.tracing.storage_tracker import LiveStorages

SMALL = 4096
"""Counters and sums of a few bytes, which kernels take besides, in an order that no trace follows."""
GRANULARITY = 512
HALF = torch.bfloat16 if torch.cuda.get_device_capability() >= (8, 0) else torch.float16
aten = torch.ops.aten


class Event(NamedTuple):
    """An allocation, or the end of one: by the number of the allocation, or -1 for one from before the call."""

    number: int
    size: int
    ends: bool


def real_events(call: Callable[[], Any]) -> tuple[list[Event], Any]:
    """Return what the allocator did in a call, and its result."""
    torch.cuda.memory._record_memory_history(enabled=None)
    torch.cuda.memory._record_memory_history(max_entries=10**4, context=None)
    result = call()
    events: list[tuple[int, int]] = []
    numbers: dict[int, int] = {}
    for count, event in enumerate(torch.cuda.memory._snapshot()["device_traces"][0], 1):
        if event["action"] == "alloc":
            numbers[event["addr"]] = count
            events.append((count, event["size"]))
        elif event["action"] == "free_requested":
            events.append((numbers.pop(event["addr"], 0), 0))
    return numbered(events), result


def numbered(events: Sequence[tuple[int, int]]) -> list[Event]:
    """Number allocations by their order, and leave the small ones out."""
    sizes: dict[int, int] = {}
    numbers: dict[int, int] = {}
    found = []
    for ident, size in events:
        if size:
            sizes[ident] = -(-size // GRANULARITY) * GRANULARITY
        known = sizes.get(ident, 0)
        if known > SMALL:
            number = numbers.setdefault(ident, len(numbers))
            found.append(Event(number, known, not size))
    return found


class Compared(TorchDispatchMode):
    """Holds every operator that the traces have a kernel of against what the allocator does."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.compared: set[str] = set()
        self.live = LiveStorages("cuda", ModelReads(large=False), card_libraries())

    def __torch_dispatch__(self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        """Run one operator."""
        kernel = facts_of(func).kernel
        found, out = real_events(lambda: func(*args, **(kwargs or {})))
        if kernel is None or (kwargs and kwargs.get("out") is not None):
            return out
        self.live.log.events = []
        before = [value for value in args if isinstance(value, Tensor)]
        self.live.hold(before)
        self.live._run_kernel(kernel(args, out, card_libraries()), out)
        name = func._schema.name
        expected = numbered([(event.ident, event.size_bytes) for event in self.live.log.events])
        facts = [(tuple(each.shape), each.stride(), each.dtype) if isinstance(each, Tensor) else each for each in args]
        if name != "aten::embedding_dense_backward" or args[2] > 500:  # tables of few rows are summed by another kernel
            assert found == expected, f"{name} of {facts}: {found}, not {expected}"
        self.compared.add(name)
        return out


def random_tensor(dice: random.Random, dtypes: Sequence[torch.dtype] = ()) -> Tensor:
    """Return a tensor of one to four dimensions, often not in their order, sometimes a part of a larger one."""
    sides = [dice.choice((1, 3, 8, 20, 64, 96, 180, 1000, 4096)) for _ in range(dice.randint(1, 4))]
    while torch.Size(sides).numel() > 2**24:
        sides.remove(max(sides))
    dtype = dice.choice(dtypes or (torch.float32, HALF))
    tensor = torch.empty(sides, device="cuda", dtype=dtype)
    if dice.random() < 0.5:
        tensor = tensor.permute(dice.sample(range(len(sides)), len(sides)))
    if dice.random() < 0.2:
        tensor = tensor[..., 1:]
    return tensor if tensor.numel() else random_tensor(dice, dtypes)


def reduce(dice: random.Random) -> None:
    """Sum, average, or find an extreme."""
    source = random_tensor(dice)
    dims = dice.sample(range(source.ndim), dice.randint(1, source.ndim))
    getattr(torch, dice.choice(("sum", "mean", "amax", "amin")))(source, dims, dice.random() < 0.5)


def roll(dice: random.Random) -> None:
    """Roll some dimensions."""
    source = random_tensor(dice)
    dims = dice.sample(range(source.ndim), dice.randint(1, source.ndim))
    torch.roll(source, [1] * len(dims), dims)


def soften(dice: random.Random) -> None:
    """Run softmax forward and backward; the gradient lies as the result, or not."""
    source = random_tensor(dice).requires_grad_()
    out = source.softmax(dice.randrange(source.ndim))
    gradient = torch.empty_like(out) if dice.random() < 0.5 else torch.empty(out.shape, device="cuda", dtype=out.dtype)
    torch.autograd.grad(out, source, gradient)


def normalise(dice: random.Random) -> None:
    """Run layer norm's backward."""
    rows, columns = dice.choice((512, 65536, 65537, 300_000)), dice.choice((60, 192))
    given = torch.empty(rows, columns, device="cuda")
    weights = [torch.empty(columns, device="cuda") for _ in range(2)]
    mean = torch.empty(rows, 1, device="cuda")
    aten.native_layer_norm_backward(given, given, [columns], mean, mean, *weights, [True, True, True])


def look_up(dice: random.Random) -> None:
    """Run an embedding's backward."""
    rows, width = dice.choice((1000, 30_000)), dice.choice((96, 768))
    indices = torch.zeros(dice.choice((1000, 3072, 3073, 20_000)), dtype=torch.long, device="cuda")
    gradient = torch.empty(len(indices), width, device="cuda", dtype=dice.choice((torch.float32, HALF)))
    aten.embedding_dense_backward(gradient, indices, rows, -1, False)


def pick_rows(dice: random.Random) -> None:
    """Run the backward of a table's rows by indices."""
    rows, number = dice.choice((225, 3969, 70_000)), dice.choice((2304, 3000, 4096, 65536, 2**20))
    table = torch.empty(rows, 4, device="cuda")
    values = torch.empty(number, 4, device="cuda") if dice.random() < 0.5 else torch.empty(4, number, device="cuda").t()
    aten._index_put_impl_(table, [torch.zeros(number, dtype=torch.long, device="cuda")], values, True, True)


def convolve(dice: random.Random) -> None:
    """Run a convolution forward and backward, in layouts that agree or do not, of parts of tensors or whole ones."""
    channels, side, dtype = dice.choice((16, 64)), dice.choice((32, 128)), dice.choice((torch.float32, HALF))
    groups = dice.choice((1, 1, 1, channels)) if dtype != torch.float16 else 1  # by their size, cuDNN computes some

    def tensor(*shape: int) -> Tensor:
        layout = dice.choice((torch.contiguous_format, torch.channels_last))
        if dice.random() < 0.3:
            wide = torch.empty(shape[0], 2 * shape[1], *shape[2:], device="cuda", dtype=dtype)
            return wide.to(memory_format=layout)[:, : shape[1]]
        return torch.empty(*shape, device="cuda", dtype=dtype).to(memory_format=layout)

    gradient, image = tensor(4, channels, side, side), tensor(4, channels, side, side)
    window, rows = dice.choice((3, 15)), dice.choice((1, channels, channels))  # one row stands for all, as of a filter
    weight = torch.empty(rows, channels // groups, window, window, device="cuda", dtype=dtype)
    weight = weight.expand(channels, -1, -1, -1)
    bias = torch.empty(channels, device="cuda", dtype=dtype)
    settings = ([1, 1], [window // 2] * 2, [1, 1], groups == 1 and dice.random() < 0.2, [0, 0], groups)
    wanted = [dice.random() < 0.8, True, dice.random() < 0.8]
    aten.convolution(image, weight, bias, *settings)
    aten.convolution_backward(gradient, image, weight, [channels], *settings, wanted)


def attend(dice: random.Random) -> None:
    """Run fused attention in one of two layouts, forward or backward, with or without copies."""
    shape = [dice.choice(sides) for sides in ((1, 4, 16), (2, 8), (100, 256, 1024, 2000), (32, 64, 128))]
    dtype, turned = dice.choice((HALF, torch.float32)), dice.random() < 0.5

    def tensor() -> Tensor:
        if not turned:
            return torch.empty(shape, device="cuda", dtype=dtype, requires_grad=True)
        batch, heads, length, size = shape
        return torch.empty(batch, length, heads, size, device="cuda", dtype=dtype, requires_grad=True).transpose(1, 2)

    sources = tensor(), tensor(), tensor()
    attended, gradient = functional.scaled_dot_product_attention(*sources), tensor().detach()
    torch.autograd.grad(attended, sources, gradient, True)


def sort_rows(dice: random.Random) -> None:
    """Sort rows of one or several blocks of threads."""
    torch.empty(dice.choice((2, 16)), dice.choice((16, 1000, 4096)), device="cuda").sort(-1)


def work_on_images(dice: random.Random) -> None:
    """Pad, pool, unfold or enlarge images that may be parts of larger ones, forward and backward."""
    layout = dice.choice((torch.contiguous_format, torch.channels_last))
    whole = torch.empty(4, 32, 64, 64, device="cuda").to(memory_format=layout)
    image = whole[:, : dice.choice((16, 32))].requires_grad_()
    call = dice.choice(
        (
            lambda: functional.pad(image, (1, 1, 1, 1), mode="reflect"),
            lambda: functional.max_pool2d(image, 3, 1, 1),
            lambda: functional.adaptive_max_pool2d(image, 32),
            lambda: functional.unfold(image, dice.choice((1, 3))),
            lambda: functional.interpolate(image, scale_factor=2),
        )
    )
    out = call()
    wide = torch.empty(out.shape[0], 2 * out.shape[1], *out.shape[2:], device="cuda")
    torch.autograd.grad(out, image, wide[:, : out.shape[1]] if dice.random() < 0.5 else torch.empty_like(out))


def lose(dice: random.Random) -> None:
    """Run a loss forward and backward, reduced or not."""
    given, target = (torch.empty(8, 3, 128, 128, device="cuda").requires_grad_(grad) for grad in (True, False))
    names = "mse_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy_with_logits", "soft_margin_loss"
    loss = getattr(functional, dice.choice(names))(given, target, reduction=dice.choice(("none", "mean", "sum")))
    torch.autograd.grad(loss, given, torch.empty_like(loss))


def work_on_rows(dice: random.Random) -> None:
    """Normalise rows, drop numbers, look rows up, sum along them, or take norms."""
    rows = random_tensor(dice, (torch.float32,))
    several = [torch.empty(dice.choice((1000, 1_000_000)), device="cuda") for _ in range(40)]
    call = dice.choice(
        (
            lambda: functional.layer_norm(rows, rows.shape[-1:]),
            lambda: functional.dropout(rows, 0.5, True),
            lambda: functional.embedding(
                torch.zeros(64, 513, dtype=torch.long, device="cuda")[:, :512], torch.empty(10, 8, device="cuda")
            ),
            lambda: torch.zeros(64, 512, dtype=torch.bool, device="cuda").cumsum(-1),
            lambda: torch.linalg.vector_norm(rows, 2, dice.randrange(rows.ndim)),
            lambda: torch._foreach_norm(several),
            lambda: rows.log_softmax(-1),
        )
    )
    call()


def main() -> None:
    """Call at random, and compare."""
    dice = random.Random(int(sys.argv[1]))
    others = (roll, soften, normalise, look_up, attend, pick_rows, convolve, sort_rows)
    others += (work_on_images, lose, work_on_rows)
    with Compared() as compared:
        for _ in range(int(sys.argv[2])):
            (reduce if dice.random() < 0.3 else dice.choice(others))(dice)
    print(json.dumps(sorted(compared.compared)), flush=True)
    os._exit(0)  # once in many runs a thread of torch's was still there when the process took it down, and aborted


if __name__ == "__main__":
    main()
