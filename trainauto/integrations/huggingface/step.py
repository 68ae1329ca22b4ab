"""A step of the Trainer's loop as the engine's transaction: gradients here, clipping and the optimizer there."""

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from trainauto.core.batch import Batch
from trainauto.core.noise_scale import NoiseSample
from trainauto.core.objectives import Objective, parameters_of
from trainauto.core.records import MicrobatchSplit, PeakReading, StepRecord
from trainauto.engine.gradients import as_planned, compute_gradients, divided, on_device
from trainauto.engine.part_norms import PartNorms
from trainauto.engine.run_errors import CannotRepeatError
from trainauto.engine.step import samples_or_tokens, summed_over_ranks, weight_of_step
from trainauto.engine.step_outcome import DoesNotFit, Gradients, Stepped
from trainauto.engine.train_step import begin_step, give_back, record_step, take_in
from trainauto.engine.training import Training
from trainauto.integrations.huggingface.loss import TrainerLoss, Weighing
from trainauto.memory.monitor.release import repeatable

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PendingStep:
    """A step whose gradients are there, and whose optimizer has not stepped.

    Attributes:
        batch: what it trains.
        gradients: how they came about.
        predicted: bytes its plan was expected to take.
        data_seconds: time waited for its batch.
        start: when it began, on the clock of ``time.perf_counter``.
        loss_factor: by which its loss was multiplied for float16.
    """

    batch: Batch
    gradients: Gradients
    predicted: int | None
    data_seconds: float
    start: float
    loss_factor: float = 1.0

    @property
    def loss(self) -> Tensor:
        """The loss of the step: of its parts, as they weigh; 0 where it has nothing to learn from."""
        terms = self.gradients.terms
        return next(iter(terms.values())) if terms else torch.zeros(())


def begin(run: Training, batch: Batch, loss: TrainerLoss, data_seconds: float) -> PendingStep | None:
    """Compute the gradients of a batch, in parts where it does not fit; ``None`` where it went back to the loader.

    The window of the step's peak stays open until :func:`finish`.

    Raises:
        NothingFitsError: memory runs out, and there is no smaller plan.
    """
    settings = begin_step(run, batch)
    predicted = run.journal.predictions.predict(batch.plan)
    start = time.perf_counter()
    run.meter.start_window()
    gradients = _gradients(run, batch, loss, measures_noise=settings.measures_noise)
    if isinstance(gradients, DoesNotFit):
        give_back(run, batch, gradients, run.meter.end_window())
        return None
    (objective,) = run.model.objectives()
    # The scaler may change it when the optimizer steps.
    loss_factor = objective.scaler.get_scale() if objective.scaler is not None and gradients.norms is not None else 1.0
    return PendingStep(batch, gradients, predicted, data_seconds, start, loss_factor)


def _gradients(
    run: Training, batch: Batch, loss: TrainerLoss, *, measures_noise: bool = False
) -> Gradients | DoesNotFit:
    """Compute the gradients of a batch here and on the other ranks, and sum them where all have some.

    Raises:
        RankAbortedError: another rank ends the run.
        CannotRepeatError: the pass cannot run again here; the other ranks end, too.
    """
    (objective,) = run.model.objectives()
    weight = weight_of_step(batch, run.ranks)

    def compute() -> Gradients | DoesNotFit:
        try:
            mine = _gradients_here(run, objective, batch, loss, weight, measures_noise=measures_noise)
        except CannotRepeatError:  # the other ranks wait for what parts weigh, too
            if loss.weighs_by_itself:
                _as_share(run, objective, DoesNotFit(objective.name, len(batch), ""), loss, weight)
            raise
        return _as_share(run, objective, mine, loss, weight) if loss.weighs_by_itself else mine

    loss.forget_parts()
    return summed_over_ranks(objective, run.ranks, run.snapshot, compute)


def _gradients_here(
    run: Training, objective: Objective, batch: Batch, loss: TrainerLoss, step_weight: float, *, measures_noise: bool
) -> Gradients | DoesNotFit:
    """Compute the gradients of this rank's batch.

    Raises:
        CannotRepeatError: the pass cannot run again.
    """
    tensors = on_device(run.model, batch)
    if isinstance(tensors, DoesNotFit):
        return tensors
    measures = measures_noise and loss.tells_shares(run.ranks.world_size)
    shares = loss.share_of_labels if loss.weighing is Weighing.SUM else None
    planned = as_planned(batch)
    return compute_gradients(
        objective,
        tensors,
        batch,
        run.snapshot,
        run.model.device,
        None,
        divided(objective, planned, batch, run.snapshot, run.ranks) if measures else planned,
        run.ranks,
        step_weight,
        make_norms=partial(PartNorms, objective, shares) if measures else None,
    )


def _as_share(
    run: Training, objective: Objective, mine: Gradients | DoesNotFit, loss: TrainerLoss, step_weight: float
) -> Gradients | DoesNotFit:
    """Make gradients the share of this rank in those of a step; only now is it known what all parts weigh.

    Args:
        run: whose step.
        objective: has the gradients.
        mine: how they came about.
        loss: has weighed the parts.
        step_weight: what the engine divided each of them by.
    """
    fits = isinstance(mine, Gradients)
    weights = run.ranks.all_gather_object({"weight": loss.weight_of_parts if fits else 0.0})
    share = loss.share_of(sum(float(message["weight"]) for message in weights)) * step_weight
    if not isinstance(mine, Gradients) or share == 1:
        return mine
    gradients = [parameter.grad for parameter in parameters_of(objective) if parameter.grad is not None]
    terms = mine.terms
    shared = repeatable(lambda: {name: term * share for name, term in terms.items()}, run.model.device)
    if gradients:
        torch._foreach_mul_(gradients, share)  # last: it writes
    return replace(mine, terms=shared)


def is_left_out(run: Training, grad_norm: Any) -> bool:
    """Drop gradients that are no finite numbers where something watches for that; say whether they were dropped.

    The weights stay then: an optimizer passes over those without a gradient.

    Args:
        run: whose step.
        grad_norm: norm of its gradients, the same on all ranks; ``None`` if unknown.
    """
    if not run.leaves_out_non_finite or grad_norm is None or isfinite(norm := float(grad_norm)):
        return False
    logger.warning("the gradient norm is %s: this step leaves the weights alone", norm)
    (objective,) = run.model.objectives()
    objective.optimizer.zero_grad(set_to_none=True)
    run.snapshot.leave_out()
    return True


def finish(
    run: Training, pending: PendingStep, grad_norm: Any, rates: Mapping[str, float], *, skipped: bool, left_out: bool
) -> StepRecord:
    """Record a step whose optimizer has stepped, and decide upon it.

    Args:
        run: whose step.
        pending: its gradients.
        grad_norm: their norm before clipping; ``None`` if unknown.
        rates: those it was trained with; the schedule has moved on by now.
        skipped: whether float16 gradients overflowed, so that the weights were left alone.
        left_out: whether they were since the gradients were no finite numbers.
    """
    run.snapshot.commit_pass()
    run.snapshot.share(run.ranks)
    run.snapshot.commit_step()
    peak: PeakReading | None = run.meter.end_window()
    (objective,) = run.model.objectives()
    name, gradients, batch = objective.name, pending.gradients, pending.batch
    pieces: dict[str, MicrobatchSplit] = {} if gradients.split == as_planned(batch) else {name: gradients.split}
    norms, noise = gradients.norms, {}
    if norms is not None and grad_norm is not None:
        square = float(repeatable(norms.total, run.model.device)) / pending.loss_factor**2
        sample = NoiseSample(square, float(grad_norm) ** 2, norms.parts, samples_or_tokens(batch))
        noise = {name: sample} if sample.is_told else {}
    outcome = Stepped(
        losses={term: float(value) for term, value in gradients.terms.items()},
        grad_norms={name: float(grad_norm)} if grad_norm is not None else {},
        skipped=(name,) if skipped else (),
        seconds=time.perf_counter() - pending.start,
        failures=gradients.failures,
        pieces=pieces,
        non_finite=(name,) if left_out else (),
        noise=noise,
    )
    record = record_step(
        run,
        batch,
        outcome,
        data_seconds=pending.data_seconds,
        peak=peak,
        predicted=pending.predicted,
        learning_rates=rates,
    )
    take_in(run, record)
    return record
