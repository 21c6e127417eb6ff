"""Runs a monitor over a source until it ends or is stopped, and writes what it finds."""

from __future__ import annotations

import shutil
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm import tqdm

from farther.errors import ParameterError
from farther.monitor.drift import Drift, Window
from farther.monitor.monitored import Monitored
from farther.monitor.output import RESULTS, AnnotatedVideo, Pictures, PredictedTables
from farther.monitor.sources import Failed, Frame, ImageSource
from farther.naming.extras import require
from farther.tables.writing import disk_errors, locked, refuse_other_files, write_aside
from farther.text.terminal import counted, say

if TYPE_CHECKING:
    from farther.monitor.monitor import Monitor

#: Images that cannot be used, of which the log has a line.
LISTED = 20

#: Images that go through the network together, unless the source is live.
USUAL_BATCH = 8


@dataclass(frozen=True, kw_only=True)
class PredictSettings:
    """How a monitor runs over a source.

    Args:
        out: Folder to write.
        pictures: Whether to write annotated pictures or a video.
        batch_size: Images that go through the network together; None for 8, or 1 where the source
            is live.
        shard_images: Images whose rows are in memory before they are written.
        window: Images in a window of drift.
        overwrite: Replace the folder of an earlier prediction; else `out` must not exist, or be
            empty.
    """

    out: Path
    pictures: bool = True
    batch_size: int | None = None
    shard_images: int = 512
    window: int = 200
    overwrite: bool = False

    def check(self) -> None:
        """Refuses what would fail after inference.

        Raises:
            ParameterError: the folder cannot be renamed; or it has files, and is not to be
                replaced, or `predict` did not write it.
            AbsentPackagesError: supervision, which draws pictures, is not installed.
        """
        if self.pictures:
            require("drawing pictures, which --no-pictures leaves out,", "supervision")
        if self.out.is_mount():
            raise ParameterError(f"{self.out} is a mount point: name a folder in it")
        if self.overwrite:
            refuse_other_files(self.out, RESULTS, "farther predict")
        elif self.out.exists() and (not self.out.is_dir() or any(self.out.iterdir())):
            raise ParameterError(
                f"{self.out} already exists: replace it with --overwrite, or name another folder"
            )


@dataclass
class Predicted:
    """What was done.

    Args:
        drift: Drift of the images; `drift.total` has the numbers of images and detections.
        failed: Number of images that could not be used.
        alarmed: Number of images with a detection that is flagged or a proposal that is called
            unknown.
        seconds: Time from the first image to the last.
        image_threshold: The bundle's threshold of an image's uncertainty, above which the image is
            rejected; None where no image is.
    """

    drift: Drift
    failed: int = 0
    alarmed: int = 0
    seconds: float = 0.0
    image_threshold: float | None = None

    @property
    def per_second(self) -> float:
        """Images per second."""
        return self.drift.total.images / self.seconds if self.seconds else 0.0

    def __str__(self) -> str:
        total = self.drift.total
        images = counted(total.images, "image")
        parts = [
            f"{images} in {self.seconds:.1f} s ({self.per_second:.1f} per second)",
            f"{counted(total.detections, 'detection')}, {total.unknown:,} of them unknown",
        ]
        if total.proposals is not None:
            parts.append(f"{counted(total.proposals.number, 'proposal')} called unknown")
        parts.append(f"something unknown in {counted(self.alarmed, 'image')}")
        if total.rejected:
            parts.append(f"{counted(total.rejected, 'image')} rejected{self._why_rejected()}")
        if self.failed:
            parts.append(f"{counted(self.failed, 'image')} could not be used")
        if self.drift.alarms:
            windows = counted(self.drift.count, "window")
            parts.append(f"drift in {self.drift.alarms:,} of {windows}")
        return "; ".join(parts)

    def _why_rejected(self) -> str:
        """What rejected means, with its threshold and what ID validation showed, in brackets."""
        if self.image_threshold is None:
            return ""
        validation = self.drift.validation
        return (
            f" (uncertainty above {self.image_threshold:.3g}, as of {validation.rejected:,} of "
            f"{counted(validation.images, 'ID validation image')})"
        )


def predict(
    monitor: Monitor,
    source: ImageSource,
    settings: PredictSettings,
    *,
    log: Callable[[str], Any] = say,
    stopped: Callable[[], bool] = lambda: False,
) -> Predicted:
    """Runs a monitor over a source.

    Writes what `farther.monitor.output` and `farther.monitor.drift` list. Memory does not grow with
    the number of images. The folder appears when the run has ended, and not after an error, after
    which the run can be repeated. A live source cannot be repeated: its folder grows during the
    run, and keeps what was found before an error.

    Args:
        monitor: Detects and scores.
        source: The images.
        settings: What to write, and where.
        log: Takes one line per image that cannot be used, and one when a share leaves its interval
            after a window in which it was within.
        stopped: Asked before each image; True ends the run as the end of the source does.

    Raises:
        ParameterError, AbsentPackagesError: see `PredictSettings.check` and `AnnotatedVideo`.
        DataError, FartherError: see `Monitor.stream`, a file cannot be written, or another process
            writes the folder.
    """
    with locked(settings.out):
        settings.check()
        predicted = Predicted(Drift(monitor.bundle.validation, window=settings.window))
        if monitor.bundle.self_aware is not None:
            predicted.image_threshold = monitor.bundle.self_aware.image_threshold
        with _folder(settings.out, source, predicted) as folder:
            _predict(monitor, source, replace(settings, out=folder), predicted, log, stopped)
    return predicted


@contextmanager
def _folder(out: Path, source: ImageSource, predicted: Predicted) -> Iterator[Path]:
    """The folder to write the results to: of a live source `out`, else one that becomes `out`."""
    if not source.is_live:
        with write_aside(out) as aside:
            yield aside
        return
    with disk_errors(out):
        shutil.rmtree(out, ignore_errors=True)
        try:
            yield out
        except BaseException:
            if not predicted.drift.total.images:
                shutil.rmtree(out, ignore_errors=True)
            raise


def _predict(
    monitor: Monitor,
    source: ImageSource,
    settings: PredictSettings,
    predicted: Predicted,
    log: Callable[[str], Any],
    stopped: Callable[[], bool],
) -> None:
    """Fills `predicted` and the folder `settings.out`, which no other process writes."""
    out = settings.out
    drift = predicted.drift
    pictures: Pictures | AnnotatedVideo | None = None
    if settings.pictures and source.fps is None:
        pictures = Pictures(out / "pictures")
    elif settings.pictures and source.fps is not None:
        pictures = AnnotatedVideo(out, source.fps)
    out.mkdir(parents=True, exist_ok=True)
    tables = PredictedTables(out, monitor.bundle.header, settings.shard_images)
    started = time.monotonic()

    def failed(name: str, reason: str) -> None:
        predicted.failed += 1
        tables.failed(name, reason)
        if predicted.failed < LISTED:
            log(f"{name}: {reason}")
        elif predicted.failed == LISTED:
            log(f"{name}: {reason}. Further ones are listed in regions/regions.json only")

    def log_drift(window: Window | None) -> None:
        if window is None:
            return
        for share in window.left:
            log(f"drift: {window.describe(share)}")

    def write_drift_page() -> None:
        # It makes charts with the code of reports, whose import takes a second.
        from farther.monitor.drift_page import write_drift

        write_drift(drift, out, source.name)

    with ExitStack() as at_end:
        at_end.callback(write_drift_page)
        at_end.callback(lambda: log_drift(drift.close()))
        at_end.callback(tables.close)
        if pictures is not None:
            at_end.callback(pictures.close)
        bar = at_end.enter_context(
            tqdm(total=source.total, desc=source.name, unit="image", disable=None)
        )
        for frame, monitored in _monitored(monitor, source, settings.batch_size, failed, stopped):
            tables.add(frame, monitored)
            if pictures is not None:
                pictures.add(frame, monitored)
            log_drift(drift.update(monitored))
            predicted.alarmed += monitored.has_unknown
            bar.update()
        predicted.seconds = time.monotonic() - started


def _monitored(
    monitor: Monitor,
    source: ImageSource,
    batch_size: int | None,
    failed: Failed,
    stopped: Callable[[], bool],
) -> Iterator[tuple[Frame, Monitored]]:
    """The frames and their detections. Frames without detections yet are kept in a queue."""
    waiting: deque[Frame] = deque()

    def named() -> Iterator[tuple[str, np.ndarray]]:
        with closing(source.frames(failed)) as frames:
            for frame in frames:
                if stopped():
                    break
                waiting.append(frame)
                yield frame.image_id, frame.pixels

    size = batch_size or (1 if source.is_live else USUAL_BATCH)
    for monitored in monitor.stream(named(), size, lambda name, error: failed(name, error.problem)):
        while (frame := waiting.popleft()).image_id != monitored.image_id:
            pass  # the network's output for it could not be used
        yield frame, monitored
