"""Protocol `published-code` reproduces the numbers of SAOD's published code, step by step.

Matches are pycocotools', regressions scikit-learn's, and ROC curves too; the rest are loops over
bins, thresholds and images. Five random worlds with 4 classes, one without detections and one
without objects: 1,092 numbers.
"""

import contextlib
import io
import itertools

import numpy as np
import pytest
from pycocotools import mask
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from scipy.stats import hmean
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LinearRegression
from sklearn.metrics import roc_auc_score, roc_curve
from tests.support.cases import slow_but

from farther.metrics import ood, self_awareness
from farther.metrics.matching import above_of_class
from farther.metrics.self_awareness import calibration, image_uncertainty
from farther.metrics.self_awareness.detector import SelfAwareDetector
from farther.metrics.self_awareness.images import DetectedImages

CLASSES = ("cat", "dog", "cow", "owl")
NEVER_DETECTED, WITHOUT_OBJECTS = "cow", "owl"
BINS = np.linspace(0, 1, 26)
TAU = 0.1


class PublishedClass:
    """Detections of a class as the code collects them, the most confident first, and objects.

    Detections are (score, is_true, iou).
    """

    def __init__(self, score, is_true, iou, objects):
        self.score, self.is_true, self.iou, self.objects = score, is_true, iou, objects

    def above(self, threshold):
        kept = self.score >= threshold
        return PublishedClass(self.score[kept], self.is_true[kept], self.iou[kept], self.objects)

    def lrp(self):
        """LRP and its three parts; NaN where the code leaves a class out.

        Parts: localisation, false positives, false negatives.
        """
        if not self.objects:
            return [np.nan] * 4
        true = self.is_true.sum()
        if not true:
            return [1.0, np.nan, np.nan, 1.0]
        false, missed = len(self.score) - true, self.objects - true
        misplaced = true - self.iou.sum()
        total = (misplaced / (1 - TAU) + false + missed) / (true + false + missed)
        return [total, misplaced / true, false / len(self.score), missed / self.objects]

    def laece(self):
        """0 for a class without detections or without objects, as the code has it."""
        error = 0.0
        if not self.objects:
            return error
        for low, high in itertools.pairwise(BINS):
            inside = (low <= self.score) & (self.score < high)
            if inside.any():
                gap = abs(self.iou[inside].sum() / inside.sum() - self.score[inside].mean())
                error += inside.sum() / len(self.score) * gap
        return error

    def lrp_optimal(self):
        """The threshold with the smallest LRP, the largest of several; None without one below 1."""
        best = None, 1.0
        for level in np.unique(self.score)[::-1]:
            error = self.above(level).lrp()[0]
            if error < best[1] - 1e-12:
                best = level, error
        return best[0]


def published_classes(coco_tables, objects, regions):
    """Class name → `PublishedClass`, matched by pycocotools at IoU 0.1."""
    with contextlib.redirect_stdout(io.StringIO()):
        peer = COCOeval(*coco_tables(COCO, objects, regions), "bbox")
        peer.params.iouThrs = np.array([TAU])
        peer.evaluate()
    rows = {name: [np.zeros((0, 3))] for name in CLASSES}
    counts = dict.fromkeys(CLASSES, 0)
    for image in peer.evalImgs:
        if image is None or image["aRng"] != peer.params.areaRng[0]:
            continue
        name = CLASSES[image["category_id"] - 1]
        counts[name] += int(np.sum(np.array(image["gtIgnore"]) == 0))
        for place, number in enumerate(image["dtIds"]):
            if image["dtIgnore"][0][place]:
                continue
            matched = int(image["dtMatches"][0][place])
            iou = 0.0
            if matched:
                pair = [peer.cocoDt.anns[number]["bbox"]], [peer.cocoGt.anns[matched]["bbox"]]
                iou = mask.iou(*pair, [0])[0, 0]
            rows[name].append(np.array([[image["dtScores"][place], matched > 0, iou]]))
    collected = {}
    for name, of_class in rows.items():
        score, is_true, iou = np.concatenate(of_class).T
        order = np.argsort(-score, kind="mergesort")
        collected[name] = PublishedClass(score[order], is_true[order] > 0, iou[order], counts[name])
    return collected


def published_uncertainty(regions, names):
    """Mean of 1 − score over the three most certain detections; 10¹² without detections."""
    uncertainty = []
    for name in names:
        score = np.sort(regions.score[regions.image_id == name].astype(float))[::-1]
        uncertainty.append(np.mean(1 - score[:3]) if len(score) else 1e12)
    return np.array(uncertainty)


class Comparison:
    """Pairs of a number of the library and one of the published steps."""

    def __init__(self):
        self.ours, self.theirs = [], []

    def add(self, ours, theirs):
        ours, theirs = np.ravel(ours).astype(float), np.ravel(theirs).astype(float)
        assert ours.shape == theirs.shape
        self.ours.extend(ours)
        self.theirs.extend(theirs)


def make_world(world, seed):
    """Objects and regions; no cow is detected, and there are no owls, but detections of them."""
    objects, regions = world(seed, images=30, classes=CLASSES)
    objects = objects[objects.category != WITHOUT_OBJECTS]
    regions = regions[regions.label != CLASSES.index(NEVER_DETECTED)]
    # No ties, whose order is the library's own; no confidence of exactly 1.
    order = np.random.default_rng(seed).permutation(len(regions))
    score = (regions.score.astype(float) * 0.9 + order / len(regions) * 0.009).astype(np.float32)
    return objects, regions.with_columns(region_id=np.arange(len(regions)), score=score)


def compare_metrics(found, published, comparison):
    for name in CLASSES:
        per_class = found["per_class"][name]
        ours = [per_class[part] for part in ("lrp", "lrp_loc", "lrp_fn")]
        total, misplaced, _, missed = published[name].lrp()
        comparison.add(
            [np.nan if value is None else value for value in ours], [total, misplaced, missed]
        )
        comparison.add(per_class["laece"], published[name].laece())
    parts = np.array([published[name].lrp() for name in CLASSES])
    comparison.add(
        [found[part] for part in ("lrp", "lrp_loc", "lrp_fp", "lrp_fn")], np.nanmean(parts, axis=0)
    )
    laece = np.mean([published[name].laece() for name in CLASSES])
    comparison.add(found["laece"], laece)
    comparison.add(found["idq"], hmean([1 - np.nanmean(parts[:, 0]), 1 - laece]))


@pytest.mark.parametrize("seed", slow_but((0,), range(5)))
def test_numbers_of_the_published_protocol_are_those_of_its_steps(world, coco_tables, seed):
    comparison = Comparison()
    objects, regions = make_world(world, seed)
    published = published_classes(coco_tables, objects, regions)
    compare_metrics(
        self_awareness.evaluate(objects, regions, protocol="published-code"), published, comparison
    )

    # LRP-optimal thresholds, and the metrics of what is above them.
    thresholds = self_awareness.lrp_thresholds(objects, regions)
    expected = {name: of_class.lrp_optimal() for name, of_class in published.items()}
    assert thresholds == {name: pytest.approx(value) for name, value in expected.items()}
    comparison.add(
        [thresholds[name] for name in ("cat", "dog")], [expected[name] for name in ("cat", "dog")]
    )
    kept = regions[above_of_class(regions, thresholds)]
    above = {
        name: of.above(np.inf if expected[name] is None else expected[name])
        for name, of in published.items()
    }
    compare_metrics(
        self_awareness.evaluate(objects, kept, protocol="published-code"), above, comparison
    )

    # Calibrators, at confidences between those that they were learnt from.
    for kind, regression in (
        ("linear", LinearRegression()),
        ("isotonic", IsotonicRegression(y_min=0.0, y_max=1.0)),
    ):
        calibrators = calibration.fit(kind, objects, kept)
        assert set(calibrators) == {"cat", "dog"}
        for name, calibrator in calibrators.items():
            of_class = above[name]
            regression.fit(of_class.score.reshape(-1, 1), of_class.iou)
            asked = np.linspace(of_class.score.min(), of_class.score.max(), 25)
            predicted = np.clip(regression.predict(asked.reshape(-1, 1)), 0, 1)
            comparison.add(np.clip(calibrator(asked), 0, 1), predicted)

    # Uncertainty of images, of those without detections too, and its threshold by pseudo-OOD
    # images.
    names = [f"{number:03d}" for number in range(33)]
    uncertainty = published_uncertainty(regions, names)
    comparison.add(image_uncertainty.of_confidence(regions, names), uncertainty)
    blanked = regions.with_columns(score=regions.score * 0.8)[::3]
    blanked_uncertainty = published_uncertainty(blanked, names)
    comparison.add(image_uncertainty.of_confidence(blanked, names), blanked_uncertainty)
    objects = objects[~np.isin(objects.image_id.astype(str), names[:5])]
    shows_object = np.isin(names, objects.image_id.astype(str))
    positive = -uncertainty[shows_object]
    labels = np.r_[np.ones(len(positive)), np.zeros(len(names))]
    fpr, tpr, levels = roc_curve(labels, np.r_[positive, -blanked_uncertainty])
    best = np.argmax(hmean([tpr, 1 - fpr], axis=0))
    sides = (DetectedImages.of(objects, of, names) for of in (regions, blanked))
    detector = SelfAwareDetector.fit(*sides)
    comparison.add(detector.image_threshold, -levels[best])
    # Detections in images without objects are no part of what the detector learns from.
    of_shown = regions[np.isin(regions.image_id.astype(str), np.array(names)[shows_object])]
    learnt = published_classes(coco_tables, objects, of_shown)
    expected = {name: of_class.lrp_optimal() for name, of_class in learnt.items()}
    assert detector.confidence_thresholds == {
        name: pytest.approx(value) for name, value in expected.items()
    }
    auroc = ood.auroc(positive, -blanked_uncertainty)
    comparison.add(auroc, roc_auc_score(labels, np.r_[positive, -blanked_uncertainty]))

    ours, theirs = np.array(comparison.ours), np.array(comparison.theirs)
    # 2 · (4 classes · 4 + 6), 2 thresholds, 2 · 2 · 25 confidences, 2 · 33 images, 2.
    assert len(ours) == 2 * (4 * 4 + 6) + 2 + 100 + 66 + 2 == 214
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_corrupted_images_are_evaluated_together_and_only_rejected_ones_of_severity_5_are_left_out(
    world, coco_tables
):
    comparison = Comparison()
    parts = {f"{severity}/": make_world(world, severity) for severity in (1, 3, 5)}
    images = {}
    for prefix, (objects, regions) in parts.items():
        names = sorted(set(objects.image_id) | set(regions.image_id))
        images[prefix[:-1]] = DetectedImages(
            objects, regions, tuple(names), tuple(names), frozenset(names if prefix == "5/" else ())
        )
    pooled = DetectedImages.pooled(images)
    uncertainty = published_uncertainty(pooled.regions, pooled.names)
    level = float(np.quantile(uncertainty, 0.6))
    rejected = np.array(pooled.names)[uncertainty > level]
    assert {name[0] for name in rejected} == {"1", "3", "5"}

    accepted = pooled.regions[~np.isin(pooled.regions.image_id.astype(str), rejected)]
    left_out = [name for name in rejected if name.startswith("5/")]
    counted = pooled.objects[~np.isin(pooled.objects.image_id.astype(str), left_out)]
    published = published_classes(coco_tables, counted, accepted)
    found = self_awareness.evaluate(
        pooled.objects,
        pooled.regions,
        rejected=rejected,
        may_reject=pooled.may_reject,
        protocol="published-code",
    )
    compare_metrics(found, published, comparison)
    assert len(comparison.ours) == 22
    np.testing.assert_allclose(comparison.ours, comparison.theirs, rtol=1e-5, atol=1e-6)
