"""What `farther init` says of files of detections."""

import json

import pytest

from farther.errors import DataError
from farther.projects import Dataset, recognise_detector

PETS = Dataset({"format": "coco", "root": "."}, ["all"], ["cat", "dog"], {3: "cat", 4: "dog"})


def test_tables_say_how_many_detections_there_are_and_with_what(tmp_path):
    (tmp_path / "r.csv").write_text(
        'image,x1,y1,x2,y2,class,conf,logits\na.jpg,0,0,9,9,dog,0.7311,"[1, 0, 0]"\na.jpg,0,0,9,9,owl,0.3,"[0, 0, 1]"\n'
    )
    found = recognise_detector(tmp_path / "r.csv", PETS)
    params = {"score_threshold": 0.3, "classes": ["cat", "dog", "owl"]}
    assert found.entry == {"adapter": "detections", "params": params, "weights": str(tmp_path / "r.csv")}
    assert found.content == "2 detections of 1 images, with logits; without features"
    assert found.assumed == ""


@pytest.mark.parametrize(
    ("lines", "columns"),
    [
        (["0 0.5 0.5 0.2 0.4 0.9", "1 0.9 0.9 0.2 0.2 0.3"], None),
        (["0 0.9 0.5 0.5 0.2 0.4", "1 0.3 0.9 0.9 0.2 0.2"], "class score cx cy width height"),
        (["0 0.9 10 20 30 40", "1 0.3 60 70 80 90"], "class score xmin ymin xmax ymax"),
        (["0 0.9 10 20 30 40", "1 0.3 60 70 20 20"], "class score xmin ymin width height"),
    ],
)
def test_columns_of_text_files_are_those_whose_boxes_lie_in_an_image(tmp_path, lines, columns):
    (tmp_path / "a.txt").write_text("\n".join(lines))
    found = recognise_detector(tmp_path, PETS)
    params = found.entry["params"]
    assert (params.get("columns"), params["categories"]) == (columns and columns.split(), {0: "cat", 1: "dog"})
    assert params.get("fractions", False) == (columns is None or "cx" in columns)
    assert params["score_threshold"] == 0.3
    assert "classes are numbers: they are taken to be the ID dataset's, in its order, from 0" in found.assumed


def test_names_beside_the_files_are_those_of_the_numbers(tmp_path):
    (tmp_path / "a.txt").write_text("2 0.5 0.5 0.2 0.4 0.9")
    with pytest.raises(DataError, match=r"class 2 is not a class of the ID dataset .*classes\.txt beside the file"):
        recognise_detector(tmp_path, PETS)
    (tmp_path / "classes.txt").write_text("dog\nowl\ncat\n")
    found = recognise_detector(tmp_path, PETS)
    assert (found.entry["params"]["categories"], found.assumed) == ({0: "dog", 1: "owl", 2: "cat"}, "")


@pytest.mark.parametrize("name", ["results.pkl", "instances_predictions.pth"])
def test_pickled_objects_are_refused_with_the_file_to_give(tmp_path, name):
    (tmp_path / name).write_bytes(b"\x80\x04]\x94.")
    with pytest.raises(DataError, match=r"pickled objects.*(results\.bbox|coco_instances_results)\.json"):
        recognise_detector(tmp_path / name, PETS)


def test_classes_of_a_coco_file_that_were_not_detected_are_the_detectors(tmp_path):
    content = {
        "images": [{"id": 1, "file_name": "a.jpg"}],
        "categories": [{"id": 1, "name": "dog"}, {"id": 2, "name": "owl"}],
        "annotations": [{"image_id": 1, "category_id": 1, "bbox": [0, 0, 9, 9], "score": 0.5}],
    }
    (tmp_path / "labels.json").write_text(json.dumps(content))
    assert recognise_detector(tmp_path / "labels.json", PETS).header.known_classes == ("cat", "dog", "owl")
