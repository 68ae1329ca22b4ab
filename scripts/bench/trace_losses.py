"""Steps with every loss of ``torch.nn.functional``: traces against what torch allocates, on a CPU and for a card.

    python scripts/bench/trace_losses.py

A step is one weight, a product of it, the loss, and backward: hardly more than what the loss itself takes. On the CPU
it runs here, outside of any mode. :data:`CARD_BYTES` is what torch's CUDA build requested of its allocator for the same
steps: the real build, 2.14.1, over a simulated card whose kernels do nothing, so that losses which look at their data
fail there. ``trace_accuracy.py`` puts the table on its page.

Exit code 1 if a loss is off by more than 0.1 %.
"""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from trace_peaks import peaks_of

from trainauto.memory.tracing.cuda_devices import cpu_for_cuda
from trainauto.memory.tracing.cuda_in_thread import as_on_cuda
from trainauto.memory.tracing.fake_tensors import fake_world
from trainauto.memory.tracing.libraries import Libraries
from trainauto.memory.tracing.profiler_events import profiled
from trainauto.memory.tracing.trace import trace

N, C = 500, 400
MOST_ERROR = 0.001

Loss = Callable[[Tensor, Tensor], Tensor]
Target = Callable[[], Tensor]


def numbers() -> Tensor:
    """Return a target like the input."""
    return torch.rand(N, C)


def classes() -> Tensor:
    """Return a class of each row."""
    return torch.zeros(N, dtype=torch.long)


def no_labels() -> Tensor:
    """Return labels of each row, of which there are none."""
    return torch.full((N, C), -1, dtype=torch.long)


LOSSES: dict[str, tuple[Loss, Target]] = {
    "l1_loss": (F.l1_loss, numbers),
    "mse_loss": (F.mse_loss, numbers),
    "mse_loss, sum": (lambda p, t: F.mse_loss(p, t, reduction="sum"), numbers),
    "mse_loss, none": (lambda p, t: F.mse_loss(p, t, reduction="none").mean(), numbers),
    "mse_loss, weight": (lambda p, t: F.mse_loss(p, t, weight=t), numbers),
    "smooth_l1_loss": (F.smooth_l1_loss, numbers),
    "smooth_l1_loss, beta 0": (lambda p, t: F.smooth_l1_loss(p, t, beta=0.0), numbers),
    "huber_loss": (F.huber_loss, numbers),
    "binary_cross_entropy": (lambda p, t: F.binary_cross_entropy(p.sigmoid(), t), numbers),
    "binary_cross_entropy, weight": (lambda p, t: F.binary_cross_entropy(p.sigmoid(), t, weight=t), numbers),
    "binary_cross_entropy_with_logits": (F.binary_cross_entropy_with_logits, numbers),
    "... with_logits, weight": (lambda p, t: F.binary_cross_entropy_with_logits(p, t, weight=t), numbers),
    "... with_logits, pos_weight": (lambda p, t: F.binary_cross_entropy_with_logits(p, t, pos_weight=t[0]), numbers),
    "... with_logits, whole pos_weight": (
        lambda p, t: F.binary_cross_entropy_with_logits(p, t, weight=t + 2, pos_weight=t + 1),
        numbers,
    ),
    "logsigmoid": (lambda p, t: -(F.logsigmoid(p) * t).mean(), numbers),
    "cross_entropy": (F.cross_entropy, classes),
    "cross_entropy, smoothed": (lambda p, t: F.cross_entropy(p, t, label_smoothing=0.1), classes),
    "cross_entropy, probabilities": (F.cross_entropy, numbers),
    "nll_loss": (lambda p, t: F.nll_loss(F.log_softmax(p, 1), t), classes),
    "kl_div": (lambda p, t: F.kl_div(p, t, reduction="batchmean"), numbers),
    "kl_div, log_target": (lambda p, t: F.kl_div(p, t, reduction="batchmean", log_target=True), numbers),
    "poisson_nll_loss": (F.poisson_nll_loss, numbers),
    "poisson_nll_loss, full": (lambda p, t: F.poisson_nll_loss(p, t, full=True), numbers),
    "gaussian_nll_loss": (lambda p, t: F.gaussian_nll_loss(p, t, torch.ones_like(t)), numbers),
    "cosine_embedding_loss": (lambda p, t: F.cosine_embedding_loss(p, t, torch.ones(N)), numbers),
    "hinge_embedding_loss": (F.hinge_embedding_loss, numbers),
    "margin_ranking_loss": (lambda p, t: F.margin_ranking_loss(p, t, t), numbers),
    "multilabel_margin_loss": (F.multilabel_margin_loss, no_labels),
    "multilabel_soft_margin_loss": (F.multilabel_soft_margin_loss, numbers),
    "multi_margin_loss": (F.multi_margin_loss, classes),
    "soft_margin_loss": (F.soft_margin_loss, numbers),
    "triplet_margin_loss": (lambda p, t: F.triplet_margin_loss(p, t, t), numbers),
    "triplet_margin_loss, swap": (lambda p, t: F.triplet_margin_loss(p, t, t, swap=True), numbers),
    "triplet_margin_with_distance_loss": (lambda p, t: F.triplet_margin_with_distance_loss(p, t, t), numbers),
}
"""By name. ``ctc_loss`` is not here: what its kernels take follows from its targets, and a trace says so."""

CARD_BYTES = {
    "l1_loss": 4_800_008,
    "mse_loss": 4_000_104,
    "mse_loss, sum": 4_000_104,
    "mse_loss, none": 4_000_008,
    "mse_loss, weight": 5_600_008,
    "smooth_l1_loss": 4_000_104,
    "smooth_l1_loss, beta 0": 4_800_008,
    "huber_loss": 3_200_108,
    "binary_cross_entropy": 4_800_004,
    "binary_cross_entropy, weight": 4_800_004,
    "binary_cross_entropy_with_logits": 4_000_108,
    "... with_logits, weight": 4_000_108,
    "... with_logits, pos_weight": 4_800_008,
    "... with_logits, whole pos_weight": 6_400_008,
    "logsigmoid": 4_000_008,
    "cross_entropy": 3_204_008,
    "cross_entropy, smoothed": 3_206_008,
    "cross_entropy, probabilities": 4_000_108,
    "nll_loss": 3_204_008,
    "kl_div": 4_800_000,
    "kl_div, log_target": 4_800_000,
    "poisson_nll_loss": 4_800_008,
    "poisson_nll_loss, full": 9_600_000,
    "cosine_embedding_loss": 4_004_008,
    "hinge_embedding_loss": 7_600_108,
    "margin_ranking_loss": 5_600_000,
    "multilabel_margin_loss": 4_800_008,
    "multilabel_soft_margin_loss": 6_400_000,
    "multi_margin_loss": 2_404_008,
    "soft_margin_loss": 5_600_004,
    "triplet_margin_loss": 4_808_508,
    "triplet_margin_loss, swap": 5_606_000,
    "triplet_margin_with_distance_loss": 4_808_508,
}


class OneWeight(nn.Module):
    """What is trained: nothing but the numbers that the loss is given."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(N, C))


def step_of(net: OneWeight, loss: Loss, target: Target) -> Callable[[], None]:
    """Return a step."""

    def step() -> None:
        net.zero_grad(set_to_none=True)
        product = net.weight * 1.0
        wanted = target()
        value = loss(product, wanted)
        del product
        value.backward()  # type: ignore[no-untyped-call]

    return step


def traced_bytes(name: str, *, on_card: bool) -> int:
    """Return the peak of a traced step; the CPU does as CUDA does meanwhile, where it is for a card."""
    loss, target = LOSSES[name]
    libraries = Libraries(0) if on_card else None
    if on_card:
        with as_on_cuda(), cpu_for_cuda(), fake_world():
            net = OneWeight()
            return trace(step_of(net, loss, target), held=[net], ends_early=True, libraries=libraries).peak_bytes
    with fake_world():
        net = OneWeight()
        return trace(step_of(net, loss, target), held=[net], ends_early=True).peak_bytes


def real_bytes(name: str) -> int:
    """Return the peak of tensors in a real step on this CPU."""
    loss, target = LOSSES[name]
    made: list[Callable[[], None]] = []
    *before, second = profiled(
        lambda: made.append(step_of(OneWeight(), loss, target)), lambda: made[0](), lambda: made[0]()
    )
    return peaks_of([event for call in before for event in call], second).peak_bytes


@dataclass(frozen=True)
class LossRow:
    """A loss, and by which share its traces are off.

    Attributes:
        name: of the loss.
        cpu_error: of the trace for a CPU.
        card_error: of the trace for a card; ``None`` where the loss looks at its data, which a simulated card lacks.
    """

    name: str
    cpu_error: float
    card_error: float | None

    @property
    def is_right(self) -> bool:
        """Whether both are within 0.1 %."""
        return max(abs(self.cpu_error), abs(self.card_error or 0.0)) <= MOST_ERROR


def rows() -> Iterator[LossRow]:
    """Yield every loss."""
    for name in LOSSES:
        card_bytes = CARD_BYTES.get(name)
        card_error = traced_bytes(name, on_card=True) / card_bytes - 1 if card_bytes else None
        yield LossRow(name, traced_bytes(name, on_card=False) / real_bytes(name) - 1, card_error)


def table(found: list[LossRow]) -> str:
    """Return the table of the page."""
    lines = [
        f"| {row.name} | {row.cpu_error:+.4%} | {'-' if row.card_error is None else f'{row.card_error:+.4%}'} |"
        for row in found
    ]
    return "\n".join(["| loss | on the CPU | on a simulated card |", "|---|---:|---:|", *lines])


if __name__ == "__main__":
    torch.set_num_threads(1)
    found = list(rows())
    print(table(found))
    sys.exit(int(not all(row.is_right for row in found)))
