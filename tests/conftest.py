"""Fixtures: `tab` (a page in a headless Chromium), `complaints`, `commands` and `ray_cluster`."""

from __future__ import annotations

import os
import secrets
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, ConsoleMessage, Page
from tests.support.cases import drawn_tests
from tests.support.extensions import REGISTRIES, forget_extensions

#: The browser, None where there is none. That without windows takes half the time.
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, BROWSERS)), None)

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
    "tests/disturbed/test_disturbed.py",
    "tests/remotes/test_dvc.py",
    "tests/stages/test_openood.py",
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Draws from the files that are marked so, and puts the longest files first."""
    chosen = drawn_tests(items)
    if len(chosen) < len(items):
        left_out = set(items) - set(chosen)
        config.hook.pytest_deselected(items=list(left_out))
    ranks = {name: rank for rank, name in enumerate(LONGEST)}
    items[:] = sorted(chosen, key=lambda item: ranks.get(item.nodeid.split("::")[0], len(ranks)))


@pytest.fixture(scope="session")
def browser_type_launch_args(browser_type_launch_args: dict[str, Any]) -> dict[str, Any]:
    """The browser of the system; where there is none, that of `playwright install chromium`."""
    return {**browser_type_launch_args, "executable_path": CHROMIUM, "args": ["--no-sandbox"]}


@pytest.fixture(scope="session")
def browser_context_args(browser_context_args: dict[str, Any]) -> dict[str, Any]:
    """A window of 1280 × 900 CSS pixels."""
    return {**browser_context_args, "viewport": {"width": 1280, "height": 900}}


@pytest.fixture
def tab(context: BrowserContext) -> Page:
    """A page that no other test has used; it waits ten minutes at most, as machines may be busy."""
    page = context.new_page()
    page.set_default_timeout(600_000)
    return page


class Complaints:
    """Errors and warnings of a page: its console, and exceptions of its code.

    Args:
        page: The page.

    Attributes:
        expected_texts: Those that a test expects.
    """

    def __init__(self, page: Page):
        self._page = page
        self._expected: list[str] = []
        self._texts: list[str] = []
        self.expected_texts: list[str] = []
        page.on("console", self._add_message)
        page.on("pageerror", lambda error: self._texts.append(str(error)))

    def _add_message(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self._texts.append(f"{message.text} {message.location['url']}")

    def expect(self, *parts: str) -> None:
        """Messages with one of these parts are expected."""
        self._expected += parts

    def __call__(self) -> list[str]:
        """The messages so far, without those that are expected."""
        self._page.evaluate("1")  # what was printed before has arrived with the answer
        unexpected = []
        for text in self._texts:
            if any(part in text for part in self._expected):
                self.expected_texts.append(text)
            else:
                unexpected.append(text)
        return unexpected

    def clear(self) -> None:
        """Forgets the messages so far."""
        self._texts.clear()


@pytest.fixture
def complaints(tab: Page) -> Complaints:
    """Errors and warnings of the page of a test."""
    return Complaints(tab)


@pytest.fixture(scope="module", autouse=True)
def registries() -> Iterator[None]:
    """What the tests of a file register is forgotten after that file.

    No class is imported for it: those of detectors import PyTorch.
    """
    kept = [(each, dict(each._classes)) for each in REGISTRIES]
    yield
    forget_extensions()
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
