"""What fine-tuning steps on fake tensors, from options: the step of a run, of a model without weights."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from trainauto.builders.components import locate_errors
from trainauto.builders.finetune import SAMPLE, finetuned_model, four_bits_of, weights_dtype
from trainauto.core.batch import Batch
from trainauto.core.plan import Plan
from trainauto.integrations.loop_forecast import largest_batch
from trainauto.integrations.map_samples import MapSamples
from trainauto.integrations.plain_leaves import leaves_from_plain
from trainauto.models.parallel import Parallel
from trainauto.optim.precision import Precision
from trainauto.options.finetune_options import FinetuneOptions
from trainauto.options.load import LoadedOptions
from trainauto.tasks.finetune.conversation_model import ConversationModel
from trainauto.tasks.finetune.conversation_samples import ConversationSamples
from trainauto.tasks.finetune.datasets import PlannedConversations
from trainauto.tasks.finetune.four_bit_stand_ins import with_four_bit_stand_ins
from trainauto.tasks.finetune.models import (
    ModelSettings,
    adapted,
    checkpoint_activations,
    configuration_here,
    model_without_weights,
)

Loaded = LoadedOptions[FinetuneOptions]


def fake_finetuning(
    loaded: Loaded, precision: Precision, known: Mapping[str, Any], parallel: Parallel | None = None
) -> tuple[Callable[[FakeTensorMode], ConversationModel], Callable[[Plan], Batch], tuple[Tensor, ...]]:
    """Return what makes the model of an option file on fake tensors, its batches, and the tensors that say sizes.

    Formats are those of a run on a card, unless the file is of a CPU; where the tensors lie, ``precision`` says.

    Args:
        loaded: the option file.
        precision: of the process that traces.
        known: the largest conversation, as :data:`SAMPLE`.
        parallel: see :func:`~trainauto.builders.finetune.finetuned_model`.

    Raises:
        InputError: the model's configuration is not here, or options cannot be used.
    """
    workload = PlannedConversations.of(ConversationSamples(0, "right"), leaves_from_plain(known[SAMPLE]))
    samples = MapSamples([], dict)
    samples.workload = workload

    def build(_mode: FakeTensorMode) -> ConversationModel:
        return finetuned_model(fake_model(loaded, precision), loaded, precision, parallel)

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
