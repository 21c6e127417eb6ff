"""Detections and proposals together: proposals count as detections called unknown."""

import numpy as np
import pytest
from tests.metrics.test_proposals import ground_truth, table

from farther.metrics import open_set
from farther.metrics.open_set.open_world import MAX_DETECTIONS, MixedImages
from farther.metrics.open_set.outcomes import FOUND, MISSED, MatchingRules
from farther.metrics.open_set.proposals import Recovery, apart_from_detections, finders
from farther.metrics.open_set.with_proposals import WithProposals, u_recall
from farther.metrics.statistics.bootstrap import ImageDraws
from farther.tables import Objects, Regions

RANDOM = np.random.default_rng(7)
RULES = MatchingRules(known_classes=["fox"])


@pytest.fixture(params=range(4))
def split(request):
    objects = ground_truth()
    detections = table(8, 40, objects)
    proposals = table(8, 60, objects)
    return (
        objects,
        detections,
        proposals[apart_from_detections(proposals, detections)],
        RANDOM.random(40),
    )


def test_they_are_detections_called_unknown_of_less_confidence_than_all_others(split):
    objects, detections, proposals, score = split
    flagged, both = score > 0.4, WithProposals.of(*split[:3], RULES)
    found = open_set.metrics(both.match(flagged), both.unknown_score(score))
    above, below = 0.5 + detections.score / 2, proposals.score / 3
    parts = detections.with_columns(score=above), proposals.with_columns(score=below)
    as_detections = open_set.evaluate(
        objects,
        Regions.concatenate(parts),
        np.append(flagged, np.ones(len(proposals), dtype=bool)),
        unknown_score=np.append(1 + score, proposals.score / 2),
        known_classes=["fox"],
    )
    assert found == pytest.approx(as_detections)


def test_what_detections_find_stays_found_and_nothing_gets_worse_but_precision(split):
    objects, detections, proposals, score = split
    alone = open_set.OpenSetSplit.of(objects, detections, RULES).match(score > 0.4)
    both = WithProposals.of(objects, detections, proposals, RULES)
    together = both.match(score > 0.4)
    assert (together.of_object[alone.of_object == FOUND] == FOUND).all()
    before, after = (
        open_set.metrics(alone, score),
        open_set.metrics(together, both.unknown_score(score)),
    )
    assert after["fn_misclassified"] <= before["fn_misclassified"]
    assert after["ap_u"] >= before["ap_u"] - 1e-12
    # All that proposals recover is found, and was missed whatever the method.
    recovered = finders(objects, detections, proposals, RULES)[1] >= 0
    assert (alone.of_object[recovered & both.split.is_counted] == MISSED).all()
    assert (together.of_object[recovered & both.split.is_counted] == FOUND).all()


def test_without_proposals_the_metrics_are_those_of_detections(split):
    objects, detections, _, score = split
    both, flagged = WithProposals.of(objects, detections, detections[:0], RULES), score > 0.4
    found = open_set.metrics(both.match(flagged), both.unknown_score(score))
    wanted = open_set.evaluate(
        objects, detections, flagged, unknown_score=score, known_classes=["fox"]
    )
    assert found == pytest.approx(wanted)


def test_u_recall_is_that_of_mixed_images_and_counts_what_proposals_add(split):
    objects, stored, proposals, score = split
    flagged = score > 0.4
    mixed = MixedImages.of(objects, stored, ["fox"])
    parts = [
        WithProposals.of(objects, stored, some, RULES, MAX_DETECTIONS)
        for some in (proposals[:0], proposals)
    ]
    alone, both = (u_recall([part.match(flagged)], [None]).item() for part in parts)
    assert alone == mixed.metrics(mixed.match(flagged))["u_recall"]
    outcome = parts[1].match(flagged)
    counted = outcome.split.is_counted
    assert both == np.mean(outcome.of_object[counted] == FOUND) >= alone
    twice = ImageDraws(sorted({*objects.image_id, *stored.image_id}), 3)
    drawn = u_recall([outcome], [twice.of(outcome.split.images)])
    for b in range(3):
        times = twice.times(b)[twice.places(objects.image_id)][counted]
        assert drawn[b] == pytest.approx(
            np.average(outcome.of_object[counted] == FOUND, weights=times)
        )


def test_the_100_most_confident_detections_count_in_u_recall():
    yak = Objects(image_id=["a"], object_id=[0], box=[[0, 0, 10, 10]], category=["yak"])
    count = MAX_DETECTIONS + 1
    box, shown = (
        np.tile([50, 50, 60, 60], (count, 1)),
        {"label": np.zeros(count, int), "classes": ("fox",)},
    )
    box[-1] = [0, 0, 10, 10]
    stored = Regions(
        image_id=["a"] * count,
        region_id=np.arange(count),
        box=box,
        score=np.linspace(1, 0.1, count),
        **shown,
    )
    both = WithProposals.of(yak, stored, stored[:0], RULES, MAX_DETECTIONS)
    assert u_recall([both.match(np.ones(count, bool))], [None]).item() == 0
    both = WithProposals.of(yak, stored, stored[count - 1 :], RULES, MAX_DETECTIONS)
    assert u_recall([both.match(np.zeros(count, bool))], [None]).item() == 1


def test_the_proposal_that_finds_an_object_has_the_objectness_of_its_recovery(split):
    objects, detections, proposals, _ = split
    missed, finder = finders(objects, detections, proposals, RULES)
    found = Recovery.of(objects, detections, proposals, RULES)
    counted = WithProposals.of(objects, detections, proposals, RULES).split.is_counted
    assert not (finder[~missed] >= 0).any()
    wanted = np.where(finder >= 0, proposals.score[finder], -np.inf)[counted]
    np.testing.assert_array_equal(found.objectness, wanted)
