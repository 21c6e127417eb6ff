"""Rules of proposals: a method that rejects them, and a combination, beside scikit-learn's pipeline of the same."""

from datetime import UTC, datetime

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from tests.evaluation.test_evaluate import write_json, write_split

from farther.curation.decisions import Decision, DecisionsFile
from farther.detectors.proposals import read_sources
from farther.evaluation.files import RunFiles
from farther.evaluation.proposal_rules import (
    Combination,
    Rejecting,
    Rule,
    method_of,
    on_unknown,
    pixels_of,
    with_unlabelled,
)
from farther.evaluation.proposals import evaluate_proposals
from farther.evaluation.settings import EvaluationSettings, ProposalSettings
from farther.methods.base import METHODS
from farther.tables import Images, Objects, Regions

CLASSES = ("fox", "owl")


def table(image_id, box, score, logits):
    return Regions(
        image_id=image_id, region_id=np.arange(len(box)), box=box, score=score, label=np.zeros(len(box), int),
        logits=logits, classes=CLASSES,
    )  # fmt: skip


def some(random, count, *, low, side, logit):
    """Proposals in images of 100 pixels, with objectness from `low` up, about this long and with such logits."""
    corner, sides = random.uniform(0, 30, (count, 2)), random.uniform(side / 2, side, (count, 2))
    names = [f"{k % 7}" for k in range(count)]
    box = np.hstack([corner, corner + sides])
    return table(names, box, random.uniform(low, 1, count), random.normal(logit, 1, (count, 2)))


def images(names, side=100):
    count = len(names)
    return Images(
        image_id=names, dataset=["d"] * count, file=names, width=[side] * count, height=[side] * count,
        digest=["0" * 32] * count,
    )  # fmt: skip


@pytest.fixture
def energy():
    """The method energy, fitted: it rejects what scores below 0."""
    random = np.random.default_rng(0)
    method = METHODS.create("energy").fit(some(random, 40, low=0.5, side=60, logit=4))
    return Rejecting("energy", method, 0.0)


def test_a_combination_is_scikit_learns_logistic_regression(energy):
    random, sizes = np.random.default_rng(1), images([str(k) for k in range(7)])
    unknown = some(random, 50, low=0.4, side=70, logit=-1)
    alarms = some(random, 90, low=0.1, side=20, logit=2)
    learnt = Rule.learnt((unknown, sizes), (alarms, sizes), energy)
    probability = learnt.applied(alarms, pixels_of(alarms, sizes)).score

    def inputs(rows):
        share = np.prod(rows.box[:, 2:] - rows.box[:, :2], axis=1) / 100**2
        odds = np.log(rows.score.astype(float) / (1 - rows.score.astype(float)))
        return np.stack([odds, np.log(share) / 2, energy.method.score(rows)], axis=1)

    peer = make_pipeline(StandardScaler(), LogisticRegression(class_weight="balanced"))
    peer.fit(np.vstack([inputs(unknown), inputs(alarms)]), [1] * 50 + [0] * 90)
    np.testing.assert_allclose(probability, peer.predict_proba(inputs(alarms))[:, 1], atol=1e-4)
    assert learnt.applied(unknown, np.full(50, 100**2)).score.mean() > 0.7 > 0.3 > probability.mean()
    assert Rule.learnt((unknown[:0], sizes), (alarms, sizes)) is None
    assert [method_of(rule.name) for rule in (Rule(), Rule(energy), learnt)] == [None, "energy", "energy"]


def test_what_is_the_same_everywhere_has_no_weight():
    random = np.random.default_rng(3)
    x = np.column_stack([random.normal(size=40), np.full(40, -2.0)])
    x[:15, 0] += 1
    learnt = Combination.fit(x[:15], x[15:])
    without = LogisticRegression(class_weight="balanced")
    peer = make_pipeline(StandardScaler(), without).fit(x[:, :1], np.repeat([1, 0], [15, 25]))
    np.testing.assert_allclose(learnt.probabilities(x), peer.predict_proba(x[:, :1])[:, 1], atol=1e-4)


def test_the_smallest_box_has_a_probability_and_one_beyond_its_image_that_of_the_image():
    rule = Rule(combination=Combination(intercept=0, weights=(0, 1), centre=(0, 0), spread=(1, 1)))
    boxes = [[5, 5, 5, 9], [0, 0, 10, 10], [0, 0, 100, 100], [-20, 0, 110, 100]]
    found = rule.applied(table(["a"] * 4, boxes, [0.5] * 4, np.zeros((4, 2))), np.full(4, 100.0**2)).score
    # p = s / (1 + s) of s = √(share of the image).
    assert found[1:] == pytest.approx([1 / 11, 1 / 2, 1 / 2])
    assert 0 < found[0] < 0.001


def test_an_objectness_of_0_or_1_is_weighed_too():
    rule = Rule(combination=Combination(intercept=0, weights=(1, 0), centre=(0, 0), spread=(1, 1)))
    found = rule.applied(table(["a"] * 3, [[0, 0, 9, 9]] * 3, [0, 0.3, 1], np.zeros((3, 2))), np.full(3, 100.0**2))
    assert found.score == pytest.approx([0, 0.3, 1], abs=1e-5)
    assert np.all((found.score > 0) & (found.score < 1))


def test_the_best_proposal_on_each_unknown_object_is_learnt_from():
    box = [[0, 0, 40, 40], [1, 1, 41, 41], [0, 0, 40, 90], [60, 60, 90, 90]]
    proposals = table(["a", "a", "a", "a"], box, [0.5, 0.7, 0.9, 0.3], np.zeros((4, 2)))
    objects = Objects(
        image_id=["a", "a", "a"], object_id=[0, 1, 2], box=[box[0], box[3], box[2]],
        category=["yak", "fox", "yak"], is_crowd=[False, False, True],
    )  # fmt: skip
    assert on_unknown(proposals, objects, CLASSES, 0.5).region_id.tolist() == [1]


def test_an_image_has_unlabelled_objects_where_most_of_its_reviewers_saw_one(tmp_path):
    file = tmp_path / "b.id.csv"
    assert with_unlabelled(file, ["test"]) is None
    decisions = [
        ("ann", "test", "most", "remove"), ("bob", "test", "most", "remove"), ("eve", "test", "most", "keep"),
        ("ann", "test", "half", "remove"), ("bob", "test", "half", "keep"), ("ann", "test", "none", "keep"),
        ("ann", "val", "alone", "remove"),
    ]  # fmt: skip
    with DecisionsFile(file).locked() as opened:
        for second, (reviewer, split, image, choice) in enumerate(decisions):
            time, note = datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC), "a sofa" if choice == "remove" else ""
            DecisionsFile(file).append(opened, Decision(time, reviewer, "d", split, image, choice, note=note))
    assert with_unlabelled(file, ["val", "test", "other"]) == {"val": {"alone"}, "test": {"most"}, "other": set()}
    assert with_unlabelled(file, ["other"]) is None


@pytest.fixture
def files(tmp_path, energy):
    """A run: in ID images proposals have high logits, on unknown objects low ones, and both the same objectness."""
    random, made = np.random.default_rng(2), RunFiles("run", "b", tmp_path)
    names = [str(k) for k in range(7)]
    fox = Objects(image_id=names, object_id=range(7), box=[[80, 80, 99, 99]] * 7, category=["fox"] * 7)
    seen = table(names, fox.box, [0.9] * 7, np.full((7, 2), 5.0))
    for split in ("val", "test"):
        write_split(made, split, fox, seen)
        some(random, 14, low=0.2, side=60, logit=5).write(made.proposals("rpn", split))
    for split in ("pasted", "near"):
        found = some(random, 7, low=0.2, side=60, logit=-6)
        yaks = Objects(image_id=names, object_id=range(7), box=found.box, category=["yak"] * 7)
        write_split(made, split, yaks, seen)
        found.write(made.proposals("rpn", split))
    roles = {"test": ["pasted", "near"], "distance": {"pasted": "far", "near": "near"}}
    write_json(tmp_path / "splits/b/roles.json", roles)
    write_json(made.threshold, {"threshold": 0.5})
    energy.method.save(made.fitted("energy"))
    write_json(made.fitted("energy") / "threshold.json", {"threshold": 0.0, "rule": "keep", "keep": 0.95, "regions": 1})
    write_json(made.fitted("knn") / "method.json", {"name": "knn", "not_applicable": "no features"})
    return made


def test_rules_are_measured_beside_objectness_and_leave_out_what_they_learnt_from(files):
    asked = ProposalSettings(alarms=0.2, rates=(0.2,), methods=("energy", "knn"), learn_from="pasted")
    found = evaluate_proposals(files, read_sources("run", {"rpn": {}}), EvaluationSettings(proposals=asked)).sources
    assert list(found) == ["rpn", "rpn, energy", "rpn, logistic", "rpn, logistic with energy"]
    assert found["rpn"].distances["near"].values["still_missed"] > 0.5
    for rule in ("energy", "logistic with energy"):
        assert found[f"rpn, {rule}"].distances["near"].values["still_missed"] == 0
        assert found[f"rpn, {rule}"].rule == rule
    assert found["rpn, energy"].alarms == 0
    assert set(found["rpn, energy"].distances) == {"near", "far"}
    assert set(found["rpn, logistic"].distances) == {"near"}
