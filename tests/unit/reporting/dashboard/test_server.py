"""The served page: for browsers of this machine alone, and of nothing but the page and its pictures."""

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.unit.reporting.builders import a_progress, a_step
from trainauto.core.errors import InputError
from trainauto.reporting.dashboard.live_page import LivePage
from trainauto.reporting.dashboard.page_file import page_in
from trainauto.reporting.dashboard.server import PageServer
from trainauto.reporting.jsonl import JsonLines
from trainauto.storage.run_directory import RunDirectory


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    directory = RunDirectory.create(tmp_path, "demo")
    directory.write_config({"name": "demo"})
    train(directory, 1)
    (directory.validation / "a.png").write_bytes(b"png")
    return directory


def train(run: RunDirectory, step: int) -> None:
    sink = JsonLines(run)
    sink.step(a_step(step), (), a_progress(step))
    sink.close()


@pytest.fixture
def server(run: RunDirectory) -> Iterator[PageServer]:
    with PageServer(LivePage([run]), run.path, 0) as served:
        thread = threading.Thread(target=served.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield served
        served.shutdown()
        thread.join()


def ask(
    server: PageServer, path: str, method: str = "GET", **headers: str
) -> tuple[int, http.client.HTTPMessage, bytes]:
    connection = http.client.HTTPConnection(*server.server_address[:2], timeout=10)
    given = {"Host": f"127.0.0.1:{server.server_address[1]}", **{k.replace("_", "-"): v for k, v in headers.items()}}
    connection.request(method, path, headers=given)
    answer = connection.getresponse()
    found = answer.status, answer.headers, answer.read()
    connection.close()
    return found


def test_page_and_data_are_served(server: PageServer, run: RunDirectory, tmp_path: Path) -> None:
    status, headers, body = ask(server, "/")
    assert (status, headers["X-Content-Type-Options"], headers["Cache-Control"]) == (200, "nosniff", "no-store")
    (tmp_path / "served.html").write_bytes(body)
    status, headers, data = ask(server, "/data.json")
    assert json.loads(data) == page_in(tmp_path / "served.html")
    assert ask(server, "/data.json", If_None_Match=headers["ETag"])[0] == 304
    assert ask(server, "/", "HEAD")[2] == b""


def test_what_is_new_is_seen(server: PageServer, run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainauto.reporting.dashboard.live_page._SHORTEST_PAUSE_S", 0.0)
    _, before, _ = ask(server, "/data.json")
    train(run, 2)
    status, after, data = ask(server, "/data.json", If_None_Match=before["ETag"])
    assert (status, json.loads(data)["grid"]) == (200, [1, 2])
    assert after["ETag"] != before["ETag"]


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "127.0.0.1"},
        {"Host": "127.0.0.1:1"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
    ],
)
def test_other_pages_are_refused(server: PageServer, headers: dict[str, str]) -> None:
    for path in ("/", "/data.json", "/validation/a.png"):
        assert ask(server, path, **headers)[0] == 403


@pytest.mark.parametrize(
    "path",
    [
        "/config.json", "/validation/../config.json", "/validation/%2e%2e/config.json", "/validation/..%2f..%2fx.png",
        "/validation//etc/passwd.png", "/validation/%00.png", "/validation/none.png",
        f"/validation/{'x' * 300}.png", "/validation/link.png"
    ],
)  # fmt: skip
def test_nothing_else_is_served(server: PageServer, run: RunDirectory, path: str) -> None:
    outside = run.path.parent / "secret.png"
    outside.write_bytes(b"secret")
    (run.validation / "link.png").symlink_to(outside)
    status, _, body = ask(server, path)
    assert (status, body) == (404, b"not found\n")
    assert ask(server, "/validation/a.png")[2] == b"png"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_nothing_can_be_changed(server: PageServer, method: str) -> None:
    assert ask(server, "/data.json", method)[0] == 501


def test_only_this_machine_is_listened_to(server: PageServer) -> None:
    assert server.server_address[0] == "127.0.0.1"
    with pytest.raises(InputError, match=r"port \d+ cannot be listened to: .*in use"):
        PageServer(server.live, None, server.server_address[1])


@pytest.mark.parametrize("port", [-1, 70_000])
def test_a_port_that_cannot_be_is_refused(run: RunDirectory, port: int) -> None:
    with pytest.raises(InputError, match=f"port {port} cannot be listened to"):
        PageServer(LivePage([run]), run.path, port)


def test_a_page_of_an_earlier_server_is_asked_anew(run: RunDirectory) -> None:
    """Versions of two servers are never the same: a tab that is still open sees the run of the new one."""
    assert LivePage([run]).page()[1] != LivePage([run]).page()[1]


def test_a_log_of_another_version_is_told(
    server: PageServer, run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainauto.reporting.dashboard.live_page._SHORTEST_PAUSE_S", 0.0)
    with run.records.open("a") as file:
        file.write('{"step": 2, "samples": 3}\n')
    status, _, body = ask(server, "/data.json")
    assert status == 500
    assert "step 2 cannot be read" in json.loads(body)["error"]


def test_connections_are_bounded(server: PageServer) -> None:
    address = ("127.0.0.1", server.server_address[1])
    with ExitStack() as opened:
        held = [opened.enter_context(socket.create_connection(address, timeout=10)) for _ in range(40)]
        answers = [connection.recv(100) for connection in held[32:]]
        assert all(answer.startswith(b"HTTP/1.1 503 ") for answer in answers)
        assert sum("process_request_thread" in thread.name for thread in threading.enumerate()) == 32
    for _ in range(100):
        if ask(server, "/data.json")[0] == 200:
            return
        time.sleep(0.05)
    pytest.fail("connections that were closed are not answered by others")
