"""An OOD split that parameters are chosen on, through the stage `score` as the pipeline runs it."""

import json
import runpy
from pathlib import Path

import pytest
import yaml

from farther.errors import ParameterError
from farther.report.documented import how_chosen

STAGES = Path(__file__).parents[2] / "stages"
CHOSEN = {"ood_split": "coco_choose", "grids": {"energy": {"temperature": [0.5, 100.0]}}}
ON_TEST = {**CHOSEN, "ood_split": "coco_far"}
OOD = {"dataset": "coco", "subset": "val2017", "distance": "far"}
PARAMS = {
    "benchmarks": {
        "toy": {
            "id": "toy",
            "rules": "-",
            "splits": {"coco_far": OOD, "coco_choose": {**OOD, "subset": "train2017", "use": "validation"}},
        }
    },
    "detectors": {"toy-net": {"benchmark": "toy"}},
    "methods": {
        "chosen": {"method": "energy", "search": CHOSEN},
        "on_test": {"method": "energy", "search": ON_TEST},
        "oracle": {"method": "energy", "oracle": ON_TEST},
    },
    "fit": {},
}


@pytest.fixture
def fit(make, tmp_path, monkeypatch):
    """The stage, in a project whose detector has run; gives what is kept of the choice."""
    for seed, (split, shift) in enumerate({"train": 0, "val": 0, "test": 0, "coco_far": 6, "coco_choose": 6}.items()):
        make(60, seed=seed, shift=float(shift)).write(tmp_path / "artifacts/regions/toy-net" / split)
    (tmp_path / "artifacts/thresholds").mkdir()
    (tmp_path / "artifacts/thresholds/toy-net.json").write_text('{"threshold": 0.0}')
    monkeypatch.chdir(tmp_path)
    code, score = (runpy.run_path(str(STAGES / f"{name}.py"))["main"] for name in ("code_digests", "score"))

    def run(method):
        params = {**PARAMS, "methods": {method: PARAMS["methods"][method]}}
        Path("params.yaml").write_text(yaml.safe_dump(params, sort_keys=False))
        code()
        score("toy-net")
        return json.loads((tmp_path / "artifacts/fitted/toy-net" / method / "method.json").read_text())

    return run


def test_a_split_marked_as_validation_may_be_chosen_on(fit):
    fitted = fit("chosen")
    assert (fitted["choice"]["ood_split"], fitted["choice"]["oracle"]) == ("coco_choose", False)
    assert fitted["params"]["temperature"] == fitted["choice"]["best"]["params"]["temperature"]
    assert how_chosen(fitted) == (
        "chosen by search: the best of 2 by AUROC of ID split 'val' against OOD split 'coco_choose', "
        "an OOD validation split"
    )


def test_a_split_that_results_are_reported_on_is_refused(fit):
    with pytest.raises(ParameterError, match="results are reported on 'coco_far'"):
        fit("on_test")


def test_an_oracle_may_take_it_and_is_called_one(fit):
    fitted = fit("oracle")
    assert fitted["choice"]["oracle"] is True
    assert how_chosen(fitted).startswith("ORACLE, chosen on test data: the best of 2")
