"""Values that papers print, and those of runs that repeat them: the files of `data/published`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from farther.errors import DataError, shorten
from farther.report.charts.vega import read_csv
from farther.report.papers.frames import Sources
from farther.report.papers.layout import PaperLayout, PrintedValues, TableLayout
from farther.report.settings import Counterpart

#: Folder of the printed values below the project's folder.
PUBLISHED = Path("data") / "published"

#: Columns that name a published detector.
DETECTOR = ("detector", "id")


@dataclass(frozen=True)
class ComparedValue:
    """A value of a run beside the printed one.

    Args:
        row: A row with the labels of the value.
        value_labels: The labels that tell the column of the printed value from others.
        ours, printed: The values; None where there is none.
    """

    row: Mapping[str, Any]
    value_labels: Sequence[str]
    ours: float | None
    printed: float | None


@dataclass(frozen=True)
class ComparedRun:
    """A run, or several seeds as one, beside the printed values of its counterpart.

    Args:
        name, title: Name and title of the run, or the name of the seeds.
        counterpart: The published detector.
        pairs: The values.
    """

    name: str
    title: str
    counterpart: Counterpart
    pairs: Sequence[ComparedValue]


def printed_rows(
    root: Path, published: PrintedValues, table: TableLayout
) -> list[Mapping[str, Any]]:
    """The printed values as rows of a long table, one per value; none where the file is absent.

    Args:
        root: The project's folder.
        published: The file, and what its columns are.
        table: The layout of the table that has them.

    Raises:
        DataError: the file lacks a column, has a text where a number belongs, or a value in per
            cent that is no fraction.
    """
    frame = _read(root, published)
    file = root / PUBLISHED / published.file
    decimals = published.decimals or table.decimals
    rows: list[Mapping[str, Any]] = []
    for number, line in enumerate(frame.iter_rows(named=True)):
        if any(line[column] != value for column, value in published.where.items()):
            continue
        labels = {label: line[column] for column, label in published.keys.items()}
        if "detector" in line:
            labels["detector"] = line["detector"]
            labels["dataset"] = line["id"]
            labels["algorithm"] = table.fill("{detector} ({dataset})", labels)
        for column, value_labels in published.values.items():
            row: dict[str, Any] = {"run": "", "metric": "", **labels, **value_labels}
            row["value"] = line[column]
            row["unit"] = published.unit
            row["printed_labels"] = tuple(value_labels)
            for name, text in published.labels.items():
                row[name] = table.fill(text, row)
            row["shown"] = ""
            row["is_interval_printed"] = False
            row["column_order"] = len(rows)
            is_fraction = published.unit == "fraction" and row["metric"] not in decimals
            if is_fraction and line[column] is not None and not 0 <= line[column] <= 1:
                problem = f"expected a fraction, 0 to 1, found {shorten(line[column])}"
                raise DataError(problem, file=file, row=number, field=column)
            rows.append(row)
    return rows


def _read(root: Path, published: PrintedValues) -> pl.DataFrame:
    """The columns of a file; `detector` and `id` where it has them."""
    columns: dict[str, type[pl.DataType]] = {}
    columns.update(dict.fromkeys(DETECTOR, pl.String))
    columns.update(dict.fromkeys((*published.where, *published.keys), pl.String))
    columns.update(dict.fromkeys(published.values, pl.Float64))
    return read_csv(root / PUBLISHED / published.file, columns, optional=DETECTOR)


def published_detectors(root: Path, papers: Sequence[PaperLayout]) -> set[tuple[str, str]]:
    """Detector and ID dataset of all printed values.

    Args:
        root: The project's folder.
        papers: The papers that print them.

    Raises:
        DataError: see `printed_rows`.
    """
    detectors: set[tuple[str, str]] = set()
    for paper in papers:
        for table in paper.tables:
            for published in table.published:
                frame = _read(root, published)
                if set(DETECTOR) <= set(frame.columns):
                    detectors.update(frame.select(DETECTOR).rows())
    return detectors


def compare(
    rows: Sequence[Mapping[str, Any]],
    published: PrintedValues,
    printed: Sequence[Mapping[str, Any]],
    sources: Sources,
) -> Iterator[ComparedRun]:
    """Each run that repeats a published detector, beside its printed values.

    A value is compared where both have it: their labels are the same.

    Args:
        rows: The rows of the table, of all runs.
        published: What the columns of the file are.
        printed: Its rows.
        sources: The runs that repeat published detectors.
    """
    for name, counterpart in sources.published.items():
        if not counterpart.comparable:
            continue
        names_of_runs = sources.seeds.get(name, [name])
        rows_of_runs = [row for row in rows if row["run"] in names_of_runs]
        pairs: list[ComparedValue] = []
        for printed_row in printed:
            is_of_counterpart = (
                printed_row.get("detector") == counterpart.detector
                and printed_row.get("dataset") == counterpart.id
            )
            if is_of_counterpart:
                pairs += _pairs(rows_of_runs, published, printed_row)
        if pairs:
            title = name if name in sources.seeds else str(rows_of_runs[0]["algorithm"])
            yield ComparedRun(name, title, counterpart, pairs)


def _pairs(
    rows: Sequence[Mapping[str, Any]], published: PrintedValues, printed: Mapping[str, Any]
) -> Iterator[ComparedValue]:
    """The values of runs that have the labels of a printed one.

    Several rows are one value, seeds or splits of a dataset, unless labels of theirs are different
    names of the same printed one.
    """
    value_labels = printed["printed_labels"]
    labels = [*published.keys.values(), *value_labels]
    rows_by_labels: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        is_same = True
        for label in labels:
            value = row.get(label)
            if value is not None:
                value = published.same.get(label, {}).get(value, value)
            is_same = is_same and value == printed[label]
        if is_same:
            own_labels = tuple(row.get(label) for label in labels)
            rows_by_labels.setdefault(own_labels, []).append(row)
    for same_rows in rows_by_labels.values():
        ours = _mean_over_images(same_rows)
        yield ComparedValue(same_rows[0], value_labels, ours, printed["value"])


def _mean_over_images(rows: Sequence[Mapping[str, Any]]) -> float | None:
    """Mean of values, weighted by their numbers of images where these are known."""
    values = [row["value"] for row in rows]
    if any(value is None for value in values):
        return None
    weights = [row["n"] for row in rows]
    if any(weight is None for weight in weights) or not sum(weights):
        weights = [1] * len(rows)
    total = sum(value * weight for value, weight in zip(values, weights, strict=True))
    return float(total / sum(weights))
