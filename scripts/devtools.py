"""Headless Chromium over the pipe of its DevTools protocol: no package, no port, no WebSocket."""

import json
import os
import selectors
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless", "--no-sandbox", "--remote-debugging-pipe", "--no-first-run", "--disable-extensions", "--disable-gpu",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
)  # fmt: skip
ANSWER_S = 60  # of a machine that does something else as well


class BrowserError(Exception):
    """The browser is not there, did not answer or refused."""


class Browser:
    """A browser with a profile of its own; methods of the protocol are called by name, events are kept until taken."""

    def __init__(self) -> None:
        program = next(filter(None, map(shutil.which, NAMES)), None)
        if program is None:
            raise BrowserError(f"no {', '.join(NAMES)} on the PATH; install Debian's package: apt-get install chromium")
        self.events: list[dict[str, Any]] = []
        self._number = 0
        self._rest = b""
        self._profile = tempfile.TemporaryDirectory(prefix="check_page_", ignore_cleanup_errors=True)
        to_read, self._commands = os.pipe()
        self._answers, to_write = os.pipe()
        # The browser reads commands from descriptor 3 and answers at 4; the shell puts our pipes there.
        plug = 'exec "${@:3}" 3<&"$1" 4>&"$2"'
        command = ["bash", "-c", plug, "bash", str(to_read), str(to_write), program, *FLAGS]
        command += [f"--user-data-dir={self._profile.name}", "about:blank"]
        self._process = subprocess.Popen(command, pass_fds=(to_read, to_write), stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_write)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._answers, selectors.EVENT_READ)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait()
        os.close(self._commands)
        os.close(self._answers)
        self._profile.cleanup()

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol and return its result.

        Raises:
            BrowserError: it answered with an error or not at all.
        """
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        self._send(json.dumps(message).encode() + b"\0")
        until = time.monotonic() + ANSWER_S
        while True:
            answer = self._next(until, method)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self.events.append(answer)

    def wait_for(self, event: str, session: str) -> None:
        """Wait until an event has come; what came before it stays in ``events``."""
        until = time.monotonic() + ANSWER_S
        while not any(one["method"] == event and one.get("sessionId") == session for one in self.events):
            self.events.append(self._next(until, event))

    def _send(self, message: bytes) -> None:
        while message:
            message = message[os.write(self._commands, message) :]

    def _next(self, until: float, what: str) -> dict[str, Any]:
        while b"\0" not in self._rest:
            if not self._selector.select(max(0.0, until - time.monotonic())):
                raise BrowserError(f"{what}: no answer of the browser in {ANSWER_S} s")
            piece = os.read(self._answers, 1 << 20)
            if not piece:
                raise BrowserError(
                    f"{what}: the browser has ended; does it start by hand with --headless --no-sandbox?"
                )
            self._rest += piece
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)


class Tab:
    """A page of the browser, of a size, in a theme, with the network off."""

    def __init__(self, browser: Browser, width_px: int, height_px: int, theme: str) -> None:
        self.browser = browser
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.target = target
        self.session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=0, uploadThroughput=0)
        is_phone = width_px < 600
        scale = 2 if is_phone else 1
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width_px,
            height=height_px,
            deviceScaleFactor=scale,
            mobile=is_phone,
        )
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol for this page."""
        return self.browser.call(method, self.session, **parameters)

    def open(self, page: Path) -> None:
        """Open a file and wait until it has loaded."""
        self.browser.events.clear()
        self.call("Page.navigate", url=page.resolve().as_uri())
        self.browser.wait_for("Page.loadEventFired", self.session)

    def value(self, script: str) -> Any:
        """Value of an expression in the page, awaited.

        Raises:
            BrowserError: the expression threw.
        """
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise BrowserError(details.get("exception", {}).get("description", details["text"]))
        return answer["result"].get("value")

    def press(self, key: str, *, code: int = 0, shift: bool = False) -> None:
        """Press and release a key, as a person does: ``Tab``, ``ArrowLeft``, ``Enter``, or a letter."""
        text = {"Enter": "\r", "Space": " "}.get(key, key if len(key) == 1 else "")
        named = {"key": " " if key == "Space" else key, "code": key, "modifiers": 8 if shift else 0}
        named["windowsVirtualKeyCode"] = code or KEY_CODES.get(key, ord(key.upper()) if len(key) == 1 else 0)
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **named)
        self.call("Input.dispatchKeyEvent", type="keyUp", **named)

    def close(self) -> None:
        """Close the page."""
        self.browser.call("Target.closeTarget", targetId=self.target)


KEY_CODES = {
    "Tab": 9, "Enter": 13, "Escape": 27, "Space": 32, "PageUp": 33, "PageDown": 34, "End": 35, "Home": 36,
    "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40,
}  # fmt: skip
