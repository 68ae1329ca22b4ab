"""A network through ``torch.compile``: where that can be, one graph for any number of images of any size."""

import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import cache
from typing import Any

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
        around: made anew for each time that it works; by default nothing.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.around: Callable[[], AbstractContextManager[Any]] = nullcontext
        self._stack = ExitStack()
        self._began_at = 0.0

    def listen(self) -> None:
        """Have torch call back, where it does not or no longer does: ``torch.compiler.reset`` ends it."""
        if self._begin not in torch._dynamo.callback_handler.start_callbacks:
            torch._dynamo.on_compile_start(self._begin)
            torch._dynamo.on_compile_end(self._end)

    def begin_step(self) -> None:
        """Count the seconds of another step."""
        self.seconds = 0.0

    @property
    def graphs(self) -> int:
        """How many graphs there are by now, by torch's own count."""
        return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])

    def _begin(self, *_: object) -> None:
        self._began_at = time.perf_counter()
        self._stack.enter_context(self.around())

    def _end(self, *_: object) -> None:
        self._stack.close()
        self.seconds += time.perf_counter() - self._began_at


@cache
def compilation() -> Compilation:
    """Return the one of this process: torch calls back for every compilation in it."""
    return Compilation()


class CompiledNetwork:
    """Runs a network through ``torch.compile``.

    Number and sides of images are marked as dynamic, so that another plan needs no other graph. Some networks cannot be
    compiled so: torch 2.13 fails to order strides of images that were padded to a multiple. Those are compiled for each
    size of images anew, after one warning; their number stays dynamic.

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
        if not self._has_one_size:
            try:
                return self._compiled(_marked(image, sides=True))
            except torch._dynamo.exc.BackendCompilerFailed as error:
                _raise_if_out_of_memory(error)
                self._has_one_size = True
                logger.warning(
                    "torch.compile cannot compile the network for any size of images (%s): it compiles it for each "
                    "size anew, which takes as long each time that lq_size changes",
                    _first_line(error),
                )
                image = image.clone()  # without the marks of the one that failed; graphs of views serve no others
        try:
            return self._compiled(_marked(image, sides=False))
        except torch._dynamo.exc.BackendCompilerFailed as error:
            _raise_if_out_of_memory(error)
            message = f"torch.compile cannot compile the network: {_first_line(error)}"
            raise InputError(Problem(message, advice="Leave out use_compile.")) from error


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


def _first_line(error: Exception) -> str:
    cause = _cause(error)
    return next(iter(f"{type(cause).__name__}: {cause}".splitlines()))


def _cause(error: Exception) -> Exception:
    """Return what went wrong in a compiler, without torch's wrapping."""
    cause = getattr(error, "inner_exception", error)
    return cause if isinstance(cause, Exception) else error
