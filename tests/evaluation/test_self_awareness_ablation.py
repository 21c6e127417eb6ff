"""Ablation of self-awareness, and its sensitivity to thresholds and numbers of detections."""

from dataclasses import replace

import numpy as np
import pytest
from tests.evaluation.self_aware_runs import (
    FIRST,
    NOWHERE,
    SECOND,
    evaluate_small,
    write_split,
)

from farther.metrics import closed_set, self_awareness
from farther.metrics.matching import above_of_class
from farther.metrics.self_awareness.image_uncertainty import of_confidence
from farther.tables import Objects, Regions


def test_the_ablation_ends_with_the_run_as_it_is_evaluated(shifted_results):
    results = shifted_results
    rows = results.ablation
    assert rows[-1].metrics["daq"] == results.values["daq"]
    assert [row.calibrator for row in rows] == [None, None, "linear", "linear"]
    assert rows[1].metrics["laece"] == pytest.approx(rows[2].metrics["laece"], abs=1)


def test_calibrators_are_compared_without_rejecting_images(small_run, objects, regions):
    known = objects(("i1", FIRST, "cat"), ("i2", FIRST, "dog"))
    detections = regions(
        ("i1", FIRST, 0.9, "cat"),
        ("i2", FIRST, 0.7, "dog"),
        ("i2", NOWHERE, 0.1, "cat"),
        ("i2", NOWHERE, 0.1, "dog"),
    )
    write_split(small_run, "test", known, detections, ["i1", "i2"])
    results = evaluate_small(small_run)
    # Uncertainty of i2: (0.3 + 0.9 + 0.9) / 3 = 0.7, above the threshold of 0.6. So the run loses
    # the dog, and Table 5, whose LRP is that of Section 5, before images are rejected, does not.
    assert results.images["test"].rejected_images == 1
    assert results.values["lrp"] == 0.5
    assert results.calibrated["linear"]["lrp"] == 0


def test_aggregates_are_those_of_the_library(run, shifted_results):
    results = shifted_results
    known = of_confidence(run.clean.regions, run.clean.names, "min")
    unknown = of_confidence(run.ood["far"].regions, run.ood["far"].names, "min")
    differences = known[:, None] - unknown[None, :]
    expected = np.mean((differences < 0) + 0.5 * (differences == 0))
    assert results.aggregates["min"]["all OOD"] == pytest.approx(expected)


def test_curves_hold_what_the_run_measures_at_each_threshold(run, shifted_results):
    sweeps = shifted_results.sweeps
    # Figure A.15: both thresholds go from 0 to 1.
    for name in ("image_threshold", "confidence"):
        assert [row[name] for row in sweeps[name]] == pytest.approx(np.linspace(0, 1, 11))

    rows = sweeps["image_threshold"]
    validation_uncertainty = run.held_out.uncertainty(run.detector.aggregate)
    for row in rows[2::4]:
        threshold = row["image_threshold"]
        quality = run.quality(replace(run.detector, image_threshold=threshold))
        for part in ("daq", "balanced_accuracy", "lrp", "laece", "lrp_t", "laece_t"):
            assert row[part] == pytest.approx(quality[part])
        assert row["kept"] == pytest.approx(np.mean(validation_uncertainty <= threshold))
    # Rejecting everything costs all objects.
    assert (rows[0]["lrp"], rows[0]["balanced_accuracy"]) == (1, 0)
    assert rows[0]["lrp"] > rows[1]["lrp"] > rows[4]["lrp"]


def test_the_row_at_the_iou_of_the_settings_is_that_of_the_calibrated_run(shifted_results):
    results = shifted_results
    assert [row["iou"] for row in results.ious] == [0.1, 0.3, 0.5, 0.7, 0.9]
    iou = results.settings.iou
    row = next(row for row in results.ious if row["iou"] == iou)
    assert row["lrp"] == results.calibrated["linear"]["lrp"]
    assert row["laece"] == results.calibrated["linear"]["laece"]


def write_empty_image(files, objects, regions):
    """Validation images of which one shows no object, with three detections; all are cats."""
    cats = objects(("i1", FIRST, "cat"), ("i2", FIRST, "cat"))
    detections = regions(
        ("i1", FIRST, 0.9),
        ("i2", FIRST, 0.5),
        ("empty", FIRST, 0.6),
        ("empty", SECOND, 0.6),
        ("empty", NOWHERE, 0.6),
    )
    write_split(files, "val", cats, detections, ["i1", "i2", "empty"])
    test = regions(("i1", FIRST, 0.7), ("i2", FIRST, 0.7))
    write_split(files, "test", cats, test, ["i1", "i2"])


def test_validation_sweeps_learn_from_images_with_objects_only(small_run, objects, regions):
    write_empty_image(small_run, objects, regions)
    results = evaluate_small(small_run)
    # On images with objects the threshold 0.5 has no error. On all images it would have LRP 3/5,
    # and 0.9 would be better: one of two cats is missed, LRP 1/2.
    assert results.detector.confidence_thresholds["cat"] == pytest.approx(0.5)
    lrp_optimal = results.by_threshold[-1]
    assert lrp_optimal["threshold"] is None
    assert lrp_optimal["lrp"] == pytest.approx(3 / 5)
    assert lrp_optimal["detections_per_image"] == pytest.approx(5 / 3)
    # Figure A.15 b: the line through (0.9, 1) and (0.5, 1) makes the test images' 0.7 to 1, which
    # is right. With the empty image's (0.6, 0) it would be below.
    (at_zero,) = [row for row in results.sweeps["confidence"] if row["confidence"] == 0]
    assert at_zero["laece"] == pytest.approx(0, abs=1e-6)


def test_calibrators_are_fitted_at_each_iou_of_figure_a13(small_run, objects, regions):
    half = (0, 0, 100, 50)
    cats = objects(("i1", FIRST, "cat"), ("i2", FIRST, "cat"))
    detections = regions(("i1", half, 0.8), ("i2", half, 0.8))
    for split in ("val", "test"):
        write_split(small_run, split, cats, detections, ["i1", "i2"])
    row_by_iou = {row["iou"]: row for row in evaluate_small(small_run).ious}
    # At 0.1 both are right and have IoU 0.5; at 0.7 both are wrong, and calibrated to 0.
    assert row_by_iou[0.1]["laece_before"] == pytest.approx(0.3)
    assert row_by_iou[0.1]["laece"] == pytest.approx(0, abs=1e-6)
    assert row_by_iou[0.7]["laece_before"] == pytest.approx(0.8)
    assert row_by_iou[0.7]["laece"] == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(("images", "expected"), [(["i1"], 2), ([], 0)])
def test_detections_are_counted_per_image_of_one_and_of_none(
    small_run, objects, regions, images, expected
):
    cats = []
    detections = []
    for image in images:
        for box in (FIRST, SECOND):
            cats.append((image, box, "cat"))
            detections.append((image, box, 0.9))
    write_split(small_run, "val", objects(*cats), regions(*detections), images)
    rows = evaluate_small(small_run).top_k
    without_dummies = next(row for row in rows if row["k"] is None)
    assert without_dummies["detections_per_image"] == expected


def test_dummies_lower_laece_and_raise_lrp(shifted_results):
    row_by_k = {row["k"]: row for row in shifted_results.top_k}
    assert list(row_by_k) == [None, 10, 25, 50, 100, 300, 500]
    assert row_by_k[100]["laece"] < row_by_k[10]["laece"]
    assert row_by_k[300]["lrp"] > row_by_k[100]["lrp"] > row_by_k[None]["lrp"]
    # More dummies only enlarge the number of detections; classes have their own numbers of real
    # ones.
    assert row_by_k[300]["laece"] == pytest.approx(row_by_k[100]["laece"] / 3, rel=0.02)
    assert row_by_k[500]["laece"] == pytest.approx(row_by_k[100]["laece"] / 5, rel=0.02)


def test_dummies_are_false_positives_without_confidence_in_all_classes_alike(run, shifted_results):
    row_by_k = {row["k"]: row for row in shifted_results.top_k}
    objects = run.held_out.objects
    regions = run.held_out.regions
    names = run.held_out.names
    # The library matches at most 100 detections per image and class.
    for k in (None, 10, 25, 50, 100):
        if k is None:
            detections = regions  # Table A.13: "None" has the 33.9 det/img of Table A.14's "None"
        else:
            kept = regions[_is_among_most_confident(regions, k)]
            detections = Regions.concatenate([kept, _dummies(kept, names, k)])
        expected = self_awareness.evaluate(objects, detections)
        # One dummy more of one class, where they are odd.
        row = row_by_k[k]
        assert row["lrp"] == pytest.approx(expected["lrp"], rel=1e-3)
        assert row["laece"] == pytest.approx(expected["laece"], rel=1e-3)
        assert row["detections_per_image"] == pytest.approx(len(detections) / len(names))


def _is_among_most_confident(regions: Regions, k: int) -> np.ndarray:
    """Whether each region is among the k most confident of its image, image by image."""
    is_kept = np.zeros(len(regions), dtype=bool)
    for name in set(regions.image_id):
        rows = np.flatnonzero(regions.image_id == name)
        ranked = rows[np.argsort(-regions.score[rows], kind="stable")]
        is_kept[ranked[:k]] = True
    return is_kept


def _dummies(detections: Regions, names: tuple[str, ...], k: int) -> Regions:
    """Detections of confidence 0 on nothing, as many as an image lacks for k, of either class."""
    missing = [k - np.sum(detections.image_id == name) for name in names]
    images = np.repeat(names, missing).tolist()
    count = len(images)
    return Regions(
        image_id=images,
        region_id=10_000 + np.arange(count),
        box=np.tile([5000, 5000, 5001, 5001], (count, 1)),
        score=np.zeros(count),
        label=np.arange(count) % 2,
        logits=np.zeros((count, 2)),
        classes=detections.classes,
    )


def test_dummies_of_confidence_0_leave_ap_as_it_is(shifted_run, shifted_results):
    objects = Objects.read(shifted_run.objects("val"))
    regions = Regions.read(shifted_run.regions("val"))
    dummies = regions.with_columns(
        score=np.full(len(regions), 1e-9),
        region_id=regions.region_id + 10_000,
        box=regions.box + 5000,  # on nothing
    )
    kept = regions[_is_among_most_confident(regions, 10)]
    with_dummies = Regions.concatenate([kept, dummies])
    row = next(row for row in shifted_results.top_k if row["k"] == 10)
    assert row["ap"] == pytest.approx(closed_set.evaluate(objects, with_dummies)["ap"])
    assert row["ap_low"] <= row["ap"] <= row["ap_high"]


@pytest.mark.parametrize("protocol", ["paper", "published-code"])
def test_classes_without_detections_or_without_objects_count_beside_dummies_as_everywhere(
    small_run, objects, regions, protocol
):
    known = objects(("i1", FIRST, "cat"), ("i2", FIRST, "dog"))
    detections = regions(
        ("i1", FIRST, 0.75, "cat"), ("i2", NOWHERE, 0.4, "emu"), classes=("cat", "dog", "emu")
    )
    write_split(small_run, "val", known, detections, ["i1", "i2"])
    results = evaluate_small(small_run, protocol=protocol)
    thresholds = results.detector.confidence_thresholds
    assert thresholds == {"cat": 0.75, "dog": None, "emu": None}

    row_by_k = {row["k"]: row for row in results.top_k}
    expected = self_awareness.evaluate(known, detections, protocol=protocol)
    assert row_by_k[None]["lrp"] == pytest.approx(expected["lrp"])
    assert row_by_k[None]["laece"] == pytest.approx(expected["laece"])
    # Six dummies of each class. The cat has an error of 0.25 in one of seven detections, the emu
    # one of 0.4, which the published code does not count, since there are no emus.
    emu_error = 0.4 if protocol == "paper" else 0
    assert row_by_k[10]["lrp"] == pytest.approx((6 / 7 + 1) / 2)
    assert row_by_k[10]["laece"] == pytest.approx((0.25 + emu_error) / 7 / 3)


def test_quality_by_confidence_threshold_is_that_of_the_detections_above_it(run, shifted_results):
    rows = shifted_results.by_threshold
    objects = run.held_out.objects
    regions = run.held_out.regions
    assert [row["threshold"] for row in rows] == [0.0, 0.3, 0.5, 0.7, None]
    for row in rows:
        if row["threshold"] is None:
            thresholds = self_awareness.lrp_thresholds(objects, regions)
            detections = regions[above_of_class(regions, thresholds)]
        else:
            detections = regions[regions.score >= row["threshold"]]
        expected = self_awareness.evaluate(objects, detections)
        assert row["lrp"] == pytest.approx(expected["lrp"])
        assert row["laece"] == pytest.approx(expected["laece"])
        assert row["ap"] == pytest.approx(closed_set.evaluate(objects, detections)["ap"])
        images = len(run.held_out.names)
        assert row["detections_per_image"] == pytest.approx(len(detections) / images)
