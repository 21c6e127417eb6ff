"""Evaluation of one method on all OOD splits of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from farther.cores import give_back_memory
from farther.evaluation import across, intervals, plots, sweeps
from farther.evaluation.case import MethodScores, SplitCase
from farther.evaluation.files import RunFiles
from farther.evaluation.groups import GROUPS
from farther.evaluation.inputs import RunInputs
from farther.evaluation.results import (
    FittedMethod,
    GroupResults,
    MethodResults,
    SplitResults,
    read_results,
    write_results,
)
from farther.evaluation.threshold import StoredTau, stored_tau
from farther.evaluation.weights import ONCE
from farther.metrics import open_set
from farther.metrics.open_set.outcomes import Outcome
from farther.scoring.fitted import read_entries
from farther.tables.documents import read_json, write_json
from farther.tables.parquet import read_parquet, write_parquet
from farther.tables.schema import check

#: Most categories that a remark names.
LISTED = 10


@dataclass(frozen=True)
class FittedRun:
    """The fitted methods of a run, in the order of params.yaml.

    Args:
        applicable: Content of `method.json` of those that apply.
        refused: Why each of the others does not apply.
    """

    applicable: dict[str, FittedMethod]
    refused: dict[str, str]

    @classmethod
    def read(cls, files: RunFiles) -> FittedRun:
        """Those that the stage `fit` made.

        Raises:
            DataError: a file is absent or damaged.
        """
        applicable, refused = {}, {}
        for name in read_entries(files.all_fitted).names:
            file = files.fitted(name) / "method.json"
            fitted = check(FittedMethod, read_json(file), file)
            if fitted.not_applicable is None:
                applicable[name] = fitted
            else:
                refused[name] = fitted.not_applicable
        return cls(applicable, refused)

    def only(self, names: Sequence[str] | None) -> FittedRun:
        """The methods of some names, in their order; all when None."""
        if names is None:
            return self
        applicable = {name: self.applicable[name] for name in names if name in self.applicable}
        refused = {name: self.refused[name] for name in names if name in self.refused}
        return FittedRun(applicable, refused)


@dataclass(frozen=True)
class EvaluatedMethod:
    """All that is computed for one method.

    Args:
        results: All results, without the comparisons with other methods.
        frames: Rows of each kind of plot.
        tau: The threshold τ.
        replicates: {split: {metric: ndarray of shape (B,)}}.
        outcomes: {split: outcomes of the regions and the objects}.
    """

    results: MethodResults
    frames: dict[str, pl.DataFrame]
    tau: StoredTau
    replicates: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)
    outcomes: dict[str, Outcome] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """Writes everything but the outcomes."""
        folder.mkdir(parents=True, exist_ok=True)
        for kind, frame in self.frames.items():
            write_parquet(frame, folder / f"{kind}.parquet")
        for split, values in self.replicates.items():
            write_parquet(pl.DataFrame(values), folder / f"{split}.replicates.parquet")
        write_json(folder / "threshold.json", self.tau.model_dump())
        write_results(folder / "results.json", self.results)

    @classmethod
    def read(cls, folder: Path, splits: Sequence[str]) -> EvaluatedMethod:
        """What `write` wrote.

        Raises:
            DataError: a file is damaged.
        """
        replicates = {}
        for split in splits:
            frame = read_parquet(folder / f"{split}.replicates.parquet")
            replicates[split] = {column.name: column.to_numpy() for column in frame}
        return cls(
            results=read_results(MethodResults, folder / "results.json", f"delete {folder}"),
            frames={kind: read_parquet(folder / f"{kind}.parquet") for kind in plots.OF_METHODS},
            tau=stored_tau(folder / "threshold.json"),
            replicates=replicates,
        )


def evaluate_method(
    name: str, fitted: FittedMethod, tau: StoredTau, inputs: RunInputs
) -> EvaluatedMethod:
    """Evaluates one method on all OOD test splits.

    Args:
        name: Its name in the section `methods`.
        fitted: What was fitted.
        tau: Its threshold τ.
        inputs: The run's inputs.
    """
    for split in () if inputs.whole_images else inputs.tested:
        if "mixed" not in vars(split):  # made before all else, as that takes the most memory
            _ = split.mixed
            give_back_memory()
    scores = MethodScores(inputs, name, tau.threshold)
    id_scores = scores.of_id.scores
    share = float(np.mean(id_scores >= tau.threshold)) if len(id_scores) else None
    splits: dict[str, SplitResults] = {}
    rows: dict[str, list[dict[str, Any]]] = {kind: [] for kind in plots.OF_METHODS}
    replicates, outcomes = {}, {}
    map50 = sweeps.closed_set_over_tau(inputs.closed_set, id_scores, inputs.settings.kept)
    for split in inputs.tested:
        case = SplitCase(scores, split)
        splits[split.name], replicates[split.name] = _measured(case)
        outcome, stored, of_split, of_ood = (
            case.outcome,
            case.stored,
            case.regions.scores,
            case.of_ood.scores,
        )
        del case  # and all that is cached in it
        outcomes[split.name] = outcome
        swept = sweeps.over_tau(split.split, of_split, id_scores, inputs.settings.kept)
        drawn = {
            "roc": plots.roc(id_scores, of_ood),
            "pr": plots.precision_recall(open_set.curve(outcome, -of_split)),
            "tau": [{**row, "map50": map50.get(row["kept"])} for row in swept],
            "confidence": sweeps.over_confidence(
                split.steps(), stored, scores.stored, tau.threshold, inputs.settings.aupr
            ),
        }
        for kind, of_kind in drawn.items():
            rows[kind] += [{"split": split.name, "method": name, **row} for row in of_kind]
    results = MethodResults(
        fitted=fitted.model_copy(update={"remarks": [*fitted.remarks, *_leaks(fitted, inputs)]}),
        tau=tau.threshold,
        id_regions=len(id_scores),
        id_regions_kept=share,
        splits=splits,
        means=across.means(splits, replicates, inputs.roles.distance),
        misclassification=across.errors(inputs, id_scores),
        costs=across.costs(inputs, id_scores, tau.threshold),
    )
    frames = {kind: plots.frame(kind, points) for kind, points in rows.items()}
    return EvaluatedMethod(results, frames, tau, replicates, outcomes)


def _measured(case: SplitCase) -> tuple[SplitResults, dict[str, np.ndarray]]:
    """The results of all groups of metrics that apply; and replicates by the metrics' names."""
    groups: dict[str, GroupResults] = {}
    details: dict[str, Any] = {}
    replicates: dict[str, np.ndarray] = {}
    weights = case.split.weights
    for group in GROUPS.values():
        if group.applies(case):
            found = {**group.counts(case), **group.values(case, ONCE)}
            drawn = {} if weights is None else group.values(case, weights)
            groups[group.name] = GroupResults(
                values={key: of for key, of in found.items() if not isinstance(of, dict | str)},
                intervals=intervals.within(drawn),
                parts={key: of for key, of in found.items() if isinstance(of, dict)},
                labels={key: of for key, of in found.items() if isinstance(of, str)},
            )
            details |= group.details(case)
            replicates |= {f"{group.prefix}{key}": of for key, of in drawn.items()}
    return SplitResults(groups=groups, **details), replicates


def _leaks(fitted: FittedMethod, inputs: RunInputs) -> list[str]:
    """A remark on negative prompts that name a category of an OOD test split: those that the method or labels use."""
    header = inputs.id_split.folder.header
    prompts = {header.classes[column] for column in header.unknown_columns}
    if fitted.name == "neg_label":
        fitted_on = fitted.state["fitted_on_"]
        prompts |= {fitted_on["classes"][column] for column in fitted_on["unknown_columns"]}
    categories = {str(name) for split in inputs.tested for name in set(split.objects.category)}
    folded = {name.replace("_", " ").casefold() for name in prompts}
    named = sorted(name for name in categories if name.replace("_", " ").casefold() in folded)
    if not named:
        return []
    listed = ", ".join(named[:LISTED]) + (" and more" if len(named) > LISTED else "")
    return [
        f"negative prompts name {len(named)} of the {len(categories)} categories of the test splits: {listed}"
    ]
