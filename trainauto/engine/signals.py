"""Ctrl-C, SIGTERM and SIGHUP: finish the step, save, then leave."""

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

logger = logging.getLogger(__name__)


STOPPING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
"""Windows knows no SIGHUP."""


class StoppedAtOnce(KeyboardInterrupt):
    """A second signal: no more waiting for the step. ``exit_code`` is the first one's."""

    def __init__(self, exit_code: int) -> None:
        super().__init__()
        self.exit_code = exit_code


class StopSignals:
    """Notes the first SIGINT, SIGTERM or SIGHUP while it is entered; a second one interrupts at once.

    A terminal that closes sends SIGHUP; where it is ignored, as by nohup, it stays so.

    Attributes:
        received: the signal's number, 0 while there was none.
        agreed: number of the signal that all ranks know of, or 0.
    """

    def __init__(self) -> None:
        self.received = 0
        self.agreed = 0
        self._before: dict[int, object] = {}
        self._raises: type[BaseException] | None = None

    @property
    def exit_code(self) -> int:
        """Return 128 + the signal's number, as shells have it: 130 after SIGINT, 143 after SIGTERM; 0 without one."""
        return 128 + self.received if self.received else 0

    @property
    def name(self) -> str:
        """Return the signal's name, or an empty text."""
        return signal.Signals(self.received).name if self.received else ""

    def __enter__(self) -> "StopSignals":
        # Only the main thread may set handlers; a run driven from another thread is stopped by its owner.
        if threading.current_thread() is threading.main_thread():
            for number in STOPPING:
                if signal.Signals(number).name == "SIGHUP" and signal.getsignal(number) == signal.SIG_IGN:
                    continue
                self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        self._before.clear()

    @contextmanager
    def raising(self, kind: type[BaseException]) -> Iterator[None]:
        """Have a first signal raise, wherever it comes and if it came before: only for what nothing depends on."""
        self._raises = kind
        try:
            if self.received:
                raise kind
            yield
        finally:
            self._raises = None

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self.received:
            raise StoppedAtOnce(self.exit_code)
        self.received = number
        what = "finishing this step" if self._raises is None else "leaving this validation"
        logger.warning(
            "%s: %s, then saving a checkpoint. Send it again to stop immediately.", signal.Signals(number).name, what
        )
        if self._raises is not None:
            raise self._raises
