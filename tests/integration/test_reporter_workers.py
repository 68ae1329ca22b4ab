"""Workers that inherit the reporter of a run."""

import logging
import multiprocessing
import sys
from typing import Any

import pytest

from trainauto.reporting.reporter import Reporter
from trainauto.reporting.sinks import Sink


class Texts(Sink):
    """Notes what is logged."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def message(self, text: str, level: int) -> None:
        self.texts.append(text)


def log_in_a_worker(pipe: Any, sink: Texts) -> None:
    logging.getLogger("trainauto").warning("from the worker")
    pipe.send(len(sink.texts))


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_workers_do_not_write_into_the_files_of_the_run() -> None:
    sink = Texts()
    with Reporter([sink]):
        context = multiprocessing.get_context("fork")
        here, there = context.Pipe()
        worker = context.Process(target=log_in_a_worker, args=(there, sink))
        worker.start()
        assert here.poll(30)
        assert here.recv() == 0
        worker.join(30)
        assert worker.exitcode == 0
