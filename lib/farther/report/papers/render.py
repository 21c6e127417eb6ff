"""Papers' tables from their layout: this project's values, and the printed ones."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from farther.report.listing import ABSENT, Listing
from farther.report.papers.cells import Arrangement, Row, selected_rows, value_text
from farther.report.papers.frames import FRAMES, Sources
from farther.report.papers.layout import Counted, PrintedValues, TableLayout
from farther.report.papers.printed import ComparedRun, compare, printed_rows
from farther.text.escaping import latex, spreadsheet


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
        listing = Arrangement(table, rows_of_group).listing(caption)
        if len(listing):
            listings.append(PaperListing(listing, _stem(table.stem, group)))
    if not listings:
        return PaperTable(table, [])

    for number, published in enumerate(table.published, start=1):
        suffix = f"-{number}" if number > 1 else ""
        printed = printed_rows(tables.sources.root, published, table)
        for compared in compare(rows, published, printed, tables.sources):
            stem = _stem(f"{table.stem}-beside{suffix}", compared.name)
            listings.append(PaperListing(_beside(table, published, compared), stem))
        if published.caption:
            listings += _printed_listings(table, published, printed, suffix)
    return PaperTable(table, listings)


def _printed_listings(
    table: TableLayout, published: PrintedValues, printed: Sequence[Row], suffix: str
) -> Iterator[PaperListing]:
    """The tables of all printed values of a file."""
    layout = _printed_layout(table, published)
    for group, rows in _groups(printed, table.per):
        caption = table.fill(published.caption, rows[0])
        listing = Arrangement(layout, rows).listing(caption)
        if len(listing):
            yield PaperListing(listing, _stem(f"{table.stem}-printed{suffix}", group))


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
        counted_rows = _counted_rows(counted, frame, rows)
        has_datasets = counted_rows["dataset"].n_unique() > 1
        for row in counted_rows.iter_rows(named=True):
            name = table.title_of("split", row)
            if has_datasets:
                name = f"{row['dataset']} {name}"
            counts.setdefault(name, []).append(f"{int(row['value']):,} {counted.word}")
    if not counts:
        return caption
    texts = [f"{name}: {', '.join(of_split)}" for name, of_split in counts.items()]
    return f"{caption} {'; '.join(texts)}."


def _counted_rows(counted: Counted, frame: pl.DataFrame, rows: Sequence[Row]) -> pl.DataFrame:
    """One row per split with a number of a table's caption."""
    runs = {row["run"] for row in rows}
    splits = {row["split"] for row in rows}
    is_of_split = pl.col("split").is_in(splits)
    if counted.splits:
        is_of_split = pl.col("role").is_in(counted.splits)
    counts = frame.filter(
        pl.col("run").is_in(runs),
        is_of_split & (pl.col("split") != "") & pl.col("value").is_not_null(),
        group=counted.group,
        metric=counted.metric,
        part="",
    )
    once = counts.unique(["dataset", "split"], maintain_order=True)
    return once.sort("run_position", "split_position")


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
    return latex(text).replace(ABSENT, "--").replace("\N{NO-BREAK SPACE}", "~")
