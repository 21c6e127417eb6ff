"""Metrics of known classes that share the images with unknown objects (Joseph et al., 2021, arXiv:2103.02603).

They measure what flagging detections as unknown costs the known classes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from farther.errors import DataError
from farther.metrics import open_set
from farther.metrics.closed_set import ClosedSet
from farther.metrics.errors import error_diagnosis
from farther.metrics.matching.boxes import places
from farther.metrics.open_set.outcomes import KEPT, OpenSetSplit, Outcome
from farther.metrics.precision_recall import IGNORED, TRUE
from farther.metrics.weighting import ImageWeights, mean_of_defined, plain, ratio
from farther.tables import Regions


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
    >>> found = metrics(
    ...     split.match(np.array([False, False])), regions
    ... )  # the fox is detected as a cat
    >>> found["ap_k"], found["p_k"], found["wi"]
    (0.5, 0.5, 1.0)
    """
    known = closed_set(outcome.split, regions)
    found, each_ap = _of_kept(outcome, known, recall, weights)
    # None where it is not defined becomes NaN.
    ap_unknown = np.atleast_1d(
        np.asarray(open_set.metrics(outcome, unknown_score, weights)["ap_u"], dtype=np.float64)
    )
    result = found | {"map": mean_of_defined(np.concatenate([each_ap, ap_unknown[None]]))}
    return plain(result) if weights is None else result


def closed_set(split: OpenSetSplit, regions: Regions) -> ClosedSet:
    """The regions of known classes of a split, with the objects of these classes.

    Args:
        split: Its settings name the known classes.
        regions: Its regions.

    Raises:
        DataError: the settings name no known classes.
    """
    classes = tuple(split.settings.known_classes)
    if not classes:
        raise DataError("expected names of known classes, found none", field="known_classes")
    least = split.settings.iou
    return ClosedSet.of(split.objects, regions, classes, max_detections=len(regions), least=least)


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
    found, _ = _of_kept(outcome, known, recall, weights)
    return plain(found) if weights is None else found


def _of_kept(
    outcome: Outcome, known: ClosedSet, recall: float, weights: ImageWeights | None
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """See `of_kept`; and the average precision of each known class with objects, ndarray of shape (K, B)."""
    kept = known.keeping(outcome.kind == KEPT)
    matched = kept.match([outcome.split.settings.iou])
    of_known = None if weights is None else weights[:, places(outcome.split.images, known.images)]
    correct, unknown, ignored = (
        error_diagnosis.CAUSES.index(n) for n in ("correct", "unknown_unknown", "ignored")
    )
    cause = np.where(outcome.misclassifies[kept.detections.row], np.int8(unknown), np.int8(correct))
    near = outcome.split.candidates
    is_ignored = outcome.split.is_ignored
    on_ignored, on_object = np.zeros((2, len(outcome.kind)), dtype=bool)
    on_ignored[near.region[is_ignored[near.target]]] = True
    on_object[near.region[~is_ignored[near.target]]] = True
    on_ignored = on_ignored[kept.detections.row]
    on_object = on_object[kept.detections.row]
    cause[(matched.kind[0] == IGNORED) | (on_ignored & ~on_object & (matched.kind[0] != TRUE))] = (
        ignored
    )
    counts, _ = error_diagnosis.counts_at_recalls(matched, cause, [recall], of_known)
    at = dict(zip(error_diagnosis.CAUSES, counts[:, 0], strict=True))
    each_ap = matched.average_precision(of_known, points=None)[0]
    positives, objects, rows = (
        matched.positives > 0,
        matched.objects(of_known),
        matched.detections(of_known),
    )
    true, ranked = (
        rows[chosen].total_by_group(matched.of_class[chosen], len(objects))
        for chosen in (matched.kind[0] == TRUE, matched.kind[0] != IGNORED)
    )
    result = {
        "ap_k": mean_of_defined(each_ap[positives]),
        "p_k": mean_of_defined(np.where(objects > 0, ratio(true, ranked), np.nan)[positives]),
        "r_k": mean_of_defined(ratio(true, objects)[positives]),
        "wi": ratio(at["unknown_unknown"], at["correct"]),
    }
    return result, each_ap[positives]
