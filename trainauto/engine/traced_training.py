"""Training on fake tensors: the same networks, passes, optimizers and averages, without data."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.optim import Optimizer

from trainauto.core.batch import Batch
from trainauto.core.errors import TrainautoError
from trainauto.core.objectives import parameters_of
from trainauto.core.plan import Plan
from trainauto.core.workload import Workload
from trainauto.distributed.bucketed_all_reduce import BucketedAllReduce
from trainauto.engine.optimizer_form import take_loop_form
from trainauto.engine.optimizer_state import make_optimizer_state
from trainauto.engine.snapshot import StepSnapshot
from trainauto.engine.step import StepSettings, optimize_parameters
from trainauto.engine.step_outcome import DoesNotFit
from trainauto.memory.cost.ratio_prior import Kernels
from trainauto.memory.cuda_allocator.allocator import AllocationEvent
from trainauto.memory.tracing.fake_tensors import fake_world
from trainauto.memory.tracing.holders import ModuleWork
from trainauto.memory.tracing.host_reads import AnsweredReads, ConstantReads, ModelReads, place_of_error
from trainauto.memory.tracing.libraries import Libraries
from trainauto.memory.tracing.owners import class_of
from trainauto.memory.tracing.step_log import Construction
from trainauto.memory.tracing.storage_tracker import Constructed
from trainauto.memory.tracing.trace import Trace, TraceError, trace
from trainauto.models.activation_checkpointing import ActivationCheckpointingError
from trainauto.models.base_model import BaseModel
from trainauto.models.parallel import in_order_of_spreading

BatchOf = Callable[[Plan], Batch]

ALWAYS_CLIP = -1.0
"""A bound that every gradient norm exceeds, so that a traced step takes what clipping takes."""


class TracedModel:
    """A model that has its optimizer state, and whose steps are followed; on real tensors that measures.

    Args:
        model: what steps.
        batch_of: makes the batch of a plan.
        max_norm: as in :class:`~trainauto.engine.step.StepSettings`.
        ends_early: let traces end with the first step that leaves as much as it found.
        libraries: of the card whose memory is followed; ``None`` on a CPU.
        sums_after: gradients are summed over ranks after the backward pass: what that takes is held all the time.
        told: real tensors out of which ``batch_of`` makes what says sizes, see
            :func:`~trainauto.memory.tracing.trace.trace`.
        construction: how the model was allocated; ``None`` makes its optimizers' state without following it.
    """

    def __init__(
        self,
        model: BaseModel,
        batch_of: BatchOf,
        max_norm: float | None,
        *,
        ends_early: bool = False,
        libraries: Libraries | None = None,
        sums_after: bool = False,
        told: Sequence[Tensor] = (),
        construction: Construction | None = None,
    ) -> None:
        self.model = model
        self._batch_of = batch_of
        self._max_norm = max_norm
        self._construction = construction
        make_optimizer_state(model.optimizers.values())
        self._snapshot = StepSnapshot.of(model)
        self._settled = False
        self._ends_early = ends_early
        self._libraries = libraries
        self._told = tuple(told)
        weights = [weight for objective in model.objectives() for weight in parameters_of(objective)]
        # The run's own buffer (distributed/communicator.py), which no operator of a step on one rank touches.
        self._sum_buffers = BucketedAllReduce(weights).buffers if sums_after else []
        if ends_early:
            _leave_gradients(model.optimizers.values())

    def trace(self, plan: Plan, steps: int = 2, *, by_module: bool = False) -> Trace:
        """Step under a plan; the last of ``steps`` counts.

        Raises:
            TraceError: see :func:`~trainauto.memory.tracing.trace.trace`.
        """
        networks = [*self.model.networks.values(), *(average.network for average in self.model.averages.values())]
        # Of losses the tensors: only networks are told apart by module.
        losses = [[*each.parameters(), *each.buffers()] for each in self.model.placed() if each not in networks]
        held = [*networks, *losses, *self.model.optimizers.values(), *self._sum_buffers]
        # The very first step also copies buffers of which no later one is known to copy any; and one that finds a batch
        # changed in place copies less than the next.
        copies = not self._settled and self._snapshot.is_learning
        return trace(
            lambda: self.step(plan),
            steps=steps,
            held=held,
            device_type=self.model.device.type,
            ends_early=lambda: self._ends_early and not copies and not self._snapshot.has_learned,
            libraries=self._libraries,
            told=self._told,
            construction=self._construction,
            by_module=by_module,
        )

    def step(self, plan: Plan) -> None:
        """Step under a plan."""
        settings = StepSettings(max_norm=self._max_norm)
        outcome = optimize_parameters(self.model, self._batch_of(plan), settings, snapshot=self._snapshot)
        if isinstance(outcome, DoesNotFit):
            raise TraceError(str(outcome))
        if not self._settled:
            # From here on it keeps copies only of the buffers that steps change, as it does in a run.
            self._snapshot.take()
            self._settled = True


class FakeTraining:
    """A model on fake tensors, for any number of plans.

    Args:
        build: builds the model; what it makes is fake.
        batch_of: makes the batch of a plan.
        clips: whether the run clips gradients.
        libraries: of the card that is asked for; ``None`` on a CPU.
        sums_after: as for :class:`TracedModel`.
        told: the same.

    Raises:
        TraceError: the model cannot be built on fake tensors.
    """

    def __init__(
        self,
        build: Callable[[FakeTensorMode], BaseModel],
        batch_of: BatchOf,
        *,
        clips: bool,
        libraries: Libraries | None = None,
        sums_after: bool = False,
        told: Sequence[Tensor] = (),
    ) -> None:
        self._libraries, self._batch_of = libraries, batch_of
        with fake_world() as self._mode:
            try:
                with ConstantReads():
                    model = build(self._mode)
                construction = _construction_of(model)
                with AnsweredReads():
                    self._traced = TracedModel(
                        model,
                        batch_of,
                        ALWAYS_CLIP if clips else None,
                        ends_early=True,
                        libraries=libraries,
                        sums_after=sums_after,
                        told=told,
                        construction=construction,
                    )
            except TrainautoError:
                raise
            except Exception as error:
                reason = f"{type(error).__name__}: {error}, at {place_of_error(error)}"
                raise TraceError(f"the model cannot be built on fake tensors: {reason}") from error

    def trace(self, plan: Plan, steps: int = 2, *, by_module: bool = False) -> Trace:
        """Trace a step under a plan.

        Raises:
            TraceError: the step fails on fake tensors, or its memory depends on data.
        """
        with fake_world(self._mode):
            return self._traced.trace(plan, steps, by_module=by_module)

    def work_of_parts(self, plan: Plan) -> tuple[dict[str, ModuleWork], int]:
        """Return what each part that can run again keeps and computes, and what all of a forward pass computes.

        Args:
            plan: of the step; errors are those of :meth:`trace`.

        Raises:
            TraceError: no part can run again.
        """
        work = self.trace(plan, by_module=True).work or {}
        model = self._traced.model
        roots = {name: class_of(network) for name, network in model.networks.items()}
        try:
            parts = model.parts_to_checkpoint()
        except ActivationCheckpointingError as error:
            raise TraceError(str(error)) from error
        found = {}
        for name, part in parts.items():
            root = roots[name.partition(".")[0]]
            beginnings = tuple(f"{root}.{path}." for path in part.modules)
            of_part = [one for module, one in work.items() if f"{module}.".startswith(beginnings)]
            found[name] = ModuleWork(*map(sum, zip(*of_part, strict=True))) if of_part else ModuleWork(0, 0)
        return found, sum(one.multiplications for one in work.values())

    def take_loop_form(self) -> None:
        """Have optimizers take one weight after another in the steps that are traced from here on."""
        take_loop_form(self._traced.model.optimizers.values())

    def kernels(self, trace: Trace) -> Kernels:
        """Say of a trace what its bytes have to be judged by."""
        return kernels_of(trace, self._libraries)


def kernels_of(trace: Trace, libraries: Libraries | None) -> Kernels:
    """Say of a trace what its bytes have to be judged by; ``libraries`` are as in :class:`FakeTraining`."""
    if not trace.hides_memory:
        return "plain"
    return "benchmarked" if libraries is not None and libraries.benchmark else "usual"


def _construction_of(model: BaseModel) -> Construction:
    """Make the optimizers' state; return how it and the weights were allocated.

    Making the state takes gradients and what a step of the optimizer takes, which the allocator keeps for later.
    """
    if model.is_sharded:
        with AnsweredReads():  # the first time DTensor computes shapes on tensors of its own
            make_optimizer_state(model.optimizers.values())
        for optimizer in model.optimizers.values():
            optimizer.state.clear()
    placed = _spreading(model) if model.is_sharded else _placing(model)
    live = Constructed(model.device.type, ModelReads(large=False), construction=placed)
    live.hold(model.placed())
    live.begin_step()
    with live:
        make_optimizer_state(model.optimizers.values())
    made = live.construction()
    return Construction([*placed.events, *made.events], made.left)


def _placing(model: BaseModel) -> Construction:
    """Return how modules were allocated on the device: by ``Module.to``, but for averages, which are copies."""
    tensors: list[Tensor] = []
    averages = [average.network for average in model.averages.values()]
    for module in model.placed():
        tensors += _children_last(module) if module in averages else _children_first(module)
    left: dict[int, tuple[int, int]] = {}
    for tensor in tensors:
        storage = tensor.untyped_storage()
        if storage.nbytes() and tensor.device.type == model.device.type:
            left.setdefault(storage._cdata, (1 + len(left), storage.nbytes()))
    return Construction([AllocationEvent(*placed) for placed in left.values()], left)


def _children_first(module: nn.Module) -> Iterator[Tensor]:
    for child in module.children():
        yield from _children_first(child)
    yield from _own_tensors(module)


def _children_last(module: nn.Module) -> Iterator[Tensor]:
    for each in module.modules():
        yield from _own_tensors(each)


def _own_tensors(module: nn.Module) -> Iterator[Tensor]:
    yield from module.parameters(recurse=False)
    yield from module.buffers(recurse=False)


def _spreading(model: BaseModel) -> Construction:
    """Return how sharded weights came to be parts.

    They are whole first, and each is freed once its part is made: the parts lie apart, in memory that the allocator
    keeps. Gradients of making the optimizers' state are of the computation's stream, those of steps of another one.
    """
    networks = [*model.networks.values(), *(average.network for average in model.averages.values())]
    weights = [weight for network in networks for weight in network.parameters()]
    events = [AllocationEvent(ident, weight.nbytes) for ident, weight in enumerate(weights, 1)]
    wholes = {id(weight): event.ident for weight, event in zip(weights, events, strict=True)}
    left: dict[int, tuple[int, int]] = {}
    for weight in (weight for network in networks for weight in in_order_of_spreading(network)):
        storage = weight.to_local().untyped_storage()
        part = AllocationEvent(1 + len(events), storage.nbytes())
        events += [part, AllocationEvent(wholes[id(weight)], 0)]
        left[storage._cdata] = part
    return Construction(events, left)


def _leave_gradients(optimizers: Iterable[Optimizer]) -> None:
    """Leave gradients as a step leaves them, so that the first one finds what any other does."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = torch.zeros_like(parameter)


def empty_batch(plan: Plan, workload: Workload) -> Batch:
    """Return a batch as it leaves the loader, on the CPU, of the plan's size; its values are not set."""
    tensors = workload.dummy(plan.batch_size, plan.size)
    names = ("",) * plan.batch_size
    return Batch(tensors, workload, names, 0, plan, plan, workload.shape(tensors), workload.units(tensors))
