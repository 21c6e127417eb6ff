"""Known classes that share images with unknown objects, against a loop over detections."""

import numpy as np
import pytest

from farther.metrics.open_set import known_classes
from farther.metrics.open_set.outcomes import MatchingRules, OpenSetSplit
from farther.metrics.weighting import mean_of_defined

CLASSES, RECALL = ("cat", "dog", "ape"), 0.6


def overlaps(box, others, *, of_box=False):
    """IoU of a box with others; with `of_box` the share of the box."""
    sides = np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2])
    shared = np.prod(np.maximum(sides, 0), axis=1)
    own, theirs = np.prod(box[2:] - box[:2]), np.prod(others[:, 2:] - others[:, :2], axis=1)
    return shared / (own if of_box else own + theirs - shared)


def by_loop(objects, regions, flagged, images):
    """AP, precision and recall of each class, and the wilderness impact, of the kept regions."""
    names = np.array(regions.classes, dtype=object)[regions.label]
    boxes = objects.box.astype(float)
    true_at, all_at, unknown_at = [], [], []
    each = {"ap_k": [], "p_k": [], "r_k": []}
    for name in CLASSES:
        of_class = (objects.category == name) & ~objects.is_crowd
        total = sum(np.sum(of_class & (objects.image_id == image)) for image in images)
        taken, rows = set(), []
        for row in np.flatnonzero((names == name) & ~flagged)[
            np.argsort(-regions.score[(names == name) & ~flagged])
        ]:
            for copy in range(images.count(regions.image_id[row])):
                box, here = (
                    regions.box[row].astype(float),
                    objects.image_id == regions.image_id[row],
                )
                iou, share = overlaps(box, boxes), overlaps(box, boxes, of_box=True)
                free = [
                    k
                    for k in np.flatnonzero(here & of_class & (iou >= 0.5))
                    if (k, copy) not in taken
                ]
                on_crowd = here & objects.is_crowd & (share >= 0.5)
                on_object = (here & ~objects.is_crowd & (iou >= 0.5)).any()
                own = here & of_class & (iou >= 0.5)
                is_unknown = (
                    here & ~objects.is_crowd & ~np.isin(objects.category, CLASSES) & (iou >= 0.5)
                )
                if free:
                    taken.add((max(free, key=lambda k: iou[k]), copy))
                    rows.append((regions.score[row], "true"))
                elif (on_crowd & (objects.category == name)).any():
                    rows.append((regions.score[row], "in a crowd of the class"))
                elif on_crowd.any() and not on_object:
                    rows.append((regions.score[row], "in a crowd"))
                else:
                    rows.append(
                        (
                            regions.score[row],
                            "unknown" if is_unknown.any() and not own.any() else "wrong",
                        )
                    )
        kinds = [kind for _, kind in rows if kind != "in a crowd of the class"]
        true = np.cumsum([kind == "true" for kind in kinds])
        if not total:
            continue
        recall, precision = np.append(0, true) / total, true / np.arange(1, len(true) + 1)
        best = np.maximum.accumulate(precision[::-1])[::-1]
        each["ap_k"].append(np.sum(np.diff(recall) * best))
        each["p_k"].append(true[-1] / len(true) if len(true) else np.nan)
        each["r_k"].append(recall[-1])
        # From the operating point on.
        found = np.cumsum([kind == "true" for _, kind in rows])
        if len(found) and found[-1] >= RECALL * total:
            point = rows[np.argmax(found >= RECALL * total)][0]
            last = [kind for score, kind in rows if score >= point]
            true_at.append(last.count("true"))
            unknown_at.append(last.count("unknown"))
            all_at.append(last.count("true") + last.count("wrong"))
    impact = sum(unknown_at) / sum(all_at) if sum(all_at) else np.nan
    return {
        key: float(mean_of_defined(np.array([*values, np.nan]))) for key, values in each.items()
    } | {"wi": impact}


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
