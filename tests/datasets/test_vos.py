from pathlib import Path

import numpy as np

from farther import datasets
from farther.curation import TablesFolder, benchmark, curate
from farther.datasets.ingest import ingest
from farther.params import parse
from farther.tables import Objects


def test_the_sets_that_a_root_holds_are_read_with_the_images_that_vos_gives_them(lay):
    voc = {
        "images": [
            {
                "id": "2007_000027",
                "file_name": "2007_000027.jpg",
                "width": 50,
                "height": 40,
                "license": 1,
            }
        ],
        "categories": [
            {"id": 1, "name": "person", "supercategory": "person"},
            {"id": 20, "name": "tv"},
        ],
        "annotations": [
            {
                "image_id": "2007_000027",
                "id": 0,
                "category_id": 20,
                "bbox": [8, 12, 30, 20],
                "area": 600,
                "iscrowd": 0,
            }
        ],
    }
    root = lay(
        {
            "voc0712_train_all.json": voc,
            "val_coco_format.json": voc,
            "JPEGImages/2007_000027.jpg": (50, 40),
        }
    )
    reader = datasets.create("vos", root=root)
    assert reader.subsets() == ["voc_custom_train", "voc_custom_val"]
    annotations = reader.read("voc_custom_val")
    assert annotations.images.image_id.tolist() == ["2007_000027"]
    assert annotations.images.file.tolist() == ["JPEGImages/2007_000027.jpg"]
    assert [annotations.categories[k] for k in annotations.objects.category] == ["tv"]
    assert annotations.objects.box.tolist() == [[8, 12, 38, 32]]


def test_the_ood_images_of_openimages_come_without_objects(lay, tmp_path):
    content = {
        "images": [
            {
                "id": "0001eeaf4aed83f9",
                "file_name": "0001eeaf4aed83f9.jpg",
                "width": 20,
                "height": 10,
            }
        ],
        "categories": [{"supercategory": "person", "id": 1, "name": "person"}],
        "annotations": [],
    }
    root = lay(
        {"COCO-Format/val_coco_format.json": content, "images/0001eeaf4aed83f9.jpg": (20, 10)}
    )
    reader = datasets.create("vos", root=root)
    assert ingest(reader, "oi", tmp_path / "out") == {
        "openimages_ood_val": {"images": 1, "objects": 0, "categories": 0, "warnings": 1}
    }
    objects = Objects.read(tmp_path / "out/openimages_ood_val/objects.parquet")
    np.testing.assert_array_equal(objects.box, np.zeros((0, 4), np.float32))


def image_counts(curation) -> dict[str, int]:
    """Number of images of each split."""
    return {name: len(split.images) for name, split in curation.splits.items()}


def test_the_profile_keeps_the_images_as_published_and_counts_those_that_show_id_classes(
    lay, tmp_path, monkeypatch
):
    size = {"width": 20, "height": 10}
    unlabelled = {
        "images": [
            {"id": "0001", "file_name": "0001.jpg", **size},
            {"id": "0002", "file_name": "0002.jpg", **size},
            {"id": "0003", "file_name": "0003.jpg", **size},
        ],
        "categories": [{"id": 1, "name": "person"}],
        "annotations": [],
    }
    boxes = (
        "ImageID,LabelName,XMin,XMax,YMin,YMax,IsGroupOf\n"
        "0001,/m/p,0.1,0.5,0.1,0.5,0\n"
        "0002,/m/h,0.1,0.5,0.1,0.5,0\n"
        "0003,/m/k,0.1,0.5,0.1,0.5,0\n"
        "9999,/m/p,0,1,0,1,0\n"
    )
    coco = {
        "images": [
            {"id": 1, "file_name": "000000000001.jpg", **size},
            {"id": 2, "file_name": "000000000002.jpg", **size},
        ],
        "categories": [{"id": 51, "name": "bowl"}, {"id": 50, "name": "spoon"}],
        "annotations": [
            {"id": 1, "image_id": 1, "category_id": 51, "bbox": [1, 1, 5, 5], "iscrowd": 0},
            {"id": 2, "image_id": 2, "category_id": 50, "bbox": [1, 1, 5, 5], "iscrowd": 0},
        ],
    }
    box = "<bndbox><xmin>1</xmin><ymin>1</ymin><xmax>9</xmax><ymax>9</ymax></bndbox>"
    xml = f"<annotation><object><name>person</name>{box}</object></annotation>"
    root = lay(
        {
            "ood_classes_rm_overlap/COCO-Format/val_coco_format.json": unlabelled,
            "ood_classes_rm_overlap/images/0001.jpg": (20, 10),
            "ood_classes_rm_overlap/images/0002.jpg": (20, 10),
            "ood_classes_rm_overlap/images/0003.jpg": (20, 10),
            "validation-annotations-bbox.csv": boxes,
            "class-descriptions-boxable.csv": "/m/p,Person\n/m/h,Human hand\n/m/k,Kite\n",
            "bbox_labels_600_hierarchy.json": {"LabelName": "/m/0bl9f", "Subcategory": []},
            "annotations/instances_val2017_ood_rm_overlap.json": coco,
            "val2017/000000000001.jpg": (20, 10),
            "val2017/000000000002.jpg": (20, 10),
            "VOC2007/ImageSets/Main/trainval.txt": "000001\n",
            "VOC2007/ImageSets/Main/test.txt": "000001\n",
            "VOC2012/ImageSets/Main/trainval.txt": "",
            "VOC2007/Annotations/000001.xml": xml,
            "VOC2007/JPEGImages/000001.jpg": (20, 10),
        }
    )
    project = Path(__file__).parents[2]
    params = parse((project / "profiles/vos.yaml").read_text())
    below = {"vos_openimages": "ood_classes_rm_overlap"}
    for name, values in params["datasets"].items():
        if name == "bdd":
            continue
        values = {**values, "root": str(root / below.get(name, "."))}
        subsets = {"subset_names": ["coco_ood_val"]} if name == "vos_coco" else {}
        ingest(datasets.create(**{**values, **subsets}), name, tmp_path / "tables" / name)
    monkeypatch.chdir(project)
    tables = TablesFolder(tmp_path / "tables")
    published = curate(benchmark("voc", params["benchmarks"]["voc"]), tables)
    cleaned = curate(benchmark("cleaned", params["benchmarks"]["cleaned"]), tables)
    assert image_counts(published) == {"train": 1, "val": 1, "test": 1, "coco": 2, "openimages": 3}
    assert image_counts(cleaned) == {"train": 1, "val": 1, "test": 1, "coco": 1, "openimages": 1}
    removed = cleaned.fates.frame.filter(fate="removed")["rule"].sort().to_list()
    assert removed == [
        "ID class: Person → person",
        "overlap: Human hand → person",
        "overlap: spoon → diningtable",
    ]
