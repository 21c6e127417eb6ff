"""A run in miniature, whose choices can be worked out by hand.

Each image has one object and at most one detection.
"""

import json
from pathlib import Path

import numpy as np
import yaml
from tests.support.fitting import write_fitted

from farther.evaluation.deploy.choose import write_choice
from farther.evaluation.deploy.results import Budget
from farther.evaluation.files import RunFiles
from farther.evaluation.inputs import RunInputs
from farther.evaluation.settings import EvaluationSettings
from farther.tables import Images, Objects, Regions, Scores

BOX = (0.0, 0.0, 9.0, 9.0)

#: Split → (category, confidence or None, score of the method `one`, score of `two`) of each image.
SPLITS = {
    "val": [
        ("cat", 0.9, 0.2, 0.4),
        ("cat", 0.9, 0.6, 0.5),
        ("cat", 0.9, 0.8, 0.6),
        ("cat", 0.9, 0.9, 0.7),
    ],
    "test": [
        ("cat", 0.9, 0.1, 0.4),
        ("cat", 0.9, 0.5, 0.5),
        ("cat", 0.9, 0.7, 0.6),
        ("cat", None, 0, 0),
    ],
    "far": [
        ("fox", 0.9, 0.1, 0.1),
        ("fox", 0.9, 0.3, 0.8),
        ("fox", 0.9, 0.5, 0.8),
        ("fox", 0.9, 0.85, 0.8),
    ],
    "near": [
        ("elk", 0.9, 0.15, 0.2),
        ("elk", 0.9, 0.95, 0.8),
        ("elk", None, 0, 0),
        ("elk", None, 0, 0),
    ],
}

PARAMS = {
    "detectors": {"r": {"adapter": "yolo", "benchmark": "b"}},
    "methods": {"one": {"method": "msp"}, "two": {"method": "msp"}},
    "scoring": {},
    "evaluate": {"replicates": 100},
    "deploy": {"max_false_alarms": 0.25, "guarantee": "none"},
}


def lay(root: Path, splits=None, test=("far",), operating: float = 0.5) -> Path:
    """Writes params.yaml and the artifacts of an evaluated run; returns the artifacts folder."""
    (root / "params.yaml").write_text(yaml.safe_dump(PARAMS))
    artifacts = root / "artifacts"
    for split, rows in {**SPLITS, **(splits or {})}.items():
        _lay_split(artifacts, split, rows)
    (artifacts / "splits/b/roles.json").write_text(json.dumps({"test": list(test)}))
    (artifacts / "thresholds").mkdir()
    (artifacts / "thresholds/r.json").write_text(json.dumps({"threshold": operating}))
    write_fitted(
        artifacts / "fitted/r",
        {name: {"name": "msp", "fixed_threshold": 0.5} for name in PARAMS["methods"]},
    )
    return artifacts


def _lay_split(artifacts: Path, split: str, rows) -> None:
    names = np.array([f"{split}{n}" for n in range(len(rows))], dtype=object)
    sides = np.full(len(rows), 100)
    folder = artifacts / "splits/b" / split
    Images(
        image_id=names,
        dataset=["d"] * len(rows),
        file=names,
        width=sides,
        height=sides,
        digest=names,
    ).write(folder / "images.parquet")
    boxes = np.tile(BOX, (len(rows), 1))
    Objects(
        image_id=names, object_id=np.arange(len(rows)), box=boxes, category=[row[0] for row in rows]
    ).write(folder / "objects.parquet")
    seen = [n for n, row in enumerate(rows) if row[1] is not None]
    keys = {"image_id": names[seen], "region_id": np.zeros(len(seen))}
    confidence = np.array([rows[n][1] for n in seen], dtype=float)
    Regions(
        **keys,
        box=boxes[seen],
        score=confidence,
        label=np.zeros(len(seen)),
        logits=np.stack([confidence, 1 - confidence], axis=1),
        classes=("cat", "dog"),
    ).write(artifacts / "regions/r" / split)
    for place, method in ((2, "one"), (3, "two")):
        scores = np.array([rows[n][place] for n in seen], dtype=float)
        Scores(**keys, score=scores).write(artifacts / "scores/r" / method / f"{split}.parquet")


def choose(root: Path, **budget) -> None:
    """Chooses for the run, which has the name "net" and the benchmark "voc" then."""
    artifacts = lay(root, test=("far", "near"))
    for folder in artifacts.glob("*/r"):
        folder.rename(folder.with_name("net"))
    for file in artifacts.glob("*/r.json"):
        file.rename(file.with_name("net.json"))
    (artifacts / "splits/b").rename(artifacts / "splits/voc")
    files = RunFiles("net", "voc", artifacts)
    inputs = RunInputs(files, files.roles, EvaluationSettings(replicates=100))
    write_choice(inputs, Budget(**{"guarantee": "none", **budget}))
