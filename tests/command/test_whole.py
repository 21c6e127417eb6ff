"""The published benchmark in miniature, all of it.

Profiles, datasets and checkpoints are as docs/benchmark.md describes them. The stages run in this
process, one after another, as `dvc repro` would run them; that DVC calls them so is tested with the
demo's parameters (tests/stages/test_pipeline.py). The Faster R-CNN networks have learned nothing.
"""

import json
import re
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml
from tests.stages.in_process import OF_RUN

from farther.command import main
from farther.curation import benchmark
from farther.evaluation.paired import StoredEvaluation
from farther.params import parse
from farther.publication import collect, publish
from farther.scoring.entries import read_entry
from farther.tables import Images, RegionsFolder

ROOT = Path(__file__).parents[2]
RUNS = ["voc-vos", "voc-yolov8", "bdd-rtdetr"]
SPLITS = {
    "voc": {"coco_near", "coco_far", "openimages_near", "openimages_far"},
    "bdd": {"coco_farther", "openimages_farther"},
}
#: Splits of candidates that people accepted: those for VOC's far splits have none.
ADDED = {
    "voc": {"coco_near_added", "openimages_near_added"},
    "bdd": {"coco_farther_added", "openimages_farther_added"},
}


def read(path):
    return json.loads(Path(path).read_text())


def test_doctor_finds_nothing_missing_once_files_are_where_it_said(finished, monkeypatch, capsys):
    monkeypatch.chdir(finished)
    assert main(["doctor", "--quick", "--json"]) == 0
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert {finding["name"] for finding in findings if finding["topic"] == "checkpoints"} == {
        *RUNS,
        "embed",
    }


def test_doctor_opens_checkpoints_and_describes_them(finished, tmp_path, monkeypatch, capsys):
    params = parse((finished / "params.yaml").read_text())
    params["detectors"] = {run: params["detectors"][run] for run in ("voc-vos", "voc-yolov8")}
    (tmp_path / "two.yaml").write_text(yaml.safe_dump(params))
    monkeypatch.chdir(finished)
    assert main(["doctor", "--json", "--params", str(tmp_path / "two.yaml")]) == 0
    findings = json.loads(capsys.readouterr().out)["findings"]
    opened = {
        finding["name"]: finding["text"]
        for finding in findings
        if finding["topic"] == "checkpoints"
    }
    assert "20 classes, last layer 21×1024" in opened["voc-vos"]
    assert "20 classes" in opened["voc-yolov8"] and "last layer" not in opened["voc-yolov8"]


@pytest.mark.parametrize("run", RUNS)
def test_every_method_has_results_in_every_split_or_a_reason_why_not(finished, run):
    results = StoredEvaluation(finished / "artifacts", run).results
    not_applicable = results.description.not_applicable
    params = parse((finished / "params.yaml").read_text())
    assert set(results.description.fitted) | set(not_applicable) == set(params["methods"])
    name = run.partition("-")[0]
    for method in results.description.fitted:
        counts = results.table.frame.filter(method=method, metric="unknown_objects", part="")
        assert set(counts["split"]) == SPLITS[name] | ADDED[name]
        assert counts["value"].min() > 0
    expected = set()
    for name, values in params["methods"].items():
        entry = read_entry(name, values)
        # YOLOv8 has no vector of features for a detection (FMIYC, Section 5.2).
        needs_features = entry.create().needs & {"features", "last_layer"}
        if needs_features and run.endswith("yolov8"):
            expected.add(name)
        if entry.runs and run not in entry.runs:
            expected.add(name)
    assert set(not_applicable) == expected


def test_only_candidates_that_people_accepted_are_in_the_splits_for_them(finished):
    for name, splits in ADDED.items():
        for split in splits:
            images = Images.read(finished / f"artifacts/splits/{name}/{split}/images.parquet")
            assert len(images) == 2


def test_a_split_without_images_is_not_tested_and_means_are_over_the_others(finished):
    roles = read(finished / "artifacts/splits/voc/roles.json")
    assert set(roles["test"]) == SPLITS["voc"] | ADDED["voc"]
    assert not (finished / "artifacts/metrics/voc-vos/coco_far_added").exists()
    means = read(finished / "artifacts/metrics/voc-vos/methods.json")["energy"]
    assert means["far_auroc"] is not None


def test_vos_comes_with_its_head(finished):
    header = RegionsFolder(finished / "artifacts/regions/voc-vos/test").header
    assert "vos_head" in header.detector


def test_id_images_are_those_that_the_paper_tests_on(finished, data):
    test = Images.read(finished / "artifacts/splits/voc/test/images.parquet")
    listed = (data / "VOCdevkit/VOC2007/ImageSets/Main/test.txt").read_text().split()
    assert sorted(test.image_id) == sorted(listed)
    assert {file.split("/")[0] for file in test.file} == {"VOC2007"}
    train = Images.read(finished / "artifacts/splits/voc/train/images.parquet")
    assert {file.split("/")[0] for file in train.file} == {"VOC2007", "VOC2012"}
    held_out = Images.read(finished / "artifacts/splits/bdd/test/images.parquet")
    assert {Path(file).parent.name for file in held_out.file} == {"val"}


def test_similarity_is_measured_for_every_split(finished):
    for name, splits in SPLITS.items():
        figures = set(
            json.loads((finished / f"artifacts/counts/similarity/{name}.json").read_text())
        )
        assert splits <= figures


def test_the_report_of_all_runs_is_written(finished):
    assert (finished / "artifacts/report/index.html").stat().st_size > 1000


@pytest.mark.parametrize("name", ["fmiyc", "fmiyc-published-code", "fmiyc-rebuilt"])
def test_the_pipeline_finds_in_a_profile_all_that_it_is_made_of(name):
    """Values that `dvc.yaml` names; DVC would stop at the first that is absent."""
    text = (ROOT / "dvc.yaml").read_text()
    params = parse((ROOT / f"profiles/{name}.yaml").read_text())
    for path in set(re.findall(r"\$\{([\w.]+)\}", text)):
        section, *keys = path.split(".")
        if section in ("item", "key"):
            continue
        value = params[section]  # it may be empty, but not absent
        for key in keys:
            value = value[key]
    for section, stage in (("datasets", "ingest"), ("detectors", "infer")):
        used = set(
            re.findall(r"\$\{item\.(\w+)\}", text.split(f"\n  {stage}:\n")[1].split("\n\n")[0])
        )
        assert all(used <= set(entry) for entry in params[section].values()), stage


def test_published_splits_are_taken_as_they_are(
    finished, data, project, tmp_path, monkeypatch, switch, stage
):
    """Curated splits are published as FindMeIfYouCan is, and the profile `fmiyc` reads them."""
    monkeypatch.chdir(finished)
    params = parse(Path("params.yaml").read_text())
    for name in SPLITS:
        made = benchmark(name, params["benchmarks"][name])
        publish(
            collect(name, made, params["datasets"], "artifacts", sorted(SPLITS[name])),
            tmp_path / name,
            "parquet",
        )
        for split in SPLITS[name]:
            shutil.copytree(
                tmp_path / name / split,
                data / "FindMeIfYouCan" / f"{split}_{name}",
                dirs_exist_ok=True,
            )
    here = tmp_path / "project"
    shutil.copytree(project / "data", here / "data")
    shutil.copytree(project / "profiles", here / "profiles")
    for name in SPLITS:
        shutil.copytree(finished / "artifacts/tables" / name, here / "artifacts/tables" / name)
    monkeypatch.chdir(here)
    switch("fmiyc", data)
    assert main(["doctor", "--quick"]) == 0
    stage("ingest", "fmiyc")
    stage("curate")
    for name, splits in SPLITS.items():
        for split in splits:
            ours, theirs = (
                Images.read(root / f"artifacts/splits/{name}/{split}/images.parquet")
                for root in (here, finished)
            )
            assert sorted(ours.digest) == sorted(theirs.digest), (name, split)
    rules = set(pq.read_table("artifacts/splits/voc/fates.parquet")["rule"].to_pylist())
    assert rules == {"as published"}


def test_the_other_protocol_needs_no_detector_again(
    finished, data, tmp_path, monkeypatch, switch, stage
):
    for name in ("data", "profiles"):
        (tmp_path / name).symlink_to(finished / name)
    for name in ("splits", "regions"):
        (tmp_path / "artifacts").mkdir(exist_ok=True)
        (tmp_path / "artifacts" / name).symlink_to(finished / "artifacts" / name)
    monkeypatch.chdir(tmp_path)
    params = switch("fmiyc-published-code", data)
    Path("params.yaml").write_text(
        yaml.safe_dump({**params, "methods": {"gen": params["methods"]["gen"]}})
    )
    stage("code_digests")
    for name in OF_RUN:
        stage(name, "bdd-rtdetr")
    assert read("artifacts/metrics/bdd-rtdetr/detector.json")["threshold"] == 0.3
    description = read("artifacts/results/bdd-rtdetr.json")
    assert description["settings"]["protocol"] == "published-code"
    assert read("artifacts/evaluation/bdd-rtdetr/methods/gen/threshold.json")["rule"] == "gaussian"
    assert description["fitted"]["gen"]["params"]["protocol"] == "published-code"
