"""TensorBoard's event files. torch and tensorboard are imported when one is opened, not before."""

import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

if TYPE_CHECKING:
    from torch.utils.tensorboard.writer import SummaryWriter

_FLUSH_S = 30


class EventFile:
    """Points of curves in an event file, which is opened by the first of them.

    Args:
        folder: folder of the event files.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writer: SummaryWriter | None = None
        self._hidden_from: int | None = None

    @property
    def is_open(self) -> bool:
        """Whether it takes points without another file being opened."""
        return self._writer is not None

    @property
    def writer(self) -> "SummaryWriter":
        """What writes it: texts and pictures, too."""
        if self._writer is None:
            from torch.utils.tensorboard.writer import SummaryWriter

            self._writer = SummaryWriter(str(self._folder), purge_step=self._hidden_from, flush_secs=_FLUSH_S)
            self._hidden_from = None
            _print_no_errors_of(self._writer)
        return self._writer

    @staticmethod
    def load() -> None:
        """Import what writes event files, without opening one."""
        import tensorboard.compat.proto.summary_pb2  # type: ignore[import-untyped]  # noqa: F401
        import torch.utils.tensorboard.writer  # noqa: F401

    def hide_from(self, step: int) -> bool:
        """Have the next file hide what others hold from this step on; return whether there are others."""
        self.close()
        has_others = self._folder.is_dir() and any(self._folder.iterdir())
        self._hidden_from = step if has_others else None
        return has_others

    def add_points(self, curves: Mapping[str, float], step: int) -> None:
        """Add a point to each of these curves, by name.

        All are in one event: ``add_scalar`` would make one for each, at four times the cost.
        """
        writer = self.writer
        from tensorboard.compat.proto.summary_pb2 import Summary

        points = [Summary.Value(tag=tag, simple_value=value) for tag, value in curves.items()]
        file_writer: Any = writer.file_writer  # typed as None, but open since the writer was made
        file_writer.add_summary(Summary(value=points), step)

    def close(self) -> None:
        """Close the file; a later point opens another."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


_writing: WeakSet[threading.Thread] = WeakSet()
"""Threads that write event files."""


def _print_no_errors_of(writer: "SummaryWriter") -> None:
    """Have the thread of a writer print no traceback: the next point raises its error again, for the sink to report."""
    file_writer: Any = writer.file_writer
    _writing.add(file_writer.event_writer._async_writer._worker)
    if getattr(threading.excepthook, "func", None) is not _print_other_errors:
        threading.excepthook = partial(_print_other_errors, threading.excepthook)


def _print_other_errors(print_error: Callable[[Any], object], error: Any) -> None:
    if error.thread not in _writing:
        print_error(error)
