"""Examples of accepted and rejected images, as the evaluation names them."""

import shutil
from dataclasses import replace

import pytest
from tests.support.evaluations import stored_results

from farther.evaluation.results import AcceptedImages
from farther.report.gallery import accepted
from farther.report.gallery.accepted import decided_images
from farther.report.gallery.examples import ReadImages
from farther.report.pages.self_awareness import of_run
from farther.report.results import read_run
from farther.report.write import build


@pytest.fixture
def groups(evaluated, params):
    run = read_run("pets-net", params, evaluated / "artifacts")
    roots = {name: evaluated / name for name in ("pets", "photos")}
    return decided_images(run, evaluated / "artifacts", ReadImages(roots))


def test_the_first_accepted_and_the_first_rejected_image_of_each_split_are_shown(groups):
    shown = {}
    for group in groups:
        shown[group.title] = [
            (decision.example.image_id, decision.title, decision.verdict)
            for decision in group.decisions
        ]
    # 95% of the ID validation images are accepted: one of 20 is not, the least confident, test0.
    # Confidences of the others are higher. In n3 nothing is detected; n2 is taken for a cat.
    assert shown == {
        "ID test images: test": [("test1", "accepted", "right"), ("test0", "rejected", "wrong")],
        "OOD images: photos near": [("n2", "accepted", "wrong"), ("n1", "rejected", "right")],
        "OOD images: photos far": [("f1", "rejected", "right")],
    }


def test_the_uncertainty_is_beside_the_threshold(groups):
    known, _, near = groups
    # Confidences of ID images: 0.9, 0.904, …; the threshold is that of the second one.
    assert [decision.uncertainty for decision in known.decisions] == [
        "uncertainty 0.096 ≤ 0.096",
        "uncertainty 0.100 > 0.096",
    ]
    assert near.decisions[0].uncertainty == "uncertainty 0.005 ≤ 0.096"


def test_detections_are_drawn_where_the_image_is_accepted_alone(groups):
    known, far, near = groups
    right, wrong = known.decisions
    assert [mark.kind for mark in right.example.marks] == ["truth", "known"]
    assert [(mark.kind, mark.text) for mark in wrong.example.marks] == [("truth", "cat")]
    # The confidence is calibrated: objects of its class have an IoU of 1 in all validation images.
    assert right.example.marks[1].text == "dog 100%"
    assert near.decisions[0].example.marks[1].text == "cat 100%"
    assert [mark.kind for mark in far.decisions[0].example.marks] == ["truth"]


@pytest.mark.parametrize(
    ("severity", "verdicts"),
    [
        (None, ("wrong", "right")),
        (0, ("right", "wrong")),
        (3, ("right", "wrong")),
        (5, ("counts", "allowed")),
    ],
)
def test_an_image_may_be_rejected_from_severity_5_on(severity, verdicts):
    rule = accepted.expectation_of(
        AcceptedImages(images=1, rejected_images=0, histogram=[], severity=severity)
    )
    assert (rule.if_accepted, rule.if_rejected) == verdicts
    assert ("may be rejected" in rule.text) == (severity == 5)


def test_images_that_are_not_on_this_machine_and_runs_without_detections_have_no_examples(
    evaluated, params, tmp_path
):
    run = read_run("pets-net", params, evaluated / "artifacts")
    titles = [
        group.title
        for group in decided_images(
            run, evaluated / "artifacts", ReadImages({"photos": evaluated / "photos"})
        )
    ]
    assert titles == ["OOD images: photos far", "OOD images: photos near"]
    assert decided_images(run, tmp_path, ReadImages({})) == []
    without = replace(run, results=stored_results())
    assert decided_images(without, evaluated / "artifacts", ReadImages({})) == []
    assert of_run(without, []) is None


def test_the_page_shows_decision_and_rule_beside_the_pictures(
    report, read, built, params, tmp_path
):
    page = read(report / "detectors/pets-net.html")
    captions = page.texts("figcaption")
    assert "test0 ⊘ rejected (wrong): uncertainty 0.100 > 0.096" in captions
    assert "n2 ✓ accepted (wrong): uncertainty 0.005 ≤ 0.096" in captions
    assert "To be rejected." in page.source
    root = tmp_path / "project"
    shutil.copytree(built, root)
    build({**params, "report": {"examples": 0}}, root)
    assert "To be rejected." not in (root / "artifacts/report/detectors/pets-net.html").read_text(
        encoding="utf-8"
    )
