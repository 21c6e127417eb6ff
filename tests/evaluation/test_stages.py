"""The stages `threshold` and `evaluate`, run as the pipeline runs them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from farther.evaluation.files import RunFiles
from farther.tables import Images, Scores

STAGES = Path(__file__).parents[2] / "stages"
PARAMS = {
    "benchmarks": {
        "toy": {
            "id": "toy",
            "rules": "rules.yaml",
            "splits": {
                "far": {"dataset": "other", "subset": "val", "distance": "far"},
                "held_out": {"dataset": "third", "subset": "val", "distance": "far", "use": "validation"},
            },
        }
    },
    "detectors": {"toy-net": {"adapter": "regions", "benchmark": "toy"}},
    "methods": {"msp": {}},
    "threshold": {"rule": "best_f1"},
    "evaluate": {"iou": 0.5, "replicates": 5},
}


@pytest.fixture
def project(tmp_path, world):
    """A folder as the stages before leave it."""
    files = RunFiles("toy-net", "toy", tmp_path / "artifacts")
    for seed, split in enumerate(("val", "test", "far")):
        objects, regions = world(seed, images=8)
        if split == "far":
            objects = objects.with_columns(category=["fox"] * len(objects))
        names = sorted({*objects.image_id, *regions.image_id})
        size = [900] * len(names)
        Images(image_id=names, dataset=["d"] * len(names), file=names, width=size, height=size, digest=names).write(
            files.images(split)
        )
        objects.write(files.objects(split))
        regions.write(files.regions(split))
        Scores(image_id=regions.image_id, region_id=regions.region_id, score=regions.score).write(
            files.scores("msp", split)
        )
    files.fitted("msp").mkdir(parents=True)
    (files.fitted("msp") / "method.json").write_text('{"name": "msp"}')
    (files.fitted("msp") / "threshold.json").write_text('{"threshold": 0.9}')
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(PARAMS))
    return tmp_path


def stage(project, name, *arguments):
    command = [sys.executable, STAGES / f"{name}.py", *arguments]
    return subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)


def test_both_stages_write_what_they_say(project):
    done = stage(project, "threshold", "toy-net")
    assert done.returncode == 0, done.stderr
    threshold = json.loads((project / "artifacts/thresholds/toy-net.json").read_text())["threshold"]
    assert 0 < threshold < 1
    done = stage(project, "evaluate", "toy-net")
    assert done.returncode == 0, done.stderr
    metrics = json.loads((project / "artifacts/metrics/toy-net/far/msp.json").read_text())
    assert set(metrics) == {"auroc", "fpr95", "nose", "ap_u", "p_u", "r_u"}
    assert all(0 <= value <= 1 for value in metrics.values())
    assert json.loads((project / "artifacts/evaluation/toy-net.json").read_text())["threshold"] == threshold


def test_a_detector_may_have_an_operating_threshold_of_its_own(project):
    params = {**PARAMS, "detectors": {"toy-net": {**PARAMS["detectors"]["toy-net"], "threshold": {"rule": 0.39}}}}
    (project / "params.yaml").write_text(yaml.safe_dump(params))
    assert stage(project, "threshold", "toy-net").returncode == 0
    assert json.loads((project / "artifacts/thresholds/toy-net.json").read_text())["threshold"] == 0.39


def test_an_unknown_setting_is_refused_with_the_known_ones(project):
    (project / "params.yaml").write_text(yaml.safe_dump({**PARAMS, "evaluate": {"iuo": 0.5}}))
    done = stage(project, "evaluate", "toy-net")
    assert done.returncode != 0
    assert "unknown parameter 'iuo'. Known: id_split" in done.stderr
