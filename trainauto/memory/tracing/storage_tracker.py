"""Follows storages: what each operator allocates, what is freed between operators, and in which phase of a step."""

import gc
import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

from trainauto.memory.cuda_allocator.allocator import STREAM_SHIFT, AllocationEvent
from trainauto.memory.tracing.contents import Contents, UnknownContentError, tensors_in
from trainauto.memory.tracing.host_reads import AnsweredReads, ModelReads, answer_of, kind_of
from trainauto.memory.tracing.in_place import WRITES, InPlaceWrites, holders, sole_holders
from trainauto.memory.tracing.kernel_steps import Freed, KernelStep, Result, bytes_of
from trainauto.memory.tracing.libraries import Libraries
from trainauto.memory.tracing.operators import DEVICE_OF, facts_of
from trainauto.memory.tracing.owners import ModuleOwners
from trainauto.memory.tracing.phases import BACKWARD, FORWARD, OPTIMIZER, PhaseWatch
from trainauto.memory.tracing.step_log import Construction, StepLog


class UntraceableTensorError(Exception):
    """A tensor whose bytes cannot be followed; the message says why."""


class LiveStorages(AnsweredReads):  # type: ignore[no-untyped-call]
    """Follows the storages of every tensor that operators take and give, fake or real.

    A storage counts with the bytes it was asked for, from the operator that gives it to its end; how many tensors view
    it does not matter. One that an operator takes and no operator made was there before. What kernels allocate and free
    within themselves is counted as far as ``kernels.py`` knows it.

    Attributes:
        hides_memory: an operator was seen whose kernel takes memory that no trace knows.
        attends: an operator was seen that cards compute with different kernels.

    Args:
        device_type: only storages of such devices are counted.
        reads: answers what the model asks of tensors without data.
        libraries: of the card whose memory is followed; ``None`` follows what a CPU does.
        told: see :class:`~trainauto.memory.tracing.contents.Contents`.
        construction: of the model whose storages are followed; they keep their numbers.
        owners: notes for which module storages are made; ``None`` where that is not asked.
    """

    def __init__(
        self,
        device_type: str,
        reads: ModelReads,
        libraries: Libraries | None = None,
        told: Sequence[Tensor] = (),
        construction: Construction | None = None,
        owners: ModuleOwners | None = None,
    ) -> None:
        super().__init__()
        self.watch = PhaseWatch()
        self.log = StepLog([])
        self._device_type = device_type
        self._reads = reads
        self._in_place = InPlaceWrites(sole_holders())
        # A storage by its address: number, bytes, and what calls back when it ends.
        self._live: dict[int, tuple[int, int, weakref.ref[Any]]] = {}
        self._owners = owners
        self._made = construction.left if construction else {}
        made = [event.ident for event in construction.events] if construction else []
        self._idents = max((*made, *(ident for ident, _ in self._made.values())), default=0)
        self._modules: list[nn.Module] = []
        self._buffers: set[int] = set()  # of these, by their numbers when the step began
        self._device = torch.get_device_module("cuda" if device_type == "cuda" else "cpu")  # others have no streams
        self._streams: dict[Any, int] = {self._device.current_stream(): 0}
        self._libraries = libraries
        self.hides_memory = self.attends = False
        self._workspaces: dict[bool, AllocationEvent] = {}  # by whether it is backward's
        self.contents = Contents(told)
        self._product: weakref.ref[Any] | None = None  # the storage of what the last matrix product gave

    def hold(self, held: Sequence[Any]) -> None:
        """Count what is there before the first step: tensors, modules, optimizers, or sequences of them."""
        self._modules += [each for each in held if isinstance(each, nn.Module)]
        for tensor in tensors_of(held):
            self._see(tensor, is_output=False)
        self._made = {}  # an address that comes again from here on is another storage's

    def begin_step(self) -> None:
        """Begin a new log."""
        live = [AllocationEvent(ident, size) for ident, size, _ in self._live.values()]
        self.log = StepLog(live)
        self._buffers = {self.ident_of(buffer) for module in self._modules for buffer in module.buffers()} - {0}
        if self._owners is not None:
            self._owners.begin_step()

    def ident_of(self, tensor: Tensor) -> int:
        """Return the number of a tensor's storage; 0 where it is not followed."""
        return self._live.get(_part_here(tensor).untyped_storage()._cdata, (0,))[0]

    def held(self) -> set[int]:
        """Return the numbers of what is live."""
        return {ident for ident, _, _ in self._live.values()}

    def construction(self) -> Construction:
        """Return what was made and freed so far, as the construction of what is left, and follow nothing any more."""
        gc.collect()
        left = {key: (ident, size) for key, (ident, size, _) in self._live.items()}
        self._live.clear()
        made = {ident for ident, size in self.log.events if size}
        return Construction([event for event in self.log.events if event.ident in made], left)

    def states(self, *, before: Collection[int]) -> list[tuple[int, AllocationEvent]]:
        """Return the states of optimizers that were live when the step began, each with the events before its step.

        A run's first step makes them there, but for those that were there ``before``.
        """
        initial = {ident: size_bytes for ident, size_bytes in self.log.initial if ident not in before}
        found: dict[int, int] = {}
        for place, optimizer in self.log.optimizers:
            weights = [weight for group in optimizer.param_groups for weight in group["params"]]
            trained = {_part_here(weight).untyped_storage()._cdata for weight in weights}
            for tensor in tensors_in(list(optimizer.state.values())):
                address = _part_here(tensor).untyped_storage()._cdata
                entry = self._live.get(address)
                if entry is not None and entry[0] in initial and address not in trained:
                    found.setdefault(entry[0], place)
        return [(place, AllocationEvent(ident, initial[ident])) for ident, place in found.items()]

    def is_unchanged(self) -> bool:
        """Say whether storages of the same sizes are live as when the step began (garbage in cycles counts as live)."""
        now = [*(size for _, size, _ in self._live.values()), *(size for _, size in self._workspaces.values())]
        return sorted(size for _, size in self.log.before_later_steps) == sorted(now)

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run one operator, and look at what it took and gave."""
        if any(kind is not FakeTensor and _is_sharded(kind) for kind in types):
            return NotImplemented  # a sharded tensor runs the operators of its own part
        if func is DEVICE_OF and isinstance(args[0], FakeTensor):
            return args[0].fake_device
        phase = self._note_phase()
        operator = facts_of(func)
        if operator.reads and isinstance(args[0], FakeTensor) and self.contents.is_known(args[0]):
            return self.answer(func, args)  # fake tensors take long to say that they do not know
        if not operator.lifts:
            self._see_all(args, is_output=False)
            if kwargs:
                self._see_all(kwargs.values(), is_output=False)
        self.hides_memory = self.hides_memory or operator.hides_memory
        self.attends = self.attends or operator.attends
        may_write = operator.may_write and isinstance(args[0], Tensor)
        if may_write and self._in_place.has(
            func, args, kwargs or {}, holders(args[0]), is_product=self._is_product(args[0])
        ):
            out = self._written(func, args, kwargs or {})
        else:
            out = self.run(func, operator, args, kwargs, optimizing=phase == OPTIMIZER)
        if operator.settle is not None:
            operator.settle(args, out, self._libraries is not None)
        if operator.kernel is not None and self._libraries is not None and self._has_kernel_for(args):
            self._run_kernel(operator.kernel(args, out, self._libraries), out)
        else:
            self._see_all((out,), is_output=True)
        if operator.multiplications is not None:
            self._count(operator.multiplications(args, out), phase)
        if operator.multiplies:
            self._product = weakref.ref(out.untyped_storage())
            if self._libraries is not None and self._libraries.cublas_bytes:
                self._take_workspace(phase == BACKWARD, self._libraries.cublas_bytes)
        if operator.convolves and self._device_type == "cpu" and self._libraries is None:
            self.log.copies.append((len(self.log.events), _copied_bytes(func, args, out)))
        computes = self.watch.runs_module()
        if operator.copies and not (computes or self.log.optimizers) and self.ident_of(args[0]) in self._buffers:
            self.log.remembered.append(self.ident_of(out))
        if computes or operator.writes or operator.copies or self.contents.is_told:
            self.contents.note(func, operator, args, kwargs or {}, out, computes=computes)
        return out

    def _note_phase(self) -> str:
        """Note a phase that begins, and optimizers that begin their step; return the phase."""
        phase = self.watch.now()
        if phase != self.log.phases[-1][1]:
            self.log.phases.append((len(self.log.events), phase))
        if len(self.watch.optimizers) > len(self.log.optimizers):
            begun = self.watch.optimizers[len(self.log.optimizers) :]
            self.log.optimizers += [(len(self.log.events), optimizer) for optimizer in begun]
        return phase

    def _count(self, multiplications: int, phase: str) -> None:
        self.log.multiplications += multiplications
        if self._owners is not None:
            self._owners.compute(multiplications, phase, self.watch.running)

    def _is_product(self, tensor: Tensor) -> bool:
        return self._product is not None and self._product() is tensor.untyped_storage()

    def _has_kernel_for(self, args: Sequence[Any]) -> bool:
        """Say whether kernels are those of usual tensors on the device: nested and sparse ones have others."""
        tensors = list(tensors_in(args))
        is_plain = all(tensor.layout == torch.strided and not tensor.is_nested for tensor in tensors)
        return is_plain and any(_device_of(tensor).type == self._device_type for tensor in tensors)

    def _run_kernel(self, steps: Sequence[KernelStep], out: Any) -> None:
        """Note what a kernel of CUDA takes beside its results, and in which order."""
        taken: list[AllocationEvent] = []
        if not any(isinstance(step, Result) for step in steps):
            self._see_all((out,), is_output=True)
        for step in steps:
            if isinstance(step, Result):
                self._see_all((out if step.place is None else out[step.place],), is_output=True)
            elif isinstance(step, Freed):
                self._give_back(taken, step.place)
            else:
                taken.append(AllocationEvent(self._new_ident(), step))
                self.log.events += taken[-1:] if step else ()
        for place in reversed(range(len(taken))):
            self._give_back(taken, place)

    def _give_back(self, taken: list[AllocationEvent], place: int) -> None:
        ident, size_bytes = taken[place]
        if size_bytes:
            self.log.events.append(AllocationEvent(ident, 0))
            taken[place] = AllocationEvent(ident, 0)

    def _take_workspace(self, in_backward: bool, size_bytes: int) -> None:
        if in_backward not in self._workspaces:
            self._workspaces[in_backward] = AllocationEvent(self._new_ident(), size_bytes)
        workspace = self._workspaces[in_backward]
        if all(workspace != known for _, known in self.log.workspaces):
            self.log.workspaces.append((len(self.log.events), workspace))

    def _written(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Tensor:
        """Write into the first argument; return another tensor on its storage, for autograd takes results for new."""
        target: Tensor = args[0]
        if not isinstance(target, FakeTensor):
            WRITES[func](*args, **kwargs)
        self.contents.note_write(target)
        written: Tensor = torch.ops.aten.alias.default(target)
        return written

    def answer(self, func: Any, args: Sequence[Any]) -> bool | int | float:
        """Answer a read: what is known; the model's own by its rules; others (losses, overflows) by 0."""
        known = self.contents.read(func, args)
        if known is not None:
            return known
        kind, phase = kind_of(func, args), self.watch.now()
        if phase in (FORWARD, BACKWARD):
            return self._reads.answer(kind)
        return answer_of(kind, large=False)

    def sized(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Return what an operator gives by what is known; ``None`` where it is not known enough."""
        try:
            return self.contents.sized(func, args, kwargs)
        except UnknownContentError:
            return None

    def _see_all(self, values: Iterable[Any], *, is_output: bool) -> None:
        for value in values:
            if isinstance(value, Tensor):
                self._see(value, is_output=is_output)
            elif isinstance(value, list | tuple):
                self._see_all(value, is_output=is_output)

    def resized(self, storage: torch.UntypedStorage) -> None:
        """Follow a storage that was resized in place, as sharded weights are gathered and let go of."""
        entry, size = self._live.get(storage._cdata), storage.nbytes()
        if entry is not None and entry[1] == size:
            return
        self._free(storage._cdata)
        if size:
            ident, ended = self._new_ident(), weakref.ref(storage, partial(self._end, storage._cdata))
            self._live[storage._cdata] = (ident, size, ended)
            self.log.events.append(AllocationEvent(ident, size))
            if self._owners is not None:
                self._owners.note_gathered(ident)

    def _see(self, tensor: Tensor, *, is_output: bool) -> None:
        if type(tensor) is not FakeTensor:
            tensor = _part_here(tensor)
        try:
            storage = tensor.untyped_storage()
        except NotImplementedError as error:
            reason = f"the bytes of a tensor of layout {tensor.layout} cannot be followed"
            raise UntraceableTensorError(reason) from error
        key, size = storage._cdata, storage.nbytes()
        entry = self._live.get(key)
        if entry is not None:
            if entry[1] == size:
                return
            self._free(key)  # it was resized, which is a new allocation
        if not size or _device_of(tensor).type != self._device_type:
            return
        ident, made_bytes = self._made.get(key, (0, 0))
        if made_bytes != size:
            ident = self._new_ident()
        self._live[key] = (ident, size, weakref.ref(storage, partial(self._end, key)))
        event = AllocationEvent(ident, size)
        if is_output or entry is not None:
            self.log.events.append(event)
            if self._owners is not None:
                self._owners.note(ident, self.watch.now(), self.watch.running)
        else:
            self.log.initial.append(event)

    def _new_ident(self) -> int:
        """Return a number that no storage had, with that of the stream that is current (``STREAM_SHIFT``)."""
        self._idents += 1
        stream = self._device.current_stream()
        return self._streams.setdefault(stream, len(self._streams)) << STREAM_SHIFT | self._idents

    def _end(self, key: int, _storage: Any) -> None:
        self._free(key)

    def _free(self, key: int) -> None:
        entry = self._live.pop(key, None)
        self.contents.forget(key)
        if entry is not None:
            self.log.events.append(AllocationEvent(entry[0], 0))


def _part_here(tensor: Tensor) -> Tensor:
    """Return what a rank holds of a sharded tensor; others are whole."""
    if _is_sharded(type(tensor)):
        part: Tensor = tensor._local_tensor  # type: ignore[attr-defined]
        return part
    return tensor


@cache
def _is_sharded(kind: type) -> bool:
    """Say whether tensors of a class are spread over ranks; to import theirs would take half a second."""
    return hasattr(kind, "_local_tensor")


def _device_of(tensor: Tensor) -> torch.device:
    """Return a tensor's device; a fake one's ``device`` is an operator, and would take half of a trace's time."""
    return tensor.fake_device if isinstance(tensor, FakeTensor) else tensor.device


def _copied_bytes(func: Any, args: Sequence[Any], out: Any) -> int:
    """Return what oneDNN's convolution holds at its end beside what it took and gave.

    Forward that is the result in its own order, or the input; backward both, for the weights' gradients. So torch's
    profiler says of float32 on AVX-512. Images of few channels are copied to blocks of 8 or 16, which is left out.
    """
    if func is torch.ops.aten.convolution.default:
        return max(bytes_of(args[0]), bytes_of(out))
    return bytes_of(args[0]) + bytes_of(args[1])


def tensors_of(held: Any) -> Iterator[Tensor]:
    """Yield the tensors of modules (their gradients too), optimizers and collections."""
    if isinstance(held, nn.Module):
        for parameter in held.parameters():
            yield parameter
            if parameter.grad is not None:
                yield parameter.grad
        yield from held.buffers()
    elif isinstance(held, torch.optim.Optimizer):
        for group in held.param_groups:
            yield from group["params"]
        yield from tensors_in(list(held.state.values()))
    elif isinstance(held, list | tuple):
        for source in held:
            yield from tensors_of(source)
    else:
        yield from tensors_in(held)


class Constructed(LiveStorages):  # type: ignore[no-untyped-call]
    """What making a model and its optimizer's state allocates; whatever that reads is answered."""

    def answer(self, func: Any, args: Sequence[Any]) -> bool | int | float:
        """Answer as where no memory is followed."""
        return AnsweredReads.answer(self, func, args)
