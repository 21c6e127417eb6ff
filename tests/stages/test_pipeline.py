"""The whole pipeline under DVC, on a demo world of a few scenes: which stages run, and outputs.

One run, for which a contributor does not wait long; test_pipeline_changes.py has two.
"""

import re
from pathlib import Path
from typing import Any

import pytest
from tests.stages.pipeline_project import Project, scores_of_others, stages_in

RUN = "voc-faster_rcnn"
TINY = {
    "voc": {"train": 6, "val": 4, "test": 4},
    "bdd": {"train": 2, "val": 2, "test": 2},
    "coco": 12,
    "openimages": 4,
    "drawings": {"train": 2, "val": 2, "test": 2},
    "drawings_unknown": 2,
}
#: What of params.yaml the tests run: the rest is more of the same.
DATASETS = ("voc", "coco")
DERIVED = ("voc_pasted", "voc_blank")
SPLITS = ("coco_near", "coco_far", "pasted_far")
#: ODIN needs a pass that the run does not have.
METHODS = ("msp", "energy", "knn", "odin")

#: Stages that run where a parameter of a method changed and where a method is new.
OF_METHODS = {"code", "fit", "score", "evaluate", "choose", "report"}


def make_tiny(params: dict[str, Any]) -> None:
    params["demo"].update(TINY)
    params["datasets"] = {name: params["datasets"][name] for name in DATASETS}
    for kind, entries in params["derived"].items():
        kept = {name: entry for name, entry in entries.items() if name in DERIVED}
        for entry in kept.values():
            entry["images"]["most"] = 3
        params["derived"][kind] = kept
    benchmark = params["benchmarks"]["voc"]
    del benchmark["shifted"]
    benchmark["splits"] = {name: benchmark["splits"][name] for name in SPLITS}
    params["benchmarks"] = {"voc": benchmark}
    params["detectors"] = {RUN: {**params["detectors"][RUN], "proposals": {"rpn": {}}}}
    params["methods"] = {name: params["methods"][name] for name in METHODS}
    params["cost"] = {"images": 2}
    params["evaluate"]["replicates"] = 100
    params["report"]["published"] = {RUN: params["report"]["published"][RUN]}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, commands: Path) -> Project:
    """The project after its first `dvc repro`, committed; tests run in the order of this file."""
    project = Project(tmp_path_factory.mktemp("project"), commands, make_tiny)
    project.repro()
    project.commit()
    return project


def test_every_stage_left_what_it_promises(project: Project):
    assert project.read(f"artifacts/metrics/{RUN}/detector.json")["map50"] >= 0
    voc = project.folder / "artifacts/metrics" / RUN
    assert {p.name for p in voc.iterdir() if p.is_dir()} == {
        "coco_near",
        "coco_far",
        "pasted_far",
        "test",
    }
    one = project.read(f"artifacts/metrics/{RUN}/coco_near/knn.json")
    assert {"auroc", "fpr95", "nose", "ap_u", "p_u", "r_u"} <= set(one)
    assert (project.folder / "artifacts/report/index.html").stat().st_size > 10_000


def test_nothing_but_the_stage_code_runs_when_nothing_changed(project: Project):
    assert project.repro() == ["code"]


@pytest.mark.slow
def test_a_new_method_and_a_changed_parameter_run_only_these_methods_and_what_aggregates(
    project: Project,
):
    project.change(lambda params: params["methods"]["knn"].update(k=5))
    project.change(lambda params: params["methods"].update(mls={}))
    before = scores_of_others(project, "knn", "mls")
    printed = project.run("dvc", "repro")
    assert set(stages_in(printed)) == OF_METHODS
    assert f"{RUN}: fitted knn, mls; 3 methods unchanged; not applicable: odin\n" in printed
    scored = rf"^{RUN}: scored [a-z0-9_, ]+ by knn, mls; 2 methods unchanged$"
    assert re.search(scored, printed, flags=re.MULTILINE)
    assert f"{RUN}: evaluated knn, mls; 2 methods unchanged; rpn: " in printed
    assert scores_of_others(project, "knn", "mls") == before
    table = project.run("dvc", "metrics", "diff", "HEAD")
    assert re.search(r"Path +Metric +HEAD +workspace +Change", table)
    assert "knn.json" in table
    assert "msp.json" not in table
