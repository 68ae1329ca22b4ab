"""Learning rates that follow what a run comes to: lower where it stands still or diverges."""

import logging
from collections.abc import Mapping
from math import isfinite
from typing import Any

from trainauto.automations.divergence import Diverged, Divergence
from trainauto.automations.loss_windows import LossWindow, WindowFigures
from trainauto.automations.plateau import Plateau
from trainauto.automations.registry import AUTOMATIONS
from trainauto.automations.span import NOTHING, Span
from trainauto.automations.watched_metric import Direction, WatchedMetric, names_of
from trainauto.core.automation import Automation
from trainauto.core.decisions import RateFactor, RunFacts
from trainauto.core.errors import nearest
from trainauto.core.records import StepRecord, ValidationRecord
from trainauto.core.words import counted, visible

logger = logging.getLogger(__name__)

WINDOW_STEPS = 100
"""Steps over which losses are averaged before two of them are compared."""

EVALUATED = "eval_"
"""What names of transformers' evaluations begin with: those, as names with a slash, are of no term of the loss."""

LOWERED_BY = 0.5
"""A plateau or a divergence multiplies the rate by this."""

RAISED_BY = 1.1
"""With ``max_lr_factor`` above 1, a run that keeps improving multiplies it by this."""


@AUTOMATIONS.register("IntelligentLearningRateScheduler")
class IntelligentLearningRateScheduler(Automation):
    """Halves the rates, over whatever schedule there is, where the loss diverges or a metric stands still.

    All that it compares is smoothed: means over windows of 100 steps, and for divergence medians over 20, so that a
    single step far off does nothing. Patience counts samples, as many as that many steps of the run's first batch have,
    and half as many steps at least: a batch that grows is a shorter wait, and never one of a few steps. Divergence
    counts steps alone. The factor on the schedule is the product of all its changes and stays between
    ``min_lr_factor`` and ``max_lr_factor``; what was in force when the run was taken up is where it begins.

    What stands still is no better in the later half of a stretch than in the earlier one. A stretch is as long as
    patience, and longer the noisier the figure is: until noise would not hide an improvement of 1 % within patience.

    A diverging loss is one whose median lies half above the best mean, and five times its noise, twice in a row; it
    does so until it is back within a tenth, or has not risen for as long as patience: later losses are then compared
    with what it has come to. Meanwhile rates are halved again whenever it rises further, and once where it stands
    still, and not while it falls at all; and they never rise. A halving is taken back once the loss is below its best
    before, calm for as long as patience, and the next one as long after that; after a second divergence all stay. Rates
    above the schedule (``max_lr_factor`` above 1) are for runs that have neither diverged nor stood still.

    Args:
        monitor_metric: what must not stand still: a metric of validations such as ``val/psnr``, or a term of the loss;
            ``None`` is the training loss, all its terms together.
        plateau_patience: optimizer steps of the first batch's size that are looked at, or more where noise asks for it.
        improvement_threshold: share of the metric below which a change is none, however sure.
        min_lr_factor: least factor on the schedule.
        max_lr_factor: largest factor on the schedule; 1 never trains above it.
        direction: whether ``higher`` or ``lower`` is better in validations; ``auto`` is as the metric says of itself.
    """

    watches = True

    def __init__(
        self,
        monitor_metric: str | None = None,
        plateau_patience: int = 1000,
        improvement_threshold: float = 0.001,
        min_lr_factor: float = 0.1,
        max_lr_factor: float = 1.0,
        direction: Direction = "auto",
    ) -> None:
        if plateau_patience < WINDOW_STEPS:
            message = f"plateau_patience must be {WINDOW_STEPS} steps, what is averaged over, or more"
            raise ValueError(f"{message}, got {plateau_patience}")
        if not 0 <= improvement_threshold < 1:
            raise ValueError(f"improvement_threshold must be 0 or more and below 1, got {improvement_threshold}")
        if not 0 < min_lr_factor <= 1:
            raise ValueError(f"min_lr_factor must be above 0 and at most 1, got {min_lr_factor}")
        if not (isfinite(max_lr_factor) and max_lr_factor >= 1):
            raise ValueError(f"max_lr_factor must be 1 or more, got {max_lr_factor}")
        self._name, self._metric = monitor_metric, WatchedMetric(self.name, monitor_metric, direction)
        self._patience_steps, self._threshold = plateau_patience, improvement_threshold
        self._bounds = min_lr_factor, max_lr_factor
        self._factor = 1.0
        self._unit: int | None = None
        self._is_loss = monitor_metric is None
        self._window, self._divergence, self._plateau = LossWindow(), Divergence(), Plateau()
        self._calm = self._unmeasured = NOTHING
        self._divergences = self._plateaus = 0
        self._terms: tuple[str, ...] = ()
        self._measured: tuple[str, ...] | None = None
        self._size = 0
        self._to_regain: tuple[float, float] | None = None

    def check(self, facts: RunFacts) -> None:
        """Refuse a metric of a set that no validation measures; terms of the loss are known with the first step only.

        Raises:
            InputError: names what is measured.
        """
        self._measured = facts.metrics
        if self._name is not None and ("/" in self._name or self._name.startswith(EVALUATED)):
            self._metric.check(facts)

    def on_run_start(self, facts: RunFacts) -> None:
        """Begin with the factor that is in force, whatever decided it: what follows is a change of that."""
        self._factor = facts.rate_factor

    def on_step_end(self, record: StepRecord) -> RateFactor | None:
        """Take in the loss of a step."""
        losses, samples = record.losses, record.shape.samples
        if not losses or not samples or record.left_out:
            return None
        if self._unit is None:
            self._unit = samples
        self._note_terms(losses, 0 if record.shape.tokens else record.plan.size)  # tokens bound batches, not samples
        value = record.loss if self._name is None else losses.get(self._name, record.loss)
        if not isfinite(value):  # of fp16, whose scaler has left the step out
            return None
        self._unmeasured += Span(1, samples)
        self._calm += Span(1, samples)
        window = self._window.add(value, samples, record.step, WINDOW_STEPS)
        diverged = self._divergence.add(value, samples, record.step, self._patience)
        if diverged is not None:
            return self._on_divergence(diverged)
        if window is None or self._divergence.is_suspected:
            return None
        return self._on_loss(window)

    def on_validation_end(self, record: ValidationRecord) -> RateFactor | None:
        """Compare the metric that is watched with what it was before."""
        if self._is_loss or (read := self._metric.read(record)) is None or not isfinite(read.value):
            return None
        if not read.is_comparable:
            self._plateau = Plateau()
        span, self._unmeasured = self._unmeasured, NOTHING
        return self._compare(-read.value if read.higher else read.value, span, self._metric.shown)

    def _on_loss(self, window: WindowFigures) -> RateFactor | None:
        if (decision := self._regained(window.mean)) is not None:
            return decision
        if self._is_loss:
            return self._compare(window.mean, window.span, visible(self._name or "the loss"))
        return None

    def _compare(self, value: float, span: Span, what: str) -> RateFactor | None:
        """Look whether a figure, of which less is better, improves or stands still."""
        plateau = self._plateau
        improves = plateau.add(value, span, self._patience, self._threshold)
        if improves is None:
            return None
        earlier, later = abs(plateau.earlier), abs(plateau.later)
        if improves:
            all_is_well = self._is_calm and not self._divergences and not self._plateaus
            return (
                self._set(RAISED_BY, f"{what} keeps improving, from {earlier:.4g} to {later:.4g}")
                if (all_is_well and self._bounds[1] > 1)
                else None
            )
        plateau.forget()
        within = f"{counted(plateau.compared.steps, 'step')} of {counted(plateau.compared.samples, 'sample')}"
        reason = f"{what} has reached a plateau: {later:.4g} after {earlier:.4g} within {within}"
        decision = self._set(LOWERED_BY, reason)
        self._plateaus += decision is not None
        return decision

    def _on_divergence(self, diverged: Diverged) -> RateFactor | None:
        before, way_back = self._factor, self._divergence.way_back
        self._divergences += diverged.is_new
        self._window = LossWindow()
        self._plateau.forget()
        decision = self._set(LOWERED_BY, diverged.reason)
        given = self._to_regain[1] if self._to_regain is not None else 1.0
        is_first = self._divergences == 1 and way_back is not None
        self._to_regain = (way_back.best.mean, given * self._factor / before) if is_first and way_back else None
        return decision

    def _regained(self, loss: float) -> RateFactor | None:
        """Take back a halving for the only divergence so far, where the loss is as low as before and stays calm."""
        if self._to_regain is None or loss > self._to_regain[0] or not self._is_calm:
            return None
        best, lowered = self._to_regain
        by = min(1 / LOWERED_BY, 1 / lowered)
        self._to_regain = (best, lowered * by) if lowered * by < 1 else None
        return self._set(by, f"the loss is back at {loss:.4g}, as low as before it diverged, and stable")

    def _note_terms(self, losses: Mapping[str, float], size: int) -> None:
        """Where another term has come or gone, or crops have another size, compare with no loss of before."""
        terms = tuple(sorted(losses))
        if not self._terms:
            self._say_unknown(terms)
        was_loss, self._is_loss = self._is_loss, self._name is None or self._name in losses
        is_other = terms != self._terms and (self._name not in losses or was_loss != self._is_loss)
        has_changed = bool(self._terms) and (size != self._size or is_other)
        self._terms, self._size = terms, size
        if has_changed:
            self._window, self._divergence, self._to_regain = LossWindow(), Divergence(), None
            if self._is_loss:
                self._plateau.forget()

    def _say_unknown(self, terms: tuple[str, ...]) -> None:
        """Warn where a name is of no term of the first step, and of nothing that validations will measure."""
        if self._name is None or self._measured is None:
            return
        known = [*terms, *(name for metric in self._measured for name in names_of(metric))]
        if self._name not in known:
            words = "%s: '%s' is no term of the loss, and no validation measures it. %s Until it is there, only a loss "
            words += "that diverges is heeded"
            logger.warning(words, self.name, visible(self._name), nearest(self._name, known))

    def _set(self, by: float, reason: str) -> RateFactor | None:
        """Multiply the factor, within its bounds; ``None`` where it is at one already."""
        least, most = self._bounds
        # What was in force before may lie beyond the bounds: a halving raises nothing, and what raises lowers nothing.
        factor = min(max(self._factor * by, min(least, self._factor)), max(most, self._factor))
        self._calm = NOTHING
        if factor == self._factor:
            return None
        self._factor = factor
        return RateFactor(factor, reason)

    @property
    def _patience(self) -> Span:
        """What is as long as patience."""
        return Span(self._patience_steps, self._patience_steps * (self._unit or 1))

    @property
    def _is_calm(self) -> bool:
        """Whether nothing has been changed, and nothing has diverged, for as long as patience."""
        return self._calm.reaches(self._patience) and not self._divergence.is_suspected

    def state_dict(self) -> dict[str, Any]:
        """Return the factor, and what the next change follows from."""
        return {
            "factor": self._factor,
            "unit": self._unit,
            "terms": list(self._terms),
            "size": self._size,
            "watched": self._name,
            "metric": self._metric.name,
            "measured_by": self._metric.measured_by,
            "window": [list(step) for step in self._window.steps],
            "divergence": self._divergence.state_dict(),
            "plateau": self._plateau.state_dict(),
            "calm": [self._calm.steps, self._calm.samples],
            "unmeasured": [self._unmeasured.steps, self._unmeasured.samples],
            "divergences": self._divergences,
            "plateaus": self._plateaus,
            "to_regain": None if self._to_regain is None else list(self._to_regain),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back :meth:`state_dict`; what another metric than the one watched now was is not kept."""
        self._factor, self._unit = float(state["factor"]), state["unit"]
        self._divergences, self._plateaus = int(state["divergences"]), int(state["plateaus"])
        self._terms, self._size = tuple(state["terms"]), int(state["size"])
        self._calm, self._unmeasured = _span(state["calm"]), _span(state["unmeasured"])
        self._is_loss = self._name is None or self._name in self._terms
        if state["watched"] == self._name:
            self._window = LossWindow([(float(loss), int(samples)) for loss, samples in state["window"]])
            self._divergence = Divergence.from_state(state["divergence"])
            regain = state["to_regain"]
            self._to_regain = None if regain is None else (float(regain[0]), float(regain[1]))
            self._metric.take_up(state["metric"], state.get("measured_by", ""))
            self._plateau = Plateau.from_state(state["plateau"])


def _span(saved: Any) -> Span:
    """Return a span of a checkpoint; an earlier version counted samples alone, and waits anew."""
    return Span(*(int(count) for count in saved)) if isinstance(saved, list | tuple) else NOTHING
