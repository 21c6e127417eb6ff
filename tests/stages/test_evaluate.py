"""Stages `fit` to `choose` of a run: t*, fitted methods, scores, metrics and choice."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import yaml
from tests.stages.in_process import OF_RUN, run

from farther.curation import benchmark
from farther.errors import FartherError
from farther.evaluation.results import FittedMethod
from farther.incremental.keyed import content_digest
from farther.params import parse
from farther.report.documented import how_chosen
from farther.tables import Images, Objects, Regions, Scores

STAGES = Path(__file__).parents[2] / "stages"
CLASSES = ("cat", "dog", "hen", "owl")
OOD = {"dataset": "coco", "subset": "val2017", "distance": "far"}
PARAMS = {
    "benchmarks": {
        "voc": {
            "id": "voc",
            "rules": "-",
            "splits": {
                "coco_far": OOD,
                "coco_choose": {**OOD, "subset": "train2017", "use": "validation"},
            },
        }
    },
    "detectors": {"demo": {"adapter": "regions", "benchmark": "voc"}},
    "threshold": {"rule": 0.5},
    "methods": {"msp": {}, "knn": {"k": 2}, "vim": {}},
    "fit": {"keep": 0.9, "max_regions": None, "seed": 0},
    "scoring": {},
    "evaluate": {"replicates": 100},
    "deploy": {"max_false_alarms": 0.02},
}


@pytest.fixture
def project(made, tmp_path):
    """A copy of `made` that a test may change."""
    return shutil.copytree(made, tmp_path / "project")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The output of `curate` and `infer`: 50 images per split, with one object and region each."""
    tmp_path = tmp_path_factory.mktemp("made")
    rng = np.random.default_rng(0)
    splits = tmp_path / "artifacts/splits/voc"
    for split in ("train", "val", "test", "coco_far", "coco_choose"):
        names, box = [f"{split}{i}" for i in range(50)], np.tile([0.0, 0.0, 9.0, 9.0], (50, 1))
        logits = rng.normal(scale=0.3 if "coco" in split else 1.0, size=(50, 4)).astype(np.float32)
        category = ["fox"] * 50 if "coco" in split else [CLASSES[k] for k in logits.argmax(axis=1)]
        Images(
            image_id=names,
            dataset=["d"] * 50,
            file=names,
            width=[9] * 50,
            height=[9] * 50,
            digest=names,
        ).write(splits / split / "images.parquet")
        Objects(
            image_id=names,
            object_id=np.arange(50),
            box=box,
            category=category,
            is_crowd=np.zeros(50, bool),
        ).write(splits / split / "objects.parquet")
        Regions(
            image_id=names,
            region_id=np.arange(50),
            box=box,
            score=rng.uniform(size=50),
            label=logits.argmax(axis=1),
            logits=logits,
            features=rng.normal(size=(50, 3)),
            classes=CLASSES,
        ).write(tmp_path / "artifacts/regions/demo" / split)
    roles = benchmark("voc", PARAMS["benchmarks"]["voc"]).roles()
    (splits / "roles.json").write_text(json.dumps(roles))
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(PARAMS, sort_keys=False))
    run(tmp_path, "code_digests")
    return tmp_path


def change(project: Path, **sections) -> None:
    """Replaces entries of sections of params.yaml."""
    params = parse((project / "params.yaml").read_text())
    for name, values in sections.items():
        params.setdefault(name, {}).update(values)
    (project / "params.yaml").write_text(yaml.safe_dump(params, sort_keys=False))


@pytest.fixture(scope="module")
def made_and_evaluated(made, tmp_path_factory):
    """`made` after the stages of the run; tests only copy it."""
    folder = shutil.copytree(made, tmp_path_factory.mktemp("evaluated") / "project")
    run(folder, "code_digests", *(f"{name} demo" for name in OF_RUN))
    return folder


@pytest.fixture
def evaluated(made_and_evaluated, tmp_path):
    """A copy of `made_and_evaluated` that a test may change."""
    return shutil.copytree(made_and_evaluated, tmp_path / "project")


@pytest.fixture(scope="module")
def stage(commands):
    """Runs a stage in a process of its own."""

    def run(project: Path, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [commands / "python", STAGES / f"{name}.py", *arguments]
        return subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)

    return run


@pytest.fixture
def evaluate(capsys):
    """Runs the stages of the run from `fit` on in this process; returns their output by name."""

    def run_all(project: Path) -> dict[str, str]:
        printed = {}
        run(project, "code_digests")
        for name in OF_RUN:
            run(project, f"{name} demo")
            printed[name] = capsys.readouterr().out.removeprefix("demo: ").strip()
        return printed

    return run_all


def said_by(done: subprocess.CompletedProcess[str]) -> str:
    """What a stage printed, without the last line, which has its time."""
    assert done.returncode == 0, done.stderr
    return "".join(done.stdout.splitlines(keepends=True)[:-1])


def read(project: Path, name: str):
    return json.loads((project / "artifacts" / name).read_text())


def test_methods_are_fitted_score_every_split_and_are_evaluated_on_those_that_are_tested(
    project, evaluate
):
    printed = evaluate(project)
    assert printed["fit"] == "fitted msp, knn; not applicable: vim"
    assert printed["score"] == "scored coco_choose, coco_far, test, val by msp, knn"
    assert printed["evaluate"] == "evaluated the detector, msp, knn"
    assert read(project, "evaluation/demo/methods/msp/threshold.json")["keep"] == 0.9
    state = read(project, "fitted/demo/knn/method.json")
    assert (state["name"], state["params"]["k"]) == ("knn", 2)
    found = sorted(file.stem for file in (project / "artifacts/scores/demo/msp").iterdir())
    assert found == ["coco_choose", "coco_far", "test", "val"]
    assert len(Scores.read(project / "artifacts/scores/demo/msp/test.parquet")) == 50
    assert not (project / "artifacts/metrics/demo/coco_choose").exists()
    metrics = read(project, "metrics/demo/coco_far/msp.json")
    assert set(metrics) == {"auroc", "fpr95", "nose", "ap_u", "p_u", "r_u"}
    assert all(0 <= value <= 1 for value in metrics.values())
    printed = evaluate(project)
    assert printed["fit"] == "3 methods unchanged; not applicable: vim"
    assert printed["score"] == printed["evaluate"] == "2 methods unchanged"
    change(project, methods={"knn": {"k": 3}})
    printed = evaluate(project)
    assert printed["fit"] == "fitted knn; 2 methods unchanged; not applicable: vim"
    assert printed["score"] == "scored coco_choose, coco_far, test, val by knn; 1 method unchanged"
    assert printed["evaluate"] == "evaluated knn; 1 method unchanged"


def test_a_parameter_of_a_method_that_does_not_apply_changes_nothing_that_later_stages_read(
    evaluated, evaluate
):
    before = content_digest(evaluated / "artifacts/fitted/demo")
    change(evaluated, methods={"vim": {"dim": 2}})
    assert evaluate(evaluated)["fit"] == "2 methods unchanged; not applicable: vim"
    assert content_digest(evaluated / "artifacts/fitted/demo") == before


def test_the_share_of_id_that_tau_keeps_fits_and_scores_nothing_again(evaluated, evaluate):
    taus = {
        name: read(evaluated, f"evaluation/demo/methods/{name}/threshold.json")
        for name in ("msp", "knn")
    }
    change(evaluated, fit={"keep": 0.5})
    printed = evaluate(evaluated)
    assert printed["fit"].startswith("3 methods unchanged")
    assert printed["score"] == "2 methods unchanged"
    assert printed["evaluate"] == "evaluated msp, knn"
    for name, tau in taus.items():
        assert (
            read(evaluated, f"evaluation/demo/methods/{name}/threshold.json")["threshold"]
            > tau["threshold"]
        )


def test_a_method_that_is_deleted_from_params_yaml_leaves_no_file(evaluated, evaluate):
    params = parse((evaluated / "params.yaml").read_text())
    del params["methods"]["knn"]
    (evaluated / "params.yaml").write_text(yaml.safe_dump(params, sort_keys=False))
    printed = evaluate(evaluated)
    assert printed["fit"] == "2 methods unchanged; not applicable: vim"
    assert printed["score"] == printed["evaluate"] == "1 method unchanged"
    names = [file for file in (evaluated / "artifacts").rglob("*") if "knn" in file.name]
    assert names == []


def test_the_operating_threshold_follows_its_rule_and_a_detector_may_have_its_own(
    evaluated, evaluate
):
    assert (
        read(evaluated, "thresholds/demo.json")["threshold"]
        == read(evaluated, "metrics/demo/detector.json")["threshold"]
        == 0.5
    )
    change(evaluated, threshold={"rule": "best_f1"})
    evaluate(evaluated)
    assert read(evaluated, "thresholds/demo.json")["rule"] == "best_f1"
    change(
        evaluated, detectors={"demo": {**PARAMS["detectors"]["demo"], "threshold": {"rule": 0.39}}}
    )
    evaluate(evaluated)
    assert read(evaluated, "thresholds/demo.json")["threshold"] == 0.39


@pytest.mark.parametrize(
    ("sections", "problem"),
    [
        ({"evaluate": {"iuo": 0.5}}, "unknown parameter 'iuo'. Known: id_split"),
        ({"methods": {"mls": {"q": 2}}}, "unknown parameter 'q'. Known: "),
        ({"methods": {"mps": {}}}, "Did you mean 'msp'"),
    ],
)
def test_an_unknown_name_ends_the_stage_with_the_known_ones(project, evaluate, sections, problem):
    change(project, **sections)
    with pytest.raises(FartherError, match=re.escape(problem)):
        evaluate(project)


CHOSEN = {"ood_split": "coco_choose", "grids": {"energy": {"temperature": [0.5, 100.0]}}}
ON_TEST = {**CHOSEN, "ood_split": "coco_far"}


def test_parameters_may_be_chosen_on_a_split_marked_as_validation(project, evaluate):
    change(project, methods={"chosen": {"method": "energy", "search": CHOSEN}})
    evaluate(project)
    fitted = read(project, "fitted/demo/chosen/method.json")
    assert (fitted["choice"]["ood_split"], fitted["choice"]["oracle"]) == ("coco_choose", False)
    assert fitted["params"]["temperature"] == fitted["choice"]["best"]["params"]["temperature"]
    assert how_chosen(FittedMethod(**fitted)) == (
        "chosen by search: the best of 2 by AUROC of ID split 'val' against "
        "OOD split 'coco_choose', an OOD validation split"
    )


def test_parameters_must_not_be_chosen_on_a_split_that_results_are_reported_on_except_by_an_oracle(
    project, evaluate
):
    change(project, methods={"best": {"method": "energy", "search": ON_TEST}})
    with pytest.raises(FartherError, match="results are reported on 'coco_far'"):
        evaluate(project)
    change(project, methods={"best": {"method": "energy", "oracle": ON_TEST}})
    evaluate(project)
    fitted = read(project, "fitted/demo/best/method.json")
    assert fitted["choice"]["oracle"] is True
    assert how_chosen(FittedMethod(**fitted)).startswith(
        "ORACLE, chosen on test data: the best of 2"
    )


SHARPNESS = '''
from typing import ClassVar

import numpy as np
from pydantic.dataclasses import dataclass

from farther.methods.base import Method, register
from farther.naming.registry import STRICT


@register("sharpness")
@dataclass(config=STRICT, kw_only=True)
class Sharpness(Method):
    """The largest logit, by the spread of the training regions' largest logits."""

    scale: float = 1.0
    needs: ClassVar[frozenset[str]] = frozenset({"logits"})

    def _fit(self, regions):
        highest_logits = [batch.logits.max(axis=1) for batch in regions.batches([])]
        self.spread_ = float(np.concatenate(highest_logits).std())

    def _score(self, rows):
        return self.scale * rows.xp.max(rows.vectors("logits"), axis=1) / self.spread_
'''


def test_a_user_defined_method_is_scored_and_only_a_change_of_its_code_fits_it_again(
    project, stage
):
    file = project / "extensions/sharpness.py"
    file.parent.mkdir(parents=True)
    file.write_text(SHARPNESS)
    change(project, methods={"sharpness": {"scale": 2.0}})
    run(project, "code_digests")
    assert said_by(stage(project, "fit", "demo")).startswith("demo: fitted msp, knn, sharpness; ")
    assert said_by(stage(project, "score", "demo")).startswith("demo: scored ")
    fitted = read(project, "fitted/demo/sharpness/method.json")
    regions = Regions.read(project / "artifacts/regions/demo/coco_far")
    found = Scores.read(project / "artifacts/scores/demo/sharpness/coco_far.parquet").score
    expected = 2 * regions.logits.max(axis=1).astype(np.float64) / fitted["state"]["spread_"]
    np.testing.assert_allclose(found, expected, rtol=1e-6)

    run(project, "code_digests")
    assert "4 methods unchanged" in said_by(stage(project, "fit", "demo"))
    file.write_text(SHARPNESS.replace("self.scale *", "2 * self.scale *"))
    run(project, "code_digests")
    assert said_by(stage(project, "fit", "demo")).startswith(
        "demo: fitted sharpness; 3 methods unchanged"
    )
    scored = said_by(stage(project, "score", "demo"))
    assert (
        scored
        == "demo: scored coco_choose, coco_far, test, val by sharpness; 2 methods unchanged\n"
    )


def test_a_second_evaluation_and_other_memory_for_it_write_and_delete_nothing(evaluated, evaluate):
    before = bytes_of_artifacts(evaluated)
    change(evaluated, resources={"memory": 9})
    assert evaluate(evaluated)["evaluate"] == "2 methods unchanged"
    assert bytes_of_artifacts(evaluated) == before


def bytes_of_artifacts(project: Path) -> dict[Path, bytes]:
    """All artifacts but the digests of what params.yaml names, which list all sections."""
    files = [file for file in (project / "artifacts").rglob("*") if file.is_file()]
    return {file: file.read_bytes() for file in files if file.name != "code.json"}


def test_a_method_that_fails_ends_the_stage_with_the_others_done(project, stage):
    (project / "extensions").mkdir()
    (project / "extensions/mine.py").write_text(SHARPNESS.replace("self.scale *", "self.scales *"))
    change(project, methods={"sharpness": {}})
    run(project, "code_digests")
    assert said_by(stage(project, "fit", "demo")).startswith("demo: fitted msp, knn, sharpness; ")
    done = stage(project, "score", "demo")
    assert done.returncode == 1
    assert "methods.sharpness: extensions/mine.py, line 24: AttributeError: " in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    scored = {file.parent.name for file in (project / "artifacts/scores/demo").glob("*/*.parquet")}
    assert scored == {"msp", "knn"}
    change(project, methods={"sharpness": {"method": "msp"}})
    assert said_by(stage(project, "fit", "demo")).startswith(
        "demo: fitted sharpness; 3 methods unchanged"
    )
    assert said_by(stage(project, "score", "demo")).endswith("by sharpness; 2 methods unchanged\n")


def test_a_method_with_an_error_in_its_extension_ends_the_stage_with_the_others_done(
    project, stage
):
    (project / "extensions").mkdir()
    (project / "extensions/mine.py").write_text(
        SHARPNESS.replace("self.spread_ =", "self.spread_ = no_such_name +")
    )
    change(project, methods={"sharpness": {}})
    run(project, "code_digests")
    done = stage(project, "fit", "demo")
    assert done.returncode == 1
    assert "methods.sharpness: extensions/mine.py, line 21: NameError: " in done.stderr
    fitted = {
        file.parent.name for file in (project / "artifacts/fitted/demo").glob("*/method.json")
    }
    assert fitted == {"msp", "knn", "vim"}
