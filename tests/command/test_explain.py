"""`farther explain` on a finished project: images in splits, and how a value was computed."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest
import yaml

from farther.command import main
from farther.command.explain.number import _fill
from farther.curation.fates import Fates
from farther.evaluation import threshold
from farther.evaluation.methods import EvaluatedMethod
from farther.metrics.catalogue import METRICS
from farther.params import parse
from farther.tables import Images, Objects

RUN = "voc-vos"


@pytest.fixture(autouse=True)
def _here(finished, monkeypatch):
    monkeypatch.chdir(finished)


def explained(capsys, *arguments):
    capsys.readouterr()
    assert main(["explain", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_removed_image_comes_with_the_object_and_the_rule_that_removed_it(finished, capsys):
    fates = Fates.read(finished / "artifacts/splits/voc/fates.parquet")
    row = int(np.flatnonzero((fates.fate == "removed") & (fates.object_id >= 0))[0])
    image = str(fates.image_id[row])
    explanation = explained(capsys, "image", image, "--benchmark", "voc")
    (place,) = explanation["benchmarks"]["voc"]
    assert place["splits"] == [] and place["fate"] == "removed"
    assert str(fates.rule[row]) in place["why"]
    objects = explanation["sources"][0]["objects"]
    assert {one["object_id"]: one["category"] for one in objects}[
        place["object_id"]
    ] == fates.category[row]
    assert explanation["sources"][0]["there"]
    assert main(["explain", "image", image]) == 0
    text = capsys.readouterr().out
    assert "no split" in text and str(fates.category[row]) in text
    assert "benchmark voc" in text and "benchmark bdd" in text  # both draw from the image's dataset


def test_a_kept_image_comes_with_its_split_and_all_its_objects(finished, capsys):
    images = Images.read(finished / "artifacts/splits/voc/coco_far/images.parquet")
    objects = Objects.read(finished / "artifacts/splits/voc/coco_far/objects.parquet")
    image = str(images.image_id[0])
    explanation = explained(capsys, "image", image)
    assert explanation["benchmarks"]["voc"][0]["splits"] == ["coco_far"]
    assert len(explanation["sources"][0]["objects"]) == int(np.sum(objects.image_id == image))


def test_an_id_image_is_where_its_subset_is(finished, capsys):
    image = str(Images.read(finished / "artifacts/splits/voc/test/images.parquet").image_id[0])
    explanation = explained(capsys, "image", image)
    # `val` and `test` are from the same subset.
    assert sorted(place["splits"][0] for place in explanation["benchmarks"]["voc"]) == [
        "test",
        "val",
    ]
    assert "bdd" not in explanation["benchmarks"]


def test_similarity_to_id_is_shown_where_it_was_measured(finished, capsys):
    image = str(Images.read(finished / "artifacts/splits/voc/coco_far/images.parquet").image_id[0])
    explanation = explained(capsys, "image", image, "--benchmark", "voc")
    (place,) = explanation["benchmarks"]["voc"]
    assert -1 <= place["similarity"]["similarity"] <= 1
    assert main(["explain", "image", image, "--benchmark", "voc"]) == 0
    assert f"similarity {place['similarity']['similarity']:.3f}" in capsys.readouterr().out


def test_what_people_decided_is_quoted(finished, capsys, tmp_path, monkeypatch):
    image = str(Images.read(finished / "artifacts/splits/voc/coco_far/images.parquet").image_id[0])
    lines = (finished / "data/decisions/fmiyc-rebuilt-voc.csv").read_text()
    lines += f"2026-11-21T09:30:02.114Z,ann,coco,val2017,{image},remove,person,behind the bus\n"
    (tmp_path / "decisions.csv").write_text(lines)
    params = parse((finished / "params.yaml").read_text())
    params["benchmarks"]["voc"]["decisions"] = "decisions.csv"
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(params))
    (tmp_path / "artifacts").symlink_to(finished / "artifacts")
    monkeypatch.chdir(tmp_path)
    assert main(["explain", "image", image, "--benchmark", "voc"]) == 0
    text = capsys.readouterr().out
    assert "ann decided on 2026-11-21" in text and "remove → person (behind the bus)" in text


def test_an_unknown_image_or_benchmark_brings_what_is_near(finished, capsys):
    image = str(Images.read(finished / "artifacts/splits/voc/test/images.parquet").image_id[0])
    assert main(["explain", "image", image[:-1]]) == 2
    assert f"'{image[:-1]}" in capsys.readouterr().err
    assert main(["explain", "image", image, "--benchmark", "vok"]) == 2
    assert "Did you mean 'voc'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    "metric", sorted(name for name in METRICS if METRICS[name].group in ("ood", "open_set"))
)
def test_every_metric_of_a_method_is_explained_with_its_value(finished, capsys, metric):
    explanation = explained(capsys, "number", RUN, "msp", "coco_far", metric)
    kept = EvaluatedMethod.read(finished / f"artifacts/evaluation/{RUN}/methods/msp", ["coco_far"])
    assert explanation["value"] == kept.results.splits["coco_far"].value(METRICS[metric])
    assert not re.search(r"\{\w+\}|\?", explanation["formula"])
    threshold_file = finished / f"artifacts/thresholds/{RUN}.json"
    assert explanation["t*"]["threshold"] == json.loads(threshold_file.read_text())["threshold"]
    assert explanation["tau"]["threshold"] == kept.results.tau
    assert explanation["protocol"] == "paper"
    assert set(explanation["splits"]) == {"test", "coco_far"}
    assert all((finished / file).exists() for file in explanation["files"])


def test_counts_behind_a_ratio_give_the_ratio(capsys):
    explanation = explained(capsys, "number", RUN, "energy", "coco_far", "nose")
    wrong, unknown = explanation["formula"].split("=")[-1].split("/")
    assert int(wrong) / int(unknown) == pytest.approx(explanation["value"])


@pytest.mark.parametrize("metric", ["map", "map50", "threshold"])
def test_metrics_of_the_detector_need_no_method(finished, capsys, metric):
    explanation = explained(capsys, "number", RUN, "-", "-", metric)
    written = json.loads((finished / f"artifacts/metrics/{RUN}/detector.json").read_text())
    assert explanation["value"] == written[metric]
    assert main(["explain", "number", RUN, "-", "coco_far", "no_detection"]) == 0


def test_the_text_names_digests_and_stages(capsys):
    assert main(["explain", "number", RUN, "msp", "coco_far", "auroc"]) == 0
    text = capsys.readouterr().out
    assert f"evaluate, score, fit, infer@{RUN}, curate" in text and "weights" in text


@pytest.mark.parametrize(
    ("keep", "rule"), [(None, "fixed by the method; it keeps"), (0.95, "to keep 0.95 of")]
)
def test_a_threshold_that_learns_from_no_data_is_called_fixed(keep, rule, capsys, monkeypatch):
    stored = threshold.StoredTau(threshold=0.0, keep=keep, rule="keep", regions=40)
    monkeypatch.setattr("farther.command.explain.number.stored_tau", lambda _: stored)
    assert main(["explain", "number", RUN, "msp", "coco_far", "nose"]) == 0
    assert rule in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("voc-vs", "msp", "coco_far", "nose"), "Did you mean 'voc-vos'?"),
        ((RUN, "mspp", "coco_far", "nose"), "Did you mean 'msp'?"),
        ((RUN, "msp", "coco_fa", "nose"), "Did you mean 'coco_far'?"),
        ((RUN, "msp", "coco_far", "nos"), "Did you mean 'nose'?"),
        ((RUN, "msp", "test", "nose"), "the ID split"),
        (("voc-yolov8", "knn", "coco_far", "nose"), "knn needs features"),
        ((RUN, "msp", "coco_far", "accuracy"), "metric of image classifiers"),
        ((RUN, "msp", "coco_far", "oscr"), "metric of image classifiers"),
        ((RUN, "mspp", "-", "misclassification_auroc"), "Did you mean 'msp'?"),
    ],
)
def test_what_cannot_be_explained_is_an_error_with_the_reason(arguments, problem, capsys):
    assert main(["explain", "number", *arguments]) == 2
    assert problem in capsys.readouterr().err


def test_a_formula_takes_the_counts_that_it_names():
    assert _fill("{a} / {b}", {"a": 3, "b": 4, "c": 5}) == "3 / 4"


def test_commands_that_run_no_model_load_no_torch(finished):
    commands = [
        *("list methods", "list detectors", "list datasets", "benchmark profile", "summary"),
        f"explain number {RUN} msp coco_far nose",
        "compare artifacts/metrics artifacts/metrics --all",
        f"compare --methods msp energy --run {RUN}",
        "benchmark duplicates voc",
    ]
    code = (
        "import sys; from farther.command import main\n"
        "for command in sys.argv[1:]:\n"
        "    status = main(command.split())\n"
        "    print('status', status, 'torch' in sys.modules, command, file=sys.stderr)"
    )
    process = subprocess.run(
        [sys.executable, "-c", code, *commands], capture_output=True, text=True, cwd=finished
    )
    statuses = [line for line in process.stderr.splitlines() if line.startswith("status ")]
    assert statuses == [f"status 0 False {command}" for command in commands]
