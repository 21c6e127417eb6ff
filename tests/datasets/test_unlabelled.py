"""Folders of images and videos that nobody annotated."""

import json

import cv2
import numpy as np
import pytest
from PIL import Image

from farther import datasets
from farther.datasets.ingest import ingest
from farther.errors import DataError
from farther.tables import Images, Objects
from farther.tables.annotations import UNLABELLED
from farther.tables.stored import ingest_warnings


def picture(file, size=(30, 20)):
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (9, 99, 9)).save(file)


def read(root, out, **params):
    ingest(datasets.create("images", root=str(root), **params), "photos", out)
    return Images.read(out / "all/images.parquet"), Objects.read(out / "all/objects.parquet")


@pytest.fixture
def photos(tmp_path):
    root = tmp_path / "photos"
    for name in ("a.jpg", "2024/june/b.png", "2024/c.JPG"):
        picture(root / name)
    (root / "2024/notes.txt").write_text("lynx?")
    return root


def test_images_in_any_nesting_are_read_and_other_files_are_counted(photos, tmp_path):
    images, objects = read(photos, tmp_path / "out")
    assert images.image_id.tolist() == ["2024/c.JPG", "2024/june/b.png", "a.jpg"]
    assert set(objects.category) == {UNLABELLED} and objects.is_crowd.all()
    np.testing.assert_array_equal(objects.box, [[0, 0, 30, 20]] * 3)
    (warning,) = ingest_warnings(tmp_path / "out")["warnings"]
    assert (warning["kind"], warning["found"]) == (
        "neither images nor videos",
        "1 files, such as 'notes.txt'",
    )


def test_boxes_label_the_images_that_they_name_and_no_other(photos, tmp_path):
    record = {"id": 4, "file_name": "2024/june/b.png"}, {"id": 5, "file_name": "a.jpg"}
    box = {"id": 7, "image_id": 4, "category_id": 2, "bbox": [1, 2, 8, 6]}
    content = {"images": record, "annotations": [box], "categories": [{"id": 2, "name": "lynx"}]}
    (photos / "boxes.json").write_text(json.dumps(content))
    images, objects = read(photos, tmp_path / "out", boxes="boxes.json")
    category_by_image = dict(zip(objects.image_id, objects.category, strict=True))
    # The file of boxes names a.jpg without an object, so that it has none.
    assert category_by_image == {"2024/june/b.png": "lynx", "2024/c.JPG": UNLABELLED}
    assert len(images) == 3
    assert objects.object_id.tolist() == [7, 8]
    (photos / "2024/june/b.png").unlink()
    with pytest.raises(
        DataError,
        match=r"1 warning about 2 images, more than max_warnings: 0.05 allows .*b.png' does",
    ):
        read(photos, tmp_path / "refused", boxes="boxes.json")
    _, objects = read(photos, tmp_path / "again", boxes="boxes.json", max_warnings=0.5)
    kinds = {
        entry["kind"]: entry["found"] for entry in ingest_warnings(tmp_path / "again")["warnings"]
    }
    assert kinds["image missing"] == "'2024/june/b.png' does not exist"


def test_what_the_file_of_boxes_holds_in_vain_is_listed(photos, tmp_path):
    record = {"id": 4, "file_name": "a.jpg"}, {"id": 5, "file_name": "a.jpg"}
    boxes = [
        {"id": n, "image_id": image, "category_id": 2, "bbox": [1, 2, 8, 6]}
        for n, image in enumerate((4, 5, 6))
    ]
    content = {"images": record, "annotations": boxes, "categories": [{"id": 2, "name": "lynx"}]}
    (photos / "boxes.json").write_text(json.dumps(content))
    read(photos, tmp_path / "out", boxes="boxes.json", max_warnings=1.0)
    warnings = ingest_warnings(tmp_path / "out")["warnings"]
    kinds = [warning["kind"] for warning in warnings if warning["file"] == "boxes.json"]
    assert kinds == [
        "object of an unknown image",
        "image file with several ids",
        "objects that are annotated twice",
    ]


def test_a_video_becomes_a_frame_a_second_as_ffmpeg_numbers_them(photos, tmp_path):
    writer = cv2.VideoWriter(
        str(photos / "clip.avi"), cv2.VideoWriter_fourcc(*"MJPG"), 10, (64, 48)
    )
    for number in range(25):
        writer.write(np.full((48, 64, 3), 10 * number, np.uint8))
    writer.release()
    images, objects = read(photos, tmp_path / "out")
    frames = [name for name in images.image_id if name.startswith("clip.avi/")]
    assert frames == ["clip.avi/00000001.jpg", "clip.avi/00000011.jpg", "clip.avi/00000021.jpg"]
    assert len(images) == len(objects) == 6
    extracted = tmp_path / "out/extracted-images"
    grey = [np.asarray(Image.open(extracted / name)).mean() for name in frames]
    np.testing.assert_allclose(grey, [0, 100, 200], atol=3)
    assert (extracted / "2024/june/b.png").read_bytes() == (photos / "2024/june/b.png").read_bytes()
    assert len(read(photos, tmp_path / "slow", every=2.0)[0]) == 5


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (
            lambda root: [file.unlink() for file in root.rglob("*.*") if file.is_file()],
            "no images here; known extensions",
        ),
        (
            lambda root: (root / "clip.mp4").write_bytes(b"no video"),
            "OpenCV reads no frame of it: damaged",
        ),
    ],
)
def test_folders_without_images_and_damaged_videos_are_refused(photos, tmp_path, change, problem):
    change(photos)
    with pytest.raises(DataError, match=problem):
        read(photos, tmp_path / "out")


def test_annotation_files_beside_images_without_boxes_are_named(lay):
    root = lay({"a.jpg": (4, 4), "labels.json": {}, "notes.txt": ""})
    read = datasets.create("images", root=root).read("all")
    assert {warning.kind: warning.found for warning in read.warnings} == {
        "annotation files beside images without boxes": "1 files, such as 'labels.json'",
        "neither images nor videos": "1 files, such as 'notes.txt'",
    }
