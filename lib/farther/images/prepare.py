"""The worker pool: decodes and prepares images in processes, batch by batch and in order."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from farther.errors import DataError, FartherError
from farther.images import read
from farther.images.plan import Batch

if TYPE_CHECKING:
    from farther.images.stream import Model

T = TypeVar("T")

#: No file in memory: other systems than Linux have none that processes share.
NOWHERE = -1
#: Bytes of an array from which on it does not go through a pipe.
LARGE = 2**16


@dataclass(frozen=True)
class Unusable:
    """Takes the place of an image that could not be read or prepared."""

    reason: str


@dataclass(frozen=True)
class Preparation:
    """Turns a batch of files into inputs of the model; `Unusable` where that fails. See `farther.images.read.load`."""

    model: Model
    max_pixels: int

    def __call__(self, batch: Batch) -> list[Any]:
        """One prepared image, or `Unusable`, for each image of the batch."""
        images = zip(batch.image_ids, batch.files, batch.sizes, strict=True)
        return [self._one(image_id, file, size) for image_id, file, size in images]

    def _one(self, image_id: str, file: Path, size: tuple[int, int]) -> Any:
        try:
            pixels = read.load(file, self.max_pixels)
        except DataError as error:
            return Unusable(error.problem)
        height, width = pixels.shape[:2]
        if (width, height) != size:
            return Unusable(
                f"{width}×{height} pixels, but {size[0]}×{size[1]} in the images table; ingest it again"
            )
        try:
            return self.model.prepare(pixels, image_id)
        except MemoryError:
            raise
        except Exception as error:  # one odd image must not end a run, whatever a model meets
            return Unusable(f"cannot be prepared: {type(error).__name__}: {error}")


def spread(
    work: Callable[[Batch], T], batches: Iterable[Batch], processes: int
) -> Generator[tuple[Batch, T], None, None]:
    """Each batch with its result, in order.

    Args:
        work: Called with each batch; torch has one thread in it.
        batches: The batches; read a few ahead of what was taken.
        processes: Worker processes; each has at most two batches under way. 0 works in this
            process.

    Raises:
        FartherError: a worker process was killed from outside.
    """
    if processes == 0:
        for batch in batches:
            yield batch, work(batch)
        return
    # Forked workers share the model and start at once. On other systems forking is not safe, and
    # the model is sent.
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    aside = [
        os.memfd_create("farther") if sys.platform == "linux" else NOWHERE
        for _ in range(2 * processes)
    ]
    pool = ProcessPoolExecutor(processes, context, initializer=_start_worker, initargs=(work,))
    ahead: deque[tuple[Batch, Future[T]]] = deque()
    try:
        for batch, file in zip(batches, itertools.cycle(aside), strict=False):
            ahead.append((batch, pool.submit(_work, batch, file)))
            if len(ahead) == len(aside):
                yield ahead[0][0], ahead.popleft()[1].result()
        while ahead:
            yield ahead[0][0], ahead.popleft()[1].result()
    except BrokenProcessPool:
        raise FartherError(
            f"one of the {processes} processes that work on images was killed, most likely for lack of memory: "
            "run again with fewer workers or smaller batches (finished work is kept)"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)
        for file in aside:
            if file != NOWHERE:
                os.close(file)


_the_work: Callable[[Batch], Any] | None = None
#: Where the arrays of the result go that is being made, and how far they reach.
_the_file, _the_end = NOWHERE, 0


def _start_worker(work: Callable[[Batch], Any]) -> None:
    global _the_work
    _the_work = work
    ForkingPickler.register(np.ndarray, _sent_aside)
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C goes to all processes; the main one ends the others
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if "torch" in sys.modules:
        torch = sys.modules["torch"]
        torch.set_num_threads(
            1
        )  # OpenMP's threads do not survive a fork, and the other cores have workers too
        ForkingPickler.register(torch.Tensor, _sent_as_array)
    if "cv2" in sys.modules:
        sys.modules["cv2"].setNumThreads(0)


def _end_with_parent() -> None:
    """Ends this process when its parent is gone: one that is killed with -9 cannot tell its workers."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _sent_as_array(tensor: Any) -> tuple[Any, tuple[Any, ...]]:
    """Sends a tensor as an array: torch's own way needs a file of shared memory for each, and runs out of them."""
    return sys.modules["torch"].from_numpy, (tensor.numpy(),)


def _sent_aside(array: np.ndarray) -> Any:
    """Sends a large array through the file in memory that the parent has, too, and its place there through the pipe.

    Pixels are most of a result. A pipe takes 64 kB at a time, and as long for them as an H100
    needs.
    """
    global _the_end
    if (
        _the_file == NOWHERE
        or array.nbytes < LARGE
        or array.dtype.hasobject
        or not array.flags.c_contiguous
    ):
        return array.__reduce__()
    start = _the_end
    _the_end = _whole(os.pwrite, _the_file, array, start)
    return _received, (_the_file, start, array.dtype, array.shape)


def _received(file: int, start: int, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    array = np.empty(shape, dtype)
    _whole(lambda file, part, at: os.preadv(file, [part], at), file, array, start)
    return array


def _whole(
    move: Callable[[int, memoryview, int], int], file: int, array: np.ndarray, at: int
) -> int:
    """Reads or writes all of an array from a place on, in as many steps as the system takes; → where it ends."""
    part = array.reshape(-1).view(np.uint8).data
    while len(part):
        done = move(file, part, at)
        part, at = part[done:], at + done
    return at


def _work(batch: Batch, file: int) -> Any:
    global _the_file, _the_end
    assert _the_work is not None
    _the_file, _the_end = file, 0
    return _the_work(batch)
