"""Objects365 and iNaturalist in miniature."""

import pytest

from farther import datasets
from farther.errors import DataError

NAME = "images/v1/patch8/objects365_v1_00420917.jpg"
FILE = "objects365_v1_00420917.jpg"


def released(name=NAME):
    """Content of `zhiyuan_objv2_val.json` for one image, with flags that COCO does not have."""
    image = {
        "id": 420917,
        "file_name": name,
        "width": 60,
        "height": 40,
        "license": 5,
        "url": "",
    }
    annotation = {
        "id": 51,
        "iscrowd": 0,
        "isfake": 1,
        "isreflected": 1,
        "area": 12.5,
        "image_id": 420917,
        "category_id": 99,
        "bbox": [1.25, 2, 2.5, 5],
    }
    return {
        "images": [image],
        "categories": [{"id": 38, "name": "Moniter/TV"}, {"id": 99, "name": "Dinning Table"}],
        "annotations": [annotation],
    }


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


def test_the_boxes_of_inaturalist_2017_are_read(lay):
    name = "train_val_images/Aves/Ardea alba/1.jpg"
    content = {
        "info": {"year": 2017},
        "images": [
            {
                "id": 5,
                "file_name": name,
                "width": 80,
                "height": 60,
                "license": 1,
                "rights_holder": "x",
            }
        ],
        "categories": [{"id": 7, "name": "Ardea alba", "supercategory": "Aves"}],
        "annotations": [
            {
                "id": 1,
                "image_id": 5,
                "category_id": 7,
                "bbox": [10.0, 5.0, 20.0, 30.0],
                "area": 600,
                "iscrowd": 0,
            }
        ],
        "licenses": [{"id": 1, "name": "CC", "url": ""}],
    }
    reader = datasets.create(
        "inaturalist", root=lay({"val_2017_bboxes.json": content, name: (80, 60)})
    )
    assert reader.subsets() == ["val"]
    annotations = reader.read("val")
    assert annotations.images.file.tolist() == [name]
    assert annotations.categories == ["Ardea alba"]
    assert annotations.objects.box.tolist() == [[10, 5, 30, 35]]
