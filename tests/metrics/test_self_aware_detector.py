"""A detector made self-aware, against its parts; it travels as JSON."""

import json

import numpy as np
import pytest

from farther.errors import ParameterError
from farther.metrics import self_awareness
from farther.metrics.matching import above_of_class
from farther.metrics.matching.boxes import is_among
from farther.metrics.self_awareness import calibration
from farther.metrics.self_awareness.detector import SelfAwareDetector
from farther.metrics.self_awareness.images import DetectedImages
from farther.metrics.self_awareness.matches import match

FIRST = (0, 0, 10, 10)


def calibrated_by(calibrators, regions):
    return regions.with_columns(score=calibration.confidences(calibrators, regions))


@pytest.fixture
def validation(world):
    objects, regions = world(4, images=80)
    return DetectedImages.of(
        objects, regions, sorted(set(objects.image_id) | set(regions.image_id))
    )


@pytest.mark.parametrize("kind", [None, "linear", "histogram", "isotonic", "temperature", "platt"])
def test_it_is_thresholded_and_calibrated_as_its_parts_are_and_travels_as_json(validation, kind):
    objects, regions, images = validation.objects, validation.regions, validation.names
    detector = SelfAwareDetector.fit(validation, calibrator=kind, image_threshold="keep_95")
    thresholds = self_awareness.lrp_thresholds(objects, regions)
    kept = regions[above_of_class(regions, thresholds)]
    expected = calibrated_by(calibration.fit(kind, objects, kept), kept) if kind else kept
    np.testing.assert_array_equal(detector.detections(regions).score, expected.score)
    again = SelfAwareDetector.from_json(json.loads(json.dumps(detector.to_json())))
    np.testing.assert_array_equal(again.detections(regions).score, expected.score)
    assert again.rejected(regions, images) == detector.rejected(regions, images)


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_a_calibrator_with_a_number_that_is_not_finite_is_refused(validation, wrong):
    values = SelfAwareDetector.fit(
        validation, calibrator="linear", image_threshold="keep_95"
    ).to_json()
    for field in ("slope", "intercept"):
        cat = {**values["calibrators"]["cat"], field: wrong}
        with pytest.raises(ParameterError, match=f"{field}': .*finite number"):
            SelfAwareDetector.from_json({**values, "calibrators": {"cat": cat}})


def test_95_percent_of_the_validation_images_are_accepted(validation):
    detector = SelfAwareDetector.fit(validation, image_threshold="keep_95")
    accepted, rejected = detector(validation.regions, validation.names)
    assert len(rejected) == 4
    assert not set(rejected) & set(accepted.image_id)


def test_thresholds_and_calibrators_are_learnt_from_images_with_objects(objects, regions):
    # Algorithm A.1, lines 4, 8 and 10. In the image without objects lie false detections of higher
    # confidence.
    truth = objects(("a", FIRST, "cat"), ("b", FIRST, "cat"))
    half = (0, 0, 5, 10)
    false = [
        ("empty", FIRST, 0.8),
        ("empty", (20, 0, 30, 10), 0.7),
        ("empty", (40, 0, 50, 10), 0.6),
    ]
    found = regions(("a", FIRST, 0.9), ("b", half, 0.5), *false)
    validation = DetectedImages.of(truth, found, ["a", "b", "empty"])

    detector = SelfAwareDetector.fit(validation, image_threshold="keep_95")
    # LRP of the first: (0 false + 1 missed) / 2 = 0.5; of both: IoU 0.5 costs (1 − 0.5) / 0.9, so
    # 0.28.
    assert detector.confidence_thresholds["cat"] == pytest.approx(0.5)
    # The line through (0.9, 1) and (0.5, 0.5).
    assert detector.detections(found[:2]).score == pytest.approx([1.0, 0.5])

    of_all = SelfAwareDetector.fit(validation, image_threshold="keep_95", learnt_from="all")
    # With three false detections before the second true one its LRP is (3 + 0.56) / 5 = 0.71.
    assert of_all.confidence_thresholds["cat"] == pytest.approx(0.9)


def test_pseudo_ood_images_give_the_threshold_between_them_and_the_images_with_objects(
    objects, regions
):
    truth = objects(("a", FIRST, "cat"), ("b", FIRST, "cat"))
    found = regions(("a", FIRST, 0.9), ("b", FIRST, 0.8), ("empty", FIRST, 0.1))
    blanked = regions(("a", FIRST, 0.3), ("b", FIRST, 0.2))
    images = ["a", "b", "empty"]
    sides = (DetectedImages.of(truth, detected, images) for detected in (found, blanked))
    detector = SelfAwareDetector.fit(*sides)
    # The image without objects does not count as ID, so all ID images are accepted at 1 − 0.8.
    assert detector.image_threshold == pytest.approx(0.2)
    assert detector.rejected(found, images) == ["empty"]
    assert detector.rejected(blanked, images) == images


def test_half_keeps_the_detections_of_every_class_from_one_half_on(validation):
    detector = SelfAwareDetector.fit(
        validation, calibrator=None, image_threshold="keep_95", confidence_threshold="half"
    )
    regions = validation.regions
    np.testing.assert_array_equal(
        detector.detections(regions).score, regions.score[regions.score >= 0.5]
    )


def test_pseudo_ood_without_images_is_refused(validation):
    with pytest.raises(ParameterError, match="'pseudo_ood' needs pseudo-OOD images"):
        SelfAwareDetector.fit(validation)
    with pytest.raises(ParameterError, match="unknown image threshold 'keep'"):
        SelfAwareDetector.fit(validation, image_threshold="keep")


@pytest.mark.parametrize(
    ("seed", "images", "each"), [(0, 60, 20), (1, 60, 20), (2, 60, 20), (3, 3, 600)]
)
def test_images_match_what_is_kept_as_tables_of_it_are_matched(world, seed, images, each):
    """Confidences with ties, at two overlaps, with images that are rejected and may be, or may not.

    Of 600 regions of an image more than the 100 of a class that count.
    """
    objects, regions = world(seed, images=images, regions=each)
    names = tuple(sorted(set(objects.image_id) | set(regions.image_id)))
    rng = np.random.default_rng(seed)
    images = DetectedImages(objects, regions, names, names, frozenset(names[::2]))
    kept, rejected = rng.random(len(regions)) < 0.7, rng.random(len(names)) < 0.3
    score = (rng.integers(0, 8, len(regions)) / 8).astype(np.float32)
    refused = {name for name, is_rejected in zip(names, rejected, strict=True) if is_rejected}
    of_tables = regions.with_columns(score=score)[kept & ~is_among(regions.image_id, refused)]
    left = objects[~is_among(objects.image_id, refused & set(names[::2]))]
    for iou in (0.1, 0.5):
        found, expected = images.match(iou, kept, score, rejected), match(left, of_tables, iou=iou)
        for name, of_class in expected.items():
            for part in ("score", "quality", "is_true"):
                np.testing.assert_array_equal(getattr(found[name], part), getattr(of_class, part))
            of_image = found.images[found[name].image]
            np.testing.assert_array_equal(of_image, expected.images[of_class.image])
            assert found[name].positives == of_class.positives
    assert images.lrp_thresholds(0.1) == self_awareness.lrp_thresholds(objects, regions)


def test_several_splits_together_have_the_matches_of_each_though_they_share_names_of_images(world):
    names, random = tuple(f"{number:03d}" for number in range(10)), np.random.default_rng(0)
    splits = [
        DetectedImages(*world(seed, images=10), names, names, frozenset(names[seed::3]))
        for seed in (0, 1)
    ]
    both = DetectedImages.pooled(dict(zip(("clean", "fog"), splits, strict=True)))
    assert both.names == (*(f"clean/{name}" for name in names), *(f"fog/{name}" for name in names))
    assert both.original == names * 2
    assert both.may_reject == {
        *(f"clean/{name}" for name in names[::3]),
        *(f"fog/{name}" for name in names[1::3]),
    }
    rejected = random.random((2, 10)) < 0.4
    found = both.match(0.5, rejected=rejected.ravel())
    each = [split.match(0.5, rejected=of) for split, of in zip(splits, rejected, strict=True)]
    for name, of_class in found.items():
        for part in ("score", "quality"):
            expected = np.concatenate([getattr(one[name], part) for one in each])
            np.testing.assert_allclose(np.sort(getattr(of_class, part)), np.sort(expected))
        assert of_class.positives == sum(one[name].positives for one in each)
