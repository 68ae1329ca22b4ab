"""Where the Trainer's loop lets others in: the start, each step, the end of an epoch of samples."""

import math
import sys
from typing import Any

from transformers import TrainerCallback
from transformers.trainer_utils import IntervalStrategy, SaveStrategy

from trainauto.core.plan import BATCH_SIZE
from trainauto.core.records import StepRecord
from trainauto.integrations.huggingface.arguments import own_argument
from trainauto.integrations.huggingface.overrides import no_planned_batches
from trainauto.integrations.huggingface.schedule import advance
from trainauto.integrations.huggingface.session import MemorySession


class MemoryCallback(TrainerCallback):  # type: ignore[misc]  # mypy does not follow transformers
    """Comes before all other callbacks, so that these see epochs, steps and lengths as they are.

    Args:
        trainer: whose; its ``memory`` is the session of a call of ``train``.
    """

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer

    def on_train_begin(self, _args: Any, state: Any, control: Any, **_others: Any) -> Any:
        """Predict, choose the first plan, or resume.

        Raises:
            InputError: the Trainer's batches are not those that follow memory.
        """
        session = self._session
        if session is None:
            raise no_planned_batches(self._trainer)
        session.start(self._trainer.checkpoint_to_resume, self._trainer.undone)
        self._count(session, state)
        if session.running.leaves_out_non_finite and not state.global_step:
            self._trainer.save_beginning()
        return control

    def on_pre_optimizer_step(self, _args: Any, _state: Any, control: Any, **_others: Any) -> Any:
        """Leave the weights alone where the gradients are no finite numbers, and something watches for that."""
        if self._session is not None:
            self._session.leave_out_non_finite()
        return control

    def on_optimizer_step(self, _args: Any, _state: Any, control: Any, **_others: Any) -> Any:
        """Note the rates of the step, and move the schedule by its samples."""
        session, trainer = self._session, self._trainer
        if session is None:
            return control
        session.see_rates()
        if session.samples_to_train is not None and not trainer.accelerator.optimizer_step_was_skipped:
            advance(trainer.lr_scheduler, session.pending_samples)
        return control

    def on_step_end(self, args: Any, state: Any, control: Any, **_others: Any) -> Any:
        """Record the step, decide upon it; end epochs and the run by their samples."""
        session = self._session
        if session is None:
            return control
        before = session.progress.samples
        record = session.end_step(skipped=bool(self._trainer.accelerator.optimizer_step_was_skipped))
        if record is None:
            return control
        self._count(session, state)
        samples = session.progress.samples
        epoch = len(session.data.samples)
        if samples // epoch > before // epoch:
            control.should_epoch_stop = True
        _set_due(args, control, session, before, samples)
        _stop(args, control, session)
        self._keep_decisions(session, record, state)
        return control

    def on_evaluate(self, args: Any, _state: Any, control: Any, **_others: Any) -> Any:
        """End the run where automations have ended it upon the evaluation."""
        if self._session is not None and self._session.meter is not None:
            _stop(args, control, self._session)
        return control

    @property
    def _session(self) -> MemorySession | None:
        session: MemorySession | None = self._trainer.memory
        return session

    @staticmethod
    def _count(session: MemorySession, state: Any) -> None:
        """Have the Trainer's state say what has been trained, and about how many steps there will be."""
        state.epoch = session.progress.samples / len(session.data.samples)
        total = session.samples_to_train
        if total is not None:
            state.max_steps = state.global_step + _steps_left(session, total)

    @staticmethod
    def _keep_decisions(session: MemorySession, record: StepRecord, state: Any) -> None:
        for decision in session.decisions:
            entry = {"memory_decision": type(decision).__name__, "reason": getattr(decision, "reason", "")}
            plan = getattr(decision, "plan", None)
            if plan is not None:
                entry["plan"] = str(plan)
            state.log_history.append({**entry, "epoch": state.epoch, "step": state.global_step})
        if record.ooms:
            state.log_history.append({"out_of_memory": record.ooms, "epoch": state.epoch, "step": state.global_step})


def _steps_left(session: MemorySession, total: int) -> int:
    """Return how many steps a run of so many samples will still have if batches stay as they are."""
    done, epoch = session.progress.samples, len(session.data.samples)
    plan, record = session.data.loader.plan, session.record
    size = session.data.first_step_samples * session.running.ranks.world_size
    if record is not None and BATCH_SIZE not in plan:
        size = record.shape.samples
    of_epoch = min(epoch - done % epoch, max(0, total - done))
    epochs, rest = divmod(max(0, total - done) - of_epoch, epoch)
    # No batch goes beyond the end of an epoch, so that its last ones may be smaller.
    return math.ceil(of_epoch / size) + epochs * math.ceil(epoch / size) + math.ceil(rest / size)


def _stop(args: Any, control: Any, session: MemorySession) -> None:
    """Have the Trainer stop where an automation says so, with a checkpoint where it writes any.

    Where the run goes back, its loop ends here to begin again there: nothing of this step is saved or evaluated.
    """
    if session.goes_back:
        control.should_training_stop = True
        control.should_save = control.should_evaluate = False
    elif session.stop_reason:
        control.should_training_stop = True
        control.should_save = control.should_save or args.save_strategy != SaveStrategy.NO


def _set_due(args: Any, control: Any, session: MemorySession, before: int, samples: int) -> None:
    """Log, evaluate and save after so many samples."""
    total = session.samples_to_train
    if _is_due(own_argument(args, "logging_samples"), before, samples) or (
        args.logging_strategy == IntervalStrategy.STEPS and _is_due(_share(args.logging_steps, total), before, samples)
    ):
        control.should_log = True
    if _is_due(own_argument(args, "eval_samples"), before, samples) or (
        args.eval_strategy == IntervalStrategy.STEPS and _is_due(_share(args.eval_steps, total), before, samples)
    ):
        control.should_evaluate = True
    if _is_due(own_argument(args, "save_samples"), before, samples) or (
        args.save_strategy == SaveStrategy.STEPS and _is_due(_share(args.save_steps, total), before, samples)
    ):
        control.should_save = True


def _share(steps: float | None, total: int | None) -> int | None:
    """Return how many samples a share of the run is; ``None`` where steps are counted."""
    return math.ceil(steps * total) if steps is not None and total is not None and 0 < steps < 1 else None


def _is_due(every: int | None, before: int, samples: int) -> bool:
    return bool(every) and samples // (every or sys.maxsize) > before // (every or sys.maxsize)
