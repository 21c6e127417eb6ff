"""Profiles of sets with known and unknown objects in the same images, and of road hazards."""

from pathlib import Path

import pytest

from farther import datasets
from farther.curation import TablesFolder, benchmark, curate
from farther.datasets.ingest import ingest
from farther.metrics.open_set.image_pairs import base_images
from farther.params import parse

ROOT = Path(__file__).parents[2]

COCO_OOD = {
    "images": [{"id": 7, "file_name": "000000000007.jpg", "width": 20, "height": 10}],
    "categories": [{"id": 81, "name": "unknow object", "supercategory": "unknow object"}],
    "annotations": [
        {"id": 1, "image_id": 7, "category_id": 81, "bbox": [1, 2, 3, 4], "area": 12, "iscrowd": 0}
    ],
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


def profile(name, root, *names):
    """Parameters of a profile with the named datasets only, all below one folder."""
    params = parse((ROOT / "profiles" / f"{name}.yaml").read_text())
    selected = {}
    for dataset in names:
        selected[dataset] = {**params["datasets"][dataset], "root": str(root)}
    return {**params, "datasets": selected}


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
    annotations = reader.read("coco_mixed")
    assert [annotations.categories[k] for k in annotations.objects.category] == [
        "airplane",
        "person",
        "unknow object",
    ]
    assert annotations.objects.box.tolist() == [[0, 0, 9, 9], [0, 0, 5, 5], [10, 1, 14, 5]]
    assert len(set(annotations.objects.object_id)) == 3  # the files number their objects alike
    assert [warning.found for warning in annotations.warnings] == ["555"]
    assert annotations.location(1) == (
        "annotations/instances_val2017_mixed_ID.json",
        "annotations[1]",
    )
    assert annotations.location(2) == (
        "annotations/instances_val2017_mixed_OOD.json",
        "annotations[0]",
    )


def test_the_second_file_is_named_where_it_is_missing(unsniffer):
    (unsniffer / "annotations/instances_val2017_mixed_OOD.json").unlink()
    lacking = datasets.missing({"x": {"format": "unsniffer", "root": str(unsniffer)}})
    (unknown,) = lacking
    assert (unknown.what, unknown.subsets) == ("unknown objects", ("coco_mixed",))
    assert unknown.paths[0].name == "instances_val2017_mixed_OOD.json"
    assert "Went-Liang/UnSniffer" in unknown.source


def test_mixed_images_keep_their_known_objects_by_the_names_of_the_id_classes(
    unsniffer, lay, tmp_path, monkeypatch
):
    voc = {
        "VOC2007/ImageSets/Main/trainval.txt": "000001\n",
        "VOC2007/ImageSets/Main/test.txt": "000001\n",
        "VOC2007/Annotations/000001.xml": xml("aeroplane"),
        "VOC2007/JPEGImages/000001.jpg": (20, 10),
        "VOC2012/ImageSets/Main/trainval.txt": "",
    }
    lay(voc)
    params = profile("unsniffer", unsniffer, "voc", "unsniffer")
    curation = curated(params, "voc", tmp_path / "tables", monkeypatch)
    # Image 9 has known objects only.
    mixed = [("000000000008", "aeroplane"), ("000000000008", "unknow object")]
    assert labels(curation.splits["coco_mixed"]) == mixed
    assert labels(curation.splits["coco_ood"]) == [("000000000007", "unknow object")]
    assert not [text for text in curation.warnings if "unknow object" in text]


def xml(*names):
    box = "<bndbox><xmin>1</xmin><ymin>1</ymin><xmax>9</xmax><ymax>9</ymax></bndbox>"
    objects = ""
    for name in names:
        objects += f"<object><name>{name}</name><difficult>0</difficult>{box}</object>"
    return f"<annotation><size><width>20</width><height>10</height></size>{objects}</annotation>"


def test_owod_s_tasks_share_images_and_differ_in_what_is_unknown(lay, tmp_path, monkeypatch):
    classes_by_image = {
        "000005": ["aeroplane"],  # of VOC
        "000000000139": ["airplane", "zebra"],  # of COCO: the same class by its other name
        "000000000285": ["zebra"],
        "000000000632": ["truck", "tv"],
        "000000000724": ["kite"],
    }
    files = {
        "ImageSets/TOWOD/owod_t1_train.txt": "000005",
        "ImageSets/TOWOD/owod_t2_train.txt": "000000000632",
        "ImageSets/TOWOD/owod_t3_train.txt": "000000000724",
        "ImageSets/TOWOD/owod_all_task_test.txt": "\n".join(classes_by_image) + "\n",
    }
    for name, classes in classes_by_image.items():
        files[f"Annotations/{name}.xml"] = xml(*classes)
        files[f"JPEGImages/{name}.jpg"] = (20, 10)
    root = lay(files)
    params = profile("owod", root, "owod_m")
    first = curated(params, "m1", tmp_path / "tables", monkeypatch)
    assert labels(first.splits["train"]) == [("000005", "airplane")]
    assert labels(first.splits["test"]) == [("000005", "airplane")]  # others show unknown objects
    assert ("000000000139", "airplane") in labels(first.splits["test_unknown"])
    assert ("000000000139", "zebra") in labels(first.splits["test_unknown"])
    second = curate(benchmark("m2", params["benchmarks"]["m2"]), TablesFolder(tmp_path / "tables"))
    images = set(classes_by_image)
    assert set(first.splits["test"].images.image_id) == {"000005"}
    assert set(first.splits["test_unknown"].images.image_id) == images - {"000005"}
    assert set(second.splits["test"].images.image_id) == images - {"000000000724"}
    assert set(second.splits["test_unknown"].images.image_id) == {"000000000724"}
    assert set(second.id_classes) - set(first.id_classes) >= {"zebra", "truck"}


def bdd(subset, *names):
    labels = [{"id": "0", "category": "car", "box2d": {"x1": 0, "y1": 0, "x2": 9, "y2": 9}}]
    frames = [{"name": f"{name}.jpg", "labels": labels} for name in names]
    return {
        f"labels/det_20/det_{subset}.json": frames,
        **{f"images/100k/{subset}/{name}.jpg": (20, 10) for name in names},
    }


def test_images_with_an_inpainted_object_are_paired_with_bdd_s(lay, tmp_path, monkeypatch):
    scene = "b1c66a42-6f7d68ca"
    names = [f"{scene}_dog_0.png", f"{scene}_boar_1.png"]
    annotation = {"bbox": [0, 0, 5, 5], "iscrowd": 0}
    content = {
        "images": [
            {"id": 0, "file_name": names[0], "width": 20, "height": 10},
            {"id": 1, "file_name": names[1], "width": 20, "height": 10},
        ],
        "categories": [
            {"id": 1, "name": "Dog"},
            {"id": 7, "name": "car"},
            {"id": 8, "name": "bike"},
        ],
        "annotations": [
            {"id": 0, "image_id": 0, "category_id": 1, **annotation},
            {"id": 1, "image_id": 0, "category_id": 7, **annotation},
            {"id": 2, "image_id": 1, "category_id": 1, **annotation},
            {"id": 3, "image_id": 1, "category_id": 8, **annotation},
        ],
    }
    files = {
        "annotations/ood_positive_hiconf.json": content,
        **dict.fromkeys((f"images/{name}" for name in names), (20, 10)),
        **bdd("train", "0000f77c-6257be58"),
        **bdd("val", scene, "b1c9c847-3bda4659"),
    }
    params = profile("drive-synood", lay(files), "bdd", "drive_synood")
    curation = curated(params, "bdd", tmp_path / "tables", monkeypatch)
    split = curation.splits["ood_positive_hiconf"]
    assert sorted(split.objects.category) == ["Dog", "Dog", "bicycle", "car"]
    pairs = benchmark("bdd", params["benchmarks"]["bdd"]).splits["ood_positive_hiconf"].pairs
    assert pairs.by == "file"
    files = file_by_id(split)
    base_files = file_by_id(curation.splits[pairs.of])
    base_of = base_images(files, base_files, pairs.name)
    assert {files[image]: base_files[base] for image, base in base_of.items()} == {
        f"images/{names[0]}": f"images/100k/val/{scene}.jpg",
        f"images/{names[1]}": f"images/100k/val/{scene}.jpg",
    }


def file_by_id(split) -> dict[str, str]:
    return dict(zip(split.images.image_id, split.images.file, strict=True))


def test_lost_cargo_has_one_category_and_no_known_objects(lay, tmp_path, monkeypatch):
    name = "02_Hanns_Klemm_Str_44_000007_000140"
    content = {
        "images": [{"id": name, "file_name": f"{name}.png", "width": 20, "height": 10}],
        "categories": [{"id": 1, "name": "anomaly"}],
        "annotations": [
            {"id": 1, "image_id": name, "category_id": 1, "bbox": [3, 3, 4, 4], "iscrowd": 0}
        ],
    }
    files = {"labels/fishyscapes_label.json": content, f"images/fishyscapes/{name}.png": (20, 10)}
    root = lay({**files, **bdd("train", "0000f77c-6257be58"), **bdd("val", "b1c9c847-3bda4659")})
    curation = curated(
        profile("oodis", root, "bdd", "oodis"), "bdd", tmp_path / "tables", monkeypatch
    )
    ood_splits = curation.splits.keys() - {"train", "val", "test"}
    assert ood_splits == {"fishyscapes"}
    assert labels(curation.splits["fishyscapes"]) == [(name, "anomaly")]
