"""Tables 2 to 7 of SAOD as printed, `data/published/saod_<name>.csv`, beside a run's values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from farther.errors import DataError, shorten
from farther.evaluation.image_uncertainties import (
    AGGREGATE,
    BOX_ENTROPY,
    CONFIDENCE,
    DETERMINANT,
    ENTROPY,
)
from farther.evaluation.results import Ablation, SelfAwarenessResults
from farther.evaluation.self_aware_run import ALL_OOD
from farther.report.charts.vega import read_csv
from farther.report.results import Run

#: The columns that identify a detector.
DETECTOR = ("detector", "id")

#: Values of a run for a printed row: column → value.
Values = Mapping[str, float | None]


@dataclass(frozen=True)
class SaodTable:
    """A table of SAOD, `saod_<name>.csv`.

    Args:
        number: Its number in the paper.
        keys: Columns that identify a row of a detector → headings.
        values: Columns of values, fractions → headings with the unit " (%)".
        values_of_run: Computes a run's values for a printed row; empty where it has none.
    """

    number: int
    keys: Mapping[str, str]
    values: Mapping[str, str]
    values_of_run: Callable[[Run, SelfAwarenessResults, Mapping[str, Any]], Values]

    @property
    def title(self) -> str:
        """Its number in words."""
        return f"Table {self.number}"


def _aggregates(run: Run, aware: SelfAwarenessResults, row: Mapping[str, Any]) -> Values:
    values = {}
    for column in TABLES["aggregates"].values:
        aggregate = column.replace("_", "-")
        values[column] = aware.aggregates.get(aggregate, {}).get(ALL_OOD)
    return values


#: Column of Table 3 → the uncertainty of detections that it is made of.
UNCERTAINTIES = {
    "entropy": ENTROPY,
    "dempster_shafer": "Dempster–Shafer",
    "confidence": CONFIDENCE,
    "box_determinant": DETERMINANT,
    "box_trace": "box trace",
    "box_entropy": BOX_ENTROPY,
}


def _uncertainties(run: Run, aware: SelfAwarenessResults, row: Mapping[str, Any]) -> Values:
    values = {}
    for column, name in UNCERTAINTIES.items():
        if name in aware.uncertainties:
            values[column] = aware.uncertainties[name].values.get(AGGREGATE)
    return values


def _subsets(run: Run, aware: SelfAwarenessResults, row: Mapping[str, Any]) -> Values:
    values = {"all": aware.splits[ALL_OOD]["auroc"]}
    for dataset in {split.dataset for split in run.splits}:
        values[dataset] = auroc_of_dataset(run, aware, dataset)
    return values


def auroc_of_dataset(run: Run, aware: SelfAwarenessResults, dataset: str) -> float | None:
    """AUROC of image uncertainty against all OOD images of a dataset, of several splits together.

    All splits are compared with the same ID images, so it is the mean of the splits' AUROC,
    weighted by their images.
    """
    total = 0.0
    images = 0
    for split in run.splits:
        if split.dataset != dataset or split.name not in aware.splits:
            continue
        auroc = aware.splits[split.name]["auroc"]
        if auroc is not None:
            count = aware.images[split.name].images
            total += auroc * count
            images += count
    if not images:
        return None
    return total / images


def _calibration(run: Run, aware: SelfAwarenessResults, row: Mapping[str, Any]) -> Values:
    return aware.calibrated.get(row["calibrator"], {})


def _detectors(run: Run, aware: SelfAwarenessResults, row: Mapping[str, Any]) -> Values:
    values: dict[str, float | None] = {}
    for column in TABLES["detectors"].values:
        value = aware.values.get(column)
        if value is not None:
            values[column] = float(value)
    if run.evaluation:
        of_validation = aware.accuracy.get(run.evaluation.settings.calibration_split)
        if of_validation is not None:
            values["val_lrp"] = of_validation.values.get("lrp")
            values["val_ap"] = of_validation.values.get("ap")
    return values


def _ablation(run: Run, aware: SelfAwarenessResults, row: Mapping[str, Any]) -> Values:
    for step in aware.ablation:
        if _is_step_of_row(step, row):
            return step.metrics
    return {}


def _is_step_of_row(step: Ablation, row: Mapping[str, Any]) -> bool:
    return (
        step.confidence_threshold == row["confidence_threshold"]
        and (step.calibrator or "none") == row["calibrator"]
        and step.image_threshold == row["image_threshold"]
    )


#: Name → table, in the order of the paper.
TABLES = {
    "aggregates": SaodTable(
        2,
        {},
        {
            "sum": "sum (%)",
            "mean": "mean (%)",
            "top_5": "top-5 (%)",
            "top_3": "top-3 (%)",
            "top_2": "top-2 (%)",
            "min": "min (%)",
        },
        _aggregates,
    ),
    "uncertainties": SaodTable(
        3,
        {},
        {
            "entropy": "H(p) (%)",
            "dempster_shafer": "DS (%)",
            "confidence": "1 − p (%)",
            "box_determinant": "|Σ| (%)",
            "box_trace": "tr(Σ) (%)",
            "box_entropy": "H(Σ) (%)",
        },
        _uncertainties,
    ),
    "subsets": SaodTable(
        4,
        {},
        {
            "objects365": "Obj365 (%)",
            "inaturalist": "iNat (%)",
            "svhn": "SVHN (%)",
            "all": "all OOD (%)",
        },
        _subsets,
    ),
    "calibration": SaodTable(
        5, {"calibrator": "Calibrator"}, {"laece": "LaECE (%)", "lrp": "LRP (%)"}, _calibration
    ),
    "detectors": SaodTable(
        6,
        {},
        {
            "daq": "DAQ (%)",
            "balanced_accuracy": "BA (%)",
            "idq": "IDQ (%)",
            "laece": "LaECE (%)",
            "lrp": "LRP (%)",
            "idq_t": "T(ID) IDQ (%)",
            "laece_t": "T(ID) LaECE (%)",
            "lrp_t": "T(ID) LRP (%)",
            "val_lrp": "Val LRP (%)",
            "val_ap": "Val AP (%)",
        },
        _detectors,
    ),
    "ablation": SaodTable(
        7,
        {"confidence_threshold": "v", "calibrator": "Calibrator", "image_threshold": "u"},
        {
            "daq": "DAQ (%)",
            "balanced_accuracy": "BA (%)",
            "laece": "LaECE (%)",
            "lrp": "LRP (%)",
            "laece_t": "LaECE_T (%)",
            "lrp_t": "LRP_T (%)",
        },
        _ablation,
    ),
}


def read_tables(folder: Path) -> dict[str, pl.DataFrame]:
    """Name → the printed rows, those of an absent file without rows.

    Args:
        folder: `data/published` of a project.

    Raises:
        DataError: a file lacks a column, has a text where a number belongs, or a value that is no
            fraction.
    """
    return {name: _read_table(folder / f"saod_{name}.csv", table) for name, table in TABLES.items()}


def _read_table(file: Path, table: SaodTable) -> pl.DataFrame:
    columns: dict[str, type[pl.DataType]] = {}
    for name in (*DETECTOR, *table.keys):
        columns[name] = pl.String
    for name in table.values:
        columns[name] = pl.Float64
    rows = read_csv(file, columns)
    for number, row in enumerate(rows.iter_rows(named=True)):
        for name in table.values:
            value = row[name]
            if value is not None and not 0 <= value <= 1:
                problem = f"expected a fraction, 0 to 1, found {shorten(value)}"
                raise DataError(problem, file=file, row=number, field=name)
    return rows


@dataclass(frozen=True)
class ComparedRow:
    """A printed row beside a run's values.

    Args:
        keys: Heading → key of the row.
        run: Column → the run's value; columns may be absent.
        printed: Column → the printed value, None where there is none.
    """

    keys: Mapping[str, Any]
    run: Values
    printed: Values


def compared_rows(
    name: str, run: Run, aware: SelfAwarenessResults, printed: pl.DataFrame
) -> Iterator[ComparedRow]:
    """Each printed row of a detector beside a run's values.

    Args:
        name: A name in `TABLES`.
        run: The run, and its self-awareness.
        aware: See `run`.
        printed: Rows of the table.
    """
    table = TABLES[name]
    for row in printed.iter_rows(named=True):
        yield ComparedRow(
            keys={heading: row[column] for column, heading in table.keys.items()},
            run=table.values_of_run(run, aware, row),
            printed={column: row[column] for column in table.values},
        )
