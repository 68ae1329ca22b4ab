"""Gradient checkpointing of models of one's own and of Transformers."""

import pytest
import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

from tests.mixed_samples import MixedSamples, collate, model_of
from trainauto.models.activation_checkpointing import is_on
from trainauto.tasks.multitask.prediction.batch_memory import PaddedShape
from trainauto.tasks.multitask.prediction.batch_templates import BatchTemplates
from trainauto.tasks.multitask.prediction.gradient_checkpoint_manager import GradientCheckpointManager
from trainauto.tasks.multitask.prediction.task_sizes import TaskSizes
from trainauto.tasks.multitask.prediction.traced_batches import TracedBatches, model_loss


def checkpoints(model: nn.Module) -> bool:
    """By what the layers of a model of Transformers hold: names of its own properties change with versions."""
    return any(getattr(module, "gradient_checkpointing", False) for module in model.modules())


def on_in(model: nn.Module) -> int:
    return sum(is_on(module) for module in model.modules())


def test_blocks_of_any_model_take_less_and_are_as_before_afterwards() -> None:
    """A47: on, and off again."""
    model, dataset = model_of(layers=4), MixedSamples(3)

    def predicted() -> int:
        make_batch = BatchTemplates(collate, dataset, TaskSizes.of(dataset, collate))
        adamw = torch.optim.AdamW(model.parameters())
        return TracedBatches(model, make_batch, model_loss, adamw).trace(PaddedShape(32, 24, 4)).peak_bytes

    before = predicted()
    GradientCheckpointManager.enable_gradient_checkpointing(model)
    assert on_in(model) == 4
    assert predicted() < 0.7 * before
    GradientCheckpointManager.disable_gradient_checkpointing(model)
    GradientCheckpointManager.disable_gradient_checkpointing(model)
    assert on_in(model) == 0
    assert predicted() == before


def test_models_of_transformers_do_it_themselves() -> None:
    sizes = {"hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=40, **sizes))
    GradientCheckpointManager.enable_gradient_checkpointing(model)
    assert checkpoints(model)
    assert on_in(model) == 0
    GradientCheckpointManager.disable_gradient_checkpointing(model)
    assert not checkpoints(model)


def test_of_a_model_without_repeated_blocks_its_parts_run_again() -> None:
    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 4))
            self.heads = nn.ModuleDict({"one": nn.Sequential(nn.Tanh(), nn.Linear(4, 1))})

        def forward(self, x: Tensor) -> Tensor:
            return self.heads["one"](self.body(x)).mean()

    model, x = Plain(), torch.ones(2, 4)
    model(x).backward()
    plain = [weight.grad.clone() for weight in model.parameters() if weight.grad is not None]
    model.zero_grad()
    GradientCheckpointManager.enable_gradient_checkpointing(model)
    assert on_in(model) == 2
    model(x).backward()
    assert len(plain) == 6
    torch.testing.assert_close([weight.grad for weight in model.parameters()], plain)
    GradientCheckpointManager.disable_gradient_checkpointing(model)
    assert on_in(model) == 0


def test_a_model_of_single_layers_stays_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    model = nn.Linear(2, 2)
    GradientCheckpointManager.enable_gradient_checkpointing(model)
    assert "saves nothing in Linear, which consists of single layers" in caplog.text
    assert on_in(model) == 0
