"""The threshold at which the outcome of each object changes."""

import numpy as np
import pytest
from tests.support.cases import slow_but

from farther.metrics.closed_set import COCO_IOUS, ClosedSet
from farther.metrics.open_set.critical_thresholds import known_objects, unknown_objects
from farther.metrics.open_set.outcomes import FOUND, MISCLASSIFIED, MatchingRules, OpenSetSplit

CAT, FOX, BEAR = [0, 0, 100, 100], [200, 0, 300, 100], [400, 0, 500, 100]


def test_an_object_on_two_regions_is_misclassified_until_both_are_flagged_or_one_is_found(
    objects, regions
):
    split = OpenSetSplit.of(
        objects(("a", FOX, "fox"), ("a", BEAR, "bear")),
        regions(("a", FOX, 0.9), ("a", [200, 0, 300, 90], 0.8), ("a", CAT, 0.7)),
    )
    found = unknown_objects(split, np.array([0.5, 0.2, 0.1]))
    # The fox is found as soon as the region with score 0.2 is flagged; the bear has no region.
    assert found.misclassified_to.tolist() == [0.2, -np.inf]
    assert found.found_above.tolist() == [0.2, np.inf]


@pytest.mark.parametrize(
    "settings",
    [MatchingRules(), MatchingRules(known_classes=("cat",)), MatchingRules(0.7, "published-code")],
)
@pytest.mark.parametrize("seed", slow_but((0,), range(3)))
def test_outcomes_at_any_threshold_are_those_of_matching_at_it(world, settings, seed):
    split = OpenSetSplit.of(*world(seed), settings)
    # Few different scores, so that they are equal within images too.
    scores = np.random.default_rng(seed).normal(size=len(split.detections.rank)).round(1)
    found = unknown_objects(split, scores)
    for tau in [-99.0, *np.unique(scores)[::4], 0.05, np.inf]:
        expected = split.match(scores < tau).of_object
        counted = found.counted
        assert np.array_equal(
            found.misclassified_to[counted] >= tau, expected[counted] == MISCLASSIFIED
        )
        assert np.array_equal(found.found_above[counted] < tau, expected[counted] == FOUND)


@pytest.mark.parametrize("seed", slow_but((0,), range(3)))
def test_known_objects_are_detected_at_the_thresholds_at_which_their_recall_counts_them(
    world, seed
):
    objects, regions = world(seed)
    closed = ClosedSet.of(objects, regions)
    scores = np.random.default_rng(seed).normal(size=len(regions)).round(1)
    found = known_objects(closed, scores)
    for tau in [-99.0, *np.unique(scores)[::4], np.inf]:
        matched = closed.keeping(scores >= tau).match(COCO_IOUS[:1])
        recall = matched.recall()[0, :, 0] * matched.positives
        assert np.sum(found.detected_to >= tau) == pytest.approx(recall.sum())


def test_the_worst_score_of_an_image_may_be_the_best_of_the_one_before(objects, regions):
    truth = objects(("a", CAT, "cat"), ("b", CAT, "cat"))
    closed = ClosedSet.of(
        truth, regions(("a", FOX, 0.9), ("a", CAT, 0.8), ("b", CAT, 0.8), ("b", FOX, 0.7))
    )
    assert known_objects(closed, np.array([0.1, 0.5, 0.5, 0.9])).detected_to.tolist() == [0.5, 0.5]


def test_a_lower_iou_detects_more_known_objects(world):
    objects, regions = world(0)
    closed = ClosedSet.of(objects, regions)
    detected = [
        np.sum(known_objects(closed, regions.score, iou).detected_to > -np.inf)
        for iou in (0.1, 0.5, 0.9)
    ]
    assert detected[0] > detected[1] > detected[2] > 0


def test_known_objects_are_looked_up_below_the_overlap_of_a_closed_set_too(world):
    objects, regions = world(0)
    expected, found = (
        known_objects(ClosedSet.of(objects, regions, smallest_overlap=least), regions.score)
        for least in (0.5, 0.8)
    )
    assert found.detected_to.tolist() == expected.detected_to.tolist()


def test_without_regions_no_object_is_misclassified_found_or_detected(objects, regions):
    tables = objects(("a", FOX, "fox"), ("b", CAT, "cat")), regions(("a", FOX, 0.9))[:0]
    found = unknown_objects(OpenSetSplit.of(*tables), np.zeros(0))
    assert found.misclassified_to.tolist() == [-np.inf, -np.inf]
    assert found.found_above.tolist() == [np.inf, np.inf]
    assert known_objects(ClosedSet.of(*tables), np.zeros(0)).detected_to.tolist() == [-np.inf]
