"""Endings in any case, files of systems and images that are not read, in each format."""

import json
from pathlib import Path

import pytest
from PIL import Image
from tests.projects.files import coco, picture, results

from farther import datasets
from farther.datasets.base import UNREAD_IMAGES
from farther.datasets.yolo_labels import UNREAD
from farther.detectors.imported.formats import files_of
from farther.errors import DataError
from farther.projects import recognise
from farther.projects.recognise_detector import recognise_detector

XML = (
    "<annotation><filename>{}</filename><object><name>fox</name>"
    "<bndbox><xmin>2</xmin><ymin>2</ymin><xmax>9</xmax><ymax>9</ymax></bndbox></object></annotation>"
)
APPLE_DOUBLE = b"\x00\x05\x16\x07\x00\x02\x00\x00Mac OS X        \x80\xff"


def lay_coco(root: Path) -> None:
    picture(root / "images/a.jpg")
    coco(root / "annotations/all.json", "a.jpg")


def lay_yolo(root: Path) -> None:
    for name in ("a", "b"):
        picture(root / f"images/{name}.png")
        (root / "labels").mkdir(exist_ok=True)
        (root / f"labels/{name}.txt").write_text("0 0.5 0.5 0.5 0.5\n")
    (root / "data.yaml").write_text("names: [fox]\ntrain: images\n")


def lay_names(root: Path) -> None:
    lay_yolo(root)
    (root / "data.yaml").unlink()
    (root / "classes.txt").write_text("fox\n")


def lay_voc(root: Path) -> None:
    for name in ("a", "b"):
        picture(root / f"{name}.jpg")
        (root / f"{name}.xml").write_text(XML.format(f"{name}.jpg"))


def lay_image_sets(root: Path) -> None:
    picture(root / "JPEGImages/a.jpg")
    for folder in ("Annotations", "ImageSets/Main"):
        (root / folder).mkdir(parents=True)
    (root / "Annotations/a.xml").write_text(XML.format("a.jpg"))
    (root / "ImageSets/Main/train.txt").write_text("a\n")


def lay_folders(root: Path) -> None:
    for name in ("train/cat/a.jpg", "train/dog/b.webp", "test/cat/c.tif"):
        picture(root / name)


def lay_images(root: Path) -> None:
    for name in ("a.jpg", "b.avif", "x/c.gif", "d.jp2"):
        picture(root / name)


def lay_metadata(root: Path) -> None:
    picture(root / "train/a.jpg")
    row = {"file_name": "a.jpg", "objects": {"bbox": [[1, 2, 8, 6]], "categories": ["fox"]}}
    (root / "train/metadata.jsonl").write_text(json.dumps(row) + "\n")


FORMATS = {
    "coco": lay_coco,
    "yolo": lay_yolo,
    "names of classes": lay_names,
    "voc": lay_voc,
    "image sets": lay_image_sets,
    "folders of classes": lay_folders,
    "images": lay_images,
    "metadata": lay_metadata,
}


def content(root: Path) -> tuple:
    """What is recognised and read: format, images, classes, and classes of objects by image."""
    found = recognise(root)
    reader = datasets.create(**found.entry)
    objects = []
    for subset in found.subsets:
        annotations = reader.read(subset)
        names = annotations.images.image_id[annotations.objects.image].tolist()
        classes = [annotations.categories[k] for k in annotations.objects.category]
        objects += sorted(zip([name.lower() for name in names], classes, strict=True))
    return found.entry["format"], found.subsets, found.images, found.categories, objects


@pytest.mark.parametrize("lay", FORMATS.values(), ids=list(FORMATS))
def test_endings_in_capitals_are_read_as_others(tmp_path, lay):
    lay(tmp_path / "small")
    lay(tmp_path / "capital")
    for file in list((tmp_path / "capital").rglob("*.*")):
        file.rename(file.with_suffix(file.suffix.upper()))
    assert content(tmp_path / "capital") == content(tmp_path / "small")


@pytest.mark.parametrize("lay", FORMATS.values(), ids=list(FORMATS))
def test_files_of_systems_change_nothing(tmp_path, lay):
    lay(tmp_path)
    before = content(tmp_path)
    for file in list(tmp_path.rglob("*.*")):
        for folder in ("", "__MACOSX", ".ipynb_checkpoints", "@eaDir"):
            (file.parent / folder).mkdir(exist_ok=True)
            (file.parent / folder / f"._{file.name}").write_bytes(APPLE_DOUBLE)
            (file.parent / folder / ".DS_Store").write_bytes(b"\0\0\0\1Bud1")
        copy = file.parent / "@eaDir" / file.name
        copy.write_bytes(file.read_bytes())
        (file.parent / "Thumbs.db").write_bytes(b"\xd0\xcf\x11\xe0")
        (file.parent / "desktop.ini").write_text("[.ShellClassInfo]")
    assert content(tmp_path) == before
    assert recognise(tmp_path).notes == ()


@pytest.mark.parametrize(
    ("lay", "first", "second"),
    [
        (lay_yolo, "labels/a.txt", "labels/a.TXT"),
        (lay_yolo, "data.yaml", "data.Yaml"),
        (lay_names, "classes.txt", "classes.TXT"),
        (lay_voc, "a.xml", "a.XML"),
        (lay_image_sets, "Annotations/a.xml", "Annotations/a.XML"),
    ],
)
def test_two_partners_that_differ_in_the_case_of_their_ending_are_refused(
    tmp_path, lay, first, second
):
    lay(tmp_path)
    (tmp_path / second).write_bytes((tmp_path / first).read_bytes())
    with pytest.raises(DataError, match="differ in the case of their ending alone"):
        recognise(tmp_path)


def test_a_label_file_of_an_image_that_is_not_read_says_so(tmp_path):
    lay_yolo(tmp_path)
    (tmp_path / "images/b.png").rename(tmp_path / "images/b.CR2")
    warnings = datasets.create("yolo", root=tmp_path).read("train").warnings
    assert {warning.kind for warning in warnings} == {UNREAD, UNREAD_IMAGES}
    (unread,) = [warning for warning in warnings if warning.kind == UNREAD]
    assert "'images/b.CR2': a camera's raw format is not read" in unread.found


@pytest.mark.parametrize("name", ["a.jxl", "x/a.DNG"])
def test_a_folder_of_images_that_are_not_read_is_refused_by_their_format(tmp_path, name):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(b"\xff\x0a")
    with pytest.raises(DataError, match=f"{Path(name).name}: .* is not read: convert it"):
        recognise(tmp_path)


@pytest.mark.parametrize("lay", [lay_folders, lay_images, lay_yolo])
def test_images_that_are_not_read_are_counted_beside_others(tmp_path, lay):
    lay(tmp_path)
    folder = next(tmp_path.rglob("a.*g")).parent
    for name in ("x.dng", "y.DNG"):
        (folder / name).touch()
    (note,) = recognise(tmp_path).notes
    assert note.startswith(UNREAD_IMAGES)
    assert "2 files, such as 'x.dng'" in note


def test_an_xml_file_of_an_image_that_is_not_read_names_the_image(tmp_path):
    lay_voc(tmp_path)
    (tmp_path / "b.jpg").rename(tmp_path / "b.psd")
    images = datasets.create("voc", root=tmp_path, layout={"all": [".", "."]}).read("all").images
    assert images.file.tolist() == ["a.jpg", "b.psd"]


@pytest.mark.parametrize("name", ["d.CSV", "d.JSON", "d.TXT"])
def test_detections_are_read_whatever_the_case_of_their_ending(tmp_path, name):
    lay_coco(tmp_path / "id")
    file = tmp_path / "results" / name
    file.parent.mkdir()
    texts = {
        "d.CSV": "file,xmin,ymin,xmax,ymax,class,score\na.jpg,1,2,8,6,cat,0.9\n",
        "d.TXT": "0 0.5 0.5 0.1 0.1 0.9\n",
    }
    if name == "d.JSON":
        results(file, 3)
    else:
        file.write_text(texts[name])
    (file.parent / f"._{name}").write_bytes(APPLE_DOUBLE)
    found = recognise_detector(file.parent, recognise(tmp_path / "id"))
    assert found.content.startswith("1 detections of 1 images")


def test_two_files_of_detections_of_one_image_are_refused(tmp_path):
    for name in ("a.txt", "a.TXT"):
        (tmp_path / name).write_text("0 0.5 0.5 0.1 0.1 0.9\n")
    with pytest.raises(DataError, match="differ in the case of their ending alone"):
        files_of(tmp_path)


@pytest.mark.parametrize("flags", [{"iscrowd": 1}, {"iscrowd": True}])
def test_objects_that_are_all_crowds_are_noted(tmp_path, flags):
    lay_coco(tmp_path)
    file = tmp_path / "annotations/all.json"
    content = json.loads(file.read_text())
    content["annotations"][0] |= flags
    file.write_text(json.dumps(content))
    (note,) = recognise(tmp_path).notes
    assert note.startswith(
        "all objects are crowds (iscrowd): 1 object of annotations/all.json: metrics ignore"
    )


def test_one_object_that_counts_is_enough(tmp_path):
    lay_coco(tmp_path)
    assert recognise(tmp_path).notes == ()


def test_the_picture_of_heic_without_its_package_names_the_package(tmp_path):
    (tmp_path / "a.HEIC").write_bytes(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic")
    assert recognise(tmp_path).images == 1
    checked = datasets.check_subset(datasets.create("images", root=tmp_path), "all")
    assert "pip install pillow-heif" in checked.problem


def test_avif_and_jpeg_2000_are_images_for_yolo(tmp_path):
    lay_yolo(tmp_path)
    for name, ending in (("a", ".avif"), ("b", ".jp2")):
        image = Image.open(tmp_path / f"images/{name}.png")
        image.save(tmp_path / f"images/{name}{ending}")
        (tmp_path / f"images/{name}.png").unlink()
    assert recognise(tmp_path).notes == ()
    assert recognise(tmp_path).images == 2
