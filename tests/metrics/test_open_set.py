"""Unknown objects found, misclassified, missed."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.cases import slow_but
from tests.support.drawn import drawn

from farther.errors import DataError, ParameterError
from farther.metrics import closed_set, open_set
from farther.metrics.errors import error_diagnosis
from farther.metrics.open_set import known_classes
from farther.metrics.open_set.outcomes import MatchingRules, OpenSetSplit
from farther.tables import Objects, Regions

FIRST, SECOND, THIRD, NOWHERE = (
    [0, 0, 100, 100],
    [200, 0, 300, 100],
    [400, 0, 500, 100],
    [700, 700, 800, 800],
)


def flags(*values):
    return np.array(values, dtype=bool)


def of_known(objects, regions, flagged, classes, **options):
    """Metrics of the known classes of two tables."""
    split = OpenSetSplit.of(objects, regions, MatchingRules(known_classes=classes))
    return known_classes.metrics(split.match(flagged), regions, **options)


def test_metrics_of_a_case_worked_by_hand(objects, regions):
    truth = objects(
        ("a", FIRST, "fox"), ("a", SECOND, "fox"), ("a", THIRD, "bear"), ("b", FIRST, "bear")
    )
    found = regions(
        ("a", FIRST, 0.9),  # unknown: finds the first
        ("a", [0, 0, 100, 90], 0.8),  # unknown: the first again, so false
        ("a", SECOND, 0.7),  # kept: misclassifies the second
        ("a", NOWHERE, 0.6),  # unknown: false
        ("c", FIRST, 0.5),  # unknown, in an image without objects: false
        ("b", NOWHERE, 0.4),  # kept, on nothing
    )
    metrics = open_set.evaluate(truth, found, flags(1, 1, 0, 1, 1, 0))
    counts = {
        "unknown_objects": 4,
        "tp_u": 1,
        "fp_u": 3,
        "fn_missed": 2,
        "fn_misclassified": 1,
        "aose": 1,
    }
    assert {name: metrics[name] for name in counts} == counts
    assert (metrics["nose"], metrics["p_u"], metrics["r_u"]) == (0.25, 0.25, 0.25)
    # Recall 1/4 at precision 1. Of the 11 recalls, 0, 0.1 and 0.2 are reached.
    assert metrics["ap_u"] == 0.25
    assert metrics["ap_u_11"] == pytest.approx(3 / 11)


def test_ap_ranks_by_the_unknown_score_where_there_is_one(objects, regions):
    truth = objects(("a", FIRST, "fox"), ("a", SECOND, "fox"))
    found = regions(("a", NOWHERE, 0.9), ("a", FIRST, 0.8), ("a", SECOND, 0.7))
    unknown = flags(1, 1, 1)
    # By confidence: false, true, true: precision 1/2, 2/3; interpolated 2/3 at both.
    assert open_set.evaluate(truth, found, unknown)["ap_u"] == pytest.approx(2 / 3)
    score = np.array([0.0, 2.0, 1.0])
    assert open_set.evaluate(truth, found, unknown, unknown_score=score)["ap_u"] == 1
    published = open_set.evaluate(
        truth, found, unknown, protocol="published-code", unknown_score=score
    )
    assert published["ap_u"] == pytest.approx(2 / 3)


def test_the_published_code_needs_more_than_the_threshold_the_paper_as_much(objects, regions):
    # With one more pixel in width and height: 100×50 within 100×100, after the shift of the region.
    truth, found = objects(("a", [0, 0, 99, 99], "fox")), regions(("a", [-1, -1, 99, 49], 0.9))
    assert open_set.evaluate(truth, found, flags(1), protocol="published-code")["tp_u"] == 0
    found = regions(("a", [-1, -1, 99, 49.1], 0.9))
    assert open_set.evaluate(truth, found, flags(1), protocol="published-code")["tp_u"] == 1
    same = regions(("a", [-1, -1, 99, 99], 0.9))
    assert open_set.evaluate(truth, same, flags(1), iou=1, protocol="published-code")["tp_u"] == 0
    truth, found = objects(("a", [0, 0, 100, 100], "fox")), regions(("a", [0, 0, 100, 50], 0.9))
    assert open_set.evaluate(truth, found, flags(1))["tp_u"] == 1
    assert (
        open_set.evaluate(truth, regions(("a", [0, 0, 100, 100], 0.9)), flags(1), iou=1)["tp_u"]
        == 1
    )


def published_average_precision(objects, regions, in_order_of):
    """AP_U of the published code with all regions flagged.

    Confidences are rounded to 0.001, and rows are sorted stably.
    """
    logits = regions.logits.astype(np.float64)
    confidence = (np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)).max(axis=1).round(3)
    annotated = set(objects.image_id)
    rows = [row for row in in_order_of if regions.image_id[row] in annotated]
    taken, true = set(), []
    for row in np.array(rows)[np.argsort(-confidence[rows], kind="stable")]:
        found = np.add(
            np.add(regions.box[row].astype(np.float64), [1, 1, 0, 0]).round(1), [0, 0, 1, 1]
        )
        best, most = None, 0.5
        for target in np.flatnonzero(
            (objects.image_id == regions.image_id[row]) & ~objects.is_crowd
        ):
            truth = np.add(objects.box[target].astype(np.float64), [0, 0, 1, 1])
            sides = np.minimum(found[2:], truth[2:]) - np.maximum(found[:2], truth[:2])
            shared = np.prod(np.maximum(sides, 0))
            overlap = shared / (
                np.prod(found[2:] - found[:2]) + np.prod(truth[2:] - truth[:2]) - shared
            )
            if overlap > most:
                best, most = target, overlap
        true.append(best is not None and best not in taken)
        taken.add(best)
    recall = np.cumsum(true) / np.sum(~objects.is_crowd)
    precision = np.cumsum(true) / np.arange(1, len(true) + 1)
    interpolated = np.maximum.accumulate(precision[::-1])[::-1]
    return float(np.sum(np.diff(recall, prepend=0) * interpolated))


@pytest.mark.parametrize("seed", slow_but((0,), range(3)))
def test_the_published_code_takes_equal_confidences_in_the_order_of_image_names(world, seed):
    objects, regions = world(seed, images=12)
    objects = objects[~objects.is_crowd]  # its data set marks none
    # Logits of a few values only, so that many rounded confidences are equal.
    regions = regions.with_columns(logits=regions.logits.round())
    shuffled = regions[np.random.default_rng(seed).permutation(len(regions))]
    by_name = np.lexsort((shuffled.region_id, shuffled.image_id.astype(str)))
    found = open_set.evaluate(
        objects, shuffled, np.ones(len(shuffled), dtype=bool), protocol="published-code"
    )
    assert found["ap_u"] == pytest.approx(
        published_average_precision(objects, shuffled, by_name), abs=1e-9
    )
    # An unstable sort may take them in any order, and gets another value.
    assert found["ap_u"] != pytest.approx(
        published_average_precision(objects, shuffled, by_name[::-1]), abs=1e-4
    )


def test_the_published_code_takes_confidences_from_stored_logarithms_of_sigmoids(objects, regions):
    logits = np.array([[2.0, 1.5], [-1.0, -4.0]])
    stored = regions(("a", FIRST, 0.9), ("a", SECOND, 0.8)).with_columns(
        logits=np.log(1 / (1 + np.exp(-logits)))
    )
    sigmoid = 1 / (1 + np.exp(-logits))
    split = OpenSetSplit.of(
        objects(("a", FIRST, "fox")), stored, MatchingRules(protocol="published-code")
    )
    expected = (sigmoid / sigmoid.sum(axis=1, keepdims=True)).max(axis=1).round(3)
    assert split.detections.confidence == pytest.approx(expected)


def test_the_published_code_ranks_by_the_largest_softmax_probability_without_the_background():
    truth = Objects(image_id=["a"], object_id=[0], box=[FIRST], category=["fox"])
    # The detector's score prefers the region on nothing, the softmax of the two classes the other.
    found = Regions(
        image_id=["a", "a"],
        region_id=[0, 1],
        box=[NOWHERE, FIRST],
        score=[0.9, 0.1],
        label=[0, 0],
        logits=[[0.0, 0.0, 5.0], [3.0, 0.0, 0.0]],
        classes=("cat", "dog", "background"),
        background_index=2,
    )
    assert open_set.evaluate(truth, found, flags(1, 1))["ap_u"] == 0.5
    assert open_set.evaluate(truth, found, flags(1, 1), protocol="published-code")["ap_u"] == 1


def test_what_flagging_costs_the_known_classes(objects, regions):
    truth = objects(
        ("a", FIRST, "cat"), ("a", SECOND, "cat"), ("b", FIRST, "dog"), ("b", THIRD, "fox")
    )
    found = regions(
        ("a", FIRST, 0.9, "cat"),
        ("a", SECOND, 0.8, "cat"),
        ("b", FIRST, 0.7, "dog"),
        ("b", NOWHERE, 0.95, "dog"),
        ("b", THIRD, 0.85, "dog"),
        ("b", THIRD, 0.75, "cat"),
    )
    # The second cat and one of the regions on the fox are flagged.
    metrics = of_known(truth, found, flags(0, 1, 0, 0, 1, 0), ("cat", "dog"), recall=0.5)
    # Cat: 0.9 true, 0.75 false: precision 1 up to recall 1/2. Dog: 0.95 false, 0.7 true.
    assert metrics["ap_k"] == pytest.approx((1 / 2 + 1 / 2) / 2)
    assert metrics["p_k"] == pytest.approx((1 / 2 + 1 / 2) / 2)
    assert metrics["r_k"] == pytest.approx((1 / 2 + 1) / 2)
    # AP_U: of the two flagged the surer one, 0.85, lies on the fox.
    assert metrics["map"] == pytest.approx((1 / 2 + 1 / 2 + 1) / 3)
    # From the operating points 0.9 and 0.7 on, no kept region lies on the fox: 0.75 is a cat.
    assert metrics["wi"] == 0
    nothing = of_known(truth, found, flags(0, 0, 0, 0, 0, 0), ("cat", "dog"), recall=0.5)
    assert nothing["wi"] == pytest.approx(1 / 3)


def test_impact_in_shared_images_counts_detections_on_unknown_objects(objects, regions):
    truth = objects(("a", FIRST, "cat"), ("a", SECOND, "fox"))
    found = regions(
        ("a", FIRST, 0.9), ("a", SECOND, 0.95), ("a", NOWHERE, 0.92), ("a", SECOND, 0.2)
    )
    # From the cat's operating point 0.9 on: one on the fox, two others.
    assert of_known(truth, found, flags(0, 0, 0, 0), ["cat"])["wi"] == 1 / 2
    assert of_known(truth, found[1:], flags(0, 0, 0), ["cat"])["wi"] is None
    with pytest.raises(ParameterError, match="recall"):
        of_known(truth, found, flags(0, 0, 0, 0), ["cat"], recall=0)
    with pytest.raises(DataError, match="names of known classes"):
        of_known(truth, found, flags(0, 0, 0, 0), [])


def test_metrics_by_category_size_and_supercategory(objects, regions):
    truth = objects(
        ("a", FIRST, "fox"), ("a", [300, 300, 310, 310], "fox"), ("b", [0, 0, 50, 50], "bear")
    )
    found = regions(("a", FIRST, 0.9), ("b", [0, 0, 50, 50], 0.8))
    split = OpenSetSplit.of(truth, found)
    outcome = split.match(flags(1, 0))
    category = open_set.by_group(outcome, truth.category)
    assert category["fox"] == {
        "unknown_objects": 2,
        "tp_u": 1,
        "fn_missed": 1,
        "fn_misclassified": 0,
        "r_u": 0.5,
        "nose": 0.0,
        "missed": 0.5,
    }
    assert category["bear"]["nose"] == 1
    size = open_set.by_group(outcome, split.sizes())
    assert {name: group["unknown_objects"] for name, group in size.items()} == {
        "large": 1,
        "medium": 1,
        "small": 1,
    }
    assert size["large"]["tp_u"] == 1
    animals = split.supercategories({"fox": "animal", "bear": "animal"})
    assert open_set.by_group(outcome, animals)["animal"]["unknown_objects"] == 3


@pytest.mark.parametrize("seed", slow_but((0,), range(3)))
def test_each_object_has_the_region_that_found_it_or_the_most_confident_one_that_misclassifies_it(
    world, seed
):
    objects, regions = world(seed)
    split = OpenSetSplit.of(objects, regions, MatchingRules(known_classes=("cat",)))
    of_regions, of_objects = split.match(
        np.random.default_rng(seed).random(len(regions)) < 0.3
    ).tables(regions)
    boxes = regions.box.astype(float)
    for row, outcome in enumerate(of_objects.outcome):
        near = np.flatnonzero(regions.image_id == objects.image_id[row])
        if outcome == "found":
            chosen = near[
                (of_regions.outcome[near] == "found")
                & (of_regions.object_id[near] == objects.object_id[row])
            ]
        else:
            wrong = near[
                (of_regions.outcome[near] == "misclassified") & (outcome == "misclassified")
            ]
            on_it = [k for k in wrong if iou(boxes[k], objects.box[row].astype(float)) >= 0.5]
            chosen = sorted(on_it, key=lambda k: (-regions.score[k], regions.region_id[k]))
        assert of_objects.region_id[row] == (regions.region_id[chosen[0]] if len(chosen) else -1)
    assert set(of_objects.outcome) == {"found", "misclassified", "missed", "not_counted"}


def test_over_several_ious_the_mean_is_taken(objects, regions):
    truth = objects(("a", FIRST, "fox"))
    found = regions(("a", [0, 0, 100, 72], 0.9))
    over = open_set.metrics_over(OpenSetSplit.of(truth, found), closed_set.COCO_IOUS, flags(1))
    # IoU 0.72 passes 0.50, 0.55, 0.60, 0.65, 0.70.
    assert over == pytest.approx({"nose": 0, "p_u": 0.5, "r_u": 0.5, "ap_u": 0.5, "ap_u_11": 0.5})


@pytest.mark.parametrize("protocol", ["paper", "published-code"])
def test_the_curve_encloses_the_average_precision_and_ends_at_precision_and_recall(world, protocol):
    objects, regions = world(3)
    flagged, score = (
        regions.score < 0.7,
        np.random.default_rng(0).normal(size=len(regions)).round(1),
    )
    outcome = OpenSetSplit.of(objects, regions, MatchingRules(protocol=protocol)).match(flagged)
    curve, found = open_set.curve(outcome, score), open_set.metrics(outcome, score)
    best = np.maximum.accumulate(curve.precision[::-1])[::-1]
    assert np.sum(np.diff(curve.recall, prepend=0) * best) == pytest.approx(found["ap_u"])
    assert (curve.precision[-1], curve.recall[-1]) == pytest.approx((found["p_u"], found["r_u"]))
    assert open_set.curve(OpenSetSplit.of(objects[:0], regions).match(flagged)) is None


@pytest.mark.parametrize("protocol", ["paper", "published-code"])
def test_a_larger_iou_on_the_same_overlaps_gives_what_another_split_would(world, protocol):
    objects, regions = world(4)
    unknown = regions.score < 0.5
    split = OpenSetSplit.of(objects, regions, MatchingRules(0.5, protocol, ("cat",)))
    each = []
    for iou in (0.5, 0.65, 0.9):
        own = open_set.evaluate(objects, regions, unknown, iou, protocol, known_classes=("cat",))
        assert open_set.metrics(split.at(iou).match(unknown)) == own
        each.append(own)
    over = open_set.metrics_over(split, [0.5, 0.65, 0.9], unknown)
    assert over == pytest.approx({name: np.mean([own[name] for own in each]) for name in over})
    assert each[0]["tp_u"] > each[-1]["tp_u"]
    for iou in (0.4, 1.1):
        with pytest.raises(ParameterError, match=r"from 0\.5 to 1"):
            split.at(iou)


def test_without_unknown_objects_or_flags_fractions_are_none(objects, regions):
    metrics = open_set.evaluate(objects(), regions(("a", FIRST, 0.9)), flags(0))
    assert [metrics[name] for name in ("nose", "p_u", "r_u", "ap_u")] == [None] * 4
    for protocol in ("paper", "published-code"):
        metrics = open_set.evaluate(objects(("a", FIRST, "fox")), regions(), [], protocol=protocol)
        assert [metrics[name] for name in ("nose", "p_u", "r_u", "ap_u")] == [0, None, 0, 0]


BELOW, BESIDE = [0, 0, 100, 90], [100, 0, 200, 100]
CASES = {
    # name: (objects, regions, which are flagged), then tp_u, fp_u, fn_missed, fn_misclassified,
    # aose, p_u, nose under "paper", and under "published-code" where that differs.
    "two flagged regions on one object": (
        ([("a", FIRST, "fox")], [("a", FIRST, 0.9), ("a", FIRST, 0.8)], [1, 1]),
        (1, 1, 0, 0, 0, 0.5, 0.0),
    ),
    "two kept regions on one object": (
        ([("a", FIRST, "fox")], [("a", FIRST, 0.9), ("a", FIRST, 0.8)], [0, 0]),
        (0, 0, 0, 1, 1, None, 1.0),
        (0, 0, 0, 1, 2, None, 2.0),
    ),
    "a flagged and a kept region on one object": (
        ([("a", FIRST, "fox")], [("a", FIRST, 0.9), ("a", FIRST, 0.8)], [0, 1]),
        (1, 0, 0, 0, 0, 1.0, 0.0),
        (1, 0, 0, 0, 1, 1.0, 1.0),
    ),
    "equal confidences": (
        (
            [("a", FIRST, "fox")],
            [("a", FIRST, 0.9), ("a", BELOW, 0.9), ("a", NOWHERE, 0.9)],
            [1, 1, 1],
        ),
        (1, 2, 0, 0, 0, 1 / 3, 0.0),
    ),
    "one flagged region over two objects": (
        ([("a", FIRST, "fox"), ("a", BELOW, "bear")], [("a", FIRST, 0.9)], [1]),
        (1, 0, 1, 0, 0, 1.0, 0.0),
    ),
    "one kept region over two objects": (
        ([("a", FIRST, "fox"), ("a", BELOW, "bear")], [("a", FIRST, 0.9)], [0]),
        (0, 0, 0, 2, 2, None, 1.0),
        (0, 0, 0, 2, 1, None, 0.5),
    ),
    "a second best object": (
        (
            [("a", FIRST, "fox"), ("a", [30, 0, 130, 100], "fox")],
            [("a", FIRST, 0.9), ("a", [10, 0, 110, 100], 0.8)],
            [1, 1],
        ),
        (2, 0, 0, 0, 0, 1.0, 0.0),
        # Only the object that it overlaps most counts.
        (1, 1, 1, 0, 0, 0.5, 0.0),
    ),
    "an image without annotations": (
        ([("a", FIRST, "fox")], [("a", FIRST, 0.9), ("b", FIRST, 0.8)], [1, 1]),
        (1, 1, 0, 0, 0, 0.5, 0.0),
        (1, 0, 0, 0, 0, 1.0, 0.0),
    ),
    "regions in a crowd beside an object": (
        (
            [("a", FIRST, "fox"), ("a", [600, 600, 900, 900], "fox", True)],
            [("a", FIRST, 0.9), ("a", NOWHERE, 0.8), ("a", NOWHERE, 0.7)],
            [1, 1, 0],
        ),
        (1, 0, 0, 0, 0, 1.0, 0.0),
    ),
    "two flagged regions, on an object and on it again, a known one below": (
        (
            [("a", FIRST, "fox"), ("a", BELOW, "cat")],
            [("a", FIRST, 0.9), ("a", FIRST, 0.8)],
            [1, 1],
        ),
        (1, 1, 0, 0, 0, 0.5, 0.0),
    ),
    "boxes that only touch": (
        ([("a", FIRST, "fox")], [("a", BESIDE, 0.9), ("a", BESIDE, 0.8)], [1, 0]),
        (0, 1, 1, 0, 0, 0.0, 0.0),
    ),
    "a known object kept, an unknown one below it": (
        ([("a", FIRST, "fox"), ("a", BELOW, "cat")], [("a", BELOW, 0.9, "cat")], [0]),
        (0, 0, 1, 0, 0, None, 0.0),
        (0, 0, 0, 1, 1, None, 1.0),
    ),
    "a known object taken for another, an unknown one below it": (
        ([("a", FIRST, "fox"), ("a", BELOW, "cat")], [("a", BELOW, 0.9, "dog")], [0]),
        (0, 0, 0, 1, 1, None, 1.0),
    ),
    "a known object flagged, no unknown one near": (
        ([("a", SECOND, "fox"), ("a", FIRST, "cat")], [("a", FIRST, 0.9, "cat")], [1]),
        (0, 1, 1, 0, 0, 0.0, 0.0),
    ),
    "no detections": (([("a", FIRST, "fox")], [], []), (0, 0, 1, 0, 0, None, 0.0)),
    "no objects": (
        ([], [("a", FIRST, 0.9), ("a", SECOND, 0.8)], [1, 0]),
        (0, 1, 0, 0, 0, 0.0, None),
        # An image without annotations is not looked at.
        (0, 0, 0, 0, 0, None, None),
    ),
    "neither objects nor detections": (([], [], []), (0, 0, 0, 0, 0, None, None)),
    "all objects crowds": (
        (
            [("a", [0, 0, 400, 400], "fox", True)],
            [("a", FIRST, 0.9), ("a", SECOND, 0.8), ("a", NOWHERE, 0.7)],
            [1, 0, 1],
        ),
        (0, 1, 0, 0, 0, 0.0, None),
    ),
    "a crowd below an object": (
        (
            [("a", FIRST, "fox"), ("a", [0, 0, 400, 400], "fox", True)],
            [("a", FIRST, 0.9), ("a", FIRST, 0.8), ("a", SECOND, 0.7)],
            [1, 1, 0],
        ),
        (1, 0, 0, 0, 0, 1.0, 0.0),
    ),
}


@pytest.mark.parametrize("protocol", ["paper", "published-code"])
@pytest.mark.parametrize("case", CASES)
def test_counts_worked_by_hand(objects, regions, case, protocol):
    (truth, found, flagged), *expected = CASES[case]
    names = ("tp_u", "fp_u", "fn_missed", "fn_misclassified", "aose", "p_u", "nose")
    known = ("cat", "dog")
    metrics = open_set.evaluate(
        objects(*truth), regions(*found), flags(*flagged), protocol=protocol, known_classes=known
    )
    assert tuple(metrics[name] for name in names) == expected[0 if protocol == "paper" else -1]


@settings(drawn, max_examples=40)
@given(st.integers(0, 10_000), st.sampled_from(["paper", "published-code"]), st.floats(0, 1))
def test_a_surplus_false_positive_never_raises_the_precision(world, seed, protocol, share):
    objects, regions = world(seed, images=4, objects=4, regions=8)
    unknown = np.random.default_rng(seed).random(len(regions)) < share
    before = open_set.evaluate(objects, regions, unknown, protocol=protocol)
    one_more = Regions(
        image_id=["000", "001"],
        region_id=[10**6, 10**6],
        box=[[5000, 5000, 5100, 5100]] * 2,
        score=[0.0, 0.0],
        label=[0, 0],
        logits=np.zeros((2, 2)),
        header=regions.header,
    )
    after = open_set.evaluate(
        objects,
        Regions.concatenate([regions, one_more]),
        np.append(unknown, [True, True]),
        protocol=protocol,
    )
    assert (after["tp_u"], after["aose"], after["r_u"]) == (
        before["tp_u"],
        before["aose"],
        before["r_u"],
    )
    assert after["fp_u"] >= before["fp_u"]
    assert before["p_u"] is None or after["p_u"] <= before["p_u"]
    assert after["ap_u"] is None or after["ap_u"] <= before["ap_u"] + 1e-12


def _repeated(box):
    """Boxes of which every fourth occurs twice."""
    box = box.copy()
    box[1::4] = box[::4][: len(box[1::4])]
    return box


@settings(drawn, max_examples=60)
@given(st.integers(0, 10_000), st.sampled_from(["paper", "published-code"]), st.floats(0, 1))
def test_each_unknown_object_is_counted_once_and_the_order_of_rows_does_not_matter(
    world, seed, protocol, share
):
    objects, regions = world(seed, images=6, objects=4, regions=8)
    random = np.random.default_rng(seed)
    # Many equal confidences and scores, and boxes that occur twice.
    rounded = regions.score.round(1)
    logits = np.log(np.stack([rounded + 2, 5 - rounded], axis=1))
    regions = regions.with_columns(score=rounded, logits=logits, box=_repeated(regions.box))
    objects = objects.with_columns(box=_repeated(objects.box))
    unknown = random.random(len(regions)) < share
    score = random.random(len(regions)).round(1)
    metrics = open_set.evaluate(objects, regions, unknown, protocol=protocol, unknown_score=score)
    total = metrics["tp_u"] + metrics["fn_missed"] + metrics["fn_misclassified"]
    assert total == metrics["unknown_objects"] == np.sum(~objects.is_crowd)
    if protocol == "paper":
        assert metrics["nose"] <= 1
        assert metrics["aose"] == metrics["fn_misclassified"]
    order, other = random.permutation(len(regions)), random.permutation(len(objects))
    moved = objects[other], regions[order], unknown[order]
    assert open_set.evaluate(*moved, protocol=protocol, unknown_score=score[order]) == metrics
    mixed = of_known(objects, regions, unknown, ("cat",), unknown_score=score)
    assert of_known(*moved, ("cat",), unknown_score=score[order]) == pytest.approx(mixed)


@settings(drawn, max_examples=30)
@given(st.integers(0, 10_000))
def test_one_more_crowd_lowers_no_metric(world, seed):
    objects, regions = world(seed, images=3, objects=3, regions=10)
    unknown = np.random.default_rng(seed).random(len(regions)) < 0.5
    before = open_set.evaluate(objects, regions, unknown)
    crowd = Objects(
        image_id=["001"],
        object_id=[10**6],
        box=[[0, 0, 300, 300]],
        category=["fox"],
        is_crowd=[True],
    )
    after = open_set.evaluate(Objects.concatenate([objects, crowd]), regions, unknown)
    same = ("unknown_objects", "tp_u", "fn_missed", "fn_misclassified", "aose", "nose", "r_u")
    assert {name: after[name] for name in same} == {name: before[name] for name in same}
    assert after["fp_u"] <= before["fp_u"]
    assert after["ap_u"] >= before["ap_u"] - 1e-12  # sums of the same numbers in another order


@pytest.mark.parametrize(
    ("box", "if_difficult", "if_crowd"),
    [
        ([10, 10, 20, 20], "false_unknown", "ignored"),  # IoU 0.01, all of it inside
        ([0, 0, 100, 50], "ignored", "ignored"),  # IoU 0.5
        ([0, 0, 100, 49], "false_unknown", "ignored"),  # IoU 0.49
        ([51, 0, 151, 100], "false_unknown", "false_unknown"),  # IoU 49/151, 0.49 of it inside
    ],
)
def test_a_difficult_object_ignores_by_iou_and_a_crowd_by_the_share_inside(
    objects, regions, box, if_difficult, if_crowd
):
    found = regions(("a", box, 0.9))
    difficult = objects(("a", FIRST, "fox")).with_columns(is_difficult=[True])
    for table, expected in (
        (difficult, if_difficult),
        (objects(("a", FIRST, "fox", True)), if_crowd),
    ):
        of_regions, of_objects = OpenSetSplit.of(table, found).match(flags(1)).tables(found)
        assert of_regions.outcome.tolist() == [expected]
        assert of_objects.outcome.tolist() == ["not_counted"]
        causes = error_diagnosis.diagnose(
            table, found, {"cat": 0.5}, error_diagnosis.Diagnosis(touch=0.5)
        )
        assert causes.tolist() == ["ignored" if expected == "ignored" else "background"]


@pytest.mark.parametrize("seed", slow_but((0,), range(5)))
def test_matching_all_at_once_equals_matching_one_by_one(world, seed):
    objects, regions = world(seed, images=5, objects=8, regions=40)
    matched = OpenSetSplit.of(objects, regions).match(np.ones(len(regions), bool)).matched
    taken = set()
    for row in np.argsort(-regions.score.astype(float), kind="stable"):
        best, chosen = 0.5, -1
        for other in np.flatnonzero(objects.image_id == regions.image_id[row]):
            overlap = iou(regions.box[row].astype(float), objects.box[other].astype(float))
            if other not in taken and not objects.is_crowd[other] and overlap >= best:
                best, chosen = overlap, other
        taken.add(chosen)
        assert matched[row] == chosen


def iou(one, other):
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    both = max(width, 0) * max(height, 0)
    return both / (np.prod(one[2:] - one[:2]) + np.prod(other[2:] - other[:2]) - both)


def test_flags_that_are_no_flags_are_refused(objects, regions):
    found = regions(("a", FIRST, 0.9))
    with pytest.raises(DataError, match="expected 1 bool values"):
        open_set.evaluate(objects(), found, np.array([0.3]))
    with pytest.raises(DataError, match="is_unknown"):
        open_set.evaluate(objects(), found, flags(1, 0))
    with pytest.raises(DataError, match="unknown_score"):
        open_set.evaluate(objects(("a", FIRST, "fox")), found, flags(1), unknown_score=[1, 2])


def test_unknown_protocols_and_impossible_ious_are_refused(objects, regions):
    with pytest.raises(ParameterError, match="paper, published-code"):
        open_set.evaluate(objects(), regions(), flags(), protocol="code")
    with pytest.raises(ParameterError, match="iou"):
        open_set.evaluate(objects(), regions(), flags(), iou=0)


def as_one_class(objects, coco, regions):
    """AP over all recalls that can be reached, and recall, of another library with one class."""
    count = int(np.sum(~objects.is_crowd))
    run = coco(
        objects,
        regions,
        catIds=[1],
        iouThrs=np.array([0.5]),
        recThrs=np.arange(1, count + 1) / count,
        areaRng=[[0, 1e10]],
        areaRngLbl=["all"],
        maxDets=[len(regions)],
    )
    return float(np.mean(run.eval["precision"])), float(run.eval["recall"].reshape(()))


@pytest.mark.parametrize("seed", slow_but((0,), range(3)))
def test_flagging_all_by_one_score_equals_other_libraries_with_a_single_class(world, coco, seed):
    objects, regions = world(seed)
    objects = objects.with_columns(category=["cat"] * len(objects))
    regions = regions.with_columns(label=np.zeros(len(regions), int))
    surely_unknown = np.random.default_rng(seed).random(len(regions)).round(2).astype(np.float32)
    scored = regions.with_columns(score=surely_unknown)
    metrics = open_set.evaluate(objects, scored, np.ones(len(regions), bool))
    assert (metrics["ap_u"], metrics["r_u"]) == pytest.approx(
        as_one_class(objects, coco, scored), abs=1e-9
    )


@pytest.mark.parametrize("protocol", ["paper", "published-code"])
def test_a_split_without_some_regions_is_that_of_the_others(world, protocol):
    objects, regions = world(11)
    kept, unknown = np.random.default_rng(11).random((2, len(regions))) < 0.5
    split = OpenSetSplit.of(objects, regions, MatchingRules(0.5, protocol, ("dog",))).keeping(kept)
    for iou in (0.5, 0.75):
        expected = open_set.evaluate(
            objects, regions[kept], unknown[kept], iou, protocol, known_classes=("dog",)
        )
        assert open_set.metrics(split.at(iou).match(unknown[kept])) == pytest.approx(expected)
    with pytest.raises(DataError, match=f"expected {kept.sum()} bool values"):
        split.keeping(kept)
