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
        "benchmarks": {"voc": {"splits": {"coco_far": {}}}},
        "detectors": {"demo": {"adapter": "regions", "benchmark": "voc"}},
        "methods": {"msp": {}, "knn": {"k": 2}, "vim": {}, "mls": {"q": 2}, "sharpness": {"scale": 2.0}},
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


SHARPNESS = '''
from typing import ClassVar

import numpy as np
from pydantic.dataclasses import dataclass

from farther.methods.base import Method, register
from farther.registry import STRICT


@register("sharpness")
@dataclass(config=STRICT, kw_only=True)
class Sharpness(Method):
    """The largest logit, by the spread of the training regions' largest logits."""

    scale: float = 1.0
    needs: ClassVar[frozenset[str]] = frozenset({"logits"})

    def _fit(self, regions):
        self.spread_ = float(np.concatenate([batch.logits.max(axis=1) for batch in regions.batches([])]).std())

    def _score(self, regions):
        return self.scale * regions.logits.max(axis=1).astype(np.float64) / self.spread_
'''


def test_a_method_in_a_file_of_ones_own_runs_through_the_pipeline(project):
    (project / "data/methods").mkdir(parents=True)
    (project / "data/methods/sharpness.py").write_text(SHARPNESS)
    assert stage(project, "code_digests").returncode == 0
    assert len(json.loads((project / "artifacts/code.json").read_text())["score"]["sharpness"]) == 16
    assert stage(project, "fit", "demo", "sharpness").stdout == "demo sharpness: fitted\n"
    assert stage(project, "score", "demo", "sharpness").stdout.count("scored") == 3
    fitted = json.loads((project / "artifacts/fitted/demo/sharpness/method.json").read_text())
    regions = Regions.read(project / "artifacts/regions/demo/coco_far")
    found = Scores.read(project / "artifacts/scores/demo/sharpness/coco_far.parquet").score
    expected = 2 * regions.logits.max(axis=1).astype(np.float64) / fitted["state"]["spread_"]
    np.testing.assert_allclose(found, expected, rtol=1e-6)
