"""The worker pool: decodes and prepares images in processes, batch by batch and in order."""

from __future__ import annotations

import copyreg
import io
import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from farther.errors import DataError, FartherError
from farther.images import read
from farther.images.plan import Batch

if TYPE_CHECKING:
    from farther.images.stream import Model

T = TypeVar("T")


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
            return Unusable(f"{width}×{height} pixels, but {size[0]}×{size[1]} in the images table; ingest it again")
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
        processes: Worker processes; each has at most two batches under way. 0 works in this process.

    Raises:
        FartherError: a worker process was killed from outside.
    """
    if processes == 0:
        for batch in batches:
            yield batch, work(batch)
        return
    # Forked workers share the model and start at once. On other systems forking is not safe, and the model is sent.
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    carriers = [_Carrier() for _ in range(2 * processes)]
    pool = ProcessPoolExecutor(processes, context, initializer=_start_worker, initargs=(work, carriers))
    ahead: deque[tuple[Batch, int, Future[_Sent]]] = deque()

    def first() -> tuple[Batch, T]:
        batch, at, result = ahead.popleft()
        return batch, carriers[at].received(result.result())

    try:
        for number, batch in enumerate(batches):
            at = number % len(carriers)
            ahead.append((batch, at, pool.submit(_work, batch, at)))
            if len(ahead) == len(carriers):
                yield first()
        while ahead:
            yield first()
    except BrokenProcessPool:
        raise FartherError(
            f"one of the {processes} processes that work on images was killed, most likely for lack of memory: "
            "run again with fewer workers or smaller batches (finished work is kept)"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)
        for carrier in carriers:
            carrier.close()


class _Sent(NamedTuple):
    """A result without the bytes of its arrays, and how many bytes each has."""

    pickled: bytes
    sizes: list[int]


class _Carrier:
    """Takes the arrays of one result at a time from a worker to the parent, which both have it from a fork.

    Pixels are most of a result. Through a pipe they go in pieces of 64 kB, and take as long as an H100 needs for them.
    """

    def __init__(self) -> None:
        self._file = os.memfd_create("farther") if sys.platform == "linux" else -1

    def send(self, result: Any) -> _Sent:
        """Leaves the arrays here, until those of another result take their place."""
        arrays: list[pickle.PickleBuffer] = []
        written = io.BytesIO()
        pickler = pickle.Pickler(written, 5, buffer_callback=None if self._file < 0 else arrays.append)
        if "torch" in sys.modules:
            pickler.dispatch_table = copyreg.dispatch_table | {sys.modules["torch"].Tensor: _sent_as_array}
        pickler.dump(result)
        raw, at = [array.raw() for array in arrays], 0
        for part in raw:
            at = _whole(os.pwrite, self._file, part, at)
        return _Sent(written.getvalue(), [len(part) for part in raw])

    def received(self, sent: _Sent) -> Any:
        """The result."""
        buffers, at = [np.empty(size, np.uint8) for size in sent.sizes], 0
        for buffer in buffers:
            at = _whole(lambda file, part, at: os.preadv(file, [part], at), self._file, buffer.data, at)
        return pickle.loads(sent.pickled, buffers=buffers)  # noqa: S301 - of a process that this one started

    def close(self) -> None:
        """Frees its memory."""
        if self._file >= 0:
            os.close(self._file)


def _whole(move: Callable[[int, memoryview, int], int], file: int, part: memoryview, at: int) -> int:
    """Reads or writes all of a part from a place on, which the system does in as many steps as it likes; → its end."""
    end = at + len(part)
    while at < end:
        at += move(file, part[len(part) - (end - at) :], at)
    return at


_the_work: Callable[[Batch], Any] | None = None
_the_carriers: Sequence[_Carrier] = ()


def _start_worker(work: Callable[[Batch], Any], carriers: Sequence[_Carrier]) -> None:
    global _the_work, _the_carriers
    _the_work, _the_carriers = work, carriers
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all processes; the main one ends the others
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if "torch" in sys.modules:
        torch = sys.modules["torch"]
        torch.set_num_threads(1)  # OpenMP's threads do not survive a fork, and the other cores have workers too
    if "cv2" in sys.modules:
        sys.modules["cv2"].setNumThreads(0)


def _end_with_parent() -> None:
    """Ends this process when its parent is gone: one that is killed with -9 cannot tell its workers."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _sent_as_array(tensor: Any) -> tuple[Any, tuple[Any, ...]]:
    """How a tensor is pickled: torch's own way needs a file of shared memory for each, and runs out of them."""
    return sys.modules["torch"].from_numpy, (tensor.numpy(),)


def _work(batch: Batch, carrier: int) -> _Sent:
    assert _the_work is not None
    return _the_carriers[carrier].send(_the_work(batch))
