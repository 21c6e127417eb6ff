"""DVC's locks of the paths of stages, written only while a stage's command runs.

DVC has a lock of the project, and a file that names the paths which the stages of each process read
and write. It rewrites that file up to eight times for a stage, also for one that is up to date. But
other processes look at it only where they hold the lock of the project, and DVC releases that only
while a command runs.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from farther.dvc_internals import replace_function

#: Name of DVC's file in its folder of temporary files.
FILE = "rwlock"
#: How that file names the process that locked a path.
PROCESS = re.compile(rb'"pid":\s*(\d+)')


@dataclass
class _Held:
    """What a stage has locked.

    Args:
        write_lock: Writes it into DVC's file, until the context is left.
        read, written: Paths that the stage reads, and those that it writes.
        is_in_file: Whether it is in DVC's file now.
    """

    write_lock: Callable[[], AbstractContextManager[None]]
    read: frozenset[str]
    written: frozenset[str]
    is_in_file: bool

    def covers(self, read: Sequence[str], written: Sequence[str]) -> bool:
        """Whether these paths are locked; the stage may also read what it writes."""
        return (self.read | self.written).issuperset(read) and self.written.issuperset(written)


class PathLocks:
    """The paths that the stages of this process have locked: one stage in each thread."""

    def __init__(self) -> None:
        self._thread = threading.local()

    @contextmanager
    def keep(self) -> Iterator[None]:
        """Has DVC lock paths here; a caller holds the lock of the project where DVC does."""
        from dvc import rwlock

        with ExitStack() as stack:
            replace_function(stack, rwlock, "rwlock", self._late_locks)
            yield

    @contextmanager
    def in_file(self) -> Iterator[None]:
        """Has other processes see what the stage of this thread has locked.

        It is entered and left with the lock of the project, which is released in between.
        """
        held: _Held | None = getattr(self._thread, "held", None)
        if held is None or held.is_in_file:
            yield
            return
        with held.write_lock():
            held.is_in_file = True
            try:
                yield
            finally:
                held.is_in_file = False

    def _late_locks(self, lock: Callable[..., Any]) -> Callable[..., Any]:
        """Takes the place of `dvc.rwlock.rwlock`.

        DVC locks the paths of a stage again in each of the functions that it nests.
        """

        @contextmanager
        def lock_late(
            folder: str, fs: Any, command: str, read: list[str], written: list[str], *rest: Any
        ) -> Iterator[None]:
            before: _Held | None = getattr(self._thread, "held", None)
            if before is not None and before.covers(read, written):
                yield
                return
            write_lock = partial(lock, folder, fs, command, read, written, *rest)
            held = _Held(write_lock, frozenset(read), frozenset(written), is_in_file=False)
            with ExitStack() as stack:
                if before is not None or not _is_of_this_process(Path(folder, FILE)):
                    stack.enter_context(write_lock())
                    held.is_in_file = True
                self._thread.held = held
                try:
                    yield
                finally:
                    self._thread.held = before

        return lock_late


def _is_of_this_process(file: Path) -> bool:
    """Whether no other process has locked a path. What cannot be read is left to DVC."""
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    own = str(os.getpid()).encode()
    return all(number == own for number in PROCESS.findall(content))
