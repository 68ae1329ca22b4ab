"""What the libraries of a card do that a trace has to know: of the card that is there, or of a planned one."""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import torch

from trainauto.core.units import KIB

Capability = tuple[int, int]
"""Compute capability, as NVIDIA numbers it."""

TURING, AMPERE, ADA, HOPPER = (7, 5), (8, 0), (8, 9), (9, 0)


@dataclass(frozen=True)
class Processors:
    """A card's multiprocessors, and the threads that each can hold."""

    number: int
    threads: int


@dataclass(frozen=True)
class Hardware:
    """What kernels ask of a card."""

    capability: Capability
    processors: Processors

    @classmethod
    def of(cls, capability: Capability | None, multiprocessors: int | None) -> "Hardware":
        """Return a card's by what is known of it; what is not known is a large card's.

        Threads of a multiprocessor follow from its capability (table "Technical Specifications per Compute Capability",
        NVIDIA's CUDA programming guide).
        """
        capability = capability or ADA
        threads = 1024 if capability == TURING else 1536 if capability[0] in (8, 12) and capability != AMPERE else 2048
        return cls(capability, Processors(multiprocessors or LARGE_CARD.processors.number, threads))

    def as_words(self) -> list[int]:
        """Return it for a message between processes; :func:`hardware_from` reads it."""
        return [*self.capability, self.processors.number]


def attention_of(capability: Capability) -> tuple[bool, bool]:
    """Return what decides about the kernels of attention: flash attention, and the memory that a block of threads has.

    Blocks of the cards from A100 to B200 have more than those of other cards.
    """
    return capability >= AMPERE, capability == AMPERE or HOPPER <= capability < (12, 0)


def hardware_from(words: Sequence[int] | None) -> Hardware | None:
    """Return what :meth:`Hardware.as_words` wrote; ``None`` where nothing is planned for."""
    return None if words is None else Hardware.of((words[0], words[1]), words[2])


LARGE_CARD = Hardware(ADA, Processors(128, 1536))
"""An RTX 4090, for predictions where no card is there and none is named."""

_planned: ContextVar[Hardware | None] = ContextVar("planned", default=None)

CUBLAS_CONFIG = "CUBLAS_WORKSPACE_CONFIG"
"""Where people set the workspaces of cuBLAS: pairs of KiB and count, like ``:4096:2:16:8``."""

CUBLAS_BYTES = (2 * 4096 + 8 * 16) * KIB
"""Its default, seen in fifteen recorded steps on cards before Hopper."""

CUBLAS_HOPPER_BYTES = 8 * 4096 * KIB
"""The default from compute capability 9.0 on."""

_PAIR = re.compile(r":(\d+):(\d+)")


@contextmanager
def planned_for(hardware: Hardware | None) -> Iterator[None]:
    """Let traces within be those of a card that need not be there; ``None`` changes nothing."""
    token = _planned.set(hardware or _planned.get())
    try:
        yield
    finally:
        _planned.reset(token)


def card_hardware() -> Hardware:
    """Return what kernels ask: of the card that is planned for, else of that which is there, else of a large one."""
    if (planned := _planned.get()) is not None:
        return planned
    if torch.cuda.is_available():  # pragma: no cuda
        card = torch.cuda.get_device_properties(torch.cuda.current_device())
        processors = Processors(card.multi_processor_count, card.max_threads_per_multi_processor)
        return Hardware((card.major, card.minor), processors)
    return LARGE_CARD


def cublas_workspace_bytes(capability: Capability | None = None) -> int:
    """Return the bytes of one workspace of cuBLAS (``parseChosenWorkspaceSize``, ATen/cuda/CublasHandlePool.cpp).

    There are two in a training step: that of the thread which runs forward, and that of backward's.

    Args:
        capability: the card's; ``None`` for that of :func:`card_hardware`.
    """
    chosen = os.environ.get(CUBLAS_CONFIG, "")
    if pairs := _PAIR.findall(chosen):
        return sum(int(size_kib) * int(number) * KIB for size_kib, number in pairs)
    return CUBLAS_HOPPER_BYTES if (capability or card_hardware().capability) >= HOPPER else CUBLAS_BYTES


@dataclass(frozen=True)
class Libraries:
    """What the libraries of a card do that a trace has to know.

    Attributes:
        cublas_bytes: one workspace of cuBLAS. The first product of the thread that runs forward takes one, the first of
            backward's another, and both are kept (``getCurrentCUDABlasHandle``, ATen/cuda/CublasHandlePool.cpp).
        benchmark: cuDNN takes the fastest kernel for a convolution, whatever memory it works in.
        hardware: what kernels ask of the card.
    """

    cublas_bytes: int
    benchmark: bool = False
    hardware: Hardware = LARGE_CARD


def card_libraries() -> Libraries:
    """Return what the libraries of :func:`card_hardware` do."""
    return Libraries(cublas_workspace_bytes(), torch.backends.cudnn.benchmark, card_hardware())
