"""What happens before the first step of a Trainer: the engine's parts are put together, and plans are predicted."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
import transformers
from torch import nn
from torch.optim import Optimizer
from transformers.trainer_utils import IntervalStrategy

from trainauto.automations.controller_automation import ControllerAutomation
from trainauto.control.controller import controllers_of
from trainauto.control.noise import AMONG_RANKS
from trainauto.core.automation import Automation
from trainauto.core.decisions import RunFacts
from trainauto.core.errors import InputError
from trainauto.distributed.communicator import SINGLE_PROCESS, Communicator, TorchCommunicator
from trainauto.engine.controls import Controls
from trainauto.engine.journal import DecisionJournal
from trainauto.engine.probe import measure
from trainauto.engine.training import Training
from trainauto.engine.warmup import put_limit_in_force
from trainauto.integrations.huggingface.arguments import own_argument
from trainauto.integrations.huggingface.cuts import Found
from trainauto.integrations.huggingface.directions import Directions
from trainauto.integrations.huggingface.loss import NAMES, TrainerLoss, Weighing, declared_weighing
from trainauto.integrations.huggingface.train_data import TrainData
from trainauto.integrations.huggingface.weighing import learn_weighing, telling_samples
from trainauto.integrations.loop_forecast import predict_from_small_steps, predict_from_traces
from trainauto.integrations.loop_model import LoopModel, ModelObjective
from trainauto.integrations.loop_parts import warn_of_environment
from trainauto.integrations.map_samples import MapSamples
from trainauto.integrations.own_rates import OwnRates
from trainauto.integrations.samples import NestedSamples
from trainauto.integrations.single_values import single_values_allowed
from trainauto.memory.monitor import budget
from trainauto.memory.monitor.meter import MemoryMeter

logger = logging.getLogger(__name__)

OBJECTIVE = "train"

CLIPS_SINCE = "5.3"
"""The first transformers whose Trainer clips, and says its norms, where others can see it."""


def build_training(
    trainer: Any, data: TrainData, loss: TrainerLoss, automations: Sequence[Automation], budget_bytes: int | None
) -> Training:
    """Return the engine's parts for a Trainer whose model and optimizer are ready; the controller comes first."""
    module: nn.Module = trainer.model
    module.train()
    ranks = TorchCommunicator() if trainer.args.world_size > 1 else SINGLE_PROCESS
    declared = declared_weighing(trainer.loss_weighing, trainer.splittable) or trainer.weighing
    if budget_bytes is not None and next(module.parameters()).device.type == "cpu":
        # Before the passes by which weights of parts are found: what they leave in the heap no budget would bound.
        budget.calm_allocator()
    with single_values_allowed(module):
        data.samples.workload = _weighed(module, data, loss, declared, ranks)
    optimizer: Optimizer = getattr(trainer.optimizer, "optimizer", trainer.optimizer)
    splittable: bool | None = trainer.splittable
    if splittable is None and loss.weighing is Weighing.COUPLED:
        splittable = False
    scaler = getattr(trainer.accelerator, "scaler", None)
    model = LoopModel(module, [ModelObjective(OBJECTIVE, optimizer, loss, splittable, scaler)], data.structure)
    model.smaller_batches = "A smaller min_batch_size lets batches shrink."
    meter = MemoryMeter(model.device)
    (objective,) = model.objectives()
    data.loader.axes = data.axes_of_passes(may_grow=objective.splittable)
    limit_bytes = budget_bytes or meter.limit_bytes
    target, max_norm = trainer.memory_target, _given_norm(trainer.args.max_grad_norm)
    return Training(
        model=model,
        loader=data.loader,
        axes=data.loader.axes,
        schedule=OwnRates(),
        ranks=ranks,
        journal=DecisionJournal(Controls(data.loader, max_norm), automations if ranks.is_first else [], ranks),
        meter=meter,
        budget_bytes=budget_bytes,
        limit_bytes=limit_bytes,
        memory_target_bytes=int(limit_bytes * target) if limit_bytes else None,
        noise_every=AMONG_RANKS if any(one.noise is not None for one in controllers_of(automations)) else 0,
    )


def _weighed(
    module: nn.Module, data: TrainData, loss: TrainerLoss, declared: Weighing | None, ranks: Communicator
) -> NestedSamples:
    """Return the workload, with the weights that make the losses of parts that of the whole, the same on all ranks.

    Raises:
        InputError: what was declared does not go with the batches.
    """
    workload = data.samples.workload
    if not isinstance(workload, NestedSamples):
        raise TypeError("a Trainer's batches are nested samples")
    if declared in (Weighing.SAMPLES, Weighing.COUPLED):
        return workload.weighed(loss.weigh_by(declared))
    device = next(module.parameters()).device
    some = telling_samples(loss, data.samples, data.structure)
    on_device = {name: leaf.to(device) if isinstance(leaf, torch.Tensor) else leaf for name, leaf in some.items()}
    if declared is not None:
        _check_declared(loss, declared, data.structure.rebuild(on_device))
        return workload.weighed(loss.weigh_by(declared))
    mine = learn_weighing(loss, module, workload, data.structure, on_device)
    found = Found.from_dict(ranks.broadcast_object(mine.to_dict))
    weigh = loss.weigh_by(found.weighing)
    loss.weighs_labels, loss.doubt = found.by_labels, found.doubt
    return workload.weighed(weigh)


def _check_declared(loss: TrainerLoss, declared: Weighing, batch: Any) -> None:
    """Refuse weights that batches do not have.

    Raises:
        InputError: says what is missing.
    """
    names = {weighing: name for name, weighing in NAMES.items()}
    if declared is Weighing.DECLARED:
        loss.declared_weight(batch)
    if declared is Weighing.ITEMS and not isinstance(batch.get("labels", batch.get("shift_labels")), torch.Tensor):
        raise InputError(f"loss_weighing={names[declared]!r} counts labels, and batches have none called 'labels'")
    if declared is Weighing.SUM and loss.items_here(batch) is None:
        raise InputError(
            f"loss_weighing={names[declared]!r} is of losses that are divided by num_items_in_batch, and neither this "
            "model nor compute_loss_func is given it, or batches have no 'labels'"
        )


def predict(run: Training, automation: ControllerAutomation, samples: MapSamples) -> None:
    """Tell the controller what plans will take, and put the budget in force."""
    controller = automation.controller
    predicts = (
        run.ranks.is_first
        and not run.progress.steps
        and run.limit_bytes is not None
        and controller.settings.policy == "jump"
    )
    is_traced = (
        predicts and isinstance(run.model, LoopModel) and predict_from_traces(controller, run, run.model, samples)
    )
    automation.on_run_start(run.facts())
    put_limit_in_force(run)
    if predicts and not is_traced and run.limit_bytes is not None:
        predict_from_small_steps(
            controller, run.axes, run.loader.plan, lambda plan: measure(run, plan), run.limit_bytes
        )


def say_what_was_learned(run: Training, loss: TrainerLoss, asked_tokens: int | None) -> None:
    """Say what parts weigh, where nothing limits memory, and where the process is not set up for the limit it gets.

    After reports have begun: before, no handler receives them.

    Args:
        run: the engine's parts.
        loss: of the Trainer.
        asked_tokens: its ``tokens_per_batch``.
    """
    axis = run.axes[0]
    if asked_tokens is not None and axis.clamp(asked_tokens) != asked_tokens:
        logger.info(
            "tokens_per_batch=%d is taken as %d, whole rows of the longest: %d tokens",
            asked_tokens,
            axis.clamp(asked_tokens),
            axis.multiple,
        )
    logger.info("the loss of a batch is %s", loss.weighing.value)
    if loss.doubt:
        logger.warning("%s", loss.doubt)
    if run.limit_bytes is None:
        logger.info("no memory limit is known on this device: batches stay as they begin; set a memory budget")
    elif run.model.device.type == "cpu":
        warn_of_environment()


def what_watchers_learn(facts: RunFacts, trainer: Any) -> RunFacts:
    """Return the facts of a run with what is known of its evaluations and its clipping before it begins."""
    args = trainer.args
    directions = Directions(args)
    directions.say_where_they_differ()
    evaluates = args.eval_strategy != IntervalStrategy.NO or own_argument(args, "eval_samples") is not None
    can_clip = hasattr(transformers.Trainer, "_clip_grad_norm")
    lacks = "" if can_clip else f"transformers {CLIPS_SINCE} or later, and {transformers.__version__} is installed"
    return replace(facts, metrics=None if evaluates else (), direction_of=directions.of, lacks_clipping=lacks)


def _given_norm(max_grad_norm: float | None) -> float | None:
    """Return at which norm a Trainer clips; it does not where its argument is 0 or below."""
    return max_grad_norm if max_grad_norm is not None and max_grad_norm > 0 else None
