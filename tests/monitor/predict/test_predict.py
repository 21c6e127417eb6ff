"""Output of `predict` with a replacement of the monitor, whose detections depend on pixels."""

from __future__ import annotations

import itertools
import json
import math
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import supervision as sv
from PIL import Image
from tests.monitor.predict.conftest import FRAMES

from farther import detectors, methods
from farther.command.predict import stop_signal
from farther.detectors.imported import import_splits
from farther.errors import DataError, FartherError, ParameterError
from farther.monitor.drawing import KNOWN, PROPOSED, REJECTED, UNKNOWN, draw
from farther.monitor.drift import Drift, Rates
from farther.monitor.monitor import Monitored
from farther.monitor.predict import LISTED, Predicted, PredictSettings, predict
from farther.monitor.sources import ImageSource, SourceSettings, open_source
from farther.naming.extras import AbsentPackagesError
from farther.tables import Header, Images, Regions, RegionsFolder, Scores

HEADER = Header(
    classes=("background", "dog", "cat"), background_index=0, detector={"name": "stand-in"}
)
ENERGY = methods.create("energy")


@dataclass
class Bundle:
    header: Header = HEADER
    validation: Rates = field(
        default_factory=lambda: Rates(images=100, rejected=20, empty=34, detections=100, unknown=60)
    )
    self_aware: None = None


class Monitor:
    """Yields zero, one or two detections, depending on the sum of an image's pixels.

    The score of the last detection decides whether it is accepted.
    """

    bundle = Bundle()

    def stream(self, images: Any, batch_size: int, failed: Any) -> Iterator[Monitored]:
        for name, pixels in images:
            if name == "unusable.png":
                failed(name, DataError("the network yields infinities"))
                continue
            yield self.monitored(name, pixels)

    @staticmethod
    def monitored(name: str, pixels: np.ndarray) -> Monitored:
        number = int(pixels.astype(int).sum())
        random, count = np.random.default_rng(number), number % 3
        logits = random.normal(0, 2, (count, 3)).astype(np.float32)
        label = logits[:, 1:].argmax(axis=1) + 1
        score = (np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True))[
            np.arange(count), label
        ]
        low = random.uniform(0, 20, (count, 2))
        regions = Regions(
            header=HEADER,
            image_id=[name] * count,
            region_id=np.arange(count),
            box=np.hstack([low, low + 15]),
            score=score,
            label=label,
            logits=logits,
        )
        ood = ENERGY.score(regions)
        return Monitored(
            name, regions, ood, ood < 1.5, regions.score, 0.5, bool(count < 2 or ood[-1] > 0)
        )


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    for number in range(30):
        file = tmp_path / "photos" / f"{number:03}.png"
        file.parent.mkdir(exist_ok=True)
        Image.fromarray(np.random.default_rng(number).integers(0, 255, (40, 50, 3), np.uint8)).save(
            file
        )
    return tmp_path / "photos"


def run(
    source: Path | str, out: Path, taken: SourceSettings | None = None, **settings: Any
) -> tuple[Any, list[str]]:
    lines: list[str] = []
    done = predict(
        Monitor(),
        open_source(str(source), taken),
        PredictSettings(out=out, **settings),
        log=lines.append,
    )
    return done, lines


def found_in(photos: Path) -> list[Monitored]:
    return [
        Monitor.monitored(file.name, np.asarray(Image.open(file)))
        for file in sorted(photos.iterdir())
    ]


@pytest.mark.parametrize("shard_images", [7, 512])
def test_all_files_say_what_the_monitor_found(photos, tmp_path, shard_images):
    done, lines = run(photos, tmp_path / "out", shard_images=shard_images, window=100)
    expected = found_in(photos)
    boxes = np.concatenate([one.box for one in expected])
    regions = Regions.read(tmp_path / "out/regions")
    assert np.array_equal(regions.box, boxes)
    assert len(RegionsFolder(tmp_path / "out/regions").shards) == math.ceil(30 / shard_images)
    assert regions.image_id.tolist() == [one.image_id for one in expected for _ in range(len(one))]
    scores = pl.read_parquet(tmp_path / "out/scores.parquet")
    np.testing.assert_allclose(
        scores["score"], np.concatenate([one.score for one in expected]), rtol=1e-9
    )
    assert scores["unknown"].to_list() == np.concatenate([one.unknown for one in expected]).tolist()
    images = pl.read_parquet(tmp_path / "out/images.parquet")
    assert images["image_id"].to_list() == [one.image_id for one in expected]
    assert images["detections"].to_list() == [len(one) for one in expected]
    assert images["accepted"].to_list() == [one.accepted for one in expected]
    results = json.loads((tmp_path / "out/detections.json").read_text())
    assert [result["image_id"] for result in results] == regions.image_id.tolist()
    assert np.allclose([result["bbox"][2] for result in results], 15, atol=1e-5)
    assert len(list((tmp_path / "out/pictures").iterdir())) == 30
    assert done.drift.total.images == 30
    assert [window.rates.images for window in done.drift.windows] == [30]  # the last one is shorter
    assert str(done).startswith("30 images in ")
    assert replace(done, seconds=2.0).per_second == 15.0
    assert replace(done, seconds=0.0).per_second == 0.0
    assert lines == []


def test_what_was_deployed_is_judged_when_labels_arrive(photos, tmp_path):
    """The regions are imported as a run with a split of the labelled images, which have new ids."""
    run(photos, tmp_path / "out", pictures=False)
    rows = range(5, 25)
    labelled = Images(
        image_id=[f"id{row}" for row in rows],
        dataset=["field"] * 20,
        file=[f"2026/{row:03}.png" for row in rows],
        width=[50] * 20,
        height=[40] * 20,
        digest=["-"] * 20,
    )
    labelled.write(tmp_path / "splits/field/images.parquet")
    for adapter, weights, params in (
        ("parquet", "out/regions", {}),
        (
            "coco_results",
            "out/detections.json",
            {"classes": ["dog", "cat"], "score_tolerance": None},
        ),
    ):
        imported = detectors.create(adapter, weights=tmp_path / weights, **params)
        import_splits(
            imported, tmp_path / "splits", tmp_path / adapter, tmp_path / "work", log=lambda _: None
        )
        regions = Regions.read(tmp_path / adapter / "field")
        expected = found_in(photos)[5:25]
        assert np.allclose(regions.box, np.concatenate([one.box for one in expected]), atol=1e-4)
        if adapter == "parquet":
            np.testing.assert_allclose(
                ENERGY.score(regions), np.concatenate([one.score for one in expected]), rtol=1e-9
            )
            assert regions.header.known_classes == HEADER.known_classes
    assert len(Scores.read(tmp_path / "out/scores.parquet")) == len(
        Regions.read(tmp_path / "out/regions")
    )


def test_images_that_cannot_be_used_are_listed_and_left_out(photos, tmp_path):
    (photos / "000.png").write_text("damaged")
    (photos / "001.png").rename(photos / "unusable.png")
    done, lines = run(photos, tmp_path / "out", shard_images=4)
    assert done.failed == 2
    assert "2 images could not be used" in str(done)
    assert [line.partition(":")[0] for line in lines if not line.startswith("drift")] == [
        "000.png",
        "unusable.png",
    ]
    folder = RegionsFolder(tmp_path / "out/regions")
    assert [failure["image_id"] for failure in folder.failures] == ["000.png", "unusable.png"]
    assert folder.info["images"] == 30
    assert pl.read_parquet(tmp_path / "out/images.parquet").height == 28


def test_a_source_without_a_usable_image_gives_files_without_rows(photos, tmp_path):
    for file in photos.iterdir():
        file.write_text("damaged")
    done, lines = run(photos, tmp_path / "out", shard_images=4)
    assert done.failed == 30
    assert len(lines) == LISTED
    assert len(Regions.read(tmp_path / "out/regions")) == 0
    assert json.loads((tmp_path / "out/detections.json").read_text()) == []


def test_a_run_without_an_image_writes_all_files(photos, tmp_path):
    settings = PredictSettings(out=tmp_path / "out", pictures=False)
    predict(Monitor(), open_source(str(photos)), settings, log=lambda _: None, stopped=lambda: True)
    regions = Regions.read(tmp_path / "out/regions")
    assert (len(regions), regions.header.classes) == (0, HEADER.classes)
    for name in ("scores", "images"):
        assert pl.read_parquet(tmp_path / f"out/{name}.parquet").height == 0
    assert json.loads((tmp_path / "out/detections.json").read_text()) == []
    assert json.loads((tmp_path / "out/drift.json").read_text())["total"]["images"] == 0


def test_pictures_have_the_colours_of_their_images(tmp_path):
    (tmp_path / "photos").mkdir()
    Image.new("RGB", (50, 40), (200, 40, 90)).save(tmp_path / "photos/plain.png")  # no detections
    run(tmp_path / "photos", tmp_path / "out")
    picture = np.asarray(Image.open(tmp_path / "out/pictures/plain.jpg"))
    np.testing.assert_allclose(picture[100:300, 100:300].mean(axis=(0, 1)), (200, 40, 90), atol=3)


def test_each_image_has_a_picture_whatever_its_ending_and_folder(tmp_path):
    colours = {
        "a.jpg": (200, 40, 90),
        "a.png": (20, 200, 90),
        "a.webp": (20, 40, 200),
        "A.bmp": (90, 90, 90),
        "b/a.png": (250, 250, 0),
        "c.png": (0, 0, 0),
    }
    for name, colour in colours.items():
        file = tmp_path / "photos" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (50, 40), colour).save(file)
    run(tmp_path / "photos", tmp_path / "out")
    folder = tmp_path / "out/pictures"
    written = {file.relative_to(folder).as_posix(): file for file in folder.rglob("*.*")}
    of_images = {"A.jpg", "a.jpg.jpg", "a.png.jpg", "a.webp.jpg", "b/a.jpg", "c.jpg"}
    assert written.keys() == of_images
    pixels = {name: np.asarray(Image.open(file)).reshape(-1, 3) for name, file in written.items()}
    for name, image in {
        "A.jpg": "A.bmp",
        "a.jpg.jpg": "a.jpg",
        "a.webp.jpg": "a.webp",
        "b/a.jpg": "b/a.png",
    }.items():
        np.testing.assert_allclose(np.median(pixels[name], axis=0), colours[image], atol=4)


@pytest.mark.parametrize(
    ("is_live", "asked", "expected"),
    [(False, None, 8), (True, None, 1), (False, 3, 3), (True, 3, 3)],
)
def test_eight_images_go_through_the_network_together_and_those_of_a_live_source_one_by_one(
    is_live, asked, expected, tmp_path
):
    sizes = []

    class Recording(Monitor):
        def stream(self, images, batch_size, failed):
            sizes.append(batch_size)
            return iter(())

    class Empty(ImageSource):
        name = "empty"

        def frames(self, failed):
            yield from ()

    source = Empty()
    source.is_live = is_live
    predict(
        Recording(), source, PredictSettings(out=tmp_path / "out", pictures=False, batch_size=asked)
    )
    assert sizes == [expected]


def test_a_video_becomes_an_annotated_video(video, tmp_path):
    done, _ = run(video, tmp_path / "out", SourceSettings(every=2), window=10)
    info = sv.VideoInfo.from_video_path(str(tmp_path / "out/annotated.mp4"))
    assert (info.total_frames, info.fps) == (FRAMES // 2, 12.5)
    assert (info.width, info.height) == (640, 480 + 22)  # ten times 64×48, and the legend
    assert done.drift.count == 3
    assert (tmp_path / "out/drift/index.html").is_file()
    assert pl.read_parquet(tmp_path / "out/images.parquet")["seconds"].to_list()[
        :2
    ] == pytest.approx([0, 0.08])


def test_frames_of_another_size_fit_into_the_video(photos, tmp_path):
    class Growing(ImageSource):
        name, total, fps = "growing", 2, 25.0

        def frames(self, failed):
            from farther.monitor.sources import Frame

            for side in (40, 80):
                yield Frame(f"{side}", np.full((side, 60, 3), side, np.uint8))

    predict(Monitor(), Growing(), PredictSettings(out=tmp_path / "out"))
    assert sv.VideoInfo.from_video_path(str(tmp_path / "out/annotated.mp4")).total_frames == 2


def test_a_video_whose_last_frame_was_not_written_is_refused(video, tmp_path, monkeypatch):
    written, write = [], sv.VideoSink.write_frame

    def write_frame(sink, frame):
        written.append(frame)
        if len(written) < FRAMES // 4:
            write(sink, frame)

    monkeypatch.setattr(sv.VideoSink, "write_frame", write_frame)
    with pytest.raises(
        FartherError, match=r"annotated\.mp4: the video is not whole; its last frame cannot be read"
    ):
        run(video, tmp_path / "out", SourceSettings(every=4))
    assert len(written) == FRAMES // 4


def test_numbers_of_one_are_singular_and_rejected_images_have_their_threshold():
    drift = Drift(Rates(images=250, rejected=44), window=1)
    drift.add(1, 0, accepted=False)
    done = Predicted(drift, failed=1, seconds=0.5, image_threshold=0.41234)
    assert str(done) == (
        "1 image in 0.5 s (2.0 per second); 1 detection, 0 of them unknown; "
        "something unknown in 0 images; "
        "1 image rejected (uncertainty above 0.412, as of 44 of 250 ID validation images); "
        "1 image could not be used"
    )


def luminance(code: str) -> float:
    """Relative luminance of WCAG 2."""
    values = np.array([int(code[start : start + 2], 16) for start in (1, 3, 5)]) / 255
    linear = np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


@pytest.mark.parametrize("code", [KNOWN, UNKNOWN, PROPOSED, REJECTED])
def test_white_text_can_be_read_on_each_colour(code):
    assert 1.05 / (luminance(code) + 0.05) >= 4


def test_known_detections_are_grey_and_boxes_have_a_halo():
    red, green, blue = (int(KNOWN[start : start + 2], 16) for start in (1, 3, 5))
    assert max(red, green, blue) - min(red, green, blue) < 32
    regions = Regions(
        header=HEADER,
        image_id=["a"],
        region_id=[0],
        box=[[2, 20, 12, 35]],
        score=[0.9],
        label=[1],
        logits=np.zeros((1, 3), np.float32),
    )
    found = Monitored("a", regions, np.zeros(1), np.array([False]), regions.score)
    row = draw(np.zeros((40, 50, 3), np.uint8), found)[27 * 13, : 12 * 13]
    colours = [tuple(colour) for colour in row.tolist()]
    line = colours.index((blue, green, red))
    assert colours[line - 1] == (255, 255, 255)


def test_known_unknown_and_rejected_have_their_colours():
    pixels = np.zeros((40, 50, 3), np.uint8)
    regions = Regions(
        header=HEADER,
        image_id=["a", "a"],
        region_id=[0, 1],
        box=[[2, 20, 12, 35], [30, 20, 42, 35]],
        score=[0.9, 0.8],
        label=[1, 2],
        logits=np.zeros((2, 3), np.float32),
    )
    for accepted in (True, False):
        found = Monitored(
            "a", regions, np.zeros(2), np.array([False, True]), regions.score, 0.5, accepted
        )
        seen = draw(pixels, found)
        side = 13  # 650 / 50 pixels
        colours = {
            tuple(seen[27 * side, 2 * side].tolist()),
            tuple(seen[27 * side, 30 * side].tolist()),
        }
        assert colours == {sv.Color.from_hex(code).as_bgr() for code in (KNOWN, UNKNOWN)}
        edge = tuple(seen[10 * side, 0].tolist())
        assert edge == ((0, 0, 0) if accepted else sv.Color.from_hex(REJECTED).as_bgr())


@pytest.mark.parametrize(
    ("proposals", "accepted"), itertools.product((None, Regions.empty(HEADER)), (True, False))
)
def test_the_legend_has_a_whole_key_of_each_colour_and_the_images_name(proposals, accepted):
    found = Monitored(
        "", Regions.empty(HEADER), *np.zeros((3, 0)), accepted=accepted, proposals=proposals
    )
    pixels, height = np.zeros((40, 50, 3), np.uint8), 13 * 40  # the image is enlarged 13 times
    legend, named = (draw(pixels, replace(found, image_id=name))[height:] for name in ("", "a"))
    shown = {KNOWN: True, UNKNOWN: True, PROPOSED: proposals is not None, REJECTED: not accepted}
    for code, has_key in shown.items():
        rows, columns = np.nonzero((legend == sv.Color.from_hex(code).as_bgr()).all(axis=2))
        assert (len(rows) > 50) == has_key
        assert not has_key or len(rows) == (np.ptp(rows) + 1) * (np.ptp(columns) + 1)
    changed = np.nonzero((legend != named).any(axis=2))[0]
    assert 0 < changed.min() < changed.max() < len(legend) - 1


def test_ctrl_c_ends_the_run_with_everything_written(photos, tmp_path):
    source = open_source(str(photos))
    with stop_signal() as stop:
        read = source.frames

        def interrupted(failed):
            for number, frame in enumerate(read(failed)):
                if number == 10:
                    signal.raise_signal(signal.SIGINT)
                yield frame

        source.frames = interrupted
        done = predict(
            Monitor(), source, PredictSettings(out=tmp_path / "out"), stopped=stop.is_set
        )
        assert done.drift.total.images == 10
        with pytest.raises(KeyboardInterrupt):  # the second one
            signal.raise_signal(signal.SIGINT)
    assert len(set(Regions.read(tmp_path / "out/regions").image_id)) <= 10
    assert pl.read_parquet(tmp_path / "out/images.parquet").height == 10
    assert isinstance(json.loads((tmp_path / "out/detections.json").read_text()), list)


class Failing(Monitor):
    """Fails at an image."""

    def __init__(self, number: int, error: BaseException):
        self.number, self.error = number, error

    def stream(self, images, batch_size, failed):
        for number, monitored in enumerate(super().stream(images, batch_size, failed)):
            if number == self.number:
                raise self.error
            yield monitored


@pytest.mark.parametrize("error", [DataError("out of order"), KeyboardInterrupt()])
def test_after_an_error_nothing_of_a_run_over_files_is_left_and_the_next_one_is_whole(
    photos, tmp_path, error
):
    with pytest.raises(type(error)):
        predict(Failing(5, error), open_source(str(photos)), PredictSettings(out=tmp_path / "out"))
    assert [file.name for file in tmp_path.iterdir()] == ["photos"]
    run(photos, tmp_path / "out")
    assert pl.read_parquet(tmp_path / "out/images.parquet").height == 30


@pytest.mark.parametrize(("number", "kept"), [(5, 5), (0, None)])
def test_what_was_found_in_a_live_source_before_an_error_is_written(photos, tmp_path, number, kept):
    source = open_source(str(photos))
    source.is_live = True
    failing = Failing(number, DataError("out of order"))
    with pytest.raises(DataError, match="out of order"):
        predict(failing, source, PredictSettings(out=tmp_path / "out"))
    if kept is None:
        assert not (tmp_path / "out").exists()
    else:
        assert pl.read_parquet(tmp_path / "out/images.parquet").height == kept


def test_an_earlier_prediction_is_replaced_where_that_is_asked_for(photos, tmp_path):
    run(photos, tmp_path / "out")
    (tmp_path / "out/pictures/of the earlier one.jpg").touch()
    with pytest.raises(ParameterError, match="out already exists: replace it with --overwrite"):
        run(photos, tmp_path / "out")
    run(photos, tmp_path / "out", SourceSettings(limit=2), overwrite=True)
    assert len(list((tmp_path / "out/pictures").iterdir())) == 2


def test_other_files_are_never_overwritten(photos, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/notes.txt").write_text("mine")
    for overwrite in (False, True):
        with pytest.raises(ParameterError, match=r"name another folder|choose another folder"):
            run(photos, tmp_path / "out", overwrite=overwrite)
    assert (tmp_path / "out/notes.txt").read_text() == "mine"


def test_an_absent_package_is_named_before_the_first_image(photos, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "farther.naming.extras.is_installed", lambda module: module != "supervision"
    )
    with pytest.raises(AbsentPackagesError, match=r"'supervision': pip install 'farther\["):
        run(photos, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    run(photos, tmp_path / "out", pictures=False)


def test_frames_in_memory_do_not_grow_with_the_number_of_images(tmp_path):
    from weakref import WeakSet

    from farther.monitor.sources import Frame

    alive: WeakSet[Frame] = WeakSet()
    most = 0

    class Endless(ImageSource):
        name, total = "endless", None

        def frames(self, failed):
            nonlocal most
            for number in range(500):
                frame = Frame(f"{number}.png", np.full((4, 4, 3), number % 7, np.uint8))
                alive.add(frame)
                most = max(most, len(alive))
                yield frame

    settings = PredictSettings(out=tmp_path / "out", pictures=False, shard_images=50)
    done = predict(Monitor(), Endless(), settings, log=lambda _: None)
    assert most <= 3
    assert [window.rates.images for window in done.drift.windows] == [200, 200, 100]
