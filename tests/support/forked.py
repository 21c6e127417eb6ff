"""Python processes that are forked from one that has imported the packages.

Imports take most of a stage's time.

`python forked.py FOLDER PID` serves until process PID has ended. Of farther it imports nothing: a
copy reads the code that its PYTHONPATH names. The commands in FOLDER have it run a script, a module
or a line of code (`python`), or themselves. The workers of pytest-xdist are such processes too.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import marshal
import os
import runpy
import socket
import subprocess
import sys
import time
import traceback
from pathlib import Path
from types import ModuleType

#: Packages that the stages and DVC import. Polars and Arrow start threads when they are imported,
#: which a forked process does not have: there is one of each, and it waits for work that no stage
#: has. Those that compute are started when they are first used.
PACKAGES = (
    "PIL.Image", "PIL.ImageDraw", "dulwich.repo", "dvc.cli", "dvc.commands.repro", "dvc.repo",
    "faiss", "ijson", "jinja2", "networkx", "open_clip", "polars", "pyarrow.parquet",
    "pydantic.dataclasses", "pygit2", "ruamel.yaml", "safetensors.torch", "scipy.stats",
    "sklearn.covariance", "torch", "torchvision", "tqdm", "typer", "vl_convert",
)  # fmt: skip

#: Variables of the server: the allocators of Polars and Arrow have no threads.
ALLOCATORS = {
    "_RJEM_MALLOC_CONF": "background_thread:false",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}

#: Commands that are modules; `python` is none.
MODULES = ("dvc", "farther")

#: A command: it sends its arguments, folder, environment and streams, and ends as the forked
#: process does. Where there is none, it prints what the server wrote.
COMMAND = """#!{python} -IS
import marshal, os, socket, sys
said = marshal.dumps((sys.argv, os.getcwd(), dict(os.environ)))
try:
    server = socket.socket(socket.AF_UNIX)
    server.connect({address!r})
    socket.send_fds(server, [len(said).to_bytes(8, "big")], [0, 1, 2])
    server.sendall(said)
    status = server.recv(9)
except OSError:
    status = b""
sys.exit(int(status) if status else open({log!r}).read() or 1)
"""


def start(folder: Path) -> Path:
    """The folder of the commands; the first caller starts the server, which ends with it.

    Commands wait while the server imports.

    Args:
        folder: A folder that all of pytest's processes share.
    """
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "python").exists():
            environment = {**os.environ, **ALLOCATORS, "OMP_NUM_THREADS": "1"}
            command = [sys.executable, __file__, str(folder), str(os.getpid())]
            with (folder / "log").open("w") as log:
                server = subprocess.Popen(
                    command,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            while not (folder / "python").exists():
                assert server.poll() is None, (folder / "log").read_text()
                time.sleep(0.05)
    return folder


def serve(folder: Path, owner: int) -> None:
    """Copies this process for each command, until the owner has ended."""
    address = str(folder / "socket")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(address)
        server.listen(64)
        server.settimeout(1)
        for name in (*MODULES, "python"):
            unfinished = folder / f".{name}"
            text = COMMAND.format(python=sys.executable, address=address, log=str(folder / "log"))
            unfinished.write_text(text)
            unfinished.chmod(0o755)
            unfinished.rename(folder / name)
        try:
            for package in PACKAGES:
                __import__(package)
        except Exception:  # printed before the commands that wait are told
            traceback.print_exc()
            return
        gc.freeze()
        while _lives(owner):
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            with contextlib.suppress(TimeoutError):
                client, _ = server.accept()
                if not os.fork():
                    server.close()
                    _become(client)
                client.close()


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def _become(client: socket.socket) -> None:
    """Runs the command of a client in this process, and ends it."""
    status = 1
    try:
        client.settimeout(None)
        size, streams, *_ = socket.recv_fds(client, 8, 3)
        with client.makefile("rb") as reading:
            request = marshal.loads(reading.read(int.from_bytes(size, "big")))
        (name, *arguments), working_directory, variables = request
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        os.chdir(working_directory)
        os.environ.clear()
        os.environ.update(variables)
        command = Path(name).name
        if command in MODULES:
            arguments = ["-m", command, *arguments]
        status = _run(arguments)
    except BaseException:
        traceback.print_exc()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    with contextlib.suppress(OSError):  # pytest-xdist has ended the command
        client.sendall(str(status).encode())
    os._exit(status)


def _run(arguments: list[str]) -> int:
    """Exit status of a script, a module after `-m` or code after `-u -c`, as the main program."""
    sys.path[0:1] = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    try:
        if arguments[:2] == ["-u", "-c"]:
            sys.argv = ["-c", *arguments[3:]]
            sys.modules["__main__"] = ModuleType("__main__")
            exec(arguments[2], vars(sys.modules["__main__"]))
        elif arguments[0] == "-m":
            sys.path.insert(0, str(Path.cwd()))
            sys.argv = arguments[1:]
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        else:
            sys.path.insert(0, str(Path(arguments[0]).resolve().parent))
            sys.argv = arguments
            runpy.run_path(arguments[0], run_name="__main__")
    except SystemExit as end:
        if end.code is None:
            return 0
        if isinstance(end.code, int):
            return end.code
        print(end.code, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    serve(Path(sys.argv[1]), int(sys.argv[2]))
