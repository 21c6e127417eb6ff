"""Evaluations with the sections that a test needs; the others are empty."""

from collections.abc import Callable, Mapping
from typing import Any

import polars as pl

from farther.evaluation.files import RunFiles
from farther.evaluation.long_table import SCHEMA, LongTable
from farther.evaluation.recovery import FrocPoint, RecoveredObjects, RecoveredRun, SourceResults
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
from farther.evaluation.stored_results import StoredResults
from farther.evaluation.with_proposals import FOUND_BY_PROPOSALS, MethodWithProposals
from farther.metrics.catalogue import METRICS
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


def stored_results(
    values: Mapping[tuple[str, str], Mapping[str, float | None]] | None = None,
    evaluation: Evaluation | None = None,
    *,
    recovered: RecoveredRun | None = None,
    detector: Mapping[str, float | None] | None = None,
) -> StoredResults:
    """Results that are in no file.

    Args:
        values: (split, method) → metrics, in the place of those of the evaluation.
        evaluation: All metrics; None where they are not on this machine.
        recovered: Results of proposals.
        detector: Metrics of the detector, in the place of those of the evaluation.
    """
    results = StoredResults(RunFiles("net", "voc", "absent"))
    if evaluation is not None:
        results = StoredResults.of(evaluation, recovered)
    rows = []
    for (split, method), metrics in (values or {}).items():
        for name, value in metrics.items():
            group = METRICS[name].group
            row = {"run": "net", "split": split, "method": method, "group": group, "part": ""}
            rows.append({**row, "metric": name, "value": value, "no_interval": ""})
    given = pl.DataFrame(rows, schema=SCHEMA)
    keys = ["split", "method", "metric", "part"]
    results.table = LongTable(
        pl.concat([given, results.table.frame.join(given, on=keys, how="anti")])
    )
    if detector is not None:
        results.detector = dict(detector)
    return results


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
        "closed_errors": errors,
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


def recovered_objects(missed: float, still_missed: float) -> RecoveredObjects:
    """Results of four unknown objects, from their shares that are missed and still missed."""
    values = {
        "objects": 4,
        "missed": missed,
        "still_missed": still_missed,
        "recovered": missed - still_missed,
        "ar@10": 0.25,
    }
    froc = []
    for rate in (0.1, 1.0):
        point = FrocPoint(alarms=rate, recovered=0.0, still_missed=missed, interval=(0, 1))
        froc.append(point)
    return RecoveredObjects(
        values=values,
        intervals={"still_missed": (0.1, 0.4)},
        froc=froc,
        curve=[(0.0, missed), (1.0, still_missed)],
        by_size={"small": {"objects": 4, "missed": missed, "still_missed": still_missed}},
    )


def with_proposals() -> MethodWithProposals:
    """A method with the proposals, which find one of its two missed objects."""
    gains = MetricValues(values={"count": 1, "r_u": 0.25, "ap_u": 0, "nose": 0})
    values = {"nose": 0.25, "r_u": 0.5, "p_u": 0.6, "ap_u": 0.4, "u_recall": 0.75}
    return MethodWithProposals(
        values=values,
        intervals={"r_u": (0.4, 0.6)},
        without={**values, "r_u": 0.25},
        by_size={"small": MetricValues(values={"unknown_objects": 4, "r_u": 0.5})},
        error_budget={"missed": gains, FOUND_BY_PROPOSALS: gains},
    )


def recovered_run() -> RecoveredRun:
    """Results of proposals of two distances: they cover half of what is missed near, none far."""
    near = recovered_objects(0.5, 0.25)
    far = recovered_objects(0.5, 0.5)
    source = SourceResults(
        kind="rpn",
        threshold=0.5,
        alarms=0.22,
        alarms_interval=(0.1, 0.3),
        proposals=7,
        splits={"photos_near": near},
        distances={"near": near, "far": far},
        methods={"msp": {"photos_near": with_proposals()}},
    )
    return RecoveredRun(asked_alarms=0.2, iou=0.5, sources={"boxes": source})
