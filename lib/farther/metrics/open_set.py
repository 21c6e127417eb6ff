"""What a detector does with unknown objects: finds them as unknown, takes them for a known class, or dismisses them.

Each region carries a verdict of an OOD method: unknown (its score is below τ) or kept as the known class it was
detected as. Ground truth boxes say which regions lie on an unknown object. Formulas: FMIYC, Section 4.2 and Appendix D.

Under `protocol="paper"`, at an IoU threshold of 0.5 (≥):

- Regions flagged as unknown choose by falling detector confidence the free unknown object they overlap most, one to
  one. A region that gets one is a true positive (TP_U), any other flagged one a false positive (FP_U).
- An unknown object that no flagged region got is *misclassified* (FN^M) if a kept region overlaps it enough, else
  *dismissed* (FN^D). Each unknown object is counted exactly once, however many regions lie on it; one kept region may
  misclassify two objects that lie over each other. So TP_U + FN^D + FN^M is the number of unknown objects.
- Absolute open-set error AOSE = FN^M, and nOSE = AOSE / unknown objects (Eq. 9), never above 1.
- AP_U ranks the flagged regions by `unknown_score` where it is given, by confidence where not. Which regions are true
  was decided before and does not depend on that ranking.
- Where `known_classes` names categories of the same images, a kept region on an object of its own class misclassifies
  nothing, and a flagged region on a known object is a false positive.
- Crowd and group boxes (and Pascal VOC's difficult objects) are neither objects to be found nor wrong to be found: a
  flagged region without an object of its own is ignored if it lies in one.

`protocol="published-code"` does what the code published with FMIYC does, to reproduce its tables:

- confidence is the largest softmax probability of the stored logits among the known classes, rounded to 0.001;
- boxes follow Pascal VOC's convention: those of regions are moved by +1 pixel in xmin and ymin and rounded to 0.1, and
  every width and height is one pixel more than the difference of the edges;
- IoU must be *above* the threshold; a flagged region is true only if the object it overlaps *most* is still free;
- AP_U ranks by confidence, whatever `unknown_score` is;
- AOSE counts *regions* kept as known that overlap an unknown object, several an object: nOSE can be above 1;
- regions of images without any annotation are not looked at.

Crowds are left out there as under "paper": the dataset that the code reads marks none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from farther.errors import DataError, ParameterError
from farther.metrics.boxes import AREA_RANGES, Pairs, areas, image_numbers, pairs
from farther.metrics.closed_set import COCO_IOUS, Labelled
from farther.metrics.matching import assign, ranks
from farther.metrics.precision_recall import Curve, all_point_ap, sampled_ap
from farther.metrics.wilderness import impact_on
from farther.tables import Objects, Regions

Protocol = Literal["paper", "published-code"]

#: What became of an object.
FOUND, MISCLASSIFIED, MISSED, NOT_COUNTED = 0, 1, 2, 3
#: What a region is.
TRUE_UNKNOWN, FALSE_UNKNOWN, KEPT, IGNORED = 0, 1, 2, 3

#: Figures whose mean over IoU thresholds is taken.
OVER_IOU = ("nose", "p_u", "r_u", "ap_u", "ap_u_11")


def evaluate(
    objects: Objects,
    regions: Regions,
    is_unknown: np.ndarray,
    iou: float = 0.5,
    protocol: Protocol = "paper",
    *,
    unknown_score: np.ndarray | None = None,
    known_classes: Sequence[str] = (),
) -> dict[str, Any]:
    """Open-set figures of one split.

    Args:
        objects: Ground truth of the split's images.
        regions: N detections in them, those above the operating threshold.
        is_unknown: ndarray of shape (N,), bool: the region's OOD score is below τ.
        iou: How much a region must overlap an object.
        protocol: see the module.
        unknown_score: ndarray of shape (N,), higher means more surely unknown (minus the OOD score, say), for AP_U.
        known_classes: Categories of `objects` that the detector was taught; all are unknown without it.

    Returns:
        Counts unknown_objects, tp_u, fp_u, fn_missed, fn_misclassified, aose; fractions nose, p_u (Eq. 4), r_u
        (Eq. 5), ap_u (all points, Eqs. 6–8), ap_u_11 (at 11 recalls). None where a fraction's denominator is 0.

    Raises:
        DataError: an array has another length than `regions`, or `is_unknown` is not bool.
        ParameterError: the protocol is unknown, or the IoU is not above 0 and at most 1.
    """
    return Split(objects, regions, iou, protocol, known_classes).judge(is_unknown).figures(unknown_score)


def evaluate_over(
    objects: Objects,
    regions: Regions,
    is_unknown: np.ndarray,
    ious: Sequence[float] | np.ndarray = COCO_IOUS,
    protocol: Protocol = "paper",
    *,
    unknown_score: np.ndarray | None = None,
    known_classes: Sequence[str] = (),
) -> dict[str, float | None]:
    """Means of nose, p_u, r_u, ap_u and ap_u_11 over IoU thresholds, None where one is; arguments as in `evaluate`."""
    return Split(objects, regions, min(ious), protocol, known_classes).figures_over(ious, is_unknown, unknown_score)


def evaluate_known(
    objects: Objects,
    regions: Regions,
    is_unknown: np.ndarray,
    known_classes: Sequence[str],
    iou: float = 0.5,
    *,
    recall: float = 0.8,
    unknown_score: np.ndarray | None = None,
) -> dict[str, float | None]:
    """What flagging regions as unknown costs the known classes, where both share the images.

    Args:
        objects, regions, is_unknown, iou, unknown_score: see `evaluate`.
        known_classes: Names of the classes that the detector was taught; all other objects are unknown.
        recall: Operating point of the wilderness impact.

    Returns:
        Fractions; None where nothing counts.

        ap_k, p_k, r_k: Means over the known classes with objects of the average precision (all points), the precision
            and the recall of the regions that are kept; a class without kept regions has no precision.
        map: Mean average precision over those classes and the unknown one.
        wi: Wilderness impact, see `farther.metrics.wilderness.impact_on`.

    Raises:
        DataError: see `evaluate`, or there is no known class.
    """
    outcome = Split(objects, regions, iou, known_classes=known_classes).judge(is_unknown)
    kept = regions[~np.asarray(is_unknown)]
    verdicts = Labelled(objects, kept, known_classes, max_detections=len(kept) + 1).verdicts([iou])
    curves = [verdicts.curve(0, k) for k in np.flatnonzero(verdicts.positives).tolist()]
    ap = [all_point_ap(curve) for curve in curves]
    ap_unknown = outcome.figures(unknown_score)["ap_u"]
    return {
        "ap_k": _mean(ap),
        "p_k": _mean([float(curve.precision[-1]) for curve in curves if len(curve.precision)]),
        "r_k": _mean([float(curve.recall[-1]) if len(curve.recall) else 0.0 for curve in curves]),
        "map": _mean(ap if ap_unknown is None else [*ap, ap_unknown]),
        "wi": impact_on(objects, kept, known_classes, recall, iou),
    }


class Split:
    """A split's objects and regions, their overlaps computed once, so that many methods can be judged on them.

    Args and errors: see `evaluate`.

    Attributes:
        iou: The IoU threshold.
        is_sought: ndarray of shape (M,), bool: unknown objects that are to be found.
        confidence: ndarray of shape (N,): what the regions are ranked by.
        rank: ndarray of shape (N,), int64: their places when so ranked; equal confidences by image and `region_id`.
        region_image, object_image: Places of the rows' images in `images`.
    """

    def __init__(
        self,
        objects: Objects,
        regions: Regions,
        iou: float = 0.5,
        protocol: Protocol = "paper",
        known_classes: Sequence[str] = (),
    ):
        if protocol not in get_args(Protocol):
            raise ParameterError(f"unknown protocol {protocol!r}. Known: {', '.join(get_args(Protocol))}")
        if not 0 < iou <= 1:
            raise ParameterError(f"an IoU threshold is above 0 and at most 1, found {iou}")
        self.protocol = protocol
        self.iou = iou
        self.objects = objects
        self.images, (self.region_image, self.object_image) = image_numbers(regions.image_id, objects.image_id)
        is_known = np.isin(objects.category.astype(str), list(known_classes)) if known_classes else np.zeros(0, bool)
        self._is_known = is_known if known_classes else np.zeros(len(objects), dtype=bool)
        self._is_crowd = objects.is_crowd | objects.is_difficult
        self.is_sought = ~self._is_known & ~self._is_crowd
        self._candidates = self._overlaps(regions, iou)
        if protocol == "paper":
            self.confidence = regions.score.astype(np.float64)
            self._counts = np.ones(len(regions), dtype=bool)
        else:
            self.confidence = _softmax_confidence(regions)
            annotated = np.bincount(self.object_image, minlength=len(self.images)) > 0
            self._counts = annotated[self.region_image]
        self._region_id = regions.region_id
        self.rank = ranks(self.confidence, self.region_image, self._region_id)
        self._class_name, self._label = np.array(regions.classes, dtype=object), regions.label
        self._correct = self._correctly_known()

    def _at_least(self, iou: float) -> float:
        """The smallest overlap that counts; the published code wants more than the threshold."""
        return float(np.nextafter(iou, 2)) if self.protocol == "published-code" else iou

    def _overlaps(self, regions: Regions, iou: float) -> Pairs:
        region_box, object_box = regions.box, self.objects.box
        if self.protocol == "published-code":
            region_box, object_box = _voc_boxes(region_box), _plus_one_pixel(object_box)
        least = self._at_least(iou)
        found = pairs(region_box, self.region_image, object_box, self.object_image, self._is_crowd, least)
        return found.preferred_first(self._is_crowd, self.objects.object_id)

    def _correctly_known(self) -> np.ndarray:
        """Which regions lie on a known object of their own class, ndarray of shape (N,), bool; none under
        "published-code", which counts a kept region on an unknown object even if it lies on its own as well."""
        right = np.zeros(len(self._label), dtype=bool)
        if self.protocol == "paper":
            pair = self._candidates[self._is_known[self._candidates.target]]
            same = self._class_name[self._label[pair.region]] == self.objects.category[pair.target]
            right[pair.region[same]] = True
        return right

    def sizes(self) -> np.ndarray:
        """Whether each object is "small", "medium" or "large" (COCO's area ranges), object array of shape (M,)."""
        edges = [limits[1] for limits in AREA_RANGES.values()][:-1]
        places = np.searchsorted(edges, areas(self.objects.box), side="left")
        return np.array(list(AREA_RANGES), dtype=object)[places]

    def supercategories(self, names: Mapping[str, str]) -> np.ndarray:
        """The supercategory of each object, "" where its category has none, object array of shape (M,)."""
        return np.array([names.get(category, "") for category in self.objects.category], dtype=object)

    def keeping(self, kept: np.ndarray) -> Split:
        """The same split without some regions, as at a higher operating threshold; overlaps are not computed again.

        Args:
            kept: ndarray of shape (N,), bool.

        Raises:
            DataError: `kept` is not one bool a region.
        """
        rows = self._flags(kept, "kept")
        other = copy(self)
        for name in ("confidence", "region_image", "_counts", "_region_id", "_label", "_correct"):
            setattr(other, name, getattr(self, name)[rows])
        other.rank = np.argsort(np.argsort(self.rank[rows]))
        left = self._candidates[rows[self._candidates.region]]
        other._candidates = Pairs((np.cumsum(rows) - 1)[left.region], left.target, left.overlap)
        return other

    def at(self, iou: float) -> Split:
        """The same split at a larger IoU threshold; overlaps are not computed again.

        Raises:
            ParameterError: the threshold is smaller than the split's own, or above 1.
        """
        if not self.iou <= iou <= 1:
            raise ParameterError(f"an IoU threshold of this split is from {self.iou:g} to 1, found {iou:g}")
        other = copy(self)
        other.iou = iou
        other._candidates = self._candidates[self._candidates.overlap >= self._at_least(iou)]
        other._correct = other._correctly_known()
        return other

    def figures_over(
        self, ious: Sequence[float] | np.ndarray, is_unknown: np.ndarray, unknown_score: np.ndarray | None = None
    ) -> dict[str, float | None]:
        """Means over IoU thresholds; see `evaluate_over`.

        Raises:
            DataError: see `evaluate`.
            ParameterError: see `at`.
        """
        each = [self.at(float(iou)).judge(is_unknown).figures(unknown_score) for iou in ious]
        return {name: _mean([figures[name] for figures in each]) for name in OVER_IOU}

    def ranked_by(self, score: np.ndarray) -> Split:
        """The same split, whose regions choose objects, and are ranked, by another score than their confidence.

        With `score` saying how surely a region is unknown, and all regions flagged, AP_U and R_U are COCO's average
        precision and recall of the single class "unknown". Overlaps are not computed again.

        Args:
            score: ndarray of shape (N,), the higher the sooner.

        Raises:
            DataError: `score` is not one number a region.
        """
        if np.shape(score) != self.rank.shape:
            raise DataError(f"expected {len(self.rank)} values, found shape {np.shape(score)}", field="score")
        other = copy(self)
        other.confidence = np.asarray(score, dtype=np.float64)
        other.rank = ranks(other.confidence, self.region_image, self._region_id)
        return other

    def _flags(self, values: np.ndarray, field: str) -> np.ndarray:
        """One bool a region, or an error."""
        flags = np.asarray(values, dtype=None if np.size(values) else bool)
        if flags.dtype != bool or flags.shape != self.rank.shape:
            problem = f"expected {len(self.rank)} bool values, found {flags.dtype} of shape {flags.shape}"
            raise DataError(problem, field=field)
        return flags

    def judge(self, is_unknown: np.ndarray) -> Outcome:
        """What becomes of each object and each region when these regions are flagged as unknown.

        Raises:
            DataError: `is_unknown` is not one bool a region.
        """
        flagged = self._flags(is_unknown, "is_unknown")
        on_object = self._candidates[self.is_sought[self._candidates.target]]
        of_flagged = on_object[(flagged & self._counts)[on_object.region]]
        if self.protocol == "published-code":
            of_flagged = of_flagged.first_of_each_region()
        matched = assign(of_flagged, self.rank, np.zeros(len(self.objects), dtype=bool))

        kind = np.where(flagged, FALSE_UNKNOWN, KEPT)
        in_crowd = self._candidates.region[self._is_crowd[self._candidates.target]]
        kind[in_crowd] = np.where(flagged[in_crowd], IGNORED, KEPT)
        kind[matched >= 0] = TRUE_UNKNOWN
        kind[~self._counts] = IGNORED

        wrong = on_object[((kind == KEPT) & ~self._correct)[on_object.region]]
        fate = np.where(self.is_sought, MISSED, NOT_COUNTED)
        fate[wrong.target] = MISCLASSIFIED
        fate[matched[matched >= 0]] = FOUND
        misclassifies = np.zeros(len(kind), dtype=bool)
        misclassifies[wrong.region] = True
        return Outcome(self, fate, kind, matched, misclassifies)


@dataclass(frozen=True)
class Outcome:
    """What became of each object and each region.

    Args:
        split: What was judged.
        fate: ndarray of shape (M,): FOUND, MISCLASSIFIED, MISSED, or NOT_COUNTED (crowds and known objects).
        kind: ndarray of shape (N,): TRUE_UNKNOWN, FALSE_UNKNOWN, KEPT, or IGNORED.
        matched: ndarray of shape (N,): the object that a true unknown region got, else −1.
        misclassifies: ndarray of shape (N,), bool: kept regions that lie on an unknown object.
    """

    split: Split
    fate: np.ndarray
    kind: np.ndarray
    matched: np.ndarray
    misclassifies: np.ndarray

    def figures(self, unknown_score: np.ndarray | None = None) -> dict[str, Any]:
        """All figures; see `evaluate`.

        Raises:
            DataError: `unknown_score` is not one number a region.
        """
        counts = _counts(self.fate)
        false = int(np.sum(self.kind == FALSE_UNKNOWN))
        true, unknown = counts["tp_u"], counts["unknown_objects"]
        paper = self.split.protocol == "paper"
        aose = counts["fn_misclassified"] if paper else int(np.sum(self.misclassifies))
        curve = self.curve(unknown_score)
        return {
            **counts,
            "fp_u": false,
            "aose": aose,
            "nose": _ratio(aose, unknown),
            "p_u": _ratio(true, true + false),
            "r_u": _ratio(true, unknown),
            "ap_u": None if curve is None else all_point_ap(curve),
            "ap_u_11": None if curve is None else sampled_ap(curve, 11),
        }

    def curve(self, unknown_score: np.ndarray | None = None) -> Curve | None:
        """Precision and recall of the unknown class along the ranking; None where there is no unknown object.

        Raises:
            DataError: `unknown_score` is not one number a region.
        """
        ranked = self.ranked(unknown_score)
        unknown = int(np.sum(self.fate != NOT_COUNTED))
        return Curve.of(self.kind[ranked] == TRUE_UNKNOWN, unknown) if unknown else None

    def ranked(self, unknown_score: np.ndarray | None = None) -> np.ndarray:
        """Rows of the regions that are true or false positives of the unknown class, the best ranked first.

        Raises:
            DataError: `unknown_score` is not one number a region.
        """
        return self.in_order(np.flatnonzero((self.kind == TRUE_UNKNOWN) | (self.kind == FALSE_UNKNOWN)), unknown_score)

    def in_order(self, rows: np.ndarray, unknown_score: np.ndarray | None = None) -> np.ndarray:
        """Rows of regions, the best ranked first.

        Raises:
            DataError: `unknown_score` is not one number a region.
        """
        order_by = self.split.confidence
        if unknown_score is not None:
            if np.shape(unknown_score) != self.kind.shape:
                problem = f"expected {len(self.kind)} values, found shape {np.shape(unknown_score)}"
                raise DataError(problem, field="unknown_score")
            if self.split.protocol == "paper":
                order_by = np.asarray(unknown_score, dtype=np.float64)
        # Equal scores follow the confidence, and equal confidences the numbers of images and regions.
        return rows[np.lexsort((self.split.rank[rows], -order_by[rows]))]

    def deciding_region(self) -> np.ndarray:
        """For each object the region that decided its fate, ndarray of shape (M,): the flagged one that got it, or the
        most confident kept one that misclassifies it; −1 where there is none."""
        pair = self.split._candidates
        wrong = pair[self.misclassifies[pair.region] & (self.fate[pair.target] == MISCLASSIFIED)]
        # Of several values for one object the last stays.
        wrong = wrong[np.argsort(-self.split.rank[wrong.region])]
        decided = np.full(len(self.fate), -1)
        decided[wrong.target] = wrong.region
        found = np.flatnonzero(self.matched >= 0)
        decided[self.matched[found]] = found
        return decided

    def matched_objects(self) -> tuple[np.ndarray, np.ndarray]:
        """The unknown object of each region, and the overlap with it, ndarrays of shape (N,).

        That is the matched object of a true unknown region, the object that a misclassifying region overlaps most, and
        row −1 with overlap 0 for all others.
        """
        target, overlap = self.matched.copy(), np.zeros(len(self.matched))
        pair = self.split._candidates
        wrong = self.misclassifies[pair.region] & self.split.is_sought[pair.target]
        most = pair[wrong].first_of_each_region()
        target[most.region] = most.target
        chosen = pair.target == target[pair.region]
        overlap[pair.region[chosen]] = pair.overlap[chosen]
        return target, overlap

    def by_category(self) -> dict[str, dict[str, Any]]:
        """Counts and rates of the unknown objects of each category; see `by_group`."""
        return self.by_group(self.split.objects.category)

    def by_size(self) -> dict[str, dict[str, Any]]:
        """Counts and rates of small, medium and large unknown objects (COCO's area ranges); see `by_group`."""
        return self.by_group(self.split.sizes())

    def by_supercategory(self, supercategories: Mapping[str, str]) -> dict[str, dict[str, Any]]:
        """Counts and rates by the supercategory of each category, "" where it has none; see `by_group`."""
        return self.by_group(self.split.supercategories(supercategories))

    def by_group(self, group: np.ndarray) -> dict[str, dict[str, Any]]:
        """Counts and rates of the unknown objects of each group.

        Args:
            group: ndarray of shape (M,): the name of each object's group.

        Returns:
            {group: {"unknown_objects", "tp_u", "fn_missed", "fn_misclassified", "r_u", "nose"}}, groups without an
            unknown object left out. There is no precision: a false positive belongs to no group. `nose` counts objects.
        """
        result = {}
        for name in sorted(set(group[self.fate != NOT_COUNTED])):
            counts = _counts(self.fate[group == name])
            unknown = counts["unknown_objects"]
            rates = {"r_u": _ratio(counts["tp_u"], unknown), "nose": _ratio(counts["fn_misclassified"], unknown)}
            result[str(name)] = {**counts, **rates}
        return result


def _counts(fate: np.ndarray) -> dict[str, int]:
    return {
        "unknown_objects": int(np.sum(fate != NOT_COUNTED)),
        "tp_u": int(np.sum(fate == FOUND)),
        "fn_missed": int(np.sum(fate == MISSED)),
        "fn_misclassified": int(np.sum(fate == MISCLASSIFIED)),
    }


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _mean(values: Sequence[float | None]) -> float | None:
    given = [value for value in values if value is not None]
    return float(np.mean(given)) if len(given) == len(values) and given else None


def _voc_boxes(boxes: np.ndarray) -> np.ndarray:
    """Regions' boxes as the published code stores them, then with edges such that widths are one pixel more."""
    moved = _plus_one_pixel(np.round(boxes.astype(np.float64) + np.array([1, 1, 0, 0]), 1))
    # The shift turns a box narrower than a pixel inside out only by rounding: its width is then nothing.
    moved[:, 2:] = np.maximum(moved[:, 2:], moved[:, :2])
    return moved


def _plus_one_pixel(boxes: np.ndarray) -> np.ndarray:
    return boxes.astype(np.float64) + np.array([0, 0, 1, 1])


def _softmax_confidence(regions: Regions) -> np.ndarray:
    if not regions.has("logits"):
        raise DataError("protocol 'published-code' needs logits, which these regions do not have", field="logits")
    logits = regions.logits.astype(np.float64)
    if not logits.size:
        return np.zeros(len(regions))
    exponential = np.exp(logits - logits.max(axis=1, keepdims=True))
    probability = exponential / exponential.sum(axis=1, keepdims=True)
    if regions.background_index is not None:
        probability = np.delete(probability, regions.background_index, axis=1)
    return np.round(probability.max(axis=1), 3)
