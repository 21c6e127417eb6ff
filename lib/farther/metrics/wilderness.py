"""Loss of precision in images of unknown objects: wilderness impact and its causes (Dhamija et al., The Overlooked
Elephant of Object Detection, WACV 2020, doi:10.1109/WACV45572.2020.9093355).

*Closed* images show objects of the known classes, *wild* images show none: all detections in wild images are wrong.
The wilderness ratio is the number of wild images to that of closed ones. A class's operating point at recall r is the
highest confidence at which at least that share of its objects is found in the closed images.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from farther.errors import DataError, ParameterError
from farther.metrics.boxes import Pairs, image_numbers, pairs
from farther.metrics.closed_set import ClosedSet
from farther.metrics.matching import above_of_class
from farther.metrics.precision_recall import FALSE, TRUE, average_precision
from farther.metrics.weighting import mean_if_all_defined, mean_of_defined, value
from farther.tables import Objects, Regions

#: Recalls of the paper's Table 2.
RECALLS = (0.1, 0.3, 0.5)

#: Smallest overlap at which a detection is attributed to an object (Hoiem et al., 2012).
TOUCH = 0.1

CAUSES = (
    "correct",
    "localisation",
    "similar",
    "other_class",
    "background",
    "unknown_unknown",
    "mixed_unknown",
    "ignored",
)


def evaluate(
    objects: Objects,
    regions: Regions,
    closed_images: Collection[str],
    wild_regions: Regions,
    wild_images: Collection[str],
    *,
    recalls: Sequence[float] = RECALLS,
    seed: int = 0,
) -> dict[str, Any]:
    """Wilderness impact of one detector.

    Args:
        objects, regions: Ground truth of the closed images, and detections in them stored at a low threshold.
        closed_images: Names of all closed images, those without detections too.
        wild_regions, wild_images: The same of the wild images.
        recalls: Operating points.
        seed: Seed of the order in which wild images are added.

    Returns:
        ratio: Number of wild images per closed image.
        map_closed, map_open: 11-point mAP without wild images, and at wilderness ratio 1 (Table 1); None where there
            are too few.
        at_recall: {recall: {"impact", "impact_by_precision" (lists over `ratios`), "average_impact",
            "average_impact_by_precision", "classes" (that reach the recall)}}.
        ratios: 0, 0.1, 0.2, … up to `ratio`.

    Raises:
        DataError: there is no closed image, or a table shows an image that is not named.
        ParameterError: a recall is not above 0 and at most 1.

    >>> from farther.tables import Objects, Regions
    >>> box = [[0, 0, 10, 10]]
    >>> cat = {"region_id": [0], "box": box, "label": [0], "logits": [[1.0]], "classes": ("cat",)}
    >>> closed = Regions(image_id=["a"], score=[0.9], **cat)
    >>> wild = Regions(image_id=["b"], score=[0.95], **cat)  # more confident than the detection of the cat
    >>> objects = Objects(image_id=["a"], object_id=[0], box=box, category=["cat"])
    >>> evaluate(objects, closed, ["a"], wild, ["b"])["at_recall"]["0.5"]["impact"][-1]
    1.0
    """
    return Wilderness(objects, regions, closed_images, wild_regions, wild_images, seed=seed).metrics(recalls)


class Wilderness:
    """Detections in closed images, matched, and detections in wild images, in the order in which those are added.

    Args:
        objects, regions, closed_images, wild_regions, wild_images, seed: see `evaluate`.
        iou: Smallest overlap of a detection and its object. Detections choose by falling confidence the free object of
            their class they overlap most; a class's precision at recall r is that at its operating point.

    Raises:
        DataError: there is no closed image, or a table shows an image that is not named.
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
        seed: int = 0,
    ):
        if not closed_images:
            raise DataError("there is no closed image to compare with")
        _refuse_other_images(regions, closed_images, "closed")
        _refuse_other_images(wild_regions, wild_images, "wild")
        self.classes = tuple(regions.header.known_classes)
        self._closed_count = len(set(closed_images))
        names = sorted(set(wild_images))
        self.ratio = len(names) / self._closed_count
        steps = len(names) * 10 // self._closed_count
        self.ratios = np.arange(steps + 1) / 10

        matched = ClosedSet.of(objects, regions, self.classes, max_detections=len(regions) + 1).match([iou])
        self._positives = matched.positives.tolist()
        order = np.random.default_rng(seed).permutation(len(names))
        number = dict(zip(names, order.tolist(), strict=True))
        wild_class = np.array(wild_regions.classes, dtype=object)[wild_regions.label]
        wild_number = np.array([number[name] for name in wild_regions.image_id], dtype=np.int64)
        #: Of each class: scores (falling) and truth of the detections in closed images; scores and images of the wild.
        self._detections = []
        for k, name in enumerate(self.classes):
            wild = wild_class == name
            closed = matched.scores(0, k), matched.is_true(0, k)
            self._detections.append((*closed, wild_regions.score[wild].astype(np.float64), wild_number[wild]))

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

    def operating_points(self, recall: float) -> list[float | None]:
        """Each class's confidence at which it reaches the recall in closed images; None where it never does.

        Raises:
            ParameterError: the recall is not above 0 and at most 1.
        """
        if not 0 < recall <= 1:
            raise ParameterError(f"a recall is above 0 and at most 1, found {recall}")
        points: list[float | None] = []
        for positives, (score, is_true, *_) in zip(self._positives, self._detections, strict=True):
            reached = np.cumsum(is_true) >= recall * positives - 1e-9
            points.append(float(score[np.argmax(reached)]) if positives and reached.any() else None)
        return points

    def at_recall(self, recall: float) -> dict[str, Any]:
        """Impact over `ratios` at one recall, and its averages (AWI); see `evaluate`.

        `impact` is FP_o / (TP_c + FP_c), summed over the classes that reach the recall; `impact_by_precision` the ratio
        of their mean precision in closed images to that with wild ones, minus 1. None where no class reaches it.

        Raises:
            ParameterError: the recall is not above 0 and at most 1.
        """
        added = np.round(self.ratios * self._closed_count)
        true, closed, wild = [], [], []
        for point, of_class in zip(self.operating_points(recall), self._detections, strict=True):
            if point is not None:
                score, is_true, wild_score, wild_image = of_class
                true.append(np.sum(is_true[score >= point]))
                closed.append(np.sum(score >= point))
                wild.append(np.searchsorted(np.sort(wild_image[wild_score >= point]), added, side="left"))
        impact = by_precision = np.full(len(added), np.nan)
        if closed:
            impact = np.sum(wild, axis=0) / np.sum(closed)
            precision = np.mean(np.array(true)[:, None] / (np.array(closed)[:, None] + wild), axis=0)
            by_precision = precision[0] / precision - 1
        return {
            "impact": [value(one) for one in impact],
            "impact_by_precision": [value(one) for one in by_precision],
            "average_impact": value(mean_if_all_defined(impact[1:])),
            "average_impact_by_precision": value(mean_if_all_defined(by_precision[1:])),
            "classes": len(closed),
        }

    def mean_ap(self, ratio: float) -> float | None:
        """11-point mAP (Pascal VOC 2007) over the classes that have objects, at a wilderness ratio.

        Raises:
            ParameterError: there are too few wild images for that ratio.
        """
        if not 0 <= ratio <= self.ratio:
            raise ParameterError(f"there are wild images for ratios from 0 to {self.ratio:g}, not for {ratio:g}")
        aps = []
        for positives, (score, is_true, wild_score, wild_image) in zip(self._positives, self._detections, strict=True):
            wild = wild_score[wild_image < round(ratio * self._closed_count)]
            order = np.argsort(-np.concatenate([score, wild]), kind="stable")
            kind = np.where(np.append(is_true, np.zeros(len(wild), dtype=bool))[order], TRUE, FALSE)
            aps.append(average_precision(kind, positives, points=11))
        return value(mean_of_defined(np.array(aps))) if aps else None


@dataclass(frozen=True)
class Diagnosis:
    """How detections are attributed to causes.

    Args:
        similar: Groups of classes that are easily confused.
        wild_images: Names of the images without known objects.
        iou: Smallest overlap of a correct detection of the right class.
        touch: Smallest overlap at which a detection is attributed to an object.
    """

    similar: Sequence[Collection[str]] = ()
    wild_images: Collection[str] = ()
    iou: float = 0.5
    touch: float = TOUCH


def diagnose(
    objects: Objects, regions: Regions, points: Mapping[str, float | None], settings: Diagnosis | None = None
) -> np.ndarray:
    """The cause of each detection (Hoiem et al., 2012; unknowns as in the paper's Section 4.1).

    Args:
        objects: Ground truth; categories that are not keys of `points` are unknown.
        regions: N detections.
        points: Each known class's operating point; detections below it, and of classes with None, have no cause.
        settings: How detections are attributed.

    Returns:
        ndarray of shape (N,), one of `CAUSES`, or "" for no cause. The first that fits: correct; localisation (its
        class, but too little overlap, or the object is taken); similar (an object of a similar class); other_class;
        unknown_unknown (a labelled unknown object); ignored (in a crowd); mixed_unknown (nothing labelled, in a wild
        image); background (nothing labelled, elsewhere). The paper calls the last two together mixed unknowns.
    """
    settings = settings or Diagnosis()
    name = np.array(regions.classes, dtype=object)[regions.label]
    cause = np.full(len(regions), "", dtype=object)
    above = above_of_class(regions, points)
    wild = np.isin(regions.image_id.astype(str), list(settings.wild_images))
    cause[above] = np.where(wild, "mixed_unknown", "background")[above]

    near, is_crowd = _touching(objects, regions, above, settings.touch)
    group = {member: number for number, members in enumerate(settings.similar) for member in members}
    category, detected_as = objects.category[near.target], name[near.region]
    known = np.isin(category.astype(str), list(points))
    alike = np.array(
        [a in group and group.get(a) == group.get(b) for a, b in zip(detected_as, category, strict=True)], dtype=bool
    )
    crowd = is_crowd[near.target]
    # From the weakest claim to the strongest: a later one overwrites.
    for claim, fits in (
        ("ignored", crowd),
        ("unknown_unknown", ~known & ~crowd),
        ("other_class", known & ~crowd),
        ("similar", known & alike & ~crowd),
        ("localisation", (detected_as == category) & ~crowd),
    ):
        cause[near.region[fits]] = claim

    rows = np.flatnonzero(above)
    of_known = ClosedSet.of(objects, regions[rows], tuple(points), max_detections=len(rows) + 1)
    is_true = of_known.match([settings.iou]).kind[0] == TRUE
    cause[rows[of_known.detections.row[is_true]]] = "correct"
    return cause


def confusion(
    objects: Objects, regions: Regions, points: Mapping[str, float | None], touch: float = TOUCH
) -> dict[str, dict[str, int]]:
    """Classes that objects are detected as, by category (the paper's Fig. 4).

    Args:
        objects, regions, points: see `diagnose`.
        touch: see `Diagnosis`.

    Returns:
        {category of the object: {class of the detection: count}}, each detection counted for the object it overlaps
        most; unknown categories beside the known ones.
    """
    name = np.array(regions.classes, dtype=object)[regions.label]
    near, is_crowd = _touching(objects, regions, above_of_class(regions, points), touch)
    best = near.preferred_first(is_crowd, objects.object_id).first_of_each_region()
    counts = Counter(zip(objects.category[best.target], name[best.region], strict=True))
    table: dict[str, dict[str, int]] = {}
    for (category, detected_as), count in sorted(counts.items()):
        table.setdefault(category, {})[detected_as] = count
    return table


def _touching(objects: Objects, regions: Regions, above: np.ndarray, touch: float) -> tuple[Pairs, np.ndarray]:
    """Pairs of a chosen detection and an object that overlap by `touch`; and the objects that are not counted."""
    is_crowd = objects.is_crowd | objects.is_difficult
    _, (region_image, object_image) = image_numbers(regions.image_id, objects.image_id)
    near = pairs(regions.box, region_image, objects.box, object_image, is_crowd, touch)
    return near[above[near.region]], is_crowd


def _refuse_other_images(regions: Regions, images: Collection[str], what: str) -> None:
    other = set(regions.image_id) - set(images)
    if other:
        row = int(np.flatnonzero(regions.image_id == min(other))[0])
        raise DataError(f"{min(other)!r} is not one of the {what} images", row=row, field="image_id")
