"""Loss of precision in images of unknown objects: wilderness impact, operating points.

Source: Dhamija et al., The Overlooked Elephant of Object Detection, WACV 2020,
doi:10.1109/WACV45572.2020.9093355.

*Closed* images show objects of the known classes, *wild* images show none: all detections in wild
images are wrong. The wilderness ratio is the number of wild images to that of closed ones. A
class's operating point at recall r is the highest confidence at which at least that share of its
objects is found in the closed images.

`protocol="published-code"` does what the code published with the paper does, to reproduce its
values:

- Each detection has one choice, the object that it overlaps most; objects go to detections in the
  order of the table. Difficult objects count.
- A class's precision at recall r is the largest at this recall or a larger one, with all wild
  images up to the ratio. Classes without it have 0, and classes without any detection do not count.
- The number of wild images at a ratio is rounded down, where the paper's is rounded to the nearest.
- mAP is the mean over classes with detections, with 0 for those without an object.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, get_args

import numpy as np

from farther.errors import DataError, ParameterError
from farther.metrics.closed_set import ClosedSet, known_class_names
from farther.metrics.matching.boxes import image_numbers, places_among
from farther.metrics.precision_recall import FALSE, TRUE, average_precision
from farther.metrics.weighting import mean_if_all_defined, mean_of_defined, value
from farther.metrics.wilderness import published_code
from farther.metrics.wilderness.class_detections import ClassDetections, ClosedDetections
from farther.tables import Objects, Regions
from farther.tables.arguments import floats, instance, number, one_of, texts, whole_number
from farther.terms import Protocol

#: Recalls of the paper's Table 2.
RECALLS = (0.1, 0.3, 0.5)

#: Weights of recall against precision, and the steps of the wilderness ratio, of the paper's Table
#: 4.
BETAS = (0.5, 1.0, 1.5)
RATIO_STEP = 0.25


def evaluate(
    objects: Objects,
    regions: Regions,
    closed_images: Collection[str],
    wild_regions: Regions,
    wild_images: Collection[str],
    *,
    recalls: Sequence[float] = RECALLS,
    protocol: Protocol = "paper",
    seed: int = 0,
) -> dict[str, Any]:
    """Wilderness impact of one detector.

    Args:
        objects, regions: Ground truth of the closed images, and detections in them stored at a low
            threshold.
        closed_images: Names of all closed images, those without detections too.
        wild_regions, wild_images: The same of the wild images.
        recalls: Operating points.
        protocol: see the module.
        seed: Seed of the order in which wild images are added.

    Returns:
        ratio: Number of wild images per closed image.
        map_closed, map_open: 11-point mAP without wild images, and at wilderness ratio 1 (Table 1);
            None where there are too few.
        at_recall: {recall: {"impact", "impact_by_precision" (lists over `ratios`),
            "average_impact", "average_impact_by_precision", "classes" (that reach the recall)}}.
        ratios: 0, 0.1, 0.2, … up to `ratio`.

    Raises:
        DataError: there is no closed image, or a table shows an image that is not named.
        ParameterError: the protocol is unknown, or a recall is not above 0 and at most 1.

    >>> from farther.tables import Objects, Regions
    >>> box = [[0, 0, 10, 10]]
    >>> objects = Objects(image_id=["a"], object_id=[0], box=box, category=["cat"])
    >>> cat = dict(region_id=[0], box=box, label=[0], logits=[[1.0]], classes=("cat",))
    >>> closed = Regions(image_id=["a"], score=[0.9], **cat)
    >>> wild = Regions(image_id=["b"], score=[0.95], **cat)  # above the detection of the cat
    >>> evaluate(objects, closed, ["a"], wild, ["b"])["at_recall"]["0.5"]["impact"][-1]
    1.0
    """
    wilderness = Wilderness(
        objects, regions, closed_images, wild_regions, wild_images, protocol=protocol, seed=seed
    )
    return wilderness.metrics(recalls)


class Wilderness:
    """Matched detections in closed images, and detections in wild images in the order of addition.

    Args:
        objects, regions, closed_images, wild_regions, wild_images, protocol, seed: see `evaluate`.
        iou: Smallest overlap of a detection and its object. Detections choose by falling confidence
            the free object of their class they overlap most; a class's precision at recall r is
            that at its operating point.

    Attributes:
        classes: Names of the known classes.
        protocol: see the module.
        ratio: Number of wild images per closed image.
        ratios: ndarray of 0, 0.1, 0.2, … up to `ratio`.

    Raises:
        DataError: there is no closed image, or a table shows an image that is not named.
        ParameterError: the protocol is unknown.
    """

    def __init__(
        self,
        objects: Objects,
        regions: Regions,
        closed_images: Collection[str],
        wild_regions: Regions,
        wild_images: Collection[str],
        *,
        iou: float = 0.5,
        protocol: Protocol = "paper",
        seed: int = 0,
    ):
        one_of(protocol, get_args(Protocol), "protocol")
        instance(objects, Objects, "objects")
        instance(regions, Regions, "regions")
        instance(wild_regions, Regions, "wild_regions")
        iou = number(iou, "iou", above=0, at_most=1)
        seed = whole_number(seed, "seed", at_least=0)
        closed_images = texts(closed_images, "closed_images", any_order=True).tolist()
        wild_images = texts(wild_images, "wild_images", any_order=True).tolist()
        if not closed_images:
            raise DataError("there is no closed image to compare with")
        _refuse_other_images(regions, closed_images, "closed")
        _refuse_other_images(wild_regions, wild_images, "wild")
        self.protocol = protocol
        self.classes = known_class_names(objects, regions)
        self._closed_count = len(set(closed_images))
        self._wild_names = sorted(set(wild_images))
        # Position of each wild image in the order in which they are added.
        random = np.random.default_rng(seed)
        self._position = random.permutation(len(self._wild_names))

        self.ratio = len(self._wild_names) / self._closed_count
        steps = len(self._wild_names) * 10 // self._closed_count
        self.ratios = np.arange(steps + 1) / 10

        if protocol == "paper":
            closed = _match(objects, regions, self.classes, iou)
        else:
            closed = published_code.match(objects, regions, self.classes, iou)
        self._detections = self._with_wild(closed, wild_regions)

    def _with_wild(
        self, closed_by_class: Sequence[ClosedDetections], wild_regions: Regions
    ) -> list[ClassDetections]:
        """The detections of each class in closed and in wild images."""
        class_of_label = places_among(np.array(wild_regions.classes, dtype=object), self.classes)
        wild_class = class_of_label[wild_regions.label]
        names, (image,) = image_numbers(wild_regions.image_id)
        position_of_name = self._position[np.searchsorted(self._wild_names, names)]
        wild_position = position_of_name.astype(np.int32)[image]

        detections = []
        for k, closed in enumerate(closed_by_class):
            rows = wild_class == k
            detections.append(
                ClassDetections(closed, wild_regions.score[rows], wild_position[rows])
            )
        return detections

    def metrics(self, recalls: Sequence[float] = RECALLS) -> dict[str, Any]:
        """All metrics; see `evaluate`.

        Raises:
            ParameterError: a recall is not above 0 and at most 1.
        """
        recalls = floats(recalls, "recalls").tolist()
        map_open = None
        if self.ratio >= 1:
            map_open = self.mean_ap(1)
        return {
            "ratio": self.ratio,
            "map_closed": self.mean_ap(0),
            "map_open": map_open,
            "ratios": self.ratios.tolist(),
            "at_recall": {f"{recall:g}": self.at_recall(recall) for recall in recalls},
        }

    def wild_images(self, ratio: float) -> list[str]:
        """Names of the wild images at a wilderness ratio, or of all where there are fewer."""
        added = round(number(ratio, "ratio", at_least=0) * self._closed_count)
        positions = zip(self._wild_names, self._position.tolist(), strict=True)
        return [name for name, position in positions if position < added]

    def operating_points(self, recall: float) -> list[float | None]:
        """Each class's confidence at which it reaches the recall in closed images.

        Returns:
            None for a class that never reaches it.

        Raises:
            ParameterError: the recall is not above 0 and at most 1.
        """
        recall = number(recall, "recall", above=0, at_most=1)
        return [_operating_point(detections.closed, recall) for detections in self._detections]

    def at_recall(self, recall: float) -> dict[str, Any]:
        """Impact over `ratios` at one recall, and its averages (AWI); see `evaluate`.

        `impact` is FP_o / (TP_c + FP_c), summed over the classes that reach the recall;
        `impact_by_precision` the ratio of their mean precision in closed images to that with wild
        ones, minus 1 (see the module for the precision of the published code). None where no class
        reaches it.

        Raises:
            ParameterError: the recall is not above 0 and at most 1.
        """
        added = self.ratios * self._closed_count
        added = np.round(added) if self.protocol == "paper" else np.floor(added + 1e-9)

        true_counts = []
        closed_counts = []
        wild_counts = []
        points = self.operating_points(recall)
        for point, detections in zip(points, self._detections, strict=True):
            if point is None:
                continue
            is_above = detections.closed.score >= point
            wild_above = np.sort(detections.wild_image[detections.wild_score >= point])
            true_counts.append(np.sum(detections.closed.is_true[is_above]))
            closed_counts.append(np.sum(is_above))
            wild_counts.append(np.searchsorted(wild_above, added, side="left"))

        impact = np.full(len(added), np.nan)
        impact_by_precision = np.full(len(added), np.nan)
        if closed_counts:
            impact = np.sum(wild_counts, axis=0) / np.sum(closed_counts)
            if self.protocol == "paper":
                detected = np.array(closed_counts)[:, None] + wild_counts
                precision = np.mean(np.array(true_counts)[:, None] / detected, axis=0)
            else:
                largest = [self._mean_largest_precision(recall, count) for count in added]
                precision = np.array(largest)
            impact_by_precision = precision[0] / precision - 1
        return {
            "impact": [value(number) for number in impact],
            "impact_by_precision": [value(number) for number in impact_by_precision],
            "average_impact": value(mean_if_all_defined(impact[1:])),
            "average_impact_by_precision": value(mean_if_all_defined(impact_by_precision[1:])),
            "classes": len(closed_counts),
        }

    def _mean_largest_precision(self, recall: float, added: float) -> float:
        """Mean over the classes with detections of the published code's precision at a recall."""
        precisions = []
        for detections in self._detections:
            ranked = detections.ranked(added)
            if len(ranked):
                positives = detections.closed.positives
                precisions.append(published_code.largest_precision(ranked, positives, recall))
        return float(np.mean(precisions))

    def mean_ap(self, ratio: float) -> float | None:
        """11-point mAP (Pascal VOC 2007) over the classes that have objects; see the module.

        Args:
            ratio: Wilderness ratio.

        Raises:
            ParameterError: there are too few wild images for that ratio.
        """
        ratio = number(ratio, "ratio")
        if not 0 <= ratio <= self.ratio:
            raise ParameterError(
                f"there are wild images for ratios from 0 to {self.ratio:g}, not for {ratio:g}"
            )
        if not self._detections:
            return None
        added = round(ratio * self._closed_count)
        aps = []
        for detections in self._detections:
            kind = np.where(detections.ranked(added), TRUE, FALSE)
            ap = average_precision(kind, detections.closed.positives, points=11)
            if self.protocol == "published-code":
                ap = np.nan_to_num(ap) if len(kind) else np.array(np.nan)
            aps.append(ap)
        return value(mean_of_defined(np.array(aps)))

    def best_thresholds(
        self, betas: Sequence[float] = BETAS, step: float = RATIO_STEP
    ) -> dict[str, Any]:
        """Each class's threshold with the largest F_β at each wilderness ratio (Table 4).

        F_β = (1 + β²) precision · recall / (recall + β² precision), of the detections at or above
        the threshold in the closed images and in the wild ones up to the ratio. Of thresholds with
        equal F_β the highest is chosen.

        Args:
            betas: Weights of recall against precision, above 0.
            step: Between two ratios, above 0.

        Returns:
            ratios: 0, `step`, … up to `ratio`.
            betas: {β: {"mean": means over the classes, "classes": {class: the same}}}, each with
                lists over `ratios`: "f", "precision", "recall", "threshold", and "f_of_closed", the
                F_β of the threshold chosen at ratio 0. Classes of which no object is found are left
                out; "mean" is None without any.

        Raises:
            ParameterError: a β or the step is not above 0.
        """
        step = number(step, "step", above=0)
        betas = [number(beta, "betas", above=0) for beta in floats(betas, "betas").tolist()]
        ratios = np.arange(int(self.ratio / step + 1e-9) + 1) * step
        added = np.round(ratios * self._closed_count)
        values_by_beta = {f"{beta:g}": self._best_thresholds_at(beta, added) for beta in betas}
        return {"ratios": ratios.tolist(), "betas": values_by_beta}

    def _best_thresholds_at(self, beta: float, added: np.ndarray) -> dict[str, Any]:
        """`best_thresholds` of one β: "mean" and "classes".

        Args:
            beta: Weight of recall against precision.
            added: Numbers of wild images.
        """
        values_by_class = {}
        for name, detections in zip(self.classes, self._detections, strict=True):
            if np.any(detections.closed.is_true):
                values_by_class[name] = _best_thresholds(detections, added, beta)

        means = None
        if values_by_class:
            means = {}
            for metric in _THRESHOLD_METRICS:
                of_classes = [values[metric] for values in values_by_class.values()]
                means[metric] = np.mean(of_classes, axis=0).tolist()
        lists_by_class = {}
        for name, values in values_by_class.items():
            lists_by_class[name] = {metric: values[metric].tolist() for metric in values}
        return {"mean": means, "classes": lists_by_class}


#: Metrics of the best thresholds, in the order of results.
_THRESHOLD_METRICS = ("f", "precision", "recall", "threshold", "f_of_closed")


def _match(
    objects: Objects, regions: Regions, classes: Sequence[str], iou: float
) -> list[ClosedDetections]:
    """Detections of each class, matched as in `farther.metrics.closed_set`.

    Args:
        objects, regions: Ground truth of the closed images, and detections in them.
        classes: The known classes.
        iou: Smallest overlap of a detection and its object.
    """
    if not classes:
        return []
    known = ClosedSet.of(objects, regions, classes, max_detections=len(regions))
    matched = known.match([iou])
    positives = matched.positives.tolist()
    detections_by_class = []
    for k in range(len(classes)):
        closed = ClosedDetections(positives[k], matched.scores(0, k), matched.is_true(0, k))
        detections_by_class.append(closed)
    return detections_by_class


def _operating_point(detections: ClosedDetections, recall: float) -> float | None:
    """The highest confidence at which a class reaches a recall; None where it never does."""
    is_reached = np.cumsum(detections.is_true) >= recall * detections.positives - 1e-9
    if not detections.positives or not is_reached.any():
        return None
    return float(detections.score[np.argmax(is_reached)])


def _best_thresholds(
    detections: ClassDetections, added: np.ndarray, beta: float
) -> dict[str, np.ndarray]:
    """`Wilderness.best_thresholds` of one class that has a true positive.

    Args:
        detections: The class's detections.
        added: Numbers of wild images, ndarray of shape (R,).
        beta: Weight of recall against precision.

    Returns:
        {metric: ndarray of shape (R,)}.
    """
    score = detections.closed.score
    true_score = score[detections.closed.is_true]
    # F_β is largest at the score of a true positive: a threshold just above it only loses that one.
    threshold = np.unique(true_score)[::-1]
    true = _count_at_or_above(true_score, threshold)
    closed = _count_at_or_above(score, threshold)
    wild = []
    for images in added:
        wild_score = detections.wild_score[detections.wild_image < images]
        wild.append(_count_at_or_above(wild_score, threshold))

    recall = true / detections.closed.positives
    precision = true / (closed + np.array(wild))
    f = (1 + beta**2) * precision * recall / (recall + beta**2 * precision)
    best = np.argmax(f, axis=1)
    rows = np.arange(len(added))
    return {
        "f": f[rows, best],
        "precision": precision[rows, best],
        "recall": recall[best],
        "threshold": threshold[best],
        "f_of_closed": f[:, best[0]],
    }


def _count_at_or_above(score: np.ndarray, threshold: np.ndarray) -> np.ndarray:
    """Number of scores at or above each threshold, ndarray of the thresholds' shape."""
    falling = np.sort(score)[::-1]
    return np.searchsorted(-falling, -threshold, side="right")


def _refuse_other_images(regions: Regions, images: Collection[str], kind: str) -> None:
    """Raises an error for a region of an image that is not among some.

    Args:
        kind: "closed" or "wild".
    """
    other = set(regions.image_id) - set(images)
    if other:
        first = min(other)
        row = int(np.flatnonzero(regions.image_id == first)[0])
        raise DataError(f"{first!r} is not one of the {kind} images", row=row, field="image_id")
