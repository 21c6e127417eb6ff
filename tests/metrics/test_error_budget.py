"""What correcting each kind of error is worth, beside tidecv and worked out by hand."""

import numpy as np
import pytest
from tests.support.cases import slow_but
from tidecv import TIDE, Data

from farther.metrics import open_set
from farther.metrics.closed_set import ClosedSet
from farther.metrics.errors import error_budget
from farther.metrics.errors.error_diagnosis import TOUCH
from farther.metrics.open_set.outcomes import MatchingRules, OpenSetSplit
from farther.metrics.statistics.bootstrap import ImageDraws
from farther.metrics.weighting import plain

NAMES = dict(zip(error_budget.KINDS, ("Cls", "Loc", "Both", "Dupe", "Bkg", "Miss"), strict=True))

CLASSES = ("cat", "dog", "horse")

FOX, BEAR, HARE, OWL = ([200 * k, 0, 200 * k + 100, 100] for k in range(4))
HALF_OF_OWL, NOWHERE = [660, 0, 760, 100], [700, 700, 800, 800]


def by_tidecv(objects, regions, classes):
    """AP, gains and counts by tidecv."""
    names = sorted({*objects.image_id, *regions.image_id})
    number_of_image = {name: number for number, name in enumerate(names)}
    truth = Data("truth")
    detections = Data("detections")
    for data in (truth, detections):
        for name, number in number_of_image.items():
            data.add_image(number, name)
        for number, name in enumerate(classes):
            data.add_class(number, name)
    for row in range(len(objects)):
        image = number_of_image[objects.image_id[row]]
        label = classes.index(objects.category[row])
        truth.add_ground_truth(image, label, box=_corner_and_size(objects.box[row]))
    for row in range(len(regions)):
        image = number_of_image[regions.image_id[row]]
        label = int(regions.label[row])
        score = float(regions.score[row])
        detections.add_detection(image, label, score, box=_corner_and_size(regions.box[row]))
    run = TIDE().evaluate(
        truth, detections, pos_threshold=0.5, background_threshold=0.1, mode=TIDE.BOX
    )
    gains = {kind.short_name: gain / 100 for kind, gain in run.fix_main_errors().items()}
    counts = {kind.short_name: count for kind, count in run.count_errors().items()}
    return run.ap / 100, gains, counts


def _corner_and_size(box):
    xmin, ymin, xmax, ymax = box.tolist()
    return [xmin, ymin, xmax - xmin, ymax - ymin]


# With other seeds tidecv rounds a sampled recall to another side.
@pytest.mark.parametrize("seed", slow_but((1,), [1, 2, 3]))
def test_gains_and_counts_of_known_objects_are_those_of_tidecv(world, seed):
    objects, regions = world(seed, classes=CLASSES)
    objects = objects[~objects.is_crowd]
    without_ties = np.random.default_rng(seed).random(len(regions))
    regions = regions.with_columns(score=without_ties)
    known = ClosedSet.of(objects, regions, CLASSES)
    ap, expected_gains, expected_counts = by_tidecv(objects, regions, CLASSES)
    gains = error_budget.known_gains(known)
    errors, _ = error_budget.of_known(known)
    assert gains.pop("ap").item() == pytest.approx(ap, abs=1e-9)
    for kind, gain in gains.items():
        assert gain.item() == pytest.approx(expected_gains[NAMES[kind]], abs=1e-9)
        assert errors.counts[kind] == expected_counts[NAMES[kind]]
    assert {NAMES[kind] for kind in gains} == set(expected_gains) == set(expected_counts)
    assert min(expected_counts.values()) > 0


def test_detections_without_an_annotated_object_are_errors_that_cost_nothing(world):
    objects, regions = world(1, classes=CLASSES)
    known = ClosedSet.of(objects[np.zeros(len(objects), bool)], regions, CLASSES)
    counts = error_budget.of_known(known)[0].counts
    assert sum(counts.values()) == counts["background"] > 0
    assert all(
        np.isnan(gain).all() or not gain.any() for gain in error_budget.known_gains(known).values()
    )


def test_an_overlap_of_exactly_that_of_a_match_is_a_duplicate_and_below_it_a_localisation(
    objects, regions
):
    # tidecv calls the first one a localisation, too.
    for height, kind in ((50, "duplicate"), (49, "localisation")):
        found = regions(("a", FOX, 0.9, "cat"), ("a", [0, 0, 100, height], 0.8, "cat"))
        errors, _ = error_budget.of_known(ClosedSet.of(objects(("a", FOX, "cat")), found))
        assert errors.counts == {name: name == kind for name in error_budget.KINDS}


def test_drawing_an_image_twice_is_writing_it_twice(world):
    objects, regions = world(1, images=12, classes=CLASSES)
    names = sorted({*objects.image_id, *regions.image_id})
    draws = ImageDraws(names, replicates=4, seed=3)
    known = ClosedSet.of(objects, regions, CLASSES)
    found = error_budget.known_gains(known, weights=draws.of(known.images))
    for k in range(4):
        again = ClosedSet.of(
            draws.written_out(k, objects)[0], draws.written_out(k, regions)[0], CLASSES
        )
        once = error_budget.known_gains(again)
        assert {n: v[k] for n, v in found.items()} == pytest.approx(
            {n: v.item() for n, v in once.items()}, abs=0.01
        )


def unknown(objects, regions, is_unknown, scores, **settings):
    """Outcome, errors and gains of unknown objects."""
    outcome = OpenSetSplit.of(objects, regions, MatchingRules(**settings)).match(
        np.array(is_unknown)
    )
    near = OpenSetSplit.of(objects, regions, MatchingRules(**{**settings, "iou": TOUCH})).candidates
    errors = error_budget.of_unknown(outcome, near)
    gains = error_budget.unknown_gains(outcome, errors, -np.array(scores))
    return outcome, errors, {kind: plain(of) for kind, of in gains.items()}


def test_each_error_on_unknown_objects_is_worth_what_it_keeps_from_being_found(objects, regions):
    truth = objects(("a", FOX, "fox"), ("a", BEAR, "bear"), ("a", HARE, "hare"), ("a", OWL, "owl"))
    found = regions(
        ("a", FOX, 0.9),  # flagged: found
        ("a", FOX, 0.8),  # flagged: a duplicate, ranked first
        ("a", BEAR, 0.7),  # kept: misclassifies
        ("a", HALF_OF_OWL, 0.6),  # flagged: an IoU of 1/4
        ("a", NOWHERE, 0.5),  # flagged: background
    )
    scores = [0.2, 0.1, 0.9, 0.3, 0.4]
    _, errors, gains = unknown(truth, found, [True, True, False, True, True], scores)
    assert errors.counts == {kind: kind != "both" for kind in error_budget.KINDS}
    assert errors.target.tolist() == [-1, -1, 1, 3, -1]  # the bear, the owl
    # Ranked: duplicate, found, localisation, background, and, once it is flagged, bear. AP_U is 1/4
    # · 1/2 before.
    assert gains["duplicate"] == pytest.approx({"ap_u": 1 / 4 - 1 / 8, "r_u": 0, "nose": 0})
    assert gains["background"] == pytest.approx({"ap_u": 0, "r_u": 0, "nose": 0})
    assert gains["localisation"] == pytest.approx(
        {"ap_u": 2 / 4 * 2 / 3 - 1 / 8, "r_u": 1 / 4, "nose": 0}
    )
    assert gains["classification"] == pytest.approx(
        {"ap_u": 1 / 4 * (1 / 2 + 2 / 5) - 1 / 8, "r_u": 1 / 4, "nose": 1 / 4}
    )
    assert gains["missed"] == pytest.approx(
        {"ap_u": 1 / 3 * 1 / 2 - 1 / 8, "r_u": 1 / 4, "nose": 0}
    )
    assert gains["both"] == pytest.approx({"ap_u": 0, "r_u": 0, "nose": 0})


def test_a_flagged_detection_of_a_known_object_is_an_error_in_classification(objects, regions):
    truth = objects(("a", FOX, "fox"), ("a", OWL, "cat"))
    found = regions(("a", OWL, 0.9), ("a", HALF_OF_OWL, 0.8), ("a", FOX, 0.7))
    _, errors, gains = unknown(
        truth, found, [True] * 3, [0.1, 0.2, 0.3], known_classes=("cat", "dog")
    )
    assert {kind for kind, count in errors.counts.items() if count} == {"classification", "both"}
    assert gains["classification"]["ap_u"] == gains["both"]["ap_u"] == pytest.approx(1 / 2 - 1 / 3)


@pytest.mark.parametrize("protocol", ["paper", "published-code"])
def test_corrections_together_find_every_unknown_object_that_has_a_detection_to_itself(
    world, protocol
):
    objects, regions = world(5, images=60, objects=3)
    random = np.random.default_rng(5)
    outcome, errors, gains = unknown(
        objects, regions, random.random(len(regions)) < 0.5, regions.score, protocol=protocol
    )
    before = open_set.metrics(outcome, -regions.score)
    assert before["r_u"] + sum(of["r_u"] for of in gains.values()) <= 1 + 1e-12
    assert gains["classification"]["nose"] == pytest.approx(before["nose"])
    assert gains["duplicate"]["r_u"] == gains["background"]["r_u"] == gains["both"]["r_u"] == 0
    assert all(gain >= 0 for of in gains.values() for gain in of.values())
    assert errors.counts["missed"] <= before["fn_missed"]
    weights = np.ones((2, len(outcome.split.images)), dtype=np.int32)
    drawn = error_budget.unknown_gains(outcome, errors, -regions.score, weights)
    assert {k: {m: v[1] for m, v in of.items()} for k, of in drawn.items()} == {
        k: pytest.approx(v) for k, v in gains.items()
    }


def test_without_unknown_objects_there_are_no_gains(objects, regions):
    _, errors, gains = unknown(objects(), regions(("a", FOX, 0.9)), [True], [0.1])
    assert errors.counts["background"] == 1
    assert all(gain is None for of in gains.values() for gain in of.values())
