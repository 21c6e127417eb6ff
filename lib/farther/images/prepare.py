"""The worker pool: decodes and prepares images in processes, batch by batch and in order."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from farther.errors import DataError, FartherError
from farther.images import read
from farther.images.folders import refuse_absent_folder
from farther.images.model import Model
from farther.images.plan import Batch
from farther.processes import follow_parent

T = TypeVar("T")
#: What a worker process takes at a time: a `Batch`, or what else a function does.
Work = TypeVar("Work")

#: In place of a file descriptor where there is no shared memory; see `_shared_memory_file`.
NO_FILE = -1
#: Arrays of at least this many bytes go through shared memory, smaller ones through the pipe.
LARGE = 2**16


@dataclass(frozen=True)
class Unusable:
    """Takes the place of an image that could not be read or prepared."""

    reason: str


@dataclass(frozen=True)
class Preparation:
    """Decodes and prepares a batch of files as inputs of the model.

    Args:
        model: Prepares the pixels.
        max_pixels, advice: See `farther.images.read.load`.
    """

    model: Model
    max_pixels: int
    advice: str = read.RAISE

    def __call__(self, batch: Batch) -> list[Any]:
        """One prepared image, or `Unusable`, for each image of the batch.

        Raises:
            FartherError: the folder of an image is absent.
        """
        prepared = []
        for image_id, file, size in zip(batch.image_ids, batch.files, batch.sizes, strict=True):
            prepared.append(self._prepare(image_id, file, size))
        return prepared

    def _prepare(self, image_id: str, file: Path, size: tuple[int, int]) -> Any:
        """One image; `size` is its width and height in the images table."""
        try:
            pixels = read.load(file, self.max_pixels, self.advice)
        except DataError as error:
            refuse_absent_folder(file)
            return Unusable(error.problem)

        height, width = pixels.shape[:2]
        if (width, height) != size:
            return Unusable(
                f"{width}×{height} pixels, but {size[0]}×{size[1]} in the images table; "
                "ingest it again"
            )

        try:
            return self.model.prepare(pixels, image_id)
        except MemoryError:
            raise
        except Exception as error:  # a single image must not end a run, whatever a model raises
            return Unusable(f"cannot be prepared: {type(error).__name__}: {error}")


def map_batches(
    function: Callable[[Work], T], batches: Iterable[Work], processes: int
) -> Generator[tuple[Work, T], None, None]:
    """Yields each batch with the function's result, in order.

    Args:
        function: Called with each batch. In worker processes PyTorch has one thread.
        batches: The batches; only a few more are read than results were yielded.
        processes: Worker processes, each with at most two batches waiting or in work. 0 calls the
            function in this process.

    Raises:
        FartherError: a worker process was killed from outside.
    """
    if processes == 0:
        for batch in batches:
            yield batch, function(batch)
        return

    # Forked workers share the model and start at once. On other systems forking is not safe, and
    # the model is pickled.
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    memory_files = [_shared_memory_file() for _ in range(2 * processes)]
    pool = ProcessPoolExecutor(processes, context, initializer=_start_worker, initargs=(function,))
    queue: deque[tuple[Work, Future[T]]] = deque()
    try:
        for batch, memory_file in zip(batches, itertools.cycle(memory_files), strict=False):
            queue.append((batch, pool.submit(_call, batch, memory_file)))
            if len(queue) == len(memory_files):
                # The next batch takes the memory file of this one.
                yield _next_result(queue)
        while queue:
            yield _next_result(queue)
    except BrokenProcessPool:
        raise FartherError(
            f"one of the {processes} processes that work on images was killed, most likely for "
            "lack of memory: run again with fewer workers or smaller batches (finished work is "
            "kept)"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)
        for memory_file in memory_files:
            if memory_file != NO_FILE:
                os.close(memory_file)


def _next_result(queue: deque[tuple[Work, Future[T]]]) -> tuple[Work, T]:
    """Takes the first batch of the queue and waits for its result."""
    batch, future = queue.popleft()
    return batch, future.result()


def _shared_memory_file() -> int:
    """Descriptor of a file in memory that forked workers share; `NO_FILE` except on Linux."""
    if sys.platform == "linux":
        return os.memfd_create("farther")
    return NO_FILE


# State of a worker process.
_function: Callable[[Any], Any] | None = None
#: Descriptor of the file in memory for the arrays of the current result.
_memory_file = NO_FILE
#: Number of bytes of the file in memory that hold arrays.
_memory_end = 0


def _start_worker(function: Callable[[Any], Any]) -> None:
    """Initialises a worker process."""
    global _function
    _function = function
    ForkingPickler.register(np.ndarray, _reduce_array)
    follow_parent()
    if "torch" in sys.modules:
        torch = sys.modules["torch"]
        # OpenMP's threads do not survive a fork, and the other cores have workers too.
        torch.set_num_threads(1)
        ForkingPickler.register(torch.Tensor, _reduce_tensor)
    if "cv2" in sys.modules:
        sys.modules["cv2"].setNumThreads(0)


def _reduce_tensor(tensor: Any) -> tuple[Any, tuple[Any, ...]]:
    """Pickles a tensor as an array.

    PyTorch's own reduction needs a file of shared memory per tensor, and runs out of them.
    """
    return sys.modules["torch"].from_numpy, (tensor.numpy(),)


def _reduce_array(array: np.ndarray) -> Any:
    """Pickles a large array as its place in shared memory, which the parent process reads.

    Pixels are most of a result. A pipe takes 64 kB at a time, and needs as long for them as an H100
    for inference.
    """
    global _memory_end
    if (
        _memory_file == NO_FILE
        or array.nbytes < LARGE
        or array.dtype.hasobject
        or not array.flags.c_contiguous
    ):
        return array.__reduce__()
    start = _memory_end
    _memory_end = _move_bytes(os.pwrite, _memory_file, array, start)
    return _read_array, (_memory_file, start, array.dtype, array.shape)


def _read_array(file: int, start: int, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """The array that `_reduce_array` wrote to shared memory."""
    array = np.empty(shape, dtype)
    _move_bytes(_read_into, file, array, start)
    return array


def _read_into(file: int, buffer: memoryview, offset: int) -> int:
    """Reads from an offset of a file into a buffer and returns the number of bytes."""
    return os.preadv(file, [buffer], offset)


def _move_bytes(
    move: Callable[[int, memoryview, int], int], file: int, array: np.ndarray, offset: int
) -> int:
    """Reads or writes an array from an offset on, in as many calls as the system needs.

    Returns:
        The offset behind its last byte.
    """
    remaining = array.reshape(-1).view(np.uint8).data
    while len(remaining):
        moved = move(file, remaining, offset)
        remaining = remaining[moved:]
        offset += moved
    return offset


def _call(batch: Any, memory_file: int) -> Any:
    """The function's result for a batch, in a worker process."""
    global _memory_file, _memory_end
    assert _function is not None
    _memory_file = memory_file
    _memory_end = 0
    return _function(batch)
