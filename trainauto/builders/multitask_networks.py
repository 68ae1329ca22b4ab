"""Models of several tasks and what they are trained by, from options: for runs, and on fake tensors."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from trainauto.builders.components import build_component, locate_errors
from trainauto.builders.multitask_data import TRAIN, TaskData
from trainauto.builders.network_bounds import defaults_of, within_reason
from trainauto.builders.optimizers import checkpoint_gradients, trainer_optimizer
from trainauto.core.batch import Batch
from trainauto.core.plan import Plan
from trainauto.data.packing import BatchCost
from trainauto.integrations.huggingface.own_stream import OwnStream
from trainauto.integrations.loop_forecast import largest_batch
from trainauto.integrations.map_samples import MapSamples, seeded
from trainauto.integrations.plain_leaves import leaves_from_plain, plain_leaves
from trainauto.integrations.samples import NestedSamples, Template
from trainauto.integrations.structure import Structure
from trainauto.models.base_model import BaseModel
from trainauto.models.parallel import Parallel
from trainauto.optim.precision import Precision
from trainauto.options.load import LoadedOptions
from trainauto.options.multitask_options import MultitaskOptions
from trainauto.tasks.multitask.batches.sample_cost import PaddedUnits
from trainauto.tasks.multitask.batches.task_stream import PaddedSamples, TaskMixing, own_stream
from trainauto.tasks.multitask.losses.gradnorm import GradNormBalancer
from trainauto.tasks.multitask.losses.shared_search import shared_weights
from trainauto.tasks.multitask.losses.step_tasks import StepTasks
from trainauto.tasks.multitask.model_inputs import inputs_of
from trainauto.tasks.multitask.registry import MULTITASK_MODELS
from trainauto.tasks.multitask.task_model import TaskModel, results_of
from trainauto.tasks.multitask.trainer_data import predictor_for

Loaded = LoadedOptions[MultitaskOptions]

SAMPLE, PACKED = "sample", "packed"
"""Of what is known beside an option file: the largest sample; where batches are packed, by what they are measured."""


def first_step_samples(options: MultitaskOptions, ranks: int = 1) -> int:
    """Return a rank's samples of a step, those of the first one where steps may grow."""
    train = options.train
    if train.use_gradient_accumulation:
        return train.target_batch_size // ranks
    return min(train.base_batch_size, largest_step(options, ranks))


def largest_step(options: MultitaskOptions, ranks: int = 1) -> int:
    """Return the most samples of a step that a rank has."""
    train = options.train
    most = train.target_batch_size // ranks
    return most if train.use_gradient_accumulation or ranks > 1 else max(train.base_batch_size, most)


def build_network(loaded: Loaded, data: TaskData) -> nn.Module:
    """Return the model of an option file.

    Raises:
        InputError: there is no such model, or it does not take these arguments.
    """
    return _network(loaded, len(data.tokenizer), data.samples.tasks)


def _network(loaded: Loaded, vocabulary_size: int, tasks: Sequence[str]) -> nn.Module:
    chosen = loaded.options.model
    given = {"vocabulary_size": vocabulary_size, "tasks": tuple(tasks)}
    construct = build_component(loaded, MULTITASK_MODELS, ("model",), chosen.type, chosen.arguments, given)
    usual = defaults_of(MULTITASK_MODELS.get(chosen.type))
    with locate_errors(loaded, ("model",)), within_reason(f"model '{chosen.type}'", chosen.arguments, usual):
        network: nn.Module = construct()
    return network


def shared_names(options: MultitaskOptions, data: TaskData, network: nn.Module) -> tuple[str, ...]:
    """Return the names of the weights at which gradients of tasks are compared; none where they are not.

    Raises:
        InputError: tasks share no layer.
    """
    samples = data.samples
    if not options.train.use_grad_norm_balancing or len(samples.present) < 2:
        return ()
    device, inputs = next(network.parameters()).device, inputs_of(network)

    def losses(model: nn.Module, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        found = results_of(model, inputs, batch, samples.tasks)
        return found.losses, found.masks

    return shared_weights(network, None, lambda: data.one_of_each(device), losses)


def build_task_model(
    loaded: Loaded,
    network: nn.Module,
    precision: Precision,
    tasks: Sequence[str],
    present: Sequence[str],
    shared: Sequence[str],
    parallel: Parallel | None = None,
) -> TaskModel:
    """Return a network as the engine trains it.

    Args:
        loaded: the option file.
        network: on its device.
        precision: number format, and the device.
        tasks: names, in the order of their ids.
        present: those of them that there are samples of.
        shared: names of the weights at which gradients are compared; none where weights of tasks stay.
        parallel: makes the network one of several ranks, whose samples may lack a task.

    Raises:
        InputError: blocks cannot run again.
    """
    train = loaded.options.train
    weights, balancer = train.initial_task_loss_weights, None
    if shared:
        balancer = GradNormBalancer(weights, train.grad_norm_alpha)
        balancer.begin(present)
    steps = StepTasks(tasks, {} if balancer is not None else weights, balancer)
    if shared:
        steps.balance_at(shared)
    forward = parallel(network, leaves_weights_out=True) if parallel is not None else network
    path, rate, decay = ("train", "optim"), train.learning_rate, train.weight_decay
    optimizer = trainer_optimizer(loaded, path, train.optim, network, rate, decay)
    model = TaskModel(network, optimizer, precision, steps, forward=forward)
    checkpoint_gradients(loaded, model)
    return model


def draws_of(loaded: Loaded, data: TaskData, network: nn.Module, ranks: int = 1) -> OwnStream:
    """Return the order of the samples: packed where batches may grow, in mixed batches of a fixed number else.

    Args:
        loaded: the option file.
        data: its samples.
        network: says what an image weighs beside a token.
        ranks: how many share each step.

    Raises:
        InputError: the mixing cannot be used.
    """
    options, train = loaded.options, loaded.options.train
    grows = not train.use_gradient_accumulation
    shares = train.task_distribution or None
    with locate_errors(loaded, ("train",)):
        return own_stream(
            data.table,
            TaskMixing(shares, train.sampling, train.task_diversity_weight),
            _cost(data, network) if grows and data.table.images.any() else None,
            options.manual_seed,
            step_samples=None if grows else first_step_samples(options),  # of any ranks: another number keeps the order
            most_samples=largest_step(options, ranks) if grows else None,
            packs=grows,
        )


def _cost(data: TaskData, network: nn.Module) -> BatchCost | None:
    """Return what batches take by the traced model; ``None`` where it cannot be traced."""
    device = next(network.parameters()).device
    predictor = predictor_for(network, data.sets[TRAIN], data.collate.collate, device)
    return predictor.as_cost() if predictor.follows_model else None


def facts_of(data: TaskData, shared: Sequence[str], drawn: OwnStream | None) -> dict[str, Any]:
    """Return what a process that traces needs beside the option file, as plain values.

    Args:
        data: of the run.
        shared: see :func:`build_task_model`.
        drawn: what it draws by; ``None`` where samples are counted.
    """
    with seeded(0):
        one = data.collate([data.sets[TRAIN][data.largest]])
    packed = None
    if drawn is not None and drawn.costs is not None and drawn.packed is not None:
        cost: Any = drawn.packed.cost
        packed = {"largest": int(drawn.costs.max()), "tokens_per_image": cost.tokens_per_image}
    return {
        "vocabulary": len(data.tokenizer),
        "tasks": list(data.samples.tasks),
        "present": list(data.samples.present),
        "shared": list(shared),
        SAMPLE: plain_leaves(one),
        PACKED: packed,
    }


def fake_task_model(
    loaded: Loaded,
    precision: Precision,
    known: Mapping[str, Any],
    as_fake: Callable[..., nn.Module],
    parallel: Parallel | None = None,
) -> tuple[Callable[[FakeTensorMode], BaseModel], Callable[[Plan], Batch]]:
    """Return what makes the model of an option file on fake tensors, and its batches.

    Args:
        loaded: the option file.
        precision: of the process that traces.
        known: see :func:`facts_of`.
        as_fake: builds a network on fake tensors, of what builds it and the mode.
        parallel: see :func:`build_task_model`.
    """
    leaves, packed = leaves_from_plain(known[SAMPLE]), known[PACKED]
    template = Template(leaves, Structure.of(leaves), frozenset(leaves), {})
    samples = MapSamples([], dict, longest=packed["largest"] if packed else None)
    samples.workload = (
        PaddedSamples(template, PaddedUnits(packed["tokens_per_image"])) if packed else NestedSamples(template)
    )

    def build(mode: FakeTensorMode) -> BaseModel:
        network = as_fake(lambda: _network(loaded, known["vocabulary"], known["tasks"]), mode)
        network = network.to(torch.device(precision.device))
        of_tasks = known["tasks"], known["present"], known["shared"]
        return build_task_model(loaded, network, precision, *of_tasks, parallel)

    return build, lambda plan: largest_batch(samples, plan)
