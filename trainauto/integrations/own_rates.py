"""Learning rates that are somebody else's business."""

from trainauto.core.records import Progress


class OwnRates:
    """Leaves learning rates to the loop."""

    def set_rates(self, optimizers: object, progress: Progress, extra_factor: float = 1.0) -> None:
        """Do nothing."""
