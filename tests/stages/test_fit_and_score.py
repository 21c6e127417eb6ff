"""The stages `fit` and `score`, run as the pipeline runs them."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

from farther.tables import Regions, Scores

STAGES = Path(__file__).parents[2] / "stages"


@pytest.fixture
def project(tmp_path):
    """A folder with regions of one run, as `infer` leaves them, and its params.yaml."""
    rng = np.random.default_rng(0)
    for split in ("train", "val", "test", "coco_far"):
        logits = rng.normal(size=(50, 4)).astype(np.float32)
        Regions(
            image_id=[f"{split}{i}" for i in range(50)],
            region_id=np.arange(50),
            box=np.zeros((50, 4)),
            score=rng.uniform(size=50),
            label=logits.argmax(axis=1),
            logits=logits,
            features=rng.normal(size=(50, 3)),
        ).write(tmp_path / "artifacts" / "regions" / "demo" / split)
    thresholds = tmp_path / "artifacts" / "thresholds"
    thresholds.mkdir()
    (thresholds / "demo.json").write_text('{"threshold": 0.5}')
    params = {
        "detectors": {"demo": {"adapter": "regions"}},
        "methods": {"msp": {}, "knn": {"k": 2}, "vim": {}, "mls": {"q": 2}},
        "fit": {"keep": 0.9, "max_regions": None, "seed": 0},
    }
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(params))
    return tmp_path


def stage(project: Path, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, STAGES / f"{name}.py", *arguments]
    return subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)


def test_a_fitted_method_gets_a_threshold_and_scores_for_every_split(project):
    assert stage(project, "fit", "demo", "msp").stdout == "demo msp: fitted\n"
    tau = json.loads((project / "artifacts/fitted/demo/msp/threshold.json").read_text())
    assert tau["keep"] == 0.9
    assert stage(project, "score", "demo", "msp").stdout.count("scored") == 3
    found = sorted(file.stem for file in (project / "artifacts/scores/demo/msp").iterdir())
    assert found == ["coco_far", "test", "val"]
    assert len(Scores.read(project / "artifacts/scores/demo/msp/test.parquet")) == 50


def test_a_method_is_fitted_with_the_parameters_of_its_entry(project):
    stage(project, "fit", "demo", "knn")
    state = json.loads((project / "artifacts/fitted/demo/knn/method.json").read_text())
    assert state["name"] == "knn"
    assert state["params"]["k"] == 2


def test_an_unknown_parameter_ends_the_stage_with_the_known_ones(project):
    done = stage(project, "fit", "demo", "mls")
    assert done.returncode != 0
    assert "unknown parameter 'q'. Known: " in done.stderr
