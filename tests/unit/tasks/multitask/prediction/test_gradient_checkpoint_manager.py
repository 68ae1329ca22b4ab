"""Gradient checkpointing of models of one's own and of Transformers."""

import pytest
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from tests.mixed_samples import MixedSamples, collate, model_of
from trainauto.core.errors import InputError
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


def test_a_model_without_blocks_is_named() -> None:
    model = nn.Linear(2, 2)
    with pytest.raises(InputError, match="cannot be switched on: Linear has no list of repeated blocks"):
        GradientCheckpointManager.enable_gradient_checkpointing(model)
    assert model(torch.ones(1, 2)).shape == (1, 2)
