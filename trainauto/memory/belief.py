"""What is thought of the ratio of need over prior before anything was measured.

The ratio of a network is taken as exp of a Student-t variable with 4 degrees of freedom: a Gaussian 1 % bound was
missed three times in 162 scenarios. Median and upper ratios follow what was seen: kernel scratch of 4 to 8 % with
convolutions on a CPU, at most 25 % assumed for cuDNN's workspaces; fragmentation of an allocator simulated over 162
scenarios. The scales from plan to plan were tuned on simulated networks, apart from those that the tests draw.
"""

from dataclasses import dataclass
from math import acos, cos, log, sqrt

MIB = 1024**2
UPPER = 0.99
"""The quantile that plans are admitted by: one jump in a hundred may need more."""

FREEDOM = 4
"""Degrees of freedom of every quantile here; they stay 4 however much was measured."""


@dataclass(frozen=True)
class Belief:
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


ALLOCATED = Belief(1.08, 1.26, 0.004, 0.003)
"""Allocated over live bytes: kernel workspaces take 0 to 25 % (convolutions), transformers lie within 1 %."""

RESERVED_EXPANDABLE = Belief(1.13, 1.42, 0.006, 0.006)
"""Reserved over live bytes with expandable segments: +4.6 / +15 / +18 % (median, 95 %, most), and workspaces."""

RESERVED_NATIVE = Belief(1.20, 1.52, 0.01, 0.018)
"""Reserved over live bytes with native segments: +11 / +21 / +25 %, and workspaces; affine within 2 to 11 % only."""

PROCESS = Belief(1.04, 1.16, 0.01, 0.003, 3 * MIB, 4 * MIB, 0.4 * MIB)
"""A process's private bytes over live bytes: kernel scratch and buffers of libraries.

Of 133 pairs of neighbouring batches (docs/benchmarks/autobatch.json and its next run, budgets of 40, 64 and 96 MiB) the
larger one took its share more or less by 0.56, 0.55 and 0.86 MiB (one standard deviation): not a share of the memory.

Six networks of ours under eight plans each, 6 to 990 MiB: 1.00 to 1.11 above a constant of 2 to 10 MiB (rrdbnet most,
swinir_light least). Two more and a later count, in which gradients are no part of what is held: 1 to 5 MiB.
"""

FORWARD_PROCESS = Belief(1.12, 1.36, 0.01, 0.008, 0.0, 2 * MIB)
"""The same of a forward pass without gradients, which has less for the copies of kernels to hide behind.

Twelve networks of ours, 1 to 2300 MiB: 0.99 to 1.02, or 1.26 to 1.35 where oneDNN copies what goes into a convolution
into its own order of channels; some do so for large images only.
"""

MEASURED = Belief(1.0, 1.05, 0.012, 0.005, 0.0, 0.0)
"""Over a prior made of measured peaks: extrapolation is what may fail."""


def student4(quantile: float) -> float:
    """Return a quantile of Student's t with 4 degrees of freedom (Shaw 2006: closed for 2, 4 and 6)."""
    spread = 4 * quantile * (1 - quantile)
    inner = cos(acos(sqrt(spread)) / 3) / sqrt(spread)
    size = 2 * sqrt(max(0.0, inner - 1))
    return size if quantile >= 0.5 else -size
