"""Processes: the cores that this one may use, memory that it no longer does, and its parent."""

from __future__ import annotations

import atexit
import ctypes
import gc
import math
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, TypeVar

import psutil

T = TypeVar("T")

#: File of the microseconds of processor time that a container may take, and of the period in which
#: it may: Linux's control groups, version 2.
LIMIT = Path("/sys/fs/cgroup/cpu.max")
#: Devices of GPUs: NVIDIA's, AMD's, and those of Windows in WSL.
GPUS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")
#: Files of the bytes that a container may take, and of those that it uses.
MEMORY_LIMIT = Path("/sys/fs/cgroup/memory.max")
MEMORY_USED = Path("/sys/fs/cgroup/memory.current")

# Options of glibc's mallopt: blocks above the first have pages of their own, which are returned
# when the block is freed; free memory above the second, at the end of the heap, is returned.
_MMAP_THRESHOLD = -3
_TRIM_THRESHOLD = -1
#: Bytes of the largest blocks that glibc keeps by itself.
_LARGEST_BLOCK = 32 * 2**20
#: Bytes that both thresholds have in `freed_memory_kept`.
_KEPT = 2**30


def count_cores() -> int:
    """Number of cores that this process may use, at least 1.

    Cores that its affinity or its container excludes do not count.

    A limit on a container's processor time counts as that number of cores, rounded up.
    """
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    try:
        limit, period = LIMIT.read_text().split()
        cores_of_limit = math.ceil(int(limit) / int(period))
    except (OSError, ValueError):  # another system, or "max": no limit
        return cores
    return min(cores, cores_of_limit)


def has_gpu() -> bool:
    """Whether this machine has a device of a GPU that PyTorch may use.

    PyTorch is not imported, which takes seconds.
    """
    return any(Path(device).exists() for device in GPUS)


def free_memory() -> int:
    """Bytes of memory that programs can still take within the limit of the container."""
    free = int(psutil.virtual_memory().available)
    try:
        limit = int(MEMORY_LIMIT.read_text())
        used = int(MEMORY_USED.read_text())
    except (OSError, ValueError):  # another system, or "max": no limit
        return free
    return min(free, limit - used)


def in_threads(function: Callable[[Any], T], items: Iterable[Any]) -> list[T]:
    """The result of a function for each item, computed on one thread per core.

    The linear algebra of NumPy and SciPy uses one thread in each of them.
    """
    import scipy.linalg.blas  # noqa: F401, only libraries that are loaded are limited
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(count_cores()) as pool:
        return list(pool.map(function, items))


def keep_to_share(number: int, parts: int) -> None:
    """Restricts the calling thread, and processes that it starts, to an equal share of the cores.

    Programs beside one another that all use every core take a quarter more time. Only Linux
    supports this.

    Args:
        number: Number of the share, 0 to parts − 1.
        parts: Number of shares; with fewer cores than shares, some share a core.
    """
    if not hasattr(os, "sched_setaffinity"):
        return
    cores = sorted(os.sched_getaffinity(0))
    first = len(cores) * number // parts
    end = len(cores) * (number + 1) // parts
    os.sched_setaffinity(0, cores[first : max(end, first + 1)])


@contextmanager
def freed_memory_kept() -> Iterator[None]:
    """Keeps freed memory of large arrays for later ones in a block; does nothing without glibc.

    glibc otherwise returns blocks above 32 MiB to the system, which clears each page again when the
    next layer of a network asks for memory: a tenth of the processor time of a network on a CPU.
    Processes that are forked in the block keep their memory until they end. After the block, freed
    memory is returned to the system, and glibc's largest thresholds apply.
    """
    set_option = getattr(_c_library(), "mallopt", None)
    if set_option is None:
        yield
        return
    set_option(_MMAP_THRESHOLD, _KEPT)
    set_option(_TRIM_THRESHOLD, _KEPT)
    try:
        yield
    finally:
        set_option(_MMAP_THRESHOLD, _LARGEST_BLOCK)
        set_option(_TRIM_THRESHOLD, 2 * _LARGEST_BLOCK)
        release_memory()


def release_memory() -> None:
    """Returns freed memory to the system.

    glibc otherwise keeps the memory of smaller arrays for later ones, and Arrow that of tables.
    """
    pyarrow = sys.modules.get("pyarrow")
    if pyarrow is not None:
        pyarrow.default_memory_pool().release_unused()
    with suppress(AttributeError):  # another system's library
        _c_library().malloc_trim(0)


@cache
def end_without_collection() -> None:
    """Has this process end without searching all of its objects for cycles.

    Python would search a million objects of DVC's or PyTorch's for some tenths of a second, before
    the system takes back all memory anyway. Not for processes that import ONNX and print to the
    user: it reports objects that are left.
    """
    atexit.register(gc.freeze)


def _c_library() -> Any:
    """The functions of the C library of this process; None where they cannot be called."""
    try:
        return ctypes.CDLL(None)
    except (OSError, TypeError):  # TypeError on Windows
        return None


def follow_parent() -> None:
    """Has this process, which `multiprocessing` started, end with its parent, and only then.

    Ctrl-C goes to both: the parent ends its workers. One that is killed with -9 cannot tell them.
    """
    end_without_collection()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
