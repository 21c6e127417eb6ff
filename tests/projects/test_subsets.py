"""ID splits from the names of files and folders, in every format."""

import json
from pathlib import Path

import pytest
import yaml
from tests.projects.files import coco, picture, results

from farther import datasets
from farther.errors import DataError
from farther.projects import Lookup, ProjectFiles, init, recognise

BOX = "<bndbox><xmin>2</xmin><ymin>2</ymin><xmax>9</xmax><ymax>9</ymax></bndbox>"
XML = f"<annotation><object><name>cat</name>{BOX}</object></annotation>"


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def coco_by_file(root: Path, name: str, image: str) -> None:
    picture(root / f"images/{image}.jpg")
    coco(root / f"annotations/instances_{name}.json", f"{image}.jpg")


def coco_by_folder(root: Path, name: str, image: str) -> None:
    picture(root / name / f"{image}.jpg")
    coco(root / name / "_annotations.coco.json", f"{image}.jpg")


def voc(root: Path, name: str, image: str) -> None:
    picture(root / name / f"{image}.jpg")
    write(root / name / f"{image}.xml", XML)


def voc_image_sets(root: Path, name: str, image: str) -> None:
    picture(root / f"JPEGImages/{image}.jpg")
    write(root / f"Annotations/{image}.xml", XML)
    write(root / f"ImageSets/Main/{name}.txt", f"{image}\n")


def yolo(root: Path, name: str, image: str) -> None:
    write(root / "classes.txt", "cat\ndog\n")
    picture(root / f"images/{name}/{image}.jpg")
    write(root / f"labels/{name}/{image}.txt", "0 0.5 0.5 0.2 0.2\n")


def yolo_around(root: Path, name: str, image: str) -> None:
    write(root / "data.yaml", "names: [cat, dog]\n")
    picture(root / f"{name}/images/{image}.jpg")
    write(root / f"{name}/labels/{image}.txt", "0 0.5 0.5 0.2 0.2\n")


def image_folder(root: Path, name: str, image: str) -> None:
    picture(root / f"{name}/cat/{image}.jpg")


def hugging_face(root: Path, name: str, image: str) -> None:
    picture(root / name / f"{image}.jpg")
    objects = {"bbox": [[1, 2, 8, 6]], "category": ["cat"]}
    row = json.dumps({"file_name": f"{image}.jpg", "objects": objects})
    write(root / name / "metadata.jsonl", f"{row}\n")


FORMATS = (
    coco_by_file,
    coco_by_folder,
    voc,
    voc_image_sets,
    yolo,
    yolo_around,
    image_folder,
    hugging_face,
)
SPELLINGS = (
    ("Train", "Validation", "Test"),
    ("TRAINING", "VALID", "TESTING"),
    ("training", "dev", "testing"),
)
SEPARATED = (
    ("train2017", "val_2017", "test-2"),
    ("TrainImages", "ValImages", "TestImages"),
    ("data train", "data.valid", "data_test"),
)


def project(tmp_path: Path, make, *names: str) -> ProjectFiles:
    """A project whose ID dataset has one image per name, called `image_<number>`."""
    for number, name in enumerate(names):
        make(tmp_path / "id", name, f"image_{number}")
    picture(tmp_path / "ood/a.jpg")
    detector = results(tmp_path / "r.json", "cat", "dog")
    return init(tmp_path / "p", tmp_path / "id", [tmp_path / "ood"], [detector], Lookup())


def params_of(made: ProjectFiles) -> dict:
    return yaml.safe_load(made.texts["params.yaml"])


def images_of_splits(made: ProjectFiles) -> dict[str, list[str]]:
    """Stems of the images in the subset of each ID split."""
    params = params_of(made)
    reader = datasets.create(**params["datasets"]["id"])
    stems: dict[str, list[str]] = {}
    for split, subset in params["benchmarks"]["id"]["subsets"].items():
        name = subset["of"] if isinstance(subset, dict) else subset
        assert name in reader.subsets()
        stems[split] = sorted(Path(file).stem for file in reader.read(name).images.file)
    return stems


@pytest.mark.parametrize("make", FORMATS)
@pytest.mark.parametrize("names", SPELLINGS)
def test_each_subset_is_the_split_that_its_name_means(tmp_path, make, names):
    made = project(tmp_path, make, *names)
    assert images_of_splits(made) == {"train": ["image_0"], "val": ["image_1"], "test": ["image_2"]}


@pytest.mark.parametrize("make", [make for make in FORMATS if make != voc_image_sets])
@pytest.mark.parametrize("names", SEPARATED)
def test_numbers_separators_and_neutral_words_change_no_split(tmp_path, make, names):
    made = project(tmp_path, make, *names)
    assert images_of_splits(made) == {"train": ["image_0"], "val": ["image_1"], "test": ["image_2"]}


@pytest.mark.parametrize("make", FORMATS)
@pytest.mark.parametrize("names", [("train_station", "beach", "market"), ("trains", "contest")])
def test_scenes_are_one_set_that_is_divided(tmp_path, make, names):
    made = project(tmp_path, make, *names)
    every_image = [f"image_{number}" for number in range(len(names))]
    assert images_of_splits(made) == dict.fromkeys(("train", "val", "test"), every_image)
    assert any("is divided at random, the same each time" in line for line in made.assumed())


@pytest.mark.parametrize("make", [make for make in FORMATS if make != voc_image_sets])
def test_a_scene_called_train_is_asked_about_and_no_split(tmp_path, make):
    made = project(tmp_path, make, "train", "beach", "market")
    every_image = ["image_0", "image_1", "image_2"]
    assert images_of_splits(made) == dict.fromkeys(("train", "val", "test"), every_image)
    assert any("train" in line and "beach" in line for line in made.assumed())


def halves(subset: str) -> dict[str, float | str]:
    return {"of": subset, "part": 0.5}


@pytest.mark.parametrize("make", FORMATS)
def test_the_only_folder_beside_train_is_never_mixed_with_training_images(tmp_path, make):
    made = project(tmp_path, make, "train", "holdout")
    assert images_of_splits(made) == {"train": ["image_0"], "val": ["image_1"], "test": ["image_1"]}
    splits = params_of(made)["benchmarks"]["id"]["subsets"]
    assert splits["val"] == splits["test"] == halves(splits["val"]["of"])
    top = made.texts["params.yaml"].partition("datasets:")[0]
    assert "holdout" in top


@pytest.mark.parametrize("name", ["val", "test"])
@pytest.mark.parametrize("make", [make for make in FORMATS if make != voc_image_sets])
def test_the_only_folder_beside_val_or_test_is_never_tested_on(tmp_path, make, name):
    made = project(tmp_path, make, "photos_a", name)
    assert images_of_splits(made) == {"train": ["image_0"], "val": ["image_1"], "test": ["image_1"]}
    assert "photos_a" in made.texts["params.yaml"].partition("datasets:")[0]


@pytest.mark.parametrize("make", FORMATS)
def test_of_two_names_for_one_subset_one_is_used_and_the_other_named(tmp_path, make):
    made = project(tmp_path, make, "train", "val", "dev", "test")
    assert images_of_splits(made) == {"train": ["image_0"], "val": ["image_1"], "test": ["image_3"]}
    assert any("dev" in line for line in made.assumed())


def test_what_is_not_decided_is_asked_at_the_top_of_the_parameters(tmp_path):
    made = project(tmp_path, voc, "train", "val", "dev", "test", "extra")
    top = made.texts["params.yaml"].partition("datasets:")[0]
    assert "# - id: dev may be val, too: val is used and dev is not" in top
    assert "# - id: not used, as no name says for what: extra" in top
    clear = project(tmp_path / "clear", voc, "train", "val", "test")
    assert "To decide" not in clear.texts["params.yaml"]


def test_questions_have_the_names_of_the_files(tmp_path):
    made = project(tmp_path, coco_by_file, "train2014", "train2017", "val2017")
    question = "instances_train2017 may be train, too: instances_train2014 is used"
    assert any(question in line for line in made.assumed())


def test_without_training_images_those_for_validation_are_halved(tmp_path):
    made = project(tmp_path, voc, "Validation", "Test")
    half = {"of": "val", "part": 0.5}
    subsets = params_of(made)["benchmarks"]["id"]["subsets"]
    assert subsets == {"train": half, "val": half, "test": "test"}


def test_folders_of_one_subset_are_read_together(tmp_path):
    made = project(
        tmp_path, coco_by_folder, "train/beach", "train/market", "val/beach", "val/market", "test"
    )
    assert images_of_splits(made) == {
        "train": ["image_0", "image_1"],
        "val": ["image_2", "image_3"],
        "test": ["image_4"],
    }


def test_versions_of_annotations_with_images_in_common_are_not_read_together(tmp_path):
    root = tmp_path / "id"
    for version in ("v1", "v2"):
        for name in ("train", "val", "test"):
            picture(root / f"images/{name}.jpg")
            coco(root / version / f"{name}.json", f"{name}.jpg")
    found = recognise(root)
    assert sorted(found.subsets) == ["test", "train", "val"]
    assert len(found.repeats) == 3
    assert "combined" not in found.entry


def test_shared_images_of_two_splits_are_asked_about(tmp_path):
    for name in ("train", "val", "test"):
        voc_image_sets(tmp_path / "id", name, name)
    write(tmp_path / "id/ImageSets/Main/val.txt", "val\ntrain\n")
    made = project(tmp_path, voc_image_sets)
    assert any("train and val have 1 images in common" in line for line in made.assumed())


def test_image_sets_of_several_kits_and_of_classes_called_train(tmp_path):
    for kit, image in (("VOC2007", "000001"), ("VOC2012", "2008_1")):
        root = tmp_path / kit
        picture(root / f"JPEGImages/{image}.jpg")
        write(root / f"Annotations/{image}.xml", XML)
        for name in ("train", "train_train", "train_val"):
            write(root / f"ImageSets/Main/{name}.txt", f"{image}\n")
    found = recognise(tmp_path)
    assert found.entry["image_sets"] == {"train": ["VOC2007/train", "VOC2012/train"]}
    assert found.images == 2


def test_image_sets_that_are_not_read_are_named(tmp_path):
    for number, name in enumerate(("train", "val", "beach", "dog_train")):
        voc_image_sets(tmp_path, name, f"{number}")
    found = recognise(tmp_path)
    assert found.subsets == ["train", "val"]
    assert found.notes == ("1 lists of ImageSets/Main are not read, such as beach",)


@pytest.mark.parametrize("above", ["data", "archive/data", "images"])
def test_folders_of_classes_are_found_below_further_folders(tmp_path, above):
    for subset in ("train", "val"):
        for name in ("cat", "dog"):
            picture(tmp_path / above / subset / name / "1.jpg")
    found = recognise(tmp_path)
    assert (found.entry["format"], found.categories) == ("image_folder", ["cat", "dog"])
    assert found.entry["folders"] == {"train": f"{above}/train", "val": f"{above}/val"}
    assert found.unlabelled == 0


def test_a_single_image_beside_folders_of_classes_does_not_cost_their_labels(tmp_path):
    for subset in ("train", "val"):
        picture(tmp_path / subset / "cat/1.jpg")
    picture(tmp_path / "preview.jpg")
    found = recognise(tmp_path)
    assert (found.entry["format"], found.categories) == ("image_folder", ["cat"])
    assert found.notes == (
        "1 images are in no folder of a class and are not read, such as preview.jpg",
    )


def test_photographs_below_folders_that_name_no_subset_get_no_classes(tmp_path):
    picture(tmp_path / "wild/images/day_1/1.jpg")
    picture(tmp_path / "wild/images/day_2/2.jpg")
    assert recognise(tmp_path).entry["format"] == "images"


def test_the_user_is_told_that_folders_of_scenes_are_read_as_one_subset(tmp_path):
    picture(tmp_path / "beach/1.jpg")
    picture(tmp_path / "market/2.jpg")
    (note,) = recognise(tmp_path).notes
    assert "the images of its 2 folders are one subset, all" in note
    assert "write folders: {beach: beach, …}" in note


def test_a_class_called_train_is_a_class_beside_others(tmp_path):
    for name in ("airplane", "bus", "train"):
        picture(tmp_path / f"val/{name}/1.jpg")
    found = recognise(tmp_path)
    assert (found.entry["format"], found.categories) == (
        "image_folder",
        ["airplane", "bus", "train"],
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.XML", "<scene><obj xmin='1' ymin='2' xmax='3' ymax='4'/></scene>"),
        ("meta/A.xml", "<points>1 2 3 4</points>"),
        ("labelTxt/a.txt", "gsd:0.1\n1 2 3 2 3 4 1 4 plane 0\n"),
        ("gt.txt", "1,1,912,484,97,109,0,7,1\n"),
        ("list.csv", "a.jpg,1,2,3,4,dog\n"),
        ("all.ndjson", '{"picture": "a.jpg", "polygons": []}\n'),
        ("drawn.JSON", '{"a.jpg": [[1, 2, 3, 4]]}'),
        ("a.mat", "MATLAB"),
    ],
)
def test_a_file_of_boxes_that_no_reader_takes_is_refused_beside_images(tmp_path, name, text):
    picture(tmp_path / "a.jpg")
    write(tmp_path / name, text)
    with pytest.raises(DataError, match=f"{name}: .*not read"):
        recognise(tmp_path)


def test_boxes_beside_folders_of_classes_are_refused(tmp_path):
    picture(tmp_path / "train/cat/a.jpg")
    write(tmp_path / "train.csv", "path,xmin,ymin,xmax,ymax\ncat/a.jpg,1,2,3,4\n")
    with pytest.raises(DataError, match=r"train\.csv: boxes in a form that is not read"):
        recognise(tmp_path)


def test_xml_in_another_format_among_those_of_voc_is_named(tmp_path):
    voc(tmp_path, "train", "a")
    write(tmp_path / "other/b.xml", "<scene><box/></scene>")
    assert "1 XML files are not in VOC's format" in " ".join(recognise(tmp_path).notes)
    write(tmp_path / "train/b.xml", "<scene><box/></scene>")
    with pytest.raises(DataError, match=r"b\.xml: not in VOC's format"):
        recognise(tmp_path)
