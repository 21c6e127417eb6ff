"""Lines that running processes print, through pipes and pseudo-terminals."""

from __future__ import annotations

import os
import re
import selectors
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from farther.command.output import width

#: Bytes that are read at once.
CHUNK = 65536


@dataclass(frozen=True)
class Event:
    """Something that happened while processes ran.

    Args:
        kind: "line", a finished line; "bar", a progress bar or another unfinished line; "wait", a
            second without output.
        text: The text, without escape codes.
        source: Name of the file that it was read from.
    """

    kind: Literal["line", "bar", "wait"]
    text: str = ""
    source: str = ""


@dataclass
class _Stream:
    """A file that a process prints to, and what was read after its last line break."""

    name: str
    rest: bytes = b""
    is_open: bool = True

    def read(self, descriptor: int) -> Iterator[Event]:
        """Reads what is there: finished lines, then the unfinished one."""
        try:
            chunk = os.read(descriptor, CHUNK)
        except OSError:  # the end of a pseudo-terminal
            chunk = b""
        if not chunk:
            self.is_open = False
            if self.rest.strip():
                chunk = b"\n"
        *lines, self.rest = (self.rest + chunk).split(b"\n")
        for line in lines:
            message = _message(line)
            if message is not None:
                yield Event("line", message, self.name)
        bar = _without_escapes(_last_overwrite(self.rest))
        if bar:
            yield Event("bar", bar, self.name)


def read_output(sources: Mapping[int, str], ended: int | None = None) -> Iterator[Event]:
    """Lines, bars and seconds without output of a process, as they come.

    Ends where all files end, or once `ended` can be read and nothing else is left to read.

    Args:
        sources: Name of each file descriptor that the process prints to.
        ended: A file descriptor that can be read once the process has done its work; None where
            all files end then. Processes that a stage has started may keep its files open.
    """
    streams = {descriptor: _Stream(name) for descriptor, name in sources.items()}
    is_over = False
    # Not the default selector: that of macOS, kqueue, does not take every pseudo-terminal.
    with selectors.SelectSelector() as selector:
        for descriptor in streams:
            selector.register(descriptor, selectors.EVENT_READ)
        if ended is not None:
            selector.register(ended, selectors.EVENT_READ)
        while any(stream.is_open for stream in streams.values()):
            ready = selector.select(timeout=0 if is_over else 1)
            if is_over and not ready:
                return
            for key, _ in ready:
                if key.fd == ended:
                    selector.unregister(key.fd)
                    is_over = True
                    continue
                stream = streams[key.fd]
                yield from stream.read(key.fd)
                if not stream.is_open:
                    selector.unregister(key.fd)
            if not ready:
                yield Event("wait")


def open_terminal() -> tuple[int, int]:
    """The reading and the writing end of a pseudo-terminal, for bars are printed to terminals only.

    Those of a pipe where there are no pseudo-terminals, as in some containers.
    """
    import fcntl
    import pty
    import struct
    import termios
    import tty

    try:
        read_end, write_end = pty.openpty()
    except OSError:
        return os.pipe()
    tty.setraw(write_end)
    columns = max(40, width() - 40)
    fcntl.ioctl(write_end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    return read_end, write_end


def _message(line: bytes) -> str | None:
    """The text of a line; None where it was a progress bar, which carriage returns overwrite."""
    line = line.rstrip(b"\r")
    text = _without_escapes(_last_overwrite(line))
    if b"\r" in line and (not text or "%|" in text):
        return None
    return text


def _last_overwrite(line: bytes) -> bytes:
    """The part of a line that is visible: after the last carriage return but those at its end."""
    return line.rstrip(b"\r").rpartition(b"\r")[2]


def _without_escapes(line: bytes) -> str:
    """The text without escape codes."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line.decode(errors="replace")).rstrip()
