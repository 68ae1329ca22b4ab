"""What fine-tuning steps on fake tensors, from options: the step that a Trainer makes, of a model without weights."""

from collections.abc import Callable, Mapping
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from trainauto.builders.components import locate_errors
from trainauto.builders.finetune import four_bits_of, weights_dtype
from trainauto.core.batch import Batch
from trainauto.core.plan import Plan
from trainauto.integrations.loop_forecast import largest_batch
from trainauto.integrations.loop_model import LoopModel, ModelObjective
from trainauto.integrations.map_samples import MapSamples
from trainauto.optim.precision import Precision
from trainauto.options.finetune_options import FinetuneOptions
from trainauto.options.load import LoadedOptions
from trainauto.tasks.finetune.conversation_samples import ConversationSamples, for_model
from trainauto.tasks.finetune.datasets import PlannedConversations
from trainauto.tasks.finetune.four_bit_stand_ins import with_four_bit_stand_ins
from trainauto.tasks.finetune.largest_conversation import conversation_as_known
from trainauto.tasks.finetune.models import (
    ModelSettings,
    adapted,
    checkpoint_activations,
    configuration_here,
    model_without_weights,
)

Loaded = LoadedOptions[FinetuneOptions]

SAMPLE = "sample"
"""Of what is known beside an option file: the largest conversation."""

NORMS = ("norm", "bias")
"""Parts of the names of weights that do not decay."""


def fake_finetuning(
    loaded: Loaded, precision: Precision, known: Mapping[str, Any]
) -> tuple[Callable[[FakeTensorMode], LoopModel], Callable[[Plan], Batch], tuple[Tensor, ...]]:
    """Return what makes the model of an option file on fake tensors, its batches, and the tensors that say sizes.

    Formats are those of a run on a card, unless the file is of a CPU; where the tensors lie, ``precision`` says.

    Args:
        loaded: the option file.
        precision: of the process that traces.
        known: the largest conversation, as :data:`SAMPLE`.

    Raises:
        InputError: the model's configuration is not here, or options cannot be used.
    """
    workload = PlannedConversations.of(ConversationSamples(0, "right"), conversation_as_known(known[SAMPLE]))
    samples = MapSamples([], dict)
    samples.workload = workload

    def build(_mode: FakeTensorMode) -> LoopModel:
        model = _as_prepared(fake_model(loaded, precision), precision)
        loss = ModelObjective("train", trainers_optimizer(model, loaded.options), _loss, splittable=True)
        return LoopModel(model, [loss], workload.template.structure)

    return build, lambda plan: largest_batch(samples, plan), tuple(workload.told())


def fake_model(loaded: Loaded, precision: Precision) -> nn.Module:
    """Return the model of an option file without weights, on the device of a precision.

    Raises:
        InputError: its configuration is not here, or adapters match no layer.
    """
    options = loaded.options
    chosen, on_card = options.model, as_on_card(options, precision)
    with locate_errors(loaded, ("model",)):
        config, _ = configuration_here(chosen.name)
        dtype, four_bits = weights_dtype(options, on_card), four_bits_of(options, on_card)
        model = model_without_weights(config, ModelSettings(chosen.name, chosen.attention, dtype, four_bits))
    model = model.to(precision.device)
    if four_bits is not None:
        model = with_four_bit_stand_ins(model, four_bits.compute_dtype)
    if options.memory.gradient_checkpointing:
        checkpoint_activations(model)
    lora = options.lora
    if lora is not None:
        with locate_errors(loaded, ("lora",)):
            model = adapted(model, lora.r, lora.lora_alpha, lora.lora_dropout, lora.target_modules)
    return model.train()


def as_on_card(options: FinetuneOptions, precision: Precision) -> Precision:
    """Return how a run on a card would compute; one whose file is of a CPU stays one of a CPU."""
    device = torch.device("cpu" if options.device == "cpu" else "cuda")
    return Precision(device, precision.dtype)


def trainers_optimizer(model: nn.Module, options: FinetuneOptions) -> torch.optim.Optimizer:
    """Return the optimizer that transformers' Trainer makes: a fused AdamW, of two groups where weights decay."""
    weights = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    kept = [weight for name, weight in weights.items() if any(part in name.lower() for part in NORMS)]
    decaying = [weight for name, weight in weights.items() if not any(part in name.lower() for part in NORMS)]
    groups = [{"params": decaying, "weight_decay": options.training.weight_decay}, {"params": kept, "weight_decay": 0}]
    return torch.optim.AdamW([group for group in groups if group["params"]], lr=1e-4, fused=True)


def _loss(model: Any, batch: Mapping[str, Tensor]) -> Tensor:
    """Return the loss as ``compute_loss`` does: a sum over the labels of a step, whose number is given."""
    loss: Tensor = model(**for_model(batch), use_cache=False, num_items_in_batch=1).loss
    return loss


def _as_prepared(model: nn.Module, precision: Precision) -> nn.Module:
    """Compute in the format of the steps, and give float32 out, as ``accelerate`` has the models of a Trainer do."""
    if precision.dtype == torch.float32:
        return model
    from accelerate.utils import convert_outputs_to_fp32

    computed = type(model).forward

    def forward(self: nn.Module, *arguments: Any, **options: Any) -> Any:
        with precision.autocast():
            return computed(self, *arguments, **options)

    model.forward = MethodType(convert_outputs_to_fp32(forward), model)
    return model
