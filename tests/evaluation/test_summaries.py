"""Summaries over a benchmark: means over splits, full spectrum, open-set recognition, errors."""

import json
import re
from dataclasses import asdict

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.metrics import accuracy_score, roc_auc_score
from tests.support.fitting import write_fitted

from farther.command import main
from farther.evaluation import summaries
from farther.evaluation.detector import known_class_replicates
from farther.evaluation.evaluate import EvaluationCode, evaluate_run
from farther.evaluation.files import Roles, RunFiles, RunSplit
from farther.evaluation.inputs import RunInputs
from farther.evaluation.results import GroupResults, SplitResults
from farther.evaluation.settings import EvaluationSettings
from farther.metrics.catalogue import METRICS
from farther.metrics.statistics import bootstrap
from farther.scoring.inputs import TauSettings
from farther.tables import Header, Images, Objects, Regions, Scores

CLASSES = ("cat", "dog", "owl")
BOX = (0.0, 0.0, 64.0, 48.0)
ROLES = Roles(
    ["fox", "wolf", "car"], {"c1": 1}, None, {"fox": "near", "wolf": "near", "car": "far"}
)

#: By how much the logit of the right class, or of any class, is raised in each split.
EVIDENCE = {"val": 3.0, "test": 3.0, "c1": 1.5, "fox": 1.2, "wolf": 1.0, "car": 0.2}


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    """A classifier of 3 classes on 60 images per split; a method scores by the largest logit."""
    files = RunFiles("net", "pets", tmp_path_factory.mktemp("project") / "artifacts")
    random = np.random.default_rng(0)
    header = Header(classes=CLASSES, activation="softmax", whole_images=True)
    for split, evidence in EVIDENCE.items():
        names = [f"{split if split in ROLES.test else 'i'}{number:02}" for number in range(60)]
        true = random.integers(0, 3, 60)
        logits = random.normal(size=(60, 3)).astype(np.float32)
        logits[np.arange(60), true] += evidence
        shared = {"image_id": names, "box": np.tile(BOX, (60, 1))}
        regions = Regions(
            region_id=range(60),
            score=softmax(logits, axis=1).max(axis=1),
            label=logits.argmax(axis=1),
            logits=logits,
            header=header,
            **shared,
        )
        unknown = [f"{split}{number % 2}" for number in range(60)]
        category = unknown if split in ROLES.test else [CLASSES[c] for c in true]
        Objects(object_id=range(60), category=category, **shared).write(files.objects(split))
        sides = {"width": np.full(60, 64), "height": np.full(60, 48)}
        Images(image_id=names, dataset=["d"] * 60, file=names, digest=["0"] * 60, **sides).write(
            files.images(split)
        )
        regions.write(files.regions(split))
        scored = {"image_id": names, "region_id": range(60), "score": logits.max(axis=1)}
        Scores(**scored).write(files.scores("mls", split))
    for file, content in (
        (files.threshold, {"threshold": 0.0, "rule": "whole images"}),
        (files.root / "splits/pets/roles.json", asdict(ROLES)),
    ):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(content))
    write_fitted(files.all_fitted, {"mls": {"fixed_threshold": 1.0}})
    report, _ = evaluated(files)
    return files, report


def evaluated(files):
    inputs = RunInputs(files, ROLES, EvaluationSettings(replicates=100))
    return evaluate_run(inputs, TauSettings(), EvaluationCode(""))


def of(files: RunFiles, split: str) -> tuple[Objects, np.ndarray, np.ndarray]:
    """Objects of a split, and the predicted class and the score of each image."""
    regions = RunSplit(files, split).regions()
    return (
        Objects.read(files.objects(split)),
        np.array(CLASSES)[regions.label],
        Scores.read(files.scores("mls", split)).score,
    )


def test_accuracy_is_that_of_the_labels_and_falls_on_shifted_images(classifier):
    files, report = classifier
    objects, predicted, _ = of(files, "test")
    found = report.classifier
    accuracy, (low, high) = found.values["accuracy"], found.intervals["accuracy"]
    assert accuracy == pytest.approx(accuracy_score(objects.category.astype(str), predicted))
    assert low <= accuracy <= high
    assert found.shifted["c1"]["accuracy"] < accuracy
    assert json.loads((files.metrics / "detector.json").read_text())["accuracy"] == accuracy


def test_replicates_of_a_classifier_have_the_interval_of_its_accuracy(classifier):
    files, report = classifier
    inputs = RunInputs(files, ROLES, EvaluationSettings(replicates=100))
    replicates = known_class_replicates(inputs)
    stored = report.classifier.intervals["accuracy"]
    assert bootstrap.interval(replicates["accuracy"]) == pytest.approx(stored)


def test_means_over_near_splits_are_those_of_their_values_and_near_is_harder_than_far(classifier):
    files, report = classifier
    found = report.methods["mls"]
    near, far = found.means["near"], found.means["far"]
    assert near.splits == ["fox", "wolf"]
    for metric in ("auroc", "fpr95", "aupr_out"):
        assert near.values[metric] == pytest.approx(
            np.mean([found.splits[s].of_group("ood")[metric] for s in ("fox", "wolf")])
        )
    assert near.values["auroc"] < far.values["auroc"]
    low, high = near.intervals["auroc"]
    assert low <= near.values["auroc"] <= high
    written = json.loads((files.metrics / "methods.json").read_text())["mls"]
    assert written["near_auroc"] == near.values["auroc"]


def test_in_the_full_spectrum_shifted_images_count_as_in_distribution(classifier):
    files, report = classifier
    sides = [of(files, split)[2] for split in ("test", "c1", "car")]
    positive = np.repeat([1, 1, 0], 60)
    found = report.methods["mls"].splits["car"]
    assert found.of_group("full_spectrum")["auroc"] == pytest.approx(
        roc_auc_score(positive, np.concatenate(sides))
    )
    assert found.of_group("full_spectrum")["id_regions"] == 120
    assert found.of_group("full_spectrum")["auroc"] < found.of_group("ood")["auroc"]
    low, high = found.groups["full_spectrum"].intervals["auroc"]
    assert low <= found.of_group("full_spectrum")["auroc"] <= high


def test_recognition_needs_the_right_class_and_counts_unknown_classes_alike(classifier):
    files, report = classifier
    objects, predicted, score = of(files, "test")
    right = objects.category.astype(str) == predicted
    unknown, _, scores = of(files, "fox")
    found = report.methods["mls"].splits["fox"]
    expected = right.mean() * roc_auc_score(
        np.repeat([1, 0], [right.sum(), 60]), np.concatenate([score[right], scores])
    )
    assert found.of_group("recognition")["oscr"] == pytest.approx(expected)
    each = [
        roc_auc_score(
            np.repeat([1, 0], [60, 30]), np.concatenate([score, scores[unknown.category == name]])
        )
        for name in ("fox0", "fox1")
    ]
    assert found.of_group("recognition")["macro_auroc"] == pytest.approx(np.mean(each))
    for name in ("oscr", "macro_auroc"):
        low, high = found.groups["recognition"].intervals[name]
        assert low <= found.of_group("recognition")[name] <= high


def test_errors_on_id_images_have_intervals(classifier):
    files, report = classifier
    objects, predicted, score = of(files, "test")
    right = objects.category.astype(str) == predicted
    found = report.methods["mls"].misclassification
    assert (found.values["correct"], found.values["errors"]) == (right.sum(), (~right).sum())
    assert found.values["auroc"] == pytest.approx(roc_auc_score(right, score))
    low, high = found.intervals["aurc"]
    assert low <= found.values["aurc"] <= high


def explained(files: RunFiles, monkeypatch, capsys, *arguments: str) -> dict:
    """The output of `farther explain number` for a value of the run, which must fit its text."""
    monkeypatch.chdir(files.root.parent)
    (files.root.parent / "params.yaml").write_text("detectors: {net: {benchmark: pets}}")
    assert main(["explain", "number", "net", *arguments]) == 0
    assert capsys.readouterr().out.startswith(f"{arguments[-1]} = ")
    assert main(["explain", "number", "net", *arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert not re.search(r"\{\w+\}|\?", found["formula"])
    assert all((files.root.parent / file).exists() for file in found["files"])
    return found


@pytest.mark.parametrize("metric", ["accuracy", "nll", "ece"])
def test_explain_gives_metrics_of_a_classifier_without_a_method(
    classifier, monkeypatch, capsys, metric
):
    files, report = classifier
    found = explained(files, monkeypatch, capsys, "-", "-", metric)
    assert found["value"] == report.classifier.values[metric]
    assert tuple(found["interval"]) == report.classifier.intervals[metric]


def test_explain_gives_errors_on_id_images_with_their_counts_without_a_split(
    classifier, monkeypatch, capsys
):
    files, report = classifier
    found = explained(files, monkeypatch, capsys, "mls", "-", "misclassification_aurc")
    results = report.methods["mls"].misclassification
    assert (found["value"], tuple(found["interval"])) == (
        results.values["aurc"],
        results.intervals["aurc"],
    )
    assert (
        f"{results.values['errors']} errors in N = {results.values['correct']} + "
        in found["formula"]
    )
    assert list(found["splits"]) == ["test"]
    assert found["tau"]["threshold"] == 1.0


def test_false_alarms_are_counted_per_image_and_explained_with_their_counts(
    classifier, monkeypatch, capsys
):
    files, report = classifier
    _, _, score = of(files, "test")
    flagged = int(np.sum(score < report.methods["mls"].tau))
    within, costs = report.methods["mls"].costs.intervals, report.methods["mls"].costs.values
    assert (costs["flagged"], costs["id_regions"], costs["images"]) == (
        flagged,
        len(score),
        len(score),
    )
    assert (
        costs["false_alarms"] == costs["id_flagged"] == flagged / len(score)
    )  # a classifier has one region per image
    low, high = within["false_alarms"]
    assert low <= costs["false_alarms"] <= high
    found = explained(files, monkeypatch, capsys, "mls", "-", "false_alarms")
    assert found["value"] == costs["false_alarms"]
    assert found["formula"].startswith(f"{flagged} of the {len(score)} regions")


@pytest.mark.parametrize("metric", ["full_spectrum_auroc", "oscr", "macro_auroc"])
def test_explain_gives_full_spectrum_and_recognition_of_a_split(
    classifier, monkeypatch, capsys, metric
):
    files, report = classifier
    found = explained(files, monkeypatch, capsys, "mls", "car", metric)
    assert found["value"] == report.methods["mls"].splits["car"].value(METRICS[metric])
    of_shifted = "artifacts/scores/net/mls/c1.parquet"
    assert (of_shifted in found["files"]) == metric.startswith("full_spectrum")


def test_a_change_of_shifted_scores_alone_evaluates_the_method_again(classifier):
    files, _ = classifier
    table = Scores.read(files.scores("mls", "c1"))
    table.with_columns(score=table.score - 1).write(files.scores("mls", "c1"))
    _, computed = evaluated(files)
    assert computed == ["mls"]


def test_there_is_no_mean_of_splits_without_results():
    distance = {"gone": "far", "coco_near": "near"}
    found = summaries.means_by_distance(
        {"coco_near": SplitResults(groups={"ood": GroupResults()})}, {"coco_near": {}}, distance
    )
    assert {name: of.splits for name, of in found.items()} == {"near": ["coco_near"]}


def test_means_are_of_the_metrics_that_every_split_of_the_distance_has():
    def split(**groups):
        return SplitResults(
            groups={name: GroupResults(values=values) for name, values in groups.items()}
        )

    results = {
        "coco_near": split(ood={"auroc": 0.9}, open_set={"nose": 0.1, "aose": 3}),
        "oi_near": split(ood={"auroc": 0.7}),
        "far": split(open_set={"nose": 0.2, "aose": 5}),
    }
    distance = {"coco_near": "near", "oi_near": "near", "far": "far"}
    found = summaries.means_by_distance(results, {name: {} for name in results}, distance)
    assert found["near"].values["auroc"] == pytest.approx(0.8)
    assert "nose" not in found["near"].values
    assert found["far"].values == {
        "nose": 0.2,
        "p_u": None,
        "r_u": None,
        "ap_u": None,
    }  # AOSE, a count, has no mean
