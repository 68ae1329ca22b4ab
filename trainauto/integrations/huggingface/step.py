"""A step of the Trainer's loop as the engine's transaction: gradients here, clipping and the optimizer there."""

import time
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from trainauto.core.batch import Batch
from trainauto.core.records import MicrobatchSplit, PeakReading, StepRecord
from trainauto.engine.gradients import as_planned, compute_gradients, on_device
from trainauto.engine.step import weight_of_step
from trainauto.engine.step_outcome import DoesNotFit, Gradients, Stepped
from trainauto.engine.train_step import begin_step, give_back, record_step, take_in
from trainauto.engine.training import Training


@dataclass(frozen=True)
class PendingStep:
    """A step whose gradients are there, and whose optimizer has not stepped.

    Attributes:
        batch: what it trains.
        gradients: how they came about.
        predicted: bytes its plan was expected to take.
        data_seconds: time waited for its batch.
        start: when it began, on the clock of ``time.perf_counter``.
    """

    batch: Batch
    gradients: Gradients
    predicted: int | None
    data_seconds: float
    start: float

    @property
    def loss(self) -> Tensor:
        """The loss of the step: of its parts, as they weigh."""
        return next(iter(self.gradients.terms.values()))


def begin(run: Training, batch: Batch, data_seconds: float) -> PendingStep | None:
    """Compute the gradients of a batch, in parts where it does not fit; ``None`` where it went back to the loader.

    The window of the step's peak stays open until :func:`finish`.

    Raises:
        NothingFitsError: memory runs out, and there is no smaller plan.
    """
    begin_step(run, batch)
    predicted = run.journal.predictions.predict(batch.plan)
    start = time.perf_counter()
    run.meter.start_window()
    gradients = _gradients(run, batch)
    if isinstance(gradients, DoesNotFit):
        give_back(run, batch, gradients, run.meter.end_window())
        return None
    return PendingStep(batch, gradients, predicted, data_seconds, start)


def _gradients(run: Training, batch: Batch) -> Gradients | DoesNotFit:
    (objective,) = run.model.objectives()
    tensors = on_device(run.model, batch)
    if isinstance(tensors, DoesNotFit):
        return tensors
    weight = weight_of_step(batch, run.ranks)
    return compute_gradients(
        objective, tensors, batch, run.snapshot, run.model.device, None, as_planned(batch), run.ranks, weight
    )


def finish(run: Training, pending: PendingStep, grad_norm: Any, *, skipped: bool) -> StepRecord:
    """Record a step whose optimizer has stepped, and decide upon it.

    Args:
        run: whose step.
        pending: its gradients.
        grad_norm: their norm before clipping; ``None`` where nobody says.
        skipped: whether float16 gradients overflowed, so that the weights were left alone.
    """
    run.snapshot.commit_pass()
    run.snapshot.commit_step()
    peak: PeakReading | None = run.meter.end_window()
    (objective,) = run.model.objectives()
    name, gradients, batch = objective.name, pending.gradients, pending.batch
    pieces: dict[str, MicrobatchSplit] = {} if gradients.split == as_planned(batch) else {name: gradients.split}
    outcome = Stepped(
        losses={term: float(value) for term, value in gradients.terms.items()},
        grad_norms={name: float(grad_norm)} if grad_norm is not None else {},
        skipped=(name,) if skipped else (),
        seconds=time.perf_counter() - pending.start,
        failures=gradients.failures,
        pieces=pieces,
    )
    record = record_step(run, batch, outcome, data_seconds=pending.data_seconds, peak=peak, predicted=pending.predicted)
    take_in(run, record)
    return record
