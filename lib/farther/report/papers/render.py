"""Papers' tables from their layout: rows of a long table, arranged by their labels."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from farther.errors import DataError
from farther.escaping import latex, spreadsheet
from farther.report.listing import ABSENT, Listing, percent, rate
from farther.report.papers.frames import FRAMES, Sources
from farther.report.papers.layout import PrintedValues, Selection, TableLayout, labels_in
from farther.report.papers.printed import ComparedRun, compare, printed_rows

#: A row of a long table with its labels.
Row = Mapping[str, Any]


@dataclass(frozen=True)
class PaperListing:
    """A table on the page of a paper, and the name of its files.

    Args:
        listing: The table.
        stem: Name of its CSV and of its LaTeX file, without ending.
    """

    listing: Listing
    stem: str


@dataclass(frozen=True)
class PaperTable:
    """A table of a paper, with this project's values and with the printed ones.

    Args:
        layout: Its layout.
        listings: Its values; without them, the table is not on the page.
    """

    layout: TableLayout
    listings: Sequence[PaperListing]

    @property
    def is_shown(self) -> bool:
        """True if there are values."""
        return bool(self.listings)


class LongTables:
    """The long tables of a project, each made when a table first selects from it.

    Args:
        sources: The data that they are made from.
    """

    def __init__(self, sources: Sources):
        self.sources = sources
        self._frames: dict[str, pl.DataFrame] = {}

    def get(self, name: str) -> pl.DataFrame:
        """One of `farther.report.papers.frames.FRAMES`."""
        if name not in self._frames:
            self._frames[name] = FRAMES[name](self.sources)
        return self._frames[name]


def render(table: TableLayout, tables: LongTables) -> PaperTable:
    """A table of a paper.

    Args:
        table: Its layout.
        tables: The long tables.

    Raises:
        DataError: two values are in one cell, or a printed value is wrong.
    """
    frame = tables.get(table.source)
    rows = selected_rows(frame, table)
    listings = []
    for group, rows_of_group in _groups(rows, table.per):
        caption = _caption(table, frame, rows_of_group)
        listing = arrange(table, rows_of_group, caption)
        if len(listing):
            listings.append(PaperListing(listing, _stem(table.stem, group)))
    if not listings:
        return PaperTable(table, [])

    for number, published in enumerate(table.published):
        printed = printed_rows(tables.sources.root, published, table)
        suffix = f"-{number + 1}" if number else ""
        for compared in compare(rows, published, printed, tables.sources):
            listing = _beside(table, published, compared)
            if len(listing):
                stem = _stem(f"{table.stem}-beside{suffix}", compared.name)
                listings.append(PaperListing(listing, stem))
        if not published.caption:
            continue
        layout = _printed_layout(table, published)
        for group, rows_of_group in _groups(printed, table.per):
            caption = table.fill(published.caption, rows_of_group[0])
            listing = arrange(layout, rows_of_group, caption)
            if len(listing):
                stem = _stem(f"{table.stem}-printed{suffix}", group)
                listings.append(PaperListing(listing, stem))
    return PaperTable(table, listings)


def _stem(first: str, group: str) -> str:
    """A file name: letters, digits and hyphens."""
    if not group:
        return first
    return f"{first}-{re.sub(r'[^A-Za-z0-9]+', '-', group).strip('-')}"


def _printed_layout(table: TableLayout, published: PrintedValues) -> TableLayout:
    """The layout of the table of all printed values."""
    changed: dict[str, Any] = {"joined": table.joined, "averages_runs": False}
    if published.rows:
        changed["rows"] = published.rows
    if published.column:
        changed["column"] = published.column
        changed["joined"] = ""
    if published.decimals:
        changed["decimals"] = published.decimals
    return table.model_copy(update=changed)


# Selection


def selected_rows(frame: pl.DataFrame, table: TableLayout) -> list[Row]:
    """The rows that a table selects, in the order of its rows, with all of their labels.

    Each also has `selection`, the position of its selection, and `column_order`.
    """
    rows: list[dict[str, Any]] = []
    for position, selection in enumerate(table.select):
        for row in _select(frame, selection).iter_rows(named=True):
            row["selection"] = position
            for name, text in selection.labels.items():
                row[name] = table.fill(text, row)
            row["is_interval_printed"] = selection.intervals
            row["shown"] = ""
            if selection.show:
                row["shown"] = table.title_of(selection.show, row)
            row["average"] = selection.average
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
    is_of_role = pl.col("role").is_in([*selection.splits, ""])  # values of the data have no role
    if "role" not in selection.part:
        rows = rows.filter(is_of_role | (pl.col("run") == ""))
    if not selection.part:
        return rows.filter(part="")

    # A value may have commas and equals signs, but not a comma before a key.
    pattern = ", ".join(f"{re.escape(key)}=(.*)" for key in selection.part)
    parts = pl.col("part").str.extract_groups(f"^{pattern}$")
    columns = []
    for position, key in enumerate(selection.part, start=1):
        columns.append(parts.struct.field(str(position)).alias(key))
    rows = rows.with_columns(columns)
    for key, values in selection.part.items():
        has_further_keys = pl.col(key).str.contains(r", [^,=]+=")
        rows = rows.filter(pl.col(key).is_not_null(), ~has_further_keys)
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
        positions[key] = values.index(row[key]) if values else 0
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


def _groups(rows: Sequence[Row], per: str) -> Iterator[tuple[str, Sequence[Row]]]:
    """The rows of each table: all of them, or those of each run or dataset, by its name."""
    if not per:
        if rows:
            yield "", rows
        return
    rows_by_group: dict[str, list[Row]] = {}
    for row in rows:
        name = row["run"] or row.get("algorithm", "")
        if per == "dataset":
            name = row["dataset"]
        rows_by_group.setdefault(name, []).append(row)
    yield from rows_by_group.items()


def _caption(table: TableLayout, frame: pl.DataFrame, rows: Sequence[Row]) -> str:
    """The caption of a table, with the numbers of its splits."""
    caption = table.fill(table.caption, rows[0])
    counts: dict[str, list[str]] = {}
    for counted in table.counted:
        is_of_split = pl.col("split").is_in({row["split"] for row in rows})
        if counted.splits:
            is_of_split = pl.col("role").is_in(counted.splits)
        counted_rows = frame.filter(
            pl.col("run").is_in({row["run"] for row in rows}),
            is_of_split & (pl.col("split") != "") & pl.col("value").is_not_null(),
            group=counted.group,
            metric=counted.metric,
            part="",
        ).unique(["dataset", "split"], maintain_order=True)
        datasets = counted_rows["dataset"].n_unique()
        for row in counted_rows.sort("run_position", "split_position").iter_rows(named=True):
            split = table.title_of("split", row)
            name = f"{row['dataset']} {split}" if datasets > 1 else split
            counts.setdefault(name, []).append(f"{int(row['value']):,} {counted.word}")
    if not counts:
        return caption
    texts = [f"{name}: {', '.join(of_split)}" for name, of_split in counts.items()]
    return f"{caption} {'; '.join(texts)}."


# Cells


@dataclass
class Cell:
    """The values of one cell: those of one position, or of several that are joined.

    Args:
        rows: Value of the label `TableLayout.joined` → its rows.
    """

    rows: dict[str, list[Row]] = field(default_factory=dict)


@dataclass(frozen=True)
class _Text:
    """The text of a cell.

    Args:
        text: The text.
        is_percent: Whether it is in per cent; None of what is no number.
        has_value: Whether it has a value.
    """

    text: str
    is_percent: bool | None
    has_value: bool


def arrange(table: TableLayout, rows: Sequence[Row], caption: str) -> Listing:
    """A table of rows: their labels as its rows and columns, their values as its cells.

    Rows without any value are left out, and so are columns of labels that no row has.

    Args:
        table: Its layout.
        rows: The rows, in the order of the table's rows.
        caption: Its caption.

    Raises:
        DataError: two values are in one cell, and the table does not average runs.
    """
    labels = [label for label in table.rows if any(row.get(label) for row in rows)]
    cells: dict[tuple[str, ...], dict[str, Cell]] = {}
    for row in rows:
        key = tuple(table.title_of(label, row) for label in labels)
        column = table.fill(table.column, row)
        cell = cells.setdefault(key, {}).setdefault(column, Cell())
        cell.rows.setdefault(str(row.get(table.joined, "")), []).append(row)

    columns = _columns(table, rows)
    texts_by_key = {}
    for key, cell_by_column in cells.items():
        texts = {}
        for column, positions in columns.items():
            if column in cell_by_column:
                texts[column] = _text(table, cell_by_column[column], positions)
        texts_by_key[key] = texts
    _add_averages(table, cells, columns, texts_by_key)

    kept = {key: texts for key, texts in texts_by_key.items() if _has_value(texts.values())}
    heading_by_column = {}
    for column in _with_averages(table, rows, columns):
        texts_of_column = [texts[column] for texts in kept.values() if column in texts]
        if texts_of_column:
            is_percent = _are_percent(texts_of_column)
            heading_by_column[column] = f"{column} (%)" if is_percent else column
    listed = []
    for key, texts in kept.items():
        cells_of_row: dict[str, str | None] = {}
        for label, title in zip(labels, key, strict=True):
            cells_of_row[table.rows[label]] = title
        for column, heading in heading_by_column.items():
            cells_of_row[heading] = texts[column].text if column in texts else None
        listed.append(cells_of_row)
    return Listing.from_rows(caption, listed, list(heading_by_column.values()))


def _has_value(texts: Iterable[_Text]) -> bool:
    return any(text.has_value for text in texts)


def _are_percent(texts: Iterable[_Text]) -> bool | None:
    """Whether all numbers are in per cent; None without numbers."""
    numbers = [text.is_percent for text in texts if text.is_percent is not None]
    if not numbers:
        return None
    return all(numbers)


def _columns(table: TableLayout, rows: Sequence[Row]) -> dict[str, list[str]]:
    """The columns in their order → the values of the label that is joined in each."""
    positions_by_column: dict[str, list[str]] = {}
    for row in sorted(rows, key=_column_order):
        positions = positions_by_column.setdefault(table.fill(table.column, row), [])
        position = str(row.get(table.joined, ""))
        if position and position not in positions:
            positions.append(position)
    return positions_by_column


def _text(table: TableLayout, cell: Cell, positions: Sequence[str]) -> _Text:
    """The text of a cell, with values at some positions, or with one of no position."""
    if "" in cell.rows:
        return _text_of_rows(table, cell.rows[""])
    texts = [_text_of_rows(table, cell.rows.get(position, [])) for position in positions]
    if not _has_value(texts):
        return _Text(ABSENT, _are_percent(texts), has_value=False)
    joined = " / ".join(text.text for text in texts)
    return _Text(joined, _are_percent(texts), has_value=True)


def _text_of_rows(table: TableLayout, rows: Sequence[Row]) -> _Text:
    """The text of the values at one position of a cell."""
    if not rows:
        return _Text(ABSENT, is_percent=None, has_value=False)
    first = rows[0]
    if first["shown"]:
        shown = dict.fromkeys(str(row["shown"]) for row in rows)
        return _Text(", ".join(shown), is_percent=None, has_value=True)
    interval = None
    if len(rows) == 1 and first["is_interval_printed"] and first["low"] is not None:
        interval = (first["low"], first["high"])
    return value_text(table.decimals, first, _mean(table, rows), interval)


def value_text(
    decimals: Mapping[str, int],
    row: Row,
    value: float | None,
    interval: Sequence[float] | None = None,
) -> _Text:
    """The text of a value of a row's metric and unit.

    Args:
        decimals: Those of metrics that are not printed in per cent.
        row: A row.
        value: The value.
        interval: Its 95% interval.
    """
    is_percent = row["unit"] == "fraction" and row["metric"] not in decimals
    if value is None:
        return _Text(ABSENT, is_percent, has_value=False)
    if row["metric"] in decimals:
        return _Text(f"{value:,.{decimals[row['metric']]}f}", is_percent=False, has_value=True)
    if row["unit"] == "count":
        return _Text(f"{value:,.0f}", is_percent=False, has_value=True)
    if is_percent:
        return _Text(percent(value, interval), is_percent=True, has_value=True)
    return _Text(rate(value), is_percent=False, has_value=True)


def _mean(table: TableLayout, rows: Sequence[Row]) -> float | None:
    """The value of some rows: their mean, None where one has no value."""
    if len(rows) > 1 and not table.averages_runs:
        place = " / ".join(str(rows[0].get(label)) for label in table.rows)
        raise DataError(
            f"{table.number}: {len(rows)} values in the cell {place} / "
            f"{table.fill(table.column, rows[0])}; name what tells them apart in rows or column"
        )
    values = [row["value"] for row in rows]
    if any(value is None for value in values):
        return None
    return float(sum(values) / len(values))


# Averages over columns


def _with_averages(
    table: TableLayout, rows: Sequence[Row], columns: Mapping[str, object]
) -> list[str]:
    """The columns, each selection's followed by their average."""
    average_by_column: dict[str, str] = {}
    for row in rows:
        average = row.get("average", "")
        if average:
            average_by_column[table.fill(table.column, row)] = average
    ordered: list[str] = []
    names = list(columns)
    for position, column in enumerate(names):
        ordered.append(column)
        average = average_by_column.get(column, "")
        followed = [average_by_column.get(name) for name in names[position + 1 :]]
        if average and average not in followed:
            ordered.append(average)
    return ordered


def _add_averages(
    table: TableLayout,
    cells: Mapping[tuple[str, ...], Mapping[str, Cell]],
    columns: Mapping[str, Sequence[str]],
    texts_by_key: Mapping[tuple[str, ...], dict[str, _Text]],
) -> None:
    """Adds the means over the columns of the selections that have an average."""
    # Average and network → its columns → the positions of their cells.
    columns_of_network: dict[tuple[str, str], dict[str, dict[str, None]]] = {}
    for cell_by_column in cells.values():
        for column, cell in cell_by_column.items():
            for position, rows in cell.rows.items():
                group = (rows[0].get("average", ""), rows[0].get("network", ""))
                of_group = columns_of_network.setdefault(group, {})
                of_group.setdefault(column, {})[position] = None

    for key, cell_by_column in cells.items():
        for (average, network), positions_by_column in columns_of_network.items():
            if not average or not _is_of_network(cell_by_column, average, network):
                continue
            mean_cell = Cell()
            for column, positions in positions_by_column.items():
                for position in positions:
                    mean_cell.rows.setdefault(position, []).append(
                        _mean_row(table, cell_by_column.get(column, Cell()), position)
                    )
            joined: dict[str, None] = {}
            for column, positions_in_order in columns.items():
                if column in positions_by_column:
                    joined.update(dict.fromkeys(positions_in_order))
            averaging = table.model_copy(update={"averages_runs": True})
            texts_by_key[key][average] = _text(averaging, mean_cell, list(joined))


def _is_of_network(cells: Mapping[str, Cell], average: str, network: str) -> bool:
    """Whether a row has cells of a network in a selection with an average."""
    for cell in cells.values():
        for rows in cell.rows.values():
            if (rows[0].get("average", ""), rows[0].get("network", "")) == (average, network):
                return True
    return False


def _mean_row(table: TableLayout, cell: Cell, position: str) -> Row:
    """The mean of one position of a cell as a row."""
    rows = cell.rows.get(position, [])
    value = _mean(table, rows) if rows else None
    unit = rows[0]["unit"] if rows else "fraction"
    metric = rows[0]["metric"] if rows else ""
    return {
        "value": value,
        "unit": unit,
        "metric": metric,
        "shown": "",
        "is_interval_printed": False,
        "low": None,
    }


# Beside printed values


def _beside(table: TableLayout, published: PrintedValues, compared: ComparedRun) -> Listing:
    """A run's values beside the printed ones, and their differences."""
    decimals = published.decimals or table.decimals
    cells_by_key: dict[tuple[str, ...], dict[str, str | None]] = {}
    headings: dict[str, None] = {}
    for pair in compared.pairs:
        key = tuple(table.title_of(label, pair.row) for label in published.keys.values())
        cells = cells_by_key.setdefault(key, {})
        if not cells:
            for label, title in zip(published.keys.values(), key, strict=True):
                cells[table.rows.get(label, label.capitalize())] = title

        words = [table.title_of(label, pair.row) for label in pair.value_labels]
        name = " ".join(words)
        ours = value_text(decimals, pair.row, pair.ours)
        theirs = value_text(decimals, pair.row, pair.printed)
        unit = " (%)" if ours.is_percent else ""
        difference = ABSENT
        if pair.ours is not None and pair.printed is not None:
            difference = f"{100 * (pair.ours - pair.printed):+.1f}"
            if not ours.is_percent:
                difference = f"{pair.ours - pair.printed:+.3f}"
        values = {
            f"{name} ours{unit}": ours.text,
            f"{name} published{unit}": theirs.text,
            f"{name} difference": difference,
        }
        cells.update(values)
        headings.update(dict.fromkeys(values))
    caption = (
        f"{compared.title} beside {compared.counterpart.detector} on {compared.counterpart.id} as "
        "printed. Differences: ours minus published, in percentage points where values are in per "
        "cent."
    )
    return Listing.from_rows(caption, cells_by_key.values(), list(headings))


# Files


def to_csv(listing: Listing) -> str:
    """A table as CSV, with its texts as on the page; a cell without a value is empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([spreadsheet(name) for name in listing.frame.columns])
    for row in listing.frame.iter_rows():
        cells = []
        for value in row:
            is_absent = value is None or value == ABSENT
            cells.append("" if is_absent else spreadsheet(str(value)))
        writer.writerow(cells)
    return text.getvalue()


def to_latex(listing: Listing, label: str) -> str:
    """A table for LaTeX with the packages booktabs and adjustbox.

    Args:
        listing: The table.
        label: Its label: "fmiyc-table-3".
    """
    alignment = "".join("r" if is_right else "l" for _, is_right in listing.heads)
    heads = " & ".join(_latex(name) for name, _ in listing.heads)
    lines = []
    for row in listing.rows:
        lines.append(" & ".join(_latex(text) for text, _ in row) + r" \\")
    body = "\n".join(lines)
    return rf"""% \usepackage{{booktabs,adjustbox}}
\begin{{table}}
\centering
\caption{{{_latex(listing.caption)}}}
\label{{tab:{label}}}
\begin{{adjustbox}}{{max width=\textwidth}}
\begin{{tabular}}{{{alignment}}}
\toprule
{heads} \\
\midrule
{body}
\bottomrule
\end{{tabular}}
\end{{adjustbox}}
\end{{table}}
"""


def _latex(text: str) -> str:
    return latex(text).replace(ABSENT, "--")
