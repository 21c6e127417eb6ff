"""COCO-OOD and COCO-Mixed of UnSniffer, and lists of images of OWOD: in miniature, as the profiles have them."""

from pathlib import Path

import pytest

from farther import datasets
from farther.curation import TablesFolder, benchmark, curate
from farther.datasets.ingest import ingest
from farther.params import parse

ROOT = Path(__file__).parents[2]

COCO_OOD = {
    "images": [{"id": 7, "file_name": "000000000007.jpg", "width": 20, "height": 10}],
    "categories": [{"id": 81, "name": "unknow object", "supercategory": "unknow object"}],
    "annotations": [{"id": 1, "image_id": 7, "category_id": 81, "bbox": [1, 2, 3, 4], "area": 12, "iscrowd": 0}],
}
MIXED_IMAGES = [
    {"id": 8, "file_name": "000000000008.jpg", "width": 20, "height": 10},
    {"id": 9, "file_name": "000000000009.jpg", "width": 20, "height": 10},
]
MIXED_ID = {
    "images": MIXED_IMAGES,
    "categories": [{"id": 1, "name": "person"}, {"id": 8, "name": "airplane"}],
    "annotations": [
        {"id": 31, "image_id": 8, "category_id": 8, "bbox": [0, 0, 9, 9], "iscrowd": 0},
        {"id": 32, "image_id": 9, "category_id": 1, "bbox": [0, 0, 5, 5], "iscrowd": 0},
    ],
}
MIXED_OOD = {
    "images": MIXED_IMAGES,
    "categories": [{"id": 81, "name": "unknow object"}],
    "annotations": [
        {"id": 31, "image_id": 8, "category_id": 81, "bbox": [10, 1, 4, 4], "iscrowd": 0},
        {"id": 33, "image_id": 555, "category_id": 81, "bbox": [1, 1, 4, 4], "iscrowd": 0},
    ],
}


@pytest.fixture
def unsniffer(lay):
    files = {
        "annotations/instances_val2017_coco_ood.json": COCO_OOD,
        "annotations/instances_val2017_mixed_ID.json": MIXED_ID,
        "annotations/instances_val2017_mixed_OOD.json": MIXED_OOD,
    }
    return lay({**files, **{f"val2017/{number:012d}.jpg": (20, 10) for number in (7, 8, 9)}})


def profile(name, root, *wanted):
    """Parameters of a profile with these datasets only, all below one folder."""
    params = parse((ROOT / "profiles" / f"{name}.yaml").read_text())
    return {**params, "datasets": {key: {**params["datasets"][key], "root": str(root)} for key in wanted}}


def curated(params, key, tables, monkeypatch):
    for name, values in params["datasets"].items():
        ingest(datasets.create(**values), name, tables / name)
    monkeypatch.chdir(ROOT)
    return curate(benchmark(key, params["benchmarks"][key]), TablesFolder(tables))


def labels(split):
    return sorted(zip(split.objects.image_id, split.objects.category, strict=True))


def test_known_and_unknown_objects_come_from_two_files(unsniffer):
    reader = datasets.create("unsniffer", root=unsniffer)
    assert reader.subsets() == ["coco_ood", "coco_mixed"]
    found = reader.read("coco_mixed")
    assert [found.categories[k] for k in found.objects.category] == ["airplane", "person", "unknow object"]
    assert found.objects.box.tolist() == [[0, 0, 9, 9], [0, 0, 5, 5], [10, 1, 14, 5]]
    assert len(set(found.objects.object_id)) == 3  # the files number their objects alike
    assert [warning.found for warning in found.warnings] == ["555"]
    assert found.location(1) == ("annotations/instances_val2017_mixed_ID.json", "annotations[1]")
    assert found.location(2) == ("annotations/instances_val2017_mixed_OOD.json", "annotations[0]")


def test_the_second_file_is_named_where_it_is_missing(unsniffer):
    (unsniffer / "annotations/instances_val2017_mixed_OOD.json").unlink()
    lacking = datasets.missing({"x": {"format": "unsniffer", "root": str(unsniffer)}})
    assert [(one.what, one.subsets, one.paths[0].name) for one in lacking] == [
        ("unknown objects", ("coco_mixed",), "instances_val2017_mixed_OOD.json")
    ]
    assert "Went-Liang/UnSniffer" in lacking[0].source


def test_mixed_images_keep_their_known_objects_by_the_names_of_the_id_classes(unsniffer, lay, tmp_path, monkeypatch):
    voc = {"VOC2007/ImageSets/Main/trainval.txt": "000001\n", "VOC2007/Annotations/000001.xml": xml("aeroplane")}
    voc |= {"VOC2012/ImageSets/Main/trainval.txt": "", "VOC2007/ImageSets/Main/test.txt": "000001\n"}
    lay({**voc, "VOC2007/JPEGImages/000001.jpg": (20, 10)})
    found = curated(profile("unsniffer", unsniffer, "voc", "unsniffer"), "voc", tmp_path / "tables", monkeypatch)
    mixed = [("000000000008", "aeroplane"), ("000000000008", "unknow object"), ("000000000009", "person")]
    assert labels(found.splits["coco_mixed"]) == mixed
    assert labels(found.splits["coco_ood"]) == [("000000000007", "unknow object")]
    assert not [text for text in found.warnings if "unknow object" in text]


def xml(*names):
    box = "<bndbox><xmin>1</xmin><ymin>1</ymin><xmax>9</xmax><ymax>9</ymax></bndbox>"
    shown = "".join(f"<object><name>{name}</name><difficult>0</difficult>{box}</object>" for name in names)
    return f"<annotation><size><width>20</width><height>10</height></size>{shown}</annotation>"


def test_owod_s_tasks_share_images_and_differ_in_what_is_unknown(lay, tmp_path, monkeypatch):
    shown = {
        "000005": ["aeroplane"],  # of VOC
        "000000000139": ["airplane", "zebra"],  # of COCO: the same class by its other name
        "000000000285": ["zebra"],
        "000000000632": ["truck", "tv"],
        "000000000724": ["kite"],
    }
    tests = "\n".join(name for name in shown if name != "000005")
    files = {f"Annotations/{name}.xml": xml(*names) for name, names in shown.items()}
    files |= {f"JPEGImages/{name}.jpg": (20, 10) for name in shown}
    lists = {"owod_t1_train": "000005", "owod_t2_train": "000000000632", "owod_t3_train": "000000000724"}
    lists |= {"owod_all_task_test": f"000005\n{tests}\n"}
    root = lay({**files, **{f"ImageSets/TOWOD/{name}.txt": text for name, text in lists.items()}})
    params = profile("owod", root, "owod_m")
    first = curated(params, "m1", tmp_path / "tables", monkeypatch)
    assert labels(first.splits["train"]) == [("000005", "airplane")]
    assert labels(first.splits["test"]) == [("000005", "airplane")]  # others show unknown objects
    assert ("000000000139", "airplane") in labels(first.splits["test_all"])
    assert ("000000000139", "zebra") in labels(first.splits["test_all"])
    second = curate(benchmark("m2", params["benchmarks"]["m2"]), TablesFolder(tmp_path / "tables"))
    assert set(second.splits["test"].images.image_id) == set(shown) - {"000000000724"}
    assert labels(second.splits["test_all"]) == labels(first.splits["test_all"])
    assert set(second.id_classes) - set(first.id_classes) >= {"zebra", "truck"}
