"""What a batch of another size than the configured one does to rate and average: pure functions of its samples."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf, sqrt

RULES: Mapping[str, Callable[[float], float]] = {"none": lambda _share: 1.0, "sqrt": sqrt, "linear": float}
"""Factor of the learning rate, by how many times the configured samples a step holds."""


@dataclass(frozen=True)
class BatchScaling:
    """Scales a step by its samples, so that hyperparameters tuned at one batch hold at another.

    A step of ``samples`` counts as ``share = samples / configured_samples`` steps of the configured batch: its rate is
    multiplied by ``share`` (Goyal et al. 2017, https://arxiv.org/abs/1706.02677) or by its square root (Krizhevsky
    2014, https://arxiv.org/abs/1404.5997; for Adam: Malladi et al. 2022, https://arxiv.org/abs/2205.10287). The moving
    average keeps ``decay ** share`` of itself (Busbridge et al. 2023, https://arxiv.org/abs/2307.13813), so that it
    looks back over as many samples as before. Nothing is stored: a resumed run needs the samples of its step only.

    Attributes:
        rule: ``none``, ``sqrt`` or ``linear``; with ``none`` neither rate nor average follows the batch.
        configured_samples: samples of an optimizer step of the option file.
        most: how many times these the rate follows.
        by_plan: steps count as the samples that their plan has on average, since single steps of it differ: they are
            packed, or an epoch ends.

    Raises:
        ValueError: the rule is none of these, or there are no configured samples.
    """

    rule: str = "none"
    configured_samples: int = 1
    most: float = inf
    by_plan: bool = False

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise ValueError(f"rule must be one of {', '.join(RULES)}, not {self.rule!r}")
        if self.configured_samples < 1:
            raise ValueError(f"configured_samples must be at least 1, got {self.configured_samples}")

    def rate_factor(self, samples: int) -> float:
        """Return the factor of the learning rate of a step of so many samples."""
        return RULES[self.rule](min(samples / self.configured_samples, self.most))

    def average_share(self, samples: int) -> float:
        """Return how many configured steps such a step is to a moving average: the exponent of its decay."""
        return 1.0 if self.rule == "none" else samples / self.configured_samples
