"""The start of a stage's script: its outputs are locked, and an expected error becomes one message."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from farther.errors import FartherError
from farther.tables.writing import disk_errors, locked

#: Set to anything but 0, this variable brings the traceback of an expected error.
TRACEBACK = "FARTHER_TRACEBACK"


def run_stage(main: Callable[..., None], output: str) -> None:
    """Runs a stage's `main` with the arguments of the command line, unless another process writes the same output.

    A `FartherError`, an error of the disk or an absent package ends the process with status 1 and one message on
    stderr, without a traceback unless the environment variable `FARTHER_TRACEBACK` is set.

    Args:
        main: Takes one text per argument.
        output: The stage's output, or one of several: `artifacts/regions/{}`, `{}` for each argument.
    """
    stage = " ".join([Path(sys.argv[0]).stem, *sys.argv[1:]])
    try:
        path = output.format(*sys.argv[1:], "", "")
        with locked(path), disk_errors(path):
            main(*sys.argv[1:])
    except (FartherError, ModuleNotFoundError) as error:
        package = getattr(error, "name", None) or ""
        if os.environ.get(TRACEBACK, "0") != "0" or package.partition(".")[0] == "farther":
            raise
        problem = error if isinstance(error, FartherError) else f"needs the package {package!r}; see farther doctor"
        sys.exit(f"{stage}: {problem}")
