"""The pipeline of two runs under DVC, on a demo world of a few scenes: what a change runs."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from safetensors import safe_open
from safetensors.numpy import save_file
from tests.stages.pipeline_project import Project, families, scores_of_others, stages_in
from tests.support.pages import until

from farther.tables import Images

pytestmark = [pytest.mark.slow, pytest.mark.drawn(2)]

TINY = {
    "voc": {"train": 12, "val": 6, "test": 6},
    "bdd": {"train": 12, "val": 6, "test": 6},
    "coco": 24,
    "openimages": 24,
    "drawings": {"train": 2, "val": 2, "test": 2},
    "drawings_unknown": 2,
}


#: What of params.yaml the tests run: the rest is more of the same.
DATASETS = ("voc", "bdd", "coco", "openimages")
DERIVED = ("voc_pasted", "voc_shifted", "voc_blank")
RUNS = ("voc-faster_rcnn", "bdd-faster_rcnn")
#: ODIN needs a pass that they do not have.
METHODS = ("msp", "energy", "knn", "odin")


def make_tiny(params) -> None:
    params["demo"].update(TINY)
    params["datasets"] = {name: params["datasets"][name] for name in DATASETS}
    for kind, entries in params["derived"].items():
        params["derived"][kind] = {
            name: entry for name, entry in entries.items() if name in DERIVED
        }
        for entry in params["derived"][kind].values():
            entry["images"]["most"] = 6
    params["derived"]["corrupt"]["voc_shifted"]["corruptions"] = ["gaussian_noise", "contrast"]
    params["benchmarks"] = {name: params["benchmarks"][name] for name in ("voc", "bdd")}
    del (
        params["benchmarks"]["bdd"]["shifted"],
        params["benchmarks"]["bdd"]["pseudo_ood"],
    )  # VOC's are enough
    params["detectors"] = {
        run: {**params["detectors"][run], "proposals": {"rpn": {}}} for run in RUNS
    }
    params["methods"] = {name: params["methods"][name] for name in METHODS}
    params["cost"] = {"images": 2}
    params["evaluate"]["replicates"] = 100
    params["report"]["published"] = {run: params["report"]["published"][run] for run in RUNS}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, commands: Path) -> Project:
    project = Project(tmp_path_factory.mktemp("project"), commands, make_tiny)
    project.run("dvc", "repro")
    project.commit()
    project.keep()
    return project


@pytest.fixture(autouse=True)
def restored(project: Project):
    """Each test starts from the committed state, with everything up to date."""
    yield
    if project.run("git", "status", "--porcelain"):  # dvc.lock, whenever a stage ran
        project.restore()


def test_times_are_in_no_file_that_git_or_dvc_tracks(project: Project):
    times = project.read("artifacts/times.json")
    for run in RUNS:
        times["runs"][run]["detector"] = 1234.5
    (project.folder / "artifacts/times.json").write_text(json.dumps(times))
    project.run("dvc", "repro", "--force", "--single-item", "choose", "report")
    assert "1234.5 ms per image" in (project.folder / "artifacts/report/times.js").read_text()
    assert project.run("git", "status", "--porcelain") == ""
    assert project.repro() == ["code"]


def set_odin(params) -> None:
    params["methods"]["odin"]["temperature"] = 10


def set_keep(params) -> None:
    params["fit"]["keep"] = 0.8


def set_budget(params) -> None:
    params["deploy"]["max_false_alarms"] = 0.5


def set_iou(params) -> None:
    params["evaluate"]["iou"] = 0.6


def delete_energy(params) -> None:
    del params["methods"]["energy"]


#: Changes by name, and the stages that each of them concerns.
CHANGES = {
    "a method that does not apply": (set_odin, {"fit", "choose"}),
    "keep": (set_keep, {"fit", "evaluate", "choose"}),
    "budget": (set_budget, {"choose"}),
    "iou": (set_iou, {"evaluate", "choose"}),
    "a method deleted": (delete_energy, {"fit", "score", "evaluate", "choose"}),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_parameter_runs_the_stages_that_it_concerns_and_no_work_of_others(
    project: Project, name
):
    change, concerned = CHANGES[name]
    scores = scores_of_others(project, "energy")
    project.change(change)
    printed = project.run("dvc", "repro")
    assert set(stages_in(printed)) - {"code", "report"} == concerned
    assert scores_of_others(project, "energy") == scores
    assert "fitted" not in printed
    assert "scored" not in printed
    energy = list((project.folder / "artifacts").glob("*/*/**/energy*"))
    assert bool(energy) is (change is not delete_energy)


def test_the_code_of_a_metric_evaluates_again_and_runs_no_network(project: Project):
    change_code(project, "metrics/errors/error_budget.py", "\nUNUSED = 1\n")
    ran = project.repro()
    assert "infer" not in families(ran)
    assert "evaluate" in ran


def change_code(project: Project, name: str, addition: str) -> None:
    """Adds to a file of the library."""
    with (project.folder / "lib/farther" / name).open("a") as file:
        file.write(addition)


def test_a_change_of_the_report_writes_it_and_a_comment_in_a_rules_file_reruns_nothing(
    project: Project,
):
    before = scores_of_others(project)
    change_code(project, "report/templates/base.html", "<!-- a word -->")
    change_code(project, "../../data/benchmarks/voc.yaml", "\n# A comment: it changes no rule.\n")
    assert project.repro() == ["code", "report"]
    assert scores_of_others(project) == before


def test_another_title_of_a_run_writes_the_report_alone(project: Project):
    project.change(lambda params: params["detectors"][RUNS[0]].update(title="Another"))
    assert project.repro() == ["code", "report"]


def test_a_change_of_the_code_of_one_method_scores_that_method_again(project: Project):
    before = scores_of_others(project, "energy")
    change_code(project, "methods/energy.py", "\nUNUSED = 1\n")
    printed = project.run("dvc", "repro")
    for run in RUNS:
        assert f"{run}: fitted energy; " in printed
        assert re.search(rf"^{run}: scored [a-z0-9_, ]+ by energy; ", printed, flags=re.MULTILINE)
    assert stages_in(printed) == ["code", "fit", "score", "evaluate", "choose", "report"]
    assert scores_of_others(project, "energy") == before


def test_other_bytes_of_an_image_are_ingested_and_rerun_only_benchmarks_that_show_it(
    project: Project,
):
    coco = Images.read(project.folder / "artifacts/tables/coco/val2017/images.parquet")
    tables = (project.folder / "artifacts/splits/bdd").glob("*/images.parquet")
    shown = {image for table in tables for image in Images.read(table).image_id}
    file = next(
        file for image, file in zip(coco.image_id, coco.file, strict=True) if image not in shown
    )
    with (project.folder / "artifacts/demo/coco" / file).open("ab") as image:
        image.write(b"after the end of the picture")
    project.run("dvc", "commit", "--force", "demo")
    ran = project.repro()
    assert {"paste@voc_pasted", "ingest@coco", "curate"} <= set(ran)
    assert not [stage for stage in ran if "bdd" in stage or stage.startswith("demo")]
    assert {stage for stage in ran if stage.startswith("ingest")} == {"ingest@coco"}


def test_another_checkpoint_and_a_new_detector_run_alone(project: Project):
    file = project.folder / "data/demo/bdd-faster_rcnn.safetensors"
    with safe_open(file, "numpy") as checkpoint:
        weights = {name: checkpoint.get_tensor(name) for name in checkpoint.keys()}  # noqa: SIM118 - no mapping
        metadata = checkpoint.metadata()
    weights["roi_heads.box_head.2.bias"] += 0.01
    save_file(weights, file, metadata)
    line = {
        "adapter": "faster_rcnn",
        "benchmark": "voc",
        "weights": "data/demo/voc-faster_rcnn.safetensors",
        "params": {"score_threshold": 0.2},
    }
    project.change(lambda params: params["detectors"].update({"voc-strict": line}))
    ran = project.repro()
    assert [stage for stage in ran if "voc-faster_rcnn" in stage] == []
    inferred = [stage for stage in ran if stage.startswith("infer")]
    assert set(inferred) == {"infer@bdd-faster_rcnn", "infer@voc-strict"}
    assert set(ran) - set(inferred) == {"code", "fit", "score", "evaluate", "choose", "report"}


def test_a_new_split_leaves_the_others_unchanged_and_a_split_no_longer_tested_has_no_metrics(
    project: Project,
):
    regions = project.folder / "artifacts/regions/bdd-faster_rcnn"
    scores = project.folder / "artifacts/scores/bdd-faster_rcnn/knn"
    before = {
        file: file.stat().st_mtime_ns
        for folder in (regions, scores)
        for file in folder.rglob("*.parquet")
    }
    line = {"dataset": "voc", "subset": "test", "distance": "farther", "vocabulary": "coco"}
    project.change(lambda params: params["benchmarks"]["bdd"]["splits"].update(voc_farther=line))
    project.change(
        lambda params: params["benchmarks"]["bdd"]["splits"]["coco_farther"].update(
            use="validation"
        )
    )
    ran = project.repro()
    assert not any(
        "voc-faster_rcnn" in stage or stage.startswith(("demo", "ingest")) for stage in ran
    )
    assert "infer@bdd-faster_rcnn" in ran
    assert {file: file.stat().st_mtime_ns for file in before} == before
    assert (scores / "voc_farther.parquet").exists()
    assert not (project.folder / "artifacts/metrics/bdd-faster_rcnn/coco_farther").exists()


@pytest.fixture
def review_page(project: Project) -> Iterator[str]:
    """The address of the review page of benchmark bdd."""
    environment = {**os.environ, "PYTHONPATH": str(project.folder / "lib"), "PYTHONUNBUFFERED": "1"}
    command = [
        sys.executable,
        "-m",
        "farther",
        "benchmark",
        "review",
        "bdd",
        "--reviewer",
        "ann",
        "--no-browser",
    ]
    with subprocess.Popen(
        command, cwd=project.folder, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process.stdout.readline().strip()
        process.kill()


def test_a_decision_on_the_review_page_changes_the_split_and_only_what_depends_on_it_runs(
    project: Project, review_page: str, tab
):
    tab.goto(review_page)
    until(tab, "document.getElementById('name').textContent !== ''")
    dataset, _, image = tab.evaluate("document.getElementById('name').textContent").split()
    table = project.folder / f"artifacts/splits/bdd/{dataset}_farther/images.parquet"
    assert image in Images.read(table).image_id
    tab.keyboard.press("r")
    until(tab, "document.activeElement.id === 'class'")
    tab.keyboard.type("pede")
    tab.keyboard.press("Enter")
    until(tab, "document.getElementById('status').textContent.includes('Saved')")
    ran = project.repro()
    assert image not in Images.read(table).image_id
    assert {"curate", "stratify", "infer@bdd-faster_rcnn", "evaluate"} <= set(ran)
    assert not [stage for stage in ran if "voc" in stage]
    assert not families(ran) & {"demo", "ingest", "paste", "embed"}
