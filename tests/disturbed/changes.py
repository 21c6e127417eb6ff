"""Changes of files that a process makes are counted, and it is killed at one of them.

Of farther nothing is imported: each process that DVC starts imports this module.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

#: Events of Python that change files.
CHANGES = {
    "os.rename",
    "os.remove",
    "os.rmdir",
    "os.mkdir",
    "os.truncate",
    "os.link",
    "os.symlink",
    "shutil.rmtree",
}


def count_changes(folder: Path, changed: Callable[[], None]) -> None:
    """Calls `changed` before each change that this process makes of a file in a folder.

    An audit hook of Python cannot be removed: the calls go on until the process ends.
    """
    counting_process = os.getpid()
    prefix = str(folder.resolve())

    def hook(event: str, arguments: tuple) -> None:
        if os.getpid() != counting_process:
            return
        if not _is_change(event, arguments):
            return
        name = arguments[0]
        if not isinstance(name, (str, bytes, os.PathLike)):
            return
        path = os.path.abspath(os.fsdecode(name))  # noqa: PTH100
        if path.startswith(prefix):
            changed()

    sys.addaudithook(hook)


def _is_change(event: str, arguments: tuple) -> bool:
    """Whether an event of Python changes a file."""
    if event == "open":
        flags = arguments[2]
        return bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
    return event in CHANGES


def count_together() -> None:
    """Counts this process's changes with those of its parents, and kills all at the given one."""
    folder = Path(os.environ["KILLS_FOLDER"])
    kill_at = int(os.environ["KILLS_AT"])
    counter = os.open(folder.with_suffix(".count"), os.O_WRONLY | os.O_APPEND)

    def changed() -> None:
        os.write(counter, b"-")
        if os.fstat(counter).st_size == kill_at:
            os.killpg(0, signal.SIGKILL)

    count_changes(folder, changed)
