"""Tables of results in the shape of FMIYC's Tables 8 to 25.

Methods are rows, and the metrics of each OOD split are columns.
"""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from farther.evaluation.groups import GROUPS
from farther.metrics.catalogue import METRICS, Metric
from farther.report.documented import note_on
from farther.report.listing import ABSENT, percent
from farther.report.results import OOD, OPEN_SET, SHOWN, VALUES, Run, read_runs, title_of
from farther.text.escaping import latex, markdown, spreadsheet


class Kind(NamedTuple):
    """A kind of table: its name, the metrics, and what they show."""

    name: str
    metrics: tuple[Metric, ...]
    shows: str


OPEN_SET_KIND = Kind("open_set", OPEN_SET, "outcomes of unknown objects")
OOD_KIND = Kind("ood", OOD, "separation of detections in OOD images from those in ID images")

#: Most values of a table on a page.
MOST_CELLS = 10_000

#: In the place of the table of unknown objects where there are none.
NO_OBJECTS = (
    "No OOD split has unknown objects with boxes, which nOSE, AP_U, P_U, R_U and missed objects "
    "need; parameter `boxes` of a dataset of images without boxes adds them."
)


@dataclass(frozen=True)
class ResultTable:
    """A table of results in per cent.

    Args:
        name: Its file name without ending.
        caption: One sentence.
        labels: Label columns: heading → column of `cells`.
        metrics: The columns below each split.
        cells: Rows of `Run.values`: one per cell, in the order of rows and columns; a column
            `halved`, if any, has about how many images would halve an interval.
        note: Printed below the table, "" for none.
        instead: Why the table of unknown objects is absent, "" where it is not.
    """

    name: str
    caption: str
    labels: Mapping[str, str]
    metrics: tuple[Metric, ...]
    cells: pl.DataFrame
    note: str = ""
    instead: str = ""

    @cached_property
    def splits(self) -> list[str]:
        """Titles of the splits: the column groups."""
        return self.cells["split_title"].unique(maintain_order=True).to_list()

    @cached_property
    def counts(self) -> dict[str, str]:
        """Split title → numbers of objects or detections, and of images, of its values."""
        columns = dict.fromkeys((self.counted, "images"))
        return {
            split: _count_ranges(self.cells.filter(split_title=split), columns)
            for split in self.splits
        }

    @cached_property
    def halving(self) -> dict[str, str]:
        """Split title → about how many images would halve its intervals.

        {} where `cells` has no column `halved`.
        """
        if "halved" not in self.cells.columns:
            return {}
        halved = self.cells.with_columns(images="halved")
        return {
            split: _count_ranges(halved.filter(split_title=split), ["images"])
            for split in self.splits
        }

    @property
    def is_large(self) -> bool:
        """Whether a page has too little room for it: only the files of values have it."""
        return len(self.cells) > MOST_CELLS

    @property
    def counted(self) -> str:
        """What its values are computed from: detections, objects or images."""
        group = GROUPS.get(self.metrics[0].group)
        if group is None:
            return "detections"
        return group.unit

    @property
    def columns(self) -> list[tuple[str, Metric]]:
        """Split title and metric of each column."""
        return [(split, metric) for split in self.splits for metric in self.metrics]

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """The rows from top to bottom.

        Each has `labels`, texts, and `cells`, rows of `Run.values` as dicts.
        """
        rows = []
        for cells in self.cells.partition_by("run", "method", maintain_order=True):
            labels = [cells[column][0] for column in self.labels.values()]
            rows.append({"labels": labels, "cells": cells.to_dicts()})
        return rows

    def different(self, heading: str) -> list[str]:
        """The different labels below a heading, in the order of the rows."""
        return self.cells[self.labels[heading]].unique(maintain_order=True).to_list()

    def without_same(self, *headings: str) -> ResultTable:
        """The same table without those label columns that have one label in all rows.

        The caption names them instead.
        """
        caption = self.caption
        labels = dict(self.labels)
        for heading in headings:
            different = self.different(heading)
            if len(different) == 1:
                caption += f" {heading}: {different[0]}."
                del labels[heading]
        return replace(self, caption=caption, labels=labels)

    def with_intervals(self) -> ResultTable:
        """The same table with the 95% interval of each value behind it."""
        has_interval = pl.col("interval").str.len_chars() > 0
        with_interval = pl.concat_str("text", "interval", separator=" ")
        text = pl.when(has_interval).then(with_interval).otherwise("text")
        return replace(self, cells=self.cells.with_columns(text=text))

    def select(self, splits: Sequence[str]) -> ResultTable:
        """The same table with some of its splits."""
        return replace(self, cells=self.cells.filter(pl.col("split_title").is_in(list(splits))))


def _count_ranges(cells: pl.DataFrame, columns: Iterable[str]) -> str:
    """Smallest and largest number of each column, as "4 to 8 objects, 20 images"."""
    ranges = []
    for name in columns:
        counts = cells[name].drop_nulls().sort()
        if counts.is_empty():
            continue
        low = counts[0]
        high = counts[-1]
        if low == high:
            ranges.append(f"{low:,} {name}")
        else:
            ranges.append(f"{low:,} to {high:,} {name}")
    return ", ".join(ranges)


def run_tables(run: Run) -> list[ResultTable]:
    """The two tables of a run: methods as rows."""
    note = _join_sentences([note_on(run), not_applicable_note(run)])
    return _tables([run], run.name, run.full_title, {"Method": "label"}, run.values, note)


def benchmark_tables(benchmark: str, runs: Sequence[Run]) -> list[ResultTable]:
    """The two tables of all runs on a benchmark: detectors and methods as rows.

    Kinds of methods are a column where there are several.
    """
    cells = pl.concat([run.titled_values for run in runs])
    labels = {"Detector": "detector"}
    if cells["kind"].n_unique() > 1:
        labels["Kind"] = "kind"
    labels["Method"] = "label"
    tables = _tables(runs, benchmark, runs[0].benchmark_title, labels, cells)
    return [table.without_same("Detector") for table in tables]


def has_no_objects(cells: pl.DataFrame) -> bool:
    """True if no split of some rows of `Run.values` has an unknown object with a box."""
    return cells["objects"].eq_missing(0).all()


def not_applicable_note(run: Run) -> str:
    """A sentence on the methods that do not apply to a run's detector, "" where all apply."""
    if not run.not_applicable:
        return ""
    reasons = [f"{title_of(method)} ({reason})" for method, reason in run.not_applicable.items()]
    return f"Not applicable to this detector: {'; '.join(reasons)}."


def _join_sentences(sentences: Iterable[str]) -> str:
    """The sentences that are not "", as one text."""
    return " ".join(sentence for sentence in sentences if sentence)


def _tables(
    runs: Sequence[Run],
    name: str,
    title: str,
    labels: Mapping[str, str],
    cells: pl.DataFrame,
    note: str = "",
) -> list[ResultTable]:
    """The tables of unknown objects and of detections; [] without cells.

    Classifiers have no table of unknown objects: a whole image is never missed.
    """
    if cells.is_empty():
        return []
    kinds = [OPEN_SET_KIND, OOD_KIND]
    if all(run.whole_images for run in runs):
        kinds = [OOD_KIND]

    tables = []
    instead = ""
    for kind in kinds:
        names = [metric.name for metric in kind.metrics]
        cells_of_kind = cells.filter(pl.col("metric").is_in(names))
        if kind is OPEN_SET_KIND and has_no_objects(cells_of_kind):
            instead = NO_OBJECTS
            continue
        table = ResultTable(
            name=f"{name}-{kind.name}",
            caption=f"{title}: {kind.shows} (%).",
            labels=labels,
            metrics=kind.metrics,
            cells=cells_of_kind,
            note=note,
            instead=instead,
        )
        tables.append(table)
    return tables


class CellFormats(NamedTuple):
    """Formats of values from few detections or objects, of the best and of the second best."""

    from_few: str
    best: str
    second: str

    def format(self, cell: Mapping[str, Any]) -> str:
        """The text of a cell; † marks one that is not significantly different from the best."""
        text = cell["text"]
        if cell["is_tied"]:
            text += "†"
        if cell["is_few"]:
            return self.from_few.format(text)
        if cell["is_best"]:
            return self.best.format(text)
        if cell["is_second"]:
            return self.second.format(text)
        return text


MARKDOWN = CellFormats("({})", "**{}**", "<ins>{}</ins>")
LATEX = CellFormats(r"\textcolor{{gray}}{{{}}}", r"\textbf{{{}}}", r"\underline{{{}}}")


def _legend(table: ResultTable, mark: str = "grey") -> str:
    """A sentence on the marks of cells; `mark` is that of values from few objects."""
    return (
        "Bold: best; underlined: second best; †: not significantly different from the best; "
        f"{mark}: from too few {table.counted} to compare."
    )


def to_markdown(table: ResultTable) -> str:
    """The table in GitHub's Markdown; the best of a column in bold, the second best underlined."""
    heads = list(table.labels)
    alignments = ["---" for _ in table.labels]
    for split, metric in table.columns:
        heads.append(markdown(f"{split} {metric.title} {metric.arrow}"))
        alignments.append("---:")

    lines = [_markdown_line(heads), _markdown_line(alignments)]
    for row in table.rows:
        labels = [markdown(label) for label in row["labels"]]
        cells = [MARKDOWN.format(cell) for cell in row["cells"]]
        lines.append(_markdown_line([*labels, *cells]))
    body = "\n".join(lines)

    counts = "; ".join(f"{split}: {text}" for split, text in table.counts.items() if text)
    sentences = [_legend(table, "in brackets")]
    if counts:
        sentences.append(f"From {counts}.")
    sentences += [table.note, table.instead]
    notes = _join_sentences(sentences)
    return f"{markdown(table.caption)}\n\n{body}\n\n{markdown(notes)}\n"


def _markdown_line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def to_latex(table: ResultTable) -> str:
    """The table for LaTeX with the packages booktabs, adjustbox and xcolor.

    It is not wider than the text. For its marks, see `_legend`.
    """
    span = len(table.metrics)
    empty = " & " * (len(table.labels) - 1)
    heads = []
    counts = []
    rules = []
    start = len(table.labels) + 1
    for split in table.splits:
        count = rf"\footnotesize {_latex(table.counts[split])}"
        heads.append(rf"\multicolumn{{{span}}}{{c}}{{{_latex(split)}}}")
        counts.append(rf"\multicolumn{{{span}}}{{c}}{{{count}}}")
        rules.append(rf"\cmidrule(lr){{{start}-{start + span - 1}}}")
        start += span
    names = [*table.labels, *(metric.latex_header for _, metric in table.columns)]

    rows = []
    for row in table.rows:
        labels = [_latex(label) for label in row["labels"]]
        cells = [_latex_cell(cell) for cell in row["cells"]]
        rows.append(rf"{_latex_line([*labels, *cells])} \\")
    body = "\n".join(rows)
    note = _latex(_join_sentences([_legend(table), table.note, table.instead]))
    return rf"""% \usepackage{{booktabs,adjustbox,xcolor}}
\begin{{table}}
\centering
\caption{{{_latex(table.caption)}}}
\label{{tab:{table.name.replace("_", "-")}}}
\begin{{adjustbox}}{{max width=\textwidth}}
\begin{{tabular}}{{{"l" * len(table.labels)}{"r" * len(table.columns)}}}
\toprule
{empty} & {_latex_line(heads)} \\
{empty} & {_latex_line(counts)} \\
{" ".join(rules)}
{_latex_line(names)} \\
\midrule
{body}
\bottomrule
\end{{tabular}}
\end{{adjustbox}}

\smallskip\footnotesize {note}
\end{{table}}
"""


def _latex_line(cells: Iterable[str]) -> str:
    return " & ".join(cells)


def _latex_cell(cell: Mapping[str, Any]) -> str:
    text = LATEX.format({**cell, "text": _latex(cell["text"])})
    return text.replace("†", r"$^\dagger$")


def _latex(text: str) -> str:
    return latex(text).replace(ABSENT, "--")


#: Width of a column of numbers in a terminal.
_COLUMN = 9


def to_text(table: ResultTable, width: int = 100) -> str:
    """The table of a run for a terminal.

    Splits that do not fit beside each other follow below each other.
    """
    labels = [row["labels"][0] for row in table.rows]
    label_width = max(len(text) for text in ["method", *labels])

    blocks: list[list[str]] = []
    used = width
    for split in table.splits:
        split_width = _split_width(table, split)
        if not blocks or used + split_width > width:
            blocks.append([])
            used = label_width
        blocks[-1].append(split)
        used += split_width
    return "\n\n".join(_text_block(table.select(splits), label_width) for splits in blocks)


def _split_width(table: ResultTable, split: str) -> int:
    """Width of the columns of a split."""
    return max(_COLUMN * len(table.metrics), len(split) + 2)


def _text_block(table: ResultTable, label_width: int) -> str:
    """All splits of a table beside each other; `label_width` is that of the methods' names."""
    heads = [split.rjust(_split_width(table, split)) for split in table.splits]
    names = [f"{metric.title} {metric.arrow}" for _, metric in table.columns]
    lines = [" " * label_width + "".join(heads), _text_line(table, "method", names, label_width)]
    for row in table.rows:
        texts = []
        for cell in row["cells"]:
            mark = "*" if cell["is_best"] else " "
            texts.append(cell["text"] + mark)
        lines.append(_text_line(table, row["labels"][0], texts, label_width))
    return "\n".join(lines)


def _text_line(table: ResultTable, name: str, texts: Sequence[str], label_width: int) -> str:
    """A name and the texts of all columns, each split's as wide as its title needs."""
    line = name.ljust(label_width)
    count = len(table.metrics)
    for number, split in enumerate(table.splits):
        columns = [text.rjust(_COLUMN) for text in texts[number * count : (number + 1) * count]]
        line += "".join(columns).rjust(_split_width(table, split))
    return line.rstrip()


#: Columns of the file of all values.
CSV_COLUMNS = (
    "run",
    "benchmark",
    "split",
    "dataset",
    "distance",
    "method",
    "kind",
    "metric",
    "value",
    "low",
    "high",
    "images",
    "objects",
    "detections",
)


def to_csv(runs: Sequence[Run]) -> str:
    """All values of all runs as fractions, with 95% intervals.

    One row per run, split, method and metric. Texts that a spreadsheet would take for a formula
    begin with an apostrophe.
    """
    further = [metric for metric in METRICS.values() if metric.ranked and metric not in SHOWN]
    frames = [pl.DataFrame(schema={**VALUES, "kind": pl.String})]
    for run in runs:
        frames.append(run.with_kind(run.values))
        frames.append(run.with_kind(run.values_of(further)))
    values = pl.concat(frames).select(CSV_COLUMNS)
    return values.with_columns(pl.col(pl.String).map_batches(_harmless)).write_csv()


def _harmless(texts: pl.Series) -> pl.Series:
    """Texts of a column, guarded by `text.escaping.spreadsheet`; few of them are different."""
    guarded = {}
    for text in texts.drop_nulls().unique():
        guarded[text] = spreadsheet(text)
    return texts.replace_strict(guarded, default=None, return_dtype=pl.String)


def summary(params: Mapping[str, Any], root: str | Path = ".") -> str:
    """The tables of all runs as text, as wide as the terminal.

    Args:
        params: params.yaml, parsed.
        root: The project's folder.
    """
    width = shutil.get_terminal_size((100, 24)).columns
    texts = [_run_summary(run, width) for run in read_runs(params, Path(root) / "artifacts")]
    return "\n\n".join([*texts, "In per cent; * marks the best of a column."])


#: Columns of `Run.values` that programs read.
DATA_COLUMNS = (
    "split",
    "distance",
    "method",
    "metric",
    "value",
    "low",
    "high",
    "no_interval",
    "is_best",
)


def summary_data(params: Mapping[str, Any], root: str | Path = ".") -> list[dict[str, Any]]:
    """The tables of all runs for programs; values are fractions.

    Args:
        params: params.yaml, parsed.
        root: The project's folder.

    Returns:
        One entry per run: `run`, `title`, `benchmark`, `detector` (its own metrics; {} before it is
        evaluated), `values` (one row per split, method and metric, with a 95% interval, or why it
        has none, and whether it is the best of its column) and `not_applicable` (method → reason).
    """
    entries = []
    for run in read_runs(params, Path(root) / "artifacts"):
        entry: dict[str, Any] = {
            "run": run.name,
            "title": run.full_title,
            "benchmark": run.benchmark,
            "detector": dict(run.detector),
            "values": run.values.select(DATA_COLUMNS).to_dicts(),
            "not_applicable": run.not_applicable,
        }
        entries.append(entry)
    return entries


def _run_summary(run: Run, width: int) -> str:
    """Quality of a run's detector, its tables, and notes on them."""
    if not run.detector:
        return f"{run.name}: not evaluated yet"
    if run.whole_images:
        quality = f"accuracy {percent(run.detector.get('accuracy'))}%"
    else:
        quality = f"mAP50 {percent(run.detector.get('map50'))}%"
    threshold = run.detector.get("threshold", 0)
    tables = run_tables(run)

    blocks = [f"{run.name}   {quality}   t* {threshold:.3f}"]
    blocks += [to_text(table, width) for table in tables]
    for note in [*(table.instead for table in tables), not_applicable_note(run)]:
        blocks.append(textwrap.fill(note, width))
    return "\n\n".join(block for block in blocks if block)
