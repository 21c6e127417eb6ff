"""The stage `score`, run as the pipeline runs it."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

from farther.tables import Regions, Scores

STAGES = Path(__file__).parents[2] / "stages"


FAR = {"dataset": "coco", "subset": "val2017", "distance": "far"}


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
        "benchmarks": {"voc": {"id": "voc", "rules": "-", "splits": {"coco_far": FAR}}},
        "detectors": {"demo": {"adapter": "regions", "benchmark": "voc"}},
        "methods": {"msp": {}, "knn": {"k": 2}, "vim": {}},
        "fit": {"keep": 0.9, "max_regions": None, "seed": 0},
    }
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(params, sort_keys=False))
    return tmp_path


def change(project: Path, **methods) -> None:
    params = yaml.safe_load((project / "params.yaml").read_text())
    params["methods"].update(methods)
    (project / "params.yaml").write_text(yaml.safe_dump(params, sort_keys=False))


def stage(project: Path, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, STAGES / f"{name}.py", *arguments]
    return subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)


def test_methods_are_fitted_and_score_every_split(project):
    assert stage(project, "code_digests").returncode == 0
    done = stage(project, "score", "demo")
    refused = "vim does not apply (vim needs last_layer, which these regions do not have)\n"
    assert done.stdout == f"demo: fitted msp, knn, vim; scored coco_far, test, val; {refused}", done.stderr
    tau = json.loads((project / "artifacts/fitted/demo/msp/threshold.json").read_text())
    assert tau["keep"] == 0.9
    state = json.loads((project / "artifacts/fitted/demo/knn/method.json").read_text())
    assert (state["name"], state["params"]["k"]) == ("knn", 2)
    found = sorted(file.stem for file in (project / "artifacts/scores/demo/msp").iterdir())
    assert found == ["coco_far", "test", "val"]
    assert len(Scores.read(project / "artifacts/scores/demo/msp/test.parquet")) == 50
    assert stage(project, "score", "demo").stdout == f"demo: 3 methods unchanged; {refused}"


def test_an_unknown_parameter_ends_the_stage_with_the_known_ones(project):
    change(project, mls={"q": 2})
    stage(project, "code_digests")
    done = stage(project, "score", "demo")
    assert done.returncode != 0
    assert "unknown parameter 'q'. Known: " in done.stderr


def test_an_unknown_method_ends_the_stage_code_with_the_nearest_known_one(project):
    change(project, mps={})
    done = stage(project, "code_digests")
    assert done.returncode != 0
    assert "Did you mean 'msp'" in done.stderr


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


def test_a_user_defined_method_runs_through_the_pipeline(project):
    (project / "data/methods").mkdir(parents=True)
    (project / "data/methods/sharpness.py").write_text(SHARPNESS)
    change(project, sharpness={"scale": 2.0})
    assert stage(project, "code_digests").returncode == 0
    assert stage(project, "score", "demo").stdout.startswith("demo: fitted msp, knn, vim, sharpness; ")
    fitted = json.loads((project / "artifacts/fitted/demo/sharpness/method.json").read_text())
    regions = Regions.read(project / "artifacts/regions/demo/coco_far")
    found = Scores.read(project / "artifacts/scores/demo/sharpness/coco_far.parquet").score
    expected = 2 * regions.logits.max(axis=1).astype(np.float64) / fitted["state"]["spread_"]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_changed_line_of_a_user_defined_method_fits_it_again_and_no_other(project):
    (project / "data/methods").mkdir(parents=True)
    file = project / "data/methods/sharpness.py"
    change(project, sharpness={"scale": 2.0})
    file.write_text(SHARPNESS)
    stage(project, "code_digests")
    stage(project, "score", "demo")
    for text, printed in (
        (SHARPNESS + "# a comment\n", "demo: 4 methods unchanged"),
        (
            SHARPNESS.replace("self.scale *", "2 * self.scale *"),
            "demo: fitted sharpness; scored coco_far, ",
        ),
    ):
        file.write_text(text)
        stage(project, "code_digests")
        assert stage(project, "score", "demo").stdout.startswith(printed)
