"""A detector whose detections were made elsewhere, through all stages from `infer` to `report`."""

import json
import re
import shutil

import numpy as np
import pytest
import yaml
from tests.disturbed.processes import rewritten
from tests.stages.in_process import OF_RUN, run

from farther.params import parse
from farther.report import summary
from farther.tables import Images, Objects, Regions

METHODS = {"confidence": {}, "msp": {}, "knn": {"k": 1}, "uncertainty": {}}
KNOWN = ("cat", "dog")
NATIVE = [f"{stage} native" for stage in OF_RUN]
IMPORTED = [f"{stage} {run}" for run in ("whole", "bare") for stage in ("infer", *OF_RUN)]
STAGES = ["code_digests", *NATIVE, *IMPORTED, "report"]


def draw(split, seed, images=8):
    """Objects of a split, and what a detector with two classes and a background says of each."""
    rng = np.random.default_rng(seed)
    names = [f"{split}{i // 2}" for i in range(2 * images)]
    corner = np.tile([[10, 10], [60, 60]], (images, 1))
    box = np.concatenate([corner, corner + 30], axis=1).astype(np.float32)
    kind = rng.integers(2, size=len(names))
    known = np.array(KNOWN, object)[kind] if split != "far" else ["fox"] * len(names)
    features = rng.normal(size=(len(names), 3)).astype(np.float32)
    logits = rng.normal(size=(len(names), 3)) + 3 * np.eye(3)[kind + 1]
    logits = logits.astype(np.float32)
    label = logits[:, 1:].argmax(axis=1) + 1
    score = (np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True))[
        np.arange(len(names)), label
    ]
    objects = Objects(image_id=names, object_id=np.arange(len(names)), box=box, category=known)
    regions = Regions(
        image_id=names,
        region_id=np.arange(len(names)),
        box=box + rng.integers(-3, 4, (len(names), 1)).astype(np.float32),
        score=score,
        label=label,
        logits=logits,
        features=features,
        uncertainty=rng.uniform(size=len(names)),
        classes=("background", *KNOWN),
        background_index=0,
    )
    return objects, regions


def as_results(regions, *optional):
    """The regions as the objects of a COCO results file."""
    box = regions.box.astype(float)
    values = {name: getattr(regions, name).tolist() for name in optional}
    return [
        {
            "image_id": regions.image_id[row],
            "category_id": regions.classes[regions.label[row]],
            "bbox": [*box[row, :2].tolist(), *(box[row, 2:] - box[row, :2]).tolist()],
            "score": float(regions.score[row]),
            **{name: column[row] for name, column in values.items()},
        }
        for row in range(len(regions))
    ]


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A folder as `curate` and an `infer` of the run `native` leave it, with two runs to import."""
    root = tmp_path_factory.mktemp("project")
    whole, bare = [], []
    for seed, split in enumerate(("train", "val", "test", "far")):
        objects, regions = draw(split, seed)
        names = sorted(set(objects.image_id))
        size = [100] * len(names)
        files = [f"{name}.jpg" for name in names]
        folder = root / "artifacts/splits/pets" / split
        Images(
            image_id=names,
            dataset=["d"] * len(names),
            file=files,
            width=size,
            height=size,
            digest=names,
        ).write(folder / "images.parquet")
        objects.write(folder / "objects.parquet")
        regions.write(root / "artifacts/regions/native" / split)
        whole += as_results(regions, "logits", "features", "uncertainty")
        bare += as_results(regions)
    (root / "artifacts/splits/pets/id_classes.json").write_text(json.dumps(KNOWN))
    (root / "artifacts/splits/pets/roles.json").write_text('{"test": ["far"]}')
    (root / "whole.json").write_text(json.dumps(whole))
    (root / "bare.json").write_text(json.dumps(bare))
    params = {"classes": ["background", *KNOWN], "background_index": 0}
    entry = {"adapter": "coco_results", "benchmark": "pets", "params": params}
    (root / "params.yaml").write_text(
        yaml.safe_dump(
            {
                "datasets": {"d": {"format": "coco", "root": "d"}},
                "benchmarks": {"pets": {"id": "d", "rules": "-", "splits": {"far": FAR}}},
                "detectors": {
                    "native": {"adapter": "faster_rcnn", "benchmark": "pets"},
                    "whole": {**entry, "weights": "whole.json"},
                    "bare": {**entry, "weights": "bare.json"},
                },
                "inference": {},
                "threshold": {"rule": "best_f1"},
                "fit": {},
                "methods": METHODS,
                "scoring": {},
                "evaluate": {"replicates": 0, "kept": [0.95], "confidences": [0.5]},
                "deploy": {"max_false_alarms": 0.02},
                "report": {"examples": 0},
            }
        )
    )
    run(root, *STAGES)
    yield root
    shutil.rmtree(root)


FAR = {"dataset": "d", "subset": "val", "distance": "far"}


def test_results_exported_from_a_run_give_its_metrics(project):
    metrics = project / "artifacts/metrics"
    files = sorted(
        file.relative_to(metrics / "native") for file in (metrics / "native").rglob("*.json")
    )
    assert {f"far/{method}.json" for method in METHODS} < {file.as_posix() for file in files}
    for file in files:
        assert (metrics / "whole" / file).read_text() == (metrics / "native" / file).read_text()


def test_a_detector_without_logits_is_evaluated_and_its_methods_are_left_out_with_reasons(project):
    bare = project / "artifacts/metrics/bare"
    assert sorted(file.name for file in (bare / "far").iterdir()) == [
        "confidence.json",
        "detector.json",
    ]
    of_native = (project / "artifacts/metrics/native/far/confidence.json").read_text()
    assert (bare / "far/confidence.json").read_text() == of_native
    assert json.loads(of_native)["auroc"] is not None
    native = json.loads((project / "artifacts/metrics/native/detector.json").read_text())
    assert json.loads((bare / "detector.json").read_text()) == native
    description = json.loads((project / "artifacts/results/bare.json").read_text())
    assert description["not_applicable"] == {
        "msp": "msp needs logits, which these regions do not have",
        "knn": "knn needs features, which these regions do not have",
        "uncertainty": "uncertainty needs uncertainty, which these regions do not have",
    }


def test_report_and_summary_name_what_is_left_out(project, monkeypatch):
    monkeypatch.chdir(project)
    description = json.loads((project / "artifacts/results/bare.json").read_text())
    reason = description["not_applicable"]["knn"]
    page = (project / "artifacts/report/compare.html").read_text()
    assert re.search(rf"<b>kNN</b> to bare \(\w+\): {re.escape(reason)}", page)
    shown = " ".join(summary(parse((project / "params.yaml").read_text())).split())
    assert f"kNN ({reason})" in shown
    assert "bare: not evaluated yet" not in shown


@pytest.mark.parametrize("stage", STAGES)
def test_a_second_run_writes_nothing_and_deletes_nothing(project, stage):
    assert rewritten(project, lambda: run(project, stage)) == []


def test_one_split_to_fit_calibrate_and_evaluate_on_is_enough(project, tmp_path):
    root = shutil.copytree(project, tmp_path / "project")
    params = parse((root / "params.yaml").read_text())
    fit = {"split": "val", "calibration_split": "val", "labels": "annotated"}
    params["methods"] |= {"mahalanobis": {"fit_on": "train"}}
    (root / "params.yaml").write_text(yaml.safe_dump(params | {"fit": fit}))
    run(root, "code_digests", *NATIVE)
    scores = root / "artifacts/scores/native"
    assert {file.stem for file in scores.glob("mahalanobis/*.parquet")} == {"val", "test", "far"}
    assert (
        json.loads((root / "artifacts/choices/native.json").read_text())["choice"]["method"]
        in METHODS
    )
