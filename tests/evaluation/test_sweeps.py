"""Metrics over thresholds."""

import numpy as np
import pytest

from farther.errors import DataError
from farther.evaluation import sweeps
from farther.metrics import closed_set, ood, open_set
from farther.metrics.open_set.outcomes import OpenSetSplit

FIRST, SECOND = [0, 0, 100, 100], [200, 0, 300, 100]


def test_a_tau_that_keeps_more_id_regions_finds_fewer_unknown_objects(world):
    objects, regions = world(0)
    random = np.random.default_rng(0)
    scores, id_scores = random.normal(0, 1, len(regions)), random.normal(1, 1, 500)
    rows = sweeps.over_tau(OpenSetSplit.of(objects, regions), scores, id_scores)
    assert [row["kept"] for row in rows] == list(sweeps.KEPT)
    assert np.all(np.diff([row["tau"] for row in rows]) <= 0)
    assert np.all(np.diff([row["r_u"] for row in rows]) <= 0)
    for row in rows:
        assert np.mean(id_scores >= row["tau"]) >= row["kept"]
        assert row["r_u"] + row["nose"] + row["fn_missed"] == pytest.approx(1)
        at_tau = open_set.evaluate(objects, regions, scores < row["tau"], unknown_score=-scores)
        assert [row[name] for name in ("ap_u", "ap_u_11", "aose")] == [
            at_tau[name] for name in ("ap_u", "ap_u_11", "aose")
        ]


def step(objects, regions, id_regions, confidence, images):
    """A split at one value of t*, of whose regions all are out of distribution."""
    rows = regions.score >= confidence
    return sweeps.ConfidenceStep(
        confidence=confidence,
        rows=rows,
        is_ood=np.ones(int(rows.sum()), dtype=bool),
        id_rows=id_regions.score >= confidence,
        split=OpenSetSplit.of(objects, regions).keeping(rows),
        no_detection=1 - len(set(regions.image_id[rows])) / images,
    )


@pytest.mark.parametrize("aupr", ["step", "trapezoid"])
def test_each_row_is_what_evaluating_at_that_threshold_gives(world, aupr):
    objects, regions = world(1)
    scores = np.random.default_rng(1).normal(size=len(regions))
    _, id_regions = world(2)
    id_scores = np.random.default_rng(2).normal(1, 1, len(id_regions))
    steps = [
        step(objects, regions, id_regions, confidence, images=50) for confidence in (0.0, 0.75)
    ]
    rows = sweeps.over_confidence(steps, scores, id_scores, tau=0.5, aupr=aupr)
    assert [row["t"] for row in rows] == [0.0, 0.75]
    above = regions.score >= 0.75
    expected = open_set.evaluate(
        objects, regions[above], scores[above] < 0.5, unknown_score=-scores[above]
    )
    expected["fn_missed"] /= expected["unknown_objects"]
    separated = ood.evaluate(id_scores[id_regions.score >= 0.75], scores[above], aupr=aupr)
    found = {name: value for name, value in rows[1].items() if name not in ("t", "no_detection")}
    assert found == {name: (expected | separated)[name] for name in found}
    assert rows[1]["no_detection"] == 1 - len(set(regions.image_id[above])) / 50


def test_the_closed_set_precision_above_a_confidence_is_that_of_the_detections_it_keeps(world):
    objects, regions = world(4)
    matched = closed_set.ClosedSet.of(objects, regions).match(closed_set.COCO_IOUS)
    for confidence in (0.0, 0.4, 0.8):
        found = sweeps.mean_average_precision(matched, confidence)
        expected = closed_set.evaluate(objects, regions.above(confidence))
        assert (found["map50"], found["map"]) == pytest.approx((expected["ap50"], expected["ap"]))


def test_flagging_known_objects_costs_the_detector_precision(world):
    objects, regions = world(5)
    scores = np.random.default_rng(5).normal(size=len(regions))
    closed = closed_set.ClosedSet.of(objects, regions)
    found = sweeps.closed_set_over_tau(closed, scores, kept=(0.3, 0.9, 1.0))
    for share, value in found.items():
        left = regions[scores >= ood.threshold_at(scores, share)]
        assert value == pytest.approx(closed_set.evaluate(objects, left)["ap50"])
    assert found[0.3] < found[0.9] < found[1.0] == closed_set.evaluate(objects, regions)["ap50"]
    assert (
        sweeps.closed_set_over_tau(closed_set.ClosedSet.of(objects, regions[:0]), np.zeros(0)) == {}
    )


def test_no_tau_keeps_what_the_detector_labels_as_unknown(world):
    objects, regions = world(0)
    split, scores = (
        OpenSetSplit.of(objects, regions),
        np.random.default_rng(0).normal(0, 1, len(regions)),
    )
    labelled = np.append(scores, [-1.5e30, -1.1e30])
    rows = sweeps.over_tau(split, scores, labelled, kept=(0.9, 1.0))
    assert rows == sweeps.over_tau(split, scores, scores, kept=(0.9, 1.0))
    assert rows[-1]["tau"] == scores.min()


def test_without_regions_there_is_nothing_to_sweep_and_nothing_breaks(objects, regions):
    truth = objects(("a", FIRST, "fox"))
    assert sweeps.over_tau(OpenSetSplit.of(truth, regions()), np.zeros(0), np.zeros(0)) == []
    row = sweeps.over_confidence(
        [step(truth, regions(), regions(), 0.5, 1)], np.zeros(0), np.zeros(0), tau=0.0
    )[0]
    assert (row["no_detection"], row["auroc"], row["r_u"], row["p_u"]) == (1, None, 0, None)
    matched = closed_set.ClosedSet.of(objects(), regions()).match(closed_set.COCO_IOUS)
    assert sweeps.mean_average_precision(matched) == {"map50": None, "map": None}


def test_another_number_of_scores_is_refused(objects, regions):
    found = regions(("a", FIRST, 0.9), ("a", SECOND, 0.8))
    here = step(objects(), found, found, 0.5, 1)
    with pytest.raises(DataError, match="field 'scores': 1 scores, but 2 regions"):
        sweeps.over_confidence([here], np.zeros(1), np.zeros(2), tau=0.0)
    with pytest.raises(DataError, match="field 'id_scores': 3 scores, but 2 regions"):
        sweeps.over_confidence([here], np.zeros(2), np.zeros(3), tau=0.0)
