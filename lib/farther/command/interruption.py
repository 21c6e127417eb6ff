"""Ctrl-C: the answer comes at once, and without a traceback."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

#: What the first Ctrl-C prints.
STOPPING = "Stopping …"
#: Erases a progress bar and the `^C` of the terminal.
ERASE = "\r\033[K"


def say_stopping(details: str = "") -> None:
    """Prints that Ctrl-C was noticed.

    It writes to the file descriptor, as a handler of a signal may interrupt any other print.

    Args:
        details: What happens next.
    """
    text = f"{STOPPING}{details}\n"
    if sys.stderr.isatty():
        text = f"{ERASE}{text}"
    encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
    try:
        os.write(sys.stderr.fileno(), text.encode(encoding, "replace"))
    except (OSError, ValueError):  # stderr is closed, or no file
        return


@contextmanager
def answering_interrupts(noticed: Callable[[], object] | None = None) -> Iterator[None]:
    """Has the first Ctrl-C print `STOPPING` before it raises KeyboardInterrupt.

    Nothing changes where Ctrl-C is ignored, as in background jobs, and in other threads than the
    main one.

    Args:
        noticed: Called at each Ctrl-C, by the handler of the signal: it must not take a lock.
    """
    usual = signal.getsignal(signal.SIGINT)
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or not callable(usual):
        yield
        return
    has_answered = False

    def answer(number: int, frame: FrameType | None) -> None:
        nonlocal has_answered
        if noticed is not None:
            noticed()
        if not has_answered:
            has_answered = True
            say_stopping()
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, answer)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
