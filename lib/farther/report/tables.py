"""Tables of results in the shape of FMIYC's Tables 8 to 25: methods as rows, metrics of each OOD split as columns."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from farther.escaping import latex, markdown, spreadsheet
from farther.evaluation.groups import GROUPS
from farther.metrics.catalogue import METRICS, Metric
from farther.report.documented import note_on
from farther.report.listing import ABSENT, percent
from farther.report.results import OOD, OPEN_SET, SHOWN, VALUES, Run, read_runs, title_of


class Kind(NamedTuple):
    """A kind of table: its name, the metrics, and what they show."""

    name: str
    metrics: tuple[Metric, ...]
    shows: str


#: Unknown objects first.
KINDS = (
    Kind("open_set", OPEN_SET, "outcomes of unknown objects"),
    Kind("ood", OOD, "separation of detections in OOD images from those in ID images"),
)


#: In the place of the table of unknown objects where there are none.
NO_OBJECTS = (
    "No OOD split has unknown objects with boxes, which nOSE, AP_U, P_U, R_U and missed objects need; parameter `boxes`"
    " of a dataset of images without boxes adds them."
)


@dataclass(frozen=True)
class ResultTable:
    """A table of results in per cent.

    Args:
        name: Its file name without ending.
        caption: One sentence.
        labels: Label columns: heading → column of `cells`.
        metrics: The columns below each split.
        cells: Rows of `Run.values`: one per cell, in the order of rows and columns. With a column
            `halved`, about how many images would halve an interval, intervals are shown from the
            start.
        note: Printed below the table, "" for none.
        instead: Why the table of unknown objects is not there, "" where it is.
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
        """Split title → the number of objects or detections that its values come from, and of images."""
        names = dict.fromkeys((self.counted, "images"))
        return {
            split: _counted(self.cells.filter(split_title=split), names) for split in self.splits
        }

    @cached_property
    def halving(self) -> dict[str, str]:
        """Split title → about how many images would halve its intervals; {} where `cells` has no column `halved`."""
        if "halved" not in self.cells.columns:
            return {}
        halved = self.cells.rename({"images": "now", "halved": "images"})
        return {
            split: _counted(halved.filter(split_title=split), ["images"]) for split in self.splits
        }

    @property
    def counted(self) -> str:
        """What its values come from: detections, objects or images."""
        group = GROUPS.get(self.metrics[0].group)
        return "detections" if group is None else group.unit

    @property
    def columns(self) -> list[tuple[str, Metric]]:
        """Split title and metric of each column."""
        return [(split, metric) for split in self.splits for metric in self.metrics]

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """The rows from top to bottom: `labels`, texts, and `cells`, rows of `Run.values` as dicts."""
        parts = self.cells.partition_by("run", "method", maintain_order=True)
        return [
            {
                "labels": [part[column][0] for column in self.labels.values()],
                "cells": part.to_dicts(),
            }
            for part in parts
        ]

    def different(self, heading: str) -> list[str]:
        """The different labels below a heading, in the order of the rows."""
        return self.cells[self.labels[heading]].unique(maintain_order=True).to_list()

    def select(self, splits: Sequence[str]) -> ResultTable:
        """The same table with some of its splits."""
        return replace(self, cells=self.cells.filter(pl.col("split_title").is_in(list(splits))))


def _counted(cells: pl.DataFrame, names: Iterable[str]) -> str:
    parts = []
    for name in names:
        found = sorted(set(cells[name].drop_nulls().to_list()))
        if found:
            low, high = found[0], found[-1]
            parts.append(f"{low:,} {name}" if low == high else f"{low:,} to {high:,} {name}")
    return ", ".join(parts)


def run_tables(run: Run) -> list[ResultTable]:
    """The two tables of a run: methods as rows."""
    note = " ".join(part for part in (note_on(run), not_applicable_note(run)) if part)
    return _tables([run], run.name, run.full_title, {"Method": "label"}, run.values, note)


def benchmark_tables(benchmark: str, runs: Sequence[Run]) -> list[ResultTable]:
    """The two tables of all runs on a benchmark: detectors and methods as rows, with kinds where there are several."""
    cells = pl.concat([run.titled_values for run in runs])
    kind = {"Kind": "kind"} if cells["kind"].n_unique() > 1 else {}
    labels = {"Detector": "detector", **kind, "Method": "label"}
    return _tables(runs, benchmark, runs[0].benchmark_title, labels, cells)


def method_tables(benchmark: str, runs: Sequence[Run], method: str) -> list[ResultTable]:
    """The two tables of a method on a benchmark: detectors as rows; [] where no run has the method."""
    cells = pl.concat([run.titled_values for run in runs]).filter(method=method)
    title = f"{title_of(method)} on {runs[0].benchmark_title}"
    return _tables(runs, f"{benchmark}-{method}", title, {"Detector": "detector"}, cells)


def has_no_objects(cells: pl.DataFrame) -> bool:
    """True if no split of some rows of `Run.values` has an unknown object with a box."""
    return cells["objects"].eq_missing(0).all()


def not_applicable_note(run: Run) -> str:
    """A sentence on the methods that do not apply to a run's detector, "" where all apply."""
    reasons = "; ".join(
        f"{title_of(method)} ({reason})" for method, reason in run.not_applicable.items()
    )
    return f"Not applicable to this detector: {reasons}." if reasons else ""


def _tables(
    runs: Sequence[Run],
    name: str,
    title: str,
    labels: Mapping[str, str],
    cells: pl.DataFrame,
    note: str = "",
) -> list[ResultTable]:
    # Classifiers have no table of unknown objects: a whole image is never missed.
    kinds = KINDS[1:] if all(run.whole_images for run in runs) else KINDS
    tables, instead = [], ""
    for kind in kinds if len(cells) else ():
        of_kind = cells.filter(pl.col("metric").is_in([metric.name for metric in kind.metrics]))
        if kind.name == "open_set" and has_no_objects(of_kind):
            instead = NO_OBJECTS
            continue
        caption = f"{title}: {kind.shows} (%)."
        tables.append(
            ResultTable(
                f"{name}-{kind.name}", caption, labels, kind.metrics, of_kind, note, instead
            )
        )
    return tables


def to_markdown(table: ResultTable) -> str:
    """The table in GitHub's Markdown; the best of a column in bold, the second best underlined."""
    heads = [markdown(f"{split} {metric.title} {metric.arrow}") for split, metric in table.columns]
    lines = [[*table.labels, *heads], [*("---" for _ in table.labels), *("---:" for _ in heads)]]
    lines += [
        [*map(markdown, row["labels"]), *(_marked(cell, *MARKDOWN) for cell in row["cells"])]
        for row in table.rows
    ]
    body = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    counts = "; ".join(f"{split}: {text}" for split, text in table.counts.items() if text)
    notes = [
        part
        for part in (
            _legend(table, "in brackets"),
            counts and f"From {counts}.",
            table.note,
            table.instead,
        )
        if part
    ]
    return f"{markdown(table.caption)}\n\n{body}\n\n{markdown(' '.join(notes))}\n"


#: Formats of values from few detections or objects, of the best and of the second best.
MARKDOWN = ("({})", "**{}**", "<ins>{}</ins>")
LATEX = (r"\textcolor{{gray}}{{{}}}", r"\textbf{{{}}}", r"\underline{{{}}}")


def _marked(cell: Mapping[str, Any], few: str, best: str, second: str) -> str:
    text = f"{cell['text']}{'†' if cell['is_tied'] else ''}"
    form = (
        few
        if cell["is_few"]
        else best
        if cell["is_best"]
        else second
        if cell["is_second"]
        else "{}"
    )
    return form.format(text)


def _legend(table: ResultTable, few: str = "grey") -> str:
    return (
        "Bold: best; underlined: second best; †: not significantly different from the best; "
        f"{few}: from too few {table.counted} to compare."
    )


def to_latex(table: ResultTable) -> str:
    """The table for LaTeX with the packages booktabs, adjustbox and xcolor, not wider than the text; see `_legend`."""
    span, first = len(table.metrics), len(table.labels) + 1
    starts = [first + span * place for place in range(len(table.splits))]
    empty = " & ".join("" for _ in table.labels)
    heads = " & ".join(rf"\multicolumn{{{span}}}{{c}}{{{_latex(split)}}}" for split in table.splits)
    counts = " & ".join(
        rf"\multicolumn{{{span}}}{{c}}{{\footnotesize {_latex(table.counts[split])}}}"
        for split in table.splits
    )
    rules = " ".join(rf"\cmidrule(lr){{{start}-{start + span - 1}}}" for start in starts)
    names = " & ".join([*table.labels, *(metric.latex_header for _, metric in table.columns)])
    note = _latex(" ".join(part for part in (_legend(table), table.note, table.instead) if part))
    rows = "\n".join(
        " & ".join([*map(_latex, row["labels"]), *(_latex_cell(cell) for cell in row["cells"])])
        + r" \\"
        for row in table.rows
    )
    return rf"""% \usepackage{{booktabs,adjustbox,xcolor}}
\begin{{table}}
\centering
\caption{{{_latex(table.caption)}}}
\label{{tab:{table.name.replace("_", "-")}}}
\begin{{adjustbox}}{{max width=\textwidth}}
\begin{{tabular}}{{{"l" * len(table.labels)}{"r" * len(table.columns)}}}
\toprule
{empty} & {heads} \\
{empty} & {counts} \\
{rules}
{names} \\
\midrule
{rows}
\bottomrule
\end{{tabular}}
\end{{adjustbox}}

\smallskip\footnotesize {note}
\end{{table}}
"""


def _latex_cell(cell: Mapping[str, Any]) -> str:
    return _marked({**cell, "text": _latex(cell["text"])}, *LATEX).replace("†", r"$^\dagger$")


def _latex(text: str) -> str:
    return latex(text).replace(ABSENT, "--")


#: Width of a column of numbers in a terminal.
_COLUMN = 9


def to_text(table: ResultTable, width: int = 100) -> str:
    """The table of a run for a terminal; splits that do not fit beside each other follow below each other."""
    label = max(len(text) for text in ["method", *(row["labels"][0] for row in table.rows)])
    blocks: list[list[str]] = [[]]
    for split in table.splits:
        if blocks[-1] and label + sum(_width(table, one) for one in [*blocks[-1], split]) > width:
            blocks.append([])
        blocks[-1].append(split)
    return "\n\n".join(_block(table.select(splits), label) for splits in blocks)


def _width(table: ResultTable, split: str) -> int:
    return max(_COLUMN * len(table.metrics), len(split) + 2)


def _block(table: ResultTable, label: int) -> str:
    def line(name: str, texts: Iterable[str]) -> str:
        cells, parts = iter(texts), [name.ljust(label)]
        for split in table.splits:
            group = "".join(next(cells).rjust(_COLUMN) for _ in table.metrics)
            parts.append(group.rjust(_width(table, split)))
        return "".join(parts).rstrip()

    heads = " " * label + "".join(split.rjust(_width(table, split)) for split in table.splits)
    names = line("method", (f"{metric.title} {metric.arrow}" for _, metric in table.columns))
    rows = (
        line(
            row["labels"][0],
            (cell["text"] + ("*" if cell["is_best"] else " ") for cell in row["cells"]),
        )
        for row in table.rows
    )
    return "\n".join([heads, names, *rows])


def to_csv(runs: Sequence[Run]) -> str:
    """All values of all runs as fractions: one row per run, split, method and metric, with 95% intervals.

    Texts that a spreadsheet would take for a formula begin with an apostrophe.
    """
    place = ("run", "benchmark", "split", "dataset", "distance", "method", "kind", "metric")
    columns = (*place, "value", "low", "high", "images", "objects", "detections")
    ranked = [metric for metric in METRICS.values() if metric.ranked and metric not in SHOWN]
    frames = [run.with_kind(frame) for run in runs for frame in (run.values, run.values_of(ranked))]
    values = pl.concat([pl.DataFrame(schema={**VALUES, "kind": pl.String}), *frames]).select(
        columns
    )
    return values.with_columns(
        pl.col(pl.String).map_elements(spreadsheet, return_dtype=pl.String)
    ).write_csv()


def summary(params: Mapping[str, Any], root: str | Path = ".") -> str:
    """The tables of all runs as text, as wide as the terminal; `root` is the project's folder.

    Args:
        params: params.yaml, parsed.
        root: The project's folder.
    """
    width = shutil.get_terminal_size((100, 24)).columns
    parts = [_summary_of(run, width) for run in read_runs(params, Path(root) / "artifacts")]
    return "\n\n".join([*parts, "In per cent; * marks the best of a column."])


def _summary_of(run: Run, width: int) -> str:
    if not run.detector:
        return f"{run.name}: not evaluated yet"
    name, of = ("accuracy", "accuracy") if run.whole_images else ("mAP50", "map50")
    quality = f"{run.name}   {name} {percent(run.detector.get(of))}%   t* {run.detector.get('threshold', 0):.3f}"
    shown = run_tables(run)
    notes = (
        textwrap.fill(note, width)
        for note in (*(table.instead for table in shown), not_applicable_note(run))
    )
    return "\n\n".join(filter(None, [quality, *(to_text(table, width) for table in shown), *notes]))
