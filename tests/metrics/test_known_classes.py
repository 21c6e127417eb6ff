"""Known classes that share images with unknown objects, against a loop over detections."""

import numpy as np
import pytest

from farther.metrics.open_set import known_classes
from farther.metrics.open_set.outcomes import MatchingRules, OpenSetSplit
from farther.metrics.weighting import mean_of_defined

CLASSES = ("cat", "dog", "ape")
RECALL = 0.6


def overlaps(box, others, *, of_box=False):
    """IoU of a box with others; with `of_box` the share of the box."""
    sides = np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2])
    shared = np.prod(np.maximum(sides, 0), axis=1)
    own_area = np.prod(box[2:] - box[:2])
    if of_box:
        return shared / own_area
    other_areas = np.prod(others[:, 2:] - others[:, :2], axis=1)
    return shared / (own_area + other_areas - shared)


def kind_in_image(objects, image, box, name, taken):
    """The kind of one detection of a class in an image.

    Args:
        objects: Ground truth.
        image: Name of the image.
        box: The detection's box.
        name: Its class.
        taken: Rows of the objects that better detections of this copy of the image have matched;
            the matched one is added.

    Returns:
        "true", "wrong", "unknown" (on an unknown object), "in a crowd of the class", or "in a
        crowd" and on nothing else.
    """
    boxes = objects.box.astype(float)
    in_image = objects.image_id == image
    overlaps_enough = in_image & ~objects.is_crowd & (overlaps(box, boxes) >= 0.5)
    on_crowd = in_image & objects.is_crowd & (overlaps(box, boxes, of_box=True) >= 0.5)
    on_own_class = overlaps_enough & (objects.category == name)
    on_unknown = overlaps_enough & ~np.isin(objects.category, CLASSES)
    free = [row for row in np.flatnonzero(on_own_class) if row not in taken]
    if free:
        iou = overlaps(box, boxes)
        taken.add(max(free, key=lambda row: iou[row]))
        return "true"
    if (on_crowd & (objects.category == name)).any():
        return "in a crowd of the class"
    if on_crowd.any() and not overlaps_enough.any():
        return "in a crowd"
    if on_unknown.any() and not on_own_class.any():
        return "unknown"
    return "wrong"


def kinds_of_class(objects, regions, flagged, images, name):
    """(score, kind) of the kept detections of a class, by falling score.

    Args:
        images: Names of images; a name that is listed twice is drawn twice.
    """
    names = np.array(regions.classes, dtype=object)[regions.label]
    rows = np.flatnonzero((names == name) & ~flagged)
    taken_in_copy = {}
    kinds = []
    for row in rows[np.argsort(-regions.score[rows])]:
        image = regions.image_id[row]
        box = regions.box[row].astype(float)
        for copy in range(images.count(image)):
            taken = taken_in_copy.setdefault((image, copy), set())
            kinds.append((regions.score[row], kind_in_image(objects, image, box, name, taken)))
    return kinds


def average_precision(true, total):
    """Area under the interpolated curve, of cumulated counts of true positives."""
    recall = np.append(0, true) / total
    precision = true / np.arange(1, len(true) + 1)
    interpolated = np.maximum.accumulate(precision[::-1])[::-1]
    return np.sum(np.diff(recall) * interpolated)


def kinds_at_recall(kinds, total):
    """The kinds from the class's operating point on; none where the recall is not reached."""
    true = np.cumsum([kind == "true" for _, kind in kinds])
    if not len(true) or true[-1] < RECALL * total:
        return []
    point, _ = kinds[np.argmax(true >= RECALL * total)]
    return [kind for score, kind in kinds if score >= point]


def by_loop(objects, regions, flagged, images):
    """Means over classes of AP, precision and recall, and the wilderness impact, of kept regions.

    Args:
        images: Names of images; a name that is listed twice is drawn twice.
    """
    on_unknown = 0
    on_known = 0
    values = {"ap_k": [], "p_k": [], "r_k": []}
    for name in CLASSES:
        is_object = (objects.category == name) & ~objects.is_crowd
        total = sum(np.sum(is_object & (objects.image_id == image)) for image in images)
        if not total:
            continue
        kinds = kinds_of_class(objects, regions, flagged, images, name)
        ranked = [kind for _, kind in kinds if kind != "in a crowd of the class"]
        true = np.cumsum([kind == "true" for kind in ranked])
        values["ap_k"].append(average_precision(true, total))
        values["p_k"].append(true[-1] / len(true) if len(true) else np.nan)
        values["r_k"].append(true[-1] / total if len(true) else 0.0)
        at_recall = kinds_at_recall(kinds, total)
        on_unknown += at_recall.count("unknown")
        on_known += at_recall.count("true") + at_recall.count("wrong")
    means = {}
    for key, of_classes in values.items():
        means[key] = float(mean_of_defined(np.array([*of_classes, np.nan])))
    return means | {"wi": on_unknown / on_known if on_known else np.nan}


@pytest.fixture(params=range(4))
def case(request, world):
    """Three known classes and foxes.

    No two scores are equal, and no region lies in a crowd and on something else.
    """
    random = np.random.default_rng(request.param)
    objects, regions = world(request.param, images=8, objects=5, regions=12, classes=CLASSES)
    category = objects.category.copy()
    category[random.random(len(category)) < 0.3] = "fox"
    objects = objects.with_columns(category=category)
    regions = regions.with_columns(score=random.permutation(len(regions)) / len(regions))
    return objects, regions, random.random(len(regions)) < 0.3


def test_metrics_equal_those_of_a_loop_and_so_do_those_of_drawn_images(case):
    objects, regions, flagged = case
    outcome = OpenSetSplit.of(objects, regions, MatchingRules(known_classes=CLASSES)).match(flagged)
    images = list(outcome.split.images)
    found = known_classes.metrics(outcome, regions, RECALL)
    expected = by_loop(objects, regions, flagged, images)
    assert {key: found[key] for key in expected} == pytest.approx(expected)
    assert expected["wi"] > 0
    weights = np.random.default_rng(0).multinomial(
        len(images), np.full(len(images), 1 / len(images)), 5
    )
    weights = np.concatenate([weights, np.eye(len(images), dtype=weights.dtype)])
    drawn = known_classes.metrics(outcome, regions, RECALL, weights=weights)
    for b, counts in enumerate(weights):
        copies = [image for image, count in zip(images, counts, strict=True) for _ in range(count)]
        expected = by_loop(objects, regions, flagged, copies)
        assert {key: drawn[key][b] for key in expected} == pytest.approx(expected, nan_ok=True)
