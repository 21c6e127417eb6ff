"""Metrics of known classes that share the images with unknown objects.

They measure what flagging detections as unknown costs the known classes (Joseph et al., 2021,
arXiv:2103.02603).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from farther.errors import DataError
from farther.metrics import open_set
from farther.metrics.closed_set import ClosedSet
from farther.metrics.closed_set.matched_detections import MatchedDetections
from farther.metrics.errors import error_diagnosis
from farther.metrics.matching.boxes import places
from farther.metrics.open_set.outcomes import KEPT, OpenSetSplit, Outcome
from farther.metrics.precision_recall import IGNORED, TRUE
from farther.metrics.weighting import ImageWeights, mean_of_defined, plain, ratio
from farther.tables import Regions
from farther.tables.arguments import instance

#: Causes of detections for the wilderness impact, as numbers.
_CORRECT = error_diagnosis.CAUSES.index("correct")
_ON_UNKNOWN = error_diagnosis.CAUSES.index("unknown_unknown")
_NOT_COUNTED = error_diagnosis.CAUSES.index("ignored")


def metrics(
    outcome: Outcome,
    regions: Regions,
    recall: float = 0.8,
    unknown_score: np.ndarray | None = None,
    weights: ImageWeights | None = None,
) -> dict[str, Any]:
    """Metrics of the known classes that have objects in a split.

    Args:
        outcome: Regions matched to objects under protocol "paper"; its settings name the known
            classes.
        regions: The same N regions.
        recall: Operating point of the wilderness impact, above 0 and at most 1.
        unknown_score: see `farther.metrics.open_set.evaluate`.
        weights: see `farther.metrics.open_set.metrics`.

    Returns:
        Fractions, None where they are not defined; with weights ndarrays of shape (B,), NaN for
        None.

        ap_k, p_k, r_k: Means over the known classes with objects of the average precision (all
            points), the precision and the recall of the regions that are kept; a class without kept
            regions has no precision.
        map: Mean average precision over those classes and the class "unknown".
        wi: Wilderness impact FP_o / (TP_c + FP_c) (Dhamija et al., 2020,
            doi:10.1109/WACV45572.2020.9093355), counts summed over the classes that reach the
            recall: detections from each class's operating point on that lie on an unknown object
            and on no known one of their class, to all others.

    Raises:
        DataError: the settings name no known classes.
        ParameterError: the recall is not above 0 and at most 1.

    >>> from farther.metrics.open_set.outcomes import MatchingRules, OpenSetSplit
    >>> from farther.tables import Objects
    >>> cat, fox = [0, 0, 10, 10], [20, 0, 30, 10]
    >>> objects = Objects(
    ...     image_id=["a", "a"], object_id=[0, 1], box=[cat, fox], category=["cat", "fox"]
    ... )
    >>> regions = Regions(
    ...     image_id=["a", "a"],
    ...     region_id=[0, 1],
    ...     box=[cat, fox],
    ...     score=[0.8, 0.9],
    ...     label=[0, 0],
    ...     logits=[[1.0], [1.0]],
    ...     classes=("cat",),
    ... )
    >>> split = OpenSetSplit.of(objects, regions, MatchingRules(known_classes=["cat"]))
    >>> outcome = split.match(np.array([False, False]))  # the fox is detected as a cat
    >>> values = metrics(outcome, regions)
    >>> values["ap_k"], values["p_k"], values["wi"]
    (0.5, 0.5, 1.0)
    """
    instance(outcome, Outcome, "outcome")
    known = closed_set(outcome.split, regions)
    of_known = _of_kept(outcome, known, recall, weights)
    unknown_metrics = open_set.metrics(outcome, unknown_score, weights)
    # None where it is not defined becomes NaN.
    ap_u = np.atleast_1d(np.asarray(unknown_metrics["ap_u"], dtype=np.float64))
    ap_of_all_classes = np.concatenate([of_known.ap_by_class, ap_u[None]])
    values = of_known.values | {"map": mean_of_defined(ap_of_all_classes)}
    return plain(values) if weights is None else values


def closed_set(split: OpenSetSplit, regions: Regions) -> ClosedSet:
    """The regions of known classes of a split, with the objects of these classes.

    Args:
        split: Its settings name the known classes.
        regions: Its regions.

    Raises:
        DataError: the settings name no known classes.
    """
    instance(split, OpenSetSplit, "split")
    instance(regions, Regions, "regions")
    if len(regions) != len(split.detections.rank):
        problem = f"{len(regions)} rows, but {len(split.detections.rank)} were matched"
        raise DataError(problem, field="regions")
    classes = tuple(split.settings.known_classes)
    if not classes:
        raise DataError("expected names of known classes, found none", field="known_classes")
    return ClosedSet.of(
        split.objects,
        regions,
        classes,
        max_detections=len(regions),
        smallest_overlap=split.settings.iou,
    )


def of_kept(
    outcome: Outcome, known: ClosedSet, recall: float = 0.8, weights: ImageWeights | None = None
) -> dict[str, Any]:
    """`metrics` without `map`, from a closed set that is the same for all methods.

    Args:
        outcome, recall, weights: see `metrics`.
        known: From `closed_set`, of the outcome's split.

    Raises:
        ParameterError: the recall is not above 0 and at most 1.
    """
    instance(outcome, Outcome, "outcome")
    instance(known, ClosedSet, "known")
    values = _of_kept(outcome, known, recall, weights).values
    return plain(values) if weights is None else values


@dataclass(frozen=True)
class _KnownMetrics:
    """Metrics of the regions that are kept.

    Args:
        values: See `of_kept`; ndarrays of shape (B,).
        ap_by_class: Average precision of each known class with objects, ndarray of shape (K, B).
    """

    values: dict[str, np.ndarray]
    ap_by_class: np.ndarray


def _of_kept(
    outcome: Outcome, known: ClosedSet, recall: float, weights: ImageWeights | None
) -> _KnownMetrics:
    """See `of_kept`."""
    kept = known.keeping(outcome.kind == KEPT)
    matched = kept.match([outcome.split.settings.iou])
    if weights is not None:
        weights = weights[:, places(outcome.split.images, known.images)]

    cause = _causes(outcome, kept, matched)
    counts, _ = error_diagnosis.counts_at_recalls(matched, cause, [recall], weights)
    correct = counts[_CORRECT, 0]
    on_unknown = counts[_ON_UNKNOWN, 0]

    has_objects = matched.positives > 0
    objects = matched.objects(weights)
    detections = matched.detections(weights)
    is_true = matched.kind[0] == TRUE
    is_ranked = matched.kind[0] != IGNORED
    detected_class = matched.of_class
    true = detections[is_true].total_by_group(detected_class[is_true], len(objects))
    ranked = detections[is_ranked].total_by_group(detected_class[is_ranked], len(objects))
    precision = np.where(objects > 0, ratio(true, ranked), np.nan)

    ap_by_class = matched.average_precision(weights, points=None)[0][has_objects]
    values = {
        "ap_k": mean_of_defined(ap_by_class),
        "p_k": mean_of_defined(precision[has_objects]),
        "r_k": mean_of_defined(ratio(true, objects)[has_objects]),
        "wi": ratio(on_unknown, correct),
    }
    return _KnownMetrics(values, ap_by_class)


def _causes(outcome: Outcome, kept: ClosedSet, matched: MatchedDetections) -> np.ndarray:
    """Number of each kept detection's cause for the wilderness impact, ndarray of shape (n,).

    A detection on an unknown object is such an error, a detection that is ignored or lies on
    nothing but an object that is not counted has no part, and all others count as correct.
    """
    row = kept.detections.row
    pair = outcome.split.candidates
    is_on_ignored_object = outcome.split.is_ignored[pair.target]
    on_ignored = np.zeros(len(outcome.kind), dtype=bool)
    on_ignored[pair.region[is_on_ignored_object]] = True
    on_counted = np.zeros(len(outcome.kind), dtype=bool)
    on_counted[pair.region[~is_on_ignored_object]] = True

    cause = np.where(outcome.misclassifies[row], np.int8(_ON_UNKNOWN), np.int8(_CORRECT))
    is_true = matched.kind[0] == TRUE
    is_excluded = on_ignored[row] & ~on_counted[row] & ~is_true
    cause[(matched.kind[0] == IGNORED) | is_excluded] = _NOT_COUNTED
    return cause
