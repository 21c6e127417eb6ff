"""What is disturbed: `TARGETS` is the table of all targets.

Each has a small valid folder and a function that reads or writes there as farther's stages and
commands do; the row says which files are damaged, and at which moments it is interrupted. What
folders are made of is in `valid/`. A new target is one row.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from tests.disturbed.valid import (
    datasets,
    deployed,
    detections,
    embedded,
    networks,
    pipeline,
    projects,
    tables,
)
from tests.disturbed.valid.datasets import coco, in_coco
from tests.disturbed.valid.files import jpeg, parquet, write
from tests.disturbed.valid.projects import farther, project, stage


@dataclass(frozen=True)
class Target:
    """Something of farther that reads or writes files.

    Args:
        make: Writes a valid folder, in the current one.
        act: Reads it, or writes there, in that folder as the current one.
        damaged: Patterns of the files that are damaged before; none by default.
        share: Cases of damage per case of an ordinary target.
        links: Whether the files of a case may be links to the valid ones; NLTK reads none that are.
        compared: Whether what it writes is compared with what undamaged files give.
        interrupted: Names of the moments of `moments.py` at which it is interrupted.
        writes: The file or folder that it writes.
        at_once: Whether that is there whole or not at all, also where it is interrupted.
        after: The target in whose folder `make` runs, after it.
        processes: Whether it starts processes that change files.
    """

    make: Callable[[], object]
    act: Callable[[], object]
    damaged: tuple[str, ...] = ()
    share: float = 1.0
    links: bool = True
    compared: bool = False
    interrupted: tuple[str, ...] = ()
    writes: str = ""
    at_once: bool = False
    after: str = ""
    processes: bool = False


TARGETS: dict[str, Target] = {}
#: All files.
ALL = ("**/*",)

# --------------------------------------------------------------------------------------------------
# formats of datasets


def dataset(
    name: str, files: dict[str, Any] | Callable[[], None], share: float = 1.0, **params: Any
) -> None:
    """A target that ingests a dataset; its parameters are a file too."""
    kind = params.pop("format", name)

    def build() -> None:
        write(files) if isinstance(files, dict) else files()
        write({"reader.json": {"format": kind, **params}})

    def read() -> None:
        from farther import datasets
        from farther.datasets.ingest import ingest
        from farther.tables.documents import read_json

        described = read_json("reader.json")
        found = described if isinstance(described, dict) else {}
        given = {
            "format": kind,
            "max_warnings": 1.0,
            **{str(k): v for k, v in found.items()},
            "root": Path.cwd(),
        }
        reader = datasets.create(**given)
        for subset in reader.subsets():
            list(reader.credits(subset))
        ingest(reader, "fuzzed", ".out")

    TARGETS[name] = Target(build, read, ALL, share, compared=True)


dataset("voc", {
    "VOC2012/ImageSets/Main/train.txt": "a\nb 1\n", "VOC2012/Annotations/a.xml": datasets.VOC, "VOC2012/Annotations/b.xml": datasets.VOC,
    "VOC2012/JPEGImages/a.jpg": (40, 30), "VOC2012/JPEGImages/b.jpg": (40, 30),
}, 1.5)  # fmt: skip
LAYOUT = {"train": ["annots", "images"]}
dataset(
    "voc_layout",
    {"annots/a.xml": datasets.VOC, "images/a.png": (40, 30)},
    1.8,
    format="voc",
    layout=LAYOUT,
)
dataset("coco", in_coco("annotations/instances_val2017.json", "val2017"), 1.5)
dataset("objects365", in_coco("zhiyuan_objv2_val.json", "val", "patch8/a.jpg"), 0.7)
dataset("inaturalist", in_coco("val_2017_bboxes.json", "."), 0.7)
dataset("vos", in_coco("val_coco_format.json", "JPEGImages"), 0.5)
LABELS = [{"category": "car", "box2d": {"x1": 1, "y1": 2, "x2": 20, "y2": 21}, "id": "1", "attributes": {"crowd": False}, "poly2d": None},
          {"category": "rider", "box2d": {"x1": 3, "y1": 2, "x2": 9, "y2": 21}}, {"category": "bike", "box2d": {"x1": 3, "y1": 5, "x2": 12, "y2": 25}}]  # fmt: skip
dataset("unsniffer", {
    **in_coco("annotations/instances_val2017_coco_ood.json", "val2017"),
    **{f"annotations/instances_val2017_mixed_{kind}.json": coco("a.jpg") for kind in ("ID", "OOD")},
}, 0.7)  # fmt: skip
dataset("bdd", {
    "labels/det_20/det_train.json": [{"name": "a.jpg", "labels": LABELS, "size": {"width": 40, "height": 30}}, {"name": "b.jpg", "labels": None}],
    "images/100k/train/a.jpg": (40, 30), "images/100k/train/b.jpg": (40, 30),
}, join_riders=True)  # fmt: skip
dataset("bdd_folder", {
    "labels/100k/val/a.json": {"name": "a", "frames": [{"objects": LABELS}]}, "images/100k/val/a.jpg": (40, 30),
}, 0.7, format="bdd")  # fmt: skip
dataset("nuimages", {
    "v1.0-mini/sample_data.json": [{"token": "k", "filename": "samples/k.jpg", "is_key_frame": True, "width": 160, "height": 90}, {"token": "f", "filename": "s/f.jpg", "is_key_frame": False}],
    "v1.0-mini/category.json": [{"token": "c1", "name": "vehicle.car"}, {"token": "c2", "name": "flat.x"}],
    "v1.0-mini/object_ann.json": [{"token": "o", "category_token": "c1", "bbox": [10, 20, 60, 70], "mask": {"counts": "x"}, "sample_data_token": "k"}],
    "samples/k.jpg": (160, 90),
})  # fmt: skip
BOXES = "ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,IsGroupOf\n" + "".join(
    f"{name},x,/m/{k},1,0.1,0.5,0.2,0.{k + 3},{k}\n" for k, name in enumerate("aab"[:3])
)
dataset("openimages", {
    "validation-annotations-bbox.csv": BOXES.replace(",2\n", ",-1\n"), "class-descriptions-boxable.csv": "/m/0,Cat\n/m/1,Dog\n/m/2,Fox\n", "validation/a.jpg": (40, 30), "validation/b.jpg": (40, 30),
    "bbox_labels_600_hierarchy.json": {"LabelName": "/m/9", "Subcategory": [{"LabelName": "/m/0", "Subcategory": [{"LabelName": "/m/1"}], "Part": [{"LabelName": "/m/2"}]}]},
    "validation-images-with-rotation.csv": "ImageID,License,Author,OriginalLandingURL\na,CC,x,u\n",
}, 1.5)  # fmt: skip
dataset("yolo", {
    "data.yaml": "path: .\ntrain: images/train\nval: val.txt\nnames: {0: cat, 1: dog}\nnc: 2\n", "val.txt": "./images/val/b.jpg\n",
    "labels/train/a.txt": "0 0.5 0.5 0.2 0.2\n1 0.1 0.1 0.3 0.1 0.3 0.4\n", "labels/val/b.txt": "1 0.4 0.4 0.2 0.1\n", "images/train/a.jpg": (40, 30), "images/val/b.jpg": (40, 30),
}, 1.5)  # fmt: skip
dataset(
    "huggingface",
    {"data/train-00000-of-00001.parquet": parquet(datasets.HF), "README.md": datasets.README},
    2,
)
dataset("huggingface_arrow", datasets.huggingface_arrow, 2, format="huggingface")
LINES = [
    {"file_name": f"{n}.jpg", "objects": {"bbox": [[1, 2, 3, 4]], "category": ["cat"]}}
    for n in "ab"
]
dataset("huggingface_jsonl", {
    "train/metadata.jsonl": "\n".join(map(json.dumps, LINES)), "train/a.jpg": (40, 30), "train/b.jpg": (40, 30),
}, format="huggingface")  # fmt: skip
PUBLISHED = [{**row, "file_name": f"{row['image_id']}.jpg", "image_id": str(row["image_id"]), "dataset_origin": "COCO", "distance_category": "far",
              "objects": {"id": [1, 2], "area": [1.0, 2.0], "bbox": [[1.0, 2, 3, 4], [5, 6, 7, 8]], "category_id": [25, 90]},
              "categories": {"names": ["giraffe", "toothbrush"], "supercategories": ["a", "b"]}} for row in datasets.HF]  # fmt: skip
CHECKED = {"compression": "zstd", "write_page_checksum": True}
dataset("fmiyc", {"coco_far_voc/test-00000-of-00001.parquet": parquet(PUBLISHED, **CHECKED)})
dataset(
    "image_folder", {"val/cat/1.png": (7, 5), "val/dog/2.jpg": (9, 9), "val/3.png": (3, 3)}, 0.5
)
dataset(
    "images",
    {"a.jpg": (40, 30), "in/b.jpg": (40, 30), "notes.txt": "lynx", "boxes.json": coco()},
    boxes="boxes.json",
)
dataset("mvtec", {
    "tile/train/good/0.png": (7, 5), "tile/test/good/0.png": (7, 5), "tile/test/crack/0.png": (7, 5),
    "tile/ground_truth/crack/0_mask.png": (7, 5),
}, 0.5, category="tile")  # fmt: skip
dataset("tiny_imagenet", {
    "wnids.txt": "n01\nn02\n", "train/n01/images/0.JPEG": jpeg(8, 8), "train/n02/images/0.JPEG": jpeg(8, 8),
    "val/val_annotations.txt": "0.JPEG\tn02\t0\t0\t5\t5\n", "val/images/0.JPEG": jpeg(8, 8),
}, 0.5)  # fmt: skip
dataset("sun397", {"a/abbey/1.png": (7, 5), "b/barn/outdoor/2.jpg": (9, 9)}, 0.3)
dataset(
    "imglist", {"test.txt": "x/1.png 0\n/x/2.png -1\n", "x/1.png": (7, 5), "x/2.png": (9, 9)}, 0.7
)
dataset("mnist", {
    "t10k-images-idx3-ubyte.gz": gzip.compress(datasets.idx(np.zeros((3, 28, 28))), mtime=0), "t10k-labels-idx1-ubyte": datasets.idx(np.arange(3)),
}, 1.2)  # fmt: skip
NAMES = "airplane\nautomobile\nbird\ncat\ndeer\ndog\nfrog\nhorse\nship\ntruck\n"
dataset("cifar", {
    "batches.meta.txt": NAMES, **{f"{name}.bin": bytes(3073 * 2) for name in (*(f"data_batch_{k}" for k in range(1, 6)), "test_batch")},
}, 0.5)  # fmt: skip
dataset("svhn", datasets.svhn)
dataset("svhn_cropped", datasets.svhn_cropped)

# --------------------------------------------------------------------------------------------------
# tables and states

TARGETS |= {
    "tables": Target(tables.write_tables, tables.read_tables, ALL, 2),
    "regions": Target(tables.write_regions, tables.read_regions, ALL, 2),
    "embeddings": Target(tables.write_embeddings, tables.read_embeddings, ALL),
    "fitted": Target(tables.write_fitted, tables.read_fitted, ("*/*.json", "*/*.safetensors"), 3),
    "wordnet": Target(projects.write_wordnet_files, projects.read_wordnet, ALL, 0.7, links=False),
    "training_state": Target(embedded.training_state, embedded.resume, ("state.pt",), 0.2),
}

# --------------------------------------------------------------------------------------------------
# stages and commands in small projects

INTERRUPTED = ("killed", "full", "quota")
TABLES = ("artifacts/tables/**/*.parquet", "artifacts/tables/**/*.json")
SPLITS = ("artifacts/splits/**/*.parquet", "artifacts/splits/**/*.json")
RULES = ("rules.yaml", "decisions.csv")
RUN = ("artifacts/regions/theirs/**/*", "artifacts/splits/**/*")
#: Files of an evaluated project that commands and report read, and that other targets do not
#: damage.
EVALUATED = (
    "artifacts/results/*", "artifacts/choices/*.json", "artifacts/dials/*.json", "artifacts/metrics/*/*.json", "artifacts/metrics/*/*/m*.json",
    "artifacts/thresholds/*", "artifacts/fitted/*/knn/*.json", "artifacts/tables/*/*.json", "artifacts/splits/*/*.json", "artifacts/cost.json", "artifacts/times.json",
    "artifacts/counts/**/*", "artifacts/plots/similarity/**/*",
)  # fmt: skip
KEPT = (
    "artifacts/choices/**/*", "artifacts/evaluation/**/*", "artifacts/fitted/**/*", "artifacts/records/**/*",
    "artifacts/recovered/**/*", "artifacts/scores/**/*", "artifacts/thresholds/*", "artifacts/truth/*",
)  # fmt: skip
CURATED, INFERRED = partial(project, "curate"), partial(project, "infer")
OUTCOMES = "artifacts/outcomes/**/*.parquet"
PUBLISH = ("benchmark", "publish", "pets", "out", "--format")
DERIVED = "artifacts/derived"

TARGETS |= {
    "params": Target(CURATED, projects.read_params, ("params.yaml",)),
    "names": Target(
        partial(project, "ingest"), projects.read_names, ("names.yaml", "similarity.yaml"), 0.5
    ),
    "rules": Target(CURATED, partial(stage, "curate"), RULES),
    "curate": Target(CURATED, partial(stage, "curate"), ("params.yaml", *RULES, *TABLES)),
    "candidates": Target(
        projects.project_with_pools,
        projects.choose_candidates,
        ("artifacts/tables/**/*", "data/candidates/c.csv", "rules.yaml", "params.yaml"),
        0.5,
    ),
    "derive": Target(
        projects.derived_project,
        partial(stage, "derive", "paste", "pasted"),
        ("artifacts/tables/pets/**/*", "wild/**/*", "pets/test/*", "rules.yaml"),
        0.7,
        interrupted=("killed",),
        writes=f"{DERIVED}/paste/pasted",
        at_once=True,
    ),
    "corrupt": Target(
        projects.derived_project,
        partial(stage, "derive", "corrupt", "shifted"),
        interrupted=("killed",),
        writes=f"{DERIVED}/corrupt/shifted",
        at_once=True,
    ),
    "imported": Target(
        INFERRED,
        partial(stage, "infer", "theirs"),
        ("results.json", "params.yaml", *SPLITS),
        0.8,
        compared=True,
    ),
    "imported_parquet": Target(INFERRED, partial(stage, "infer", "rows"), ("rows/*",), 0.8),
    "evaluate": Target(
        partial(project, "fit"),
        projects.run_methods,
        ("artifacts/regions/**/*", "artifacts/splits/**/*", "params.yaml", "artifacts/code.json"),
        0.2,
    ),
    "kept": Target(embedded.kept, projects.run_methods, KEPT, 0.3),
    "report": Target(
        partial(project, "report"),
        partial(stage, "report"),
        (TABLES[0], SPLITS[0], OUTCOMES, "params.yaml"),
        0.04,
    ),
    "report_files": Target(projects.evaluated_project, partial(stage, "report"), EVALUATED, 0.15),
    "commands": Target(
        projects.evaluated_project,
        projects.run_commands,
        (*EVALUATED, "earlier/**/*", "params.yaml"),
        0.3,
    ),
    "publish_coco": Target(
        INFERRED, partial(farther, *PUBLISH, "coco"),
        interrupted=INTERRUPTED, writes="out", at_once=True,
    ),
    "publish_huggingface": Target(
        INFERRED, partial(farther, *PUBLISH, "huggingface"),
        interrupted=INTERRUPTED, writes="out", at_once=True,
    ),
    "leaderboard": Target(
        projects.write_leaderboard,
        projects.read_leaderboard,
        ("theirs/dvc.lock", "theirs/artifacts/metrics/**/*"),
        0.3,
    ),
    "init": Target(
        projects.write_unknown_project,
        projects.init_project,
        ("pets/**/*", "wild/**/*", "results.json"),
        0.5,
    ),
    "init_folders": Target(projects.write_folders, projects.init_project, ALL, 0.5),
    "profile": Target(
        partial(write, projects.EMPTY),
        projects.profile_projects,
        ("params.yaml", "dvc.yaml", "data/**/*"),
        0.2,
    ),
    "repro_jobs": Target(
        pipeline.two_runs_under_dvc,
        partial(farther, "repro", "--jobs", "2"),
        interrupted=("killed",),
        processes=True,
    ),
}  # fmt: skip

# --------------------------------------------------------------------------------------------------
# detections in formats of others

for _name, _make, _run in (
    ("csv", detections.csv, "pixels"),
    ("text", detections.yolo_text, "fractions"),
    ("fiftyone", detections.fiftyone, "fractions"),
    ("scored", detections.scored, "pixels"),
    ("numbered", detections.numbered, "pixels"),
):
    TARGETS[f"detections_{_name}"] = Target(
        _make, partial(stage, "infer", _run), ("found/*", "annotations.json"), 0.5, compared=True
    )

# --------------------------------------------------------------------------------------------------
# networks


def checkpoint(
    name: str,
    make: Callable[[], None],
    adapter: str,
    weights: str,
    share: float = 0.5,
    **params: Any,
) -> None:
    """A target that loads a detector and detects objects in an image."""
    act = partial(networks.detect, adapter, weights, **params)
    TARGETS[name] = Target(make, act, ALL, share)


checkpoint("faster_rcnn", networks.faster_rcnn, "faster_rcnn", "a.safetensors", 0.4)
OF_TORCHVISION = {
    "architecture": "small",
    "classes": networks.CLASSES,
    "min_size": 64,
    "max_size": 96,
}
checkpoint("torchvision", networks.torchvision, "faster_rcnn", "a.pth", 0.4, **OF_TORCHVISION)
checkpoint("yolo_net", networks.yolo, "yolo", "a.safetensors", 0.4)
checkpoint("ultralytics", networks.ultralytics, "yolo", "a.pt", 0.4)
checkpoint("rt_detr", partial(networks.detr, networks.RT_DETR), "detr", "m", 0.4)
checkpoint("detr", partial(networks.detr, networks.DETR), "detr", "m", 0.3)
checkpoint("lightning", networks.lightning, "detr", "m/a.ckpt", 0.2)
checkpoint("own_detr", networks.own_detr, "detr", "a.safetensors", 0.2)
checkpoint(
    "clip",
    networks.clip,
    "open_clip_classifier",
    "m",
    0.4,
    classes=networks.CLASSES,
    templates=("a photo of a {}",),
)
checkpoint("classifier", networks.classifier, "classifier", "a.safetensors")
OF_OPENOOD = {
    "architecture": "openood_resnet",
    "classes": networks.CLASSES,
    "resize": 32,
    "crop": 32,
}
checkpoint(
    "openood",
    networks.openood,
    "classifier",
    "a.ckpt",
    0.3,
    **OF_OPENOOD,
    mean=(0.5,) * 3,
    std=(0.2,) * 3,
)
checkpoint("vit", networks.vit, "transformers_classifier", "m")
PROMPTS: dict[str, Any] = {"classes": ("cat", "red dog"), "unknown": Path("m/negatives.txt")}
checkpoint(
    "owlv2", partial(networks.open_vocabulary, "owlv2"), "open_vocabulary", "m", 0.3, **PROMPTS
)
checkpoint(
    "grounding_dino",
    partial(networks.open_vocabulary, "grounding-dino"),
    "open_vocabulary",
    "m",
    0.2,
    **PROMPTS,
)
checkpoint("yolo_world", networks.yolo_world, "yolo", "a.pt", 0.2)

EMBEDDED = (
    "artifacts/embeddings/**/*", "artifacts/tables/**/*", "artifacts/splits/**/*",
    "similarity.yaml", "params.yaml",
)  # fmt: skip
MINED = ("params.yaml", "artifacts/splits/**/*", "similarity.yaml", "rules.yaml")

TARGETS |= {
    "crops": Target(
        embedded.with_crops,
        partial(stage, "infer", "theirs"),
        ("negatives.txt", "clip/*.json", *RUN, "pets/test/*.png"),
        0.4,
    ),
    "crops_again": Target(
        embedded.crops_again,
        embedded.fit_crops,
        ("artifacts/passes/**/*", "negatives.txt", *RUN),
        0.15,
    ),
    "negatives": Target(partial(embedded.with_clip, "infer"), embedded.mine, MINED, 0.3),
    "stratify": Target(embedded.similar, embedded.stratify, EMBEDDED, 0.4, links=False),
    "bundle": Target(networks.bundle, networks.monitor, ("bundle/**/*",), 0.4),
    "bundle_onnx": Target(
        deployed.deployed_project, deployed.bundle,
        interrupted=INTERRUPTED, writes="out", at_once=True,
    ),
    "predict": Target(
        embedded.predicted,
        partial(farther, *["predict", "bundle", "photos", "--out", "out", "--device", "cpu", "--window", "2"]),
        ("photos/**/*",),
        0.25,
    ),
    "predict_images": Target(
        deployed.deployed_project, partial(deployed.predict, "train"),
        interrupted=("killed",), writes="out", at_once=True,
    ),
    "predict_video": Target(
        deployed.deployed_project, partial(deployed.predict, "clip.avi"),
        interrupted=INTERRUPTED, writes="out", at_once=True,
    ),
}  # fmt: skip

# --------------------------------------------------------------------------------------------------
# stages of the demo's pipeline, each after the one before

#: Stages that do all of their work again, in seconds: they are not run again where nothing changed.
SLOW = ("demo", "derive corrupt voc_shifted")

for _number, _stage in enumerate(pipeline.STAGES):
    TARGETS[f"stage {_stage}"] = Target(
        pipeline.prepare if _number == 0 else pipeline.nothing,
        partial(pipeline.run_stage, _stage),
        interrupted=("killed", "owned") if _stage in SLOW else ("killed", "owned", "again"),
        writes=pipeline.output_of(_stage),
        after="" if _number == 0 else f"stage {pipeline.STAGES[_number - 1]}",
    )

TARGETS["dvc_repro"] = Target(
    pipeline.ingest_under_dvc,
    pipeline.dvc_repro,
    interrupted=("killed",),
    after="stage demo",
    processes=True,
)
