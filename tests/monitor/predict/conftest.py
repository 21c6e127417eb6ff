"""A video, and a stand-in for OpenCV's capture."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import supervision as sv

FRAMES, FPS = 60, 25


def picture(number: int) -> np.ndarray:
    """A frame (BGR) whose red rises with its number, with noise that does not compress well."""
    frame = np.random.default_rng(number).integers(0, 30, (48, 64, 3), np.uint8)
    frame[:, :, 2] = 4 * number % 256
    return frame


@pytest.fixture(scope="session")
def video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A video of `FRAMES` frames."""
    file = tmp_path_factory.mktemp("video") / "clip.avi"
    with sv.VideoSink(str(file), sv.VideoInfo(64, 48, FPS), codec="MJPG") as sink:
        for number in range(FRAMES):
            sink.write_frame(picture(number))
    return file


class StandIn:
    """A replacement of OpenCV's `VideoCapture` that gives the frames of a list.

    A frame that is None cannot be read.
    """

    def __init__(self, frames: list[np.ndarray | None], *, opens: bool = True):
        self.frames, self.opens, self.released = list(frames), opens, False

    def isOpened(self) -> bool:  # noqa: N802, OpenCV's name
        return self.opens

    def get(self, number: int) -> float:
        return 0.0

    def read(self) -> tuple[bool, np.ndarray | None]:
        frame = self.frames.pop(0) if self.frames else None
        return frame is not None, frame

    def grab(self) -> bool:
        return self.read()[0]

    def release(self) -> None:
        self.released = True
