"""What is known of the noise of a run's gradients, and when it is measured."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trainauto.core.noise_scale import NoiseSample, NoiseScale

logger = logging.getLogger(__name__)

LEAST_SAMPLES = 6
"""Sampled steps before the noise scale is believed."""

FALLEN = 0.5
"""Share of its peak below which a falling rate shrinks the gradient's mean, so that the noise scale says too much."""

AMONG_RANKS = 8
"""Steps of several ranks from one whose gradients are compared to the next: their batch is divided anyway."""

EARLY, EARLY_EVERY = 8, 4
"""So many steps are sampled in the beginning, one in four."""

MOST_IN_VAIN = 100
"""Steps without a figure after which none is asked for any more."""

SHARE = 0.02
"""Share of all time that sampling may take; what it takes is measured."""

SELDOM = 256
"""Most steps from one sampled step to the next, however much one costs."""


@dataclass
class Noise:
    """The noise scales of a run, and when they are sampled.

    Attributes:
        scales: by optimizer.
        every: steps from one sampled step to the next, once there are some.
        is_frozen: the rate has fallen, and what is known by now stays.
    """

    scales: dict[str, NoiseScale] = field(default_factory=dict)
    every: int = 16
    is_frozen: bool = False
    _highest_rates: dict[int, float] = field(default_factory=dict)
    _cost: float = 0.0
    _steps: int = 0

    def is_due(self, step: int) -> bool:
        """Say whether a step is to be sampled."""
        if self.is_frozen:
            return False
        taken = max((one.samples for one in self.scales.values()), default=0)
        return step % (EARLY_EVERY if taken < EARLY else self.every) == 0

    def see_rate(self, rate: float, batch: int) -> None:
        """Take in a step, by the learning rate of its batch, which rates may follow."""
        self._steps += 1
        if self._steps == MOST_IN_VAIN and not any(one.samples for one in self.scales.values()):
            self.is_frozen = True
            logger.warning(
                "the noise of gradients cannot be seen here: batches may not run in parts (batch statistics, losses "
                "that couple samples, batches of one sample), or the loop does not run its steps through trainauto. "
                "With `objective: goodput` the batch stays as it is"
            )
        highest = self._highest_rates[batch] = max(rate, self._highest_rates.get(batch, rate))
        self.is_frozen = self.is_frozen or rate < FALLEN * highest

    def see(self, samples: Mapping[str, NoiseSample], cost: float | None) -> None:
        """Take in a sampled step.

        Args:
            samples: by optimizer.
            cost: what it took more than others, as a share; ``None`` where that is not known.
        """
        for name, sample in samples.items():
            self.scales.setdefault(name, NoiseScale()).add(sample)
        if cost is not None:
            self._cost += (max(0.0, cost) - self._cost) / 4
            wanted = self._cost / SHARE
            self.every = next((2**power for power in range(3, 8) if 2**power >= wanted), SELDOM)

    @property
    def least(self) -> float | None:
        """Lower bound of the smallest scale; ``None`` while it is not known."""
        known = [one.least for one in self.scales.values() if one.samples >= LEAST_SAMPLES]
        return min(known) if known and len(known) == len(self.scales) else None

    @property
    def expected(self) -> float | None:
        """The smallest scale."""
        values = [value for one in self.scales.values() if (value := one.value) is not None]
        return min(values, default=None)

    def state_dict(self) -> dict[str, Any]:
        """Return what a resume needs."""
        return {
            "scales": {name: one.state_dict() for name, one in self.scales.items()},
            "every": self.every,
            "frozen": self.is_frozen,
            "highest_rates": [[batch, rate] for batch, rate in self._highest_rates.items()],
            "cost": self._cost,
            "steps": self._steps,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back :meth:`state_dict`."""
        self.scales = {name: NoiseScale.from_state(one) for name, one in state["scales"].items()}
        self.every, self.is_frozen = int(state["every"]), bool(state["frozen"])
        self._highest_rates = {int(batch): float(rate) for batch, rate in state["highest_rates"]}
        self._cost, self._steps = float(state["cost"]), int(state["steps"])
