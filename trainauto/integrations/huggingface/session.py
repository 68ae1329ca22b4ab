"""One call of ``train``: the engine's parts around the Trainer's own loop."""

import logging
import math
import os
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from trainauto.automations.controller_automation import ControllerAutomation
from trainauto.control.bounds import Bounds
from trainauto.control.controller import Controller
from trainauto.control.effective_batch import EffectiveBatch
from trainauto.core.decisions import Decision, RunFacts
from trainauto.core.errors import CheckpointError
from trainauto.core.plan import BATCH_SIZE
from trainauto.core.process import lacking_environment, without_memory_limit
from trainauto.core.records import Progress, StepRecord, ValidationRecord
from trainauto.core.run_events import RunSummary
from trainauto.engine.controls import Controls
from trainauto.engine.journal import DecisionJournal
from trainauto.engine.probe import choose_first_plan, measure
from trainauto.engine.training import Training
from trainauto.engine.warmup import lift_budget, put_limit_in_force
from trainauto.integrations.huggingface.arguments import own_argument
from trainauto.integrations.huggingface.loss import TrainerLoss, Weighing, learn_weighing
from trainauto.integrations.huggingface.step import PendingStep, begin, finish
from trainauto.integrations.huggingface.train_data import PlannedInputs, TrainBatches, TrainData
from trainauto.integrations.loop_forecast import predict_from_small_steps, predict_from_traces
from trainauto.integrations.loop_model import LoopModel, ModelObjective
from trainauto.integrations.loop_parts import control_settings, parse_budget
from trainauto.integrations.loop_reports import LoopReports
from trainauto.integrations.own_rates import OwnRates
from trainauto.integrations.samples import NestedSamples
from trainauto.memory.monitor.meter import MemoryMeter
from trainauto.memory.monitor.release import trim_heap

logger = logging.getLogger(__name__)

STATE_FILE = "trainauto.pt"
"""What a checkpoint of the Trainer holds of ours, beside what it holds of its own."""

OBJECTIVE = "train"


class TrainerController(ControllerAutomation):
    """The controller of a Trainer's run."""

    name = "MemoryAwareTrainer"


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
        self.progress = Progress()
        args = trainer.args
        control = control_settings(dict(own_argument(args, "memory_settings") or {}))
        self.automation = TrainerController(
            Controller(TrainerController.name, control, Bounds({}, data.growth.axes), EffectiveBatch(data.step_samples))
        )
        self._budget_bytes = parse_budget(own_argument(args, "memory_budget"))
        self._reports = LoopReports(_run_directory(args), on_console=False)
        self._pending: PendingStep | None = None
        self._data_start = time.perf_counter()
        self._grad_norm: Any = None
        self._begun = 0
        self._is_closed = False

    @property
    def samples_to_train(self) -> int | None:
        """How many samples the whole run trains; ``None`` where the Trainer counts its steps."""
        args = self._trainer.args
        return None if args.max_steps > 0 else math.ceil(args.num_train_epochs * len(self.data.samples))

    @property
    def is_complete(self) -> bool:
        """Whether the run has come to its length."""
        total, args = self.samples_to_train, self._trainer.args
        return self.progress.steps >= args.max_steps if total is None else self.progress.samples >= total

    def start(self, checkpoint: str | None) -> None:
        """Predict, put the budget in force, choose the first plan; or take up what a checkpoint holds.

        Raises:
            CheckpointError: it holds nothing of ours.
            InputError: something cannot be used.
        """
        run = self._build()
        if checkpoint is not None:
            self._load(run, Path(checkpoint))
        self._begun = run.progress.samples
        self.batches.is_complete = self.is_complete
        self._say_limits(run)
        facts = RunFacts(run.axes, run.loader.plan)
        self.automation.check(facts)
        self._reports.start(self._summary(run), self._config(run))
        self._predict(run, facts)
        choose_first_plan(run)

    def _build(self) -> Training:
        trainer = self._trainer
        module: nn.Module = trainer.model
        module.train()
        workload = self._weighed(module)
        optimizer: Optimizer = getattr(trainer.optimizer, "optimizer", trainer.optimizer)
        splittable = False if self.loss.weighing is Weighing.COUPLED else None
        scaler = getattr(trainer.accelerator, "scaler", None)
        objective = ModelObjective(OBJECTIVE, optimizer, self.loss, splittable, scaler)
        model = LoopModel(module, [objective], self.data.structure)
        meter = MemoryMeter(model.device)
        limit_bytes = self._budget_bytes or meter.limit_bytes
        target = self.automation.controller.settings.target_vram_usage
        self.data.samples.workload = workload
        self.training = Training(
            model=model,
            loader=self.data.loader,
            axes=self.data.growth.axes,
            schedule=OwnRates(),
            journal=DecisionJournal(Controls(self.data.loader, None), [self.automation]),
            meter=meter,
            budget_bytes=self._budget_bytes,
            limit_bytes=limit_bytes,
            memory_target_bytes=int(limit_bytes * target) if limit_bytes else None,
        )
        return self.training

    def _weighed(self, module: nn.Module) -> NestedSamples:
        """Return the workload, with the weights that make the losses of parts that of the whole."""
        samples = self.data.samples
        workload = samples.workload
        if not isinstance(workload, NestedSamples):
            raise TypeError("a Trainer's batches are nested samples")
        device = next(module.parameters()).device
        some = samples.first(3)
        on_device = {name: leaf.to(device) if isinstance(leaf, torch.Tensor) else leaf for name, leaf in some.items()}
        weighing = learn_weighing(self.loss, module, workload, self.data.structure, on_device)
        logger.info("the loss of a batch is %s", weighing.value)
        return workload.weighed(self.loss.weigh_by(weighing))

    def _predict(self, run: Training, facts: RunFacts) -> None:
        controller = self.automation.controller
        model = run.model
        predicts = not run.progress.steps and run.limit_bytes is not None and controller.settings.policy == "jump"
        clips = self._trainer.args.max_grad_norm > 0
        is_traced = (
            predicts
            and isinstance(model, LoopModel)
            and predict_from_traces(controller, model, self.data.samples, run.axes, clips=clips)
        )
        self.automation.on_run_start(facts)
        put_limit_in_force(run)
        if predicts and not is_traced and run.limit_bytes is not None:
            predict_from_small_steps(
                controller, run.axes, run.loader.plan, lambda plan: measure(run, plan), run.limit_bytes
            )

    def step(self, inputs: PlannedInputs, items: Any) -> PendingStep:
        """Compute the gradients of a batch; where it does not fit in any pieces, those of the first part of it.

        Raises:
            NothingFitsError: there is no smaller plan.
        """
        run = self.running
        seconds = time.perf_counter() - self._data_start
        while True:
            self.loss.step_items = items
            pending = begin(run, inputs.batch, seconds)
            self.loss.step_items = None
            if pending is not None:
                self._pending = pending
                return pending
            with without_memory_limit():
                inputs.hold(self.batches.next_batch(), self.data.structure)
                items = self.loss.items_in(inputs)

    def see_grad_norm(self, grad_norm: Any) -> None:
        """Note the gradient norm of the step on its way."""
        self._grad_norm = grad_norm

    def end_step(self, *, skipped: bool) -> StepRecord | None:
        """Record the step whose optimizer has stepped; ``None`` where none was on its way."""
        if self._pending is None:
            return None
        run, pending = self.running, self._pending
        self._pending = None
        self.record = finish(run, pending, self._grad_norm, skipped=skipped)
        self._grad_norm = None
        self.progress = run.progress
        self.batches.is_complete = self.is_complete
        self.decisions = run.journal.take()
        self._reports.step(self.record, self.decisions, run.progress)
        if self._budget_bytes is not None and run.model.device.type == "cpu":
            trim_heap()
        self._data_start = time.perf_counter()
        return self.record

    @property
    def pending_samples(self) -> int:
        """Samples of the step on its way."""
        return len(self._pending.batch) if self._pending is not None else 0

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
        run = self.running
        folder.mkdir(parents=True, exist_ok=True)
        state = {"progress": vars(run.progress).copy(), **run.decided_parts()}
        torch.save(state, folder / STATE_FILE)

    def _load(self, run: Training, folder: Path) -> None:
        file = folder / STATE_FILE
        if not file.exists():
            raise CheckpointError(
                f"{folder} has no {STATE_FILE}: it was not written by a MemoryAwareTrainer, and where in an epoch it "
                "stands is not known\n  Begin a new run with its weights: from_pretrained(checkpoint)."
            )
        state: Mapping[str, Any] = torch.load(file, weights_only=True)
        run.load_decided_parts(state)
        run.progress = self.progress = Progress.from_dict(state["progress"])

    def tell_of_evaluation(self, record: ValidationRecord) -> None:
        """Have the run directory hold an evaluation."""
        self._reports.validation(record)

    def close(self, error: BaseException | None) -> None:
        """End the workers, take the budget off this process, close what is written."""
        self._is_closed = True
        self.data.loader.close()
        if self.training is not None:
            lift_budget(self.training)
        if error is not None:
            self._reports.failed(error)
        self._reports.close()

    def _say_limits(self, run: Training) -> None:
        if run.limit_bytes is None:
            logger.info("no memory limit is known on this device: batches stay as they begin; set memory_budget")
        elif run.model.device.type == "cpu" and (lack := lacking_environment(os.environ)):
            logger.warning(
                "%s, and a memory budget on a CPU needs it: call trainauto.set_environment() before torch is imported",
                lack,
            )

    def _config(self, run: Training) -> dict[str, Any]:
        return {
            "plan": run.loader.plan.to_dict(),
            "axes": [asdict(axis) for axis in run.axes],
            "objective": {
                "optimizer": type(run.model.optimizers[OBJECTIVE]).__name__,
                "learning_rate": self._trainer.args.learning_rate,
                "loss": self.loss.weighing.value,
            },
            "memory_budget_bytes": run.budget_bytes,
            "controller": asdict(self.automation.controller.settings),
        }

    def _summary(self, run: Training) -> RunSummary:
        total, args = self.samples_to_train, self._trainer.args
        return RunSummary(
            name=self._reports.name,
            run_directory=self._reports.folder,
            device=str(run.model.device),
            network=type(self._trainer.model).__name__,
            parameters=sum(weight.numel() for weight in self._trainer.model.parameters() if weight.requires_grad),
            plan=run.loader.plan,
            total=args.max_steps if total is None else total,
            unit="steps" if total is None else "samples",
            samples={"train_dataset": len(self.data.samples)},
            train_set="train_dataset",
            progress=run.progress,
            precision="bf16" if args.bf16 else "fp16" if args.fp16 else "fp32",
            memory_target_bytes=run.memory_target_bytes,
            memory_limit_bytes=run.limit_bytes,
        )

    def figures(self) -> dict[str, float]:
        """Return what a log line of the Trainer gets of the last step."""
        record = self.record
        if record is None:
            return {}
        plan = record.plan
        figures: dict[str, float] = {
            "samples": self.progress.samples,
            "step_samples": record.shape.samples,
            "forward_batch_size": plan.forward_batch_size if BATCH_SIZE in plan else record.shape.samples,
        }
        if BATCH_SIZE not in plan:
            figures["tokens_per_batch"] = plan.size
        if record.peak is not None:
            figures["peak_memory_mib"] = round(record.peak.allocated / 2**20, 1)
        if record.predicted is not None:
            figures["predicted_memory_mib"] = round(record.predicted / 2**20, 1)
        return figures


def _run_directory(args: Any) -> str | None:
    given: str | None = own_argument(args, "run_directory")
    if given is None:
        return str(Path(args.output_dir) / "memory")
    return given or None
