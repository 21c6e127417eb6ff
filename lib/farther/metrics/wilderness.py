"""What images full of unknown objects do to a detector's precision (Dhamija et al., The Overlooked Elephant of Object
Detection, WACV 2020).

*Closed* are the images with objects of the known classes, *wild* the images without any: all detections in those are
wrong. The wilderness ratio is the number of wild images to that of closed ones. A class's operating point at recall r
is the highest confidence at which at least that share of its objects is found in the closed images.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from farther.errors import DataError, ParameterError
from farther.metrics.boxes import image_numbers, pairs
from farther.metrics.closed_set import IGNORED, TRUE, Labelled
from farther.metrics.matching import assign
from farther.metrics.precision_recall import Curve, sampled_ap
from farther.tables import Objects, Regions

Protocol = Literal["paper", "published-code"]

#: Recalls of the paper's Table 2.
RECALLS = (0.1, 0.3, 0.5)

#: Weights of recall against precision in the paper's Table 4.
BETAS = (0.5, 1.0, 1.5)

#: Overlap from which on a detection has to do with an object (Hoiem et al., 2012).
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
    protocol: Protocol = "paper",
    seed: int = 0,
) -> dict[str, Any]:
    """Wilderness impact of one detector.

    Args:
        objects, regions: Ground truth of the closed images, and detections in them stored at a low threshold.
        closed_images: Names of all closed images, those without detections too.
        wild_regions, wild_images: The same of the wild images.
        recalls: Operating points.
        protocol: see `Wilderness`.
        seed: Of the order in which wild images are added.

    Returns:
        ratio: How many wild images there are to a closed one.
        map_closed, map_open: 11-point mAP without wild images, and at wilderness ratio 1 (Table 1); None where there
            are too few.
        at_recall: {recall: {"impact", "impact_by_precision" (lists over `ratios`), "average_impact",
            "average_impact_by_precision", "classes" (that reach the recall)}}.
        ratios: 0, 0.1, 0.2, … up to `ratio`.

    Raises:
        DataError: there is no closed image, or a table shows an image that is not named.
        ParameterError: the protocol is unknown or a recall is not above 0 and at most 1.
    """
    wild = Wilderness(objects, regions, closed_images, wild_regions, wild_images, protocol=protocol, seed=seed)
    return wild.figures(recalls)


class Wilderness:
    """Detections in closed images, judged, and detections in wild images, in the order in which those are added.

    Args:
        objects, regions, closed_images, wild_regions, wild_images, seed: see `evaluate`.
        classes: Names of the known classes; those of `regions` when None.
        iou: How much a detection must overlap its object.
        protocol: "paper": detections choose by falling confidence the free object of their class they overlap most,
            and a class's precision at recall r is that at its operating point. "published-code": a detection is right
            if the object it overlaps most, of any class, has its class and no earlier row got it; and precision is
            made monotonic first: the largest at recall r or more.

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
        classes: Sequence[str] | None = None,
        iou: float = 0.5,
        protocol: Protocol = "paper",
        seed: int = 0,
    ):
        if protocol not in get_args(Protocol):
            raise ParameterError(f"unknown protocol {protocol!r}. Known: {', '.join(get_args(Protocol))}")
        if not closed_images:
            raise DataError("there is no closed image to compare with")
        _refuse_strangers(regions, closed_images, "closed")
        _refuse_strangers(wild_regions, wild_images, "wild")
        self.protocol = protocol
        self.classes = tuple(regions.header.known_classes if classes is None else classes)
        self._closed_count = len(set(closed_images))
        names = sorted(set(wild_images))
        self.ratio = len(names) / self._closed_count
        steps = len(names) * 10 // self._closed_count
        self.ratios = np.arange(steps + 1) / 10

        judge = _judged if protocol == "paper" else _judged_by_row_order
        self._closed = judge(objects, regions, self.classes, iou)
        order = np.random.default_rng(seed).permutation(len(names))
        turn = dict(zip(names, order.tolist(), strict=True))
        wild_name = np.array(wild_regions.classes, dtype=object)[wild_regions.label]
        wild_turn = np.array([turn[name] for name in wild_regions.image_id], dtype=np.int64)
        self._wild = []
        for name in self.classes:
            rows = np.flatnonzero(wild_name == name)
            self._wild.append((wild_regions.score[rows].astype(np.float64), wild_turn[rows]))

    def figures(self, recalls: Sequence[float] = RECALLS) -> dict[str, Any]:
        """All figures; see `evaluate`.

        Raises:
            ParameterError: a recall is not above 0 and at most 1.
        """
        return {
            "ratio": self.ratio,
            "map_closed": self.mean_ap(0.0),
            "map_open": self.mean_ap(1.0) if self.ratio >= 1 else None,
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
        return [ranked.confidence_at(recall) for ranked in self._closed]

    def at_recall(self, recall: float) -> dict[str, Any]:
        """Impact over `ratios` at one recall, and its averages (AWI); see `evaluate`."""
        pooled = self.impact_over(recall, self.ratios)
        by_precision = self.impact_by_precision_over(recall, self.ratios)
        return {
            "impact": pooled,
            "impact_by_precision": by_precision,
            "average_impact": _average(pooled[1:]),
            "average_impact_by_precision": _average(by_precision[1:]),
            "classes": sum(point is not None for point in self.operating_points(recall)),
        }

    def impact(self, recall: float, ratio: float) -> float | None:
        """FP_o / (TP_c + FP_c), counts summed over the classes that reach the recall; None where none does.

        Raises:
            ParameterError: the recall is not above 0 and at most 1, or there are too few wild images for that ratio.
        """
        return self.impact_over(recall, [ratio])[0]

    def impact_over(self, recall: float, ratios: Sequence[float] | np.ndarray) -> list[float | None]:
        """`impact` at each of some ratios."""
        added = self._added(ratios)
        closed, wild = 0, np.zeros(len(added))
        for k, point in self._reached(recall):
            closed += int(np.sum(self._closed[k].score >= point))
            wild += self._wild_made(k, point, added)
        return (wild / closed).tolist() if closed else [None] * len(added)

    def impact_by_precision(self, recall: float, ratio: float) -> float | None:
        """Mean precision over classes in closed images to that with wild ones, minus 1; None where no class counts.

        Raises:
            ParameterError: see `impact`.
        """
        return self.impact_by_precision_over(recall, [ratio])[0]

    def impact_by_precision_over(self, recall: float, ratios: Sequence[float] | np.ndarray) -> list[float | None]:
        """`impact_by_precision` at each of some ratios."""
        added = np.append(0, self._added(ratios))
        points = self._reached(recall)
        if not points:
            return [None] * (len(added) - 1)
        mean = np.stack([self._precision(k, recall, point, added) for k, point in points], axis=1).mean(axis=1)
        return (mean[0] / mean[1:] - 1).tolist()

    def mean_ap(self, ratio: float) -> float | None:
        """11-point mAP (Pascal VOC 2007) over the classes that have objects, at a wilderness ratio.

        Raises:
            ParameterError: there are too few wild images for that ratio.
        """
        aps = [sampled_ap(self._curve(k, ratio), 11) for k, ranked in enumerate(self._closed) if ranked.positives > 0]
        return float(np.mean(aps)) if aps else None

    def best_f_table(self, betas: Sequence[float] = BETAS) -> dict[str, dict[str, dict[str, dict[str, float] | None]]]:
        """`best_f` of each class at wilderness ratios 0, 1, 2, … (the paper's Table 4): {class: {β: {ratio: …}}}."""
        ratios = range(int(self.ratio) + 1)
        return {
            name: {f"{beta:g}": {f"{ratio:g}": self.best_f(name, beta, ratio) for ratio in ratios} for beta in betas}
            for name in self.classes
        }

    def best_f(self, class_name: str, beta: float, ratio: float) -> dict[str, float] | None:
        """The confidence with the best F_β for one class at a wilderness ratio (the paper's Table 4).

        Returns:
            f, precision, recall, threshold; None where the class has no object or finds none.

        Raises:
            ParameterError: the class is unknown, or there are too few wild images for that ratio.
        """
        if class_name not in self.classes:
            raise ParameterError(f"unknown class {class_name!r}. Known: {', '.join(self.classes)}")
        k = self.classes.index(class_name)
        if not self._closed[k].positives:
            return None
        score, curve = self._ranked(k, ratio).score, self._curve(k, ratio)
        weighted = curve.recall + beta**2 * curve.precision
        product = (1 + beta**2) * curve.precision * curve.recall
        f = np.divide(product, weighted, out=np.zeros_like(weighted), where=weighted > 0)
        f[:-1][score[:-1] == score[1:]] = 0
        if not f.any():
            return None
        best = int(np.argmax(f))
        figures = {"f": f[best], "precision": curve.precision[best], "recall": curve.recall[best]}
        return {name: float(value) for name, value in (figures | {"threshold": score[best]}).items()}

    def _reached(self, recall: float) -> list[tuple[int, float]]:
        """Classes that reach the recall, with their operating points."""
        return [(k, point) for k, point in enumerate(self.operating_points(recall)) if point is not None]

    def _precision(self, k: int, recall: float, point: float, added: np.ndarray) -> np.ndarray:
        """Precision of class k with so many wild images added, ndarray of shape (R,)."""
        closed = self._closed[k]
        if self.protocol == "published-code":
            curves = [Curve.of(self._with_wild(k, n).is_true, closed.positives) for n in added.tolist()]
            return np.array([np.max(curve.precision[curve.recall >= recall - 1e-9]) for curve in curves])
        true, made = np.sum(closed.is_true[closed.score >= point]), np.sum(closed.score >= point)
        return true / (made + self._wild_made(k, point, added))

    def _added(self, ratios: Sequence[float] | np.ndarray) -> np.ndarray:
        """How many wild images there are at each ratio, ndarray of shape (R,), int64."""
        asked = np.asarray(ratios, dtype=np.float64)
        wrong = asked[(asked < 0) | (asked > self.ratio + 1e-9)]
        if len(wrong):
            raise ParameterError(f"there are wild images for ratios from 0 to {self.ratio:g}, not for {wrong[0]:g}")
        return np.round(asked * self._closed_count).astype(np.int64)

    def _wild_made(self, k: int, point: float, added: np.ndarray) -> np.ndarray:
        """Detections of class k in that many wild images, from a confidence on, ndarray of shape (R,)."""
        score, turn = self._wild[k]
        return np.searchsorted(np.sort(turn[score >= point]), added, side="left")

    def _with_wild(self, k: int, added: int) -> _Ranked:
        score, turn = self._wild[k]
        return self._closed[k].with_false(score[turn < added])

    def _ranked(self, k: int, ratio: float) -> _Ranked:
        return self._with_wild(k, int(self._added([ratio])[0]))

    def _curve(self, k: int, ratio: float) -> Curve:
        return Curve.of(self._ranked(k, ratio).is_true, self._closed[k].positives)


@dataclass(frozen=True)
class _Ranked:
    """Detections of one class by falling confidence, those that are ignored left out."""

    score: np.ndarray
    is_true: np.ndarray
    positives: int

    def confidence_at(self, recall: float) -> float | None:
        reached = np.cumsum(self.is_true) >= recall * self.positives - 1e-9
        return float(self.score[np.argmax(reached)]) if self.positives and reached.any() else None

    def with_false(self, score: np.ndarray) -> _Ranked:
        merged = np.concatenate([self.score, score])
        order = np.argsort(-merged, kind="stable")
        is_true = np.concatenate([self.is_true, np.zeros(len(score), dtype=bool)])
        return _Ranked(merged[order], is_true[order], self.positives)


def _judged(objects: Objects, regions: Regions, classes: Sequence[str], iou: float) -> list[_Ranked]:
    verdicts = Labelled(objects, regions, classes, max_detections=len(regions) + 1).verdicts([iou])
    result = []
    for k in range(len(classes)):
        rows = slice(verdicts.bounds[k], verdicts.bounds[k + 1])
        kind, score = verdicts.kind[0, rows], verdicts.score[rows]
        counts = kind != IGNORED
        result.append(_Ranked(score[counts], kind[counts] == TRUE, int(verdicts.positives[k])))
    return result


def _judged_by_row_order(objects: Objects, regions: Regions, classes: Sequence[str], iou: float) -> list[_Ranked]:
    known = objects[np.isin(objects.category.astype(str), list(classes))]
    not_sought = known.is_crowd | known.is_difficult
    _, (region_image, object_image) = image_numbers(regions.image_id, known.image_id)
    found = pairs(regions.box, region_image, known.box, object_image, not_sought, iou)
    best = found.preferred_first(not_sought, known.object_id).first_of_each_region()
    name = np.array(regions.classes, dtype=object)[regions.label]
    ignored = np.zeros(len(regions), dtype=bool)
    ignored[best.region[not_sought[best.target]]] = True
    right_class = name[best.region] == known.category[best.target]
    matched = assign(best[right_class & ~not_sought[best.target]], np.arange(len(regions)), not_sought)
    result = []
    for class_name in classes:
        rows = np.flatnonzero((name == class_name) & ~ignored)
        rows = rows[np.argsort(-regions.score[rows], kind="stable")]
        positives = int(np.sum((known.category == class_name) & ~not_sought))
        result.append(_Ranked(regions.score[rows].astype(np.float64), matched[rows] >= 0, positives))
    return result


def impact_on(
    objects: Objects,
    regions: Regions,
    known_classes: Sequence[str],
    recall: float = 0.8,
    iou: float = 0.5,
) -> float | None:
    """Wilderness impact where known and unknown objects share the images (FP_o / (TP_c + FP_c), Joseph et al., 2021).

    Args:
        objects: Ground truth of both; what is not of a known class is unknown.
        regions: Detections that are kept as known.
        known_classes: Names of the known classes.
        recall: Operating point of each class.

    Returns:
        Detections from the operating points on that lie on an unknown object and on no known one of their class, to
        all the others; None where no class reaches the recall, or there are no others.

    Raises:
        ParameterError: the recall is not above 0 and at most 1.
    """
    if not 0 < recall <= 1:
        raise ParameterError(f"a recall is above 0 and at most 1, found {recall}")
    points = {
        name: ranked.confidence_at(recall)
        for name, ranked in zip(known_classes, _judged(objects, regions, known_classes, iou), strict=True)
    }
    cause = diagnose(objects, regions, points, iou=iou, touch=iou)
    unknown = int(np.sum(cause == "unknown_unknown"))
    others = int(np.sum((cause != "") & (cause != "ignored"))) - unknown
    return unknown / others if others else None


def diagnose(
    objects: Objects,
    regions: Regions,
    points: Mapping[str, float | None],
    *,
    similar: Sequence[Collection[str]] = (),
    wild_images: Collection[str] = (),
    iou: float = 0.5,
    touch: float = TOUCH,
) -> np.ndarray:
    """Why each detection is right or wrong (Hoiem et al., 2012; unknowns as in the paper's Section 4.1).

    Args:
        objects: Ground truth; categories that are no key of `points` are unknown.
        regions: N detections.
        points: Each known class's operating point; detections below it, and of classes with None, are not looked at.
        similar: Groups of classes that are easily taken for each other.
        wild_images: Names of the images without known objects.
        iou: From which overlap on a detection of the right class is correct.
        touch: From which overlap on a detection has to do with an object.

    Returns:
        ndarray of shape (N,), one of `CAUSES`, or "" for what is not looked at. The first that fits: correct;
        localisation (its class, but too little overlap, or the object is taken); similar (an object of a similar
        class); other_class; unknown_unknown (a labelled unknown object); ignored (in a crowd); mixed_unknown (nothing
        labelled, in a wild image); background (nothing labelled, elsewhere). The paper calls the last two together
        mixed unknowns.
    """
    name = np.array(regions.classes, dtype=object)[regions.label]
    cause = np.full(len(regions), "", dtype=object)
    made = _reach(regions, points)
    wild = np.isin(regions.image_id.astype(str), list(wild_images))
    cause[made] = np.where(wild, "mixed_unknown", "background")[made]

    is_crowd = objects.is_crowd | objects.is_difficult
    _, (region_image, object_image) = image_numbers(regions.image_id, objects.image_id)
    near = pairs(regions.box, region_image, objects.box, object_image, is_crowd, touch)
    near = near[made[near.region]]
    group = {member: number for number, members in enumerate(similar) for member in members}
    theirs, own = objects.category[near.target], name[near.region]
    known = np.isin(theirs.astype(str), list(points))
    alike = np.array([a in group and group.get(a) == group.get(b) for a, b in zip(own, theirs, strict=True)], bool)
    crowd = is_crowd[near.target]
    # From the weakest claim to the strongest: a later one overwrites.
    for claim, fits in (
        ("ignored", crowd),
        ("unknown_unknown", ~known & ~crowd),
        ("other_class", known & ~crowd),
        ("similar", known & alike & ~crowd),
        ("localisation", (own == theirs) & ~crowd),
    ):
        cause[near.region[fits]] = claim

    rows = np.flatnonzero(made)
    labelled = Labelled(objects, regions[rows], tuple(points), max_detections=len(rows) + 1)
    verdict = labelled.verdicts([iou]).kind[0]
    cause[rows[labelled.region_row[verdict == TRUE]]] = "correct"
    return cause


def confusion(
    objects: Objects, regions: Regions, points: Mapping[str, float | None], touch: float = TOUCH
) -> dict[str, dict[str, int]]:
    """What the detections that touch an object take it for (the paper's Fig. 4).

    Args:
        objects, regions, points, touch: see `diagnose`.

    Returns:
        {category of the object: {class of the detection: count}}, each detection counted for the object it overlaps
        most; unknown categories beside the known ones.
    """
    name = np.array(regions.classes, dtype=object)[regions.label]
    made = _reach(regions, points)
    is_crowd = objects.is_crowd | objects.is_difficult
    _, (region_image, object_image) = image_numbers(regions.image_id, objects.image_id)
    near = pairs(regions.box, region_image, objects.box, object_image, is_crowd, touch)
    best = near[made[near.region]].preferred_first(is_crowd, objects.object_id).first_of_each_region()
    counts = Counter(zip(objects.category[best.target], name[best.region], strict=True))
    table: dict[str, dict[str, int]] = {}
    for (category, taken_for), count in sorted(counts.items()):
        table.setdefault(category, {})[taken_for] = count
    return table


def _reach(regions: Regions, points: Mapping[str, float | None]) -> np.ndarray:
    """Which detections reach the operating point of their class, ndarray of shape (N,), bool."""
    given = [points.get(name) for name in regions.classes]
    levels = np.array([np.inf if point is None else point for point in given], dtype=np.float32)
    return regions.score >= levels[regions.label]


def _average(values: Sequence[float | None]) -> float | None:
    given = [value for value in values if value is not None]
    return float(np.mean(given)) if given and len(given) == len(values) else None


def _refuse_strangers(regions: Regions, images: Collection[str], what: str) -> None:
    strangers = set(regions.image_id) - set(images)
    if strangers:
        row = int(np.flatnonzero(regions.image_id == min(strangers))[0])
        raise DataError(f"{min(strangers)!r} is none of the {what} images", row=row, field="image_id")
