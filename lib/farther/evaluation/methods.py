"""Evaluation of one method on all OOD splits of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from farther.evaluation import intervals, plots, summaries, sweeps
from farther.evaluation.files import RunFiles
from farther.evaluation.groups import GROUPS
from farther.evaluation.groups.base import MetricGroup
from farther.evaluation.inputs import RunInputs, TestSplit
from farther.evaluation.replicates import read_replicates, write_replicates
from farther.evaluation.results import (
    FittedMethod,
    GroupResults,
    MethodClasses,
    MethodResults,
    SplitResults,
    read_kept_results,
    write_results,
)
from farther.evaluation.scored_split import MethodScores, ScoredSplit
from farther.evaluation.threshold import StoredTau, stored_tau
from farther.evaluation.weights import ONCE
from farther.metrics import open_set
from farther.metrics.open_set.known_outcomes import KnownOutcome
from farther.metrics.open_set.outcomes import Outcome
from farther.scoring.fitted import read_entries
from farther.tables.documents import read_json, write_json
from farther.tables.parquet import read_parquet, write_parquet
from farther.tables.schema import check

#: File of the results by the OODness of classes.
CLASSES = "classes.json"

#: Number of categories that a remark names.
LISTED = 10


@dataclass(frozen=True)
class FittedRun:
    """The fitted methods of a run, in the order of params.yaml.

    Args:
        applicable: Content of `method.json` of the methods that apply.
        refused: Why each of the other methods does not apply.
    """

    applicable: dict[str, FittedMethod]
    refused: dict[str, str]

    @classmethod
    def read(cls, files: RunFiles) -> FittedRun:
        """The methods that the stage `fit` fitted.

        Raises:
            DataError: a file is absent or damaged.
        """
        applicable = {}
        refused = {}
        for name in read_entries(files.all_fitted).names:
            file = files.fitted(name) / "method.json"
            fitted = check(FittedMethod, read_json(file), file)
            if fitted.not_applicable is None:
                applicable[name] = fitted
            else:
                refused[name] = fitted.not_applicable
        return cls(applicable, refused)

    def only(self, names: Sequence[str] | None) -> FittedRun:
        """The methods with these names, in the order of the names; all when None."""
        if names is None:
            return self
        applicable = {name: self.applicable[name] for name in names if name in self.applicable}
        refused = {name: self.refused[name] for name in names if name in self.refused}
        return FittedRun(applicable, refused)


@dataclass(frozen=True)
class EvaluatedMethod:
    """The results of one method.

    Args:
        results: All results, without the comparisons with other methods.
        frames: Rows of each kind of plot.
        tau: The threshold τ.
        replicates: {split: {metric: ndarray of shape (B,)}}.
        outcomes: {split: outcomes of the regions and the objects}.
        known: Outcomes in the ID split; None where the results were read.
        classes: Results by the OODness of classes; None where no split's images were chosen by
            rules.
    """

    results: MethodResults
    frames: dict[str, pl.DataFrame]
    tau: StoredTau
    replicates: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    known: KnownOutcome | None = None
    classes: MethodClasses | None = None

    def write(self, folder: Path) -> None:
        """Writes everything but the outcomes."""
        folder.mkdir(parents=True, exist_ok=True)
        for kind, frame in self.frames.items():
            write_parquet(frame, folder / f"{kind}.parquet")
        for split, values in self.replicates.items():
            write_replicates(folder / f"{split}.replicates.parquet", values)
        write_json(folder / "threshold.json", self.tau.model_dump())
        write_results(folder / "results.json", self.results)
        if self.classes is not None:
            write_results(folder / CLASSES, self.classes)

    @classmethod
    def read(cls, folder: Path, splits: Sequence[str]) -> EvaluatedMethod:
        """Reads what `write` wrote.

        Raises:
            DataError: a file is damaged.
        """
        replicates = {}
        for split in splits:
            replicates[split] = read_replicates(folder / f"{split}.replicates.parquet")
        classes = None
        if (folder / CLASSES).exists():
            classes = read_kept_results(MethodClasses, folder / CLASSES, f"delete {folder}")
        return cls(
            results=read_kept_results(MethodResults, folder / "results.json", f"delete {folder}"),
            frames={kind: read_parquet(folder / f"{kind}.parquet") for kind in plots.OF_METHODS},
            tau=stored_tau(folder / "threshold.json"),
            replicates=replicates,
            classes=classes,
        )


def evaluate_method(
    name: str, fitted: FittedMethod, tau: StoredTau, inputs: RunInputs
) -> EvaluatedMethod:
    """Evaluates one method on all OOD test splits.

    Args:
        name: Its name in the section `methods`.
        fitted: The fitted method.
        tau: Its threshold τ.
        inputs: The run's inputs.
    """
    if not inputs.whole_images:
        for split in inputs.tested:
            split.prepare()

    scores = MethodScores(inputs, name, tau)
    id_scores = scores.detections.scores
    map50_by_share = sweeps.closed_set_over_tau(inputs.closed_set, id_scores, inputs.settings.kept)

    results_by_split: dict[str, SplitResults] = {}
    replicates_by_split: dict[str, dict[str, np.ndarray]] = {}
    outcome_by_split: dict[str, Outcome] = {}
    rows_by_plot: dict[str, list[dict[str, Any]]] = {kind: [] for kind in plots.OF_METHODS}
    for split in inputs.tested:
        measured = _measure_split(scores, split, map50_by_share)
        results_by_split[split.name] = measured.results
        replicates_by_split[split.name] = measured.replicates
        outcome_by_split[split.name] = measured.outcome
        for kind, rows in measured.rows_by_plot.items():
            for row in rows:
                rows_by_plot[kind].append({"split": split.name, "method": name, **row})

    id_regions_kept = None
    if len(id_scores):
        id_regions_kept = float(np.mean(id_scores >= tau.threshold))
    remarks = [*fitted.remarks, *_leaks(fitted, inputs)]
    known = KnownOutcome.of(inputs.id_open_set.match(id_scores < tau.threshold))
    results = MethodResults(
        fitted=fitted.model_copy(update={"remarks": remarks}),
        tau=tau.threshold,
        id_regions=len(id_scores),
        id_regions_kept=id_regions_kept,
        splits=results_by_split,
        means=summaries.means_by_distance(
            results_by_split, replicates_by_split, inputs.roles.distance
        ),
        misclassification=summaries.misclassification_results(inputs, id_scores),
        costs=summaries.flagging_costs(inputs, id_scores, tau),
        costs_by_attribute=summaries.costs_by_attribute(inputs, id_scores, tau),
        known_objects=summaries.known_objects(known),
    )
    frames = {kind: plots.frame(kind, rows) for kind, rows in rows_by_plot.items()}
    return EvaluatedMethod(results, frames, tau, replicates_by_split, outcome_by_split, known)


@dataclass(frozen=True)
class _MeasuredSplit:
    """The results of a method on one OOD split.

    Args:
        results: Results of all groups of metrics that apply.
        replicates: {metric: ndarray of shape (B,)}.
        outcome: Outcome of the regions and the objects.
        rows_by_plot: Rows of each kind of plot, without the names of split and method.
    """

    results: SplitResults
    replicates: dict[str, np.ndarray]
    outcome: Outcome
    rows_by_plot: dict[str, list[dict[str, Any]]]


def _measure_split(
    method: MethodScores, split: TestSplit, map50_by_share: Mapping[float, float | None]
) -> _MeasuredSplit:
    """Measures a method on one OOD split.

    Args:
        method: The method.
        split: The split.
        map50_by_share: mAP50 of the ID split by the share of ID regions that τ keeps.
    """
    scored = ScoredSplit(method, split)
    results, replicates = _group_results(scored)
    outcome = scored.outcome
    stored_scores = scored.stored_scores
    scores = scored.detections.scores
    ood_scores = scored.ood_detections.scores
    del scored  # and all that it caches, before the sweeps

    settings = split.inputs.settings
    id_scores = method.detections.scores
    swept = sweeps.over_tau(split.open_set, scores, id_scores, settings.kept)
    tau_rows = [{**row, "map50": map50_by_share.get(row["kept"])} for row in swept]
    confidence_rows = sweeps.over_confidence(
        split.steps(), stored_scores, method.stored_scores, method.tau, settings.aupr
    )
    rows_by_plot = {
        "roc": plots.roc(id_scores, ood_scores),
        "pr": plots.precision_recall(open_set.curve(outcome, -scores)),
        "tau": tau_rows,
        "confidence": confidence_rows,
    }
    return _MeasuredSplit(results, replicates, outcome, rows_by_plot)


def _group_results(scored: ScoredSplit) -> tuple[SplitResults, dict[str, np.ndarray]]:
    """Results of all groups of metrics that apply, and replicates by the metrics' names."""
    groups: dict[str, GroupResults] = {}
    details: dict[str, Any] = {}
    replicates: dict[str, np.ndarray] = {}
    weights = scored.split.weights
    for group in GROUPS.values():
        if not group.applies(scored):
            continue

        group_replicates = {}
        if weights is not None:
            group_replicates = group.values(scored, weights)
        for key, values in group_replicates.items():
            replicates[f"{group.prefix}{key}"] = values

        results = GroupResults()
        for key, value in {**group.counts(scored), **group.values(scored, ONCE)}.items():
            if isinstance(value, dict):
                results.parts[key] = value
            elif isinstance(value, str):
                results.labels[key] = value
            else:
                results.values[key] = value
        problem = too_few_images(scored.split, scored.inputs, group)
        of_group = intervals.of_metrics(
            results.values, group_replicates, group.images(scored), problem
        )
        groups[group.name] = results.model_copy(update=of_group)
        details |= group.details(scored)
    return SplitResults(groups=groups, **details), replicates


def too_few_images(split: TestSplit, inputs: RunInputs, group: MetricGroup) -> str:
    """Why resamples of the images say nothing of a group's metrics; "" where they do."""
    images = len(split.images)
    if group.needs_id_images:
        images = min(images, len(inputs.id_split.images))
    if images < 2:
        return "there is a single image to resample"
    return ""


def _leaks(fitted: FittedMethod, inputs: RunInputs) -> list[str]:
    """A remark on negative prompts that name a category of an OOD test split.

    These are the prompts that the method was fitted with or that the detector's labels use.
    """
    header = inputs.id_split.folder.header
    prompts = {header.classes[column] for column in header.unknown_columns}
    if fitted.name == "neg_label":
        fitted_header = fitted.state["fitted_on_"]
        prompts |= {fitted_header["classes"][column] for column in fitted_header["unknown_columns"]}
    folded_prompts = {_folded(prompt) for prompt in prompts}

    categories: set[str] = set()
    for split in inputs.tested:
        categories |= {str(category) for category in set(split.objects.category)}
    leaked = sorted(category for category in categories if _folded(category) in folded_prompts)
    if not leaked:
        return []

    listed = ", ".join(leaked[:LISTED])
    if len(leaked) > LISTED:
        listed += " and more"
    return [
        f"negative prompts name {len(leaked)} of the {len(categories)} categories "
        f"of the test splits: {listed}"
    ]


def _folded(name: str) -> str:
    """A name without differences of case, and of underscores and spaces."""
    return name.replace("_", " ").casefold()
