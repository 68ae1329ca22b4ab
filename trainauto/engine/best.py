"""Which checkpoint is the best, and which values it may be compared with."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Best:
    """The best checkpoint so far.

    Attributes:
        step: its step.
        value: value of the deciding metric there.
        metric: that metric and its set, e.g. ``photographs/psnr``; values of different metrics are not compared.
        measured_by: its arguments and samples, in words; values of others are not compared, either. Empty in files of
            earlier versions, which did not say.
    """

    step: int
    value: float
    metric: str = ""
    measured_by: str = ""

    def compares_with(self, later: "Best") -> bool:
        """Say whether both values are of the same metric, arguments and samples, as far as that is known."""
        is_known = bool(self.measured_by and later.measured_by)
        return self.metric == later.metric and (not is_known or self.measured_by == later.measured_by)

    def why_anew(self, later: "Best") -> str:
        """Say why the best begins anew with a later value that this one does not compare with."""
        if self.metric != later.metric:
            before = self.metric or "another metric"
            return f"it was the best by {before}, and {later.metric} decides now: the comparison restarts"
        return (
            f"{later.metric} was measured by {self.measured_by} and now by {later.measured_by}: the comparison restarts"
        )
