"""Steps of code that is not ours, on fake tensors: what a loop of one's own takes on a card, in the process that asks.

A step makes the batch, lets go of the last one's gradients, computes the loss and its gradients, and steps. The CPU
does as CUDA does meanwhile, in this thread alone, so that other threads notice nothing.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.optim import Optimizer

from trainauto.core.errors import InputError, Problem, TrainautoError
from trainauto.core.plan import Plan
from trainauto.engine.traced_training import kernels_of
from trainauto.forecast.batch_shapes import BatchShapes
from trainauto.forecast.plan_request import PlanRequest
from trainauto.integrations.loop_forecast import refusing_calls
from trainauto.integrations.loss_terms import TOTAL
from trainauto.memory.cost.memory_forecast import PlanBytes
from trainauto.memory.cuda_allocator.segments import planned_segments
from trainauto.memory.tracing.cuda_devices import cpu_for_cuda
from trainauto.memory.tracing.cuda_in_thread import as_on_cuda
from trainauto.memory.tracing.fake_tensors import fake_world
from trainauto.memory.tracing.host_reads import ModelReads, place_of_error
from trainauto.memory.tracing.libraries import Hardware, Libraries, card_libraries, planned_for
from trainauto.memory.tracing.live_module import FakeTwin
from trainauto.memory.tracing.step_log import Construction
from trainauto.memory.tracing.storage_tracker import Constructed
from trainauto.memory.tracing.trace import Trace, TraceError, trace


class CodeTracer:
    """Traces the steps of a request, for any number of plans.

    Attributes:
        network: type of the model.

    Args:
        request: what is asked.

    Raises:
        InputError: the request cannot be used.
        TraceError: the model cannot be copied to fake tensors.
    """

    def __init__(self, request: PlanRequest) -> None:
        start = time.perf_counter()
        self._hardware: Hardware | None = None
        self._request = request
        self._shapes = BatchShapes(request.shapes)
        self._construction: Construction | None = None
        if isinstance(request.model, nn.Module):
            twin = _twin_of(request.model, request)
        elif (made := _made_fake(request.model)) is not None:
            twin, self._construction = made
        else:
            twin = _twin_of(_made(request.model), request)
        self._module, self._optimizer, self._mode = twin
        self.network = type(self._module).__name__
        with self._world():
            self._module.to("cpu")
            if self._optimizer is None:
                trained = [weight for weight in self._module.parameters() if weight.requires_grad]
                with _as_input("making the optimizer failed"):
                    self._optimizer = request.optimizer_of(trained)
        self._seconds = time.perf_counter() - start

    def aim(self, hardware: Hardware) -> None:
        """Trace for such a card from here on; for the one that is there until then."""
        self._hardware = hardware

    def trace(self, plan: Plan) -> PlanBytes:
        """Trace a step under a plan.

        Raises:
            InputError: the loss is no scalar, or does not follow from the model's weights.
            TraceError: the step fails on fake tensors, or its memory depends on data.
        """
        start = time.perf_counter() - self._seconds
        self._seconds = 0.0
        traced, libraries = self.step_trace(plan, by_module=False), self._libraries()
        seconds = time.perf_counter() - start
        return PlanBytes.of(traced, seconds, kernels_of(traced, libraries), segments=planned_segments())

    def step_trace(self, plan: Plan, *, by_module: bool = True) -> Trace:
        """Return the trace itself; errors are those of :meth:`trace`.

        Args:
            plan: of the step.
            by_module: with what is live at the peak by module, which takes a little longer.
        """
        step = self._train if self._optimizer is not None else self._infer
        held = [self._module, *([self._optimizer] if self._optimizer is not None else [])]
        live = self._request.model
        with self._world(), refusing_calls(live) if isinstance(live, nn.Module) else nullcontext():
            try:
                # The first step may make the optimizer's state.
                return trace(
                    lambda: step(plan),
                    steps=2,
                    held=held,
                    ends_early=True,
                    libraries=self._libraries(),
                    construction=self._construction,
                    lazy_states=True,
                    by_module=by_module,
                )
            except TraceError as error:
                if isinstance(error.__cause__, InputError):
                    raise error.__cause__ from None
                raise

    def _libraries(self) -> Libraries:
        with planned_for(self._hardware):
            return card_libraries()

    @contextmanager
    def _world(self) -> Iterator[None]:
        with planned_for(self._hardware), as_on_cuda(), cpu_for_cuda(), fake_world(self._mode):
            yield

    def _infer(self, plan: Plan) -> None:
        with torch.no_grad():
            self._request.loss(self._module, self._shapes.make(plan))

    def _train(self, plan: Plan) -> None:
        assert self._optimizer is not None  # noqa: S101 - it trains
        batch = self._shapes.make(plan)
        self._optimizer.zero_grad(set_to_none=True)
        total = total_loss(self._request.loss(self._module, batch))
        total.backward()  # type: ignore[no-untyped-call]
        del total
        self._optimizer.step()


def total_loss(given: Any) -> Tensor:
    """Return what is minimised: a scalar, the one called ``loss``, or the sum of named ones.

    Raises:
        InputError: it is something else, or does not follow from weights.
    """
    terms = dict(given) if isinstance(given, Mapping) else {"": given}
    if TOTAL in terms:
        terms = {TOTAL: terms[TOTAL]}
    for name, term in terms.items():
        if not isinstance(term, Tensor) or term.numel() != 1:
            kind = f"a tensor of {tuple(term.shape)}" if isinstance(term, Tensor) else f"a {type(term).__name__}"
            which = f"'{name}' is {kind}" if name else kind
            advice = "Return loss.mean(), or a mapping of named scalars; for inference say optimizer=None."
            raise InputError(Problem(f"loss(model, batch) has to return a scalar: {which}", advice=advice))
    if not terms:
        raise InputError(Problem("loss(model, batch) returned no loss", advice="Return a scalar."))
    total = torch.stack([term.reshape(()) for term in terms.values()]).sum()
    if not total.requires_grad:
        advice = "Compute it with the model passed in; for inference say optimizer=None."
        raise InputError(Problem("the loss does not follow from weights of the model", advice=advice))
    return total


ELSEWHERE = 0.01
"""Of a construction on the card, the share of bytes that may be made elsewhere: counters, schedules."""

_Twin = tuple[nn.Module, Optimizer | None, FakeTensorMode]


def _twin_of(model: nn.Module, request: PlanRequest) -> _Twin:
    optimizer = request.optimizer if isinstance(request.optimizer, Optimizer) else None
    twin = FakeTwin(model, optimizer)
    return twin.module, twin.optimizer, twin.mode


def _made_fake(make: Any) -> tuple[_Twin, Construction | None] | None:
    """Return a model that was made without data; ``None`` where its constructor needs some.

    Where it is made on the card, what that allocates and frees there is returned, too.
    """
    live = Constructed("cpu", ModelReads(large=False))
    with fake_world() as mode, live, cpu_for_cuda() as devices:
        try:
            model = make()
        except TrainautoError:
            raise
        except Exception:
            return None
    on_card = devices.made_bytes[False] <= ELSEWHERE * devices.made_bytes[True]
    return (_checked(model), None, mode), live.construction() if devices.made_bytes[True] and on_card else None


def _made(make: Any) -> nn.Module:
    with _as_input("making the model failed"):
        return _checked(make())


@contextmanager
def _as_input(what: str) -> Iterator[None]:
    """Say of an error in code that was handed over where it lies."""
    try:
        yield
    except TrainautoError:
        raise
    except Exception as error:
        raise InputError(f"{what}: {type(error).__name__}: {error}, at {place_of_error(error)}") from error


def _checked(model: Any) -> nn.Module:
    if not isinstance(model, nn.Module):
        advice = "Give a module, or a function without arguments that returns one."
        raise InputError(Problem(f"the model is a {type(model).__name__}, not a torch.nn.Module", advice=advice))
    return model
