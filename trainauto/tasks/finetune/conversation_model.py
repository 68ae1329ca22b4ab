"""A vision-language model as the engine trains models: its own loss, a mean over the tokens that are learned."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from trainauto.core.objectives import LossTerms, MicroBatch, Objective
from trainauto.models.base_model import BaseModel
from trainauto.optim.precision import Precision
from trainauto.tasks.finetune.conversation_samples import for_model

TRAIN_PASS = "train"  # noqa: S105  (no secret)
"""Name of the one pass, in logs and curves."""
NETWORK = "model"
"""Name of the network, and of the file of its weights in checkpoints."""
LOSS = "loss"


class ConversationModel(BaseModel):
    """A model of transformers, with adapters where it has some.

    Args:
        network: takes what its processor makes, and returns a loss.
        optimizer: of what is trained of it.
        precision: number format, and the device.
        learning_rate: of the option file, for advice.
        forward: what is run in training in place of the network; ``None`` for itself.
    """

    less_memory = (
        "Take a smaller model, fewer max_pixels, use_amp, load_in_4bit, or more memory (memory: budget:): plan -opt "
        "FILE --recipes says what each takes."
    )
    checkpointing_advice = "`memory: gradient_checkpointing: true` would help"

    def __init__(
        self,
        network: nn.Module,
        optimizer: Optimizer,
        precision: Precision,
        learning_rate: float = 1e-4,
        *,
        forward: nn.Module | None = None,
    ) -> None:
        super().__init__(precision.device)
        self.finite_numbers = (
            f"Try training: {{learning_rate: {learning_rate / 10:g}, warmup_ratio: 0.2}}, or use_amp: false; "
            "look at these conversations."
        )
        self._precision = precision
        self._network = self.networks[NETWORK] = network.train()
        self._forward = forward if forward is not None else network
        self.optimizers[TRAIN_PASS] = optimizer
        trained = [weight for weight in network.parameters() if weight.requires_grad]  # groups have another order
        scaler, without_sum = precision.new_scaler(), getattr(self._forward, "no_sync", None)
        self._objective = Objective(
            TRAIN_PASS, optimizer, self._loss, scaler=scaler, without_sum=without_sum, parameters=trained
        )

    @property
    def checkpoints_gradients(self) -> bool:
        """Whether blocks run again: models of transformers say so in an attribute of their own."""
        own = any(getattr(module, "gradient_checkpointing", False) is True for module in self._network.modules())
        return own or super().checkpoints_gradients

    def objectives(self) -> Sequence[Objective]:
        """Return the one pass."""
        return (self._objective,)

    def words_for(self, objective: str) -> str:
        """Return what a person calls the pass."""
        return "the model's pass" if objective == TRAIN_PASS else super().words_for(objective)

    @torch.no_grad()
    def mean_loss(self, tensors: Mapping[str, Tensor]) -> float:
        """Return the mean loss over the learned tokens of a batch on the device, by the model in evaluation mode."""
        self._network.eval()
        try:
            return float(self._computed(self._network, tensors))
        finally:
            self._network.train()

    def _loss(self, part: MicroBatch) -> LossTerms:
        return {LOSS: self._computed(self._forward, part).float()}

    def _computed(self, network: nn.Module, tensors: Mapping[str, Tensor]) -> Tensor:
        with self._precision.autocast():
            loss: Tensor = network(**for_model(tensors), use_cache=False).loss
        return loss
