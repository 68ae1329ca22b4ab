"""Shows the page of a run to the browsers of this machine while it trains."""

import json
import logging
import sys
import threading
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from trainauto.core.errors import InputError, Problem
from trainauto.reporting.dashboard.live_page import LivePage
from trainauto.reporting.dashboard.page_file import page_json, page_text

logger = logging.getLogger(__name__)

HOST = "127.0.0.1"
FIRST_PORT = 6010
"""Above those of TensorBoard; where it is taken, one of the next."""

_PORTS_TRIED = 20
_MOST_CONNECTIONS = 32
"""Answered at a time, each by a thread: browsers open six for a page."""
_BUSY = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_NAMES = (HOST, "localhost")
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",  # the page itself says the rest
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class PageServer(ThreadingHTTPServer):
    """Serves a page, what it shows as ``data.json``, and the pictures beside it; to this machine alone.

    A web page that a person visits elsewhere may ask a browser to send requests here: what does not name this server as
    its host, or comes from another page, is refused.

    Args:
        live: the page.
        folder: of the run, whose pictures may be asked for; ``None`` where several are compared.
        port: to listen at; ``None`` takes the first free one from 6010 on, 0 any.

    Raises:
        InputError: the port is taken.
    """

    daemon_threads = True
    request_queue_size = _MOST_CONNECTIONS

    def __init__(self, live: LivePage, folder: Path | None, port: int | None = None) -> None:
        self.live, self.folder = live, folder
        self._free = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        tried = range(FIRST_PORT, FIRST_PORT + _PORTS_TRIED) if port is None else [port]
        for number in tried:
            try:
                super().__init__((HOST, number), _Answer)
                break
            except (OSError, OverflowError) as error:
                refused = error
        else:
            where = f"port {port}" if port is not None else f"one of the ports {tried[0]} to {tried[-1]}"
            message = f"{where} cannot be listened to: {refused}"
            raise InputError(Problem(message, advice="Name a free one above 1024 with --port."))

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a connection in a thread of its own, or turn it away where there are enough."""
        if not self._free.acquire(blocking=False):
            with suppress(OSError):
                request.sendall(_BUSY)
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, and make room for the next."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002
        """Say nothing of a browser that has gone; the terminal is the person's."""
        error = sys.exception()
        if not isinstance(error, ConnectionError | TimeoutError):
            logger.warning("a request could not be answered: %s: %s", type(error).__name__, error)

    @property
    def address(self) -> str:
        """Where a browser finds the page."""
        return f"http://{HOST}:{self.server_address[1]}/"


class _Answer(BaseHTTPRequestHandler):
    """Answers one connection."""

    server: PageServer
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "trainauto", ""
    timeout = 30

    def do_GET(self) -> None:
        """Answer with the page, its data or a picture."""
        if not self._is_ours():
            why = f"open {self.server.address}: this page is for browsers on this machine, under its own address\n"
            self._send(HTTPStatus.FORBIDDEN, "text/plain", why.encode())
            return
        path = unquote(urlsplit(self.path).path)
        try:
            if path in ("/", "/data.json"):
                self._send_page(is_data=path != "/")
            elif (picture := self._picture(path)) is not None:
                self._send(HTTPStatus.OK, "image/png", picture)
            else:
                self._send(HTTPStatus.NOT_FOUND, "text/plain", b"not found\n")
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # the browser has gone
        except InputError as error:
            text = json.dumps({"error": str(error)}).encode()
            self._send(HTTPStatus.INTERNAL_SERVER_ERROR, "application/json", text)

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing of requests: the terminal is the person's."""

    def _is_ours(self) -> bool:
        port = self.server.server_address[1]
        hosts = [f"{name}:{port}" for name in _NAMES]
        origin = self.headers.get("Origin")
        return self.headers.get("Host") in hosts and (origin is None or origin in [f"http://{host}" for host in hosts])

    def _send_page(self, *, is_data: bool) -> None:
        page, version = self.server.live.page()
        tag = f'"{version}"'
        if is_data and self.headers.get("If-None-Match") == tag:
            self._send(HTTPStatus.NOT_MODIFIED, "application/json", b"", tag)
        elif is_data:
            self._send(HTTPStatus.OK, "application/json", page_json(page).encode(), tag)
        else:
            self._send(HTTPStatus.OK, "text/html; charset=utf-8", page_text(page).encode())

    def _picture(self, path: str) -> bytes | None:
        """Return a picture of the run's validations; ``None`` for all else, wherever a path leads to."""
        folder = self.server.folder
        if folder is None or "\0" in path or not path.startswith("/validation/") or not path.endswith(".png"):
            return None
        inside = (folder / "validation").resolve()
        try:
            file = (folder / path.removeprefix("/")).resolve()
            return file.read_bytes() if file.is_relative_to(inside) and file.is_file() else None
        except OSError:  # a name that no disk takes
            return None

    def _send(self, status: HTTPStatus, kind: str, body: bytes, tag: str = "") -> None:
        self.send_response(status)
        headers = {**_HEADERS, "Content-Type": kind, "Content-Length": str(len(body)), **({"ETag": tag} if tag else {})}
        if status == HTTPStatus.NOT_MODIFIED:
            del headers["Content-Length"]
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
