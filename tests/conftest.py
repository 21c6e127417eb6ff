"""A headless Chromium that tests type into, over its debugging pipe: the fixture `browser`."""

from __future__ import annotations

import base64
import json
import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

#: The browser, None where there is none.
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--hide-scrollbars",
)

#: How the browser calls the keys that are no letters.
CODES = {
    "Tab": 9,
    "Enter": 13,
    "Escape": 27,
    "End": 35,
    "ArrowLeft": 37,
    "ArrowUp": 38,
    "ArrowRight": 39,
    "ArrowDown": 40,
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips what needs a browser where there is none, but for machines that run checks and nothing else."""
    if CHROMIUM is None and not os.environ.get("CI"):
        for item in items:
            if "browser" in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.skip(reason="no Chromium; `make test` installs it where CI is set"))


class Browser:
    """One page. Use it in a `with` block.

    Args:
        profile: A folder for what the browser writes.
        width, height: Of the window, in CSS pixels.
    """

    def __init__(self, profile: Path, width: int = 1280, height: int = 900):
        self._profile, self._size = profile, (width, height)
        self._number, self._rest = 0, b""
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Browser:
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        command = [str(CHROMIUM), *FLAGS, "--remote-debugging-pipe", f"--user-data-dir={self._profile}", "about:blank"]
        line = f"exec {shlex.join(command)} 3<&{theirs_in} 4>&{theirs_out}"
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        pipes = (theirs_in, theirs_out)
        self._process = subprocess.Popen(["bash", "-c", line], pass_fds=pipes, start_new_session=True, **quiet)
        for pipe in pipes:
            os.close(pipe)
        self._session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        self.resize(*self._size)
        return self

    def __exit__(self, *_: object) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._in)
        os.close(self._out)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Sends a command of the DevTools protocol; returns its result."""
        self._number += 1
        session = {"sessionId": self._session} if self._session else {}
        message = {"id": self._number, "method": method, "params": params, **session}
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while (answer := self._receive()).get("id") != self._number:
            self.events.append(answer)
        assert "error" not in answer, answer
        return answer["result"]

    def resize(self, width: int, height: int) -> None:
        """Makes the window so wide and high."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def open(self, address: str) -> None:
        """Loads a page."""
        self.call("Page.navigate", url=address)
        self.until("document.readyState === 'complete'")

    def read(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def until(self, expression: str) -> None:
        """Waits, a minute at most, until the page makes an expression true."""
        wait = (
            "new Promise((done, failed) => { const end = performance.now() + 60000;"
            f"const look = () => ({expression}) ? done(true) : performance.now() > end ? failed('never: ' + "
            f"{json.dumps(expression)}) : setTimeout(look, 10); look(); }})"
        )
        self.read(wait)

    def press(self, key: str) -> None:
        """Presses a key, as a keyboard does."""
        code = CODES.get(key) or ord(key.upper())
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        common = {"key": key, "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **common, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def type(self, text: str) -> None:
        """Types text into what has the focus."""
        for letter in text:
            self.press(letter)

    def screenshot(self, file: Path) -> None:
        """Writes what the window shows, as PNG."""
        file.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def complaints(self) -> list[str]:
        """Errors that the page made so far."""
        self.read("1")
        wrong = ("Runtime.exceptionThrown", "Log.entryAdded")
        return [json.dumps(event["params"]) for event in self.events if event.get("method") in wrong]

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            received = os.read(self._in, 65_536)
            assert received, "the browser is gone"
            self._rest += received
        message, self._rest = self._rest.split(b"\0", 1)
        return json.loads(message)


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("browser")) as browser:
        yield browser


@pytest.fixture
def browser(chromium: Browser) -> Browser:
    """The browser as it was when it started: it starts once, as that takes longer than a test."""
    chromium.call("Page.navigate", url="about:blank")
    chromium.resize(1280, 900)
    chromium.events.clear()
    return chromium
