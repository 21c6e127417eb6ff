"""Writing of outputs: aside first, then renamed, by one process at a time.

What is being written is in `.work/` of the folder `artifacts` that contains the output, outside of
all outputs of DVC; for an output elsewhere, in `.work/` beside it. The process that writes an
output locks `.work/<digest>.lock` and writes to `.work/<digest>.*`. The kernel releases the lock
when the process ends, however it ends, and the next process that writes anything deletes what was
left.
"""

from __future__ import annotations

import errno
import fcntl
import filecmp
import hashlib
import itertools
import os
import re
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from farther.errors import FartherError

#: Folder of unfinished work.
WORK = ".work"

#: Seconds to wait for another process that writes the same output: a shard is written in less.
PATIENCE = 1.0

#: Errors of the disk: a full one, one without locks, and others.
FULL = (errno.ENOSPC, errno.EDQUOT)
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
DISK = (
    *(
        *FULL,
        *NO_LOCKS,
        errno.EFBIG,
        errno.EROFS,
        errno.EACCES,
        errno.EPERM,
        errno.EBUSY,
        errno.EIO,
    ),
    *(errno.ENAMETOOLONG, errno.ENOTDIR, errno.EEXIST, errno.ELOOP),
)


@dataclass
class _Lock:
    """A lock of this process.

    Args:
        file: The lock file, `<digest>.lock`.
        descriptor: The open lock file.
        blocks: Number of blocks of code that hold the lock.
    """

    file: Path
    descriptor: int
    blocks: int = 0

    def leftovers(self) -> Iterator[Path]:
        """What was written under this lock and not renamed."""
        return (path for path in self.file.parent.glob(f"{self.file.stem}.*") if path != self.file)

    def delete(self) -> None:
        """Deletes what was left under the lock, and the lock unless workers of an ended process still write there."""
        for path in self.leftovers():
            _delete(path)
        if not any(self.leftovers()):
            self.file.unlink(missing_ok=True)
        os.close(self.descriptor)
        with suppress(OSError):  # there is other work
            self.file.parent.rmdir()


#: The lock of this process in each folder of unfinished work.
_held: dict[Path, _Lock] = {}
_mutex = threading.Lock()
#: What this process is writing → where it will be.
_asides: dict[Path, Path] = {}
_count = itertools.count()


def _leave_locks_to_parent() -> None:
    global _mutex
    _mutex = threading.Lock()
    for lock in _held.values():
        os.close(lock.descriptor)
    _held.clear()


# A forked worker may outlive the process that writes, and must not keep its locks.
os.register_at_fork(after_in_child=_leave_locks_to_parent)


@contextmanager
def write_aside(path: str | Path) -> Iterator[Path]:
    """A path to write to, which ends as `path` does, renamed to `path` when the block ends without an error.

    What has the same bytes already stays as it is. After an error nothing is left behind, and
    `path` is as before. A process that is killed leaves `path` as before, or absent, but never
    half-written.

    Raises:
        FartherError: the disk is full or refuses to write, another process writes `path`, or it is
            a folder in which this process works.
    """
    path = Path(path)
    if Path.cwd().is_relative_to(whole := os.path.abspath(path)):  # noqa: PTH100, without `..`
        raise FartherError(
            f"{whole}: the project itself is in this folder, which would be replaced: name another one"
        )
    with locked(path) as lock:
        # Not the name of an earlier process: its workers may still write.
        aside = lock.with_suffix(f".{os.getpid()}.{next(_count)}.{path.name[-50:]}")
        _asides[aside] = path
        try:
            with disk_errors(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                yield aside
                if not _is_same(aside, path):
                    if (
                        path.is_dir()
                    ):  # renamed away: a half-deleted folder must not have the name of a whole one
                        path.replace(f"{aside}.replaced")
                    aside.replace(path)
        finally:
            del _asides[aside]
            _delete(aside)
            _delete(Path(f"{aside}.replaced"))


def _is_same(one: Path, other: Path) -> bool:
    """Whether two files, or all files of two folders, have the same names and bytes, and none is a link."""
    if one.is_symlink() or other.is_symlink():
        return False
    if one.is_dir() and other.is_dir():
        names, others = (
            sorted(entry.name for entry in folder.iterdir()) for folder in (one, other)
        )
        return names == others and all(_is_same(one / name, other / name) for name in names)
    return one.is_file() and other.is_file() and filecmp.cmp(one, other, shallow=False)


@contextmanager
def locked(path: str | Path) -> Iterator[Path]:
    """Keeps other processes from writing `path`, unless this one already holds a lock there; yields the lock file.

    Raises:
        FartherError: another process writes `path`, or the disk refuses to write.
    """
    path = Path(path)
    with disk_errors(path):
        work = work_folder(path)
        with _mutex:
            if work not in _held:
                _held[work] = _taken(work / f"{_name(path)}.lock", path)
            lock = _held[work]
            lock.blocks += 1
    try:
        yield lock.file
    finally:
        with _mutex:
            lock.blocks -= 1
            if not lock.blocks:
                del _held[work]
                lock.delete()


def work_folder(path: str | Path) -> Path:
    """The folder `.work` for what is written to `path`, on the same file system."""
    path = Path(path).absolute()
    for artifacts in (above for above in path.parents if above.name == "artifacts"):
        home = _existing(artifacts)
        if os.access(home, os.W_OK) and home.stat().st_dev == _existing(path.parent).stat().st_dev:
            return artifacts / WORK
    return path.parent / WORK


def unfinished(path: str | Path) -> Path:
    """A folder for the work on `path` that a killed process leaves and another one resumes."""
    return work_folder(path) / f"unfinished-{_name(path)}"


def delete_work(folder: Path) -> None:
    """Deletes a folder of finished work, and the one above it if that is left empty."""
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):
        folder.parent.rmdir()


@contextmanager
def disk_errors(path: str | Path) -> Iterator[None]:
    """Turns an error of the disk while `path` is written into one message with the file and the space."""
    try:
        yield
    except FartherError:
        raise
    except Exception as error:
        place = _existing(Path(path))
        if (number := _error_number(error, place)) is None:
            raise
        file, problem = Path(path), os.strerror(number).lower()
        name = getattr(error, "filename2", None) or getattr(
            error, "filename", None
        )  # of a copy, where it would be
        if number in NO_LOCKS:
            problem = (
                "the file system has no file locks (flock), without which two processes could write one output: mount "
                "it with them (NFS without `nolock`, Lustre with `flock`), or work on another disk"
            )
        if number in FULL:
            problem += f"{_space(place)}; free some and run the command again"
        elif isinstance(name, (str, bytes)):
            file = Path(os.fsdecode(name))
        raise FartherError(f"{_final(file)}: {problem}") from error


def _final(path: Path) -> Path:
    """Where a path that is written aside will be."""
    for aside, final in _asides.items():
        if path.is_relative_to(aside):
            return _final(final / path.relative_to(aside))
    return path


def _error_number(error: BaseException | None, place: Path) -> int | None:
    """Number of the error of the disk behind an exception; libraries say it in their text, or not at all."""
    while error is not None:
        said = re.search(r"os error (\d+)|\[?[Ee]rrno (\d+)", str(error))
        number = int(said[1] or said[2]) if said else getattr(error, "errno", None)
        if number is not None:
            return number if number in DISK else None
        error = error.__cause__ if error.__suppress_context__ else error.__context__
    return errno.ENOSPC if shutil.disk_usage(place).free < 2**16 else None


def _space(place: Path) -> str:
    """The space that is needed, as far as it is known; empty where it is not."""
    files = (path for aside in _asides for path in (aside, *aside.rglob("*")) if path.is_file())
    written, free = sum(path.stat().st_size for path in files), shutil.disk_usage(place).free
    known = f": more than {written + free:,} bytes are needed ({written:,} were written, {free:,} are free)"
    return known if written else ""


def _name(path: str | Path) -> str:
    return hashlib.blake2b(
        os.path.realpath(path).encode(errors="surrogateescape"), digest_size=12
    ).hexdigest()


def _existing(path: Path) -> Path:
    """The path, or the nearest folder above it that exists."""
    path = path.absolute()
    return next(place for place in (path, *path.parents) if os.path.exists(place))  # noqa: PTH110


def _taken(file: Path, path: Path) -> _Lock:
    """A new lock on `path`, after deleting the locks of ended processes and what they left."""
    for other in file.parent.glob("*.lock"):
        with suppress(PermissionError):  # of another user
            if (ended := _opened(other)) is not None:
                os.ftruncate(ended.descriptor, 0)
                ended.delete()
    deadline = time.monotonic() + PATIENCE
    while (lock := _opened(file)) is None:
        with suppress(FileNotFoundError):
            owner = file.read_text(encoding="utf-8")
            if (
                owner and time.monotonic() > deadline
            ):  # none while another process deletes an earlier lock
                raise FartherError(
                    f"{path}: process {owner} is writing it: wait until it has ended, or end it"
                )
        time.sleep(0.02)
    try:
        os.write(lock.descriptor, f"{os.getpid()} on {socket.gethostname()}".encode())
    except OSError:
        lock.delete()
        raise
    return lock


def _opened(file: Path) -> _Lock | None:
    """The lock of a file, created where it is absent; None where another process has locked or deleted it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
    except FileNotFoundError:  # the folder was deleted
        return None
    lock = None
    try:
        with suppress(BlockingIOError, FileNotFoundError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), file.stat()):
                lock = _Lock(file, descriptor)
    finally:
        if lock is None:
            os.close(descriptor)
    return lock


def _delete(path: Path) -> None:
    with suppress(FileNotFoundError, NotADirectoryError):
        path.unlink() if not path.is_dir() or path.is_symlink() else shutil.rmtree(
            path, ignore_errors=True
        )
