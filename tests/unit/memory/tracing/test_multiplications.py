"""How much a step computes, by its trace: what is counted by hand."""

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

from trainauto.memory.tracing.trace import trace

SAMPLES, WIDTH, HIDDEN = 6, 16, 24


def test_products_of_both_passes_are_counted() -> None:
    layers = nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, WIDTH))
    data = torch.rand(SAMPLES, WIDTH)

    def step() -> None:
        layers(data).sum().backward()

    # Forward, then gradients of both weights, and of what goes into the second layer.
    assert trace(step, held=[layers]).multiplications == SAMPLES * WIDTH * HIDDEN * (2 + 2 + 1)


def test_what_is_computed_again_counts_again() -> None:
    first, second = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)
    data = torch.rand(SAMPLES, WIDTH, requires_grad=True)

    def once() -> None:
        second(first(data).relu()).sum().backward()

    def again() -> None:
        checkpoint(lambda given: second(first(given).relu()), data, use_reentrant=False).sum().backward()

    product = SAMPLES * WIDTH * HIDDEN
    assert trace(once, held=[first, second]).multiplications == 6 * product
    # Of the second layer, backward needs what went into it alone: it is not run again.
    assert trace(again, held=[first, second]).multiplications == 7 * product


def test_attention_is_counted_by_queries_and_keys() -> None:
    heads, rows, keys, width = 2, 8, 12, 4
    query = torch.rand(1, heads, rows, width, requires_grad=True)
    other = torch.rand(1, heads, keys, width, requires_grad=True)

    def step() -> None:
        scaled_dot_product_attention(query, other, other).sum().backward()

    assert trace(step, held=[query, other]).multiplications == 7 * heads * rows * keys * width
