"""Entry point of a stage.

It locks the stage's output, has it fail where what it reads changes while it runs, and turns an
expected error into one message.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from farther.errors import FartherError, first_line
from farther.incremental.stage_inputs import inputs_of
from farther.naming import extensions
from farther.naming.extras import missing
from farther.params import PARAMS, snapshot, use_snapshot
from farther.tables.writing import DISK, disk_errors, locked
from farther.text.printable import printable
from farther.text.terminal import say

#: Exit status after Ctrl-C.
INTERRUPTED = 130

#: Environment variable: any value but 0 shows the traceback of an expected error.
TRACEBACK = "FARTHER_TRACEBACK"

#: Environment variable: path of the terminal of `farther repro`.
TERMINAL = "FARTHER_TERMINAL"


def run_stage(main: Callable[..., None], output: str) -> None:
    """Runs a stage's `main` with the arguments of the command line.

    The output is locked: two processes never write it at the same time. The stage reads params.yaml
    once. It fails where what dvc.yaml says that it reads is not what the stage `code` saw, or
    changes while it runs: see `farther.incremental.stage_inputs`.

    Bad input, an error of the disk or of an extension, and an absent package end the process with
    status 1 and one message on stderr, without a traceback unless the environment variable
    `FARTHER_TRACEBACK` is set. Ctrl-C ends it with status 130.

    Args:
        main: Takes one text per argument.
        output: The stage's output, or one of several: `artifacts/regions/{}`, `{}` for each
            argument.
    """
    stage = " ".join([Path(sys.argv[0]).stem, *sys.argv[1:]])
    start = time.monotonic()
    try:
        path = output.format(*sys.argv[1:], "", "")
        with _bars_on_terminal(), locked(path), disk_errors(path):
            _run_compared(main, sys.argv[1:])
        say(f"{stage}: {time.monotonic() - start:.1f} s", flush=True)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except Exception as error:
        problem = explained(error)
        if problem is None or shows_tracebacks():
            raise
        sys.exit(printable(f"{stage}: {problem}"))


@contextmanager
def _bars_on_terminal() -> Iterator[None]:
    """Has progress bars be drawn on the terminal of `farther repro`, which reads what is an error.

    Nothing changes where there is none.
    """
    terminal = os.environ.get(TERMINAL)
    usual = sys.stderr
    if terminal is None or usual.isatty():
        yield
        return
    with Path(terminal).open("w", encoding="utf-8") as sys.stderr:
        try:
            yield
        finally:
            sys.stderr = usual


def shows_tracebacks() -> bool:
    """Whether the user wants the traceback of an expected error, too."""
    return os.environ.get(TRACEBACK, "0") != "0"


def _run_compared(main: Callable[..., None], arguments: Sequence[str]) -> None:
    """Runs a stage; see `run_stage`.

    Raises:
        ChangedError: what it reads changed.
    """
    if PARAMS.is_file():
        use_snapshot(snapshot())
    try:
        inputs = inputs_of(Path(sys.argv[0]).stem, arguments)
        if inputs is not None:
            inputs.check_current()
        main(*arguments)
        if inputs is not None:
            inputs.check_unchanged()
    finally:
        use_snapshot(None)


def explained(error: Exception) -> str | None:
    """The message for an expected error, or None for an unexpected one.

    Errors of input, of the disk, of an absent package and of an extension are expected, and so is
    a GPU without enough memory.
    """
    if isinstance(error, FartherError):
        return str(error)
    extension_problem = extensions.failure(error)
    if extension_problem is not None:
        return extension_problem
    if isinstance(error, OSError) and error.errno in DISK and error.filename is not None:
        return f"{os.fsdecode(error.filename)}: {os.strerror(error.errno).lower()}"
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] != "farther":
        return missing(error)
    if type(error).__name__ == "OutOfMemoryError":  # PyTorch's, which this module does not load
        return (
            f"the GPU has too little memory ({first_line(error)}): lower `batch_size` in section "
            "`inference` of params.yaml, or --batch-size of `farther predict` (finished work is "
            "kept)"
        )
    return None
