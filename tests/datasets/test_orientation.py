import json
from itertools import product

import numpy as np
import pytest
from PIL import Image

from farther import datasets
from farther.datasets.ingest import ingest
from farther.datasets.orientation import KINDS, TURNED
from farther.images.orientation import BACK, turned
from farther.images.read import load
from farther.tables import Images, Objects

#: The displayed picture, 60 × 40, and its only object.
SIZE, BOX = (60, 40), [7, 11, 27, 19]


def lay(root, name, orientation, size=SIZE):
    """Writes a picture with a red object as a camera would; returns its stored pixels."""
    picture = Image.new("RGB", size, (20, 120, 60))
    picture.paste((255, 0, 0), tuple(BOX))
    stored, exif = turned(picture, BACK.get(orientation, orientation)), Image.Exif()
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
    """COCO annotations of images (name, declared size, box)."""
    left_top = [(*box[:2], box[2] - box[0], box[3] - box[1]) for *_, box in rows]
    sizes = [dict(zip(("width", "height"), map(int, size or ()), strict=False)) for _, size, _ in rows]
    content = {
        "images": [{"id": k, "file_name": f"{name}.png"} | sizes[k] for k, (name, *_) in enumerate(rows)],
        "annotations": [
            {"id": k, "image_id": k, "category_id": 1, "bbox": [float(edge) for edge in box]}
            for k, box in enumerate(left_top)
        ],
        "categories": [{"id": 1, "name": "fox"}],
    }
    (root / "a.json").write_text(json.dumps(content))
    return {"format": "coco", "layout": {"test": ("a.json", "images")}}


def voc(root, size, box):
    edges = zip(("xmin", "ymin", "xmax", "ymax"), (box[0] + 1, box[1] + 1, *box[2:]), strict=True)
    corners = "".join(f"<{tag}>{edge}</{tag}>" for tag, edge in edges)
    sides = f"<size><width>{size[0]}</width><height>{size[1]}</height></size>"
    (root / "xml").mkdir()
    (root / "xml/a.xml").write_text(
        f"<annotation>{sides}<object><name>fox</name><bndbox>{corners}</bndbox></object></annotation>"
    )
    return {"format": "voc", "layout": {"test": ("xml", "images")}}


def yolo(root, size, box):
    low, high = np.array(box[:2]) / size, np.array(box[2:]) / size
    (root / "labels").mkdir()
    (root / "labels/a.txt").write_text(" ".join(map(str, [0, *(low + high) / 2, *(high - low)])))
    (root / "data.yaml").write_text("test: images\nnames: [fox]\n")
    return {"format": "yolo"}


def tables(root, out, **params):
    """Images, objects and counts of warnings after `ingest`."""
    ingest(datasets.create(root=root, **{"max_warnings": 0.0, **params}), "wild", out)
    images, objects = (kind.read(out / f"test/{kind.__name__.lower()}.parquet") for kind in (Images, Objects))
    return images, objects, json.loads((out / "warnings.json").read_text())["counts"]


@pytest.mark.parametrize(
    ("format", "annotated_on", "orientation"), product([coco, voc, yolo], ["displayed", "stored"], range(1, 9))
)
def test_the_box_is_where_the_object_is_displayed(tmp_path, format, annotated_on, orientation):
    root = tmp_path / "root"
    stored = lay(root, "images/a.png", orientation)
    pixels = load(root / "images/a.png")
    size, box = red(stored if annotated_on == "stored" else pixels)
    params = format(root, size, box)
    # Sizes tell unless the image keeps its size when it is turned, or the format has none.
    if annotated_on == "stored" and (orientation < 5 or format is yolo):
        params["orientation"] = "stored"
    images, objects, _ = tables(root, tmp_path / "out", **params)
    assert (images.width.tolist(), images.height.tolist()) == ([SIZE[0]], [SIZE[1]])
    np.testing.assert_allclose(objects.box, [BOX], atol=1e-5)
    assert red(pixels) == (SIZE, tuple(BOX))


def test_each_image_is_decided_by_its_own_size_and_each_assumption_is_counted(tmp_path):
    root, rows = tmp_path / "root", []
    # name, orientation, displayed size, and the size that the annotations have
    cases = [
        ("stored", 6, SIZE, (40, 60)),
        ("displayed", 6, SIZE, (60, 40)),
        ("unsized", 8, SIZE, None),
        ("square", 6, (50, 50), (50, 50)),
        ("upside-down", 3, SIZE, (60, 40)),
        ("upright", 1, SIZE, (60, 40)),
    ]
    for name, orientation, size, declared in cases:
        stored = lay(root, f"images/{name}.png", orientation, size)
        rows.append((name, declared, red(stored)[1] if name == "stored" else BOX))
    _, objects, counts = tables(root, tmp_path / "out", **coco_of(root, rows))
    assert objects.box.tolist() == [BOX] * len(cases)
    assert counts == {KINDS["stored"]: 1, KINDS["displayed"]: 1, KINDS["auto"]: 3}


def test_what_the_parameter_says_counts_more_than_the_size(tmp_path):
    root = tmp_path / "root"
    lay(root, "images/a.png", 6)
    params = {**coco(root, (40, 60), BOX), "max_warnings": 1.0}
    _, objects, counts = tables(root, tmp_path / "out", orientation="displayed", **params)
    assert objects.box.tolist() == [BOX]
    assert counts == {KINDS["displayed"]: 1, "image of another size": 1}


def test_nothing_is_assumed_of_images_that_are_labelled_as_a_whole(tmp_path):
    root = tmp_path / "root"
    lay(root, "test/fox/a.png", 6)
    images, objects, counts = tables(root, tmp_path / "out", format="image_folder")
    assert objects.box.tolist() == [[0, 0, *SIZE]]
    assert (images.width[0], images.height[0]) == SIZE
    assert counts == {TURNED: 1}
