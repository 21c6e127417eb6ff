"""The files that the stage `evaluate` writes for people, DVC and the report."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import polars as pl

from farther.evaluation import plots
from farther.evaluation.files import RunFiles
from farther.evaluation.results import Evaluation, MethodResults, Number, write_results
from farther.metrics.catalogue import COMPARED, METRICS
from farther.tables.documents import write_json
from farther.tables.files import inside
from farther.tables.writing import write_aside


def write_run(
    files: RunFiles,
    evaluation: Evaluation,
    frames: Mapping[str, Mapping[str, pl.DataFrame]],
) -> None:
    """Writes metrics, plots and `evaluation/<run>.json`; files of an earlier evaluation are replaced as a whole.

    Args:
        files: The run's files.
        evaluation: The content of `evaluation/<run>.json`.
        frames: {method: {kind of plot: rows}}.
    """
    with write_aside(files.metrics) as folder:
        _write_metrics(folder, evaluation)
    with write_aside(files.plots) as folder:
        plots.write_csv(folder, _plots(evaluation, frames))
    write_results(files.evaluation, evaluation)


def _write_metrics(folder: Path, evaluation: Evaluation) -> None:
    closed = evaluation.closed_set.values
    classifier = evaluation.classifier.values if evaluation.classifier else {}
    of_detector = {
        "map50": closed["ap50"],
        "map": closed["ap"],
        **classifier,
        "threshold": evaluation.threshold,
    }
    write_json(folder / "detector.json", of_detector)
    write_json(
        folder / "methods.json",
        {name: _of_method(found) for name, found in evaluation.methods.items()},
    )
    for name, counts in evaluation.splits.items():
        write_json(inside(folder, f"{name}/detector.json"), {"no_detection": counts.no_detection})
    for method, found in evaluation.methods.items():
        for split, results in found.splits.items():
            compared = {name: results.value(METRICS[name]) for name in COMPARED}
            write_json(
                inside(folder, f"{split}/{method}.json"),
                {**compared, **results.of_group("user_defined")},
            )


def _of_method(results: MethodResults) -> dict[str, Number]:
    """The metrics of a method that belong to no single split."""
    means = {
        f"{distance}_{name}": of.values[name]
        for distance, of in results.means.items()
        for name in ("auroc", "fpr95", "full_spectrum_auroc", "oscr")
        if name in of.values
    }
    errors = {
        name: results.misclassification.values[name]
        for name in ("auroc", "fpr95", "aurc", "e_aurc")
    }
    costs = {name: results.costs.values[name] for name in ("false_alarms", "id_flagged")}
    return {
        **means,
        **{f"misclassification_{name}": value for name, value in errors.items()},
        **costs,
    }


def _plots(
    evaluation: Evaluation,
    frames: Mapping[str, Mapping[str, pl.DataFrame]],
) -> dict[str, pl.DataFrame]:
    """The rows of all methods, sorted by split, and those of the detector."""
    found = {
        kind: pl.concat(
            [plots.frame(kind, []), *(of_method[kind] for of_method in frames.values())]
        )
        for kind in plots.OF_METHODS
    }
    order = {split: number for number, split in enumerate(evaluation.splits)}
    by_split = pl.col("split").replace_strict(order, return_dtype=pl.Int64)
    found = {kind: rows.sort(by_split, maintain_order=True) for kind, rows in found.items()}
    of_detector = pl.DataFrame(
        [{"t": float(t), **values} for t, values in evaluation.map_at.items()],
        schema={"t": pl.Float64, "map50": pl.Float64, "map": pl.Float64},
    )
    confidence = (
        found["confidence"]
        .drop("map50", "map")
        .join(of_detector, on="t", how="left", maintain_order="left")
    )
    found["confidence"] = confidence.sort(by_split, "t", maintain_order=True).select(
        *plots.SCHEMAS["confidence"]
    )
    wild, diagram = evaluation.wilderness, evaluation.self_awareness.reliability_before
    found["wilderness"] = plots.frame(
        "wilderness",
        (
            {"recall": recall, "ratio": ratio, "impact": impact}
            for recall, at in wild.at_recall.items()
            for ratio, impact in zip(wild.ratios, at.impact, strict=True)
        ),
    )
    found["reliability"] = pl.DataFrame(
        vars(diagram), schema_overrides=plots.SCHEMAS["reliability"]
    ).drop("lower")
    return found
