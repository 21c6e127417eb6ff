"""Plugin of pytest that collects each test file when it is about to run.

Workers of pytest-xdist collect all files, each of them: they import every module that any test
imports, and rewrite the assertions of every file. With this plugin a worker collects the files that
it runs, and takes the next one when it is free:

    python -m pytest -p tests.support.by_file -n 2 --dist load --maxschedchunk 1

Options -m and -k apply as ever. Single tests cannot be named: leave the plugin out for these.
"""

from __future__ import annotations

import gc
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

#: What an example in a docstring begins with.
PROMPT = ">>> "


class LateFile(pytest.File):
    """A file whose tests are not known yet.

    Attributes:
        collectors: Find its tests.
    """

    collectors: list[pytest.Collector]

    def collect(self) -> Iterator[pytest.Item]:
        """One item that stands for all tests of the file."""
        yield LateItem.from_parent(self, name="tests")


class LateItem(pytest.Item):
    """All tests of a `LateFile`."""

    parent: LateFile

    def runtest(self) -> None:
        """Does nothing: see `pytest_runtest_protocol`."""

    def found(self) -> list[pytest.Item]:
        """Collects the tests, without those that options deselect."""
        items: list[pytest.Item] = []
        for collector in self.parent.collectors:
            items.extend(self.session.genitems(collector))
        self.config.hook.pytest_collection_modifyitems(
            session=self.session, config=self.config, items=items
        )
        return items


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(
    file_path: Path, parent: pytest.Collector
) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Puts a file off, unless it has neither tests nor examples."""
    collectors = yield
    if not collectors:
        return []
    if PROMPT not in file_path.read_text(encoding="utf-8"):
        # A doctest's collector is a subclass.
        collectors = [each for each in collectors if type(each) is pytest.Module]
    if not collectors:
        return []
    late = LateFile.from_parent(parent, path=file_path)
    late.collectors = collectors
    return [late]


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None, None, None]:
    """Keeps each `LateItem`: what -m and -k select is known when its file is collected."""
    late = [item for item in items if isinstance(item, LateItem)]
    yield
    items.extend(item for item in late if item not in items)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Collects a file and runs its tests, one after another."""
    if not isinstance(item, LateItem):
        return None
    session = item.session
    place = session.items.index(item)
    tests = item.found()
    # Modules stay: the collector of garbage need not look at them again and again.
    gc.collect()
    gc.freeze()
    if not tests:  # what the last test left for this file is not for the next one
        session._setupstate.teardown_exact(nextitem)
    followers = [*tests[1:], nextitem]
    for test, follower in zip(tests, followers, strict=False):
        session.items[place] = test  # the worker of pytest-xdist reports the item at this place
        item.config.hook.pytest_runtest_protocol(item=test, nextitem=follower)
        if session.shouldfail or session.shouldstop:
            break
    session.items[place] = item
    return True
