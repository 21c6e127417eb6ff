import json
import re
from itertools import product

import numpy as np
import pytest
from PIL import Image

from farther import datasets
from farther.datasets.ingest import ingest
from farther.datasets.orientation import KINDS, TURNED
from farther.datasets.presence import check_subset
from farther.errors import DataError
from farther.images.orientation import BACK, turned
from farther.images.read import load
from farther.tables import Images, Objects

#: The displayed picture, 60 × 40, and its only object.
SIZE, BOX = (60, 40), [7, 11, 27, 19]


def lay(root, name, orientation, size=SIZE):
    """Writes a picture with a red object as a camera would; returns its stored pixels."""
    picture = Image.new("RGB", size, (20, 120, 60))
    picture.paste((255, 0, 0), tuple(BOX))
    stored = turned(picture, BACK.get(orientation, orientation))
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    stored.save(path, exif=exif)
    return np.asarray(stored)


def red(pixels):
    """Size of an image and edges of what is red in it."""
    y, x = np.nonzero(pixels[..., 0] > 200)
    return (pixels.shape[1], pixels.shape[0]), (x.min(), y.min(), x.max() + 1, y.max() + 1)


def coco(root, size, box):
    return coco_of(root, [("a", size, box)])


def coco_of(root, rows):
    """Writes COCO annotations of images (name, declared size or None, box of one object)."""
    images = []
    annotations = []
    for number, (name, size, box) in enumerate(rows):
        image = {"id": number, "file_name": f"{name}.png"}
        if size is not None:
            image["width"], image["height"] = int(size[0]), int(size[1])
        images.append(image)
        left, top, right, bottom = (float(edge) for edge in box)
        annotations.append(
            {
                "id": number,
                "image_id": number,
                "category_id": 1,
                "bbox": [left, top, right - left, bottom - top],
            }
        )
    categories = [{"id": 1, "name": "fox"}]
    content = {"images": images, "annotations": annotations, "categories": categories}
    (root / "a.json").write_text(json.dumps(content))
    return {"format": "coco", "layout": {"test": ("a.json", "images")}}


def voc(root, size, box):
    left, top, right, bottom = box
    corners = (
        f"<xmin>{left + 1}</xmin><ymin>{top + 1}</ymin><xmax>{right}</xmax><ymax>{bottom}</ymax>"
    )
    sides = f"<size><width>{size[0]}</width><height>{size[1]}</height></size>"
    (root / "xml").mkdir()
    (root / "xml/a.xml").write_text(
        f"<annotation>{sides}<object><name>fox</name><bndbox>{corners}</bndbox></object></annotation>"
    )
    return {"format": "voc", "layout": {"test": ("xml", "images")}}


def yolo(root, size, box):
    low = np.array(box[:2]) / size
    high = np.array(box[2:]) / size
    (root / "labels").mkdir()
    (root / "labels/a.txt").write_text(" ".join(map(str, [0, *(low + high) / 2, *(high - low)])))
    (root / "data.yaml").write_text("test: images\nnames: [fox]\n")
    return {"format": "yolo"}


def tables(root, out, **params):
    """Images, objects and counts of warnings after `ingest`."""
    ingest(datasets.create(root=root, **{"max_warnings": 0.0, **params}), "wild", out)
    images = Images.read(out / "test/images.parquet")
    objects = Objects.read(out / "test/objects.parquet")
    warnings = json.loads((out / "warnings.json").read_text())
    return images, objects, warnings["counts"]


@pytest.mark.parametrize(
    ("format", "annotated_on", "orientation"),
    product([coco, voc, yolo], ["displayed", "stored"], range(1, 9)),
)
def test_the_box_is_where_the_object_is_displayed(tmp_path, format, annotated_on, orientation):
    root = tmp_path / "root"
    stored = lay(root, "images/a.png", orientation)
    pixels = load(root / "images/a.png")
    size, box = red(stored if annotated_on == "stored" else pixels)
    params = format(root, size, box)
    # The stored size proves nothing, a box in fractions neither; this box proves "stored" for two
    # orientations.
    is_proven = orientation in (6, 7) if annotated_on == "stored" else orientation >= 5
    if format is yolo or not is_proven:
        params["orientation"] = annotated_on
    images, objects, _ = tables(root, tmp_path / "out", **params)
    assert (images.width.tolist(), images.height.tolist()) == ([SIZE[0]], [SIZE[1]])
    np.testing.assert_allclose(objects.box, [BOX], atol=1e-5)
    assert red(pixels) == (SIZE, tuple(BOX))


def boxes_of(root, tmp_path, rows, **params):
    """Boxes after `ingest` of COCO annotations, and counts of warnings.

    Args:
        rows: Name, orientation, displayed size, declared size and box of each image.
    """
    for name, orientation, size, *_ in rows:
        lay(root, f"images/{name}.png", orientation, size)
    declared = [(name, size, box) for name, _, _, size, box in rows]
    _, objects, counts = tables(root, tmp_path / "out", **{**coco_of(root, declared), **params})
    return objects.box.tolist(), counts


#: A box that fits into the displayed picture only, and one that fits into both; and into the stored
#: picture only.
WIDE, SMALL, HIGH = [5, 5, 55, 35], [7, 11, 27, 19], [5, 5, 35, 55]


def test_a_box_that_leaves_the_stored_picture_proves_the_displayed_one_for_all(tmp_path):
    rows = [
        ("a", 6, SIZE, (40, 60), WIDE),
        ("b", 8, SIZE, (40, 60), SMALL),
        ("c", 6, SIZE, None, SMALL),
    ]
    boxes, counts = boxes_of(tmp_path / "root", tmp_path, rows)
    assert boxes == [WIDE, SMALL, SMALL]
    assert counts == {KINDS["displayed"]: 3}  # and no image has another size than annotated


def test_a_box_that_leaves_the_displayed_picture_proves_the_stored_one_for_all(tmp_path):
    # Orientation 6: stored x, y become 60 - y, x, by hand; 3: 60 - x, 40 - y.
    rows = [
        ("a", 6, SIZE, (40, 60), HIGH),
        ("b", 6, SIZE, (40, 60), SMALL),
        ("c", 3, SIZE, (60, 40), SMALL),
    ]
    boxes, counts = boxes_of(tmp_path / "root", tmp_path, rows)
    assert boxes == [[5, 5, 55, 35], [41, 7, 49, 27], [33, 21, 53, 29]]
    assert counts == {KINDS["stored"]: 3}


def test_a_displayed_size_proves_the_displayed_image_but_not_for_an_image_with_the_stored_size(
    tmp_path,
):
    size_only = ("a", 6, SIZE, SIZE, SMALL)
    assert (
        boxes_of(tmp_path / "root", tmp_path, [size_only, ("b", 6, (50, 50), (50, 50), SMALL)])[0]
        == [SMALL] * 2
    )
    with pytest.raises(
        DataError,
        match=r"1 of 2 images are turned by a quarter .*: images/b.png is displayed as 60×40",
    ):
        boxes_of(tmp_path / "other", tmp_path, [size_only, ("b", 6, SIZE, (40, 60), SMALL)])


@pytest.mark.parametrize(
    ("rows", "question"),
    [
        (
            [("a", 6, SIZE, (40, 60), SMALL)],
            r"1 of 1 .*images/a.png is displayed as 60×40 and stored as 40×60 \(orientation 6\), "
            r"the annotations say 40×60, and its boxes, up to x = 27 and y = 19, fit both\. "
            r"Write orientation: displayed",
        ),
        (
            [("a", 8, SIZE, None, SMALL)],
            r"\(orientation 8\), and its boxes, up to x = 27 and y = 19, fit both",
        ),
        ([("a", 5, (50, 50), (50, 50), SMALL)], r"displayed as 50×50 and stored as 50×50"),
        (
            [("a", 6, SIZE, (40, 60), [5, 5, 27, 40.5])],
            "fit both",
        ),  # half a pixel beyond proves nothing
        (
            [("a", 6, SIZE, None, HIGH), ("b", 6, SIZE, None, WIDE), ("c", 6, SIZE, None, SMALL)],
            "1 of 3 .*images/c",
        ),
    ],
    ids=["stored size", "no size", "square", "rounded", "contradiction"],
)
def test_what_nothing_proves_is_asked_with_the_numbers_of_the_file(tmp_path, rows, question):
    with pytest.raises(DataError, match=question):
        boxes_of(tmp_path / "root", tmp_path, rows)
    declared = [(name, size, box) for name, _, _, size, box in rows]
    reader = datasets.create(root=tmp_path / "root", **coco_of(tmp_path / "root", declared))
    # `farther doctor` says so before.
    assert re.search(question, check_subset(reader, "test").problem)
    for answer in ("displayed", "stored"):
        boxes_of(
            tmp_path / answer, tmp_path / f"of {answer}", rows, orientation=answer, max_warnings=1.0
        )


def test_boxes_in_fractions_prove_nothing(tmp_path):
    root = tmp_path / "root"
    lay(root, "images/a.png", 6)
    with pytest.raises(
        DataError, match=r"stored as 40×60 \(orientation 6\), and its boxes are fractions of either"
    ):
        tables(root, tmp_path / "out", **yolo(root, SIZE, BOX))


def test_an_image_that_is_upside_down_is_assumed_to_be_displayed_where_nothing_tells(tmp_path):
    boxes, counts = boxes_of(tmp_path / "root", tmp_path, [("a", 3, SIZE, (60, 40), SMALL)])
    assert (boxes, counts) == ([SMALL], {KINDS["auto"]: 1})


def test_what_the_parameter_says_counts_more_than_what_a_box_proves(tmp_path):
    boxes, counts = boxes_of(
        tmp_path / "root",
        tmp_path,
        [("a", 6, SIZE, (40, 60), HIGH)],
        orientation="displayed",
        max_warnings=1.0,
    )
    assert boxes == [[5, 5, 35, 40]]
    assert counts == {KINDS["displayed"]: 1, "box leaves its image": 1}


def test_a_turned_box_is_described_as_the_file_has_it(tmp_path):
    rows = [("a", 6, SIZE, (40, 60), [5, 5, 45, 55])]
    with pytest.raises(
        DataError, match=r"edges 5, 5, 45, 55, which are 5, 5, 55, 45 in an image of 60×40"
    ):
        boxes_of(tmp_path / "root", tmp_path, rows, orientation="stored")


def test_nothing_is_assumed_of_images_that_are_labelled_as_a_whole(tmp_path):
    root = tmp_path / "root"
    lay(root, "test/fox/a.png", 6)
    images, objects, counts = tables(root, tmp_path / "out", format="image_folder")
    assert objects.box.tolist() == [[0, 0, *SIZE]]
    assert (images.width[0], images.height[0]) == SIZE
    assert counts == {TURNED: 1}
