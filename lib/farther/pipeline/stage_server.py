"""A process that runs stages one after the other.

Imports take most of the time of a stage that finds little to do.

`python -m farther.pipeline.stage_server FD MODULE…` imports modules, then serves requests of its
parent, which come through a socket with descriptors of the streams that a stage prints to, until
the parent closes it.
"""

from __future__ import annotations

import gc
import json
import os
import random
import runpy
import signal
import socket
import sys
import traceback
import warnings
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from farther.cores import end_without_collection, release_memory
from farther.terminal import say


def serve(parent: socket.socket) -> None:
    """Runs the commands that the parent requests; answers each with the exit status, in one byte.

    A request is the size of a text (8 bytes) with descriptors of two files to print to, then the
    text: in JSON, the arguments of `python`, the working directory and the environment.

    Args:
        parent: Socket that is connected to the parent.
    """
    with parent.makefile("rb") as reading, Path(os.devnull).open("wb") as nowhere:
        while True:
            size, streams, *_ = socket.recv_fds(parent, 8, 2)
            if not size:
                return
            arguments, folder, variables = json.loads(reading.read(int.from_bytes(size, "big")))
            _print_to(*streams)
            for stream in streams:
                os.close(stream)
            os.chdir(folder)
            os.environ.clear()
            os.environ.update(variables)
            _reset_random_states()
            # Warnings that one stage showed or ignored are shown again by the next.
            with warnings.catch_warnings():
                status = _run(arguments)
            _free_memory()
            _print_to(nowhere.fileno(), nowhere.fileno())
            parent.sendall(bytes([status & 255]))


def _reset_random_states() -> None:
    """Seeds random generators anew: a stage may have seeded them."""
    random.seed()
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(torch.Generator().initial_seed())


def _free_memory() -> None:
    """Returns the memory of a stage that has ended to the system, and that of its GPU."""
    gc.collect()
    # What is left are modules and what they keep: the next collections need not search it again.
    gc.freeze()
    release_memory()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def _print_to(out: int, err: int) -> None:
    """Has this process, and those that it starts, print to other files."""
    for stream, number in ((sys.stdout, out), (sys.stderr, err)):
        stream.flush()
        os.dup2(number, stream.fileno())


def _run(arguments: list[str]) -> int:
    """Exit status of a script, or of a module after `-m`, as the main program."""
    try:
        if arguments[0] == "-m":
            sys.path[0] = str(Path.cwd())
            sys.argv = arguments[1:]
            # Python warns of a module that runs as the main program after it was imported.
            sys.modules.pop(arguments[1], None)
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        else:
            sys.path[0] = str(Path(arguments[0]).resolve().parent)
            sys.argv = arguments
            runpy.run_path(arguments[0], run_name="__main__")
    except SystemExit as end:
        return _status(end.code)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _status(code: Any) -> int:
    """Exit status for the argument of `sys.exit`; a text is printed."""
    if isinstance(code, int):
        return code
    if isinstance(code, str):
        say(code, file=sys.stderr)
    return int(code is not None)


def _import_early(modules: Sequence[str]) -> None:
    """Imports modules that stages will need; what is wrong with one, the stage says."""
    for module in modules:
        with suppress(Exception):
            import_module(module)


if __name__ == "__main__":
    end_without_collection()
    _import_early(sys.argv[2:])
    gc.freeze()
    try:
        serve(socket.socket(fileno=int(sys.argv[1])))
    except KeyboardInterrupt:  # while no stage ran
        sys.exit(128 + signal.SIGINT)
