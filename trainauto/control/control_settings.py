"""What a controller goes by, as option files say it."""

from dataclasses import dataclass
from typing import Literal

from trainauto.control.bounds import check_at_least_one, check_band


@dataclass(frozen=True, kw_only=True)
class ControlSettings:
    """What a controller goes by.

    Attributes:
        target_vram_usage: peaks are steered to this share of the memory the process may use.
        safety_margin: width of the band below target that is left alone, as a share of the same memory.
        adjustment_frequency: steps of a period.
        vram_history_size: periods kept in the history.
        max_adjustments: changes after which it grows no further; it always shrinks where it must, and comes back.
        policy: ``jump`` goes to the best plan predicted to fit and corrects it once; ``step`` takes small steps.
        objective: ``memory`` fills the target; ``throughput`` takes the smallest batch that is as fast as any;
            ``goodput`` the one that learns most a second.
        warmup_period: train the first period under the option file's plan, whatever is predicted.

    Raises:
        ValueError: the band is none, there are no steps in a period, or fewer changes than none.
    """

    target_vram_usage: float = 0.85
    safety_margin: float = 0.05
    adjustment_frequency: int = 100
    vram_history_size: int = 50
    max_adjustments: int = 100
    policy: Literal["jump", "step"] = "jump"
    objective: Literal["memory", "throughput", "goodput"] = "memory"
    warmup_period: bool = False

    def __post_init__(self) -> None:
        check_band(self.target_vram_usage, self.safety_margin)
        check_at_least_one(adjustment_frequency=self.adjustment_frequency, vram_history_size=self.vram_history_size)
        if self.max_adjustments < 0:
            raise ValueError(f"max_adjustments must be at least 0, got {self.max_adjustments}")
