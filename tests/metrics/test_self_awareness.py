"""LRP, LaECE and what is made of them; calibrators."""

import contextlib
import io

import numpy as np
import pytest
from pycocotools import mask
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from sklearn.metrics import recall_score
from tests.support.cases import slow_but

from farther.errors import ParameterError
from farther.metrics import self_awareness
from farther.metrics.matching import above_of_class

FIRST, SECOND, NOWHERE = [0, 0, 100, 100], [200, 0, 300, 100], [700, 700, 800, 800]
HALF_OF_SECOND = [200, 0, 300, 55]


@pytest.fixture
def case(objects, regions):
    truth = objects(("a", FIRST, "cat"), ("a", SECOND, "cat"))
    return truth, regions(("a", FIRST, 0.9), ("a", HALF_OF_SECOND, 0.8), ("a", NOWHERE, 0.3))


def test_errors_worked_by_hand(case):
    metrics = self_awareness.evaluate(*case)
    # One false positive, and 1 − IoU = 0.45 of the second one over 1 − τ = 0.9; all over three.
    assert metrics["lrp"] == pytest.approx((1 + 0.45 / 0.9) / 3)
    assert metrics["lrp_loc"] == pytest.approx(0.45 / 2)
    assert metrics["lrp_fp"] == pytest.approx(1 / 3)
    assert metrics["lrp_fn"] == 0
    # Three bins of one detection each: gaps 0.1, 0.25, 0.3.
    assert metrics["laece"] == pytest.approx((0.1 + 0.25 + 0.3) / 3)
    better, calmer = 1 - metrics["lrp"], 1 - metrics["laece"]
    assert metrics["idq"] == pytest.approx(2 * better * calmer / (better + calmer))
    diagram = metrics["reliability"]
    assert diagram["detections"][22] == 1
    assert diagram["confidence"][22] == pytest.approx(0.9)
    assert diagram["performance"][22] == pytest.approx(1)
    assert diagram["performance"][0] is None
    assert sum(diagram["detections"]) == 3


def test_the_lrp_optimal_threshold_drops_what_only_harms(case):
    thresholds = self_awareness.lrp_thresholds(*case)
    # LRP of the best one is 1/2, of the best two 0.5/2, of all three 1.5/3.
    assert thresholds == {"cat": pytest.approx(0.8), "dog": None}
    truth, found = case
    kept = found[above_of_class(found, thresholds)]
    assert len(kept) == 2
    assert self_awareness.evaluate(truth, kept)["lrp"] == pytest.approx(0.25)


def test_a_loose_match_is_not_worth_the_false_detection_before_it(case, objects, regions):
    loose = regions(("a", FIRST, 0.9), ("a", NOWHERE, 0.8), ("a", [200, 0, 300, 40], 0.7))
    # LRP of the best one is 1/2, of all three (1 + 0.6/0.9) / 3; with the whole of the second
    # object it is 1/3.
    assert self_awareness.lrp_thresholds(case[0], loose)["cat"] == pytest.approx(0.9)
    tight = regions(("a", FIRST, 0.9), ("a", NOWHERE, 0.8), ("a", SECOND, 0.7))
    assert self_awareness.lrp_thresholds(case[0], tight)["cat"] == pytest.approx(0.7)
    # (1 + 0.45/0.9) / 3 with any overlap, (1 + 0.45/0.5) / 3 with one of half.
    half = regions(("a", FIRST, 0.9), ("a", NOWHERE, 0.8), ("a", HALF_OF_SECOND, 0.7))
    assert self_awareness.lrp_thresholds(case[0], half, iou=0.5)["cat"] == pytest.approx(0.9)


@pytest.mark.parametrize("seed", slow_but((0,), range(3)))
def test_no_other_threshold_has_a_smaller_lrp(world, seed):
    objects, regions = world(seed)
    best = self_awareness.lrp_thresholds(objects, regions)
    for name in regions.classes:
        reached = self_awareness.evaluate(
            objects, regions[above_of_class(regions, {name: best[name]})], classes=[name]
        )
        others = [
            self_awareness.evaluate(
                objects, regions[above_of_class(regions, {name: level})], classes=[name]
            )["lrp"]
            for level in np.unique(regions.score)
        ]
        assert reached["lrp"] == pytest.approx(min(others))


def test_a_class_without_detections_has_the_largest_error(objects, regions):
    truth = objects(("a", FIRST, "cat"), ("a", SECOND, "dog"))
    metrics = self_awareness.evaluate(truth, regions(("a", FIRST, 0.5, "cat")))
    assert metrics["per_class"]["dog"]["lrp"] == 1
    assert metrics["per_class"]["dog"]["laece"] is None
    assert metrics["lrp"] == 0.5
    assert metrics["laece"] == 0.5


def test_the_published_code_averages_laece_over_all_classes_and_lrp_fp_over_detected_ones(
    objects, regions
):
    truth = objects(("a", FIRST, "cat"), ("a", SECOND, "dog"), ("b", FIRST, "cow"))
    found = regions(
        ("a", FIRST, 0.5, "cat"), ("b", SECOND, 0.5, "dog"), classes=("cat", "dog", "cow", "owl")
    )
    paper, code = (
        self_awareness.evaluate(truth, found, protocol=name) for name in ("paper", "published-code")
    )
    # LaECE: 0.5 of cat and of dog; cow and owl have no detections.
    assert (paper["laece"], code["laece"]) == (0.5, 0.25)
    # LRP_FP: cat 0, dog 1 without a true positive.
    assert (paper["lrp_fp"], code["lrp_fp"]) == (0.5, 0)
    assert (
        (paper["lrp"], paper["lrp_fn"])
        == (code["lrp"], code["lrp_fn"])
        == (pytest.approx(2 / 3), pytest.approx(2 / 3))
    )
    assert paper["reliability"] == code["reliability"]


@pytest.mark.parametrize("seed", slow_but((0,), range(3)))
def test_the_published_protocol_is_saods_on_pycocotools_matches(world, coco_tables, seed):
    names = ("cat", "dog", "cow", "owl")
    objects, regions = world(seed, classes=names)
    never_found = regions.label != 2  # cows have objects and no detections
    regions = regions[never_found].with_columns(region_id=np.arange(int(never_found.sum())))
    found = self_awareness.evaluate(objects, regions, protocol="published-code")
    with contextlib.redirect_stdout(io.StringIO()):
        peer = COCOeval(*coco_tables(COCO, objects, regions), "bbox")
        peer.params.iouThrs = np.array([0.1])
        peer.evaluate()
    of_class = {number: [np.zeros((0, 3))] for number in range(1, 5)}
    for each in peer.evalImgs:
        if each is not None and each["aRng"] == peer.params.areaRng[0]:
            kept = ~each["dtIgnore"][0].astype(bool)
            ids, matched = np.array(each["dtIds"])[kept], each["dtMatches"][0][kept].astype(int)
            overlap = np.zeros(len(ids))
            true = matched > 0
            for row in np.flatnonzero(true):
                pair = (
                    [peer.cocoDt.anns[ids[row]]["bbox"]],
                    [peer.cocoGt.anns[matched[row]]["bbox"]],
                )
                overlap[row] = mask.iou(*pair, [0])[0, 0]
            of_class[each["category_id"]].append(
                np.stack([np.array(each["dtScores"])[kept], true, overlap], axis=1)
            )
    errors, precisions = [], []
    for rows in map(np.concatenate, of_class.values()):
        error = 0.0
        for low in np.arange(25) / 25:
            score, _, overlap = rows[(rows[:, 0] >= low) & (rows[:, 0] < low + 1 / 25)].T
            error += (
                len(score) / max(len(rows), 1) * abs(score.mean() - overlap.mean())
                if len(score)
                else 0
            )
        errors.append(error)
        precisions.append(rows[:, 1].mean() if rows[:, 1].any() else np.nan)
    assert found["laece"] == pytest.approx(np.mean(errors), abs=1e-6)
    assert found["lrp_fp"] == pytest.approx(1 - np.nanmean(precisions), abs=1e-9)


def test_a_class_without_objects_counts_for_calibration_only(objects, regions):
    metrics = self_awareness.evaluate(
        objects(("a", FIRST, "cat")), regions(("a", NOWHERE, 0.6, "dog"))
    )
    assert metrics["per_class"]["dog"]["lrp"] is None
    assert metrics["laece"] == pytest.approx(0.6)
    assert metrics["lrp"] == 1


def test_a_rejected_image_costs_its_objects_unless_it_may_be_rejected(case, objects, regions):
    truth = objects(("a", FIRST, "cat"), ("b", FIRST, "cat"))
    found = regions(("a", FIRST, 1.0), ("b", FIRST, 1.0))
    assert self_awareness.evaluate(truth, found)["lrp"] == 0
    assert self_awareness.evaluate(truth, found, rejected=["b"])["lrp"] == 0.5
    assert self_awareness.evaluate(truth, found, rejected=["b"], may_reject=["a", "b"])["lrp"] == 0
    # Accepting an image that might have been rejected counts in full.
    assert self_awareness.evaluate(truth, found[:1], may_reject=["b"])["lrp"] == 0.5


def test_bins_are_equally_wide(objects, regions):
    edges = np.arange(25) / 25
    near_both_ends = np.concatenate([edges + 1e-4, edges + 1 / 25 - 1e-4])
    diagram = self_awareness.evaluate(
        objects(), regions(*(("a", NOWHERE, one) for one in near_both_ends))
    )["reliability"]
    assert diagram["lower"] == pytest.approx(edges)
    assert diagram["detections"] == [2] * 25
    assert diagram["confidence"] == pytest.approx(edges + 1 / 50, abs=1e-6)
    assert self_awareness.bin_of(np.array([0.0, 1.0])).tolist() == [0, 24]


@pytest.mark.parametrize(
    ("protocol", "laece", "detections"), [("paper", 0.5, 2), ("published-code", 0.0, 1)]
)
def test_a_confidence_of_exactly_one_lies_in_the_last_bin(
    objects, regions, protocol, laece, detections
):
    on_nothing = regions(("a", NOWHERE, 1.0), ("a", NOWHERE, 0.0))
    metrics = self_awareness.evaluate(objects(), on_nothing, protocol=protocol)
    # One of two detections is wrong by 1, the other one by 0.
    assert metrics["laece"] == laece
    assert sum(metrics["reliability"]["detections"]) == detections


def test_laece_of_a_detection_of_confidence_one_and_iou_one_half(objects, regions):
    truth = objects(("a", (0, 0, 10, 10), "cat"))
    detection = regions(("a", (0, 0, 5, 10), 1.0))
    assert (
        self_awareness.evaluate(truth, detection)["laece"] == 0.5
    )  # Eq. 4: |1 − precision 1 · IoU 0.5|
    assert self_awareness.evaluate(truth, detection, protocol="published-code")["laece"] == 0


def test_nothing_at_all_gives_none(objects, regions):
    metrics = self_awareness.evaluate(objects(), regions())
    assert [metrics[name] for name in ("lrp", "laece", "idq", "lrp_loc")] == [None] * 4


def test_images_at_a_threshold_are_accepted_as_scikit_learn_counts_them():
    rng = np.random.default_rng(0)
    for threshold in (0.0, 0.3, 0.5, 1.0):
        scores, is_id = rng.integers(0, 11, 60) / 10, rng.random(60) < 0.4
        found = self_awareness.balanced_accuracy(scores[is_id], scores[~is_id], threshold)
        accepted = scores >= threshold
        assert found["tpr"] == pytest.approx(recall_score(is_id, accepted))
        assert found["tnr"] == pytest.approx(recall_score(is_id, accepted, pos_label=False))


def test_balanced_accuracy_is_the_harmonic_mean_of_accepting_and_rejecting_rightly():
    metrics = self_awareness.balanced_accuracy(np.array([3, 2, 1, 0]), np.array([2, 1]), 2)
    assert metrics == {"tpr": 0.5, "tnr": 0.5, "balanced_accuracy": 0.5}
    assert (
        self_awareness.balanced_accuracy(np.array([1.0]), np.array([0.0]), 5)["balanced_accuracy"]
        == 0
    )
    assert self_awareness.balanced_accuracy(np.array([]), np.array([0.0]), 5)["tpr"] is None


@pytest.mark.parametrize(
    ("balanced", "laece", "lrp", "idq", "idq_shifted", "daq"),
    [(0.877, 0.173, 0.749, 0.385, 0.262, 0.397), (0.889, 0.164, 0.723, 0.417, 0.296, 0.435)],
)
def test_the_qualities_printed_in_the_paper_come_out(balanced, laece, lrp, idq, idq_shifted, daq):
    # Table 6, SA-F-RCNN and SA-D-DETR on SAOD-Gen.
    assert self_awareness.harmonic_mean(1 - lrp, 1 - laece) == pytest.approx(idq, abs=0.001)
    assert self_awareness.harmonic_mean(balanced, idq, idq_shifted) == pytest.approx(daq, abs=0.001)


@pytest.mark.parametrize("iou", [0, 1, -0.1])
def test_impossible_ious_are_refused(case, iou):
    with pytest.raises(ParameterError, match="iou"):
        self_awareness.evaluate(*case, iou=iou)


def test_a_bin_has_the_means_of_its_detections(objects, regions):
    truth = objects(("a", FIRST, "cat"))
    # Both in the bin from 0.88 to 0.92; one is right with an IoU of 1, the other wrong.
    found = regions(("a", FIRST, 0.9), ("a", NOWHERE, 0.91))
    metrics = self_awareness.evaluate(truth, found)
    assert metrics["reliability"]["confidence"][22] == pytest.approx(0.905)
    assert metrics["reliability"]["performance"][22] == pytest.approx(0.5)
    assert metrics["laece"] == pytest.approx(0.405)
