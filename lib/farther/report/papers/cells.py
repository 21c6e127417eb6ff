"""The rows that a table selects, and their arrangement as its rows, columns and cells."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import polars as pl

from farther.errors import DataError
from farther.evaluation.parts import has_further_key, read_value
from farther.report.listing import ABSENT, Listing, percent, rate
from farther.report.papers.layout import Selection, TableLayout, labels_in

#: A row of a long table with its labels.
Row = Mapping[str, Any]


def selected_rows(frame: pl.DataFrame, table: TableLayout) -> list[Row]:
    """The rows that a table selects, in the order of its rows, with all of their labels.

    Each also has `selection`, the position of its selection, and `column_order`.
    """
    rows: list[dict[str, Any]] = []
    for position, selection in enumerate(table.select):
        for row in _select(frame, selection).iter_rows(named=True):
            row["selection"] = position
            row["averaged"] = row["benchmark_group"]
            for name, text in selection.labels.items():
                row[name] = table.fill(text, row)
            row["is_interval_printed"] = selection.intervals
            row["shown"] = ""
            if selection.show:
                row["shown"] = table.title_of(selection.show, row)
            _add_order(row, table, selection, len(rows))
            rows.append(row)
    for label, value in table.needs.items():
        runs = {row["run"] for row in rows if row.get(label) == value}
        rows = [row for row in rows if row["run"] in runs]
    return sorted(rows, key=_row_order)


def _select(frame: pl.DataFrame, selection: Selection) -> pl.DataFrame:
    """The rows of a selection, with a column per key of their part."""
    rows = frame.filter(pl.col("metric").is_in(selection.metrics))
    if selection.networks != "all":
        rows = rows.filter(is_classifier=selection.networks == "classifiers")
    if selection.group:
        rows = rows.filter(group=selection.group)
    if selection.benchmarks:
        rows = rows.filter(pl.col("kind").is_in(selection.benchmarks))
    if selection.protocols:
        rows = rows.filter(pl.col("protocol").is_in(selection.protocols))
    rows = rows.filter(~pl.col("protocol").is_in(selection.other_protocols))
    is_of_role = pl.col("role").is_in([*selection.splits, ""])  # values of the data have no role
    if "role" not in selection.part:
        rows = rows.filter(is_of_role | (pl.col("run") == ""))
    if not selection.part:
        return rows.filter(part="")

    pattern = ", ".join(f"{re.escape(key)}=(.*)" for key in selection.part)
    parts = pl.col("part").str.extract_groups(f"^{pattern}$")
    columns = []
    for position, key in enumerate(selection.part, start=1):
        columns.append(parts.struct.field(str(position)).alias(key))
    rows = rows.with_columns(columns)
    for key, values in selection.part.items():
        rows = rows.filter(pl.col(key).is_not_null(), ~has_further_key(pl.col(key)))
        rows = rows.with_columns(pl.col(key).map_elements(read_value, return_dtype=pl.String))
        if values:
            rows = rows.filter(pl.col(key).is_in(values))
    return rows


def _add_order(
    row: dict[str, Any], table: TableLayout, selection: Selection, position: int
) -> None:
    """Adds the orders of a row among rows and among columns.

    Only labels that tell rows apart give them their order.
    """
    method_position = len(table.methods)
    if row["method"] in table.methods:
        method_position = table.methods.index(row["method"])
    positions = {"split": row["split_position"]}
    for key, values in selection.part.items():
        positions[key] = 0
        if values:
            positions[key] = values.index(row[key])
    positions["metric"] = selection.metrics.index(row["metric"])

    row_labels = _row_labels(table, selection)
    of_rows = [number for label, number in positions.items() if label in row_labels]
    run = row["run_position"]
    row["row_order"] = [run, row["selection"], method_position, *of_rows, position]
    row["column_order"] = [row["selection"], run, *positions.values(), position]


def _row_labels(table: TableLayout, selection: Selection) -> set[str]:
    """The labels that tell rows apart, and those that the selection makes these of."""
    labels = set(table.rows)
    for name in table.rows:
        labels.update(labels_in(selection.labels.get(name, "")))
    return labels


def _row_order(row: Row) -> Any:
    return row["row_order"]


def _column_order(row: Row) -> Any:
    return row["column_order"]


@dataclass(frozen=True)
class CellText:
    """The text of a cell.

    Args:
        text: The text.
        is_percent: Whether it is in per cent; None of what is no number.
        has_value: Whether it has a value.
    """

    text: str
    is_percent: bool | None
    has_value: bool


NO_VALUE = CellText(ABSENT, is_percent=None, has_value=False)


class Arrangement:
    """Rows of a long table, arranged by their labels.

    Args:
        table: The layout.
        rows: The rows, in the order of the table's rows.
    """

    def __init__(self, table: TableLayout, rows: Sequence[Row]):
        self._table = table
        self._labels = _labels_with_values(table, rows)
        #: Titles of a row → heading of a column → joined label → rows of the long table.
        self._cells: dict[tuple[str, ...], dict[str, dict[str, list[Row]]]] = {}
        #: Column, joined label and network → the runs that have a value there.
        self._runs: dict[tuple[str, str, str], set[str]] = {}
        for row in rows:
            self._add(row)
        #: Heading of a column → the joined labels of its cells.
        self._columns: dict[str, list[str]] = {}
        for row in sorted(rows, key=_column_order):
            self._add_column(row)

    def _add(self, row: Row) -> None:
        titles = tuple(self._table.title_of(label, row) for label in self._labels)
        column, joined = self._place(row)
        cell = self._cells.setdefault(titles, {}).setdefault(column, {})
        cell.setdefault(joined, []).append(row)
        self._runs.setdefault((column, joined, row.get("network", "")), set()).add(row["run"])

    def _add_column(self, row: Row) -> None:
        column, joined = self._place(row)
        joined_labels = self._columns.setdefault(column, [])
        if joined and joined not in joined_labels:
            joined_labels.append(joined)

    def _place(self, row: Row) -> tuple[str, str]:
        """The column of a row, and its joined label, "" without one."""
        column = self._table.fill(self._table.column, row)
        return column, str(row.get(self._table.joined, ""))

    def listing(self, caption: str) -> Listing:
        """The table; rows without any value are left out.

        Raises:
            DataError: two values are in one cell, and the table does not average runs.
        """
        texts_by_titles = {}
        for titles, cell_by_column in self._cells.items():
            texts = {}
            for column in cell_by_column:
                texts[column] = self._text(column, cell_by_column[column])
            if any(text.has_value for text in texts.values()):
                texts_by_titles[titles] = texts

        headings = {}
        for column in self._columns:
            texts_of_column = []
            for texts in texts_by_titles.values():
                if column in texts:
                    texts_of_column.append(texts[column])
            if not texts_of_column:
                continue
            headings[column] = column
            if _are_percent(texts_of_column):
                headings[column] = f"{column} (%)"

        listed = []
        for titles, texts in texts_by_titles.items():
            row: dict[str, str | None] = {}
            for label, title in zip(self._labels, titles, strict=True):
                row[self._table.rows[label]] = title
            for column, heading in headings.items():
                row[heading] = None
                if column in texts:
                    row[heading] = texts[column].text
            listed.append(row)
        return Listing.from_rows(caption, listed, list(headings.values()))

    def _text(self, column: str, cell: Mapping[str, Sequence[Row]]) -> CellText:
        """The text of a cell: of its value, or of several that are joined."""
        if "" in cell:
            return self._text_of_rows(column, "", cell[""])
        texts = []
        for joined in self._columns[column]:
            if joined in cell:
                texts.append(self._text_of_rows(column, joined, cell[joined]))
            else:
                texts.append(NO_VALUE)
        is_percent = _are_percent(texts)
        if not any(text.has_value for text in texts):
            return CellText(ABSENT, is_percent, has_value=False)
        return CellText(" / ".join(text.text for text in texts), is_percent, has_value=True)

    def _text_of_rows(self, column: str, joined: str, rows: Sequence[Row]) -> CellText:
        first = rows[0]
        if first["shown"]:
            shown = dict.fromkeys(str(row["shown"]) for row in rows)
            return CellText(", ".join(shown), is_percent=None, has_value=True)
        if self._table.averages_runs:
            value = self._mean(column, joined, rows)
            return value_text(self._table.decimals, first, value)
        if len(rows) > 1:
            titles = [self._table.title_of(label, first) for label in self._labels]
            raise DataError(
                f"{self._table.number}: {len(rows)} values in the cell "
                f"{' / '.join([*titles, column])}; name what tells them apart in rows or column"
            )
        interval = None
        if first["is_interval_printed"] and first["low"] is not None:
            interval = (first["low"], first["high"])
        return value_text(self._table.decimals, first, first["value"], interval)

    def _mean(self, column: str, joined: str, rows: Sequence[Row]) -> float | None:
        """The mean over the runs of each benchmark, then over benchmarks.

        None where a run that its network has in other rows has no value.
        """
        runs = {row["run"] for row in rows}
        is_complete = runs == self._runs[column, joined, rows[0].get("network", "")]
        if not is_complete or any(row["value"] is None for row in rows):
            return None
        values_by_benchmark: dict[str, list[float]] = {}
        for row in rows:
            values_by_benchmark.setdefault(row["averaged"], []).append(row["value"])
        means = [fmean(values) for values in values_by_benchmark.values()]
        return fmean(means)


def _labels_with_values(table: TableLayout, rows: Sequence[Row]) -> list[str]:
    """The labels of a table's rows that any row has."""
    labels = []
    for label in table.rows:
        for row in rows:
            if row.get(label):
                labels.append(label)
                break
    return labels


def _are_percent(texts: Iterable[CellText]) -> bool | None:
    """Whether all numbers are in per cent; None without numbers."""
    numbers = [text.is_percent for text in texts if text.is_percent is not None]
    if not numbers:
        return None
    return all(numbers)


def value_text(
    decimals: Mapping[str, int],
    row: Row,
    value: float | None,
    interval: Sequence[float] | None = None,
) -> CellText:
    """The text of a value of a row's metric and unit.

    Args:
        decimals: Those of metrics that are not printed in per cent.
        row: A row.
        value: The value.
        interval: Its 95% interval.
    """
    is_percent = row["unit"] == "fraction" and row["metric"] not in decimals
    if value is None:
        return CellText(ABSENT, is_percent, has_value=False)
    if row["metric"] in decimals:
        return CellText(f"{value:,.{decimals[row['metric']]}f}", is_percent=False, has_value=True)
    if row["unit"] == "count":
        return CellText(f"{value:,.0f}", is_percent=False, has_value=True)
    if is_percent:
        return CellText(percent(value, interval), is_percent=True, has_value=True)
    return CellText(rate(value), is_percent=False, has_value=True)
