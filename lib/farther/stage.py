"""The start of a stage's script: its outputs are locked, and an expected error becomes one message."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from farther import extensions
from farther.errors import FartherError
from farther.extras import missing
from farther.printable import printable
from farther.tables.writing import DISK, disk_errors, locked

#: Set to anything but 0, this variable brings the traceback of an expected error.
TRACEBACK = "FARTHER_TRACEBACK"


def run_stage(main: Callable[..., None], output: str) -> None:
    """Runs a stage's `main` with the arguments of the command line, unless another process writes the same output.

    Bad input, an error of the disk or of an extension, and an absent package end the process with
    status 1 and one message on stderr, without a traceback unless the environment variable
    `FARTHER_TRACEBACK` is set.

    Args:
        main: Takes one text per argument.
        output: The stage's output, or one of several: `artifacts/regions/{}`, `{}` for each
            argument.
    """
    stage = " ".join([Path(sys.argv[0]).stem, *sys.argv[1:]])
    try:
        path = output.format(*sys.argv[1:], "", "")
        with locked(path), disk_errors(path):
            main(*sys.argv[1:])
    except Exception as error:
        problem = explained(error)
        if problem is None or os.environ.get(TRACEBACK, "0") != "0":
            raise
        sys.exit(printable(f"{stage}: {problem}"))


def explained(error: Exception) -> str | None:
    """The message for an error that is expected: of input, the disk, an absent package, an extension; else None."""
    if isinstance(error, FartherError):
        return str(error)
    if (found := extensions.failure(error)) is not None:
        return found
    if isinstance(error, OSError) and error.errno in DISK and error.filename is not None:
        return f"{os.fsdecode(error.filename)}: {os.strerror(error.errno).lower()}"
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] != "farther":
        return missing(error)
    return None
