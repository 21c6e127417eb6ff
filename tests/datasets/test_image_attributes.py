"""Attributes of images: the table images.csv, and the brightness."""

import json

import numpy as np
import pytest
from PIL import Image
from tests.datasets.test_ingest import FILE, coco, pictures, run

from farther.datasets.image_attributes import MOST_VALUES, brightness_of
from farther.errors import DataError
from farther.tables import ImageAttributes

TABLE = "images.csv"


def attributes_of(tmp_path):
    """(image, attribute) → value."""
    table = ImageAttributes.read(tmp_path / "out/val2017/attributes.parquet")
    rows = zip(table.image_id, table.attribute, table.value, strict=True)
    return {(image.lstrip("0"), attribute): value for image, attribute, value in rows}


def laid(lay, table):
    return lay(pictures(**{FILE: coco((1, 0, 0, 10, 10)), TABLE: table}))


def test_each_column_of_the_table_is_an_attribute(lay, tmp_path):
    table = "file, weather ,camera\nval2017/2.png, rain ,left\nval2017/1.png,clear,\n"
    _, warnings = run(laid(lay, table), tmp_path)
    assert attributes_of(tmp_path) == {
        ("1", "weather"): "clear",
        ("2", "weather"): "rain",
        ("2", "camera"): "left",
    }
    assert warnings["counts"] == {}


def test_rows_without_an_image_and_images_without_a_row_are_counted_and_named(lay, tmp_path):
    table = "file,weather\nval2017/1.png,clear\n9.png,rain\n8.png,rain\n"
    _, warnings = run(laid(lay, table), tmp_path)
    by_kind = {warning["kind"]: warning for warning in warnings["warnings"]}
    assert by_kind["row without an image"]["found"].startswith("2 rows, such as 9.png, 8.png")
    assert by_kind["image without a row"]["found"].startswith("1 images, such as val2017/2.png")


@pytest.mark.parametrize(
    ("table", "kind", "column"),
    [
        ("image,weather\n1,rain\n", "no attributes of images", None),
        ("file,size\nval2017/1.png,big\n", "attribute with a reserved name", "size"),
        ("file,ranking\nval2017/1.png,1\n", "attribute with a reserved name", "ranking"),
        ("file,a=b\nval2017/1.png,1\n", "attribute with a reserved name", "a=b"),
        ('file,"a, size"\nval2017/1.png,1\n', "attribute with a reserved name", "a, size"),
        (
            "file,number\n" + "".join(f"{n}.png,{n}\n" for n in range(MOST_VALUES + 1)),
            "attribute with too many values",
            "number",
        ),
        ("", "no attributes of images", None),
    ],
)
def test_columns_that_are_no_attributes_are_left_out_and_named(lay, tmp_path, table, kind, column):
    _, warnings = run(laid(lay, table), tmp_path)
    (warning,) = [one for one in warnings["warnings"] if one["kind"] == kind]
    assert warning["file"] == TABLE
    assert warning["field"] == column
    assert not (tmp_path / "out/val2017/attributes.parquet").exists()


@pytest.mark.parametrize(
    ("table", "row"),
    [
        ("file,weather\nval2017/1.png,rain\nval2017/1.png,clear\n", "line 3"),
        (b"file,weather\nval2017/1.png,\xff\xfe\n", None),
        ("file,weather\nval2017/1.png,rain,wet\n", None),
    ],
)
def test_a_table_that_names_an_image_twice_or_cannot_be_read_is_refused(lay, tmp_path, table, row):
    with pytest.raises(DataError) as caught:
        run(laid(lay, table), tmp_path)
    assert caught.value.file.endswith(TABLE)
    assert caught.value.row == row


@pytest.mark.parametrize(
    ("luma", "value"),
    [(0, "dark"), (63, "dark"), (64, "medium"), (127, "medium"), (128, "bright"), (255, "bright")],
)
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_brightness_is_the_mean_luma_in_quarters(tmp_path, luma, value, mode):
    file = tmp_path / "grey.png"
    Image.new("L", (200, 100), luma).convert(mode).save(file)
    assert brightness_of(file) == value


def test_brightness_is_that_of_the_whole_image(tmp_path):
    pixels = np.zeros((100, 200, 3), dtype=np.uint8)
    pixels[:, :100] = 200  # on average 100
    Image.fromarray(pixels).save(tmp_path / "half.jpg", quality=95)
    assert brightness_of(tmp_path / "half.jpg") == "medium"


def test_ingest_measures_brightness_where_it_is_asked_for(lay, tmp_path):
    root = laid(lay, "file,weather\nval2017/1.png,clear\nval2017/2.png,rain\n")
    run(root, tmp_path, brightness=True)
    # The pictures are of one colour, (200, 30, 60): a luma of 84.
    assert attributes_of(tmp_path)[("1", "brightness")] == "medium"
    assert attributes_of(tmp_path)[("2", "weather")] == "rain"


def test_the_brightness_of_a_damaged_image_is_not_known(lay, tmp_path):
    root = lay(pictures(**{FILE: json.dumps(coco())}))
    content = (root / "val2017/1.png").read_bytes()
    (root / "val2017/1.png").write_bytes(content[: len(content) // 2])
    run(root, tmp_path, brightness=True)
    assert list(attributes_of(tmp_path)) == [("2", "brightness")]
