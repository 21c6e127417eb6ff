"""A second process that writes files of runs while the first one writes the other pages.

Half of the work is the files of runs. Each process reads all results, which takes them the same
time; then both take one run after the other, until none is left.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import Any

from farther.child_process import follow_parent
from farther.errors import FartherError
from farther.report.all_results import AllResults
from farther.report.gallery.outcomes import SplitSummary
from farther.report.pages.gallery import FilesOfRuns
from farther.report.site import Site

#: What `FilesOfRuns.write` returned for each run.
Summaries = dict[str, Mapping[str, SplitSummary]]


@dataclass(frozen=True)
class Written:
    """What a process wrote.

    Args:
        summaries: Run → what `FilesOfRuns.write` returned.
        keys, read: `Site.keys` and `Site.read` of the files.
    """

    summaries: Summaries = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict)
    read: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


class SecondProcess:
    """Writes files of runs in a process of its own, from `begin` on. Use it in a `with` block.

    Args:
        read: Reads all results, and returns them with the site that files are written to. It is
            called at once, in the new process; the program that starts it must be importable
            without effects.
    """

    def __init__(self, read: Callable[[], tuple[Site, AllResults]]):
        self._read = read
        self._waiting: deque[str] = deque()
        self._exit = ExitStack()
        self._written: Future[Written] | None = None

    def __enter__(self) -> SecondProcess:
        pool = ProcessPoolExecutor(1, get_context("spawn"), initializer=follow_parent)
        self._pool = self._exit.enter_context(pool)
        self._thread = self._exit.enter_context(ThreadPoolExecutor(1))
        # Before the two wait for their ends: after an error, no other run begins.
        self._exit.callback(self._waiting.clear)
        self._started = self._pool.submit(_start, self._read)
        return self

    def __exit__(self, *_: object) -> None:
        self._exit.close()

    def begin(self, runs: Iterable[str]) -> None:
        """Has it write the files of runs, the first one first."""
        self._waiting.extend(runs)
        self._written = self._thread.submit(self._write_waiting)

    def take_back(self) -> Iterator[str]:
        """Runs that it has not begun, the last one first: the caller writes their files."""
        while True:
            try:
                name = self._waiting.pop()
            except IndexError:
                return
            yield name

    def finish(self) -> Written:
        """Waits for its end.

        Raises:
            FartherError: see `FilesOfRuns.write`, or the process was killed.
        """
        if self._written is None:
            return Written()
        try:
            written = self._written.result()
        except BrokenProcessPool:
            raise FartherError(
                "the second process of the report was killed, most likely for lack of memory: run "
                "it again"
            ) from None
        self._pool.shutdown(wait=False)  # it ends while the caller goes on
        return written

    def _write_waiting(self) -> Written:
        """In a thread: hands one run after the other to the process."""
        self._started.result()
        summaries: Summaries = {}
        while self._waiting:
            try:
                name = self._waiting.popleft()
            except IndexError:  # the caller has just taken the last one
                break
            summaries[name] = self._pool.submit(_write, name).result()
        keys, read = self._pool.submit(_keys_and_files_read).result()
        return Written(summaries, keys, read)


#: In the second process: the site, all results, and what writes files of runs.
_state: dict[str, Any] = {}


def _start(read: Callable[[], tuple[Site, AllResults]]) -> None:
    """Reads all results, in the second process."""
    site, results = read()
    _state.update(site=site, results=results, files=FilesOfRuns(site, results))


def _write(name: str) -> Mapping[str, SplitSummary]:
    """Writes the files of a run, in the second process."""
    for run in _state["results"].measured:
        if run.name == name:
            return _state["files"].write(run)
    raise KeyError(name)


def _keys_and_files_read() -> tuple[Mapping[str, str], Mapping[str, Mapping[str, str]]]:
    """`Site.keys` and `Site.read`, in the second process."""
    return _state["site"].keys, _state["site"].read
