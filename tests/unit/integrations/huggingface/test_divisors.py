"""What a loss is divided by, read from its graph."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from trainauto.integrations.huggingface.divisors import divisor_of

LABELS = torch.tensor([0, 1, 2, 0, -100, 1])
CLASSES = torch.tensor([1.0, 3.0, 0.5])
MASK = torch.tensor([1.0, 1.0, 0.0, 1.0, 0.0, 0.0])[:, None]


@pytest.mark.parametrize(
    ("loss", "divisor"),
    [
        (lambda x: functional.cross_entropy(x, LABELS), 5),
        (lambda x: functional.cross_entropy(x, LABELS, CLASSES), 8.5),
        (lambda x: functional.cross_entropy(x, LABELS, CLASSES, label_smoothing=0.1), 8.5),
        (lambda x: functional.cross_entropy(x.T[None], LABELS[None]), 5),
        (lambda x: functional.mse_loss(x, torch.zeros(6, 3)), 18),
        (lambda x: functional.multi_margin_loss(x, LABELS.clamp(min=0)), 18),
        (lambda x: functional.binary_cross_entropy_with_logits(x, torch.zeros(6, 3)), 18),
        (lambda x: functional.kl_div(x, torch.ones(6, 3), reduction="batchmean"), 6),
        (lambda x: (x**2).mean(-1).mean(), 18),
        (lambda x: (x**2)[:, 0][LABELS > 0].mean(), 3),
        (lambda x: (x**2 * MASK).sum() / MASK.sum(), 3),
        (lambda x: -0.5 * (x**2 * MASK).sum() / MASK.sum() + 1e-3 * (x**2).sum(), 3),
        (lambda x: (x * 0).sum() / MASK[2:3].sum().clamp(min=1), 0),
        (lambda x: (x**2).sum(), None),
        (lambda x: (x**2).mean() + (x[:2] ** 2).mean(), None),
        (lambda x: 1 - 2 * (x * MASK).sum() / (x.sum() + MASK.sum()), None),
        (lambda x: nn.functional.softplus(x).logsumexp((0, 1)), None),
    ],
)
def test_divisors(loss: Callable[[Tensor], Tensor], divisor: float | None) -> None:
    torch.manual_seed(0)
    assert divisor_of(loss(torch.randn(6, 3, requires_grad=True))) == divisor


def test_nothing_is_read_without_a_graph() -> None:
    assert divisor_of(torch.ones(3).mean()) is None
