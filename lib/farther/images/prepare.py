"""Work on images in processes of their own, a batch at a time and in order: decoding, preparing, on CPUs all of it."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from farther.errors import DataError, FartherError
from farther.images import read as pictures

T = TypeVar("T")


@dataclass(frozen=True)
class Batch:
    """Images that the network sees together.

    Args:
        shard: Number of the shard that their rows go to.
        image_ids: Their names.
        files: Their files.
        sizes: Width and height of each, as the images table says.
    """

    shard: int
    image_ids: list[str]
    files: list[Path]
    sizes: list[tuple[int, int]]

    def __len__(self) -> int:
        return len(self.image_ids)


@dataclass(frozen=True)
class Unusable:
    """Stands in the place of an image that could not be read or prepared."""

    reason: str


class Preparer(Protocol):
    """What turns the pixels of an image into what a network takes; a detector is one."""

    def prepare(self, image: np.ndarray) -> Any:
        """One prepared image from uint8 pixels of shape (height, width, 3)."""


@dataclass(frozen=True)
class Preparation:
    """Turns a batch of files into what the detector's `forward` takes; `Unusable` where that fails.

    Args:
        detector: Its `prepare` is called.
        exif, max_pixels: See `farther.images.read.load`.
    """

    detector: Preparer
    exif: pictures.Exif
    max_pixels: int

    def __call__(self, batch: Batch) -> list[Any]:
        """One prepared image, or `Unusable`, for each image of the batch."""
        return [self._one(file, size) for file, size in zip(batch.files, batch.sizes, strict=True)]

    def _one(self, file: Path, size: tuple[int, int]) -> Any:
        try:
            pixels = pictures.load(file, self.exif, self.max_pixels)
        except DataError as error:
            return Unusable(error.problem)
        height, width = pixels.shape[:2]
        # Upright images may have their sides exchanged; the table knows them as they are stored.
        if (width, height) != size and (self.exif == "ignore" or (height, width) != size):
            return Unusable(f"{width}×{height} pixels, but {size[0]}×{size[1]} in the images table; ingest it again")
        try:
            return self.detector.prepare(pixels)
        except MemoryError:
            raise
        except Exception as error:  # one odd image must not end a run, whatever an adapter trips over
            return Unusable(f"the detector cannot prepare it: {type(error).__name__}: {error}")


def spread(
    work: Callable[[Batch], T], batches: Iterable[Batch], processes: int
) -> Generator[tuple[Batch, T], None, None]:
    """Each batch with what was made of it, in order.

    Args:
        work: What is done to a batch; torch has one thread in it.
        batches: The work; read a few batches ahead of what was taken.
        processes: Worker processes; each has at most two batches under way. 0 works in this process.

    Raises:
        FartherError: a worker process was killed from outside.
    """
    if processes == 0:
        for batch in batches:
            yield batch, work(batch)
        return
    # Forked workers share the detector and start at once. Elsewhere than on Linux forking is not safe, and it is sent.
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    pool = ProcessPoolExecutor(processes, context, initializer=_start_worker, initargs=(work,))
    ahead: deque[tuple[Batch, Future[T]]] = deque()
    try:
        for batch in batches:
            ahead.append((batch, pool.submit(_work, batch)))
            if len(ahead) == 2 * processes:
                yield _taken(ahead)
        while ahead:
            yield _taken(ahead)
    except BrokenProcessPool:
        raise FartherError(
            f"one of the {processes} processes that work on images was killed, most likely for memory: "
            "run again with fewer workers or smaller batches (what is finished is kept)"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def one_thread() -> Iterator[None]:
    """Keeps torch to one thread in this process, if the network uses torch: then it has imported it by now.

    Work that is spread over processes on one core each gives the same bytes when there are none.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def by_shard(
    stream: Iterator[tuple[Batch, T]], batch_count: Callable[[int], int]
) -> Iterator[tuple[int, Iterator[tuple[Batch, T]]]]:
    """The shards of a stream, each with its batches; they must be taken before the next shard is.

    Batches are counted: a group of `itertools.groupby` ends when the next one starts, and a finished shard would wait
    for the first batch of the next.

    Args:
        stream: What `spread` gives.
        batch_count: Number of a shard → how many batches it has.
    """
    for first in stream:
        shard = first[0].shard
        yield shard, itertools.chain([first], itertools.islice(stream, batch_count(shard) - 1))


def _taken(ahead: deque[tuple[Batch, Future[T]]]) -> tuple[Batch, T]:
    batch, future = ahead.popleft()
    return batch, future.result()


_the_work: Callable[[Batch], Any] | None = None


def _start_worker(work: Callable[[Batch], Any]) -> None:
    global _the_work
    _the_work = work
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all processes; the main one ends the others
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if "torch" in sys.modules:
        torch = sys.modules["torch"]
        torch.set_num_threads(1)  # OpenMP's threads do not survive a fork, and the other cores have workers too
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
    """Sends a tensor through the pipe.

    torch would put each into a shared-memory file of its own: slower for small ones, and containers have few megabytes
    for those files, processes few handles.
    """
    return sys.modules["torch"].from_numpy, (tensor.numpy(),)


def _work(batch: Batch) -> Any:
    assert _the_work is not None
    return _the_work(batch)
