"""What a Trainer's run says of itself: its summary, what it was made with, and the figures of a log line."""

import math
from dataclasses import asdict
from typing import Any

from trainauto.automations.controller_automation import ControllerAutomation
from trainauto.core.plan import BATCH_SIZE
from trainauto.core.records import StepRecord
from trainauto.core.run_events import RunSummary
from trainauto.core.units import MIB
from trainauto.engine.training import Training
from trainauto.integrations.huggingface.loss import TrainerLoss
from trainauto.integrations.huggingface.train_data import TRAIN_SET
from trainauto.integrations.loop_reports import LoopReports
from trainauto.storage.run_directory import MADE_BY_TRAINER

MOST_STEPS_A_POINT = 10
"""Of curves; every step has its line in the log."""
PLACES = {
    *("output_dir", "logging_dir", "run_directory", "run_name", "resume_from_checkpoint", "local_rank"),
    *("hub_token", "push_to_hub_token", "training_automations"),
}
"""Arguments of a Trainer that say where a run is, or are compared elsewhere; a run that moves is the same."""


def summary_of(trainer: Any, run: Training, reports: LoopReports, total: int | None, samples: int) -> RunSummary:
    """Return what is said at the start.

    Args:
        trainer: whose run.
        run: the engine's parts.
        reports: where it goes.
        total: samples to train; ``None`` where steps are counted.
        samples: of an epoch.
    """
    args, model = trainer.args, trainer.model
    return RunSummary(
        name=reports.name,
        run_directory=reports.folder,
        device=str(run.model.device),
        network=type(model).__name__,
        parameters=sum(weight.numel() for weight in model.parameters() if weight.requires_grad),
        plan=run.loader.plan,
        total=args.max_steps if total is None else total,
        unit="steps" if total is None else "samples",
        samples={TRAIN_SET: samples},
        train_set=TRAIN_SET,
        progress=run.progress,
        precision="bf16" if args.bf16 else "fp16" if args.fp16 else "fp32",
        memory_target_bytes=run.memory_target_bytes,
        memory_limit_bytes=run.limit_bytes,
    )


def config_of(trainer: Any, run: Training, loss: TrainerLoss, automation: ControllerAutomation) -> dict[str, Any]:
    """Return what a run was made with, for its folder."""
    (objective,) = run.model.objectives()
    return {
        MADE_BY_TRAINER: type(trainer).__name__,
        "plan": run.loader.plan.to_dict(),
        "axes": [asdict(axis) for axis in run.axes],
        "objective": {
            "optimizer": type(objective.optimizer).__name__,
            "learning_rate": trainer.args.learning_rate,
            "loss": loss.weighing.value,
        },
        "memory_budget_bytes": run.budget_bytes,
        "controller": asdict(automation.controller.settings),
    }


def options_of(trainer: Any, some_rows: int | None) -> dict[str, Any]:
    """Return what a run is given: its arguments but for places, and what its samples are known by.

    Args:
        trainer: whose run.
        some_rows: checksum of a few rows; ``None`` where samples have none.
    """
    arguments = trainer.args.to_dict()
    given = {name: value for name, value in arguments.items() if name not in PLACES}
    return {**given, "rows": some_rows, "data": dict(trainer.data_checksums())}


def figures_of(record: StepRecord) -> dict[str, float]:
    """Return what a log line of the Trainer gets of a step: its samples, what passes held in the end, its peak."""
    plan = record.plan
    counts = BATCH_SIZE in plan
    forward = plan.forward_batch_size if counts else record.shape.samples
    for pieces in record.pieces.values():
        forward = math.ceil(record.shape.samples / pieces.micro_batches)
    figures: dict[str, float] = {"step_samples": record.shape.samples, "forward_batch_size": forward}
    if not counts:
        figures["tokens_per_batch"] = plan.size
    if record.peak is not None:
        figures["peak_memory_mib"] = round(record.peak.allocated / MIB, 1)
    if record.predicted is not None:
        figures["predicted_memory_mib"] = round(record.predicted / MIB, 1)
    return figures


def curves_every(args: Any) -> int:
    """Return steps between points of curves: those between lines of the Trainer, where they are few."""
    steps = args.logging_steps
    return MOST_STEPS_A_POINT if not 1 <= steps < MOST_STEPS_A_POINT else int(steps)
