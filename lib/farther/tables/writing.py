"""Writing of outputs: aside first, then renamed, by one process at a time.

Unfinished files are in `.work/` of the folder `artifacts` that contains the output, outside of all
outputs of DVC; for an output elsewhere, in `.work/` beside it. The process that writes an output
locks `.work/<digest>.lock` and writes to `.work/<digest>.*`. The kernel releases the lock when the
process ends, also if it is killed, and the next process that writes any output deletes its files.
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

from farther.errors import FartherError, ParameterError

#: Folder of unfinished work.
WORK = ".work"

#: Seconds to wait for another process that writes the same output: a shard is written in less.
PATIENCE = 1.0

#: Errors of a full disk.
FULL = (errno.ENOSPC, errno.EDQUOT)
#: Errors of a file system without locks.
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
#: Errors of the disk.
DISK = (
    *FULL,
    *NO_LOCKS,
    errno.EFBIG,
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
    errno.EBUSY,
    errno.EIO,
    errno.ENAMETOOLONG,
    errno.ENOTDIR,
    errno.EEXIST,
    errno.ELOOP,
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

    def leftovers(self) -> list[Path]:
        """Files that were written under this lock and not renamed."""
        files = self.file.parent.glob(f"{self.file.stem}.*")
        return [path for path in files if path != self.file]

    def delete(self) -> None:
        """Deletes the leftovers and the lock file.

        The lock file stays if workers of an ended process still write there.
        """
        for path in self.leftovers():
            _delete(path)
        if not self.leftovers():
            self.file.unlink(missing_ok=True)
        os.close(self.descriptor)
        with suppress(OSError):  # there is other work
            self.file.parent.rmdir()


#: The lock of this process in each folder of unfinished work.
_lock_by_folder: dict[Path, _Lock] = {}
_mutex = threading.Lock()
#: Unfinished file or folder of this process → its final path.
_final_by_aside: dict[Path, Path] = {}
_count = itertools.count()


def _leave_locks_to_parent() -> None:
    global _mutex
    _mutex = threading.Lock()
    for lock in _lock_by_folder.values():
        os.close(lock.descriptor)
    _lock_by_folder.clear()


# A forked worker may outlive the process that writes, and must not keep its locks.
os.register_at_fork(after_in_child=_leave_locks_to_parent)


@contextmanager
def write_aside(path: str | Path) -> Iterator[Path]:
    """A path to write to, which is renamed to `path` when the block ends without an error.

    It ends as `path` does. An output with the same bytes stays as it is. After an error nothing is
    left behind, and `path` is as before. A process that is killed leaves `path` as before, or
    absent, but never half-written.

    Raises:
        FartherError: the disk is full or refuses to write, another process writes `path`, or it is
            a folder in which this process works.
    """
    path = Path(path)
    absolute_path = os.path.abspath(path)  # noqa: PTH100, without `..`
    if Path.cwd().is_relative_to(absolute_path):
        raise FartherError(
            f"{absolute_path}: the project itself is in this folder, which would be replaced: "
            "name another one"
        )
    with locked(path) as lock:
        # Not the name of an earlier process: its workers may still write.
        aside = lock.with_suffix(f".{os.getpid()}.{next(_count)}.{path.name[-50:]}")
        replaced = Path(f"{aside}.replaced")
        _final_by_aside[aside] = path
        try:
            with disk_errors(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                yield aside
                if not _is_same(aside, path):
                    if path.is_dir():
                        # A half-deleted folder must not have the name of a complete one.
                        path.replace(replaced)
                    aside.replace(path)
        finally:
            del _final_by_aside[aside]
            _delete(aside)
            _delete(replaced)


def refuse_other_files(folder: Path, mark: str, command: str) -> None:
    """Refuses a folder that a command would replace, and that has files that it did not write.

    Args:
        folder: The folder that the command writes.
        mark: Name of a file that is in every folder that it wrote.
        command: The command, for the message.

    Raises:
        ParameterError: the folder is not empty, and has no such file.
    """
    if not folder.exists() or (folder / mark).is_file():
        return
    if not folder.is_dir() or any(folder.iterdir()):
        raise ParameterError(
            f"{folder} was not written by `{command}` (it has no {mark}) and is not replaced: "
            "choose another folder"
        )


def _is_same(first: Path, second: Path) -> bool:
    """Whether two files or folders have the same names and bytes, and none is a link."""
    if first.is_symlink() or second.is_symlink():
        return False
    if first.is_dir() and second.is_dir():
        names = sorted(entry.name for entry in first.iterdir())
        if names != sorted(entry.name for entry in second.iterdir()):
            return False
        return all(_is_same(first / name, second / name) for name in names)
    if first.is_file() and second.is_file():
        return filecmp.cmp(first, second, shallow=False)
    return False


@contextmanager
def locked(path: str | Path) -> Iterator[Path]:
    """Locks `path` against other processes, and yields the lock file.

    A lock that this process already has in the same folder is used.

    Raises:
        FartherError: another process writes `path`, or the disk refuses to write.
    """
    path = Path(path)
    with disk_errors(path):
        work = work_folder(path)
        with _mutex:
            if work not in _lock_by_folder:
                _lock_by_folder[work] = _acquire(work / f"{_name(path)}.lock", path)
            lock = _lock_by_folder[work]
            lock.blocks += 1
    try:
        yield lock.file
    finally:
        with _mutex:
            lock.blocks -= 1
            if not lock.blocks:
                del _lock_by_folder[work]
                lock.delete()


def work_folder(path: str | Path) -> Path:
    """The folder `.work` for the unfinished files of `path`, on the same file system."""
    path = Path(path).absolute()
    device = _nearest_existing(path.parent).stat().st_dev
    for parent in path.parents:
        if parent.name != "artifacts":
            continue
        existing = _nearest_existing(parent)
        if os.access(existing, os.W_OK) and existing.stat().st_dev == device:
            return parent / WORK
    return path.parent / WORK


def unfinished(path: str | Path) -> Path:
    """The folder of the work on `path` that a killed process leaves and another one resumes."""
    return work_folder(path) / f"unfinished-{_name(path)}"


def delete_work(folder: Path) -> None:
    """Deletes a folder of finished work, and the one above it if that is left empty."""
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):
        folder.parent.rmdir()


@contextmanager
def disk_errors(path: str | Path) -> Iterator[None]:
    """Turns an error of the disk while `path` is written into one with the file and the space."""
    try:
        yield
    except FartherError:
        raise
    except Exception as error:
        place = _nearest_existing(Path(path))
        number = _error_number(error, place)
        if number is None:
            raise
        file = Path(path)
        if number in NO_LOCKS:
            problem = (
                "the file system has no file locks (flock), without which two processes could "
                "write one output: mount it with them (NFS without `nolock`, Lustre with `flock`), "
                "or work on another disk"
            )
        else:
            problem = os.strerror(number).lower()
        if number in FULL:
            problem += f"{_needed_space(place)}; free some and run the command again"
        else:
            file = _file_of(error) or file
        raise FartherError(f"{final_path(file)}: {problem}") from error


def _file_of(error: Exception) -> Path | None:
    """The file that an error of the disk names; of two, such as those of a copy, the second."""
    name = getattr(error, "filename2", None) or getattr(error, "filename", None)
    if isinstance(name, (str, bytes)):
        return Path(os.fsdecode(name))
    return None


def final_path(path: Path) -> Path:
    """The final path of one that is written aside."""
    for aside, final in _final_by_aside.items():
        if path.is_relative_to(aside):
            return final_path(final / path.relative_to(aside))
    return path


def _error_number(error: BaseException | None, place: Path) -> int | None:
    """Number of the error of the disk behind an exception; None for another exception.

    Some libraries have it only in their text, or not at all.
    """
    while error is not None:
        number = getattr(error, "errno", None)
        in_text = re.search(r"os error (\d+)|\[?[Ee]rrno (\d+)", str(error))
        if in_text:
            number = int(in_text[1] or in_text[2])
        if number is not None:
            return number if number in DISK else None
        error = error.__cause__ if error.__suppress_context__ else error.__context__
    is_full = shutil.disk_usage(place).free < 2**16
    return errno.ENOSPC if is_full else None


def _needed_space(place: Path) -> str:
    """The space that is needed, as far as it is known; empty where it is not."""
    written = sum(_size(aside) for aside in _final_by_aside)
    if not written:
        return ""
    free = shutil.disk_usage(place).free
    return (
        f": more than {written + free:,} bytes are needed "
        f"({written:,} were written, {free:,} are free)"
    )


def _size(path: Path) -> int:
    """Number of bytes of a file, or of all files in a folder."""
    files = [file for file in (path, *path.rglob("*")) if file.is_file()]
    return sum(file.stat().st_size for file in files)


def _name(path: str | Path) -> str:
    return hashlib.blake2b(
        os.path.realpath(path).encode(errors="surrogateescape"), digest_size=12
    ).hexdigest()


def _nearest_existing(path: Path) -> Path:
    """The path, or the nearest folder above it that exists."""
    path = path.absolute()
    return next(place for place in (path, *path.parents) if os.path.exists(place))  # noqa: PTH110


def _acquire(file: Path, path: Path) -> _Lock:
    """A new lock on `path`.

    The locks of ended processes, and the files that they left, are deleted first.
    """
    for lock_file in file.parent.glob("*.lock"):
        with suppress(PermissionError):  # of another user
            ended = _try_lock(lock_file)
            if ended is not None:
                os.ftruncate(ended.descriptor, 0)
                ended.delete()

    deadline = time.monotonic() + PATIENCE
    lock = _try_lock(file)
    while lock is None:
        with suppress(FileNotFoundError):
            # Empty while another process deletes the lock of an ended one.
            owner = file.read_text(encoding="utf-8")
            if owner and time.monotonic() > deadline:
                raise FartherError(
                    f"{path}: process {owner} is writing it: wait until it has ended, or end it"
                )
        time.sleep(0.02)
        lock = _try_lock(file)
    try:
        os.write(lock.descriptor, f"{os.getpid()} on {socket.gethostname()}".encode())
    except OSError:
        lock.delete()
        raise
    return lock


def _try_lock(file: Path) -> _Lock | None:
    """The lock of a file, which is created if it is absent.

    None if another process has locked or deleted it.
    """
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
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()
