import numpy as np

from farther import datasets
from farther.datasets.ingest import ingest
from farther.tables import Objects


def test_the_sets_that_a_root_holds_are_read_with_the_images_that_vos_gives_them(lay):
    voc = {
        "images": [{"id": "2007_000027", "file_name": "2007_000027.jpg", "width": 50, "height": 40, "license": 1}],
        "categories": [{"id": 1, "name": "person", "supercategory": "person"}, {"id": 20, "name": "tv"}],
        "annotations": [
            {"image_id": "2007_000027", "id": 0, "category_id": 20, "bbox": [8, 12, 30, 20], "area": 600, "iscrowd": 0}
        ],
    }
    root = lay({"voc0712_train_all.json": voc, "val_coco_format.json": voc, "JPEGImages/2007_000027.jpg": (50, 40)})
    reader = datasets.create("vos", root=root)
    assert reader.subsets() == ["voc_custom_train", "voc_custom_val"]
    annotations = reader.read("voc_custom_val")
    assert annotations.images.image_id.tolist() == ["2007_000027"]
    assert annotations.images.file.tolist() == ["JPEGImages/2007_000027.jpg"]
    assert [annotations.categories[k] for k in annotations.objects.category] == ["tv"]
    assert annotations.objects.box.tolist() == [[8, 12, 38, 32]]


def test_the_ood_images_of_openimages_come_without_objects(lay, tmp_path):
    content = {
        "images": [{"id": "0001eeaf4aed83f9", "file_name": "0001eeaf4aed83f9.jpg", "width": 20, "height": 10}],
        "categories": [{"supercategory": "person", "id": 1, "name": "person"}],
        "annotations": [],
    }
    root = lay({"COCO-Format/val_coco_format.json": content, "images/0001eeaf4aed83f9.jpg": (20, 10)})
    reader = datasets.create("vos", root=root)
    assert ingest(reader, "oi", tmp_path / "out") == {
        "openimages_ood_val": {"images": 1, "objects": 0, "categories": 0, "warnings": 1}
    }
    objects = Objects.read(tmp_path / "out/openimages_ood_val/objects.parquet")
    np.testing.assert_array_equal(objects.box, np.zeros((0, 4), np.float32))
