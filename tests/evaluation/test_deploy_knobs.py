"""One scale for detections and proposals: a level is a pair of thresholds, and nothing else."""

import numpy as np
import pytest

from farther.evaluation.deploy.knobs import NOTHING_FLAGGED, Exchange, Knob
from farther.evaluation.deploy.steps import IdSteps, OodSteps, ThresholdSteps

IMAGES = 40


def units(random, count, values):
    return ThresholdSteps(values, random.integers(0, IMAGES, count))


def objectness(random, count):
    return random.random(count).astype(np.float32).astype(np.float64)


@pytest.fixture(params=range(4))
def steps(request):
    """Random detections and proposals; some detections are labelled unknown."""
    random = np.random.default_rng(request.param)

    def scores(count):
        values = np.round(random.normal(0, 1, count), 1)
        values[random.random(count) < 0.05] = -1.9e30
        return values

    found = units(random, 50, scores(50))
    recovered = np.where(random.random(50) < 0.5, objectness(random, 50), -np.inf)
    ood = OodSteps(
        misclassified=found,
        found=ThresholdSteps(np.where(recovered > 0, np.inf, found.at), found.image),
        detections=units(random, 90, scores(90)),
        proposals=units(random, 60, objectness(random, 60)),
        recovered=ThresholdSteps(recovered, found.image),
    )
    id_steps = IdSteps(
        flagged=units(random, 70, scores(70)),
        lost=units(random, 30, scores(30)),
        proposals=units(random, 80, objectness(random, 80)),
    )
    return id_steps, ood


@pytest.mark.parametrize("alarms", ["detections", "both", "proposals"])
def test_what_lies_below_a_level_is_what_its_thresholds_flag_and_call(steps, alarms):
    id_steps, ood = steps
    images = np.arange(IMAGES) % 3 > 0
    knob = Knob.of(alarms, ood, images)
    of_alarms = knob.alarms_of(id_steps)
    of_found = knob.found(ood)
    levels = np.unique(np.concatenate([of_alarms.at, of_found.at]))
    levels = levels[np.isfinite(levels) & (levels > NOTHING_FLAGGED)]
    for level in [NOTHING_FLAGGED, *levels, np.nextafter(levels[-1], np.inf)]:
        tau, threshold = knob.tau(level), knob.objectness(level)
        called = np.zeros(len(id_steps.proposals.at), dtype=bool)
        recovered = np.zeros(len(ood.recovered.at), dtype=bool)
        if threshold is not None:
            # As tables hold them: in float32.
            called = id_steps.proposals.at.astype(np.float32) > threshold
            recovered = ood.recovered.at.astype(np.float32) > threshold
        by_thresholds = np.concatenate([id_steps.flagged.at < tau, called])
        assert np.array_equal(of_alarms.at < level, by_thresholds)
        assert np.array_equal(of_found.at < level, (ood.found.at < tau) | recovered)


def test_a_proposal_is_worth_the_score_below_which_as_many_images_have_a_detection():
    exchange = Exchange(np.array([1.0, 2.0, 4.0, np.inf]), np.array([0.9, 0.8, 0.3, -np.inf]))
    worth = exchange.score_of(np.array([0.95, 0.9, 0.85, 0.5, 0.2, -np.inf]))
    assert worth.tolist() == [1.0, 1.0, 2.0, 4.0, np.inf, np.inf]
    # At τ = 3 two images have a detection below it, and two a proposal above the threshold.
    assert np.sum(exchange.objectness > exchange.objectness_at(3.0)) == 2
    assert exchange.objectness_at(1.0) == np.inf


def test_where_fewer_images_have_proposals_than_detections_all_are_called_by_a_finite_threshold():
    exchange = Exchange(np.array([1.0, 2.0]), np.array([0.5, -np.inf]))
    assert -np.inf < exchange.objectness_at(3.0) < -1e30
    assert exchange.score_of(np.array([0.1])).tolist() == [2.0]


def test_with_proposals_alone_only_what_the_detector_labels_as_unknown_is_flagged(steps):
    id_steps, ood = steps
    knob = Knob.of("proposals", ood, np.ones(IMAGES, dtype=bool))
    assert knob.tau(-0.5) == NOTHING_FLAGGED
    flagged = knob.of_detections(id_steps.flagged)
    assert np.array_equal(np.isneginf(flagged.at), id_steps.flagged.at < NOTHING_FLAGGED)
