"""Evaluations with the sections that a test needs; the others are empty."""

from collections.abc import Callable, Mapping
from typing import Any

from farther.evaluation.results import (
    BestThresholds,
    ErrorCauses,
    Evaluation,
    FittedMethod,
    Impact,
    MethodResults,
    MetricValues,
    OperatingPoints,
    Reliability,
    SelfAwarenessResults,
    SplitCounts,
    WildernessResults,
)
from farther.evaluation.settings import EvaluationSettings, SelfAwarenessSettings
from farther.metrics.self_awareness.detector import SelfAwareDetector
from farther.scoring.search import Search, Trial

#: A search for parameters with three trials.
SEARCH = Search(
    Trial("knn", {}, 0.5),
    (Trial("knn", {}, 0.5),) * 3,
    id_split="val",
    ood_split="coco_choose",
    oracle=False,
)
DIAGRAM = Reliability(lower=[], confidence=[], performance=[], detections=[])


def evaluation_of(**sections: Any) -> Evaluation:
    """Evaluation of run `net` on benchmark `voc`.

    Dicts in place of splits, methods, wilderness and self-awareness are completed.
    """
    splits = {}
    for name, counts in sections.get("splits", {}).items():
        splits[name] = _completed(counts_of, counts)
    methods = {}
    for name, method in sections.get("methods", {}).items():
        if isinstance(method, MethodResults):
            methods[name] = method
        else:
            methods[name] = method_of(name, **method)

    empty: dict[str, Any] = {
        "run": "net",
        "benchmark": "voc",
        "settings": EvaluationSettings(),
        "threshold": 0.5,
        "threshold_rule": None,
        "error_budget": None,
        "classifier": None,
        "classes": None,
        "detector": {},
        "closed_set": {},
        "map_at": {},
        "bootstrap": {},
        "not_applicable": {},
        "gains": {"baseline": None, "methods": {}},
    }
    completed = {
        "wilderness": _completed(wilderness_of, sections.get("wilderness", {})),
        "self_awareness": _completed(self_awareness_of, sections.get("self_awareness", {})),
        "splits": splits,
        "methods": methods,
    }
    return Evaluation(**{**empty, **sections, **completed})


def _completed(make: Callable[..., Any], section: Any) -> Any:
    """A section, made from a dict of some of its fields unless it is complete."""
    if isinstance(section, Mapping):
        return make(**section)
    return section


def impact_of(**values: Any) -> Impact:
    """Wilderness impact at a recall."""
    empty: dict[str, Any] = {
        "average_impact": None,
        "average_impact_by_precision": None,
        "impact": [],
        "impact_by_precision": [],
        "classes": 1,
    }
    return Impact(**{**empty, **values})


def wilderness_of(**sections: Any) -> WildernessResults:
    """Wilderness without wild images."""
    errors = ErrorCauses(ratio=0, similar=[], recalls=[], classes=[], detections=[], shares={})
    points = OperatingPoints(ratios=[], betas={"1": BestThresholds(mean=None, classes={})})
    empty: dict[str, Any] = {
        "ratio": 0,
        "map_closed": None,
        "map_open": None,
        "ratios": [],
        "at_recall": {},
        "diagnosis_recall": 0.3,
        "confusion": {},
        "errors": errors,
        "operating_points": points,
        "background": None,
    }
    return WildernessResults(**{**empty, **sections})


def self_awareness_of(**sections: Any) -> SelfAwarenessResults:
    """Self-awareness without images."""
    empty: dict[str, Any] = {
        "per_class": {},
        "splits": {},
        "images": {},
        "image_thresholds": {},
        "calibrated": {},
        "aggregates": {},
        "uncertainties": {},
        "accuracy": {},
        "sweeps": {},
        "reliabilities": {},
        "thresholds_on_test": {},
        "map_by_uncertainty": [],
        "ablation": [],
        "ious": [],
        "top_k": [],
        "by_threshold": [],
        "settings": SelfAwarenessSettings(),
        "detector": SelfAwareDetector({}),
        "reliability": DIAGRAM,
        "reliability_before": DIAGRAM,
    }
    return SelfAwarenessResults(**{**empty, **sections})


def method_of(entry: str, **sections: Any) -> MethodResults:
    """A method without splits; a dict `fitted` needs no name."""
    empty: dict[str, Any] = {
        "tau": 0.0,
        "id_regions": 0,
        "id_regions_kept": None,
        "splits": {},
        "means": {},
        "misclassification": MetricValues(),
        "costs": MetricValues(),
    }
    fitted = FittedMethod(**{"name": entry, **sections.pop("fitted", {})})
    return MethodResults(fitted=fitted, **{**empty, **sections})


def counts_of(**counts: Any) -> SplitCounts:
    """A split without images."""
    empty: dict[str, Any] = {
        "images": 0,
        "failed_images": 0,
        "objects": 0,
        "regions": 0,
        "no_detection": None,
        "inputs": {},
    }
    return SplitCounts(**{**empty, **counts})
