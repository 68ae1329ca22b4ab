"""What tests that start processes share."""

from collections.abc import Iterator

import pytest

from tests.integration.ready_processes import SERVER


@pytest.fixture(scope="session", autouse=True)
def _server_ends(request: pytest.FixtureRequest) -> Iterator[None]:
    SERVER.is_measured = request.config.pluginmanager.hasplugin("tests.line_probes")
    yield
    SERVER.end()
