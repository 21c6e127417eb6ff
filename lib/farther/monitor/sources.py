"""Sources of images: files, a video, a camera or a network stream, one frame at a time.

Names of images are paths relative to the source's folder, ending included (`street/007.jpg`). The
frames of a video are numbered from 1 and called as `ffmpeg -i clip.mp4 clip_%08d.jpg` calls the
files that it extracts.
"""

from __future__ import annotations

import glob
import os
import re
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice, takewhile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from farther.errors import DataError, FartherError, ParameterError
from farther.images.read import MAX_PIXELS, load
from farther.tables.endings import IMAGES, is_image, is_unread_image
from farther.tables.files import is_file
from farther.tables.folders import files_below, matching, resolved

#: Frames in a row that cannot be read, after which a video has ended, and a live stream is opened
#: again.
MISSES = 25

#: Seconds to wait before a lost stream is opened again: first, second, … attempt.
PAUSES = (1, 2, 4, 8, 16)

#: OpenCV's numbers of the properties CAP_PROP_POS_MSEC, CAP_PROP_FPS and CAP_PROP_FRAME_COUNT.
MILLISECONDS, FPS, COUNT = 0, 5, 7

#: Frames per second of a video that does not say.
USUAL_FPS = 25.0

UNREADABLE = "the frame cannot be decoded"
NO_PIXELS = np.zeros((0, 0, 3), np.uint8)

#: Number of a frame, its pixels (blue green red) and its time in seconds.
Numbered = tuple[int, np.ndarray, float | None]

#: Takes the name of an image or a stream, and what is wrong with it.
Failed = Callable[[str, str], None]


@dataclass(frozen=True, eq=False)
class Frame:
    """An image of a source.

    Args:
        image_id: Its name.
        pixels: ndarray of shape (H, W, 3), uint8, red green blue.
        seconds: Its time in the video; None for image files and live streams.
    """

    image_id: str
    pixels: np.ndarray
    seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class SourceSettings:
    """How images are taken from a source.

    Args:
        every: Every n-th image is taken.
        limit: Largest number of images; None for all.
        max_pixels: How image files are read; see `farther.images.read.load`.

    Raises:
        ParameterError: a number is below 1.
    """

    every: int = 1
    limit: int | None = None
    max_pixels: int = MAX_PIXELS

    def __post_init__(self) -> None:
        numbers = {"every": self.every, "limit": self.limit, "max_pixels": self.max_pixels}
        for name, value in numbers.items():
            if value is not None and value < 1:
                raise ParameterError(f"{name} is at least 1, found {value}")


class ImageSource(ABC):
    """Images, one after the other.

    Attributes:
        name: A name for files that are made of it.
        total: Number of images, None where it is unknown.
        fps: Frames per second of what is taken; None for image files.
        is_live: Whether frames are lost that are not taken in time.
    """

    name: str
    total: int | None = None
    fps: float | None = None
    is_live: bool = False

    @abstractmethod
    def frames(self, failed: Failed) -> Generator[Frame, None, None]:
        """The images. One that cannot be read is given to `failed` and left out."""


class ImageFiles(ImageSource):
    """Image files.

    Args:
        files: The files.
        folder: The folder that names are relative to.
        settings: How they are taken.
    """

    def __init__(self, files: Sequence[Path], folder: Path, settings: SourceSettings):
        self.files = files[:: settings.every][: settings.limit]
        self.folder = folder
        self.settings = settings
        self.name = _printable(resolved(folder).name) or "images"
        self.total = len(self.files)

    def frames(self, failed: Failed) -> Generator[Frame, None, None]:
        """See `ImageSource.frames`."""
        for file in self.files:
            path = file.relative_to(self.folder).as_posix()
            name = _printable(path)
            try:
                if name != path:
                    raise DataError("its name is not UTF-8: rename it")
                pixels = load(file, self.settings.max_pixels, "give --max-pixels a higher number")
            except DataError as error:
                failed(name, error.problem)
                continue
            yield Frame(name, pixels)


class Video(ImageSource):
    """A video file, a camera or a network stream, through OpenCV's `VideoCapture`.

    Args:
        address: File, number of a camera, or address of a stream.
        settings: How frames are taken.
        capture: Makes OpenCV's capture of an address.
        pause: Waits for a number of seconds.

    Raises:
        DataError: the file cannot be opened as a video.
        FartherError: the camera or the stream cannot be opened, or OpenCV is not installed.
    """

    def __init__(
        self,
        address: Path | int | str,
        settings: SourceSettings,
        capture: Callable[[Any], Any] | None = None,
        pause: Callable[[float], None] = time.sleep,
    ):
        self.address = address
        self.settings = settings
        self._capture = capture or _opencv
        self._pause = pause
        self.is_live = not isinstance(address, Path)
        self.name = _name(address)
        self._opened = self._open()
        if not self._opened.isOpened():
            raise self._refusal()
        self.fps = (self._property(FPS) or USUAL_FPS) / settings.every
        self.declared_frames = 0
        if not self.is_live:
            self.declared_frames = int(self._property(COUNT))
        self.total = self._number_of_images()

    def _number_of_images(self) -> int | None:
        limit = self.settings.limit
        declared = -(-self.declared_frames // self.settings.every)
        if not declared:
            return limit
        if limit is None:
            return declared
        return min(limit, declared)

    def frames(self, failed: Failed) -> Generator[Frame, None, None]:
        """See `ImageSource.frames`.

        A live stream that is lost is opened again; only its newest frame is given out.
        """
        numbered = self._live(failed) if self.is_live else self._decoded(failed)
        with closing(numbered):
            for number, pixels, seconds in islice(numbered, self.settings.limit):
                in_rgb = np.ascontiguousarray(pixels[:, :, ::-1])
                yield Frame(self._frame_name(number), in_rgb, seconds)

    def _decoded(self, failed: Failed) -> Generator[Numbered, None, None]:
        """Number, pixels and time of the frames of a file."""
        number = 0
        decoded = 0
        missed: list[int] = []
        while len(missed) < MISSES:
            number += 1
            is_taken = (number - 1) % self.settings.every == 0
            pixels = NO_PIXELS
            if is_taken:
                is_read, pixels = self._opened.read()
            else:
                is_read = self._opened.grab()
            if not is_read:
                missed.append(number)
                continue
            for missed_number in missed:
                failed(self._frame_name(missed_number), UNREADABLE)
            missed = []
            decoded += 1
            if is_taken:
                yield number, pixels, self._property(MILLISECONDS) / 1000
        if decoded < self.declared_frames:
            frames = f"{decoded:,} of the {self.declared_frames:,} frames that the file declares"
            failed(self.name, f"only {frames} could be decoded")

    def _live(self, failed: Failed) -> Generator[Numbered, None, None]:
        """Number and pixels of the newest frames of a stream."""
        before = 0  # frames until the stream was opened
        last = 1 - self.settings.every
        while True:
            newest = _Newest(self._opened)
            try:
                for number, pixels in newest:
                    while newest.missed:
                        failed(self._frame_name(before + newest.missed.popleft()), UNREADABLE)
                    if before + number - last >= self.settings.every:
                        last = before + number
                        yield last, pixels, None
            finally:
                newest.close()
            before += newest.number
            failed(self.name, f"lost after frame {before:,}")
            if not self._reopened():
                failed(self.name, f"could not be opened again in {len(PAUSES)} attempts")
                return

    def _frame_name(self, number: int) -> str:
        return f"{self.name}_{number:08d}.jpg"

    def _reopened(self) -> bool:
        for seconds in PAUSES:
            self._opened.release()
            self._pause(seconds)
            self._opened = self._open()
            if self._opened.isOpened():
                return True
        return False

    def _open(self) -> Any:
        return self._capture(str(self.address) if isinstance(self.address, Path) else self.address)

    def _property(self, number: int) -> float:
        """One of the capture's properties by its number; 0 where it is unknown."""
        value = float(self._opened.get(number))
        if not np.isfinite(value) or value <= 0:
            return 0.0
        return value

    def _refusal(self) -> FartherError:
        if isinstance(self.address, Path):
            problem = (
                "cannot be opened as a video: it is not one, is damaged, or has a codec that "
                "OpenCV does not read. "
                f"Convert it: ffmpeg -i {self.address.name} -c:v libx264 out.mp4"
            )
            return DataError(problem, file=self.address)
        advice = "is it connected and not in use? Check address, user, password and network"
        return ParameterError(f"{self.name} cannot be opened: {advice}")


class _Newest:
    """Reads a live capture in a thread and gives out its newest frame; older frames are dropped.

    Without it, a detector slower than the camera would fall behind further and further.

    Attributes:
        number: Number of frames that were asked for.
        missed: Numbers of those that could not be read, while others after them could.
    """

    def __init__(self, capture: Any):
        self._capture = capture
        self._changed = threading.Condition()
        self._slot: tuple[int, np.ndarray] | None = None
        self._ended = False
        self.number = 0
        self.missed: deque[int] = deque()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[tuple[int, np.ndarray]]:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._slot is not None or self._ended)
                if self._slot is None:
                    return
                newest, self._slot = self._slot, None
            yield newest

    def close(self) -> None:
        """Ends the thread after the frame that it is reading."""
        self._ended = True
        self._thread.join(timeout=5)

    def _read(self) -> None:
        missed: list[int] = []
        while not self._ended and len(missed) < MISSES:
            is_read, pixels = self._capture.read()
            with self._changed:
                self.number += 1
                if not is_read:
                    missed.append(self.number)
                    continue
                self._slot = self.number, pixels
                self.missed.extend(missed)
                missed = []
                self._changed.notify()
        with self._changed:
            self._ended = True
            self._changed.notify()


def open_source(text: str, settings: SourceSettings | None = None) -> ImageSource:
    """The source that a text names.

    Args:
        text: An image, a folder (with its sub-folders), a pattern (`photos/*.jpg`), a video file,
            the number of a camera, or the address of a stream (`rtsp://…`).
        settings: How images are taken.

    Raises:
        ParameterError: nothing of this name exists, or it holds no image.
        DataError, FartherError: see `Video`.
    """
    settings = settings or SourceSettings()
    path = Path(text)
    if path.is_dir():
        return _in_folder(path, settings)
    if path.is_file():
        if _is_image(path):
            return ImageFiles([path], path.parent, settings)
        return Video(path, settings)
    if re.fullmatch(r"\d+", text):
        return Video(int(text), settings)
    if re.match(r"[a-z][a-z0-9+.-]*://", text):
        return Video(text, settings)
    if glob.has_magic(text):
        return _matching(text, settings)
    raise ParameterError(
        f"no such file or folder: {text!r}. Name an image, a folder, a pattern in quotes "
        "('photos/*.jpg'), a video, a camera's number, or an address (rtsp://…)"
    )


def _in_folder(folder: Path, settings: SourceSettings) -> ImageFiles:
    files = sorted(files_below(folder))
    images = [file for file in files if _is_image(file)]
    if not images:
        content = ", which is empty"
        if files:
            content = f"; found {files[0].relative_to(folder)} and {len(files) - 1:,} more"
        raise ParameterError(f"no image ({', '.join(IMAGES)}) in the folder {folder}{content}")
    return ImageFiles(images, folder, settings)


def _matching(pattern: str, settings: SourceSettings) -> ImageFiles:
    folder = Path(*takewhile(lambda part: not glob.has_magic(part), Path(pattern).parts))
    below = str(Path(pattern).relative_to(folder))
    files = [file for file in matching(folder, below) if is_file(file)]
    if not files:
        raise ParameterError(f"no file matches {pattern!r}")
    for file in files:
        if not _is_image(file):
            raise ParameterError(
                f"{pattern!r} matches {file}, which is not an image ({', '.join(IMAGES)})"
            )
    return ImageFiles(files, folder, settings)


def _is_image(file: Path) -> bool:
    """Whether a file is an image by its ending; those that are not read are refused one by one."""
    return is_image(file) or is_unread_image(file)


def _printable(name: str) -> str:
    """A file's name with each byte that is not UTF-8 as `\\xff`."""
    return os.fsencode(name).decode(errors="backslashreplace")


def _name(address: Path | int | str) -> str:
    """A name for files; of a stream without user, password and query."""
    if isinstance(address, int):
        return f"camera{address}"
    if isinstance(address, Path):
        return address.stem
    parts = urlsplit(address)
    return re.sub(r"[^\w.-]+", "_", f"{parts.hostname or parts.scheme}{parts.path}").strip("_")


def _opencv(address: str | int) -> Any:
    """OpenCV's capture."""
    try:
        # Only videos need it, and it takes long.
        import cv2
    except ImportError as error:
        raise FartherError(
            f"videos and cameras are read with OpenCV, which cannot be imported ({error}): "
            "pip install opencv-python, or opencv-python-headless on a machine without a display"
        ) from None
    return cv2.VideoCapture(address)
