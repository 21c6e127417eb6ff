"""The start of a stage's script: an expected error becomes one message."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from farther.errors import FartherError

#: Set to anything but 0, this variable brings the traceback of an expected error.
TRACEBACK = "FARTHER_TRACEBACK"


def run_stage(main: Callable[..., None]) -> None:
    """Runs a stage's `main` with the arguments of the command line.

    A `FartherError`, or an absent package, ends the process with status 1 and one message on stderr, without a
    traceback unless the environment variable `FARTHER_TRACEBACK` is set.
    """
    stage = " ".join([Path(sys.argv[0]).stem, *sys.argv[1:]])
    try:
        main(*sys.argv[1:])
    except (FartherError, ModuleNotFoundError) as error:
        package = getattr(error, "name", None) or ""
        if os.environ.get(TRACEBACK, "0") != "0" or package.partition(".")[0] == "farther":
            raise
        problem = error if isinstance(error, FartherError) else f"needs the package {package!r}; see farther doctor"
        sys.exit(f"{stage}: {problem}")
