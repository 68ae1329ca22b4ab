"""Steps that are followed allocate what the same steps allocate when nobody looks on."""

import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from trainauto.memory.tracing import storage_tracker
from trainauto.memory.tracing.fake_tensors import fake_world
from trainauto.memory.tracing.in_place import ADD, InPlaceWrites
from trainauto.memory.tracing.profiler_events import profiled
from trainauto.memory.tracing.trace import trace

SIDE = 64
LEAST_BYTES = 4096  # below are scalars and indices, which kernels make for themselves


def ones(*shape: int) -> Tensor:
    return torch.ones(*shape, requires_grad=True)


def two_branches(x: Tensor) -> Tensor:
    return x.sin() * x.cos()


def three_branches(x: Tensor) -> Tensor:
    return x.sin() * x.cos() + x.exp()


def residual(x: Tensor) -> Tensor:
    """The gradient of the sum goes to both branches: the first one to be added to may still be held by the other."""
    return x + x.sin() * x


def views(x: Tensor) -> Tensor:
    return (x[:32] * x[32:]).sin() + x.view(2, 32, SIDE)[1]


def gathered(x: Tensor) -> Tensor:
    return x.sin().gather(0, torch.zeros(48, SIDE, dtype=torch.long)).cos()


def indexed(x: Tensor) -> Tensor:
    return x.sin()[torch.arange(48)].cos()


def a_sum_of_the_model(x: Tensor) -> Tensor:
    """Its own sums are new tensors, also of what nobody else holds."""
    return (x @ x + torch.ones(SIDE)).sin() + 1


def largest(x: Tensor) -> Tensor:
    return x.sin().max(dim=0, keepdim=True).values * x


def selected(x: Tensor) -> Tensor:
    return x.sin().index_select(0, torch.arange(48)).cos()


def angle(x: Tensor) -> Tensor:
    return x.sin().atan2(x.cos())


def bounded(x: Tensor) -> Tensor:
    return torch.minimum(x.sin().clamp(x.cos(), x.exp()), x.tan())


def normalised(x: Tensor) -> Tensor:
    """The backward of both moments adds up gradients of its own; then its sum meets that of the difference."""
    variance, mean = torch.var_mean(x, 1, keepdim=True)
    return (x - mean) * variance


def replaced_by_mask(x: Tensor) -> Tensor:
    return x.sin().masked_scatter(torch.ones(SIDE, SIDE, dtype=torch.bool), x.cos()).tan()


def powers(x: Tensor) -> Tensor:
    return torch.xlogy(x.sin().exp(), x.cos().exp()) + x.exp().pow(x.sin())


def filled(x: Tensor) -> Tensor:
    """Backward does not fill the gradient in place: it makes a new tensor."""
    return x.sin().masked_fill(torch.ones(SIDE, SIDE, dtype=torch.bool), 1.0).cos()


def replaced(x: Tensor) -> Tensor:
    """Backward does not write into the gradient: it makes a new tensor."""
    return x.sin().index_put((torch.arange(48),), x[:48]).cos()


def a_number_first(x: Tensor) -> Tensor:
    return torch.add(1.0, x, alpha=2)  # type: ignore[call-overload, no-any-return]


class Held(torch.autograd.Function):
    """Backward in Python writes nowhere, whatever it calls."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, how: str) -> Tensor:
        ctx.save_for_backward(x)
        ctx.how = how
        return x.sin()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        rows = torch.arange(SIDE)
        if ctx.how == "index_add":
            return x.index_add(0, rows, grads[0]), None
        if ctx.how == "index_put":
            return x.index_put((rows,), grads[0]), None
        if ctx.how == "scatter_add":
            return x.scatter_add(0, rows[:, None].expand(SIDE, SIDE), grads[0]), None
        return x + grads[0], None


def linear(x: Tensor) -> Tensor:
    """Of an input that is not contiguous: product and bias are two operators."""
    turned = x.view(2, 32, SIDE).transpose(0, 1)
    return nn.functional.linear(turned, ones(SIDE, SIDE), ones(SIDE)).sin()


def attention(x: Tensor, mask: Tensor) -> Tensor:
    heads = x.view(1, 2, 32, SIDE)
    with sdpa_kernel(SDPBackend.MATH):
        return nn.functional.scaled_dot_product_attention(heads, heads, heads, attn_mask=mask).sin()


def masked(x: Tensor) -> Tensor:
    """Attention that is written out adds its mask to a product."""
    return attention(x, torch.zeros(32, 32))


def masked_in_bfloat16(x: Tensor) -> Tensor:
    """Which it computes in float32."""
    return attention(x.bfloat16(), torch.zeros(1, 1, 32, 32, dtype=torch.bfloat16)).float()


def product_and_sum(x: Tensor) -> Tensor:
    """In Python, which holds the product."""
    return (x @ x + torch.ones(SIDE)).sin()


def step_of(function: Callable[[Tensor], Tensor]) -> Callable[[], None]:
    weight = ones(SIDE, SIDE)

    def step() -> None:
        weight.grad = None
        function(weight.tanh()).sum().backward()

    return step


def alone(step: Callable[[], None]) -> list[int]:
    """Bytes that a second step allocates, and frees (negative), without any mode."""
    _, events = profiled(step, step)
    return [event.size_bytes for event in events if event.is_tensor and abs(event.size_bytes) >= LEAST_BYTES]


def followed(function: Callable[[Tensor], Tensor], fake: bool) -> list[int]:
    with fake_world() if fake else nullcontext():
        traced = trace(step_of(function))
    return [size for size in traced.sizes() if abs(size) >= LEAST_BYTES]


@pytest.mark.parametrize("fake", [True, False], ids=["fake", "real"])
@pytest.mark.parametrize(
    "function",
    [
        two_branches,
        three_branches,
        residual,
        views,
        gathered,
        indexed,
        selected,
        largest,
        angle,
        bounded,
        normalised,
        replaced_by_mask,
        powers,
        filled,
        replaced,
        a_sum_of_the_model,
        a_number_first,
        linear,
        masked,
        masked_in_bfloat16,
        product_and_sum,
    ],
    ids=lambda function: function.__name__,
)
def test_the_same_bytes_in_the_same_order(function: Callable[[Tensor], Tensor], fake: bool) -> None:
    assert followed(function, fake) == alone(step_of(function))


def test_each_backward_pass_adds_up_for_itself() -> None:
    def step_with(weight: Tensor) -> Callable[[], None]:
        def step() -> None:
            weight.grad = None
            loss = angle(weight.tanh()).sum()
            torch.autograd.grad(loss, weight, retain_graph=True)
            loss.backward()  # type: ignore[no-untyped-call]

        return step

    with fake_world():
        traced = trace(step_with(ones(SIDE, SIDE)))
    assert [size for size in traced.sizes() if abs(size) >= LEAST_BYTES] == alone(step_with(ones(SIDE, SIDE)))


def test_sums_are_correct_on_real_tensors() -> None:
    """A step that is followed computes what it computes otherwise."""
    gradients = []
    for follows in (False, True):
        weight = torch.full((SIDE, SIDE), 0.5, requires_grad=True)

        def step(weight: Tensor = weight) -> None:
            weight.grad = None
            (three_branches(weight.tanh()).sum() + linear(weight.tanh()).sum()).backward()

        if follows:
            trace(step, steps=1)
        else:
            step()
        assert weight.grad is not None
        gradients.append(weight.grad)
    assert torch.equal(*gradients)
    assert math.isfinite(float(gradients[0].sum()))


@pytest.mark.parametrize("how", ["add", "index_add", "index_put", "scatter_add"])
def test_what_python_holds_is_not_written(how: str) -> None:
    weight = torch.full((SIDE, SIDE), 0.5, requires_grad=True)

    def step() -> None:
        weight.grad = None
        Held.apply(weight, how).sum().backward()  # type: ignore[no-untyped-call]

    trace(step)
    assert torch.equal(weight, torch.full((SIDE, SIDE), 0.5))

    def held(x: Tensor) -> Tensor:
        return Held.apply(x, how)  # type: ignore[no-any-return, no-untyped-call]

    assert followed(held, fake=True) == alone(step_of(held))


@pytest.mark.parametrize(
    ("addend", "is_product", "writes"),
    [
        (torch.ones(3), True, True),
        (torch.ones(2, 1, dtype=torch.bfloat16), True, True),
        (torch.ones(3), False, False),
        (torch.ones(3, dtype=torch.float64), True, False),  # the sum is of another type
        (torch.ones(4, 2, 3), True, False),  # or larger
        (torch.ones(2, 2, 3), True, False),
    ],
)
def test_forward_only_products_are_added_to(addend: Tensor, is_product: bool, writes: bool) -> None:
    held = (1, 1, 1)
    args = (torch.ones(2, 3), addend)
    assert InPlaceWrites({ADD: {held}}).has(ADD, args, {}, held, is_product=is_product) == writes


def test_a_torch_that_adds_up_otherwise_is_followed_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = followed(two_branches, fake=True)
    monkeypatch.setattr(storage_tracker, "sole_holders", dict)
    assert len(followed(two_branches, fake=True)) > len(expected)
