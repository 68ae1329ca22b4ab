"""What goes wrong within a run: at one of its operators, or at one of its calls of the file system."""

import builtins
import io
import os
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

PHASES = (
    ("torch/nn/utils/clip_grad.py", "", "gradient norm and clipping"),
    ("engine/step.py", "_read_and_clip", "gradient norm and clipping"),
    ("engine/step.py", "_move_averages", "moving averages"),
    ("torch/optim/", "", "optimizer"),
    ("engine/optimizer_step.py", "", "optimizer"),
    ("engine/snapshot.py", "", "copies of buffers and batches"),
    ("engine/module_state.py", "", "copies of buffers and batches"),
    ("engine/batch_copies.py", "", "copies of buffers and batches"),
    ("engine/random_state.py", "", "copies of buffers and batches"),
    ("engine/checkpoint.py", "", "checkpoints"),
    ("engine/run.py", "save", "checkpoints"),
    ("transformers/trainer.py", "_save_checkpoint", "checkpoints"),
    ("engine/run_validation.py", "validate", "validation"),
    ("transformers/trainer.py", "evaluation_loop", "validation"),
    ("tasks/multitask/", "evaluate", "validation"),
    ("torch/autograd/", "", "backward"),
    ("engine/gradients.py", "", "forward"),
    ("integrations/huggingface/step.py", "", "forward"),
    ("transformers/trainer.py", "training_step", "forward"),
)
"""Which part of a run an operator belongs to: the innermost of its callers that a file and a function name."""

BESIDE = "between steps"


def phase_of_caller() -> str:
    """Return the part of the run that the operator under way belongs to."""
    frame = sys._getframe(2)
    while frame is not None:
        file, function = frame.f_code.co_filename, frame.f_code.co_name
        for part, name, phase in PHASES:
            if part in file and (not name or function == name):
                return phase
        frame = frame.f_back
    return BESIDE


def may_allocate(function: Any) -> bool:
    """Say whether an operator may ask for memory: views do not, nor what marks places for a profiler."""
    return not function.is_view and function.namespace != "profiler"


class AtOperator(TorchDispatchMode):
    """Does something before some of the operators of a run, counted from 1.

    Args:
        happens: called at each of the places, and at all from the last one on where ``stays``.
        places: numbers of operators.
        stays: see ``happens``.
    """

    def __init__(self, happens: Callable[[], object], places: Collection[int], *, stays: bool = False) -> None:
        super().__init__()
        self.happens, self.places, self.stays = happens, frozenset(places), stays
        self.seen = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen += may_allocate(function)
        if may_allocate(function) and (self.seen in self.places or (self.stays and self.seen > max(self.places))):
            with _disable_current_modes():
                self.happens()
        return function(*args, **(kwargs or {}))


class Census(TorchDispatchMode):
    """Notes the part of the run that each operator belongs to."""

    def __init__(self) -> None:
        super().__init__()
        self.phases: list[str] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if may_allocate(function):
            self.phases.append(phase_of_caller())
        return function(*args, **(kwargs or {}))


Called = Callable[[str, str], None]
"""Is told the operation and the path before a call of the file system, which it may refuse by raising."""

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class _Raw(io.FileIO):
    """A file whose writes are told of."""

    called: Called

    def write(self, data: Any, /) -> Any:
        self.called("write", str(self.name))
        return super().write(data)


@contextmanager
def watched_files(below: Path, called: Called) -> Iterator[None]:
    """Tell ``called`` of all that writes below a folder: open, write, flush to disk, rename, delete, make a folder.

    Writes of libraries that open files themselves are told of once, before.
    """
    from trainauto.models import weights

    root, real = str(below), dict(vars(os))
    opened = io.open

    def tell(operation: str, path: Any, folder: int | None = None) -> None:
        text = path_of(path, folder)
        if text == root or text.startswith(root + os.sep):
            called(operation, text)

    def path_of(path: Any, folder: int | None) -> str:
        with suppress(OSError, TypeError, ValueError):
            if isinstance(path, int):
                return str(real["readlink"](f"/proc/self/fd/{path}"))
            text = Path(os.fsdecode(path))
            at = Path(real["readlink"](f"/proc/self/fd/{folder}")) if folder is not None else Path()
            return str((at / text).absolute())
        return ""

    def told(name: str, operation: str) -> Callable[..., Any]:
        def call(path: Any, *given: Any, **named: Any) -> Any:
            tell(operation, path, named.get("dir_fd"))
            return real[name](path, *given, **named)

        return call

    def open_by_number(path: Any, flags: int, *given: Any, **named: Any) -> int:
        if flags & WRITES:
            tell("open", path, named.get("dir_fd"))
        return int(real["open"](path, flags, *given, **named))

    def open_file(
        file: Any,
        mode: str = "r",
        buffering: int = -1,
        encoding: Any = None,
        errors: Any = None,
        newline: Any = None,
        closefd: bool = True,
        opener: Any = None,
    ) -> Any:
        text = "" if isinstance(file, int) or not {*mode} & {*"wax+"} else path_of(file, None)
        if text != root and not text.startswith(root + os.sep):
            return opened(file, mode, buffering, encoding, errors, newline, closefd, opener)
        called("open", text)
        raw = _Raw(file, mode.replace("b", "").replace("t", ""))
        raw.called = called
        if buffering == 0:
            return raw
        buffered = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
        return buffered if "b" in mode else io.TextIOWrapper(buffered, encoding, errors, newline, buffering == 1)

    saved = weights.save_file

    def save_file(tensors: Any, filename: Any, *given: Any, **named: Any) -> Any:
        tell("write", filename)
        return saved(tensors, filename, *given, **named)

    named = {
        **{name: told(name, name) for name in ("mkdir", "rmdir", "link", "symlink", "truncate")},
        **{name: told(name, "rename") for name in ("replace", "rename")},
        **{name: told(name, "unlink") for name in ("unlink", "remove")},
        "write": told("write", "write"),
        "fsync": told("fsync", "fsync"),
        "open": open_by_number,
    }
    patched: list[tuple[Any, str, Any]] = [
        *((os, name, function) for name, function in named.items()),
        *((module, "open", open_file) for module in (io, builtins)),
        (weights, "save_file", save_file),
    ]
    before = [(module, name, getattr(module, name)) for module, name, _ in patched]
    for module, name, function in patched:
        setattr(module, name, function)
    try:
        yield
    finally:
        for module, name, function in before:
            setattr(module, name, function)


KEPT = (
    ("/checkpoints", "checkpoints"),
    ("checkpoint-", "checkpoints"),
    (".png", "pictures"),
    ("/validation/", "pictures"),
    ("_log.", "logs"),
    (".log", "logs"),
    ("/events", "logs"),
    ("decisions.jsonl", "logs"),
    ("validation.jsonl", "logs"),
)


def kept_as(path: str) -> str:
    """Return what a path belongs to: checkpoints, pictures, logs, or else metadata."""
    return next((kind for part, kind in KEPT if part in path), "metadata")
