"""What a step of a live module takes, known in the process that holds it: the step itself, on a fake copy.

The copy shares nothing with the module: neither weights nor buffers, nor what hooks that are methods keep. What is no
part of the module stays itself: a hook that is a plain function, and the step, get fake tensors, and should keep none.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim import Optimizer

from trainauto.memory.tracing.fake_tensors import fake_copy, fake_world
from trainauto.memory.tracing.host_reads import AnsweredReads, place_of_error
from trainauto.memory.tracing.libraries import card_libraries
from trainauto.memory.tracing.trace import Trace, TraceError, trace

Run = Callable[[nn.Module, Any], Tensor | None]
"""Runs a module on a batch; returns the loss that is to be minimised, or ``None`` where nothing is."""

MakeBatch = Callable[[int, int], Any]
"""Makes a batch of so many samples of a size (tokens); called among fake tensors, so its values do not matter."""


class CudaAutocastError(TraceError):
    """A step runs under CUDA autocast, which a process with real tensors cannot trace."""

    def __init__(self) -> None:
        super().__init__(
            "a step under CUDA autocast cannot be traced beside real tensors, since the dispatcher would "
            "have to be changed for all of them: measure two steps of different sizes instead"
        )


class FakeTwin:
    """A fake copy of a live module, and of its optimizer, in a world of its own; both originals stay as they are.

    Attributes:
        module: the copy, in the same mode (training or not) and on the same device in name.
        optimizer: that of the copy; it has the options of the original and has not stepped yet.
        mode: of the world; the copy works in no other.

    Args:
        module: a real module, not compiled.
        optimizer: one that steps parameters of the module; ``None`` where nothing does.

    Raises:
        TraceError: the module cannot be copied.
    """

    def __init__(self, module: nn.Module, optimizer: Optimizer | None = None) -> None:
        if any(hasattr(part, "_orig_mod") for part in module.modules()):
            raise TraceError("the module is compiled: what it keeps is the compiler's decision; trace it before")
        # A fresh optimizer: what it keeps is made by the first step, as in a run.
        memo: dict[int, Any] = {} if optimizer is None else {id(optimizer.state): defaultdict(dict)}
        try:
            with fake_world() as self.mode, AnsweredReads():
                self.module: nn.Module = fake_copy(module, self.mode, memo)
                self.optimizer: Optimizer | None = fake_copy(optimizer, self.mode, memo)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}, at {place_of_error(error)}"
            raise TraceError(f"the module cannot be copied to fake tensors: {reason}") from error
        self.device = next((tensor.device for tensor in _tensors_of(module)), torch.device("cpu"))
        own = set(map(id, self.module.parameters()))
        strays = [tensor for tensor in self._stepped() if id(tensor) not in own]
        if strays:
            raise TraceError(f"the optimizer steps {len(strays)} parameters that are not the module's")

    @contextmanager
    def world(self) -> Iterator[None]:
        """Make tensors for the copy within; operators on them that ask for values are answered, see ``host_reads``."""
        with fake_world(self.mode), AnsweredReads(), torch.device(self.device):
            yield

    def trace(self, step: Callable[[], object], *, steps: int = 1, held: Sequence[Any] = ()) -> Trace:
        """Trace a step of the copy.

        Args:
            step: runs among fake tensors; what it makes without naming a device is on that of the module.
            steps: how often it runs at most; two where an optimizer makes its state in the first.
            held: what is live beside module and optimizer, and freed by no step.

        Raises:
            TraceError: the step fails, or its memory depends on data.
            CudaAutocastError: it runs under CUDA autocast.
        """
        owners = [self.module] if self.optimizer is None else [self.module, self.optimizer]
        libraries = card_libraries() if self.device.type == "cuda" else None
        with _without_cuda_autocast(), fake_world(self.mode), torch.device(self.device):
            try:
                return trace(
                    step,
                    steps=steps,
                    held=[*owners, *held],
                    lazy_states=True,
                    device_type=self.device.type,
                    ends_early=True,
                    libraries=libraries,
                )
            except TraceError as error:
                if isinstance(error.__cause__, CudaAutocastError):
                    raise error.__cause__ from None
                raise

    def _stepped(self) -> Iterator[Tensor]:
        for group in self.optimizer.param_groups if self.optimizer else ():
            yield from group["params"]


class LiveModuleTracer:
    """Traces steps of a live module by their size.

    A training step is: the loss, a backward pass, the optimizer, and gradients let go of. Whether gradients are
    recorded at all is as where :meth:`trace` is called (``torch.no_grad()``).

    Args:
        module: a real module; it stays as it is.
        run: what is done with it and a batch.
        make_batch: makes batches.
        optimizer: what steps after a backward pass; ``None``: nothing does, and gradients are let go of all the same.

    Raises:
        TraceError: the module cannot be copied.
    """

    def __init__(self, module: nn.Module, run: Run, make_batch: MakeBatch, optimizer: Optimizer | None = None) -> None:
        self.twin = FakeTwin(module, optimizer)
        self._run, self._make_batch = run, make_batch

    def trace(self, samples: int, size: int) -> Trace:
        """Trace a step on so many samples of a size.

        Raises:
            TraceError: the step fails, or its memory depends on data.
            CudaAutocastError: it runs under CUDA autocast.
        """
        if samples < 1 or size < 1:
            raise ValueError(f"samples and size must be at least 1, got {samples} and {size}")
        return self.twin.trace(lambda: self._step(samples, size), steps=2)

    def _step(self, samples: int, size: int) -> None:
        loss = self._run(self.twin.module, self._make_batch(samples, size))
        if loss is None:
            return
        loss.backward()  # type: ignore[no-untyped-call]
        del loss
        if self.twin.optimizer is not None:
            self.twin.optimizer.step()
        self.twin.module.zero_grad(set_to_none=True)


@contextmanager
def _without_cuda_autocast() -> Iterator[None]:
    """Refuse modules that are called under CUDA autocast, wherever it was opened."""

    def refuse(_module: nn.Module, _arguments: Any) -> None:
        if torch.is_autocast_enabled("cuda"):
            raise CudaAutocastError

    refuse(nn.Identity(), ())
    handle = register_module_forward_pre_hook(refuse)
    try:
        yield
    finally:
        handle.remove()


def _tensors_of(module: nn.Module) -> Iterator[Tensor]:
    yield from module.parameters()
    yield from module.buffers()
