"""The network of a language model and what trains it, from options: real, or on fake tensors."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from math import ceil
from typing import Any

from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from trainauto.builders.components import locate_errors
from trainauto.builders.network_bounds import MOST_TENSORS_OF_WORDS, largest_of, unusual_of, within_reason
from trainauto.builders.optimizers import averaging_of, checkpoint_gradients, optimizer_maker
from trainauto.builders.texts import Loaded, planned_vocabulary
from trainauto.core.batch import Batch
from trainauto.core.errors import InputError
from trainauto.core.plan import BATCH_SIZE, TOKENS, Plan
from trainauto.memory.monitor.oom import is_out_of_memory
from trainauto.models.base_model import BaseModel
from trainauto.models.parallel import Parallel
from trainauto.optim.precision import Precision
from trainauto.options.text_options import row_width
from trainauto.tasks.text.training.language_model import LanguageModel
from trainauto.tasks.text.training.lora import LoraSettings
from trainauto.tasks.text.training.networks import NetworkSettings, make_network, usual_configuration
from trainauto.tasks.text.training.row_layouts import RowLayout
from trainauto.tasks.text.training.text_dataset import largest_batch, layout_of
from trainauto.tasks.text.training.token_samples import TokenSamples
from trainauto.tasks.text.training.tokenizers import Vocabulary


def fake_language_model(
    loaded: Loaded, precision: Precision, known: Mapping[str, Any], parallel: Parallel | None = None
) -> tuple[Callable[[FakeTensorMode], BaseModel], Callable[[Plan], Batch]]:
    """Return what makes the model of an option file on fake tensors, and its batches under any plan; no text is read.

    Args:
        loaded: the option file.
        precision: number format, and the device.
        known: ``trace_facts`` of its run; without them, what the option file says.
        parallel: see :class:`~trainauto.tasks.text.training.language_model.LanguageModel`.

    Raises:
        InputError: options cannot be used.
    """
    options = loaded.options
    vocabulary = planned_vocabulary(loaded, known.get("vocabulary"))
    train = options.datasets.train
    targets = train.max_target_length or train.max_length
    longest = known.get("longest") or {"source": train.max_length, "target": targets}
    row = row_width(options) if options.train.packed else None
    layout = layout_of(options.model.kind, row)
    workload = TokenSamples(options.model.kind, layout, longest["source"], longest["target"])

    def build(_mode: FakeTensorMode) -> BaseModel:
        network = build_network(loaded, vocabulary, precision, weights=False)
        return build_language_model(loaded, network, layout, vocabulary, precision, parallel)

    return build, partial(_fake_batch, workload)


def _fake_batch(workload: TokenSamples, plan: Plan) -> Batch:
    """Return the largest batch of a plan of tokens, or rows of a length where a plan counts them."""
    if BATCH_SIZE not in plan:
        return largest_batch(workload, plan)
    rows = TokenSamples(workload.kind, workload.layout, *_sides(workload, plan.size))
    return largest_batch(rows, Plan.of(**{TOKENS: plan.batch_size * plan.size}))


def _sides(workload: TokenSamples, size: int) -> tuple[int, int]:
    """Return source and target of rows of a size: of pairs both in the proportion of the longest."""
    if workload.kind == "causal":
        return size, 0
    source = max(1, ceil(size * workload.longest_source / workload.longest))
    return source, max(1, size - source)


def build_network(loaded: Loaded, vocabulary: Vocabulary, precision: Precision, *, weights: bool) -> nn.Module:
    """Return the network that the option file describes, with adapters where it wants some.

    Args:
        loaded: the option file.
        vocabulary: of the tokenizer.
        precision: number format, and the device.
        weights: load trained weights, where there are some.

    Raises:
        InputError: it cannot be made.
    """
    chosen = loaded.options.model
    lora = chosen.lora
    settings = NetworkSettings(
        chosen.kind,
        chosen.config,
        chosen.pretrained,
        chosen.attention,
        LoraSettings(lora.r, lora.lora_alpha, lora.lora_dropout, lora.target_modules) if lora is not None else None,
    )
    train, config = loaded.options.datasets.train, chosen.config or {}
    longest = row_width(loaded.options) if loaded.options.train.packed else train.max_length
    with locate_errors(loaded, ("model",)), _bounded(loaded, config):
        return make_network(settings, vocabulary, longest=longest, device_type=precision.device.type, weights=weights)


@contextmanager
def _bounded(loaded: Loaded, config: Mapping[str, Any]) -> Iterator[None]:
    """Refuse a model of a configuration that is far too large, or that cannot be made, at the key of that probably.

    Raises:
        InputError: it is.
    """
    if not config:  # a folder holds a model that could be made
        yield
        return
    usual = usual_configuration(config)
    try:
        with within_reason("the model", config, usual, MOST_TENSORS_OF_WORDS):
            yield
    except InputError as error:
        (problem,), cause = error.problems, error.__cause__
        if cause is not None and problem.argument == "config":
            is_large = isinstance(cause, Exception) and is_out_of_memory(cause)
            problem = replace(problem, argument=(largest_of if is_large else unusual_of)(config, usual) or "config")
        if problem.argument not in config:
            raise InputError(problem) from error
        with locate_errors(loaded, ("model", "config")):
            raise InputError(problem) from error


def build_language_model(
    loaded: Loaded,
    network: nn.Module,
    layout: RowLayout,
    vocabulary: Vocabulary,
    precision: Precision,
    parallel: Parallel | None = None,
) -> LanguageModel:
    """Return the network with its optimizer, and gradient checkpointing where the option file wants it.

    Raises:
        InputError: there is no such optimizer, or the network has nothing to run again.
    """
    train = loaded.options.train
    model = LanguageModel(
        network,
        loaded.options.model.kind,
        layout,
        vocabulary.pad,
        optimizer_maker(loaded, ("train", "optim"), train.optim, network),
        precision,
        ema_decay=train.ema_decay,
        averaging=averaging_of(train, train.optim),
        parallel=parallel,
    )
    checkpoint_gradients(loaded, model)
    return model
