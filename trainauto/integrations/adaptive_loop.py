"""A training loop of one's own with the memory of a run: the plan that fits, growth, recovery, reasons."""

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Never

import torch
from torch import nn
from torch.utils.data import default_collate

from trainauto.core.batch import Batch
from trainauto.core.decisions import Decision, GiveUp, Rollback
from trainauto.core.errors import InputError, Problem
from trainauto.core.plan import Plan
from trainauto.core.process import memory_limit_kept
from trainauto.core.records import Progress
from trainauto.core.run_events import RunEnd, RunSummary
from trainauto.core.workload import Workload
from trainauto.engine.controls import Controls
from trainauto.engine.journal import DecisionJournal
from trainauto.engine.loop import train_step
from trainauto.engine.probe import choose_first_plan, measure
from trainauto.engine.random_state import kept_random_state, random_state_on, set_random_state_on
from trainauto.engine.rollback import Before, GivenUpError, reordered
from trainauto.engine.train_step import next_batch
from trainauto.engine.training import Training
from trainauto.engine.warmup import lift_budget, put_limit_in_force
from trainauto.integrations.batch_turn import BatchTurn
from trainauto.integrations.coupling import say_coupling
from trainauto.integrations.loop_axes import Values
from trainauto.integrations.loop_controller import LoopController
from trainauto.integrations.loop_forecast import predict_from_small_steps, predict_from_traces
from trainauto.integrations.loop_model import LoopModel, ModelObjective, check_kinds
from trainauto.integrations.loop_parts import LoopSamples, as_not_drawn, build_loader, parse_budget, say_what_is_lacking
from trainauto.integrations.loop_reports import LoopReports, config_of, loop_summary, options_of
from trainauto.integrations.loop_step import HalfSteps, LoopStep
from trainauto.integrations.map_samples import Collate, MapStyle, Resize
from trainauto.integrations.own_rates import OwnRates
from trainauto.integrations.samples import Weigh
from trainauto.integrations.watchers import Watchers, decide_on_validation, validation_of, words_of_end
from trainauto.memory.monitor.meter import MemoryMeter

GoBackCall = Callable[[int], object]
"""Loads the newest checkpoint of a loop that is of this step or before."""


class LoopRollback:
    """Has the loop load a checkpoint where that was decided, and its samples come in another order from there.

    Args:
        load: the loop's own; ``None`` where it has none.
        watchers: what may decide it.

    Raises:
        InputError: they may, and there is nothing to load by.
    """

    def __init__(self, load: GoBackCall | None, watchers: Watchers) -> None:
        if watchers.go_back and load is None:
            message = "SpikeGuard goes back to checkpoints, and those of a loop are its own"
            raise InputError(Problem(message, advice="Give AdaptiveLoop(go_back=...), which loads one of them."))
        self._load = load

    def carry_out(self, run: Training) -> Rollback | None:
        """Do what was decided; return how the loop went back, or ``None`` where it did not.

        Raises:
            GivenUpError: the loop is to end.
            InputError: what was to load a checkpoint has left the loop where it was.
        """
        asked, run.controls.to_undo = run.controls.to_undo, None
        if isinstance(asked, GiveUp):
            raise GivenUpError.after(asked, None)
        if asked is None or self._load is None:
            return None
        before = Before.of(run)
        self._load(asked.good_until)
        if run.progress.steps > asked.good_until:
            message = f"go_back({asked.good_until}) has left the loop at step {run.progress.steps}"
            raise InputError(Problem(message, advice="It calls load_state_dict() with a state of that step or before."))
        return reordered(run, before, asked.reason)


DRAWS_DIFFER = "what the model draws (dropout) differs from a run without the break"


def take_up_generators(devices: Sequence[torch.device], state: Mapping[str, Any] | None) -> None:
    """Have random generators be as in a state; say where it holds none, or those of other devices.

    Args:
        devices: of the model, besides the CPU.
        state: of generators; ``None`` where an earlier version wrote it.
    """
    if state is None:
        logger.warning("the state holds no random generators, as an earlier version wrote it: %s", DRAWS_DIFFER)
    elif others := set_random_state_on(devices, state):
        logger.warning("the state holds random generators of %s: %s", others, DRAWS_DIFFER)


logger = logging.getLogger(__name__)


class AdaptiveLoop:
    """What goes around a plain PyTorch loop for batches that fill the memory there is.

        loop = AdaptiveLoop(model, ModelObjective("train", optimizer, loss), dataset, batch_size=Range(16, 1024))
        with loop:
            for batch in loop.batches(epochs=3):
                step = loop.step(batch)

    The first iteration predicts what plans take (by the loss on a copy of the model without data, else by two small
    steps), puts the budget in force, and measures the plan it chooses; nothing is trained by that. From then on batches
    grow and shrink between their bounds. A batch that runs out of memory is run again in parts, or comes back as
    smaller batches; each sample is trained exactly once an epoch. Gradients, optimizers' steps and clipping are
    :meth:`step`'s; schedules are the loop's own, best counted in samples: :attr:`progress`.

    Give ``batch_size``; or ``batch_size``, ``size`` and ``resize``; or ``tokens`` and ``lengths``.

    Attributes:
        progress: steps, samples, tokens so far.
        training: the engine's parts, for who wants more of them.

    Args:
        model: what is trained; several networks in an ``nn.ModuleDict``. Put it into training mode and on its device.
        objectives: what is minimised, in the order of each step.
        dataset: map-style; its length stays as it is while it is trained.
        batch_size: samples of a step; an int stays.
        size: size of a sample, such as the side of a crop; grows before the batch does.
        resize: makes a sample of a size.
        tokens: padded tokens of a step, samples times the longest.
        lengths: tokens of each sample.
        collate_fn: makes samples a batch; torch's default.
        weigh: what the loss of a batch is a mean over, where that is not its samples: supervised tokens, the sum of
            their classes' weights. Any finite number of at least 0, that of a batch the sum over its parts.
        workload: how batches are divided, where their first dimension is not the sample.
        memory_budget: ``"2GiB"``: on CUDA of the card, on a CPU what steps take beside what is held before.
        settings: of the controller: ``target_vram_usage``, ``policy``, ...; see
            :class:`~trainauto.control.control_settings.ControlSettings`.
        max_norm: gradients with a larger norm are scaled down to it.
        automations: what watches the run, as ``training_automations`` of an option file:
            ``{"AdaptiveGradientClipping": {}}``; see docs/automations.md.
        go_back: called with a step where SpikeGuard wants to go back: loads model, optimizers, schedules and this loop
            (:meth:`load_state_dict`) from the newest of the loop's own checkpoints that is of that step or before.
        num_workers: processes that load samples.
        seed: of order and augmentation.
        run_directory: folder of runs to write logs, curves and decisions into, each run in one of its own; ``None``
            writes nothing.
        others: none; samplers of a ``DataLoader`` are refused, with what to do instead.

    Raises:
        InputError: something given cannot be used; it says what, and what to do.
    """

    _data_seconds, _given_back, _has_begun, _has_gone_back = 0.0, 0, False, False

    def __init__(
        self,
        model: nn.Module,
        objectives: ModelObjective | Sequence[ModelObjective],
        dataset: MapStyle,
        *,
        batch_size: Values | None = None,
        size: Values | None = None,
        resize: Resize | None = None,
        tokens: Values | None = None,
        lengths: Sequence[int] | None = None,
        collate_fn: Collate = default_collate,
        weigh: Weigh | None = None,
        workload: Workload | None = None,
        memory_budget: str | None = None,
        settings: Mapping[str, Any] | None = None,
        max_norm: float | None = None,
        automations: Mapping[str, Any] | None = None,
        go_back: GoBackCall | None = None,
        num_workers: int = 0,
        seed: int = 0,
        run_directory: str | os.PathLike[str] | None = None,
        **others: Never,
    ) -> None:
        check_kinds(model, objectives, dataset, max_norm, others)
        values = {"batch_size": batch_size, "size": size, "tokens": tokens}
        drawn = LoopSamples.of(dataset, collate_fn, values, resize, lengths, weigh, workload)
        self._samples, axes = drawn.samples, drawn.growth.axes
        given = [objectives] if isinstance(objectives, ModelObjective) else list(objectives)
        self._model = LoopModel(model, given, drawn.structure)
        self._automation = LoopController.of(settings or {}, axes)
        self._watchers = Watchers(automations, "settings", options_of(axes, settings, max_norm, memory_budget))
        self._rollback = LoopRollback(go_back, self._watchers)
        budget_bytes, meter = parse_budget(memory_budget), MemoryMeter(self._model.device)
        limit_bytes = budget_bytes or meter.limit_bytes
        target = self._automation.controller.settings.target_vram_usage
        loader = build_loader(drawn, seed, num_workers, self._model.device)
        self.training = Training(
            model=self._model,
            loader=loader,
            axes=axes,
            schedule=OwnRates(),
            journal=DecisionJournal(Controls(loader, max_norm), [self._automation, *self._watchers.automations]),
            meter=meter,
            budget_bytes=budget_bytes,
            limit_bytes=limit_bytes,
            memory_target_bytes=int(limit_bytes * target) if limit_bytes else None,
            leaves_out_non_finite=self._watchers.go_back,
        )
        self._reports, self._half_steps, self._turn = LoopReports(run_directory), HalfSteps(), BatchTurn(loader)

    @property
    def progress(self) -> Progress:
        """What was trained so far."""
        return self.training.progress

    @property
    def plan(self) -> Plan:
        """The plan that is asked for now; batches on their way may have the one before."""
        return self.training.loader.plan

    @property
    def epoch(self) -> int:
        """Whole epochs that were trained."""
        return self.progress.samples // self.training.loader.samples

    def batches(self, epochs: int | None = None) -> Iterator[Batch]:
        """Yield batches until so many epochs have been trained in all; without end by default.

        Pass each to :meth:`step` before the next one is asked for: one that was not trained, since an error or a break
        came between, comes again.

        Args:
            epochs: counted from the very first sample, also after :meth:`load_state_dict`.
        """
        self._begin(epochs)
        self._turn.take_back()
        if not self._turn.is_left(self.training, epochs):
            what = "nothing to train: %d epochs are asked for in all, and as many were trained before: "
            logger.warning(what + "batches(epochs=%d) trains one more", epochs, self.epoch + 1)
        if self.stop_reason:
            logger.warning("%s", words_of_end(self.stop_reason))
        batches = iter(self.training.loader)
        while not self.stop_reason and self._turn.is_left(self.training, epochs):
            start = time.perf_counter()
            batch = next_batch(self.training, batches)
            self._data_seconds = time.perf_counter() - start
            self._turn.in_hand = batch
            yield batch
            self._half_steps.refuse()
            if self._turn.in_hand is batch:
                raise InputError("the batch before was not passed to step(): no sample is left out")
            if self._has_gone_back:
                batches, self._has_gone_back = iter(self.training.loader), False

    def step(self, batch: Batch) -> LoopStep:
        """Train a batch: every objective's loss, gradients and optimizer, in turn.

        A batch that was trained before is trained again, as PPO does: a step more, and no samples more in
        :attr:`progress`. Where it does not fit then, it is left out. One that went back is not trained.

        Raises:
            NothingFitsError: memory runs out, and there is no smaller plan.
            CannotRepeatError: memory runs out after the loss has changed in place what no step had changed before. The
                weights are as before; the batch is lost, and the loop may go on with the next one.
            NonFiniteError: a loss or a gradient is NaN or infinite; the weights are those before its objective. With
                SpikeGuard the step leaves them alone.
            GivenUpError: SpikeGuard has gone back often enough.
            OptimizerOutOfMemoryError: memory runs out in an optimizer's step, and some weights may have changed.
        """
        run, is_first = self.training, self._turn.has_come(batch)
        if not (is_first or self._turn.is_over(batch)):
            return LoopStep.not_trained(batch, out_of_memory=0)
        with memory_limit_kept(), self._half_steps.noted(), self._turn.noted(batch):  # a budget is for steps alone
            record = train_step(run, batch, self._data_seconds if is_first else 0.0)
        if record is None:
            self._turn.went_back(batch)
            self._given_back += 1
            return LoopStep.not_trained(batch)
        self._turn.take_in(run, batch, record)
        decisions = tuple(run.journal.take())
        self._reports.step(record, decisions, run.progress)
        told, self._given_back = self._given_back, 0
        self._undo()
        return LoopStep.of(record, decisions, told)

    def _undo(self) -> None:
        """Go back, or end the loop, where that was decided."""
        made = self._rollback.carry_out(self.training)
        if made is not None:
            self._has_gone_back = True
            self._reports.rolled_back(self._summary(None), made)
            self._watchers.begin(self.training.facts(self._reports.folder))

    @property
    def stop_reason(self) -> str:
        """Why an automation has ended the run: no batches come any more; empty while none has."""
        return self.training.controls.stop_reason

    def validated(
        self, metrics: Mapping[str, float], *, name: str = "val", better_is_higher: Mapping[str, bool] | None = None
    ) -> tuple[Decision, ...]:
        """Tell of a validation after the last step: the run's directory holds it, and automations decide upon it.

        Args:
            metrics: what it came to.
            name: of the set.
            better_is_higher: for each metric, whether a higher value is better; lower is where nothing is said.

        Returns:
            What was decided.
        """
        record = validation_of(self.progress.steps, name, metrics, better_is_higher or {})
        decisions = decide_on_validation(self.training, record)
        self._reports.validation(record, decisions)
        self._undo()
        return tuple(decisions)

    def contents(self, batch: Batch) -> Any:
        """Return what is in a batch, put together as losses get it, on the CPU."""
        return self._model.structure.rebuild(batch.tensors)

    def state_dict(self) -> dict[str, Any]:
        """Return the place in the stream of samples, the counters, what the controller knows, and random generators.

        The generators are those of Python, NumPy, and torch on the CPU and the devices of the model. Model and
        optimizers are the loop's own to save. A batch in hand that is not trained yet counts as not drawn. An
        ``InputError`` says where an optimizer ran out of memory in its step, so that nothing is to be saved.
        """
        self._half_steps.refuse()
        self._reports.sync()
        own = {"progress": vars(self.progress).copy(), "random": random_state_on(self._model.devices)}
        with as_not_drawn(self.training.loader, self._turn.in_hand):
            return {**own, **self._watchers.state_dict(), **self.training.decided_parts()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from :meth:`state_dict`; call it before the first batch is asked for.

        Random generators are as they were then. The log says where the state holds none, or those of other devices.

        Raises:
            InputError: it is no such state, or the dataset has another number of samples now.
        """
        if lacking := {"progress", "loader", "controls", "automations"} - state.keys():
            raise InputError(f"this is no state_dict of an AdaptiveLoop: it has no {', no '.join(sorted(lacking))}")
        self._turn.in_hand = None  # the state says what comes next
        self.training.load_decided_parts(state)
        self._half_steps = HalfSteps()
        self._watchers.take_up(self.training, state)
        self.training.progress = Progress.from_dict(state["progress"])
        take_up_generators(self._model.devices, state.get("random"))

    def close(self) -> None:
        """End the workers, take the budget off this process, and close what is written."""
        self.training.loader.close()
        self._model.single_values.allow(allowed=False)
        if self._has_begun:
            lift_budget(self.training)
        controls = self.training.controls
        stopped = RunEnd("stopped", controls.stop_reason, self.progress, termination_status=controls.termination)
        self._reports.close(stopped if controls.stop_reason else None)

    def __enter__(self) -> "AdaptiveLoop":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            self._reports.failed(error)
        self.close()

    def _begin(self, epochs: int | None) -> None:
        """Before the first batch: predict, put the budget in force, choose the first plan."""
        if self._has_begun:
            return
        try:
            with memory_limit_kept(), kept_random_state(self._model.devices):
                self._prepare(epochs)
        except BaseException:
            lift_budget(self.training)
            raise
        self._model.single_values.speaks = True
        self._has_begun = True  # not before: who mends what failed iterates again

    def _prepare(self, epochs: int | None) -> None:
        run = self.training
        say_coupling(self._model.module, [given.splittable for given in self._model.given])
        say_what_is_lacking(self._model.module, run)
        facts = run.facts()
        self._automation.check(facts)
        self._watchers.check(facts)
        self._reports.start(self._summary(epochs), config_of(run, self._model, self._automation.controller.settings))
        self._watchers.begin(run.facts(self._reports.folder))
        controller = self._automation.controller
        predicts = not run.progress.steps and run.limit_bytes is not None and controller.settings.policy == "jump"
        is_traced = predicts and predict_from_traces(controller, run, self._model, self._samples)
        self._automation.on_run_start(facts)
        put_limit_in_force(run)
        if predicts and not is_traced and run.limit_bytes is not None:
            predict_from_small_steps(controller, run.axes, run.loader.plan, partial(measure, run), run.limit_bytes)
        choose_first_plan(run)

    def _summary(self, epochs: int | None) -> RunSummary:
        return loop_summary(self.training, self._model.module, self._samples, self._reports, epochs)
