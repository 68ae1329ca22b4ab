"""One call of ``train``: the engine's parts around the Trainer's own loop."""

import logging
import math
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from trainauto.control.effective_batch import EffectiveBatch
from trainauto.core.decisions import Decision, Rollback
from trainauto.core.plan import BATCH_SIZE, Plan
from trainauto.core.records import Progress, StepRecord, ValidationRecord
from trainauto.core.run_events import DETAIL, RunEnd, RunSummary
from trainauto.engine.few_steps import warn_of_few_steps
from trainauto.engine.probe import choose_first_plan
from trainauto.engine.rollback import reordered
from trainauto.engine.run_errors import NothingFitsError
from trainauto.engine.train_step import rates_now
from trainauto.engine.training import Training
from trainauto.engine.warmup import lift_budget
from trainauto.integrations.huggingface.arguments import own_argument
from trainauto.integrations.huggingface.checkpoints import (
    STATE_FILE,
    check_same_steps,
    renew_state,
    warn_of_other_rows,
    write_state,
)
from trainauto.integrations.huggingface.coupled_passes import CoupledPasses
from trainauto.integrations.huggingface.descriptions import config_of, curves_every, figures_of, options_of, summary_of
from trainauto.integrations.huggingface.loss import TrainerLoss, Weighing
from trainauto.integrations.huggingface.optimizer_steps import guard_steps
from trainauto.integrations.huggingface.rollback import Undone, check_that_it_saves
from trainauto.integrations.huggingface.start_up import (
    OBJECTIVE,
    build_training,
    predict,
    say_what_was_learned,
    what_watchers_learn,
)
from trainauto.integrations.huggingface.step import PendingStep, begin, finish, is_left_out
from trainauto.integrations.huggingface.train_batches import PlannedInputs, TrainBatches
from trainauto.integrations.huggingface.train_data import TrainData
from trainauto.integrations.loop_controller import LoopController
from trainauto.integrations.loop_parts import as_not_drawn, parse_budget
from trainauto.integrations.loop_reports import LoopReports
from trainauto.integrations.own_rates import OwnRates
from trainauto.integrations.watchers import Watchers, decide_on_validation, words_of_end
from trainauto.memory.monitor.meter import MemoryMeter
from trainauto.storage.run_directory import TRAINER_RUNS

logger = logging.getLogger(__name__)


class TrainerController(LoopController):
    """The controller of a Trainer's run."""

    name = "MemoryAwareTrainer"
    says_periods_at = DETAIL


class MemorySession:
    """The memory of one call of ``train``.

    Attributes:
        training: the engine's parts.
        data: what is trained on.
        batches: what the Trainer's loop draws from.
        decisions: those of the last step.

    Args:
        trainer: whose.
        data: what it trains on.
        batches: of it.
    """

    def __init__(self, trainer: Any, data: TrainData, batches: TrainBatches) -> None:
        self._trainer = trainer
        self.data = data
        self.batches = batches
        self.loss = TrainerLoss(trainer)
        self.decisions: list[Decision] = []
        self.record: StepRecord | None = None
        self.training: Training | None = None
        self.passes = CoupledPasses()
        self.progress = Progress()
        self._at_close = ExitStack()
        args = trainer.args
        step_samples = data.step_samples * args.world_size if data.step_samples else None
        settings = own_argument(args, "memory_settings") or {}
        steps = EffectiveBatch(step_samples, may_grow=data.steps_may_grow)
        self.automation = TrainerController.of(settings, data.growth.axes, steps)
        self.watchers = Watchers(trainer.own_automations(), "memory_settings", options_of(trainer, data.some_rows))
        self._budget_bytes = parse_budget(own_argument(args, "memory_budget"))
        self._reports = LoopReports(
            _run_directory(args), on_console=False, curves_every=curves_every(args), more_sinks=trainer.own_sinks
        )
        self._pending: PendingStep | None = None
        self._grad_norm: Any = None
        self._rates: dict[str, float] = {}
        self._begun = 0
        self._is_closed = self._is_left_out = False

    @property
    def samples_to_train(self) -> int | None:
        """How many samples the whole run trains; ``None`` where the Trainer counts its steps."""
        args = self._trainer.args
        return None if args.max_steps > 0 else math.ceil(args.num_train_epochs * len(self.data.samples))

    @property
    def is_complete(self) -> bool:
        """Whether the run has come to its length, or was stopped."""
        if self.stop_reason:
            return True
        total, args = self.samples_to_train, self._trainer.args
        return self.progress.steps >= args.max_steps if total is None else self.progress.samples >= total

    @property
    def stop_reason(self) -> str:
        """Why an automation has ended the run; empty while none has."""
        return self.training.controls.stop_reason if self.training is not None else ""

    @property
    def goes_back(self) -> bool:
        """Whether this start of the run ends here, since it goes back to a checkpoint or is given up."""
        return self.training is not None and self.training.controls.to_undo is not None

    @property
    def clips_as_decided(self) -> bool:
        """Whether an automation has decided at which norm gradients are clipped; else the arguments say it."""
        return self.training is not None and self.training.controls.is_norm_decided(OBJECTIVE)

    def max_norm(self) -> float | None:
        """Return the norm at which the step on its way is clipped; ``None`` where it is not."""
        return self.running.controls.max_norm_of(OBJECTIVE)

    def start(self, checkpoint: str | None, undone: Undone | None = None) -> None:
        """Predict, put the budget in force, choose the first plan; or take up what a checkpoint holds.

        Args:
            checkpoint: its folder; ``None`` begins a run.
            undone: what the start before has left, where the run goes back to that checkpoint.

        Raises:
            InputError: something cannot be used.
        """
        self._trainer.prepare_loss()
        self.loss.is_rehearsal = True
        self._start(checkpoint, undone)
        self.loss.is_rehearsal = False
        self._at_close.callback(guard_steps(self._trainer.optimizer, self.running))

    def _start(self, checkpoint: str | None, undone: Undone | None) -> None:
        automations = [self.automation, *self.watchers.automations]
        self.training = run = build_training(self._trainer, self.data, self.loss, automations, self._budget_bytes)
        self.passes = CoupledPasses.of(run, self.data.growth.plan, is_loss=self.loss.weighing is Weighing.COUPLED)
        run.snapshot.on_restore = self._forget_attempt
        run.leaves_out_non_finite = self.watchers.go_back
        if self.watchers.go_back:
            check_that_it_saves(self._trainer.args)
        made: Rollback | None = None
        if checkpoint is not None:
            own = load_state(run, Path(checkpoint), self.data, self.watchers)
            self._trainer.load_own_state(own)
            self.progress = run.progress
            made = self._reordered(run, undone) if undone is not None else None
        self._begun, self.batches.run = run.progress.samples, run
        self.batches.is_complete = self.is_complete
        self.automation.check(run.facts())
        self.watchers.check(what_watchers_learn(run.facts(), self._trainer))
        if run.ranks.is_first:
            self._reports.start(*self._described(run), made)
            self.watchers.begin(run.facts(self._reports.folder or str(self._trainer.args.output_dir)))
        if self.stop_reason and undone is None:
            logger.warning("%s", words_of_end(self.stop_reason))
        say_what_was_learned(run, self.loss, own_argument(self._trainer.args, "tokens_per_batch"))
        predict(run, self.automation, self.data.samples)
        given = run.loader.plan
        choose_first_plan(run)
        if run.ranks.is_first and not run.progress.steps and self.samples_to_train is not None:
            option = "max_batch_size" if BATCH_SIZE in given else "max_tokens_per_batch"
            if self.data.steps_may_change:
                warn_of_few_steps(run, self.samples_to_train, given, option)

    def _forget_attempt(self) -> None:
        self.loss.forget_parts()
        self._trainer.forget_attempt()

    def _reordered(self, run: Training, undone: Undone) -> Rollback:
        """Have the samples come in another order from here on, and the checkpoint know of it, for a later resume."""
        made = reordered(run, undone.before, undone.reason)
        self.progress = run.progress
        if run.ranks.is_first:
            renew_state(undone.checkpoint, self._state())
        return made

    def step(self, inputs: PlannedInputs, items: Any) -> PendingStep:
        """Compute the gradients of a batch; where it does not fit in any pieces, those of the first part of it.

        Raises:
            NothingFitsError: there is no smaller plan.
        """
        run = self.running
        seconds = self.batches.seconds
        while True:
            self.passes.see(inputs.batch.plan)
            self.loss.step_items = items
            try:
                pending = begin(run, inputs.batch, self.loss, seconds)
            except NothingFitsError:
                self.batches.untrained = None  # it went back to the loader
                raise
            self.loss.step_items = None
            if pending is not None:
                self._pending = pending
                return pending
            inputs.hold(self.batches.next_batch(), self.data.structure)
            items = self.loss.items_in(inputs)

    def see_grad_norm(self, grad_norm: Any) -> None:
        """Note the gradient norm of the step on its way."""
        self._grad_norm = grad_norm

    def see_rates(self) -> None:
        """Note the rates of the step on its way, whose optimizer has just stepped, and give each group its own back."""
        self._rates = rates_now(self.running)
        self.running.schedule.put_back()

    def leave_out_non_finite(self) -> None:
        """Have the step on its way leave the weights alone where its gradients are no finite numbers."""
        scales = getattr(self._trainer.accelerator, "scaler", None) is not None
        if self._pending is not None and not scales:
            self._is_left_out = is_left_out(self.running, self._grad_norm)

    def multiply_rates(self, factor: float) -> None:
        """Multiply the rates of the step on its way."""
        run = self.running
        if isinstance(run.schedule, OwnRates):
            run.schedule.multiply(run.model.optimizers.values(), factor)

    def end_step(self, *, skipped: bool) -> StepRecord | None:
        """Record the step whose optimizer has stepped; ``None`` where none was on its way."""
        if self._pending is None:
            return None
        run, pending = self.running, self._pending
        self._pending = self.batches.untrained = None
        self.automation.fills_plan = self._trainer.takes_full_memory()
        left_out, self._is_left_out = self._is_left_out, False
        self.record = finish(run, pending, self._grad_norm, self._rates, skipped=skipped, left_out=left_out)
        of_tasks = self._trainer.step_recorded(self.record, skipped=skipped)
        if of_tasks:
            losses, samples = ({task: pair[place] for task, pair in of_tasks.items()} for place in (0, 1))
            self.record = replace(self.record, task_losses=losses, task_samples=samples)
        self._grad_norm = None
        self.progress = run.progress
        self.batches.is_complete = self.is_complete
        self.decisions = run.journal.take()
        self._reports.step(self.record, self.decisions, run.progress)
        self.batches.seconds = 0.0
        return self.record

    def figures(self) -> dict[str, float]:
        """Return what a log line of the Trainer gets of the last step."""
        return {} if self.record is None else {"samples": self.progress.samples, **figures_of(self.record)}

    def rate_used(self) -> dict[str, float]:
        """Return the rate of the last step for a log line of the Trainer, which asks its schedule otherwise."""
        rates = list(self.record.learning_rates.values()) if self.record is not None else []
        return {"learning_rate": float(rates[0])} if rates else {}

    def _described(self, run: Training) -> tuple[RunSummary, dict[str, Any]]:
        trainer, total = self._trainer, self.samples_to_train
        summary = summary_of(trainer, run, self._reports, total, len(self.data.samples))
        return summary, config_of(trainer, run, self.loss, self.automation)

    @property
    def pending_samples(self) -> int:
        """Samples of the step on its way, of all ranks."""
        return self._pending.batch.step_samples if self._pending is not None else 0

    @property
    def pending_plan(self) -> Plan | None:
        """Plan of the step on its way."""
        return self._pending.batch.plan if self._pending is not None else None

    @property
    def trained_samples(self) -> int:
        """Samples that this call of ``train`` has trained."""
        return self.progress.samples - self._begun

    @property
    def running(self) -> Training:
        """The engine's parts, once training has begun."""
        if self.training is None:
            raise RuntimeError("training has not begun")
        return self.training

    @property
    def meter(self) -> MemoryMeter | None:
        """Reads memory while training is on its way."""
        return self.training.meter if self.training is not None and not self._is_closed else None

    def save(self, folder: Path) -> None:
        """Write what a resume needs of ours."""
        self._reports.sync()
        write_state(folder, self._state())

    def _state(self) -> dict[str, Any]:
        """Return it; a batch in hand that is not trained yet counts as not drawn."""
        with as_not_drawn(self.running.loader, self.batches.untrained):
            return state_of(self.running, self.data, self.watchers, self._trainer.own_state())

    def tell_of_evaluation(self, record: ValidationRecord) -> None:
        """Have the run directory hold an evaluation, and while training is on its way, automations decide upon it."""
        is_under_way = self.meter is not None
        self._reports.validation(record, decide_on_validation(self.running, record) if is_under_way else ())

    def close(self, error: BaseException | None) -> None:
        """End the workers, take the budget off this process, close what is written."""
        self._is_closed = True
        self._at_close.close()
        self.data.loader.close()
        if self.training is not None:
            lift_budget(self.training)
        if error is not None:
            self._reports.failed(error)
        self._reports.close((not self.goes_back and self._trainer.ending()) or self._stopped())

    def _stopped(self) -> RunEnd | None:
        """Return how an automation has ended the run, or this start of it."""
        if self.training is None:
            return None
        if self.training.controls.to_undo is not None:
            return RunEnd("stopped", f"goes back: {self.training.controls.to_undo.reason}", self.progress)
        if not self.stop_reason:
            return None
        termination = self.training.controls.termination
        return RunEnd("stopped", self.stop_reason, self.progress, termination_status=termination)


def _run_directory(args: Any) -> str | None:
    given: str | None = own_argument(args, "run_directory")
    if given is None:
        return str(Path(args.output_dir) / TRAINER_RUNS)
    return given or None


def state_of(run: Training, data: TrainData, watchers: Watchers, own: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a resume needs.

    Args:
        run: the engine's parts.
        data: what is trained on.
        watchers: the automations.
        own: what the class of the Trainer keeps.
    """
    return {
        "progress": vars(run.progress).copy(),
        "step_samples": _asked_samples(data),
        "some_rows": data.some_rows,
        "trainer": dict(own),
        **watchers.state_dict(),
        **run.decided_parts(),
    }


def load_state(run: Training, folder: Path, data: TrainData, watchers: Watchers) -> Mapping[str, Any]:
    """Take up what a checkpoint holds; return what the class of the Trainer has kept.

    Raises:
        InputError: it is of other steps.
    """
    state: Mapping[str, Any] = torch.load(folder / STATE_FILE, weights_only=True)
    asked = _asked_samples(data)
    check_same_steps(state.get("step_samples", asked), asked)
    run.load_decided_parts(state)
    watchers.take_up(run, state)
    warn_of_other_rows(state.get("some_rows"), data.some_rows)
    run.progress = Progress.from_dict(state["progress"])
    own: Mapping[str, Any] = state.get("trainer", {})
    return own


def _asked_samples(data: TrainData) -> int | None:
    """Return the samples that accumulation gives a step: without it, a run may go on with other batches."""
    return data.step_samples if data.accumulates else None
