"""What batches of a model take, out of a few traces."""

import pytest
import torch
from torch import nn

from tests.mixed_samples import MixedSamples, collate, model_of
from trainauto.core.errors import InputError
from trainauto.tasks.multitask.prediction.batch_memory import PaddedShape
from trainauto.tasks.multitask.prediction.batch_templates import BatchTemplates
from trainauto.tasks.multitask.prediction.task_sizes import TaskSizes
from trainauto.tasks.multitask.prediction.traced_batches import TracedBatches, model_loss


def traced_of(model: nn.Module, *, trains: bool = True) -> TracedBatches:
    dataset = MixedSamples(9, longest=40)
    templates = BatchTemplates(collate, dataset, TaskSizes.of(dataset, collate))
    optimizer = torch.optim.AdamW(model.parameters()) if trains else None
    return TracedBatches(model, templates, model_loss, optimizer)


def test_any_batch_takes_what_a_trace_of_it_does() -> None:
    model = model_of()
    traced = traced_of(model)
    memory = traced.memory(40, 1, 4)
    assert memory.held_bytes >= 3 * sum(weight.nbytes for weight in model.parameters())
    assert all(weight.grad is None for weight in model.parameters())
    for shape in (PaddedShape(5, 40, 1), PaddedShape(13, 23, 2), PaddedShape(64, 40, 4), PaddedShape(20, 30, 3)):
        trace = traced.trace(shape)
        expected = trace.peak_bytes - trace.held_bytes
        assert float(memory.live_bytes(*shape)) == pytest.approx(expected, rel=0.02), shape


def test_a_forward_pass_takes_less() -> None:
    model = model_of()
    training = traced_of(model).memory(40, 1, 4)
    forward = traced_of(model, trains=False).memory(40, 1, 4)
    assert 0 < float(forward.live_bytes(16, 40, 4)) < 0.5 * float(training.live_bytes(16, 40, 4))
    assert model.training


def test_a_model_gets_what_it_takes_of_a_batch() -> None:
    dataset = MixedSamples(3)
    batch = collate([dataset[0], dataset[1]])
    assert model_loss(model_of(), batch).shape == ()  # task_ids and metadata are none of its arguments
    del batch["labels"]
    with pytest.raises(InputError, match="gives no loss for a batch of input_ids, attention_mask"):
        model_loss(model_of(), batch)


def test_a_model_that_takes_anything_gets_all() -> None:
    class Takes(nn.Module):
        def forward(self, **batch: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"loss": torch.tensor(float(len(batch)))}

    assert float(model_loss(Takes(), {"a": 1, "b": 2})) == 2
