"""Public functions take arguments of every form, or refuse them as `FartherError`.

Each case changes one argument of a valid call: into another form of the same values, with which the
result is the same, or into what must be refused (`tests/support/arguments.py`). Some cases are
drawn; `make test-all EXHAUSTIVE=1` tries all.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import os
import pkgutil
import re
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from tests.support import arguments
from tests.support.cases import drawn_cases

import farther
from farther import curation, methods
from farther.errors import FartherError
from farther.metrics import closed_set, ood, open_set, self_awareness, wilderness
from farther.metrics.closed_set import operating_threshold
from farther.metrics.errors import error_budget, error_diagnosis
from farther.metrics.matching import not_of_known, true_classes
from farther.metrics.ood import classification, misclassification
from farther.metrics.open_set import critical_thresholds, image_pairs, known_classes, proposals
from farther.metrics.open_set.outcomes import MatchingRules, OpenSetSplit, sizes_of
from farther.metrics.self_awareness import calibration, calibration_errors, image_uncertainty
from farther.metrics.statistics import bootstrap, correlation, ranking, risk_control
from farther.metrics.wilderness import background_probability, published_code
from farther.monitor.drift import Drift, Rates
from farther.similarity import StratifyParams, near_duplicates, nearest, prototypes, stratify
from farther.similarity.nearest import pairs_above
from farther.similarity.sources import EmbeddedSplit, SplitSource
from farther.similarity.stratify import best_cut, cuts_of
from farther.tables import Header, Images, Objects, Regions, Scores

ROOT = Path(__file__).parents[1]

SCORES = np.array([3.0, 2.5, 1.25, 2.0, 0.5, 0.75])
OTHER_SCORES = np.array([2.0, 1.0, 0.25, 1.5, 0.125, 0.5])
FLAGS = np.array([True, False, True, False, False, True])
BOXES = np.array([[8 * i, 0, 8 * i + 8, 8 + i % 2] for i in range(6)], dtype=np.float64)
LABELS = np.array([0, 1, 0, 1, 1, 0])
LOGITS = np.array([[2, 0.5], [0.25, 1], [1.5, 1], [0, 3], [0.5, 2], [4, 1]])
FEATURES = np.array([[1, 0.5, 2], [0, 1, 1], [2, 2, 0.25], [1, 1, 1], [3, 0, 1], [0.5, 0.5, 4]])


def texts(*values: str) -> np.ndarray:
    return np.array(values, dtype=object)


IMAGES = texts("a", "a", "b", "b", "c", "c")
NAMES = texts("cat", "dog")
CATEGORIES = texts("cat", "dog", "fox", "dog", "owl", "cat")
OBJECTS = Objects(image_id=IMAGES, object_id=np.arange(6), box=BOXES, category=CATEGORIES)
REGIONS = Regions(
    image_id=IMAGES,
    region_id=np.arange(6),
    box=BOXES,
    score=OTHER_SCORES / 2,
    label=LABELS,
    logits=LOGITS,
    features=FEATURES,
    classes=tuple(NAMES),
)
WITH_BACKGROUND = REGIONS.with_columns()
WITH_BACKGROUND.header = Header(classes=("cat", "dog", "nothing"), background_index=2)
WITH_BACKGROUND = WITH_BACKGROUND.with_columns(logits=np.column_stack([LOGITS, SCORES]))
SPLIT = OpenSetSplit.of(OBJECTS, REGIONS, MatchingRules(known_classes=["cat", "dog"]))
OUTCOME = SPLIT.match(FLAGS)
CLOSED = closed_set.ClosedSet.of(OBJECTS, REGIONS)
MATCHED = CLOSED.match([0.5])
BY_CLASS = self_awareness.match(OBJECTS, REGIONS)
CLASSIFIED = {
    "images": texts("a", "b", "c"),
    "is_correct": FLAGS[:3],
    "confidence": OTHER_SCORES[3:] / 2,
    "nll": SCORES[:3],
    "is_in_top5": np.array([1.0, 0.0, 1.0]),
}
UNIT = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 1, 0]], dtype=np.float64)
POINTS = {"cat": 0.25, "dog": 0.5}
RECORDS = [
    {"boxes": BOXES[:3], "scores": SCORES[:3] / 4, "labels": LABELS[:3], "logits": LOGITS[:3]},
    {"boxes": BOXES[3:], "scores": SCORES[3:] / 4, "labels": LABELS[3:], "logits": LOGITS[3:]},
]
LABELLED = curation.LabelledImages(
    Images(
        image_id=["a", "b", "c"],
        dataset=["d"] * 3,
        file=["a.jpg", "b.jpg", "c.jpg"],
        width=[64] * 3,
        height=[64] * 3,
        digest=["x", "y", "z"],
    ),
    OBJECTS,
)
FATES = curation.Fates(
    image_id=["a", "b"],
    dataset=["d", "d"],
    subset=["val", "val"],
    fate=["near", "far"],
    rule=["near: fox → dog", "no near category is labelled"],
    category=["fox", ""],
    object_id=[3, -1],
)
DECIDED = curation.ReviewDecisions()
SHE = methods.create("she").fit(REGIONS).to_torch()
KNN = methods.create("knn", k=2).fit(REGIONS)


@dataclasses.dataclass(frozen=True)
class Call:
    """A valid call.

    Args:
        function: Public function, or one that calls it.
        values: Its arguments by name.
        accepted: Names of the changes that an argument accepts, though others refuse them.
    """

    function: Any
    values: Mapping[str, Any]
    accepted: Mapping[str, set[str]] = dataclasses.field(default_factory=dict)


NAN = {"NaN", "tensor with NaN", "polars with null", "pandas with NA"}
BROADCAST = {"one number", "number without a shape", "another axis"}
ANY_ORDER = {"dict", "set", "values of a dict"}


def from_records(
    boxes: Any, scores: Any, labels: Any, logits: Any, iscrowd: Any, classes: Any
) -> tuple[Regions, Objects]:
    """Regions and objects of one dict, whose arrays are the arguments."""
    record = {"boxes": boxes, "scores": scores, "labels": labels, "logits": logits}
    target = {"boxes": BOXES[:3], "labels": LABELS[:3], "iscrowd": iscrowd}
    regions = Regions.from_dicts([record], classes=classes)
    return regions, Objects.from_dicts([target], classes=list(NAMES))


def from_outputs(boxes: Any, scores: Any, labels: Any, classes: Any, image_ids: Any) -> Regions:
    """Regions of torchvision's and transformers' outputs, whose arrays are the arguments."""
    outputs = [{"boxes": boxes, "scores": scores, "labels": labels}]
    image_ids = list(image_ids) if isinstance(image_ids, Iterator) else image_ids
    classes = list(classes) if isinstance(classes, Iterator) else classes
    Regions.from_transformers(copy.copy(outputs), image_ids, classes)
    return Regions.from_transformers(outputs, image_ids, classes)


def last_layer_of(weight: Any, bias: Any) -> Regions:
    return Regions.from_arrays(LOGITS, FEATURES, last_layer=(weight, bias))


def recorded(boxes: Any, scores: Any, labels: Any, rows: Any) -> Regions:
    """Regions that `farther.record` records, of a linear layer."""
    model = torch.nn.Linear(3, 2)
    torch.nn.init.constant_(model.weight, 0.5)
    torch.nn.init.constant_(model.bias, 0.0)
    with torch.no_grad(), farther.record(model, logits=model, classes=list(NAMES)) as recorder:
        model(torch.tensor(FEATURES, dtype=torch.float32))
        recorder.add("a.jpg", boxes, scores, labels, rows)
        return recorder.regions


def compared(values: Any, replicates: Any) -> Any:
    return bootstrap.compare_with("a", {"a": values, "b": 0.5}, {"a": replicates, "b": SCORES})


def drawn(images: Any, seed: Any) -> Any:
    return bootstrap.ImageDraws(images, 10, seed).weights


def mean_over_ious(ious: Any, is_unknown: Any, unknown_score: Any) -> Any:
    return open_set.metrics_over(SPLIT, ious, is_unknown, unknown_score)


def pairs(first: Any, second: Any, threshold: Any) -> list:
    return list(pairs_above(first, second, threshold))


def embedded(image_id: Any, digest: Any, vectors: Any) -> EmbeddedSplit:
    return EmbeddedSplit(SplitSource("n", "d", "val", "near"), image_id, digest, vectors)


NEAR = embedded(texts("a", "b", "c", "d"), texts("w", "x", "y", "z"), UNIT)
FAR = EmbeddedSplit(SplitSource("f", "d", "val", "far"), NEAR.image_id, NEAR.digest, UNIT[::-1])
ID_IMAGES = EmbeddedSplit(
    SplitSource("val", "d", "val", "ID"), NEAR.image_id, NEAR.digest, np.roll(UNIT, 1, axis=0)
)


def cuts_of_two(first: Any, second: Any) -> Any:
    return cuts_of([NEAR, FAR], [first, second], StratifyParams())


def drift(window: Any, level: Any, detections: Any, unknown: Any, objectness: Any) -> dict:
    validation = Rates.of(
        IMAGES, FLAGS, ["a", "b", "c"], ["a"], proposals=(IMAGES, OTHER_SCORES / 2)
    )
    drift = Drift(validation, window=window, level=level)
    drift.add(detections, unknown, objectness=objectness)
    return drift.to_json()


def rates(images: Any, rejected: Any, image_id: Any, unknown: Any, objectness: Any) -> Rates:
    return Rates.of(image_id, unknown, images, rejected, proposals=(IMAGES, objectness))


def with_learnt_temperature(regions: Any, true_column: Any) -> np.ndarray:
    method = methods.create("temperature_scaling").fit(REGIONS)
    method.learn_truth(regions, true_column)
    return method.score(REGIONS)


def classified(**columns: Any) -> Any:
    return classification.metrics(classification.Classified(**columns))


TWO_SIDES = {"id_scores": SCORES, "ood_scores": OTHER_SCORES}
TABLES = {"objects": OBJECTS, "regions": REGIONS}
RULES = {"iou": 0.5, "protocol": "paper"}
WILD = {
    **TABLES,
    "closed_images": texts("a", "b", "c"),
    "wild_regions": REGIONS.with_columns(image_id=texts(*"wwxxyy")),
    "wild_images": texts("w", "x", "y"),
}
BELOW_0 = {"below 0"}
BEYOND_16 = {"beyond int16", "integers beyond float64"}

#: Valid calls by the name of the public function, or of what is called of it.
CALLS: dict[str, Call] = {
    "methods.threshold": Call(
        methods.threshold, {"scores": SCORES, "keep": 0.5, "rule": "percentile"}
    ),
    "methods.threshold by a Gaussian": Call(
        methods.threshold, {"scores": SCORES, "keep": 0.75, "rule": "gaussian"}
    ),
    "methods.Method.fit": Call(
        lambda regions: methods.create("knn", k=2).fit(regions).score(REGIONS),
        {"regions": REGIONS},
    ),
    "methods.Method.score": Call(KNN.score, {"regions": REGIONS}),
    "methods.Method.learn_truth": Call(
        with_learnt_temperature,
        {"regions": REGIONS, "true_column": np.array([0, 1, 1, 1, 0, 0])},
        {"true_column": BELOW_0},
    ),
    "curation.explain": Call(lambda fates: curation.explain(fates, "a"), {"fates": FATES}),
    "curation.reason_of": Call(curation.reason_of, {"fates": FATES, "row": 1}),
    "curation.votes": Call(
        curation.votes,
        {"decisions": DECIDED, "fates": FATES, "fate_without_overlap": texts("near", "far")},
    ),
    "curation.joint_decisions": Call(
        curation.joint_decisions,
        {"votes": curation.votes(DECIDED, FATES, texts("near", "far"))},
    ),
    "curation.select_id_classes": Call(
        curation.select_id_classes,
        {
            "source": LABELLED,
            "deciding": {"cat": curation.CategoryRule("ID class", "cat", "cat")},
            "empty": "remove",
            "overlapping": "keep",
            "others": "keep",
        },
    ),
    "curation.LabelledImages": Call(
        lambda images, objects: curation.LabelledImages(images, objects).objects,
        {"images": LABELLED.images, "objects": OBJECTS},
    ),
    "curation.LabelledImages.shows": Call(LABELLED.shows, {"objects": FLAGS}),
    "curation.LabelledImages.select": Call(
        lambda rows: LABELLED.select(rows).objects, {"rows": FLAGS[:3]}
    ),
    "curation.LabelledImages.at_most": Call(
        lambda count: LABELLED.at_most(count).images, {"count": 2}
    ),
    "curation.Categories": Call(curation.Categories, {"names": NAMES}),
    "monitor.drift.Drift": Call(
        drift,
        {
            "window": 4,
            "level": 0.5,
            "detections": 3,
            "unknown": 2,
            "objectness": OTHER_SCORES / 2,
        },
    ),
    "monitor.drift.Rates.of": Call(
        rates,
        {
            "images": texts("a", "b", "c"),
            "rejected": texts("a"),
            "image_id": IMAGES,
            "unknown": FLAGS,
            "objectness": OTHER_SCORES / 2,
        },
    ),
    "metrics.ood.auroc": Call(ood.auroc, TWO_SIDES),
    "metrics.ood.evaluate": Call(ood.evaluate, {**TWO_SIDES, "aupr": "step"}),
    "metrics.ood.fpr_at": Call(ood.fpr_at, {**TWO_SIDES, "tpr": 0.5}),
    "metrics.ood.roc": Call(ood.roc, TWO_SIDES),
    "metrics.ood.threshold_at": Call(ood.threshold_at, {"id_scores": SCORES, "tpr": 0.5}),
    "metrics.ood.thresholds_at": Call(
        ood.thresholds_at, {"id_scores": SCORES, "tprs": np.array([0.5, 0.25, 1.0])}
    ),
    "metrics.ood.per_image": Call(
        ood.per_image, {"image_id": IMAGES, "scores": SCORES, "reduce": "min"}
    ),
    "metrics.ood.with_intervals": Call(
        ood.with_intervals,
        {**TWO_SIDES, "id_images": IMAGES, "ood_images": IMAGES, "replicates": 100, "seed": 1},
    ),
    "metrics.ood.misclassification.evaluate": Call(
        misclassification.evaluate, {"scores": SCORES, "correct": FLAGS}
    ),
    "metrics.ood.misclassification.is_correct": Call(
        misclassification.is_correct, {**TABLES, "iou": 0.5}
    ),
    "metrics.ood.classification.macro_auroc": Call(
        classification.macro_auroc, {**TWO_SIDES, "category": CATEGORIES}
    ),
    "metrics.ood.classification.metrics": Call(
        classified, CLASSIFIED, {"nll": NAN, "is_in_top5": NAN}
    ),
    "metrics.ood.classification.oscr": Call(
        classification.oscr,
        {"accuracy": SCORES, "correct_auroc": OTHER_SCORES},
        dict.fromkeys(
            ("accuracy", "correct_auroc"), NAN | {"one number", "number without a shape"}
        ),
    ),
    "metrics.matching.true_classes": Call(true_classes, {**TABLES, "iou": 0.5}),
    "metrics.matching.not_of_known": Call(
        not_of_known,
        {**TABLES, "known_classes": NAMES, "iou": 0.5},
        {"known_classes": ANY_ORDER},
    ),
    "metrics.open_set.evaluate": Call(
        open_set.evaluate,
        {
            **TABLES,
            **RULES,
            "is_unknown": FLAGS,
            "unknown_score": SCORES,
            "known_classes": NAMES,
        },
        {"known_classes": ANY_ORDER},
    ),
    "metrics.open_set.metrics": Call(
        open_set.metrics,
        {"outcome": OUTCOME, "unknown_score": SCORES, "weights": np.ones((4, 3), np.int64)},
        {"weights": BELOW_0 | BEYOND_16 | {"halves", "beyond int64"}},
    ),
    "metrics.open_set.metrics_over": Call(
        mean_over_ious,
        {"ious": np.array([0.5, 0.75, 1]), "is_unknown": FLAGS, "unknown_score": SCORES},
    ),
    "metrics.open_set.curve": Call(open_set.curve, {"outcome": OUTCOME, "unknown_score": SCORES}),
    "metrics.open_set.outcomes.sizes_of": Call(sizes_of, {"box": [[0.0, 0.0, 10.0, 10.0]]}),
    "metrics.open_set.by_group": Call(open_set.by_group, {"outcome": OUTCOME, "group": CATEGORIES}),
    "metrics.open_set.known_classes.closed_set": Call(
        known_classes.closed_set, {"split": SPLIT, "regions": REGIONS}
    ),
    "metrics.open_set.known_classes.metrics": Call(
        known_classes.metrics,
        {"outcome": OUTCOME, "regions": REGIONS, "recall": 0.5, "unknown_score": SCORES},
    ),
    "metrics.open_set.known_classes.of_kept": Call(
        known_classes.of_kept, {"outcome": OUTCOME, "known": CLOSED, "recall": 0.5}
    ),
    "metrics.open_set.critical_thresholds.known_objects": Call(
        critical_thresholds.known_objects, {"closed": CLOSED, "scores": SCORES, "iou": 0.5}
    ),
    "metrics.open_set.critical_thresholds.unknown_objects": Call(
        critical_thresholds.unknown_objects, {"split": SPLIT, "scores": SCORES}
    ),
    "metrics.open_set.image_pairs.metrics": Call(
        image_pairs.metrics, {"with_object": OUTCOME, "without": OUTCOME}
    ),
    "metrics.open_set.image_pairs.base_images": Call(
        image_pairs.base_images,
        {"images": {"1": "ab"}, "bases": {"2": "ac"}, "name": "(a)"},
        {"name": {"another word"}},
    ),
    "metrics.open_set.image_pairs.partner_regions": Call(
        image_pairs.partner_regions, {"regions": REGIONS, "base_of": {"x": "a", "y": "b"}}
    ),
    "metrics.open_set.proposals.apart_from_detections": Call(
        proposals.apart_from_detections,
        {"proposals": REGIONS, "detections": REGIONS[:2], "iou": 0.5},
    ),
    "metrics.open_set.proposals.finders": Call(
        proposals.finders,
        {
            "objects": OBJECTS,
            "detections": REGIONS[:2],
            "proposals": REGIONS,
            "rules": SPLIT.settings,
        },
    ),
    "metrics.open_set.proposals.average_recall": Call(
        proposals.average_recall,
        {
            "objects": OBJECTS,
            "proposals": REGIONS,
            "counts": np.array([1, 2, 3]),
            "known_classes": NAMES,
        },
        {"known_classes": ANY_ORDER, "counts": BEYOND_16},
    ),
    "metrics.open_set.proposals.best_of_each_image": Call(
        proposals.best_of_each_image, {"proposals": REGIONS, "count": 1}
    ),
    "metrics.open_set.proposals.thresholds": Call(
        proposals.thresholds, {"alarms": SCORES, "rates": np.array([0.5, 1, 2]), "images": 3}
    ),
    "metrics.open_set.with_proposals.u_recall": Call(
        lambda outcome: open_set_with_proposals().u_recall([outcome], [None]),
        {"outcome": OUTCOME},
    ),
    "metrics.closed_set.evaluate": Call(
        closed_set.evaluate, {**TABLES, "classes": NAMES, "max_detections": 10}
    ),
    "metrics.closed_set.operating_threshold.choose": Call(
        operating_threshold.choose,
        {**TABLES, "rule": "best_f1", "tolerance": 0.5},
        {"rule": {"number"}},
    ),
    "metrics.closed_set.operating_threshold.choose a number": Call(
        operating_threshold.choose, {**TABLES, "rule": 0.5}, {"rule": {"text"}}
    ),
    "metrics.wilderness.evaluate": Call(
        wilderness.evaluate,
        {**WILD, "recalls": np.array([0.25, 0.5, 0.75]), "protocol": "paper", "seed": 1},
        {"closed_images": ANY_ORDER, "wild_images": ANY_ORDER},
    ),
    "metrics.wilderness.background_probability.applies": Call(
        background_probability.applies, {"regions": REGIONS}
    ),
    "metrics.wilderness.background_probability.margins": Call(
        background_probability.margins, {"regions": WITH_BACKGROUND}
    ),
    "metrics.wilderness.background_probability.metrics": Call(
        background_probability.metrics, {"known": SCORES, "unknown": OTHER_SCORES}
    ),
    "metrics.wilderness.background_probability.by_class": Call(
        background_probability.by_class, {"margin": SCORES, "name": CATEGORIES}
    ),
    "metrics.wilderness.background_probability.histogram": Call(
        background_probability.histogram, {"margin": OTHER_SCORES}
    ),
    "metrics.wilderness.published_code.largest_precision": Call(
        published_code.largest_precision, {"is_true": FLAGS, "positives": 3, "recall": 0.5}
    ),
    "metrics.wilderness.published_code.match": Call(
        published_code.match, {**TABLES, "classes": NAMES, "iou": 0.5}
    ),
    "metrics.errors.error_budget.known_gains": Call(
        error_budget.known_gains, {"known": CLOSED, "iou": 0.5}
    ),
    "metrics.errors.error_budget.of_known": Call(
        lambda known, iou: error_budget.of_known(known, iou)[0], {"known": CLOSED, "iou": 0.5}
    ),
    "metrics.errors.error_budget.of_unknown": Call(
        error_budget.of_unknown, {"outcome": OUTCOME, "near": SPLIT.candidates}
    ),
    "metrics.errors.error_budget.unknown_gains": Call(
        error_budget.unknown_gains,
        {
            "outcome": OUTCOME,
            "errors": error_budget.of_unknown(OUTCOME, SPLIT.candidates),
            "unknown_score": SCORES,
            "kinds": texts("missed", "background", "both"),
        },
    ),
    "metrics.errors.error_diagnosis.diagnose": Call(
        error_diagnosis.diagnose, {**TABLES, "points": POINTS}
    ),
    "metrics.errors.error_diagnosis.confusion": Call(
        error_diagnosis.confusion, {**TABLES, "points": POINTS, "touch": 0.5}
    ),
    "metrics.errors.error_diagnosis.counts_at_recalls": Call(
        error_diagnosis.counts_at_recalls,
        {
            "matched": MATCHED,
            "cause": np.zeros(len(MATCHED.score), np.int64),
            "recalls": np.array([0.25, 0.5, 0.75]),
        },
        {"cause": BELOW_0 | BEYOND_16},
    ),
    "metrics.errors.error_diagnosis.shares": Call(
        error_diagnosis.shares, {"counts": np.ones((8, 3, 4))}
    ),
    "metrics.self_awareness.evaluate": Call(
        self_awareness.evaluate,
        {
            **TABLES,
            "classes": NAMES,
            "rejected": texts("a", "b", "c"),
            "may_reject": texts("a", "b", "c"),
            "protocol": "paper",
            "iou": 0.5,
        },
        {"rejected": ANY_ORDER, "may_reject": ANY_ORDER},
    ),
    "metrics.self_awareness.lrp_thresholds": Call(
        self_awareness.lrp_thresholds, {**TABLES, "classes": NAMES, "iou": 0.5}
    ),
    "metrics.self_awareness.best_thresholds": Call(
        self_awareness.best_thresholds, {"matched": BY_CLASS, "iou": 0.5}
    ),
    "metrics.self_awareness.by_class": Call(
        self_awareness.by_class, {"matched": BY_CLASS, "iou": 0.5, "protocol": "paper"}
    ),
    "metrics.self_awareness.metrics": Call(
        self_awareness.metrics, {"matched": BY_CLASS, "iou": 0.5, "protocol": "paper"}
    ),
    "metrics.self_awareness.means": Call(
        self_awareness.means, {"values_by_class": self_awareness.by_class(BY_CLASS)}
    ),
    "metrics.self_awareness.reliability": Call(
        lambda protocol: self_awareness.reliability(BY_CLASS.values(), protocol),
        {"protocol": "paper"},
    ),
    "metrics.self_awareness.balanced_accuracy": Call(
        self_awareness.balanced_accuracy, {**TWO_SIDES, "threshold": 1.0}
    ),
    "metrics.self_awareness.bin_of": Call(self_awareness.bin_of, {"score": SCORES / 4}),
    "metrics.self_awareness.in_a_bin": Call(
        self_awareness.in_a_bin, {"score": SCORES / 4, "protocol": "paper"}
    ),
    "metrics.self_awareness.harmonic_mean": Call(
        lambda first, second: self_awareness.harmonic_mean(first, second),
        {"first": SCORES, "second": OTHER_SCORES},
        dict.fromkeys(
            ("first", "second"), NAN | {"one number", "number without a shape", "another axis"}
        ),
    ),
    "metrics.self_awareness.image_uncertainty.aggregate": Call(
        image_uncertainty.aggregate,
        {
            "uncertainty": SCORES,
            "image_id": IMAGES,
            "images": texts("a", "b", "c", "d"),
            "how": "top-3",
        },
    ),
    "metrics.self_awareness.image_uncertainty.count": Call(
        image_uncertainty.count, {"how": "top-3"}
    ),
    "metrics.self_awareness.image_uncertainty.of_confidence": Call(
        image_uncertainty.of_confidence,
        {"regions": REGIONS, "images": texts("a", "b", "c"), "how": "mean"},
    ),
    "metrics.self_awareness.image_uncertainty.best_threshold": Call(
        image_uncertainty.best_threshold, {"known": OTHER_SCORES, "unknown": SCORES}
    ),
    "metrics.self_awareness.image_uncertainty.threshold_accepting": Call(
        image_uncertainty.threshold_accepting, {"known": SCORES, "share": 0.5}
    ),
    "metrics.self_awareness.calibration.fit": Call(
        calibration.fit, {"kind": "linear", **TABLES, "classes": NAMES, "iou": 0.5}
    ),
    "metrics.self_awareness.calibration.of_matched": Call(
        calibration.of_matched, {"kind": "linear", "matched": BY_CLASS}
    ),
    "metrics.self_awareness.calibration.confidences": Call(
        calibration.confidences,
        {"calibrators": calibration.of_matched("linear", BY_CLASS), "regions": REGIONS},
    ),
    "metrics.self_awareness.calibration_errors.evaluate": Call(
        calibration_errors.evaluate, {**TABLES, "classes": NAMES}
    ),
    "metrics.self_awareness.calibration_errors.d_ece": Call(
        calibration_errors.d_ece, {"matched": BY_CLASS, "bins": 4}
    ),
    "metrics.self_awareness.calibration_errors.laece_0": Call(
        calibration_errors.laece_0, {"matched": BY_CLASS, "bins": 4}
    ),
    "metrics.self_awareness.calibration_errors.laace_0": Call(
        calibration_errors.laace_0, {"matched": BY_CLASS}
    ),
    "metrics.self_awareness.calibration_errors.of_matched": Call(
        calibration_errors.of_matched, {"anywhere": BY_CLASS, "at_half": BY_CLASS}
    ),
    "metrics.statistics.bootstrap.ImageDraws": Call(
        drawn, {"images": texts("a", "b", "c"), "seed": 1}, {"images": ANY_ORDER}
    ),
    "metrics.statistics.bootstrap.interval": Call(
        bootstrap.interval, {"values": SCORES, "level": 0.5}, {"values": NAN}
    ),
    "metrics.statistics.bootstrap.compare": Call(
        bootstrap.compare,
        {"first": SCORES, "second": OTHER_SCORES, "level": 0.5},
        {"first": NAN, "second": NAN},
    ),
    "metrics.statistics.bootstrap.compare_with": Call(
        compared, {"values": 0.75, "replicates": OTHER_SCORES}, {"replicates": NAN}
    ),
    "metrics.statistics.bootstrap.compare_with_each": Call(
        lambda values, replicates: bootstrap.compare_with_each(values, replicates),
        {"values": {"a": 0.5, "b": 1.0}, "replicates": {"a": SCORES, "b": OTHER_SCORES}},
    ),
    "metrics.statistics.risk_control.largest_within": Call(
        risk_control.largest_within,
        {
            "steps": np.array([0.75, 0.25]),
            "image": np.array([0, 1]),
            "sizes": np.ones(2),
            "limit": 0.5,
            "guarantee": "none",
            "confidence": 0.75,
        },
        {"steps": {"infinite", "minus infinity", "half beyond its range"}},
    ),
    "metrics.statistics.risk_control.upper_bound": Call(
        risk_control.upper_bound,
        {"lost": np.array([0.0, 1.0]), "sizes": np.ones(2), "confidence": 0.75},
    ),
    "metrics.statistics.risk_control.images_needed": Call(
        risk_control.images_needed, {"limit": 0.5, "guarantee": "expected", "confidence": 0.75}
    ),
    "metrics.statistics.risk_control.smallest_limit": Call(
        risk_control.smallest_limit, {"images": 4, "guarantee": "expected", "confidence": 0.75}
    ),
    "metrics.statistics.ranking.average_ranks": Call(ranking.average_ranks, {"values": SCORES}),
    "metrics.statistics.ranking.mean_ranks": Call(
        ranking.mean_ranks, {"values": SCORES.reshape(3, 2), "level": 0.5}
    ),
    "metrics.statistics.correlation.matrix": Call(
        correlation.matrix,
        {
            "rows": [{"a": 0.5, "b": 1.0}, {"a": 1.0, "b": 0.25}],
            "metrics": texts("a", "b"),
            "kind": "pearson",
        },
        {"rows": {"list of dicts", "list"}},
    ),
    "similarity.nearest": Call(
        nearest, {"queries": UNIT, "reference": UNIT[::-1], "engine": "numpy"}
    ),
    "similarity.nearest.pairs_above": Call(
        pairs, {"first": UNIT, "second": UNIT[1:], "threshold": 0.5}
    ),
    "similarity.sources.EmbeddedSplit": Call(
        embedded,
        {
            "image_id": texts("a", "b", "c", "d"),
            "digest": texts("w", "x", "y", "z"),
            "vectors": UNIT,
        },
    ),
    "similarity.near_duplicates": Call(
        lambda threshold, limit: near_duplicates([NEAR, FAR], threshold, limit),
        {"threshold": 0.5, "limit": 4},
    ),
    "similarity.prototypes": Call(
        lambda objects, classes: prototypes([(NEAR, objects)], classes),
        {"objects": OBJECTS, "classes": NAMES},
    ),
    "similarity.Prototypes.nearest": Call(prototypes([(NEAR, OBJECTS)]).nearest, {"vectors": UNIT}),
    "similarity.stratify": Call(
        lambda reference, prototypes, params: stratify(reference, [NEAR, FAR], prototypes, params),
        {
            "reference": ID_IMAGES,
            "prototypes": prototypes([(NEAR, OBJECTS)]),
            "params": StratifyParams(),
        },
    ),
    "similarity.stratify.cuts_of": Call(
        cuts_of_two, {"first": SCORES[:4] / 4, "second": OTHER_SCORES[:4] / 4}
    ),
    "similarity.stratify.best_cut": Call(best_cut, {"low": OTHER_SCORES, "high": SCORES}),
    "similarity.stratify.Cuts.suggest": Call(
        cuts_of_two(SCORES[:4] / 4, OTHER_SCORES[:4] / 4).suggest, {"similarity": SCORES}
    ),
    "tables.Regions": Call(
        Regions,
        {
            "image_id": IMAGES,
            "region_id": np.arange(6),
            "box": BOXES,
            "score": SCORES / 4,
            "label": LABELS,
            "logits": LOGITS,
            "features": FEATURES,
            "uncertainty": SCORES,
            "detections": np.arange(6),
            "classes": NAMES,
        },
        {"region_id": BELOW_0 | BEYOND_16, "detections": BELOW_0 | BEYOND_16},
    ),
    "tables.Objects": Call(
        Objects,
        {
            "image_id": IMAGES,
            "object_id": np.arange(6),
            "box": BOXES,
            "category": CATEGORIES,
            "is_crowd": FLAGS,
        },
        {"object_id": BELOW_0 | BEYOND_16},
    ),
    "tables.Images": Call(
        Images,
        {
            "image_id": texts("a", "b", "c"),
            "dataset": texts("d", "d", "d"),
            "file": texts("a.jpg", "b.jpg", "c.jpg"),
            "width": np.array([1, 2, 3]),
            "height": np.array([4, 5, 6]),
            "digest": texts("x", "y", "z"),
        },
        {"width": BELOW_0 | BEYOND_16, "height": BELOW_0 | BEYOND_16},
    ),
    "tables.Scores": Call(
        Scores,
        {"image_id": IMAGES, "region_id": np.arange(6), "score": SCORES},
        {"region_id": BELOW_0 | BEYOND_16},
    ),
    "tables.Regions.from_arrays": Call(
        Regions.from_arrays,
        {
            "logits": LOGITS,
            "features": FEATURES,
            "labels": LABELS,
            "scores": SCORES / 4,
            "boxes": BOXES,
            "images": IMAGES,
            "classes": NAMES,
        },
    ),
    "tables.Regions.from_arrays(last_layer=…)": Call(
        last_layer_of, {"weight": FEATURES[:2], "bias": SCORES[:2]}
    ),
    "tables.Regions.from_dicts": Call(
        from_records,
        {
            "boxes": BOXES[:3],
            "scores": SCORES[:3] / 4,
            "labels": LABELS[:3],
            "logits": LOGITS[:3],
            "iscrowd": FLAGS[:3],
            "classes": NAMES,
        },
        {"iscrowd": {"zeros and ones", "floats"}},
    ),
    "tables.Regions.from_transformers": Call(
        from_outputs,
        {
            "boxes": BOXES[:3],
            "scores": SCORES[:3] / 4,
            "labels": LABELS[:3],
            "classes": NAMES,
            "image_ids": texts("a"),
        },
        {"image_ids": {"numbers"}},
    ),
    "farther.record": Call(
        recorded,
        {
            "boxes": BOXES[:3],
            "scores": SCORES[:3] / 4,
            "labels": LABELS[:3],
            "rows": np.array([0, 2, 4]),
        },
    ),
}


def open_set_with_proposals() -> Any:
    from farther.metrics.open_set import with_proposals

    return with_proposals


#: Documented functions of metrics that take no values of users that could have another form.
WITHOUT_VALUES = {
    "metrics.catalogue.metric_name": "a name, which is looked up",
    "metrics.closed_set.known_class_names": "tables of farther, and classes as `evaluate` has them",
    "metrics.open_set.images_of_groups": "outcomes of farther",
    "metrics.open_set.images_of_shares": "outcomes of farther",
    "metrics.open_set.with_proposals.any_class": "a header of farther",
    "metrics.statistics.bootstrap.why_no_interval": "replicates of farther, as `interval` has them",
    "metrics.statistics.bootstrap.recomputed": "a function",
    "metrics.user_defined.create_all": "parameters, which their registry checks",
}


#: Documented functions of other packages that read files, and take no values beside their names.
READ_FILES = {
    "curation": (
        "curation.benchmark",
        "curation.benchmark_kind",
        "curation.curate",
        "curation.fates_by_rules",
        "curation.read_rules",
        "curation.subsets_used",
        "curation.time_after",
    ),
    "similarity": (
        "similarity.embed_dataset",
        "similarity.not_embedded",
        "similarity.stratify_benchmark",
    ),
}


@dataclasses.dataclass(frozen=True)
class Case:
    """An argument of a call, and how it is changed."""

    call: str
    argument: str
    form: str
    is_refused: bool

    def __str__(self) -> str:
        return f"{self.call}({self.argument}: {self.form})"


def all_cases() -> list[Case]:
    cases = []
    for name, call in CALLS.items():
        for argument, value in call.values.items():
            for form in arguments.same_forms(value):
                cases.append(Case(name, argument, form, is_refused=False))
            for form in arguments.refused_forms(value):
                if form not in call.accepted.get(argument, ()):
                    cases.append(Case(name, argument, form, is_refused=True))
    return cases


def plain(value: Any) -> Any:
    """A result as lists and dicts, to be compared."""
    if hasattr(value, "frame"):
        return {name: plain(column) for name, column in value.columns().items()}
    if isinstance(value, (np.ndarray, np.generic)):
        return plain(value.tolist())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)
        }
    if isinstance(value, pl.DataFrame):
        return value.to_dict(as_series=False)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(round(float(value), 9))
    return value


def failure_of(case: Case) -> str:
    """What is wrong with a case; empty if nothing is."""
    call = CALLS[case.call]
    value = call.values[case.argument]
    forms = arguments.refused_forms(value) if case.is_refused else arguments.same_forms(value)
    changed = forms[case.form](copy.deepcopy(value))
    try:
        result = call.function(**{**call.values, case.argument: changed})
    except FartherError:
        return ""
    except Exception as error:
        return f"{case}: {type(error).__name__}: {error}"
    if case.is_refused:
        return f"{case}: not refused"
    expected = call.function(**call.values)
    if plain(result) != plain(expected):
        return f"{case}: another result"
    return ""


def failures_of(cases: list[Case]) -> list[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        failures = [failure_of(case) for case in cases]
    return [failure for failure in failures if failure]


def test_drawn_forms_of_arguments_give_the_same_result_or_are_refused():
    assert failures_of(drawn_cases(all_cases(), 400)) == []


@pytest.mark.slow
def test_many_forms_of_arguments_give_the_same_result_or_are_refused():
    assert failures_of(drawn_cases(all_cases(), 5000)) == []


def test_arrays_are_taken_in_most_of_their_forms():
    """A border that refuses everything would pass the tests above."""
    for form in ("list", "iterator", "pandas", "polars", "tensor", "bfloat16", "with gradients"):
        changed = arguments.same_forms(SCORES)[form](SCORES)
        assert ood.auroc(changed, OTHER_SCORES) == ood.auroc(SCORES, OTHER_SCORES)


def documented_functions() -> Iterator[str]:
    """Public functions of metrics that the pages of the reference name."""
    page = (ROOT / "docs/api/metrics.md").read_text(encoding="utf-8")
    for module_name in re.findall(r"^::: (farther\.metrics\S*)", page, re.MULTILINE):
        module = pkgutil.resolve_name(module_name)
        for name, value in vars(module).items():
            is_own = inspect.isfunction(value) and value.__module__ == module.__name__
            if is_own and not name.startswith("_") and inspect.signature(value).parameters:
                yield f"{module_name.removeprefix('farther.')}.{name}"


def documented_functions_of(package: str) -> Iterator[str]:
    """Functions that the page of the reference of a package names one by one."""
    page = (ROOT / f"docs/api/{package}.md").read_text(encoding="utf-8")
    for name in re.findall(rf"^::: farther\.({package}\.\S+)", page, re.MULTILINE):
        if inspect.isfunction(pkgutil.resolve_name(f"farther.{name}")):
            yield name


@pytest.mark.parametrize("package", ["curation", "similarity"])
def test_every_documented_function_of_a_package_is_among_the_calls(package):
    called = {name.split(" ")[0] for name in CALLS}
    assert set(documented_functions_of(package)) - called == set(READ_FILES[package])


def test_every_documented_metric_is_among_the_calls():
    called = {name.split(" ")[0] for name in CALLS}
    assert sorted(set(documented_functions()) - called - set(WITHOUT_VALUES)) == []


if __name__ == "__main__":
    os.environ["FARTHER_TEST_ALL"] = "1"
    cases = all_cases()
    print(len(cases), "cases")
    print("\n".join(failures_of(cases)))
