"""Parts of an evaluation that are kept: only what changed is computed again, with the same result."""

import json
import shutil
from dataclasses import asdict

import numpy as np
import pytest

from farther.errors import DataError
from farther.evaluation.evaluate import evaluate_run
from farther.evaluation.files import Roles, RunFiles
from farther.evaluation.inputs import RunInputs
from farther.evaluation.settings import EvaluationSettings
from farther.tables import Images, Scores

METHODS = ("msp", "knn")

#: Settings of a short evaluation.
FEW = {"replicates": 0, "confidences": (), "kept": ()}


@pytest.fixture
def files(tmp_path, world):
    """A run with two methods on one OOD split."""
    files = RunFiles("r", "voc", tmp_path)
    for seed, split in enumerate(("val", "test", "far")):
        objects, regions = world(seed, images=6)
        if split == "far":
            objects = objects.with_columns(category=["fox"] * len(objects))
        names = sorted({*objects.image_id, *regions.image_id})
        size = [900] * len(names)
        Images(image_id=names, dataset=["d"] * len(names), file=names, width=size, height=size, digest=names).write(
            files.images(split)
        )
        objects.write(files.objects(split))
        regions.write(files.regions(split))
        for number, method in enumerate(METHODS):
            scores = np.random.default_rng(number).random(len(regions))
            Scores(image_id=regions.image_id, region_id=regions.region_id, score=scores).write(
                files.scores(method, split)
            )
    for method in METHODS:
        write(files.fitted(method) / "method.json", {"name": method})
        write(files.fitted(method) / "threshold.json", {"threshold": 0.5})
    write(files.threshold, {"threshold": 0.4, "rule": 0.4})
    return files


def write(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def evaluated(files, methods=METHODS, code="", **changes):
    """Names of what was computed."""
    said = []
    inputs = RunInputs(files, Roles(["far"]), EvaluationSettings(**{"replicates": 5, **changes}))
    evaluate_run(inputs, methods, code, log=said.extend)
    return said


def content(files):
    return {path: path.read_bytes() for path in files.root.rglob("*") if path.is_file()}


def test_a_second_evaluation_computes_nothing_and_writes_the_same_bytes(files):
    assert evaluated(files) == ["the detector", "msp", "knn"]
    before = content(files)
    assert evaluated(files) == []
    assert content(files) == before


def test_only_the_method_whose_threshold_or_scores_changed_is_evaluated_again(files):
    evaluated(files)
    write(files.fitted("knn") / "threshold.json", {"threshold": 0.6})
    assert evaluated(files) == ["knn"]
    scores = Scores.read(files.scores("msp", "far"))
    scores.with_columns(score=scores.score / 2).write(files.scores("msp", "far"))
    assert evaluated(files) == ["msp"]
    kept = content(files)
    for path in (files.parts, files.outcomes):
        for file in sorted(path.rglob("*"), reverse=True):
            file.unlink() if file.is_file() else file.rmdir()
    evaluated(files)
    assert content(files) == kept  # comparisons with kept replicates equal those of a whole evaluation


def test_changed_code_settings_thresholds_and_ground_truth_concern_all_methods(files, objects):
    everything = ["the detector", "msp", "knn"]
    evaluated(files)
    assert evaluated(files, code="changed") == everything
    assert evaluated(files, iou=0.6) == everything
    write(files.threshold, {"threshold": 0.3, "rule": 0.3})
    assert evaluated(files, iou=0.6) == everything
    objects(("000", [0, 0, 50, 50], "fox")).write(files.objects("far"))
    assert evaluated(files, iou=0.6) == everything


def test_a_method_that_is_no_longer_asked_for_leaves_nothing(files):
    evaluated(files)
    assert evaluated(files, methods=["msp"]) == []
    for folder in (files.parts, files.outcomes, files.metrics):
        assert not [path for path in folder.rglob("*") if "knn" in path.name]
    report = json.loads(files.evaluation.read_text())
    assert set(report["methods"]) == {"msp"}
    assert report["settings"] == json.loads(json.dumps(asdict(EvaluationSettings(replicates=5))))


@pytest.mark.parametrize("part", ["evaluation/r/methods/msp", "outcomes/r/msp"])
def test_a_part_that_was_deleted_is_made_again(files, part):
    evaluated(files, ["msp"], **FEW)
    kept = content(files)
    shutil.rmtree(files.root / part)
    assert evaluated(files, ["msp"], **FEW) == ["msp"]
    assert content(files) == kept


def test_the_order_of_a_detectors_parameters_and_of_settings_is_no_change(files):
    def described(*names):
        for split in ("test", "far"):
            file = files.regions(split) / "regions.json"
            content = json.loads(file.read_text())
            write(file, {**content, "detector": dict.fromkeys(names, 1)})
        return dict.fromkeys(names, "animal")

    assert evaluated(files, ["msp"], **FEW, supercategories=described("fox", "elk")) == ["the detector", "msp"]
    assert evaluated(files, ["msp"], **FEW, supercategories=described("elk", "fox")) == []


def test_the_part_of_another_in_place_of_its_own_is_refused(files):
    evaluated(files, **FEW)
    own = (files.parts / "methods/knn/roc.parquet").read_bytes()
    shutil.copy(files.parts / "methods/msp/roc.parquet", files.parts / "methods/knn")
    with pytest.raises(DataError, match=r"methods/knn/roc\.parquet: damaged or replaced.*delete .*methods/knn$"):
        evaluated(files, **FEW)
    (files.parts / "methods/knn/roc.parquet").write_bytes(own)
    (files.parts / "detector.json").write_bytes(files.evaluation.read_bytes())
    with pytest.raises(DataError, match=r"detector\.json: field 'run': written by another version: delete "):
        evaluated(files, **FEW)
