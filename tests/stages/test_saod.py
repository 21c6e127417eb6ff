"""The profile `saod` on miniatures in the true layouts: ingested, derived and curated."""

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
from PIL import Image
from tests.stages.in_process import run

from farther.command.profile import placed
from farther.curation import Fates, Rules
from farther.curation.sources import Categories
from farther.detectors.known_classes import check_classes, with_class_names
from farther.metrics import self_awareness
from farther.params import parse
from farther.report.papers.layout import read_paper
from farther.report.papers.printed import published_detectors
from farther.tables import Header, Images, Objects, Regions

ROOT = Path(__file__).parents[2]
SIZE = (64, 48)

#: Classes of each image of Objects365.
OBJECTS365 = {
    "train": {"lamp": ["Lamp"], "lamp and SUV": ["Lamp", "SUV"]},
    "val": {
        "cars": ["SUV", "Formula 1 ", "Lamp"],
        "urinal": ["Urinal"],
        "car and flask": ["Car", "Flask"],
        "boots": ["Boots", "Swan"],
        "desk": ["Desk"],
        "nothing": [],
    },
}
#: Labels of each image of BDD100K: class and box x1, y1, x2, y2.
BDD = {
    "train": {
        "ridden": [
            ("rider", 12, 5, 27, 34),
            ("bicycle", 10, 20, 29, 39),
            ("traffic light", 1, 1, 4, 9),
        ]
    },
    "val": {
        "others": [("other person", 1, 2, 9, 19), ("trailer", 20, 10, 39, 29)],
        "sign": [("traffic sign", 1, 1, 5, 5)],
        "alone": [("rider", 12, 5, 27, 34), ("car", 40, 10, 49, 19)],
    },
}


def write_json(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def picture(path, seed=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(seed).integers(0, 255, (*SIZE[::-1], 3), np.uint8)).save(
        path
    )


def coco(file, folder, images, supercategory=None):
    """A file in COCO's form and its images: id, name of the file, classes."""
    names = list(dict.fromkeys(name for *_, classes in images for name in classes)) or ["person"]
    objects = [(image, name) for image, _, classes in images for name in classes]
    groups = supercategory or {}
    write_json(
        file,
        {
            "images": [
                {"id": i, "file_name": name, "width": SIZE[0], "height": SIZE[1]}
                for i, name, _ in images
            ],
            "categories": [
                {"id": i, "name": name, "supercategory": groups.get(name, "")}
                for i, name in enumerate(names, 1)
            ],
            "annotations": [
                {
                    "id": n,
                    "image_id": image,
                    "category_id": names.index(name) + 1,
                    "bbox": [3 + n % 7, 4, 20, 10],
                }
                for n, (image, name) in enumerate(objects, 1)
            ],
        },
    )
    for number, name, _ in images:
        picture(folder / name, number)


def objects365(root):
    for subset, images in OBJECTS365.items():
        named = [
            (n, f"images/v1/patch{n}/objects365_v1_{n:08d}.jpg", classes)
            for n, classes in enumerate(images.values(), 100 if subset == "val" else 1)
        ]
        coco(root / f"zhiyuan_objv2_{subset}.json", root / subset, named)


def nuimages(root):
    for subset in ("train", "val"):
        folder, file = root / f"v1.0-{subset}", f"samples/CAM_FRONT/{subset}.jpg"
        frame = {
            "token": subset,
            "filename": file,
            "is_key_frame": True,
            "width": SIZE[0],
            "height": SIZE[1],
        }
        names = ("human.pedestrian.child", "vehicle.emergency.police", "movable_object.barrier")
        write_json(folder / "sample_data.json", [frame])
        write_json(folder / "category.json", [{"token": name, "name": name} for name in names])
        write_json(
            folder / "object_ann.json",
            [
                {
                    "token": f"o{n}",
                    "category_token": name,
                    "bbox": [n, 2, n + 9, 19],
                    "sample_data_token": subset,
                }
                for n, name in enumerate(names)
            ],
        )
        picture(root / file)


def bdd(root):
    for subset, images in BDD.items():
        frames = [
            {
                "name": f"{name}.jpg",
                "labels": [
                    {
                        "category": one,
                        "box2d": dict(zip(("x1", "y1", "x2", "y2"), box, strict=True)),
                    }
                    for one, *box in labels
                ],
            }
            for name, labels in images.items()
        ]
        write_json(root / f"labels/det_20/det_{subset}.json", frames)
        for name in images:
            picture(root / f"images/100k/{subset}/{name}.jpg")


def svhn(root):
    for subset in ("train", "test"):
        picture(root / subset / "1.png")
        with h5py.File(root / subset / "digitStruct.mat", "w") as file:
            name = file.create_dataset(
                "#refs#/name", data=np.array([[ord(letter)] for letter in "1.png"], np.uint16)
            )
            box = file.create_group("#refs#/box")
            for part, value in {"left": 3, "top": 4, "width": 9, "height": 20, "label": 7}.items():
                box.create_dataset(part, data=np.array([[float(value)]]))
            for part, held in {"name": name, "bbox": box}.items():
                file.create_dataset(f"digitStruct/{part}", (1, 1), dtype=h5py.ref_dtype)[0, 0] = (
                    held.ref
                )


def inaturalist(root):
    images = [
        (1, "train_val_images/Insecta/1.jpg", ["Apis mellifera"]),
        (2, "train_val_images/Aves/2.jpg", ["Ardea alba"]),
        (3, "train_val_images/Mammalia/3.jpg", ["Vulpes vulpes"]),
    ]
    groups = {"Apis mellifera": "Insecta", "Ardea alba": "Aves", "Vulpes vulpes": "Mammalia"}
    coco(root / "val_2017_bboxes.json", root, images, groups)


@pytest.fixture(scope="module")
def splits(tmp_path_factory):
    """The folder of splits that the stages write, in the order of the pipeline."""
    folder = tmp_path_factory.mktemp("saod")
    for subset in ("train2017", "val2017"):
        named = [(9, "000000000009.jpg", ["person", "teddy bear"])]
        coco(folder / f"coco/annotations/instances_{subset}.json", folder / "coco" / subset, named)
    objects365(folder / "objects365")
    nuimages(folder / "nuimages")
    bdd(folder / "bdd100k")
    svhn(folder / "svhn")
    inaturalist(folder / "inaturalist")
    text = placed((ROOT / "profiles/saod.yaml").read_text(), str(folder))
    (folder / "params.yaml").write_text(text)
    (folder / "data").symlink_to(ROOT / "data")
    params = parse(text)
    derived = [(kind, name) for kind, entries in params["derived"].items() for name in entries]
    given = [name for name in params["datasets"] if name not in {name for _, name in derived}]
    run(
        folder,
        *(f"ingest {name}" for name in given),
        *(f"derive {kind} {name}" for kind, name in derived),
        "curate",
    )
    return folder / "artifacts/splits"


def categories(splits, benchmark, split):
    return Objects.read(splits / benchmark / split / "objects.parquet").category.tolist()


def test_obj45k_has_coco_s_names_and_no_image_with_an_ambiguous_class(splits):
    images = Images.read(splits / "gen/test/images.parquet")
    assert images.file.tolist() == [
        f"val/images/v1/patch{n}/objects365_v1_{n:08d}.jpg" for n in (100, 101)
    ]
    assert set(images.dataset) == {"objects365"}
    assert categories(splits, "gen", "test") == ["car", "car", "toilet"]
    assert categories(splits, "gen", "train") == ["person", "teddy bear"]


def test_bdd45k_has_three_classes_and_joined_riders(splits):
    images = Images.read(splits / "av/test/images.parquet")
    assert images.image_id.tolist() == ["ridden.jpg", "others.jpg"]
    objects = Objects.read(splits / "av/test/objects.parquet")
    assert objects.category.tolist() == ["bicycle", "pedestrian", "vehicle"]
    assert objects.box[0].tolist() == [10, 5, 30, 40]
    assert not objects.is_crowd.any()


def test_nuimages_is_labelled_with_the_three_classes(splits):
    assert (
        categories(splits, "av", "train")
        == categories(splits, "av", "val")
        == ["pedestrian", "vehicle"]
    )


@pytest.mark.parametrize("severity", ["c1", "c3", "c5"])
def test_corrupted_images_are_those_of_the_id_test_split(splits, severity):
    for benchmark in ("gen", "av"):
        clean = Images.read(splits / benchmark / "test/images.parquet")
        shifted = Images.read(splits / benchmark / severity / "images.parquet")
        assert shifted.image_id.tolist() == clean.image_id.tolist()
        assert categories(splits, benchmark, severity) == categories(splits, benchmark, "test")


@pytest.mark.parametrize("severity", ["val_c1", "val_c3", "val_c5"])
def test_corrupted_validation_images_are_those_of_the_id_validation_split(splits, severity):
    for benchmark in ("gen", "av"):
        clean = Images.read(splits / benchmark / "val/images.parquet")
        shifted = Images.read(splits / benchmark / severity / "images.parquet")
        assert shifted.image_id.tolist() == clean.image_id.tolist()
        assert categories(splits, benchmark, severity) == categories(splits, benchmark, "val")
        roles = json.loads((splits / benchmark / "roles.json").read_text())
        assert roles["shifted_val"] == {"val_c1": 1, "val_c3": 3, "val_c5": 5}


def test_pseudo_ood_images_are_those_of_the_validation_split(splits):
    for benchmark in ("gen", "av"):
        blank = Images.read(splits / benchmark / "pseudo_ood/images.parquet")
        assert (
            blank.image_id.tolist()
            == Images.read(splits / benchmark / "val/images.parquet").image_id.tolist()
        )


def test_ood_images_are_the_same_for_both_detectors_and_show_no_class_of_coco(splits):
    shown = {
        "svhn_train": ["7"],
        "svhn_test": ["7"],
        "inaturalist": ["Apis mellifera"],
        "objects365_train": ["Lamp"],
        "objects365_val": ["Boots", "Swan"],
    }
    for benchmark in ("gen", "av"):
        assert {name: categories(splits, benchmark, name) for name in shown} == shown
    reasons = (
        Fates.read(splits / "gen/fates.parquet")
        .frame.filter(dataset="inaturalist")["rule"]
        .to_list()
    )
    assert reasons[1:] == ["overlap: Aves → bird", "overlap: Mammalia → various"]


def test_both_benchmarks_remove_the_same_classes_of_objects365():
    gen, av = (Rules(ROOT / f"data/benchmarks/saod-{name}.yaml") for name in ("gen", "av"))
    assert len(gen.id_classes) == 80 and av.id_classes == ("pedestrian", "vehicle", "bicycle")
    removed = {
        name: {rule.category for rule in rules.for_vocabulary("objects365")}
        for name, rules in (("gen", gen), ("av", av))
    }
    assert (
        removed["gen"] == removed["av"] and len(removed["gen"]) == 104 + 24
    )  # SAOD, Appendix A.1.1: of 365 classes
    kept = Categories(("Lamp", "Swan", "Table Tennis"))
    assert set(gen.by_category("objects365", kept)) == {"Table Tennis"}


def test_the_91_outputs_of_deformable_detr_are_the_80_classes_and_numbers_without_a_class():
    detector = parse((ROOT / "profiles/saod.yaml").read_text())["detectors"]["gen-d_detr"]
    outputs, names = detector["params"]["classes"], detector["classes"]
    assert len(outputs) == 91
    for number, name in enumerate(outputs):
        assert name in names if name == f"N/A {number}" else name not in names
    # Numbers of COCO's categories: https://cocodataset.org, instances_val2017.json.
    assert [outputs[number] for number in (1, 13, 44, 90)] == [
        "person",
        "stop sign",
        "bottle",
        "toothbrush",
    ]
    header = Header(classes=tuple(outputs), activation="sigmoid")
    rules = Rules(ROOT / "data/benchmarks/saod-gen.yaml")
    assert check_classes(header, names, rules.id_classes) == []
    assert with_class_names(header, names).known_classes == rules.id_classes


def test_confidences_of_one_are_in_a_bin_as_eq_4_has_them():
    params = parse((ROOT / "profiles/saod.yaml").read_text())
    cat = Objects(image_id=["a"], object_id=[0], box=[[0, 0, 10, 10]], category=["cat"])
    regions = Regions(
        image_id=["a"],
        region_id=[0],
        box=[[0, 0, 5, 10]],
        score=[1.0],
        label=[0],
        logits=[[9.0]],
        classes=("cat",),
    )
    found = self_awareness.evaluate(cat, regions, protocol=params["evaluate"]["protocol"])
    assert found["laece"] == 0.5  # |1 − precision 1 · IoU 0.5|; the published code has 0


def test_the_detectors_of_the_profile_run_here_but_two_and_have_printed_counterparts():
    params = parse((ROOT / "profiles/saod.yaml").read_text())
    adapters = {name: detector["adapter"] for name, detector in params["detectors"].items()}
    imported = {name for name, adapter in adapters.items() if adapter == "parquet"}
    assert imported == {"gen-rs_rcnn", "gen-atss", "av-atss"}
    assert {name for name, adapter in adapters.items() if adapter == "faster_rcnn"} == {
        "gen-faster_rcnn",
        "gen-nll_rcnn",
        "gen-es_rcnn",
        "av-faster_rcnn",
    }
    assert set(params["sources"]) - {"embed"} == set(adapters)
    printed = published_detectors(ROOT, [read_paper("saod")])
    published = params["report"]["published"]
    assert set(published) == set(adapters)
    assert {
        (counterpart["detector"], counterpart["id"]) for counterpart in published.values()
    } <= printed
