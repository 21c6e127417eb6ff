"""Cut-outs by the outlines of a COCO file."""

import json
from pathlib import Path

import numpy as np
import pycocotools.mask
import pytest
from PIL import Image

from farther.derived import create
from farther.derived.pasting import trimmed
from farther.errors import DataError
from farther.images.orientation import turned


def coco(folder: Path, annotations: list[dict]) -> dict:
    """A COCO file with one 40 × 30 image, red on the left and blue on the right."""
    pixels = np.zeros((30, 40, 3), np.uint8)
    pixels[:, :20, 0] = 255
    pixels[:, 20:, 2] = 255
    folder.mkdir(exist_ok=True)
    Image.fromarray(pixels).save(folder / "1.png")
    complete = []
    for number, annotation in enumerate(annotations):
        defaults = {"id": number, "image_id": 1, "category_id": 1, "iscrowd": 0}
        complete.append({**defaults, **annotation})
    content = {
        "images": [{"id": 1, "file_name": "1.png", "width": 40, "height": 30}],
        "annotations": complete,
        "categories": [{"id": 1, "name": "Lynx"}],
    }
    (folder / "a.json").write_text(json.dumps(content))
    return {
        "source": "masks",
        "root": folder,
        "annotations": "a.json",
        "images": ".",
        "smallest": 4,
    }


def box(x: int, y: int, w: int, h: int) -> dict:
    return {"bbox": [x, y, w, h], "segmentation": [[x, y, x + w, y, x + w, y + h, x, y + h]]}


def test_a_polygon_is_cut_out_along_its_outline(tmp_path):
    triangle = {"bbox": [10, 5, 16, 16], "segmentation": [[10, 5, 26, 5, 10, 21]]}
    cutouts = create(**coco(tmp_path, [triangle])).read()
    picture = np.asarray(trimmed(cutouts.picture(cutouts.entries[0])))
    assert picture[..., 3].sum() / 255 == pytest.approx(128, rel=0.05)
    assert picture[2, 2].tolist() == [255, 0, 0, 255]
    assert picture[1, 12].tolist() == [0, 0, 255, 255]
    assert picture[12, 12, 3] == 0


@pytest.mark.parametrize("compressed", [False, True])
def test_run_lengths_are_cut_out_pixel_by_pixel(tmp_path, compressed):
    mask = np.zeros((30, 40), np.uint8)
    mask[6:12, 5:15] = 1
    mask[8, 8] = 0
    edges = np.flatnonzero(np.diff(mask.flatten(order="F"), prepend=0, append=0))
    counts = np.diff(np.concatenate([[0], edges, [mask.size]])).tolist()
    if compressed:
        counts = pycocotools.mask.encode(np.asfortranarray(mask))["counts"].decode()
    annotation = {"bbox": [5, 6, 10, 6], "segmentation": {"size": [30, 40], "counts": counts}}
    cutouts = create(**coco(tmp_path, [annotation])).read()
    alpha = np.asarray(trimmed(cutouts.picture(cutouts.entries[0])).getchannel("A"))
    assert np.array_equal(alpha > 0, mask[6:12, 5:15] > 0)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("outline", ["polygon", "runs"])
def test_an_outline_on_stored_pixels_is_cut_out_as_it_is_displayed(tmp_path, outline, orientation):
    mask = np.zeros((30, 40), np.uint8)
    mask[6:22, 15:20] = 1
    mask[6:10, 15:30] = 1
    runs = pycocotools.mask.encode(np.asfortranarray(mask))["counts"].decode()
    polygon = [[15, 6, 30, 6, 30, 10, 20, 10, 20, 22, 15, 22]]
    annotation = {
        "bbox": [15, 6, 15, 16],
        "segmentation": polygon if outline == "polygon" else {"counts": runs},
    }
    source = {**coco(tmp_path, [annotation]), "orientation": "stored"}
    cutouts = create(**source).read()
    upright = trimmed(cutouts.picture(cutouts.entries[0]))
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.open(tmp_path / "1.png").save(tmp_path / "1.png", exif=exif)
    displayed = trimmed(cutouts.picture(cutouts.entries[0]))
    expected = turned(upright, orientation)
    np.testing.assert_array_equal(np.asarray(displayed), np.asarray(expected))


def sideways(folder: Path, *annotations: dict) -> dict:
    """A source whose image is displayed as 30 × 40 pixels and stored, and annotated, as 40 × 30."""
    source = coco(folder, list(annotations))
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.open(folder / "1.png").save(folder / "1.png", exif=exif)
    return source


def test_an_outline_that_fits_one_picture_proves_it_and_others_are_asked_for(tmp_path):
    high = box(20, 5, 8, 34)  # ends at y = 39, where 30 are stored
    displayed = create(**sideways(tmp_path / "high", box(5, 5, 8, 12), high)).read()
    assert displayed.picture(displayed.entries[0]).size == (10, 14)
    both = sideways(tmp_path / "both", box(5, 5, 8, 12))
    undecided = create(**both).read()
    with pytest.raises(
        DataError,
        match=r"1.png is displayed as 30×40 and stored as 40×30 .*Write orientation: displayed",
    ):
        undecided.picture(undecided.entries[0])
    for answer, size in {"displayed": (10, 14), "stored": (14, 10)}.items():
        decided = create(**both, orientation=answer).read()
        assert decided.picture(decided.entries[0]).size == size


def test_annotations_of_images_that_the_file_does_not_list_are_refused(tmp_path):
    annotations = [box(2, 2, 8, 8), {**box(20, 2, 8, 8), "image_id": 9}]
    with pytest.raises(
        DataError,
        match=r"annotations\[1\].*1 of 2 annotations are of an image or a category that the",
    ):
        create(**coco(tmp_path, annotations)).read()


def test_crowds_small_truncated_and_covered_objects_are_not_cut_out(tmp_path):
    annotations = [
        box(2, 2, 8, 8),
        {**box(30, 20, 8, 8), "iscrowd": 1},
        box(12, 2, 3, 9),
        box(0, 20, 8, 8),
        box(20, 2, 8, 8),
        box(26, 2, 8, 8),
    ]
    source = coco(tmp_path, annotations)
    cutouts = create(**source).read()
    assert [cutout.name for cutout in cutouts.entries] == ["1.png, object 0"]
    cutouts = create(**{**source, "covered": 0.25}).read()
    assert [cutout.row for cutout in cutouts.entries] == [0, 4, 5]


@pytest.mark.parametrize(
    ("segmentation", "problem"),
    [
        ([[1, 2, 3]], "expected run lengths, or polygons"),
        ([[1, 2, 3, 4, 5, "x"]], "finite number"),
        ({"size": [30, 40], "counts": [5, 5]}, r"found 10; the image has 40 × 30"),
        ({"size": [30, 40], "counts": [-5, 1205]}, r"expected run lengths of 1200 pixels"),
        ({"size": [30, 40], "counts": "P"}, "end with a number"),
        ({"size": [30, 40], "counts": "P" * 3_000_000 + "1"}, "end with a number"),
        (
            {"size": [30, 40], "counts": "0" * 3_000_000},
            "expected run lengths of 1200 pixels, found 0",
        ),
        ({"size": [30, 40], "counts": "0 1"}, "expected characters"),
        ({"size": [30, 40], "counts": ""}, "found 0; the image"),
        ({"size": [30, 40], "counts": "0PPPPP1"}, "expected run lengths of 1200 pixels"),
    ],
)
def test_a_damaged_outline_is_named(tmp_path, segmentation, problem):
    cutouts = create(**coco(tmp_path, [{**box(2, 2, 8, 8), "segmentation": segmentation}])).read()
    with pytest.raises(DataError, match=problem) as error:
        cutouts.picture(cutouts.entries[0])
    assert "annotations[0]" in str(error.value)
