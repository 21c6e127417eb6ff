"""Metrics of known classes that share the images with unknown objects (Joseph et al., 2021, arXiv:2103.02603).

They measure what flagging detections as unknown costs the known classes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from farther.errors import DataError, ParameterError
from farther.metrics import error_diagnosis, open_set
from farther.metrics.closed_set import ClosedSet
from farther.metrics.outcomes import KEPT, Outcome
from farther.metrics.precision_recall import IGNORED, TRUE
from farther.metrics.weighting import mean_of_defined, plain, ratio
from farther.tables import Regions


def metrics(
    outcome: Outcome,
    regions: Regions,
    recall: float = 0.8,
    unknown_score: np.ndarray | None = None,
    weights: np.ndarray | None = None,
) -> dict[str, Any]:
    """Metrics of the known classes that have objects in a split.

    Args:
        outcome: Regions matched to objects under protocol "paper"; its settings name the known classes.
        regions: The same N regions.
        recall: Operating point of the wilderness impact, above 0 and at most 1.
        unknown_score: see `farther.metrics.open_set.evaluate`.
        weights: see `farther.metrics.open_set.metrics`.

    Returns:
        Fractions, None where they are not defined; with weights ndarrays of shape (B,), NaN for None.

        ap_k, p_k, r_k: Means over the known classes with objects of the average precision (all points), the precision
            and the recall of the regions that are kept; a class without kept regions has no precision.
        map: Mean average precision over those classes and the class "unknown".
        wi: Wilderness impact FP_o / (TP_c + FP_c) (Dhamija et al., 2020, doi:10.1109/WACV45572.2020.9093355), counts
            summed over the classes that reach the recall: detections from each class's operating point on that lie on
            an unknown object and on no known one of their class, to all others.

    Raises:
        DataError: the settings name no known classes.
        ParameterError: the recall is not above 0 and at most 1.

    >>> from farther.metrics.outcomes import Settings, Split
    >>> from farther.tables import Objects
    >>> cat, fox = [0, 0, 10, 10], [20, 0, 30, 10]
    >>> objects = Objects(image_id=["a", "a"], object_id=[0, 1], box=[cat, fox], category=["cat", "fox"])
    >>> regions = Regions(image_id=["a", "a"], region_id=[0, 1], box=[cat, fox], score=[0.8, 0.9], label=[0, 0],
    ...                   logits=[[1.0], [1.0]], classes=("cat",))
    >>> split = Split.of(objects, regions, Settings(known_classes=["cat"]))
    >>> found = metrics(split.match(np.array([False, False])), regions)  # the fox is detected as a cat
    >>> found["ap_k"], found["p_k"], found["wi"]
    (0.5, 0.5, 1.0)
    """
    if not 0 < recall <= 1:
        raise ParameterError(f"a recall is above 0 and at most 1, found {recall}")
    objects, classes = outcome.split.objects, tuple(outcome.split.settings.known_classes)
    if not classes:
        raise DataError("expected names of known classes, found none", field="known_classes")
    kept = regions[outcome.kind == KEPT]
    known = ClosedSet.of(objects, kept, classes, max_detections=len(kept) + 1)
    matched = known.match([outcome.split.settings.iou])
    iou = outcome.split.settings.iou
    anywhere = dict.fromkeys(classes, -np.inf)
    cause = error_diagnosis.diagnose(objects, kept, anywhere, error_diagnosis.Diagnosis(iou=iou, touch=iou))
    of_known = None if weights is None else weights[:, np.searchsorted(outcome.split.images, known.images)]
    counts, _ = error_diagnosis.counts_at_recalls(matched, cause[known.detections.row], [recall], of_known)
    at = dict(zip(error_diagnosis.CAUSES, counts[:, 0], strict=True))
    wrong = at.pop("unknown_unknown")
    at.pop("ignored")
    each_ap = matched.average_precision(of_known, points=None)[0]
    precision, found = [], []
    positives = np.flatnonzero(matched.positives).tolist()
    objects_of = matched.objects(of_known)
    for k in positives:
        kind, rows = matched.kind[0, matched.rows(k)], matched.detections(of_known)[matched.rows(k)]
        true, ranked = rows[kind == TRUE].total(), rows[kind != IGNORED].total()
        precision.append(np.where(objects_of[k] > 0, ratio(true, ranked), np.nan))
        found.append(ratio(true, objects_of[k]))
    # None where it is not defined becomes NaN.
    ap_unknown = np.atleast_1d(np.asarray(open_set.metrics(outcome, unknown_score, weights)["ap_u"], dtype=np.float64))
    shape = (-1, each_ap.shape[1])
    result = {
        "ap_k": mean_of_defined(each_ap[positives]),
        "p_k": mean_of_defined(np.reshape(precision, shape)),
        "r_k": mean_of_defined(np.reshape(found, shape)),
        "map": mean_of_defined(np.concatenate([each_ap[positives], ap_unknown[None]])),
        "wi": ratio(wrong, np.sum(list(at.values()), axis=0)),
    }
    return plain(result) if weights is None else result
