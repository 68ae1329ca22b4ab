"""What a run says through its logger while a test listens."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager


class _Listener(logging.Handler):
    def __init__(self, level: int) -> None:
        super().__init__(level)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(f"{record.levelname} {record.getMessage()}")


@contextmanager
def listening(level: int = logging.NOTSET) -> Iterator[list[str]]:
    """Yield a list that gets each message of this level or above, after the name of its level."""
    listener = _Listener(level)
    logging.getLogger("trainauto").addHandler(listener)
    try:
        yield listener.said
    finally:
        logging.getLogger("trainauto").removeHandler(listener)
