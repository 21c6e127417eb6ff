"""Files of detections: formats, names and numbers of classes, and assumptions about them."""

import json

import pytest

from farther.errors import DataError
from farther.projects import recognise, recognise_detector


def labelled(folder, name_by_number, number_by_image):
    """A dataset of COCO labels, with one box per image.

    Args:
        folder: Its folder.
        name_by_number: Name of each class by its number in the file.
        number_by_image: Number of the class in each image.
    """
    images = []
    annotations = []
    for image_id, number in enumerate(number_by_image):
        images.append({"id": image_id, "file_name": f"{image_id}.jpg", "width": 9, "height": 9})
        annotation = {
            "id": image_id,
            "image_id": image_id,
            "category_id": number,
            "bbox": [0, 0, 9, 9],
            "area": 81,
            "iscrowd": 0,
        }
        annotations.append(annotation)
    categories = [{"id": number, "name": name} for number, name in name_by_number.items()]
    content = {"images": images, "annotations": annotations, "categories": categories}
    folder.mkdir()
    (folder / "all.json").write_text(json.dumps(content))
    return recognise(folder)


@pytest.fixture
def pets(tmp_path):
    """Twelve images, each of a cat or of a dog, whose numbers are 3 and 4."""
    return labelled(tmp_path / "pets", {3: "cat", 4: "dog"}, [3, 4] * 6)


@pytest.fixture
def found(tmp_path):
    """A folder for files of detections."""
    (tmp_path / "found").mkdir()
    return tmp_path / "found"


def test_tables_say_how_many_detections_there_are_and_with_what(pets, found):
    (found / "r.csv").write_text(
        "image,x1,y1,x2,y2,class,conf,logits\n"
        'a.jpg,0,0,9,9,dog,0.7311,"[1, 0, 0]"\n'
        'a.jpg,0,0,9,9,owl,0.3,"[0, 0, 1]"\n'
    )
    recognised = recognise_detector(found / "r.csv", pets)
    params = {"score_threshold": 0.3, "classes": ["cat", "dog", "owl"]}
    assert recognised.entry == {
        "adapter": "detections",
        "params": params,
        "weights": str(found / "r.csv"),
    }
    assert recognised.content == "2 detections of 1 images, with logits; without features"
    assert recognised.assumed == ""


@pytest.mark.parametrize(
    ("lines", "columns"),
    [
        (["0 0.5 0.5 0.2 0.4 0.9", "1 0.9 0.9 0.2 0.2 0.3"], None),
        (["0 0.9 0.5 0.5 0.2 0.4", "1 0.3 0.9 0.9 0.2 0.2"], "class score cx cy width height"),
        (["0 0.9 10 20 30 40", "1 0.3 60 70 80 90"], "class score xmin ymin xmax ymax"),
        (["0 0.9 10 20 30 40", "1 0.3 60 70 20 20"], "class score xmin ymin width height"),
    ],
)
def test_columns_of_text_files_are_those_whose_boxes_lie_in_an_image(pets, found, lines, columns):
    (found / "a.txt").write_text("\n".join(lines))
    recognised = recognise_detector(found, pets)
    params = recognised.entry["params"]
    assert (params.get("columns"), params["categories"]) == (
        columns and columns.split(),
        {0: "cat", 1: "dog"},
    )
    assert params.get("fractions", False) == (columns is None or "cx" in columns)
    assert params["score_threshold"] == 0.3
    assert (
        "classes are numbers: assumed to be the ID dataset's, in its order, from 0"
        in recognised.assumed
    )


def test_names_beside_the_files_are_those_of_the_numbers(pets, found):
    (found / "a.txt").write_text("2 0.5 0.5 0.2 0.4 0.9")
    with pytest.raises(
        DataError, match=r"class 2 is not a class of the ID dataset .*classes\.txt beside the file"
    ):
        recognise_detector(found, pets)
    (found / "classes.txt").write_text("dog\nowl\ncat\n")
    recognised = recognise_detector(found, pets)
    assert (recognised.entry["params"]["categories"], recognised.assumed) == (
        {0: "dog", 1: "owl", 2: "cat"},
        "",
    )


@pytest.mark.parametrize("name", ["results.pkl", "instances_predictions.pth"])
def test_pickled_objects_are_refused_with_the_file_to_give(pets, found, name):
    (found / name).write_bytes(b"\x80\x04]\x94.")
    with pytest.raises(
        DataError, match=r"pickled objects.*(results\.bbox|coco_instances_results)\.json"
    ):
        recognise_detector(found / name, pets)


def test_classes_of_a_coco_file_that_were_not_detected_are_the_detectors(pets, found):
    content = {
        "images": [{"id": 1, "file_name": "a.jpg"}],
        "categories": [{"id": 1, "name": "dog"}, {"id": 2, "name": "owl"}],
        "annotations": [{"image_id": 1, "category_id": 1, "bbox": [0, 0, 9, 9], "score": 0.5}],
    }
    (found / "labels.json").write_text(json.dumps(content))
    assert recognise_detector(found / "labels.json", pets).header.known_classes == (
        "cat",
        "dog",
        "owl",
    )


def test_numbers_that_disagree_with_what_is_labelled_are_doubted(pets, found):
    for numbers, doubted in ((0, 1), False), ((1, 0), True):
        for k in range(12):
            (found / f"{k}.txt").write_text(
                f"{numbers[k % 2]} 0.5 0.5 0.2 0.4 0.9\n{numbers[1 - k % 2]} 0.5 0.5 0.2 0.4 0.3\n"
            )
        said = recognise_detector(found, pets).assumed
        assert (
            "in only 0 of 12 labelled images does the best detection have a labelled class" in said
        ) == doubted


def results_of_pets(folder, number, *, images=12, without=None, **fields):
    """COCO results of the best detection of each of twelve images, with the number of its class."""
    detections = []
    for k in range(images):
        if k % 2 == without:
            continue
        detection = {
            "image_id": k,
            "category_id": number(k % 2),
            "bbox": [0, 0, 9, 9],
            "score": 0.5,
        }
        for name, value in fields.items():
            detection[name] = value(k)
        detections.append(detection)
    (folder / "predictions.json").write_text(json.dumps(detections))
    return folder / "predictions.json"


@pytest.mark.parametrize(
    ("number", "categories", "assumed"),
    [
        (lambda k: 3 + k, {3: "cat", 4: "dog"}, "assumed to be those of the ID dataset's files"),
        (
            lambda k: k,
            {0: "cat", 1: "dog"},
            "the ID dataset's, in its order, from 0, as in 12 of 12 labelled images",
        ),
        (
            lambda k: 1 + k,
            {1: "cat", 2: "dog"},
            "the ID dataset's, in its order, from 1, as in 12 of 12 labelled images",
        ),
        (
            lambda k: 4 - k,
            {3: "cat", 4: "dog"},
            "files, but in only 0 of 12 labelled images does the best",
        ),
    ],
)
def test_the_numbers_of_coco_results_are_tested_on_labelled_images(
    pets, found, number, categories, assumed
):
    recognised = recognise_detector(results_of_pets(found, number), pets)
    assert recognised.entry["params"]["categories"] == categories
    assert recognised.assumed.startswith("classes are numbers: assumed to be ")
    assert assumed in recognised.assumed
    assert ("write the right names into `categories`" in recognised.assumed) == (
        "but in only" in assumed
    )


@pytest.mark.parametrize("first", [0, 1])
def test_numbers_shifted_by_one_are_seen_where_the_last_or_first_class_is_never_detected(
    tmp_path, found, first
):
    name_by_number = {first: "cat", first + 1: "dog", first + 2: "fox"}
    number_by_image = [2 * first, 2 * first + 1] * 10
    foxes = labelled(tmp_path / "foxes", name_by_number, number_by_image)
    # Labels from 0 show cat and dog, and detections count from 1; or labels from 1 show dog and
    # fox, and these from 0.
    file = results_of_pets(
        found, lambda k: k + 1, images=20, file_name=lambda k: f"/elsewhere/{k}.jpg"
    )
    recognised = recognise_detector(file, foxes)
    assumed_first = 1 - first
    categories = {assumed_first: "cat", assumed_first + 1: "dog", assumed_first + 2: "fox"}
    assert recognised.entry["params"]["categories"] == categories
    words = f"in its order, from {assumed_first}, as in 20 of 20 labelled images"
    assert words in recognised.assumed
    assert recognised.assumed.endswith("(else in 0)")


@pytest.mark.parametrize("written", ["{:.1f}", " {}", "{}.", "{:d}"])
def test_classes_in_texts_are_numbers_however_they_are_written(pets, found, written):
    lines = [f"{written.format(k % 2)},{k}.jpg,0,0,9,9,0.5" for k in range(12)]
    (found / "r.csv").write_text("\n".join(["class,file,x1,y1,x2,y2,score", *lines]))
    recognised = recognise_detector(found / "r.csv", pets)
    assert recognised.entry["params"]["categories"] == {0: "cat", 1: "dog"}
    assert "but in only" not in recognised.assumed


@pytest.mark.parametrize(
    "number", [lambda k: float(3 + k), lambda k: str(3 + k), lambda k: f"{3 + k}.0"]
)
def test_numbers_of_coco_results_may_be_floats_or_texts(pets, found, number):
    recognised = recognise_detector(results_of_pets(found, number), pets)
    assert recognised.entry["params"]["categories"] == {3: "cat", 4: "dog"}
    assert recognised.header.known_classes == ("cat", "dog")


def test_names_of_classes_that_are_digits_are_names(tmp_path, found):
    content = {
        "images": [{"id": 1, "file_name": "1.jpg", "width": 9, "height": 9}],
        "categories": [{"id": 1, "name": "7"}, {"id": 2, "name": "8"}],
        "annotations": [
            {
                "id": 1,
                "image_id": 1,
                "category_id": 1,
                "bbox": [0, 0, 9, 9],
                "area": 81,
                "iscrowd": 0,
            }
        ],
    }
    (tmp_path / "digits").mkdir()
    (tmp_path / "digits/all.json").write_text(json.dumps(content))
    (found / "r.csv").write_text("class,file,x1,y1,x2,y2,score\n7,1.jpg,0,0,9,9,0.5")
    recognised = recognise_detector(found / "r.csv", recognise(tmp_path / "digits"))
    assert recognised.entry["params"] == {"score_threshold": 0.5, "classes": ["7", "8"]}
