"""What tests that start processes share."""

from collections.abc import Iterator
from functools import partial
from unittest import mock

import pytest

from tests.integration.ready_processes import SERVER, begun_worker
from trainauto.core import worker_process


@pytest.fixture(scope="session", autouse=True)
def _server_ends(request: pytest.FixtureRequest) -> Iterator[None]:
    SERVER.is_measured = request.config.pluginmanager.hasplugin("tests.line_probes")
    with mock.patch.object(worker_process, "_begun", partial(begun_worker, worker_process._begun)):
        yield
    SERVER.end()
