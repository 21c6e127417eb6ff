"""Metrics where τ is another one in each replicate: those of matching at that τ."""

import numpy as np
import pytest

from farther.metrics import open_set
from farther.metrics.errors import error_budget
from farther.metrics.errors.error_diagnosis import TOUCH
from farther.metrics.open_set import image_pairs, known_classes
from farther.metrics.open_set.drawn_thresholds import FlaggedSplit
from farther.metrics.open_set.outcomes import MatchingRules, OpenSetSplit

REPLICATES = 25
KNOWN = ("cat",)


@pytest.fixture(scope="module", params=["paper", "published-code"])
def case(request, world):
    """A split, scores of its regions, τ and weights of its images in each replicate."""
    objects, regions = world(3, images=15)
    split = OpenSetSplit.of(objects, regions, MatchingRules(0.5, request.param, KNOWN))
    random = np.random.default_rng(4)
    scores = random.integers(0, 30, len(regions)) / 30  # with ties
    taus = random.choice(np.arange(8, 16) / 30, REPLICATES)
    images = len(split.images)
    weights = random.multinomial(images, np.full(images, 1 / images), size=REPLICATES)
    return Case(objects, regions, split, scores, taus, weights.astype(np.int32))


class Case:
    def __init__(self, objects, regions, split, scores, taus, weights):
        self.objects = objects
        self.regions = regions
        self.split = split
        self.scores = scores
        self.taus = taus
        self.weights = weights
        self.flagged = FlaggedSplit.of(split, scores, taus)
        self.copy_weights = self.flagged.weights(weights)

    def one_by_one(self, compute):
        """Replicates of metrics by name, each from its own flags and weights."""
        values_by_name = {}
        for replicate, tau in enumerate(self.taus):
            weights = self.weights[replicate : replicate + 1]
            for name, values in compute(self.scores < tau, weights).items():
                values_by_name.setdefault(name, []).append(values[0])
        return values_by_name


def assert_equal(replicates, expected):
    assert replicates.keys() == expected.keys()
    for name, values in replicates.items():
        assert values == pytest.approx(expected[name], abs=1e-12, nan_ok=True), name
    assert len(set(map(str, expected["r_u"]))) > 5


def test_open_set_metrics_are_those_of_matching_at_each_threshold(case):
    replicates = open_set.metrics(
        case.flagged.outcome, case.flagged.unknown_score, case.copy_weights
    )
    expected = case.one_by_one(
        lambda flags, weights: open_set.metrics(case.split.match(flags), -case.scores, weights)
    )
    assert_equal(replicates, expected)


def test_means_over_iou_are_those_of_matching_at_each_threshold(case):
    ious = (0.5, 0.6, 0.75)
    replicates = open_set.metrics_over(
        case.flagged.outcome.split,
        ious,
        case.flagged.is_unknown,
        case.flagged.unknown_score,
        case.copy_weights,
    )
    expected = case.one_by_one(
        lambda flags, weights: open_set.metrics_over(case.split, ious, flags, -case.scores, weights)
    )
    assert_equal(replicates, expected)


def test_parts_of_the_objects_are_those_of_matching_at_each_threshold(case):
    size = case.split.sizes()
    replicates = open_set.by_group(
        case.flagged.outcome, size[case.flagged.objects.row], case.copy_weights
    )
    assert len(replicates) > 1
    for name, values in replicates.items():
        expected = case.one_by_one(
            lambda flags, weights, name=name: open_set.by_group(
                case.split.match(flags), size, weights
            )[name]
        )
        for metric, metric_values in values.items():
            assert metric_values == pytest.approx(expected[metric], abs=1e-12, nan_ok=True)


def test_the_error_budget_is_that_of_matching_at_each_threshold(case):
    rules = MatchingRules(TOUCH, case.split.settings.protocol, KNOWN)
    near = OpenSetSplit.of(case.objects, case.regions, rules).candidates
    flagged = case.flagged

    def gains(outcome, near, unknown_score, weights):
        errors = error_budget.of_unknown(outcome, near)
        return error_budget.unknown_gains(outcome, errors, unknown_score, weights)

    replicates = gains(
        flagged.outcome, flagged.pairs(near), flagged.unknown_score, case.copy_weights
    )
    for kind, values in replicates.items():
        expected = case.one_by_one(
            lambda flags, weights, kind=kind: gains(
                case.split.match(flags), near, -case.scores, weights
            )[kind]
        )
        for metric, metric_values in values.items():
            assert metric_values == pytest.approx(expected[metric], abs=1e-12), (kind, metric)


def test_metrics_of_known_classes_are_those_of_matching_at_each_threshold(case):
    distinct = np.random.default_rng(5).permutation(len(case.regions)) / len(case.regions)
    regions = case.regions.with_columns(score=distinct)
    split = OpenSetSplit.of(case.objects, regions, MatchingRules(known_classes=KNOWN))
    flagged = FlaggedSplit.of(split, case.scores, case.taus)
    replicates = known_classes.metrics(
        flagged.outcome,
        flagged.table(regions),
        unknown_score=flagged.unknown_score,
        weights=flagged.weights(case.weights),
    )
    for replicate, tau in enumerate(case.taus):
        expected = known_classes.metrics(
            split.match(case.scores < tau),
            regions,
            unknown_score=-case.scores,
            weights=case.weights[replicate : replicate + 1],
        )
        for name, values in expected.items():
            assert replicates[name][replicate] == pytest.approx(values[0], abs=1e-12, nan_ok=True)


def test_changes_between_paired_images_are_those_of_matching_at_each_threshold(case, world):
    _, other_regions = world(6, images=15)
    without = OpenSetSplit.of(case.objects, other_regions, case.split.settings)
    other_scores = np.random.default_rng(7).random(len(other_regions))
    other = FlaggedSplit.of(without, other_scores, case.taus)
    scene = np.random.default_rng(8).integers(0, 10, len(case.objects))
    weights = np.random.default_rng(9).multinomial(10, np.full(10, 0.1), REPLICATES)[:, scene]
    replicates = image_pairs.metrics(
        case.flagged.outcome,
        other.outcome,
        case.flagged.object_weights(weights),
        other.object_weights(weights),
    )
    for replicate, tau in enumerate(case.taus):
        expected = image_pairs.metrics(
            case.split.match(case.scores < tau),
            without.match(other_scores < tau),
            weights[replicate : replicate + 1],
        )
        for name, values in expected.items():
            assert replicates[name][replicate] == pytest.approx(values[0], abs=1e-12)


def test_at_a_single_threshold_nothing_is_copied(case):
    flagged = FlaggedSplit.of(case.split, case.scores, np.array([0.4]))
    assert flagged.outcome.split is case.split
    assert flagged.table(case.regions) is case.regions
    assert np.array_equal(flagged.weights(case.weights), case.weights)
    assert flagged.weights(None) is None
