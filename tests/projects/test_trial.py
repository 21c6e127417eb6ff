"""`farther try`: a detector on a folder of images, without a project."""

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from tests.projects.files import coco, picture, results
from tests.support.messages import ABSENT

from farther.command.program import main
from farther.errors import DataError, ParameterError
from farther.projects.trial import PAGE, Trial, try_detector, write_page
from farther.tables import Objects

DETECTOR = Path(__file__).parents[2] / "data/demo/voc-yolov8.safetensors"


@pytest.fixture
def photos(tmp_path) -> Path:
    """Five images that nobody annotated."""
    for number in range(5):
        picture(tmp_path / f"photos/{number}.jpg")
    return tmp_path / "photos"


@pytest.fixture
def annotated(tmp_path) -> Path:
    """An image with a fox."""
    picture(tmp_path / "wild/a.jpg")
    coco(tmp_path / "wild/_annotations.coco.json", "a.jpg", ("fox", "Cat"))
    return tmp_path / "wild"


def test_images_are_evenly_spread_and_counted(photos):
    trial = try_detector(DETECTOR, photos, limit=3)
    assert (len(trial.images), trial.total) == (3, 5)
    assert [Path(file).stem for file in trial.images.file] == ["0", "2", "4"]
    assert "in 3 of 5 images, evenly spread" in trial.sentences()[0]
    assert "Nothing is annotated" in trial.sentences()[1]


def test_each_detection_has_the_scores_that_need_no_fitting(photos):
    trial = try_detector(DETECTOR, photos, limit=1, confidence=0.0)
    assert len(trial.regions) > 0
    assert {"Confidence", "MSP", "Energy"} <= set(trial.scores)
    for scores in trial.scores.values():
        assert scores.shape == (len(trial.regions),)
    assert np.array_equal(trial.scores["Confidence"], trial.regions.score)


def test_detections_below_the_confidence_are_left_out(photos):
    everything = try_detector(DETECTOR, photos, limit=1, confidence=0.0)
    cut = float(np.median(everything.regions.score))
    some = try_detector(DETECTOR, photos, limit=1, confidence=cut)
    assert len(some.regions) == np.sum(everything.regions.score >= np.float32(cut))


def test_objects_that_it_does_not_know_are_missed_or_taken_for_something(annotated):
    trial = try_detector(DETECTOR, annotated, confidence=1.0)
    assert isinstance(trial.objects, Objects)
    assert trial.sentences()[1] == (
        "Of 1 objects that it does not know (fox), it detects 0% as something it knows and misses "
        "100%."
    )


def test_labels_may_lie_in_another_folder(photos, tmp_path):
    trial = try_detector(DETECTOR, photos, limit=1)
    assert trial.objects is None
    picture(tmp_path / "both/0.jpg")
    coco(tmp_path / "both/_annotations.coco.json", "0.jpg", ("fox", "Cat"))
    trial = try_detector(DETECTOR, photos, tmp_path / "both", confidence=1.0)
    assert "fox" in trial.sentences()[1]


def test_the_page_opens_by_itself_and_has_each_image(annotated, tmp_path):
    trial = try_detector(DETECTOR, annotated, confidence=0.0)
    page = write_page(trial, tmp_path / "out")
    text = page.read_text()
    data = json.loads(re.search(r'id="trial-data">(.*?)</script>', text, re.DOTALL)[1])
    (image,) = data["images"]
    assert [category for _, category in image["objects"]] == ["fox"]
    assert len(image["detections"]) == len(trial.regions)
    assert (tmp_path / "out/assets/trial.js").is_file()
    write_page(trial, tmp_path / "out")  # its own folder is replaced


def test_a_folder_of_something_else_is_not_replaced(photos, tmp_path):
    trial = try_detector(DETECTOR, photos, limit=1)
    with pytest.raises(ParameterError, match=PAGE):
        write_page(trial, photos)
    assert len(list(photos.iterdir())) == 5


def test_the_command_says_what_to_do_next(photos, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    assert main(["try", str(DETECTOR), "photos", "--images", "1"]) == 0
    printed = capsys.readouterr()
    assert str(tmp_path / "tried" / PAGE) in printed.out
    assert "farther init project --id ID_DATASET --ood photos" in " ".join(printed.err.split())


def test_a_path_with_a_blank_is_quoted(photos):
    trial = try_detector(DETECTOR, photos, limit=1)
    words = shlex.split(Trial.command(trial))
    assert words[words.index("--detector") + 1] == str(DETECTOR)


@pytest.mark.parametrize(
    ("values", "problem"),
    [({"limit": 0}, "--images"), ({"confidence": 1.5}, "--confidence")],
)
def test_limits_out_of_range_are_refused(photos, values, problem):
    with pytest.raises(ParameterError, match=problem):
        try_detector(DETECTOR, photos, **values)


def test_what_is_no_detector_and_what_is_no_image_is_named(photos, tmp_path):
    with pytest.raises(DataError, match=ABSENT):
        try_detector(tmp_path / "none.pt", photos)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="empty"):
        try_detector(DETECTOR, tmp_path / "empty")
    with pytest.raises(ParameterError, match="detections"):
        try_detector(results(tmp_path / "r.json", "cat"), photos)
