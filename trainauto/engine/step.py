"""One optimizer step: every pass on micro-batches, weighted by samples, clipped, stepped.

The transaction is one pass up to its optimizer step. When memory runs out in it, what the attempt made is dropped,
random generators and buffers go back to where they were, and the same samples run again in smaller pieces. Passes that
have stepped before are not undone: where no pieces fit after them, the same samples are cut down (smaller crops).
"""

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import fsum, isfinite
from typing import Any

import torch
from torch import Tensor, nn

from trainauto.core.batch import Batch
from trainauto.core.errors import NonFiniteError
from trainauto.core.noise_scale import NoiseSample
from trainauto.core.objectives import MicroBatch, Objective, parameters_of
from trainauto.core.plan import BATCH_SIZE, Axis, size_axis
from trainauto.core.records import MicrobatchSplit
from trainauto.core.workload import Workload, split, weight_of
from trainauto.distributed.communicator import ABORT, DOES_NOT_FIT, LOST, OK, SINGLE_PROCESS, Communicator
from trainauto.engine.gradients import as_planned, compute_gradients, divided, gradients_without_samples, on_device
from trainauto.engine.handed_on import say_differing
from trainauto.engine.optimizer_step import repeated_in_step, step_optimizer
from trainauto.engine.part_norms import PartNorms
from trainauto.engine.run_errors import CannotRepeatError, GroupOutOfMemoryError, RankAbortedError
from trainauto.engine.snapshot import StepSnapshot
from trainauto.engine.step_outcome import DoesNotFit, Failure, Gradients, StepOutcome, Stepped
from trainauto.memory.monitor import onednn
from trainauto.memory.monitor.oom import is_out_of_memory
from trainauto.memory.monitor.release import release_memory, repeatable
from trainauto.models.base_model import BaseModel

logger = logging.getLogger(__name__)

SHOWN_FILES = 8

PARTS_SQUARE = "parts of the batch"
"""Name under which what parts' gradients say travels to the host, among loss terms."""


@dataclass(frozen=True)
class StepSettings:
    """How a step runs.

    Attributes:
        max_norm: gradients with a larger norm are scaled down to it.
        max_norms: the same of single passes.
        axes: bounds of the size of samples, for a pass that fits in no pieces and whose batch cannot be given back;
            without them, or where none of them is a size, it does not fit.
        average_share: how many steps this one counts as to moving averages.
        splits: how passes ran when this step was logged: they run so from the start.
        may_requeue: whether a batch that does not fit may be given back to the loader. Once a pass has stepped it may
            not, for what has stepped is never undone; samples are then cut.
        measures_noise: see how the gradients of parts of the batch differ; one that runs whole is divided in two for
            it, where that changes nothing else.
        step: 1-based number of the step, by which a model may leave objectives out; ``None`` runs all of them.
        leaves_out_non_finite: whether a pass whose gradients are no finite numbers leaves the weights alone; else it
            ends the run.
    """

    max_norm: float | None = None
    axes: Sequence[Axis] = ()
    average_share: float = 1.0
    splits: Mapping[str, MicrobatchSplit] = field(default_factory=dict)
    may_requeue: bool = True
    max_norms: Mapping[str, float | None] = field(default_factory=dict)
    leaves_out_non_finite: bool = False
    step: int | None = None
    measures_noise: bool = False

    def max_norm_of(self, pass_name: str) -> float | None:
        """Return the norm at which the gradients of a pass are clipped; ``None`` where they are not."""
        return self.max_norms.get(pass_name, self.max_norm)


PLAIN = StepSettings()


def optimize_parameters(
    model: BaseModel,
    batch: Batch,
    settings: StepSettings = PLAIN,
    *,
    snapshot: StepSnapshot | None = None,
    ranks: Communicator = SINGLE_PROCESS,
) -> StepOutcome:
    """Train a batch: each pass of the model in order, then the moving averages.

    What a pass adds to its micro-batches (detached tensors under new names) is handed to the passes after it. A batch
    that does not fit has changed no weights, unless an earlier pass has stepped; all ranks then say so.

    Args:
        model: what to train.
        batch: its plan says in how many micro-batches.
        settings: how.
        snapshot: keeps what a pass may change; one for all steps knows which buffers ever change.
        ranks: who trains the other samples of the step.

    Raises:
        NonFiniteError: a loss term or a gradient is NaN or Inf; the weights of that pass are untouched. Not where the
            settings leave such a pass out.
        RankAbortedError, GroupOutOfMemoryError, OptimizerOutOfMemoryError: the run cannot continue.
    """
    step = _Step(model, batch, settings, snapshot or StepSnapshot.of(model), ranks)
    for objective in step.objectives:
        gradients = step.gradients_of_all_ranks(objective)
        if isinstance(gradients, DoesNotFit):
            return gradients
        step.update_weights(objective, gradients)
    return step.finish()


def samples_or_tokens(batch: Batch) -> int:
    """Return what a batch holds of what its plan counts."""
    return batch.shape.samples if BATCH_SIZE in batch.plan else batch.shape.tokens or batch.units


def weight_of_step(batch: Batch, ranks: Communicator) -> float:
    """Return what the loss of the whole step is a mean over, on all ranks; every rank must ask."""
    if batch.workload.weighs_samples:
        return batch.step_samples
    mine = 0.0
    if len(batch):
        device = next(iter(batch.tensors.values())).device
        mine = repeatable(partial(weight_of, batch.workload, batch.tensors), device)
    return tell_weight(batch.workload, mine, ranks)


def tell_weight(workload: Workload, mine: float, ranks: Communicator) -> float:
    """Return the sum of what the parts of all ranks weigh; where each sample weighs 1, nothing is exchanged.

    Args:
        workload: of the samples.
        mine: what the part of this rank weighs; 0 where it has none, not even for an error.
        ranks: who train the step.
    """
    if workload.weighs_samples:
        return mine
    return fsum(message["weight"] for message in ranks.all_gather_object({"weight": mine}))


class _Step:
    """A step on the way through its passes: its tensors, and what has come of it so far."""

    def __init__(
        self, model: BaseModel, batch: Batch, settings: StepSettings, snapshot: StepSnapshot, ranks: Communicator
    ) -> None:
        self._model = model
        self.objectives = model.objectives_at(settings.step)
        model.begin_step(settings.step)
        self._batch = batch
        self._settings = settings
        self._snapshot = snapshot
        self._ranks = ranks
        self._weight = weight_of_step(batch, ranks)
        self._tensors: MicroBatch | None = None
        self._has_stepped = False
        self._start = time.perf_counter()
        self._losses: dict[str, float] = {}
        self._told: list[str] = []
        self._norms: dict[str, float] = {}
        self._skipped: list[str] = []
        self._non_finite: list[str] = []
        self._failures: list[Failure] = []
        self._splits: dict[str, MicrobatchSplit] = {}
        self._noise: dict[str, NoiseSample] = {}

    def gradients_of_all_ranks(self, objective: Objective) -> Gradients | DoesNotFit:
        """Compute the gradients of a pass, here and on the other ranks, and sum them.

        Raises:
            GroupOutOfMemoryError: it does not fit here, and the ranks have met already.
            RankAbortedError: another rank ends the run.
            CannotRepeatError: the pass cannot run again here; the other ranks end, too.
        """
        if not self._ranks.reduces_in_backward:
            return summed_over_ranks(objective, self._ranks, self._snapshot, lambda: self._gradients_here(objective))
        mine = self._gradients_here(objective)  # where it fails, no rank waits where a word would be heard
        if isinstance(mine, DoesNotFit):
            raise GroupOutOfMemoryError(mine, self._batch)
        return mine

    def update_weights(self, objective: Objective, gradients: Gradients) -> None:
        """Clip, and step the optimizer of a pass; from now on it stays."""
        if gradients.split != as_planned(self._batch):
            self._splits[objective.name] = gradients.split
        self._failures += gradients.failures
        if self._weight:
            self._step_by(objective, gradients)
        # Else there are no gradients, by which an optimizer would still move: by decay, and by what it remembers.
        self._has_stepped = True
        self._snapshot.commit_pass()
        self._snapshot.share(self._ranks)

    def _step_by(self, objective: Objective, gradients: Gradients) -> None:
        max_norm, device = self._settings.max_norm_of(objective.name), self._model.device
        figures = dict(gradients.terms)
        if gradients.norms is not None:
            figures[PARTS_SQUARE] = repeated_in_step(gradients.norms.total, objective.name, device)
        # Before it is stepped: the parts' gradients were multiplied by this one.
        scaler = objective.scaler if gradients.norms is not None else None
        factor = repeated_in_step(scaler.get_scale, objective.name, device) if scaler is not None else 1.0
        losses, norm = _read_and_clip(objective, figures, max_norm, device)
        if gradients.norms is not None:
            factor = factor**2 * (self._ranks.world_size if self._ranks.reduces_in_backward else 1)
            square = losses.pop(PARTS_SQUARE) / factor
            sample = NoiseSample(square, norm**2, gradients.norms.parts, samples_or_tokens(self._batch))
            if sample.is_told:
                self._noise[objective.name] = sample
        minimised = {name: value for name, value in losses.items() if name not in gradients.told}
        if wrong := _what_is_not_finite(objective, minimised, norm, self._batch):
            ends = not self._settings.leaves_out_non_finite
            if ends and all(map(isfinite, minimised.values())):
                wrong += self._by_which_terms(objective, gradients.split)
            message = f"{wrong}\n{_where(self._batch)}\n  {self._model.finite_numbers}"
            if ends:
                raise NonFiniteError(message)
            logger.warning("this step does not change the weights: %s", message)
        self._losses |= losses
        self._told += gradients.told
        self._norms[objective.name] = norm
        # By the norm alone, which is the same on all ranks; a scaler leaves steps out by itself.
        if objective.scaler is None and not isfinite(norm):
            self._leave_out(objective)
        elif not step_optimizer(objective, device, may_change_form=self._ranks.world_size == 1):
            self._skipped.append(objective.name)

    def _by_which_terms(self, objective: Objective, ran: MicrobatchSplit) -> str:
        """Say which terms a gradient that is not finite comes from; empty where that is not known."""
        if self._tensors is None or not len(self._batch) or self._ranks.reduces_in_backward:
            return ""
        parameters = parameters_of(objective)
        names = terms_at_fault(objective, parameters, self._tensors, self._batch, ran, self._snapshot)
        return f", by loss term {', '.join(map(repr, names))}" if names else ""

    def finish(self) -> Stepped:
        """Move the averages; return what the step gave."""
        self._snapshot.commit_step()
        _move_averages(self._model, self._settings.average_share)
        seconds = time.perf_counter() - self._start
        return Stepped(
            self._losses,
            self._norms,
            tuple(self._skipped),
            seconds,
            tuple(self._failures),
            self._splits,
            tuple(self._non_finite),
            tuple(self._told),
            tuple(one.name for one in self._model.objectives() if one not in self.objectives),
            self._noise,
            repeatable(self._task_losses, self._model.device),
        )

    def _task_losses(self) -> dict[str, tuple[float, int]]:
        """Return what passes have noted of tasks; of a batch without samples they have run none."""
        noting = [one.notes for one in self.objectives if one.notes is not None] if len(self._batch) else []
        noted = [item for notes in noting for item in notes.task_losses().items()]
        return {task: (loss, samples) for task, (loss, samples) in noted if samples}

    def _leave_out(self, objective: Objective) -> None:
        """Undo a pass: its weights stay, and so do the buffers that it has changed."""
        objective.optimizer.zero_grad(set_to_none=True)
        self._snapshot.leave_out()
        self._non_finite.append(objective.name)

    def _gradients_here(self, objective: Objective) -> Gradients | DoesNotFit:
        if self._tensors is None:
            tensors = on_device(self._model, self._batch)
            if isinstance(tensors, DoesNotFit):
                return tensors
            self._tensors = tensors
        split = self._settings.splits.get(objective.name, as_planned(self._batch))
        if self._settings.measures_noise and objective.name not in self._settings.splits:
            split = divided(objective, split, self._batch, self._snapshot, self._ranks)
        if not len(self._batch):  # of unequal ranks one may have nothing to do
            context = self._snapshot, self._model.device, split, self._ranks
            return gradients_without_samples(objective, self._tensors, self._batch, *context)
        with onednn.left_aside(split.without_onednn):
            gradients = compute_gradients(
                objective,
                self._tensors,
                self._batch,
                self._snapshot,
                self._model.device,
                self._size_axis(),
                split,
                self._ranks,
                self._weight,
                make_norms=partial(PartNorms, objective) if self._settings.measures_noise else None,
            )
        if isinstance(gradients, Gradients):
            self._tensors = {**self._tensors, **gradients.handed_on}
            if objective is not self.objectives[-1]:
                say_differing(objective.name, gradients.differing, gradients.handed_on, self._snapshot.said_differing)
        return gradients

    def _size_axis(self) -> Axis | None:
        """Return the bounds within which samples may be cut now; ``None`` where the batch is given back instead."""
        is_given_back = self._settings.may_requeue and not self._has_stepped
        return None if is_given_back else size_axis(self._settings.axes)


def summed_over_ranks(
    objective: Objective,
    ranks: Communicator,
    snapshot: StepSnapshot,
    compute: Callable[[], Gradients | DoesNotFit],
) -> Gradients | DoesNotFit:
    """Compute the gradients of a pass here, and sum them over the ranks where they fit on all.

    Args:
        objective: the pass.
        ranks: all of them compute theirs, and meet once.
        snapshot: puts back what the pass has changed, where it fits here and not elsewhere.
        compute: gives those of this rank.

    Raises:
        RankAbortedError: another rank ends the run.
        CannotRepeatError: the pass cannot run again here; the other ranks end, too.
    """
    try:
        mine = compute()
    except CannotRepeatError:  # the other ranks wait for what this one says
        ranks.sum_gradients(parameters_of(objective), LOST)
        raise
    worst = ranks.sum_gradients(parameters_of(objective), DOES_NOT_FIT if isinstance(mine, DoesNotFit) else OK)
    if worst in (ABORT, LOST):
        raise RankAbortedError.in_pass(saves=worst == ABORT)
    if worst == OK or isinstance(mine, DoesNotFit):
        return mine
    objective.optimizer.zero_grad(set_to_none=True)
    snapshot.give_back()
    return DoesNotFit.elsewhere(objective.name)


def _read_and_clip(
    objective: Objective, terms: Mapping[str, Tensor], max_norm: float | None, device: torch.device
) -> tuple[dict[str, float], float]:
    """Bring losses and gradient norm to the host, and clip; each again where memory runs out in it.

    All figures travel at once: on CUDA it is the one place of a pass that waits for the device.

    Raises:
        OptimizerOutOfMemoryError: memory ran out twice; no weight has changed.
    """
    parameters = [parameter for parameter in parameters_of(objective) if parameter.grad is not None]
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    kinds: dict[Any, list[nn.Parameter]] = {}
    for parameter, gradient in zip(parameters, gradients, strict=True):
        kinds.setdefault((gradient.device, gradient.dtype), []).append(parameter)
    if objective.scaler is not None:
        unscale = partial(objective.scaler.unscale_, objective.optimizer)
        # It writes once for each kind of gradients, at the end: of several, those of the first would be scaled twice.
        unscale() if len(kinds) > 1 else repeated_in_step(unscale, objective.name, device)

    def read() -> tuple[Tensor, list[float]]:
        total = torch.nn.utils.get_total_norm(gradients)
        if hasattr(total, "full_tensor"):  # of weights that are spread over the ranks
            total = total.full_tensor()
        return total, torch.stack([*terms.values(), total]).tolist()

    # Spread over the ranks they are summed by all of them, who would not do it again.
    is_spread = any(hasattr(gradient, "full_tensor") for gradient in gradients)
    total, (*values, norm) = read() if is_spread else repeated_in_step(read, objective.name, device)
    if max_norm is not None and isfinite(norm) and norm > max_norm:
        for alike in kinds.values():  # one operator writes them all
            clip = partial(torch.nn.utils.clip_grads_with_norm_, alike, max_norm, total)
            clip() if is_spread else repeated_in_step(clip, objective.name, device)
    return dict(zip(terms, values, strict=True)), norm


def _what_is_not_finite(objective: Objective, losses: Mapping[str, float], norm: float, batch: Batch) -> str:
    """Say which figure of a pass is no finite number; empty where all are.

    With loss scaling an overflow of gradients is expected now and then; the scaler skips that step and lowers its
    factor.
    """
    for name, value in losses.items():
        if not isfinite(value):
            return f"loss term '{name}' of pass '{objective.name}' is {value}"
    if objective.scaler is not None or isfinite(norm):
        return ""
    elsewhere = " (of all ranks: one whose own loss is not finite names its files)" if batch.others else ""
    return f"the gradient norm of pass '{objective.name}' is {norm}{elsewhere}"


def _move_averages(model: BaseModel, average_share: float) -> None:
    try:
        model.after_step(average_share)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
    else:
        return
    # Gradients are no longer needed once all passes have stepped; the averages continue where they stopped.
    for optimizer in model.optimizers.values():
        optimizer.zero_grad(set_to_none=True)
    release_memory(model.device)
    model.after_step(average_share)


def _where(batch: Batch) -> str:
    files = "\n".join(f"    {name}" for name in batch.names[:SHOWN_FILES])
    more = f"\n    ... and {len(batch) - SHOWN_FILES} more" if len(batch) > SHOWN_FILES else ""
    return f"  plan: {batch.plan}\n  files of the batch:\n{files}{more}"


def terms_at_fault(
    objective: Objective,
    parameters: Sequence[nn.Parameter],
    tensors: MicroBatch,
    batch: Batch,
    ran: MicrobatchSplit,
    snapshot: StepSnapshot,
) -> list[str]:
    """Run a pass once more, and look at the gradients of each of its terms by itself.

    The run is about to end: where this fails too (there may be no room, or a graph that runs once), no term is named.

    Args:
        objective: the pass, whose terms are finite.
        parameters: what it changes.
        tensors: the batch, on the device.
        batch: the same as the loader gave it.
        ran: in which pieces the pass ran.
        snapshot: the moment at which it began.

    Returns:
        The names of the terms with a gradient that is NaN or Inf, in order; none where only the norm is too large.
    """
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    largest = math.ceil(len(batch) / ran.micro_batches)
    found: dict[str, None] = {}
    try:
        snapshot.restore()
        if ran.extent < batch.shape.extent:
            tensors = batch.workload.shrink(tensors, batch.shape.extent, ran.extent)
        with snapshot.one_pass():
            for _, part in split(batch.workload, tensors, len(batch), largest):
                for name, term in objective.loss(part).items():
                    if term.requires_grad and name not in found:
                        gradients = torch.autograd.grad(term, trained, retain_graph=True, allow_unused=True)
                        if not all(bool(one.isfinite().all()) for one in gradients if one is not None):
                            found[name] = None
    except Exception:  # what is reported is the failure before this one
        return []
    return list(found)
