"""Sources: files, a video that the test writes, and cameras and streams by a fake capture."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.monitor.predict.conftest import FPS, FRAMES, StandIn, picture

from farther.errors import DataError, FartherError, ParameterError
from farther.monitor.sources import MISSES, PAUSES, SourceSettings, Video, open_source


class Taken:
    """What a source gives: its frames, and what it says of those that cannot be used."""

    def __init__(self, source):
        self.problems: list[tuple[str, str]] = []
        self.frames = list(source.frames(lambda *problem: self.problems.append(problem)))
        self.names = [frame.image_id for frame in self.frames]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b.png", "a.jpg", "street/a.jpg", "notes.txt"):
        file = tmp_path / "photos" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch() if file.suffix == ".txt" else Image.new("RGB", (8, 6), "red").save(file)
    return tmp_path / "photos"


def test_a_folder_gives_its_images_by_their_paths(folder):
    source = open_source(str(folder))
    assert (source.total, source.fps, source.is_live) == (3, None, False)
    taken = Taken(source)
    assert taken.names == ["a.jpg", "b.png", "street/a.jpg"]
    assert taken.frames[1].pixels.shape == (6, 8, 3)
    assert taken.frames[1].pixels[0, 0].tolist() == [255, 0, 0]


def test_an_unreadable_image_is_listed_and_skipped(folder):
    (folder / "a.jpg").write_text("not an image")
    taken = Taken(open_source(str(folder)))
    assert taken.names == ["b.png", "street/a.jpg"]
    ((name, reason),) = taken.problems
    assert name == "a.jpg"
    assert "unknown image format" in reason


def test_an_image_whose_name_is_not_utf_8_is_listed_and_skipped(folder):
    (folder / "a.jpg").rename(folder / os.fsdecode(b"\xff.jpg"))
    taken = Taken(open_source(str(folder)))
    assert taken.names == ["b.png", "street/a.jpg"]
    assert taken.problems == [(r"\xff.jpg", "its name is not UTF-8: rename it")]


def test_images_of_other_formats_are_listed_and_files_of_systems_are_not(folder):
    for name in ("c.JXL", "d.heic", "e.JPG"):
        (folder / name).write_bytes(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic")
    Image.new("RGB", (8, 6)).save(folder / "e.JPG")
    for name in ("._a.jpg", "__MACOSX/._a.jpg", "@eaDir/a.jpg", "Thumbs.db"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"junk")
    taken = Taken(open_source(str(folder)))
    assert taken.names == ["a.jpg", "b.png", "e.JPG", "street/a.jpg"]
    assert [name for name, _ in taken.problems] == ["c.JXL", "d.heic"]
    assert "pip install pillow-heif" in taken.problems[1][1]


def test_a_large_image_is_listed_with_the_option_that_allows_it(folder):
    taken = Taken(open_source(str(folder / "a.jpg"), SourceSettings(max_pixels=47)))
    ((_, reason),) = taken.problems
    assert reason.startswith("8 × 6 = 48 pixels, more than the limit of 47: give --max-pixels")


@pytest.mark.parametrize(
    ("pattern", "names"),
    [("*.jpg", ["a.jpg"]), ("**/*.jpg", ["a.jpg", "street/a.jpg"]), ("street/a.jpg", ["a.jpg"])],
)
def test_a_pattern_or_one_image_is_a_source(folder, pattern, names):
    assert Taken(open_source(f"{folder}/{pattern}")).names == names


def test_every_nth_image_up_to_a_limit(folder):
    assert Taken(open_source(str(folder), SourceSettings(every=2))).names == [
        "a.jpg",
        "street/a.jpg",
    ]
    assert Taken(open_source(str(folder), SourceSettings(limit=2))).names == ["a.jpg", "b.png"]


def test_a_video_gives_numbered_frames_in_rgb_with_their_time(video):
    source = open_source(str(video))
    assert (source.total, source.fps, source.is_live) == (FRAMES, FPS, False)
    taken = Taken(source)
    assert taken.problems == []
    assert [taken.names[0], taken.names[-1]] == ["clip_00000001.jpg", f"clip_{FRAMES:08d}.jpg"]
    reds = [float(frame.pixels[:, :, 0].mean()) for frame in taken.frames]
    assert np.allclose(reds, 4.0 * np.arange(FRAMES), atol=3)
    assert [frame.seconds for frame in taken.frames[:3]] == pytest.approx([0, 1 / FPS, 2 / FPS])


def test_every_nth_frame_keeps_its_number(video):
    source = open_source(str(video), SourceSettings(every=25, limit=2))
    assert (source.total, source.fps) == (2, 1)
    assert Taken(source).names == ["clip_00000001.jpg", "clip_00000026.jpg"]


def test_frames_that_cannot_be_decoded_are_counted(video, tmp_path):
    content = bytearray(video.read_bytes())
    middle = len(content) // 2
    content[middle : middle + len(content) // 10] = b"\xff" * (len(content) // 10)
    (tmp_path / "damaged.avi").write_bytes(content)
    taken = Taken(open_source(str(tmp_path / "damaged.avi")))
    count = len(taken.frames)
    assert FRAMES // 2 < count < FRAMES
    assert taken.problems[-1] == (
        "damaged",
        f"only {count} of the {FRAMES} frames that the file declares could be decoded",
    )


def test_a_broken_frame_is_listed_and_skipped():
    frames = [picture(0), None, None, picture(3)]
    taken = Taken(Video(Path("clip.mp4"), SourceSettings(), lambda _: StandIn(frames)))
    assert taken.names == ["clip_00000001.jpg", "clip_00000004.jpg"]
    reason = "the frame cannot be decoded"
    assert taken.problems == [("clip_00000002.jpg", reason), ("clip_00000003.jpg", reason)]


def test_a_camera_gives_its_newest_frames_in_order_and_never_one_twice():
    asked = []

    def capture(address):
        asked.append(address)
        return StandIn([picture(number) for number in range(200)], opens=len(asked) == 1)

    source = Video(0, SourceSettings(), capture, pause=lambda _: None)
    assert (source.name, source.is_live, source.total) == ("camera0", True, None)
    taken = Taken(source)
    numbers = [int(name.removeprefix("camera0_").removesuffix(".jpg")) for name in taken.names]
    assert numbers == sorted(set(numbers))
    assert numbers[-1] == 200
    assert set(asked) == {0}


def test_a_lost_stream_is_opened_again_and_given_up_after_some_attempts():
    captures = [StandIn([picture(0)]), StandIn([], opens=False), StandIn([picture(1)])]
    pauses: list[float] = []
    source = Video(
        "rtsp://camera.local/gate",
        SourceSettings(),
        lambda _: captures.pop(0) if captures else StandIn([], opens=False),
        pause=pauses.append,
    )
    taken = Taken(source)
    first, second = 1, 1 + MISSES + 1
    assert taken.names == [f"camera.local_gate_{number:08d}.jpg" for number in (first, second)]
    assert [name for name, _ in taken.problems] == ["camera.local_gate"] * 3
    assert taken.problems[-1][1] == f"could not be opened again in {len(PAUSES)} attempts"
    assert pauses == [*PAUSES[:2], *PAUSES]


def test_a_camera_slower_than_its_reader_is_waited_for(monkeypatch):
    waited = threading.Event()

    class Watched(threading.Condition):
        def wait_for(self, predicate, timeout=None):
            waited.set()
            return super().wait_for(predicate, timeout)

    class Slow(StandIn):
        def read(self):
            waited.wait(600)  # until its reader waits
            return super().read()

    captures = [Slow([picture(0)])]
    monkeypatch.setattr(threading, "Condition", Watched)
    opened = lambda _: captures.pop() if captures else StandIn([], opens=False)  # noqa: E731
    frames = Video(0, SourceSettings(), opened, pause=lambda _: None).frames(lambda *_: None)
    assert next(frames).image_id == "camera0_00000001.jpg"
    frames.close()


def test_a_stream_that_is_stopped_is_not_read_any_more(monkeypatch):
    joined, reading, join = threading.Event(), threading.Event(), threading.Thread.join

    class Slow(StandIn):
        def read(self):
            if len(self.frames) == 1:
                reading.set()
                joined.wait(600)  # until its end is waited for
                reading.clear()
            return super().read()

    def watched(thread, timeout=None):
        joined.set()
        join(thread, timeout)

    frames = Video(0, SourceSettings(), lambda _: Slow([picture(0), picture(1)])).frames(print)
    next(frames)
    reading.wait(600)
    monkeypatch.setattr(threading.Thread, "join", watched)
    frames.close()
    assert not reading.is_set()
    joined.set()


@pytest.mark.parametrize(
    ("text", "address", "name"),
    [
        ("0", 0, "camera0"),
        ("rtsp://camera.local/gate", "rtsp://camera.local/gate", "camera.local_gate"),
    ],
)
def test_a_number_is_a_camera_and_an_address_a_stream(text, address, name, monkeypatch):
    opened = []
    monkeypatch.setattr(
        "farther.monitor.sources._opencv", lambda found: opened.append(found) or StandIn([])
    )
    source = open_source(text)
    assert (source.name, source.is_live, opened) == (name, True, [address])


def test_a_stream_that_is_stopped_releases_its_reader():
    frames = Video(0, SourceSettings(), lambda _: StandIn([picture(0)] * 1000)).frames(print)
    reader = next(frames).image_id
    frames.close()
    assert reader.startswith("camera0_")
    with pytest.raises(StopIteration):
        next(frames)


def test_the_password_of_a_stream_is_neither_in_names_nor_in_messages():
    secret = "rtsp://ann:secret@camera.local:554/gate/main?token=secret"
    source = Video(secret, SourceSettings(), lambda _: StandIn([]))
    assert source.name == "camera.local_gate_main"
    with pytest.raises(
        ParameterError, match=r"camera\.local_gate_main cannot be opened"
    ) as refused:
        Video(secret, SourceSettings(), lambda _: StandIn([], opens=False))
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("absent", "no such file or folder: 'absent'"),
        ("photos/*.bmp", r"no file matches 'photos/\*\.bmp'"),
        ("photos/*", "matches photos/notes.txt, which is not an image"),
        ("empty", "no image .* in the folder empty, which is empty"),
        ("texts", "no image .* in the folder texts; found more.txt and 1 more"),
        ("photos/notes.txt", "notes.txt: cannot be opened as a video"),
    ],
)
def test_a_wrong_source_is_named(folder, monkeypatch, source, message):
    monkeypatch.chdir(folder.parent)
    Path("empty").mkdir()
    Path("texts").mkdir()
    Path("texts/notes.txt").touch()
    Path("texts/more.txt").touch()
    with pytest.raises((ParameterError, DataError), match=message):
        open_source(source)


def test_numbers_below_one_are_refused():
    for name in ("every", "limit"):
        with pytest.raises(ParameterError, match=f"{name} is at least 1"):
            SourceSettings(**{name: 0})


def test_without_opencv_the_message_says_what_to_install(video, monkeypatch):
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(FartherError, match="pip install opencv-python, or opencv-python-headless"):
        open_source(str(video))
