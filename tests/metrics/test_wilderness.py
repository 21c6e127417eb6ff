"""Wilderness impact and operating points."""

import numpy as np
import pytest
from tests.support.cases import slow_but

from farther.errors import DataError, ParameterError
from farther.metrics import wilderness
from farther.metrics.closed_set import ClosedSet
from farther.tables import Objects

FIRST, SECOND, NOWHERE = [0, 0, 100, 100], [200, 0, 300, 100], [700, 700, 800, 800]
CLOSED, WILD = ["a", "b"], ["w1", "w2", "w3", "w4"]


@pytest.fixture
def case(objects, regions):
    """Two closed images with two cats and a dog; four wild ones, each with one detection."""
    truth = objects(("a", FIRST, "cat"), ("a", SECOND, "cat"), ("b", FIRST, "dog"))
    found = regions(
        ("a", FIRST, 0.9, "cat"),
        ("a", NOWHERE, 0.8, "cat"),
        ("a", SECOND, 0.6, "cat"),
        ("b", FIRST, 0.7, "dog"),
    )
    wild = regions(
        ("w1", FIRST, 0.85, "cat"),
        ("w2", FIRST, 0.65, "cat"),
        ("w3", FIRST, 0.75, "dog"),
        ("w4", FIRST, 0.1, "dog"),
    )
    return truth, found, CLOSED, wild, WILD


def test_impact_worked_by_hand(case):
    wild = wilderness.Wilderness(*case)
    assert wild.ratio == 2
    # At recall 1 the operating points are 0.6 and 0.7: closed 3 true and 1 false; wild 0.85, 0.65
    # and 0.75.
    assert wild.operating_points(1.0) == pytest.approx([0.6, 0.7])
    at = wild.at_recall(1.0)
    assert at["impact"][-1] == 3 / 4
    # Precision closed: cat 2/3, dog 1. With wild images: cat 2/5, dog 1/2.
    assert at["impact_by_precision"][-1] == pytest.approx((5 / 3) / (9 / 10) - 1)
    # At recall 0.5 a cat is found at 0.9 already, where no wild detection of that class is.
    assert wild.at_recall(0.5)["impact"][-1] == 1 / 2
    assert at["impact"][0] == at["impact_by_precision"][0] == 0


def test_a_wild_detection_as_confident_as_the_operating_point_counts(case, regions):
    truth, found, closed, _, images = case
    wild = wilderness.Wilderness(truth, found, closed, regions(("w1", FIRST, 0.6, "cat")), images)
    assert wild.at_recall(1.0)["impact"][-1] == 1 / 4
    assert wild.ratios[-1] == 2 and sorted(wild.wild_images(2)) == WILD


def test_both_definitions_agree_for_a_single_class(case):
    truth, found, closed, others, images = case
    wild = wilderness.Wilderness(truth[:2], found[:3], closed, others, images)  # no dog
    at = wild.at_recall(1.0)
    assert at["impact"] == pytest.approx(at["impact_by_precision"])


def test_impact_never_falls_as_images_are_added_in_steps_of_a_tenth(world):
    objects, regions = world(0, images=10)
    _, others = world(1, images=25)
    others = others.with_columns(image_id=["w" + image for image in others.image_id])
    images, wild_images = [f"{i:03d}" for i in range(10)], [f"w{i:03d}" for i in range(25)]
    found = wilderness.evaluate(objects, regions, images, others, wild_images)
    assert found["ratios"] == pytest.approx([step / 10 for step in range(26)])
    at = found["at_recall"]["0.3"]
    assert at["impact"] == sorted(at["impact"])
    assert at["average_impact"] == pytest.approx(np.mean(at["impact"][1:]))
    assert found["map_open"] <= found["map_closed"]
    again = wilderness.evaluate(objects, regions, images, others, wild_images)
    assert again == found


def test_open_set_map_is_that_at_ratio_one(case):
    truth, found, closed, wild, _ = case
    both = wilderness.Wilderness(truth, found, closed, wild[[0, 2]], ["w1", "w3"])
    # Cat: 0.9 true, 0.85 wild, 0.8 false, 0.6 true: recalls 0 … 0.5 at precision 1, the other five
    # at 2/4. Dog: 0.75 wild, 0.7 true: 1/2.
    assert both.mean_ap(1.0) == pytest.approx(((6 + 5 / 2) / 11 + 1 / 2) / 2)
    assert both.mean_ap(0.0) == pytest.approx(((6 + 5 * 2 / 3) / 11 + 1) / 2)


def test_too_few_wild_images_are_an_error_not_a_guess(case):
    truth, found, closed, wild, images = case
    few = wilderness.Wilderness(truth, found, closed * 1, wild[:1], images[:1])
    with pytest.raises(ParameterError, match=r"ratios from 0 to 0\.5, not for 1"):
        few.mean_ap(1.0)
    assert wilderness.evaluate(truth, found, closed, wild[:1], images[:1])["map_open"] is None


def test_a_recall_that_no_class_reaches_has_no_impact(case, regions):
    truth, _, closed, wild, images = case
    blind = wilderness.Wilderness(truth, regions(("a", NOWHERE, 0.9)), closed, wild, images)
    assert blind.operating_points(0.1) == [None, None]
    assert blind.at_recall(0.1)["average_impact"] is None


def test_the_best_threshold_of_each_ratio_is_that_of_the_largest_f(case):
    found = wilderness.Wilderness(*case).best_thresholds(betas=[1, 2], step=1)
    assert found["ratios"] == [0, 1, 2]
    # Cat, without wild images: from 0.9 on precision 1, recall 1/2, F1 2/3; from 0.6 on 2/3 and 1,
    # F1 4/5, F2 10/11. With all four: 1 and 1/2; 2/5 and 1, F1 4/7, F2 10/13. So F1 chooses the
    # other threshold, and F2 does not.
    f1, f2 = (found["betas"][beta]["classes"]["cat"] for beta in ("1", "2"))
    assert (f1["threshold"][0], f1["threshold"][-1]) == pytest.approx((0.6, 0.9))
    assert (f1["f"][0], f1["f"][-1]) == pytest.approx((4 / 5, 2 / 3))
    assert (f1["precision"][-1], f1["recall"][-1]) == (1, 1 / 2)
    assert f1["f_of_closed"][-1] == pytest.approx(4 / 7)
    assert f2["threshold"] == pytest.approx([0.6] * 3)
    assert f2["f"] == f2["f_of_closed"] == pytest.approx([10 / 11, f2["f"][1], 10 / 13])
    # The dog is found at 0.7, below one wild detection.
    dog = found["betas"]["1"]["classes"]["dog"]
    assert (dog["f"][0], dog["f"][-1]) == pytest.approx((1, 2 / 3))
    mean = found["betas"]["1"]["mean"]
    assert mean["f"][-1] == pytest.approx((2 / 3 + 2 / 3) / 2)


def test_best_thresholds_are_those_of_all_thresholds_tried_one_by_one(world):
    objects, regions = world(0, images=10)
    _, others = world(1, images=25)
    others = others.with_columns(image_id=["w" + image for image in others.image_id])
    images, wild_images = [f"{i:03d}" for i in range(10)], [f"w{i:03d}" for i in range(25)]
    wild = wilderness.Wilderness(objects, regions, images, others, wild_images)
    found = wild.best_thresholds(betas=[0.5])
    assert found["ratios"][-1] == 2.5
    of_cat, name = found["betas"]["0.5"]["classes"]["cat"], np.array(regions.classes)
    kind = ClosedSet.of(objects, regions, max_detections=len(regions)).match([0.5])
    score, true, positives = kind.scores(0, 0), kind.is_true(0, 0), kind.positives[0]
    for ratio, best, threshold in zip(
        found["ratios"], of_cat["f"], of_cat["threshold"], strict=True
    ):
        added = np.isin(others.image_id.astype(str), wild.wild_images(ratio)) & (
            name[others.label] == "cat"
        )
        tried = {}
        for t in np.unique(score):
            hits, made = (
                np.sum(true[score >= t]),
                np.sum(score >= t) + np.sum(others.score[added] >= t),
            )
            p, r = hits / made, hits / positives
            tried[t] = 1.25 * p * r / (r + 0.25 * p) if hits else 0
        assert best == pytest.approx(max(tried.values()))
        assert tried[threshold] == pytest.approx(best)


def test_classes_of_which_no_object_is_found_have_no_best_threshold(objects, regions):
    truth = objects(("a", FIRST, "cat"), ("a", SECOND, "dog"))
    on_nothing, wild = ("a", NOWHERE, 0.8, "dog"), regions(("w", FIRST, 0.7, "dog"))
    found = wilderness.Wilderness(
        truth, regions(("a", FIRST, 0.9, "cat"), on_nothing), ["a"], wild, ["w"]
    )
    best = found.best_thresholds(betas=[1])["betas"]["1"]
    assert best == {"mean": best["classes"]["cat"], "classes": {"cat": best["mean"]}}
    assert best["mean"]["f"] == [1] * 5
    blind = wilderness.Wilderness(truth, regions(on_nothing), ["a"], wild, ["w"])
    assert blind.best_thresholds(betas=[1])["betas"]["1"] == {"mean": None, "classes": {}}


def test_wild_images_are_added_in_one_order(case):
    wild = wilderness.Wilderness(*case)
    half, all_of_them = wild.wild_images(1), wild.wild_images(9)
    assert len(half) == 2 and set(half) < set(all_of_them) == set(WILD)


def test_wrong_inputs_are_named(case):
    truth, found, closed, wild, images = case
    with pytest.raises(DataError, match="'b' is not one of the closed images"):
        wilderness.Wilderness(truth, found, ["a"], wild, images)
    with pytest.raises(
        DataError, match="row 0: field 'image_id': 'w1' is not one of the wild images"
    ):
        wilderness.Wilderness(truth, found, closed, wild, images[1:])
    with pytest.raises(DataError, match="no closed image"):
        wilderness.Wilderness(truth, found, [], wild, images)
    with pytest.raises(ParameterError, match="unknown protocol 'code'"):
        wilderness.Wilderness(*case, protocol="code")
    with pytest.raises(ParameterError, match="recall"):
        wilderness.Wilderness(*case).operating_points(0)
    with pytest.raises(ParameterError, match="above 0"):
        wilderness.Wilderness(*case).best_thresholds(betas=[0])


# ------------------------------------------------------------------------------------------------
# the published code


def iou_of(first, second):
    left, top = np.maximum(first[:2], second[:2])
    right, bottom = np.minimum(first[2:], second[2:])
    shared = max(right - left, 0) * max(bottom - top, 0)
    first_area = np.prod(first[2:] - first[:2])
    second_area = np.prod(second[2:] - second[:2])
    return shared / (first_area + second_area - shared)


def correct_in_image(boxes, labels, objects, categories):
    """The published code's matching in one image: largest overlaps, and objects that are taken."""
    taken = set()
    correct = []
    for box, label in zip(boxes, labels, strict=True):
        is_right = False
        if len(objects):
            overlaps = [iou_of(box, other) for other in objects]
            best = int(np.argmax(overlaps))
            has_class = categories[best] == label
            is_right = bool(overlaps[best] >= 0.5 and has_class and best not in taken)
        if is_right:
            taken.add(best)
        correct.append(is_right)
    return correct


def largest_precision(rows, positives, recall):
    """The largest precision at a recall or a larger one, of (score, correct) pairs."""
    correct = [is_right for _, is_right in sorted(rows, key=lambda row: -row[0])]
    true = np.cumsum(correct)
    precision = true / np.arange(1, len(true) + 1)
    reached = true >= recall * positives - 1e-9
    return precision[reached].max() if reached.any() else 0.0


def published_impact(rows, counts, recall, closed, order):
    """The impact by precision, at each ratio.

    Args:
        rows: (image, class, score, correct) of all images, wild ones last.
        counts: Number of objects of each class.
        recall: Of the operating points.
        closed: Number of closed images.
        order: Wild images in the order of addition.
    """
    means = []
    for ratio in np.arange(len(order) * 10 // closed + 1) / 10:
        shown = set(order[: int(ratio * closed + 1e-9)])
        largest = []
        for name, positives in counts.items():
            of_class = []
            for image, label, score, is_right in rows:
                if label == name and (not image.startswith("w") or image in shown):
                    of_class.append((score, is_right))
            if of_class:
                largest.append(largest_precision(of_class, positives, recall))
        means.append(np.mean(largest))
    return means[0] / np.array(means) - 1


def rows_of(objects, regions, images, classes):
    """(image, class, score, correct) of the detections in closed images, image by image."""
    names = np.array(classes)
    rows = []
    for image in images:
        is_region = regions.image_id == image
        is_object = objects.image_id == image
        labels = names[regions.label[is_region]]
        correct = correct_in_image(
            regions.box[is_region].astype(float),
            labels,
            objects.box[is_object].astype(float),
            objects.category[is_object],
        )
        scores = regions.score[is_region].tolist()
        for label, score, is_right in zip(labels, scores, correct, strict=True):
            rows.append((image, label, score, is_right))
    return rows


@pytest.mark.parametrize("seed", slow_but((0,), range(3)))
def test_the_impact_of_the_published_code_is_that_of_a_loop_over_images(world, seed):
    classes = ("cat", "dog", "eel")
    objects, regions = world(seed, images=10, classes=classes)
    objects = objects[~objects.is_crowd]
    objects = objects.with_columns(is_difficult=np.arange(len(objects)) % 7 == 0)
    regions = regions[np.argsort(regions.image_id, kind="stable")]
    _, wild_regions = world(seed + 10, images=23, classes=classes)
    wild_regions = wild_regions.with_columns(
        image_id=["w" + image for image in wild_regions.image_id]
    )
    images = [f"{number:03d}" for number in range(10)]
    wild_images = [f"w{number:03d}" for number in range(23)]
    args = (objects, regions, images, wild_regions, wild_images)
    wild = wilderness.Wilderness(*args, protocol="published-code")
    order = sorted(wild_images, key=lambda name: wild._position[wild_images.index(name)])

    rows = rows_of(objects, regions, images, classes)
    wild_labels = np.array(classes)[wild_regions.label]
    wild_scores = wild_regions.score.tolist()
    for image, label, score in zip(wild_regions.image_id, wild_labels, wild_scores, strict=True):
        rows.append((image, label, score, False))
    counts = {name: int(np.sum(objects.category == name)) for name in classes}
    for recall in (0.1, 0.3, 0.8):
        impact = wild.at_recall(recall)["impact_by_precision"]
        expected = published_impact(rows, counts, recall, 10, order)
        np.testing.assert_allclose(impact, expected, atol=1e-9)
    paper = wilderness.evaluate(*args)["at_recall"]["0.3"]
    published = wilderness.evaluate(*args, protocol="published-code")["at_recall"]["0.3"]
    name = "average_impact_by_precision"
    assert abs(paper[name] - published[name]) > 1e-3


def test_the_published_code_takes_the_largest_precision_from_the_recall_on(objects, regions):
    truth = objects(("a", FIRST, "cat"), ("a", SECOND, "cat"))
    found = regions(("a", NOWHERE, 0.9), ("a", FIRST, 0.8), ("a", SECOND, 0.7))
    case = truth, found, ["a"], regions(("w", FIRST, 0.75)), ["w"]
    # At recall 1/2 the precision is 1/2, but 2/3 further on; with the wild one 1/2 and 2/4.
    paper, published = (
        wilderness.Wilderness(*case, protocol=name) for name in ("paper", "published-code")
    )
    assert paper.at_recall(0.5)["impact_by_precision"][-1] == 0
    assert published.at_recall(0.5)["impact_by_precision"][-1] == pytest.approx(
        (2 / 3) / (1 / 2) - 1
    )


def test_the_published_code_matches_in_row_order_and_by_the_best_object_of_any_class(
    objects, regions
):
    others = objects(("a", FIRST, "fox"), ("a", [0, 0, 100, 99], "cat")).with_columns(
        is_crowd=[False, True]
    )
    truth = Objects.concatenate(
        [others, objects(("a", FIRST, "cat"), ("a", [0, 0, 100, 95], "dog"))]
    )
    # The second row is surer, but the first took the cat. The third overlaps the cat most, which is
    # not a dog. Neither unknown objects nor crowds are matched.
    found = regions(
        ("a", FIRST, 0.5, "cat"), ("a", FIRST, 0.9, "cat"), ("a", [0, 0, 100, 99], 0.8, "dog")
    )
    case = truth, found, ["a"], regions(), []
    assert wilderness.Wilderness(*case).operating_points(1.0) == pytest.approx([0.9, 0.8])
    published = wilderness.Wilderness(*case, protocol="published-code")
    assert published.operating_points(1.0) == pytest.approx([0.5, None])
    # Cat: false, then true at recall 1 with precision 1/2; dog: false.
    assert published.mean_ap(0) == pytest.approx((1 / 2 + 0) / 2)


def test_detected_classes_without_objects_have_an_ap_and_a_precision_of_0_in_the_published_code(
    objects, regions
):
    truth = objects(("a", FIRST, "cat"))
    found = regions(
        ("a", FIRST, 0.9, "cat"), ("a", SECOND, 0.9, "dog"), classes=("cat", "dog", "eel")
    )
    case = (
        truth,
        found,
        ["a"],
        regions(("w", FIRST, 0.95, "cat"), classes=("cat", "dog", "eel")),
        ["w"],
    )
    assert wilderness.Wilderness(*case).mean_ap(0) == 1
    published = wilderness.Wilderness(*case, protocol="published-code")
    assert published.mean_ap(0) == 1 / 2
    # The precision of cats falls from 1 to 1/2, that of dogs is 0.
    assert published.at_recall(1.0)["impact_by_precision"][-1] == pytest.approx(
        (1 / 2) / (1 / 4) - 1
    )
