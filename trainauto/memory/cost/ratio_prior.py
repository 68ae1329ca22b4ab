"""What is thought of the ratio of need over prior before anything was measured.

The ratio of a network is taken as exp of a Student-t variable with 4 degrees of freedom: a Gaussian 1 % bound was
missed three times in 162 scenarios. Median and upper ratios of cards are fitted to what others measured on them
(``scripts/bench/fit_belief.py``, docs/benchmarks/belief.md), those of a CPU to what was measured here. The scales from
plan to plan were tuned on simulated networks, apart from those that the tests draw.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import acos, cos, log, sqrt
from typing import Literal

from trainauto.core.units import MIB

UPPER = 0.99
"""The quantile that plans are admitted by: one jump in a hundred may need more."""

FREEDOM = 4
"""Degrees of freedom of every quantile here; they stay 4 however much was measured."""


@dataclass(frozen=True)
class RatioPrior:
    """What is thought of need over prior before anything was measured.

    Attributes:
        median_ratio: half of all networks lie below.
        upper_ratio: 99 % of them lie below.
        local: scale of the ratio's drift from plan to plan.
        own: scale of what each plan has to itself.
        constant_bytes: what the prior does not know of; negative where the prior counts weights that a baseline holds.
        constant_scale_bytes: how far that may be off.
        own_bytes: scale of what each plan has to itself in bytes, whatever its size.
    """

    median_ratio: float
    upper_ratio: float
    local: float
    own: float
    constant_bytes: float = 10 * MIB
    constant_scale_bytes: float = 5 * MIB
    own_bytes: float = 0.0

    @property
    def ratio(self) -> float:
        """Scale of the ratio that all plans share."""
        return log(self.upper_ratio / self.median_ratio) / student4(UPPER)


ALLOCATED = RatioPrior(1.0, 1.082, 0.004, 0.003, 13 * MIB, 13 * MIB)
"""Peak allocated over the blocks of the simulated allocator: what kernels take that no trace knows.

29 peaks of others lie 10 to 48 MiB above what was predicted, of which 16 MiB are cuBLAS's and predicted by now, or at
0.987 to 1.079.
"""

PLAIN = RatioPrior(1.0, 1.02, 0.004, 0.003, 0.0, 5 * MIB)
"""The same where nothing is convolved, and nothing else either whose kernels take memory for themselves: transformers.

28 recorded steps lie within 0.1 % of the blocks that are predicted for them (docs/benchmarks/h100_steps.md,
recorded_gpu.md). The 2 % are judgement: models of other versions of a library differ by more than that.
"""

BENCHMARKED = RatioPrior(0.974, 1.066, 0.004, 0.003, 0.0, 13 * MIB)
"""The same with convolutions, where cuDNN's benchmark mode is on and traces count the room that it lets them work in.

88 published peaks lie at 0.942 to 1.038, and one at 1.186; they leave room for no constant.
"""

COMPILED_UPPER = 1.25
"""By what the peak of a compiled step may exceed that of the step as it is, with 99 % probability.

Judgement: no compiled peak of a card was at hand. Six small networks keep 0.79 to 1.05 times as much between the passes
when inductor compiles them for a CPU (docs/benchmarks/compiled_steps.md).
"""

COMPILED = replace(ALLOCATED, upper_ratio=COMPILED_UPPER * ALLOCATED.upper_ratio)
"""The same where torch.compile decides what is kept: the trace is of the step as it is, an estimate."""

Kernels = Literal["plain", "usual", "benchmarked", "compiled"]
"""Whether kernels take memory that no trace knows, whether cuDNN takes the fastest ones, whatever they work in, and
whether torch.compile makes them."""

ON_CARD: Mapping[Kernels, RatioPrior] = {
    "plain": PLAIN,
    "usual": ALLOCATED,
    "benchmarked": BENCHMARKED,
    "compiled": COMPILED,
}

OF_REQUESTED: frozenset[Kernels] = frozenset({"benchmarked"})
"""Those whose ratio is over bytes asked for, not over blocks: of some of their rows no blocks are known."""

RESERVED = RatioPrior(1.0, 1.03, 0.006, 0.006, 0.0, 5 * MIB)
"""The least with which the allocator need not flush, over that of the simulated one, where kernels take no more.

Assumed: no recording tells the least. With plenty of memory fifteen recorded runs reserved 0.992 to 1.014 times what
the simulated allocator did. What plans between traced ones differ by is counted beside it (``lumps_bytes`` of the
prior).
"""


def reserved_belief(kernels: Kernels) -> RatioPrior:
    """Return what is thought of reserved bytes: memory that no trace knows widens them as it widens allocated ones."""
    on_card = ON_CARD[kernels]
    return replace(
        RESERVED,
        upper_ratio=max(RESERVED.upper_ratio, on_card.upper_ratio / on_card.median_ratio),
        constant_bytes=on_card.constant_bytes,
        constant_scale_bytes=on_card.constant_scale_bytes,
    )


PROCESS = RatioPrior(1.04, 1.16, 0.01, 0.003, 3 * MIB, 4 * MIB, 0.4 * MIB)
"""A process's private bytes over live bytes: kernel scratch and buffers of libraries.

The figures are of 133 pairs of neighbouring batches (docs/benchmarks/autobatch.json and its next run, budgets of 40, 64
and 96 MiB). The larger batch took its share more or less by 0.56, 0.55 and 0.86 MiB (one standard deviation): not a
share of the memory.

Six networks of ours under eight plans each, 6 to 990 MiB: 1.00 to 1.11 above a constant of 2 to 10 MiB (rrdbnet most,
swinir_light least). Two more and a later count, in which gradients are no part of what is held: 1 to 5 MiB.
"""

FORWARD_PROCESS = RatioPrior(1.12, 1.36, 0.01, 0.008, 0.0, 2 * MIB)
"""The same of a forward pass without gradients, which has less for the copies of kernels to hide behind.

Twelve networks of ours, 1 to 2300 MiB: 0.99 to 1.02, or 1.26 to 1.35 where oneDNN copies what goes into a convolution
into its own order of channels; some do so for large images only.
"""

MEASURED = RatioPrior(1.0, 1.05, 0.012, 0.005, 0.0, 0.0)
"""Over a prior made of measured peaks: extrapolation is what may fail."""


def student4(quantile: float) -> float:
    """Return a quantile of Student's t with 4 degrees of freedom (Shaw 2006: closed for 2, 4 and 6)."""
    spread = 4 * quantile * (1 - quantile)
    inner = cos(acos(sqrt(spread)) / 3) / sqrt(spread)
    size = 2 * sqrt(max(0.0, inner - 1))
    return size if quantile >= 0.5 else -size
