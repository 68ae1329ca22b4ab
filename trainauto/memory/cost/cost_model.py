"""What a plan needs, with an upper quantile: a prior, corrected by every period that was measured.

The model of one quantity (allocated or reserved bytes) in one phase (training or validation: one model each):

    need(s) = base(s) * exp(e(s))        base(s) = prior(s) + constant

e is a Student-t process with 4 degrees of freedom over w = log base(s), the logarithm of the work. Its squared scales:

    a ratio that like plans share (workspaces, fragmentation)    ratio^2 exp(-((w - w') / 3)^2 / 2)
    its wandering from plan to plan                              local^2 exp(-|w - w'|)
    an unknown constant, which matters for small plans only      c(w) c(w')
    what every plan has to itself                                own^2, or missed^2 where that is more

A measured period is one observation of it: near plans follow it, far ones keep their doubt (a measurement of a small
plan was seen to tell nothing about a large one), later ones count more. A surprise widens the tails: the posterior
squared scale of such a process grows with the squared surprise b of n observations as (4 + b) / (4 + n) (Shah, Wilson,
Ghahramani 2014), here between 1 and 16.

What the pieces of the prior miss is bounded, and no surprise widens it. At the 99 % quantile a plan needs at most as
much more as the traced plan that they miss most, in bytes where lumps of memory are the reason (``lumps_bytes``). As a
scale of e without that bound, a step of 14 MiB that is missed by 6.6 times itself might have needed 400 GiB, and larger
plans no less.

Everything goes through w, so one curve a quantile says it all; its running maximum makes it monotone: more samples or
larger extents never cost less, at any quantile. For the same reason a plan that was measured bounds all others, the
larger from below and the smaller from above: within a period's noise, what fits is known to fit.
"""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, exp, log, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainauto.core.plan import BatchShape
from trainauto.memory.cost.ratio_prior import ALLOCATED, FREEDOM, MEASURED, UPPER, RatioPrior, student4
from trainauto.memory.cost.traced_fit import SIDE, Prior, Size, fit_prior, measured_prior, padded, within

Floats = NDArray[np.float64]

__all__ = ["UPPER", "CostModel", "Prior", "fit_prior"]

REMEMBERED_SIZES = 12
"""Sizes whose peaks are kept: older ones were measured under other neighbours and fragmentation."""

REMEMBERED_PERIODS = 20
"""Periods after which a failure is forgotten here; what must not be tried again, the policy knows."""

FRESH_WEIGHT = 0.5
"""Weight of the newest period of a plan against what was known of that plan: a spike halves with every period."""

PERIOD_SCALE = 0.002
"""Scale of one period's peak around the plan's own."""

DRIFT_SCALE = 0.002
"""Growth of that scale with every period that passed since, as of a random walk."""

LARGEST_OWN = 0.05
"""Bound of what a tiny plan is thought to have to itself, where that is given in bytes."""

LIKE = 3.0
"""Distance in log work over which plans share a ratio: a measurement at 1/20 of the work leaves most of the doubt."""

WIDEST = 16.0
"""Most that surprises widen squared scales: what contradicts its neighbours by more has another cause."""

GRID = np.arange(20 * log(2), 44 * log(2), 1 / 32)
"""Where curves are evaluated, from 1 MiB to 16 TiB; beyond, the need is proportional."""

_GRID: list[float] = GRID.tolist()


@dataclass
class _Peak:
    bytes: float
    age: int = 0


@dataclass
class _Failure:
    size: Size
    limit: int
    age: int = 0


class CostModel:
    """Bytes that a step of a shape needs at its peak, in one phase of one run.

    On a CPU budget, peaks are private bytes above a baseline; nothing here depends on what zero means.

    Args:
        prior: fitted to traced plans; ``None`` to live by measured peaks alone.
        belief: how far the prior is trusted; by default that of allocated bytes, or of measured peaks without a prior.
        window_px: the network pads extents to multiples of this (without a prior, which knows).
        pairwise: without a prior, memory may grow with all pairs of units (pixels, tokens); ``False`` where no
            attention is written out, which saves a change or two: the first guess from one plan is bolder.
        power: memory follows the size to this power (without a prior, which knows): a side 2, tokens 1.
    """

    def __init__(
        self,
        prior: Prior | None,
        belief: RatioPrior | None = None,
        *,
        window_px: int = 1,
        pairwise: bool = True,
        power: int = SIDE,
    ) -> None:
        self.prior = prior
        self.belief = belief or (MEASURED if prior is None else ALLOCATED)
        self._window_px, self._pairwise = prior.window_px if prior else window_px, pairwise
        self._power = power
        self._peaks: dict[Size, _Peak] = {}
        self._failures: list[_Failure] = []
        self._fallback: Prior | None = None
        self._curves: dict[float, list[float]] = {}

    @property
    def power(self) -> int:
        """To which power memory follows the size."""
        return self.prior.power if self.prior else self._power

    @property
    def can_predict(self) -> bool:
        """Whether there is anything to predict from."""
        return self.prior is not None or bool(self._peaks)

    def predict(self, shape: BatchShape, quantile: float = 0.5) -> int:
        """Return the bytes that a step of this shape stays within with probability ``quantile``.

        Raises:
            ValueError: nothing was traced or measured, or the quantile is not between 0 and 1.
        """
        if not 0 < quantile < 1:
            raise ValueError(f"a quantile lies between 0 and 1, got {quantile}")
        size = self._size(shape)
        base = self._base(size)
        need = self._between(size, self._need(log(base), quantile), quantile)
        return max(ceil(need), *(self._failed_floor(failure, size, base, quantile) for failure in self._failures), 0)

    def observe(self, shape: BatchShape, measured_bytes: int) -> None:
        """Take in the peak of one period (typical of it: a spike is not what the plan needs)."""
        size, peak = self._size(shape), float(max(1, measured_bytes))
        earlier = self._peaks.pop(size, None)
        for older in self._peaks.values():
            older.age += 1
        for failure in self._failures:
            failure.age += 1
        if earlier is not None:
            peak = peak**FRESH_WEIGHT * earlier.bytes ** (1 - FRESH_WEIGHT)
        self._peaks[size] = _Peak(peak)
        while len(self._peaks) > REMEMBERED_SIZES:
            self._peaks.pop(next(iter(self._peaks)))
        self._failures = [
            failure
            for failure in self._failures
            if failure.age <= REMEMBERED_PERIODS
            and not (within(failure.size, size) and measured_bytes < failure.limit)  # something else took the memory
        ]
        self._changed()

    def observe_failure(self, shape: BatchShape, limit_bytes: int) -> None:
        """Take in that a step did not fit, or made the allocator flush its cache: it needs more than the limit.

        That holds for every shape as large, until one of them is seen to fit or the failure is forgotten. Meanwhile
        upper quantiles of smaller ones are at least the same multiple of their base: the controller does not creep up
        to the failure.
        """
        self._failures.append(_Failure(self._size(shape), limit_bytes))
        self._changed()

    def state_dict(self) -> dict[str, Any]:
        """Return what was observed, in bytes: it holds under another prior, too."""
        return {
            "peaks": [[*size, peak.bytes, peak.age] for size, peak in self._peaks.items()],
            "failures": [[*failure.size, failure.limit, failure.age] for failure in self._failures],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back :meth:`state_dict`."""
        self._peaks = {(int(b), int(x)): _Peak(float(peak), int(age)) for b, x, peak, age in state["peaks"]}
        self._failures = [_Failure((int(b), int(x)), int(limit), int(age)) for b, x, limit, age in state["failures"]]
        self._changed()

    # --- within

    def _size(self, shape: BatchShape) -> Size:
        return padded((shape.samples, shape.extent), self._window_px)

    def _changed(self) -> None:
        self._curves.clear()
        self._fallback = None

    def _base(self, size: Size) -> float:
        prior = self.prior or self._fallback
        if prior is None:
            prior = self._fallback = self._measured_prior()
        return max(1.0, prior.bytes(*size) + self.belief.constant_bytes)

    def _measured_prior(self) -> Prior:
        peaks = {size: peak.bytes for size, peak in self._peaks.items()}
        prior = measured_prior(peaks, self._window_px, self._pairwise, self._power)
        # A failure that the peaks did not predict is a point of its own: the need is at least the limit there.
        short = {f.size: float(f.limit) for f in self._failures if prior.bytes(*f.size) < f.limit}
        return measured_prior(short | peaks, self._window_px, self._pairwise, self._power) if short else prior

    def _between(self, size: Size, need: float, quantile: float) -> float:
        """Bound a need by the plans that were measured: no larger one needs less, no smaller one more."""
        above, below, doubt = need, 0.0, student4(quantile)
        for measured, peak in self._peaks.items():
            if within(size, measured) or within(measured, size):
                bound = peak.bytes * exp(doubt * sqrt(PERIOD_SCALE**2 + DRIFT_SCALE**2 * peak.age))
                above = min(above, bound) if within(size, measured) else above
                below = max(below, bound) if within(measured, size) else below
        return max(below, above)

    def _failed_floor(self, failure: _Failure, size: Size, base: float, quantile: float) -> int:
        if within(failure.size, size):
            return failure.limit + 1
        return min(failure.limit, int(failure.limit * base / self._base(failure.size))) if quantile > 0.5 else 0

    def _need(self, work: float, quantile: float) -> float:
        """Return the need at a logarithm of work, from the monotone curve."""
        if quantile not in self._curves:
            self._curves[quantile] = np.maximum.accumulate(GRID + self._unordered(quantile)).tolist()
        curve = self._curves[quantile]
        right = bisect_right(_GRID, work)
        if right == 0:
            return exp(work - _GRID[0] + curve[0])
        if right == len(_GRID):
            return exp(work - _GRID[-1] + curve[-1])
        share = (work - _GRID[right - 1]) / (_GRID[right] - _GRID[right - 1])
        return exp(min(curve[right], curve[right - 1] + share * (curve[right] - curve[right - 1])))

    def _unordered(self, quantile: float) -> Floats:
        """Return the quantile of e on the grid, before it is made monotone: the posterior of the process."""
        variance = self._alike(GRID, GRID, pairwise=False)
        own, missed = self._own(GRID), self._missed(GRID)
        mean = np.full_like(GRID, log(self.belief.median_ratio))
        widened = 1.0
        if self._peaks:
            works = np.array([log(self._base(size)) for size in self._peaks])
            residuals = np.array([log(peak.bytes) for peak in self._peaks.values()]) - works - mean[0]
            ages = np.array([peak.age for peak in self._peaks.values()])
            noise = PERIOD_SCALE**2 + DRIFT_SCALE**2 * ages + np.maximum(self._own(works), self._missed(works)) ** 2
            solved = np.linalg.inv(self._alike(works, works) + np.diag(noise))
            reach = self._alike(GRID, works)
            mean = mean + reach @ solved @ residuals
            variance = np.maximum(0.0, variance - np.einsum("ij,jk,ik->i", reach, solved, reach))
            surprise = float(residuals @ solved @ residuals)
            widened = min(WIDEST, max(1.0, (FREEDOM + surprise) / (FREEDOM + len(residuals))))
        return mean + student4(quantile) * np.sqrt(widened * variance + np.maximum(widened * own**2, missed**2))

    def _own(self, w: Floats) -> Floats:
        """Scale of what plans have to themselves at logarithms of work."""
        in_bytes = np.minimum(LARGEST_OWN, self.belief.own_bytes * np.exp(-w))
        own: Floats = np.hypot(self.belief.own, in_bytes)
        return own

    def _missed(self, w: Floats) -> Floats:
        """Scale of what the pieces of the prior miss: at the upper quantile as much as of the plan they miss most."""
        shares = np.full_like(w, self.prior.residual if self.prior else 0.0)
        if self.prior and self.prior.lumps_bytes:
            shares = np.minimum(shares, self.prior.lumps_bytes * np.exp(-w))
        scale: Floats = np.log1p(shares) / student4(UPPER)
        return scale

    def _alike(self, w: Floats, v: Floats, pairwise: bool = True) -> Floats:
        """Covariance of e between logarithms of work; only of each with itself if not ``pairwise``."""
        left, right = (w[:, None], v[None, :]) if pairwise else (w, v)
        constant = self._constant(left) * self._constant(right)
        shared = self.belief.ratio**2 * np.exp(-(((left - right) / LIKE) ** 2) / 2)
        covariance: Floats = shared + self.belief.local**2 * np.exp(-np.abs(left - right)) + constant
        return covariance

    def _constant(self, w: Floats) -> Floats:
        # The constant over base, bounded for tiny bases so that it cannot outweigh the rise of the base itself.
        scale = self.belief.constant_scale_bytes
        share: Floats = scale / (np.exp(w) + FREEDOM * scale)
        return share
