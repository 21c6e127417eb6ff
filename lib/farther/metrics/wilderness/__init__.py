"""Loss of precision in images of unknown objects: wilderness impact, operating points (Dhamija et al., The Overlooked
Elephant of Object Detection, WACV 2020, doi:10.1109/WACV45572.2020.9093355).

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
from farther.metrics.closed_set import ClosedSet
from farther.metrics.matching.boxes import image_numbers, places_among
from farther.metrics.open_set.outcomes import Protocol
from farther.metrics.precision_recall import FALSE, TRUE, average_precision
from farther.metrics.weighting import mean_if_all_defined, mean_of_defined, value
from farther.metrics.wilderness import published_code
from farther.tables import Objects, Regions

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
    >>> cat = {"region_id": [0], "box": box, "label": [0], "logits": [[1.0]], "classes": ("cat",)}
    >>> closed = Regions(image_id=["a"], score=[0.9], **cat)
    >>> wild = Regions(
    ...     image_id=["b"], score=[0.95], **cat
    ... )  # more confident than the detection of the cat
    >>> objects = Objects(image_id=["a"], object_id=[0], box=box, category=["cat"])
    >>> evaluate(objects, closed, ["a"], wild, ["b"])["at_recall"]["0.5"]["impact"][-1]
    1.0
    """
    found = Wilderness(
        objects, regions, closed_images, wild_regions, wild_images, protocol=protocol, seed=seed
    )
    return found.metrics(recalls)


class Wilderness:
    """Detections in closed images, matched, and detections in wild images, in the order in which those are added.

    Args:
        objects, regions, closed_images, wild_regions, wild_images, protocol, seed: see `evaluate`.
        iou: Smallest overlap of a detection and its object. Detections choose by falling confidence
        the free object of
            their class they overlap most; a class's precision at recall r is that at its operating
            point.

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
        if protocol not in get_args(Protocol):
            raise ParameterError(
                f"unknown protocol {protocol!r}. Known: {', '.join(get_args(Protocol))}"
            )
        if not closed_images:
            raise DataError("there is no closed image to compare with")
        _refuse_other_images(regions, closed_images, "closed")
        _refuse_other_images(wild_regions, wild_images, "wild")
        self.protocol = protocol
        self.classes = tuple(regions.header.known_classes)
        self._closed_count = len(set(closed_images))
        self._names = names = sorted(set(wild_images))
        self.ratio = len(names) / self._closed_count
        steps = len(names) * 10 // self._closed_count
        self.ratios = np.arange(steps + 1) / 10

        if protocol == "paper":
            matched = ClosedSet.of(
                objects, regions, self.classes, max_detections=len(regions)
            ).match([iou])
            self._positives = matched.positives.tolist()
            closed = [
                (matched.scores(0, k), matched.is_true(0, k)) for k in range(len(self.classes))
            ]
        else:
            self._positives, closed = published_code.match(objects, regions, self.classes, iou)
        self._order = np.random.default_rng(seed).permutation(len(names))
        wild_class = places_among(np.array(wild_regions.classes, dtype=object), self.classes)[
            wild_regions.label
        ]
        shown, (image,) = image_numbers(wild_regions.image_id)
        wild_number = self._order[np.searchsorted(names, shown)].astype(np.int32)[image]
        #: Of each class: scores (falling) and truth of the detections in closed images; scores and
        #: images of the wild.
        self._detections = []
        for k in range(len(self.classes)):
            wild = wild_class == k
            self._detections.append((*closed[k], wild_regions.score[wild], wild_number[wild]))

    def metrics(self, recalls: Sequence[float] = RECALLS) -> dict[str, Any]:
        """All metrics; see `evaluate`.

        Raises:
            ParameterError: a recall is not above 0 and at most 1.
        """
        return {
            "ratio": self.ratio,
            "map_closed": self.mean_ap(0),
            "map_open": self.mean_ap(1) if self.ratio >= 1 else None,
            "ratios": self.ratios.tolist(),
            "at_recall": {f"{recall:g}": self.at_recall(recall) for recall in recalls},
        }

    def wild_images(self, ratio: float) -> list[str]:
        """Names of the wild images at a wilderness ratio, or of all where there are fewer."""
        added = round(ratio * self._closed_count)
        return [
            name
            for name, place in zip(self._names, self._order.tolist(), strict=True)
            if place < added
        ]

    def operating_points(self, recall: float) -> list[float | None]:
        """Each class's confidence at which it reaches the recall in closed images; None where it never does.

        Raises:
            ParameterError: the recall is not above 0 and at most 1.
        """
        if not 0 < recall <= 1:
            raise ParameterError(f"expected a recall above 0 and at most 1, found {recall}")
        points: list[float | None] = []
        for positives, (score, is_true, *_) in zip(self._positives, self._detections, strict=True):
            reached = np.cumsum(is_true) >= recall * positives - 1e-9
            points.append(float(score[np.argmax(reached)]) if positives and reached.any() else None)
        return points

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
        true, closed, wild = [], [], []
        for point, of_class in zip(self.operating_points(recall), self._detections, strict=True):
            if point is not None:
                score, is_true, wild_score, wild_image = of_class
                true.append(np.sum(is_true[score >= point]))
                closed.append(np.sum(score >= point))
                wild.append(
                    np.searchsorted(np.sort(wild_image[wild_score >= point]), added, side="left")
                )
        impact = by_precision = np.full(len(added), np.nan)
        if closed:
            impact = np.sum(wild, axis=0) / np.sum(closed)
            if self.protocol == "paper":
                precision = np.mean(
                    np.array(true)[:, None] / (np.array(closed)[:, None] + wild), axis=0
                )
            else:
                precision = np.array(
                    [self._mean_largest_precision(recall, count) for count in added]
                )
            by_precision = precision[0] / precision - 1
        return {
            "impact": [value(one) for one in impact],
            "impact_by_precision": [value(one) for one in by_precision],
            "average_impact": value(mean_if_all_defined(impact[1:])),
            "average_impact_by_precision": value(mean_if_all_defined(by_precision[1:])),
            "classes": len(closed),
        }

    def _ranked(self, k: int, added: float) -> np.ndarray:
        """Truth of the detections of class k by falling confidence, in closed images and so many wild ones."""
        score, is_true, wild_score, wild_image = self._detections[k]
        wild = wild_score[wild_image < added]
        order = np.argsort(-np.concatenate([score, wild]), kind="stable")
        truth: np.ndarray = np.append(is_true, np.zeros(len(wild), dtype=bool))[order]
        return truth

    def _mean_largest_precision(self, recall: float, added: float) -> float:
        ranked = [self._ranked(k, added) for k in range(len(self.classes))]
        each = zip(ranked, self._positives, strict=True)
        return float(
            np.mean([published_code.largest_precision(r, n, recall) for r, n in each if len(r)])
        )

    def mean_ap(self, ratio: float) -> float | None:
        """11-point mAP (Pascal VOC 2007) over the classes that have objects, at a wilderness ratio; see the module.

        Raises:
            ParameterError: there are too few wild images for that ratio.
        """
        if not 0 <= ratio <= self.ratio:
            raise ParameterError(
                f"there are wild images for ratios from 0 to {self.ratio:g}, not for {ratio:g}"
            )
        aps = []
        for k, positives in enumerate(self._positives):
            kind = np.where(self._ranked(k, round(ratio * self._closed_count)), TRUE, FALSE)
            ap = average_precision(kind, positives, points=11)
            if self.protocol == "published-code":
                ap = np.nan_to_num(ap) if len(kind) else np.array(np.nan)
            aps.append(ap)
        return value(mean_of_defined(np.array(aps))) if aps else None

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
        if not (step > 0 and all(beta > 0 for beta in betas)):
            raise ParameterError(f"step and betas are above 0, found {step} and {list(betas)}")
        ratios = np.arange(int(self.ratio / step + 1e-9) + 1) * step
        added = np.round(ratios * self._closed_count)
        found: dict[str, Any] = {"ratios": ratios.tolist(), "betas": {}}
        for beta in betas:
            each = {
                name: _best_thresholds(of_class, positives, added, beta)
                for name, positives, of_class in zip(
                    self.classes, self._positives, self._detections, strict=True
                )
                if np.any(of_class[1])
            }
            mean = (
                {part: np.mean([of[part] for of in each.values()], axis=0) for part in _PARTS}
                if each
                else None
            )
            found["betas"][f"{beta:g}"] = {
                "mean": mean and {part: values.tolist() for part, values in mean.items()},
                "classes": {
                    name: {part: of[part].tolist() for part in _PARTS} for name, of in each.items()
                },
            }
        return found


_PARTS = ("f", "precision", "recall", "threshold", "f_of_closed")


def _best_thresholds(
    detections: tuple[np.ndarray, ...], positives: int, added: np.ndarray, beta: float
) -> dict[str, np.ndarray]:
    """`Wilderness.best_thresholds` of one class that has a true positive, one value per number of `added` images."""
    score, is_true, wild_score, wild_image = detections
    # F_β is largest at the score of a true positive: a threshold just above it only loses that one.
    threshold = np.unique(score[is_true])[::-1]
    true = np.searchsorted(-np.sort(score[is_true])[::-1], -threshold, side="right")
    closed = np.searchsorted(-score, -threshold, side="right")
    recall = true / positives
    wild = [
        np.searchsorted(-np.sort(wild_score[wild_image < n])[::-1], -threshold, side="right")
        for n in added
    ]
    precision = true / (closed + np.array(wild))
    f = (1 + beta**2) * precision * recall / (recall + beta**2 * precision)
    at, best = np.arange(len(added)), np.argmax(f, axis=1)
    return {
        "f": f[at, best],
        "precision": precision[at, best],
        "recall": recall[best],
        "threshold": threshold[best],
        "f_of_closed": f[:, best[0]],
    }


def _refuse_other_images(regions: Regions, images: Collection[str], what: str) -> None:
    other = set(regions.image_id) - set(images)
    if other:
        row = int(np.flatnonzero(regions.image_id == min(other))[0])
        raise DataError(
            f"{min(other)!r} is not one of the {what} images", row=row, field="image_id"
        )
