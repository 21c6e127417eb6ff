"""The outcome of each known object under a method."""

import numpy as np
import pytest
from tests.support.cases import slow_but

from farther.metrics.closed_set import ClosedSet
from farther.metrics.open_set.critical_thresholds import known_objects
from farther.metrics.open_set.known_outcomes import (
    CORRECT,
    FLAGGED,
    MISSED,
    NOT_COUNTED,
    WRONG_CLASS,
    KnownOutcome,
)
from farther.metrics.open_set.outcomes import KEPT, MatchingRules, OpenSetSplit

CAT, DOG = [0, 0, 100, 100], [200, 0, 300, 100]
RULES = MatchingRules(known_classes=("cat", "dog"))


def known_outcome(objects, regions, *flagged: bool) -> KnownOutcome:
    split = OpenSetSplit.of(objects, regions, RULES)
    return KnownOutcome.of(split.match(np.array(flagged, dtype=bool)))


def test_a_kept_detection_of_the_own_class_makes_an_object_correct_whatever_else_lies_on_it(
    objects, regions
):
    found = known_outcome(
        objects(("a", CAT, "cat")),
        regions(("a", CAT, 0.9, "dog"), ("a", CAT, 0.8), ("a", CAT, 0.7)),
        False,
        True,
        False,
    )
    assert found.of_object.tolist() == [CORRECT]
    assert found.region.tolist() == [2]


def test_of_a_flagged_detection_and_one_of_a_wrong_class_the_flagged_one_decides(objects, regions):
    found = known_outcome(
        objects(("a", CAT, "cat")),
        regions(("a", CAT, 0.9, "dog"), ("a", CAT, 0.8)),
        False,
        True,
    )
    assert found.of_object.tolist() == [FLAGGED]
    assert found.region.tolist() == [1]


def test_the_most_confident_detection_of_a_wrong_class_decides(objects, regions):
    found = known_outcome(
        objects(("a", DOG, "dog")),
        regions(("a", DOG, 0.6), ("a", DOG, 0.9), ("a", DOG, 0.7)),
        False,
        False,
        False,
    )
    assert found.of_object.tolist() == [WRONG_CLASS]
    assert found.region.tolist() == [1]


def test_one_flagged_detection_flags_one_object(objects, regions):
    found = known_outcome(
        objects(("a", CAT, "cat"), ("a", CAT, "dog")), regions(("a", CAT, 0.9)), True
    )
    assert sorted(found.of_object) == [FLAGGED, MISSED]


def test_unknown_objects_and_crowds_are_not_counted(objects, regions):
    found = known_outcome(objects(("a", CAT, "fox")), regions(("a", CAT, 0.9)), False)
    assert found.of_object.tolist() == [NOT_COUNTED]
    assert found.region.tolist() == [-1]


@pytest.mark.parametrize("seed", slow_but((0,), range(3)))
def test_correct_objects_are_those_that_recall_counts(world, seed):
    objects, regions = world(seed)
    rules = MatchingRules(known_classes=regions.header.known_classes)
    split = OpenSetSplit.of(objects, regions, rules)
    scores = np.random.default_rng(seed).normal(size=len(regions)).round(1)
    detected_to = known_objects(ClosedSet.of(objects, regions), scores).detected_to
    for tau in (-99.0, -0.5, 0.0, 0.5, np.inf):
        found = KnownOutcome.of(split.match(scores < tau))
        assert np.sum(found.of_object == CORRECT) == np.sum(detected_to >= tau)
        assert np.sum(found.of_object != NOT_COUNTED) == len(detected_to)


@pytest.mark.parametrize("seed", slow_but((0,), range(3)))
def test_the_deciding_detection_is_kept_or_flagged_as_the_outcome_says(world, seed):
    objects, regions = world(seed)
    rules = MatchingRules(known_classes=regions.header.known_classes)
    split = OpenSetSplit.of(objects, regions, rules)
    is_flagged = np.random.default_rng(seed).normal(size=len(regions)) < 0
    found = KnownOutcome.of(split.match(is_flagged))
    for row in range(len(objects)):
        outcome = found.of_object[row]
        region = found.region[row]
        if outcome in (MISSED, NOT_COUNTED):
            assert region == -1
            continue
        label = regions.classes[regions.label[region]]
        is_own_class = label == objects.category[row]
        assert is_flagged[region] == (outcome == FLAGGED)
        if outcome != FLAGGED:
            assert is_own_class == (outcome == CORRECT)
            assert found.outcome.kind[region] == KEPT
    for outcome in (CORRECT, FLAGGED):
        deciding = found.region[found.of_object == outcome]
        assert len(set(deciding)) == len(deciding)
