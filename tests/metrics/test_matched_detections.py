"""Detections of many classes: counted once, they are measured all together."""

import numpy as np
import pytest

from farther.metrics import precision_recall
from farther.metrics.closed_set.matched_detections import MatchedDetections
from farther.metrics.errors import error_diagnosis
from farther.metrics.precision_recall import FALSE, IGNORED, TRUE

IMAGES = 9

#: One replicate, which takes the classes one by one.
ONE_BY_ONE = np.ones((1, IMAGES), dtype=np.int32)


def detections(rows: int, classes: int, seed: int) -> MatchedDetections:
    """Detections at two IoU thresholds, many of equal confidence; some classes have no objects."""
    rng = np.random.default_rng(seed)
    of_class = np.sort(rng.integers(0, rng.integers(1, classes + 1), rows))
    score = rng.integers(0, 20, rows).astype(np.float32) / 20
    score = score[np.lexsort((-score, of_class))]
    objects = np.bincount(of_class, minlength=classes) * (rng.random(classes) < 0.8)
    return MatchedDetections(
        kind=rng.choice([TRUE, FALSE, IGNORED], size=(2, rows)).astype(np.int8),
        place=np.zeros(rows, dtype=np.int64),
        score=score,
        image=rng.integers(0, IMAGES, rows),
        bounds=np.searchsorted(of_class, np.arange(classes + 1)),
        object_class=np.repeat(np.arange(classes), objects),
        object_image=rng.integers(0, IMAGES, objects.sum()),
        images=IMAGES,
    )


CASES = [(0, 3), (1, 1), (40, 1), (200, 60), (2000, 5)]


@pytest.mark.parametrize("block", [1, 50, precision_recall.BLOCK])
@pytest.mark.parametrize("points", [None, 11, 101])
@pytest.mark.parametrize(("rows", "classes"), CASES)
def test_areas_of_all_classes_are_those_of_each(monkeypatch, rows, classes, points, block):
    matched = detections(rows, classes, seed=rows)
    each = matched.average_precision(ONE_BY_ONE, points)
    monkeypatch.setattr(precision_recall, "BLOCK", block)
    together = matched.average_precision(points=points)
    np.testing.assert_allclose(together, each, rtol=1e-12)


@pytest.mark.parametrize(("rows", "classes"), CASES)
def test_counts_of_all_classes_are_the_sums_of_each(rows, classes):
    matched = detections(rows, classes, seed=rows)
    cause = np.random.default_rng(1).integers(-1, len(error_diagnosis.CAUSES), rows)
    recalls = [1e-12, 0.1, 0.3, 0.5, 1]
    counts, reaching = error_diagnosis.counts_at_recalls(matched, cause, recalls)
    each, reaching_each = error_diagnosis.counts_at_recalls(matched, cause, recalls, ONE_BY_ONE)
    np.testing.assert_array_equal(counts, each)
    np.testing.assert_array_equal(reaching, reaching_each)
