"""Fixtures: `browser` (a headless Chromium, driven over a pipe), `commands` and `ray_cluster`."""

from __future__ import annotations

import base64
import json
import os
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from farther.datasets.base import FORMATS
from farther.detectors.base import registry as detectors
from farther.methods.base import METHODS
from farther.metrics.user_defined import METRICS

#: The browser, None where there is none. That without windows takes half the time.
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, BROWSERS)), None)

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--hide-scrollbars",
)

#: Key codes of keys other than letters.
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


#: Files that take minutes run first: as the last ones they would keep one worker busy while the
#: others are idle. One makes the project that others of its folder read: at the same time, these
#: would only wait for it.
LONGEST = (
    "tests/stages/test_pipeline.py",
    "tests/stages/test_pipeline_changes.py",
    "tests/evaluation/test_kept_results.py",
    "tests/evaluation/test_evaluate.py",
    "tests/evaluation/test_deploy_choice.py",
    "tests/report/test_site.py",
    "tests/report/test_pages.py",
    "tests/stages/test_evaluate.py",
    "tests/command/test_compare.py",
    "tests/stages/test_killed.py",
    "tests/fuzz/test_fuzz.py",
    "tests/disturbed/test_killed_commands.py",
    "tests/remotes/test_dvc.py",
    "tests/stages/test_openood.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the longest files first, and skips tests that need a browser where there is none.

    With CI set, none is skipped.
    """
    ranks = {name: rank for rank, name in enumerate(LONGEST)}
    items.sort(key=lambda item: ranks.get(item.nodeid.split("::")[0], len(ranks)))
    if CHROMIUM is None and not os.environ.get("CI"):
        for item in items:
            if {"browser", "chromium"} & set(getattr(item, "fixturenames", ())):
                item.add_marker(
                    pytest.mark.skip(reason="no Chromium; `make test` installs it where CI is set")
                )


class Chromium:
    """A headless Chromium. Use it in a `with` block; each `page` in it has a state of its own.

    Args:
        profile: A folder for what the browser writes.
    """

    def __init__(self, profile: Path):
        self._profile = profile
        self._number, self._rest = 0, b""
        self._events: dict[str, list[dict[str, Any]]] = {}

    def __enter__(self) -> Chromium:
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        command = [
            str(CHROMIUM),
            *FLAGS,
            "--remote-debugging-pipe",
            f"--user-data-dir={self._profile}",
            "about:blank",
        ]
        line = f"exec {shlex.join(command)} 3<&{theirs_in} 4>&{theirs_out}"
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        pipes = (theirs_in, theirs_out)
        self._process = subprocess.Popen(
            ["bash", "-c", line], pass_fds=pipes, start_new_session=True, **quiet
        )
        for pipe in pipes:
            os.close(pipe)
        return self

    def __exit__(self, *_: object) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._in)
        os.close(self._out)

    @contextmanager
    def page(self, width: int = 1280, height: int = 900) -> Iterator[Browser]:
        """A new page, whose storage and messages no other page shares.

        Args:
            width, height: Of the window, in CSS pixels.
        """
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)[
            "targetId"
        ]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Browser(self, session, context, self._events.setdefault(session, []))
        for domain in ("Page", "Runtime", "Log"):
            page.call(f"{domain}.enable")
        page.resize(width, height)
        try:
            yield page
        finally:
            del self._events[session]
            self.call("Target.disposeBrowserContext", browserContextId=context)

    def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """Sends a command of the DevTools protocol; returns its result.

        With a session, the command is sent to its page.
        """
        self._number += 1
        to = {"sessionId": session} if session else {}
        message = {"id": self._number, "method": method, "params": params, **to}
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while (answer := self._receive()).get("id") != self._number:
            # What a closed page still sends has no list any more.
            self._events.get(answer.get("sessionId", ""), []).append(answer)
        assert "error" not in answer, answer
        return answer["result"]

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            received = os.read(self._in, 65_536)
            assert received, "the browser is gone"
            self._rest += received
        message, self._rest = self._rest.split(b"\0", 1)
        return json.loads(message)


class Browser:
    """One page; see `Chromium.page`.

    Attributes:
        context: The browser's name for its storage.
        events: Messages of the page, in order.
        expected: Parts of error messages that a test expects.
    """

    def __init__(
        self, chromium: Chromium, session: str, context: str, events: list[dict[str, Any]]
    ):
        self._chromium, self._session = chromium, session
        self.context, self.events = context, events
        self.expected: list[str] = []

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Sends the page a command of the DevTools protocol; returns its result."""
        return self._chromium.call(method, self._session, **params)

    def resize(self, width: int, height: int) -> None:
        """Sets the size of the window."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )

    def open(self, address: str) -> None:
        """Loads a page."""
        self.call("Page.navigate", url=address)
        self.until("document.readyState === 'complete'")

    def read(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        result = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def until(self, expression: str) -> None:
        """Waits until an expression is true in the page, ten minutes at most."""
        wait = (
            "new Promise((done, failed) => { const end = performance.now() + 600000;"
            f"const look = () => ({expression}) ? done(true) : "
            "performance.now() > end ? failed('never: ' + "
            f"{json.dumps(expression)}) : setTimeout(look, 10); look(); }})"
        )
        self.read(wait)

    def press(self, key: str) -> None:
        """Presses a key, as a keyboard does."""
        code = CODES.get(key) or ord(key.upper())
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        common = {"key": key, "windowsVirtualKeyCode": code}
        self.call(
            "Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **common, **text
        )
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def type(self, text: str) -> None:
        """Types text into what has the focus."""
        for letter in text:
            self.press(letter)

    def screenshot(self, file: Path) -> None:
        """Writes what the window shows, as PNG."""
        file.write_bytes(
            base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])
        )

    def complaints(self) -> list[str]:
        """Errors and warnings that the page made so far, without those that are expected."""
        self.read("1")
        wrong = ("Runtime.exceptionThrown", "Log.entryAdded")
        made = [
            json.dumps(event["params"])
            for event in self.events
            if event.get("method") in wrong
            or (
                event.get("method") == "Runtime.consoleAPICalled"
                and event["params"]["type"] in ("warning", "error")
            )
        ]
        return [error for error in made if not any(part in error for part in self.expected)]


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    """The browser's process: it starts once, as that takes longer than a test."""
    with Chromium(tmp_path_factory.mktemp("browser")) as chromium:
        yield chromium


@pytest.fixture
def browser(chromium: Chromium) -> Iterator[Browser]:
    """A page that no other test has used."""
    with chromium.page() as page:
        yield page


@pytest.fixture(scope="module", autouse=True)
def registries() -> Iterator[None]:
    """What the tests of a file register is forgotten after that file.

    No class is imported for it: those of detectors import PyTorch.
    """
    kept = [(each, dict(each._classes)) for each in (METHODS, METRICS, FORMATS, detectors)]
    yield
    for each, known in kept:
        own_package = f"{each.written.package}."
        for name, cls in list(each._classes.items()):
            if not cls.__module__.startswith(own_package):
                del each._classes[name]
        each._classes.update(known)


@pytest.fixture(scope="session")
def commands() -> Path:
    """The folder of `python`, `dvc` and `farther`."""
    return Path(sys.executable).parent


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[None]:
    """Ray on this machine, with room for two workers.

    They find the tests' modules as the tests do.
    """
    root = Path(__file__).parents[1]
    variables = {
        "PYTHONPATH": f"{root / 'lib'}{os.pathsep}{root}",
        "RAY_worker_niceness": "0",
        "OMP_NUM_THREADS": "1",
    }
    # A token of the test's own: Ray would write one to the user's home.
    variables |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        patch.delenv("RAY_ADDRESS", raising=False)
        import ray  # it reads the variables when it is imported

        options = {"include_dashboard": False, "log_to_driver": False, "logging_level": "critical"}
        ray.init("local", num_cpus=2, num_gpus=0, object_store_memory=80 * 2**20, **options)
        yield
        ray.shutdown()
