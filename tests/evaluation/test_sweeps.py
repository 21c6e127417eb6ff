"""Figures over thresholds."""

import numpy as np
import pytest

from farther.errors import DataError
from farther.evaluation import sweeps
from farther.metrics import closed_set, ood, open_set

FIRST, SECOND = [0, 0, 100, 100], [200, 0, 300, 100]


def test_a_tau_that_keeps_more_id_regions_finds_fewer_unknown_objects(world):
    objects, regions = world(0)
    random = np.random.default_rng(0)
    scores, id_scores = random.normal(0, 1, len(regions)), random.normal(1, 1, 500)
    rows = sweeps.over_tau(open_set.Split(objects, regions), scores, id_scores)
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


def test_each_row_is_what_evaluating_at_that_threshold_gives(world):
    objects, regions = world(1)
    scores = np.random.default_rng(1).normal(size=len(regions))
    _, id_regions = world(2)
    id_scores = np.random.default_rng(2).normal(1, 1, len(id_regions))
    tested = sweeps.Scored(regions, {"msp": scores}, images=50)
    reference = sweeps.Scored(id_regions, {"msp": id_scores}, images=40)
    rows = sweeps.over_confidence(objects, tested, reference, {"msp": 0.5}, confidences=[0.0, 0.75])
    assert [row["t"] for row in rows] == [0.0, 0.75]
    above = regions.score >= 0.75
    expected = open_set.evaluate(objects, regions[above], scores[above] < 0.5, unknown_score=-scores[above])
    expected["fn_missed"] /= expected["unknown_objects"]
    separated = ood.evaluate(id_scores[id_regions.score >= 0.75], scores[above])
    others = ("t", "method", "no_detection", "map50", "map")
    figures = {name: value for name, value in rows[1].items() if name not in others}
    assert figures == {name: (expected | separated)[name] for name in figures}
    assert rows[1]["no_detection"] == 1 - len(set(regions.image_id[above])) / 50


def test_the_closed_set_precision_of_a_row_is_that_of_the_detections_it_keeps(world):
    objects, regions = world(3)
    id_objects, id_regions = world(4)
    tested, reference = (sweeps.Scored(r, {"msp": np.zeros(len(r))}, images=40) for r in (regions, id_regions))
    closed = closed_set.Labelled(id_objects, id_regions).verdicts(closed_set.COCO_IOUS)
    rows = sweeps.over_confidence(objects, tested, reference, {"msp": 0.5}, [0.0, 0.4, 0.8], closed=closed)
    for row in rows:
        expected = closed_set.evaluate(id_objects, id_regions.above(row["t"]))
        assert (row["map50"], row["map"]) == pytest.approx((expected["ap50"], expected["ap"]))
    unknown = sweeps.over_confidence(objects, tested, reference, {"msp": 0.5}, [0.4])[0]
    assert (unknown["map50"], unknown["map"]) == (None, None)


def test_flagging_known_objects_costs_the_detector_precision(world):
    objects, regions = world(5)
    scores = np.random.default_rng(5).normal(size=len(regions))
    closed = closed_set.Labelled(objects, regions)
    found = sweeps.closed_set_over_tau(closed, scores, kept=(0.3, 0.9, 1.0))
    for share, value in found.items():
        left = regions[scores >= ood.threshold_at(scores, share)]
        assert value == pytest.approx(closed_set.evaluate(objects, left)["ap50"])
    assert found[0.3] < found[0.9] < found[1.0] == closed_set.evaluate(objects, regions)["ap50"]
    assert sweeps.closed_set_over_tau(closed_set.Labelled(objects, regions[:0]), np.zeros(0)) == {}


def test_without_regions_there_is_nothing_to_sweep_and_nothing_breaks(objects, regions):
    truth = objects(("a", FIRST, "fox"))
    assert sweeps.over_tau(open_set.Split(truth, regions()), np.zeros(0), np.zeros(0)) == []
    nothing = sweeps.Scored(regions(), {"msp": np.zeros(0)}, images=1)
    row = sweeps.over_confidence(truth, nothing, nothing, {"msp": 0.0}, confidences=[0.5])[0]
    assert (row["no_detection"], row["auroc"], row["r_u"], row["p_u"]) == (1, None, 0, None)


def test_missing_scores_are_named(objects, regions):
    found = regions(("a", FIRST, 0.9), ("a", SECOND, 0.8))
    with pytest.raises(DataError, match="1 scores of 'msp', but 2 regions"):
        sweeps.Scored(found, {"msp": np.zeros(1)}, images=1)
    scored = sweeps.Scored(found, {"msp": np.zeros(2)}, images=1)
    with pytest.raises(DataError, match="no scores of 'gen'"):
        sweeps.over_confidence(objects(), scored, scored, {"gen": 0.0})
