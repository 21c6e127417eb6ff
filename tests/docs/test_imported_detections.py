"""The examples of docs/imported-detections.md, on files as each open-world detector writes them."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import yaml
from tests.docs.pages import EXAMPLES, Page

from farther import detectors
from farther.detectors.imported import import_splits
from farther.detectors.known_classes import with_class_names
from farther.tables import Images, Regions

PAGE = Page("imported-detections.md")
IMAGE = "000000000139"
#: The classes of task 1 of M-OWODB.
VOC = yaml.safe_load(
    "[aeroplane, bicycle, bird, boat, bottle, bus, car, cat, chair, cow, diningtable, dog, horse, "
    "motorbike, person, "
    "pottedplant, sheep, sofa, train, tvmonitor]"
)
#: Class, box (xmin, ymin, xmax, ymax) and score of each detection, rounded as the text files are.
FOUND = [
    ("bicycle", (10.0, 20.0, 40.0, 60.0), 0.75),
    ("unknown", (50.0, 5.0, 90.0, 70.0), 0.5),
    ("tvmonitor", (0.0, 0.0, 9.0, 9.0), 0.25),
]


class Tensor(list):
    def tolist(self):
        return list(self)


def columns(boxes: str, number) -> dict[str, Tensor]:
    of_class = Tensor(number(name) for name, _, _ in FOUND)
    return {
        boxes: Tensor(box for _, box, _ in FOUND),
        "scores": Tensor(s for *_, s in FOUND),
        "labels": of_class,
    }


def owod(name: str, unknown: int = 80) -> int:
    return unknown if name == "unknown" else VOC.index(name)


def text_files(root: Path) -> dict:
    folder = root / "output/pascal_voc_eval"
    folder.mkdir(parents=True)
    for name in (*VOC, "truck", "unknown"):
        lines = [
            f"{IMAGE} {s:.3f} {b[0] + 1:.1f} {b[1] + 1:.1f} {b[2]:.1f} {b[3]:.1f}"
            for c, b, s in FOUND
            if c == name
        ]
        (folder / f"{name}.txt").write_text("\n".join(lines or [""]))
    return {}


def results_per_image(root: Path) -> dict:
    class Dataset:
        def convert_image_id(self, number, to_string):
            assert to_string
            return f"{number:012d}"

    return {"res": {139: columns("boxes", owod)}, "base_ds": Dataset()}


def coco(root: Path) -> dict:
    order = params_of("unsniffer_results.py")["categories"]
    number = {name: key for key, name in order.items()}
    rows = [
        {
            "image_id": 139,
            "category_id": number[name],
            "bbox": [box[0], box[1], box[2] - box[0], box[3] - box[1]],
            "score": 0.1 if name == "unknown" else score,
            "complete_scores": score,
            "inter_feat": [0.0],
        }
        for name, box, score in FOUND
    ]
    (root / "coco_instances_results_idood.json").write_text(json.dumps(rows))
    return {}


def predictions(root: Path) -> dict:
    found = columns("bboxes", lambda name: owod(name, 20))
    for name, value in (("bboxes", (0, 0, 1, 1)), ("scores", 0.9), ("labels", -100)):
        found[name].append(value)
    image = {
        "img_id": 139,
        "img_path": f"data/OWOD/JPEGImages/{IMAGE}.jpg",
        "pred_instances": {n: np.array(v) for n, v in found.items()},
    }
    (root / "results.pkl").write_bytes(pickle.dumps([image]))
    return {}


WRITERS = {
    "ORE": ("owod_text.py", text_files),
    "OpenDet": ("owod_text.py", text_files),
    "OW-DETR": ("owdetr_results.py", results_per_image),
    "PROB": ("owdetr_results.py", results_per_image),
    "UnSniffer": ("unsniffer_results.py", coco),
    "YOLO-UniOW": ("mmdet_results.py", predictions),
}


def params_of(script: str) -> dict:
    """The parameters that the script says; where it says none, what the page makes of ORE's."""
    if script == "unsniffer_results.py":
        text = (EXAMPLES / script).read_text(encoding="utf-8")
        return yaml.safe_load(text.partition("Parameters of the entry:\n\n")[2].partition('"""')[0])
    params = yaml.safe_load(PAGE.block("yaml", "80: unknown"))["params"]
    if script == "mmdet_results.py":
        params["match"] = "file_name"
        params["categories"][20] = params["categories"].pop(80)
    return params


@pytest.mark.parametrize("detector", WRITERS)
def test_the_example_imports_what_the_detector_writes(detector, tmp_path, monkeypatch):
    script, write = WRITERS[detector]
    assert f"| [{detector}](https://github.com/" in PAGE.text
    assert f"](examples/{script})" in PAGE.text
    monkeypatch.chdir(tmp_path)
    exec((EXAMPLES / script).read_text(encoding="utf-8"), write(tmp_path))
    images = {
        "image_id": [IMAGE],
        "dataset": ["coco"],
        "file": [f"JPEGImages/{IMAGE}.jpg"],
        "digest": ["-"],
    }
    Images(**images, width=[100], height=[80]).write(tmp_path / "splits/test/images.parquet")
    params = params_of(script)
    adapter = detectors.create(
        "coco_results", weights=tmp_path / "detections/open_world.json", **params
    )
    import_splits(adapter, tmp_path / "splits", tmp_path / "regions", tmp_path / "work")
    regions = Regions.read(tmp_path / "regions/test")
    read = sorted(
        (regions.classes[k], tuple(b), s)
        for k, b, s in zip(regions.label, regions.box.tolist(), regions.score.tolist(), strict=True)
    )
    assert read == sorted(FOUND)
    header = with_class_names(regions.header, {"unknown": None})
    assert set(header.known_classes) == set(VOC)
