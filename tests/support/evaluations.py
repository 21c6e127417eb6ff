"""Evaluations with the sections that a test needs; the others are empty."""

from collections.abc import Mapping
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
    empty: dict[str, Any] = {
        **dict.fromkeys(("threshold_rule", "error_budget", "classifier", "classes")),
        **{
            name: {} for name in ("detector", "closed_set", "map_at", "bootstrap", "not_applicable")
        },
        **{"run": "net", "benchmark": "voc", "settings": EvaluationSettings(), "threshold": 0.5},
        "gains": {"baseline": None, "methods": {}},
    }
    made = {
        "wilderness": _completed(wilderness_of, sections.get("wilderness", {})),
        "self_awareness": _completed(self_awareness_of, sections.get("self_awareness", {})),
        "splits": {
            name: _completed(counts_of, of) for name, of in sections.get("splits", {}).items()
        },
        "methods": {
            name: of if isinstance(of, MethodResults) else method_of(name, **of)
            for name, of in sections.get("methods", {}).items()
        },
    }
    return Evaluation(**{**empty, **sections, **made})


def _completed(make: Any, section: Any) -> Any:
    return make(**section) if isinstance(section, Mapping) else section


def impact_of(**values: Any) -> Impact:
    """Wilderness impact at a recall."""
    empty: dict[str, Any] = dict.fromkeys(("average_impact", "average_impact_by_precision"))
    return Impact(**{**empty, "impact": [], "impact_by_precision": [], "classes": 1, **values})


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
    }
    empty |= {
        "diagnosis_recall": 0.3,
        "confusion": {},
        "errors": errors,
        "operating_points": points,
    }
    return WildernessResults(**{**empty, "background": None, **sections})


def self_awareness_of(**sections: Any) -> SelfAwarenessResults:
    """Self-awareness without images."""
    maps = ("per_class", "splits", "images", "image_thresholds", "calibrated", "aggregates")
    maps += ("uncertainties", "accuracy", "sweeps", "reliabilities")
    empty: dict[str, Any] = {
        **{name: {} for name in (*maps, "thresholds_on_test")},
        **{
            name: [] for name in ("map_by_uncertainty", "ablation", "ious", "top_k", "by_threshold")
        },
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
    }
    empty |= {"misclassification": MetricValues(), "costs": MetricValues()}
    fitted = FittedMethod(**{"name": entry, **sections.pop("fitted", {})})
    return MethodResults(fitted=fitted, **{**empty, **sections})


def counts_of(**counts: Any) -> SplitCounts:
    """A split without images."""
    empty: dict[str, Any] = dict.fromkeys(("images", "failed_images", "objects", "regions"), 0)
    return SplitCounts(**{**empty, "no_detection": None, "inputs": {}, **counts})
