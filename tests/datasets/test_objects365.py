import pytest

from farther import datasets
from farther.errors import DataError

NAME = "images/v1/patch8/objects365_v1_00420917.jpg"
FILE = "objects365_v1_00420917.jpg"


def released(name=NAME):
    """As `zhiyuan_objv2_val.json` is written: 365 classes of which two are named oddly, and flags COCO has not."""
    return {
        "images": [{"id": 420917, "file_name": name, "width": 60, "height": 40, "license": 5, "url": ""}],
        "categories": [{"id": 38, "name": "Moniter/TV"}, {"id": 99, "name": "Dinning Table"}],
        "annotations": [
            {"id": 51, "iscrowd": 0, "isfake": 1, "isreflected": 1, "area": 12.5, "image_id": 420917, "category_id": 99,
             "bbox": [1.25, 2, 2.5, 5]},
        ],
    }  # fmt: skip


@pytest.mark.parametrize(
    "file",
    [f"val/{NAME}", f"val/patch8/{FILE}", f"val/{FILE}"],
    ids=["as named", "patches", "one folder"],
)
def test_images_are_found_however_the_archives_were_unpacked(lay, file):
    root = lay({"zhiyuan_objv2_val.json": released(), file: (60, 40)})
    reader = datasets.create("objects365", root=root)
    assert reader.subsets() == ["val"]
    annotations = reader.read("val")
    assert annotations.images.file.tolist() == [file]
    assert annotations.objects.box.tolist() == [[1.25, 2, 3.75, 7]]
    assert annotations.categories == ["Moniter/TV", "Dinning Table"]


def test_version_1_has_its_own_file(lay):
    root = lay({"objects365_val.json": released("obj365_val_000000420917.jpg")})
    reader = datasets.create("objects365", root=root)
    assert reader.subsets() == ["v1_val"]
    assert reader.read("v1_val").images.file.tolist() == ["val/obj365_val_000000420917.jpg"]


@pytest.mark.parametrize("folder", ["val/images/x.jpg", "val/patch0/x.jpg", "val/x.jpg"])
@pytest.mark.parametrize("name", ["../../../secret.jpg", "images/../../../secret.jpg"])
def test_no_name_climbs_out_of_the_root(lay, folder, name):
    root = lay({"zhiyuan_objv2_val.json": released(name), folder: (4, 4)})
    with pytest.raises(
        DataError, match=r"zhiyuan_objv2_val.json: row images\[0\]: field 'file_name': .*leaves"
    ):
        datasets.create("objects365", root=root).read("val")
