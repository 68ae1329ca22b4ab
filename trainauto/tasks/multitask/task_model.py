"""A model of several tasks as the engine trains models: a loss for each sample, weighed by its task."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from trainauto.core.errors import InputError, Problem
from trainauto.core.objectives import LossTerms, MicroBatch, Objective
from trainauto.models.base_model import BaseModel
from trainauto.optim.precision import Precision
from trainauto.tasks.multitask.losses.sample_losses import losses_of_samples
from trainauto.tasks.multitask.losses.step_tasks import StepTasks
from trainauto.tasks.multitask.losses.task_losses import masks_of
from trainauto.tasks.multitask.model_inputs import TASK_IDS, accepted, inputs_of

TRAIN_PASS = "train"  # noqa: S105  (no secret)
"""Name of the one pass, in logs and curves."""
NETWORK = "model"
"""Name of the network, and of the file of its weights in checkpoints."""
LOSS = "loss"


@dataclass(frozen=True)
class SampleResults:
    """What a model makes of a batch.

    Attributes:
        losses: of its samples, (N,), without weights of tasks.
        masks: which are of each task, (tasks, N).
        predictions: its most probable labels, (N,); ``None`` of a model that gives none.
    """

    losses: Tensor
    masks: Tensor
    predictions: Tensor | None


class TaskModel(BaseModel):
    """A network that answers samples of several tasks; the weights of their losses may follow their gradients.

    Args:
        network: gets of a batch what its ``forward`` names; see
            :func:`~trainauto.tasks.multitask.losses.sample_losses.losses_of_samples`.
        optimizer: of its weights.
        precision: number format, and the device.
        tasks: what tasks weigh.
        forward: what is run in training in place of the network; ``None`` for itself.
    """

    less_memory = (
        "Take a smaller model, gradient checkpointing, use_amp, or more memory (memory: budget:). The last checkpoint "
        "stands."
    )
    finite_numbers = "Try a lower learning_rate, grad_clip, or float32 (use_amp: false); look at these samples."

    def __init__(
        self,
        network: nn.Module,
        optimizer: Optimizer,
        precision: Precision,
        tasks: StepTasks,
        *,
        forward: nn.Module | None = None,
    ) -> None:
        super().__init__(precision.device)
        self._precision = precision
        self._network = self.networks[NETWORK] = network.train()
        self._forward = forward if forward is not None else network
        self._inputs = inputs_of(network)
        self.tasks = tasks
        self._looks = tasks.compares_gradients
        self.optimizers[TRAIN_PASS] = optimizer
        trained = [weight for weight in network.parameters() if weight.requires_grad]  # groups have another order
        scaler, without_sum = precision.new_scaler(), getattr(self._forward, "no_sync", None)
        self._objective = Objective(
            TRAIN_PASS,
            optimizer,
            self._loss,
            scaler=scaler,
            without_sum=without_sum,
            parameters=trained,
            notes=tasks,
        )

    def objectives(self) -> Sequence[Objective]:
        """Return the one pass."""
        return (self._objective,)

    def begin_step(self, step: int | None) -> None:
        """Look at gradients of tasks where that is due; a step that stands for all has the room for it."""
        self._looks = self.tasks.compares_gradients and self.takes_full_memory(step)

    def takes_full_memory(self, step: int | None) -> bool:
        """Whether a step looks at gradients of tasks, where any does."""
        return step is None or self.tasks.takes_full_memory(step - 1)

    def words_for(self, objective: str) -> str:
        """Return what a person calls the pass."""
        return "the model's pass" if objective == TRAIN_PASS else super().words_for(objective)

    def results(self, tensors: Mapping[str, Tensor]) -> SampleResults:
        """Return losses and predictions of the samples of a batch on the device."""
        with self._precision.autocast():
            forward = self._forward if torch.is_grad_enabled() else None
            return results_of(self._network, self._inputs, tensors, self.tasks.tasks, forward)

    def state_dict(self) -> dict[str, Any]:
        """Return what a resume needs besides the weights: weights of tasks, and what they follow from, among it."""
        return {**super().state_dict(), "tasks": self.tasks.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back :meth:`state_dict`.

        Raises:
            InputError: its weights of tasks follow another rule, or are of other tasks.
        """
        super().load_state_dict(state)
        self.tasks.load_state_dict(state["tasks"])

    def _loss(self, part: MicroBatch) -> LossTerms:
        found = self.results(part)
        loss = self.tasks.loss(found.losses, found.masks)
        if torch.is_grad_enabled():
            self.tasks.note(self._network, part, found.losses, found.masks, looks=self._looks)
        return {LOSS: loss}


def results_of(
    network: nn.Module,
    inputs: Sequence[str],
    tensors: Mapping[str, Tensor],
    tasks: Sequence[str],
    forward: nn.Module | None = None,
) -> SampleResults:
    """Return what a network makes of a batch.

    Args:
        network: in the mode in which it is to run.
        inputs: see :func:`inputs_of`.
        tensors: of the batch, on its device; they say of which task each sample is.
        tasks: names, in the order of their ids.
        forward: what is run in place of the network; ``None`` for itself.

    Raises:
        InputError: the loss of each sample cannot be told.
    """
    task_ids = tensors[TASK_IDS]
    outputs = (forward or network)(**accepted(tensors, inputs))
    losses = losses_of_samples(outputs, tensors.get("labels"), len(task_ids), shifts_labels=predicts_next(network))
    found = outputs.get("predictions") if isinstance(outputs, Mapping) else getattr(outputs, "predictions", None)
    predictions = found.detach().reshape(-1) if isinstance(found, Tensor) else None
    if predictions is not None and len(predictions) != len(task_ids):
        message = f"the model gives {len(predictions)} predictions for {len(task_ids)} samples"
        raise InputError(Problem(message, advice="Give one for each sample, (N,), or leave them out."))
    return SampleResults(losses, masks_of(task_ids, len(tasks)), predictions)


def predicts_next(network: nn.Module) -> bool:
    """Say whether a logit is for the label after it: of causal language models of transformers."""
    loss_type = getattr(network, "loss_type", None)
    if loss_type is None:
        return False
    from transformers.loss.loss_utils import LOSS_MAPPING, ForCausalLMLoss

    is_encoder_decoder = getattr(getattr(network, "config", None), "is_encoder_decoder", False)
    return LOSS_MAPPING.get(loss_type) is ForCausalLMLoss and not is_encoder_decoder
