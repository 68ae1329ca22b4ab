"""A network through ``torch.compile``: where that can be, one graph for any number of images of any size."""

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import cache
from typing import Any, Protocol

import torch
from torch import Tensor

from trainauto.core.errors import InputError, Problem
from trainauto.memory.monitor.oom import is_out_of_memory

logger = logging.getLogger(__name__)

SIDES = (2, 3)
MOST_GRAPHS = 64
"""Graphs of one network before torch runs further sizes uncompiled: torch's 8 are few where each size takes its own."""


class Compilation:
    """What ``torch.compile`` has done in this process, and what holds while it works; see :func:`compilation`.

    Attributes:
        seconds: that it has taken in this step.
        failure: the error that ended the last compilation of this step, if one did.
        around: makes the context that holds while torch compiles, called for each compilation; by default nothing.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.failure: BaseException | None = None
        self.around: Callable[[], AbstractContextManager[Any]] = nullcontext
        self._stack = ExitStack()
        self._began_at = 0.0

    def listen(self) -> None:
        """Have torch call back, where it does not or no longer does: ``torch.compiler.reset`` ends it."""
        handler = torch._dynamo.callback_handler
        if self._begin not in handler.start_callbacks:
            torch._dynamo.on_compile_start(self._begin)
        if self._end not in handler.end_callbacks:
            torch._dynamo.on_compile_end(self._end)

    def begin_step(self) -> None:
        """Count the seconds of another step."""
        self.listen()
        self.seconds, self.failure = 0.0, None

    @property
    def graphs(self) -> int:
        """How many graphs there are by now, by torch's own count."""
        return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])

    def _begin(self, *_: object) -> None:
        self._began_at = time.perf_counter()
        with _failures_logged():
            self._stack.enter_context(self.around())

    def _end(self, *_: object) -> None:
        self.failure = sys.exc_info()[1]  # torch calls back while it is raised
        with _failures_logged():
            self._stack.close()
        self.seconds += time.perf_counter() - self._began_at


@contextmanager
def _failures_logged() -> Iterator[None]:
    """Log an error instead of raising it: one that leaves a callback would leave torch's count of compilations open."""
    try:
        yield
    except Exception:
        logger.warning("what surrounds a compilation failed", exc_info=True)


@cache
def compilation() -> Compilation:
    """Return the one of this process: torch calls back for every compilation in it."""
    return Compilation()


class Compiled(Protocol):
    """What may run through ``torch.compile``."""

    def compilation(self) -> Compilation | None:
        """Return what ``torch.compile`` has done so far; ``None`` where nothing is compiled."""


class CompiledNetwork:
    """Runs a network through ``torch.compile``.

    Number and sides of images are marked as dynamic, so that another plan needs no other graph where torch can do
    without one. It still fixes the sides of some networks, by the layouts that it chooses. Others cannot be compiled
    so: torch 2.13 fails to order strides of images that were padded to a multiple. Those are compiled for each size of
    images anew, after one warning; their number stays dynamic.

    Args:
        forward: maps (N, C, h, w) to (N, C', h', w').
        mode: of ``torch.compile``.
    """

    def __init__(self, forward: Callable[[Tensor], Tensor], mode: str | None) -> None:
        self._compiled = torch.compile(forward, mode=mode)
        self._has_one_size = False
        limits = torch._dynamo.config
        limits.recompile_limit = max(limits.recompile_limit, MOST_GRAPHS)
        self.compilation = compilation()
        self.compilation.listen()

    def __call__(self, image: Tensor) -> Tensor:
        """Return what the network makes of images.

        Raises:
            InputError: it cannot be compiled at all.
        """
        if self._has_one_size:
            return self._of_one_size(image)
        try:
            return self._compiled(_marked(image, sides=True))
        except torch._dynamo.exc.BackendCompilerFailed as error:
            _raise_if_out_of_memory(error)
            reason = _first_line(error)
        self._has_one_size = True
        # A copy has no marks; a view would have a graph that serves no tensor but views.
        output = self._of_one_size(image.clone())
        logger.warning(
            "torch.compile cannot compile the network for any size of images (%s): it compiles it for each size anew, "
            "which takes as long each time that lq_size changes",
            reason,
        )
        return output

    def _of_one_size(self, image: Tensor) -> Tensor:
        try:
            return self._compiled(_marked(image, sides=False))
        except torch._dynamo.exc.BackendCompilerFailed as error:
            _raise_if_out_of_memory(error)
            raise cannot_compile(error) from error


@contextmanager
def failed_compilations_told(model: Compiled) -> Iterator[None]:
    """Raise an error of a backward pass that torch cannot compile as what it is.

    Raises:
        InputError: that.
    """
    try:
        yield
    except Exception as error:
        known = model.compilation()
        if known is not None and known.failure is error:
            raise cannot_compile(error) from error
        raise


def cannot_compile(error: BaseException) -> InputError:
    """Return what to tell where torch cannot compile a pass."""
    message = f"torch.compile cannot compile the network: {_first_line(error)}"
    return InputError(Problem(message, advice="Leave out use_compile."))


def _marked(image: Tensor, *, sides: bool) -> Tensor:
    """Return an image whose number of images, and whose sides if wanted, may be others next time."""
    torch._dynamo.maybe_mark_dynamic(image, 0)
    if sides:
        torch._dynamo.maybe_mark_dynamic(image, SIDES)
    else:
        torch._dynamo.mark_static(image, SIDES)
    return image


def _raise_if_out_of_memory(error: Exception) -> None:
    cause = _cause(error)
    if is_out_of_memory(cause):
        raise cause from error


def _first_line(error: BaseException) -> str:
    cause = _cause(error)
    return next(iter(f"{type(cause).__name__}: {cause}".splitlines()))


def _cause(error: BaseException) -> BaseException:
    """Return what went wrong in a compiler, without torch's wrapping."""
    cause = getattr(error, "inner_exception", error)
    return cause if isinstance(cause, BaseException) else error
