"""A Trainer of several tasks that notes what it does, on tiny models."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tests.several_tasks import TASKS, Collate
from tests.trainers import arguments
from trainauto.tasks.multitask.trainer import DynamicBatchingTrainer


class Noting(DynamicBatchingTrainer):
    """Notes the parts of every step, and what is known of each when it has ended."""

    most = 10**9
    """Samples that there is room for."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.parts: list[tuple[int, Tensor]] = []
        self.ended: list[dict[str, Any]] = []

    def compute_loss(self, model: Any, inputs: Any, *given: Any, **options: Any) -> Any:
        is_step = model.training and torch.is_grad_enabled() and self.memory is not None
        if is_step and self.memory is not None and not self.memory.loss.is_rehearsal:
            loss = super().compute_loss(model, inputs, *given, **options)
            if len(inputs["x"]) > self.most:  # the part has been noted by then
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.00 GiB.")
            self.parts.append((self.state.global_step, inputs["x"].clone()))
            return loss
        return super().compute_loss(model, inputs, *given, **options)

    def step_recorded(self, record: Any, *, skipped: bool) -> Any:
        of_tasks = super().step_recorded(record, skipped=skipped)
        factors = dict(self.balancer.factors) if self.balancer is not None else {}
        self.ended.append(
            {
                "losses": dict(self.task_losses),
                "samples": dict(self.task_samples),
                "weights": dict(self.task_weights),
                "factors": factors,
                "ooms": record.ooms,
            }
        )
        return of_tasks


def trainer(folder: Any, model: nn.Module, rows: Sequence[Any], *, tasks: Sequence[str] = TASKS, **options: Any) -> Any:
    """A trainer of them; options that are no arguments of transformers go to the trainer."""
    own = {
        name: options.pop(name)
        for name in ("balancer", "task_loss_weights", "batch_size_normalizer", "use_gradient_accumulation", "callbacks")
        if name in options
    }
    return Noting(
        model,
        arguments(folder, **{"optim": "sgd", **options}),
        list(rows),
        data_collator=Collate(tasks),
        **own,
    )
