"""Tables in the shape of FMIYC's Tables 8 to 25: methods as rows, metrics of each OOD split as columns."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass

from farther.report import choices
from farther.report.results import METRICS, OOD, OPEN_SET, Metric, Run

#: Stands where there is no value.
ABSENT = "—"


@dataclass(frozen=True)
class Cell:
    """One value.

    Args:
        text: In per cent.
        is_best: Whether it is the best of its column.
        is_tied: Whether it is not clearly worse than the best.
        interval: Its 95% interval as text, "" where there is none.
    """

    text: str
    is_best: bool = False
    is_tied: bool = False
    interval: str = ""


@dataclass(frozen=True)
class Group:
    """Columns under one heading: a split and its metrics."""

    title: str
    metrics: tuple[Metric, ...]


@dataclass(frozen=True)
class Table:
    """A table to read or to paste into a paper; values are per cent.

    Args:
        name: Its file name without ending.
        caption: What it shows.
        groups: Its column groups.
        rows: A label and the cells of all groups, one after the other.
        note: What stands below it, "" where there is nothing to say.
    """

    name: str
    caption: str
    groups: tuple[Group, ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]
    note: str = ""

    @property
    def metrics(self) -> list[tuple[Group, Metric]]:
        """The columns, with the group of each."""
        return [(group, metric) for group in self.groups for metric in group.metrics]

    def select(self, groups: Sequence[int]) -> Table:
        """The same table with some of its groups, by their places."""
        bounds = [0]
        for group in self.groups:
            bounds.append(bounds[-1] + len(group.metrics))
        kept = [k for g in groups for k in range(bounds[g], bounds[g + 1])]
        rows = tuple((label, tuple(cells[k] for k in kept)) for label, cells in self.rows)
        return Table(self.name, self.caption, tuple(self.groups[g] for g in groups), rows, self.note)


@dataclass(frozen=True)
class Sheet:
    """A table to sort and filter on a page; values are per cent.

    Args:
        name: Its name, for the files that a reader saves.
        caption: What it shows.
        heads: Headings of the labels.
        groups: Its column groups.
        rows: Labels, and the cells of all groups, one after the other. The best of a column is the best of its run.
    """

    name: str
    caption: str
    heads: tuple[str, ...]
    groups: tuple[Group, ...]
    rows: tuple[tuple[tuple[str, ...], tuple[Cell, ...]], ...]

    def labels(self, place: int) -> list[str]:
        """The different labels of a column, in the order in which they come."""
        return list(dict.fromkeys(labels[place] for labels, _ in self.rows))

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The metrics of each group."""
        return self.groups[0].metrics if self.groups else ()


def percent(value: float | None) -> str:
    """A fraction in per cent with one decimal, without the sign.

    >>> percent(0.4567), percent(None)
    ('45.7', '—')
    """
    return ABSENT if value is None else f"{100 * value:.1f}"


#: The two kinds of tables: name, metrics, and what they show.
KINDS = (
    ("ood", OOD, "telling detections in OOD images from those in ID images"),
    ("open_set", OPEN_SET, "what happens to unknown objects"),
)


def run_tables(run: Run) -> list[Table]:
    """The two tables of a run: comparing detections, and comparing what happens to unknown objects."""
    return [_table(run, name, metrics, shows) for name, metrics, shows in KINDS]


def benchmark_sheets(benchmark: str, runs: Sequence[Run]) -> list[Sheet]:
    """The two tables of all runs on a benchmark, unknown objects first: detectors and methods as rows."""
    rows = [((run.name, run.label(method)), run, method) for run in runs for method in run.methods]
    return _sheets(benchmark, benchmark, ("Detector", "Method"), rows)


def run_sheets(run: Run) -> list[Sheet]:
    """The two tables of a run: methods as rows."""
    return _sheets(run.name, run.name, ("Method",), [((run.label(method),), run, method) for method in run.methods])


def method_sheets(benchmark: str, runs: Sequence[Run], method: str) -> list[Sheet]:
    """The two tables of a method on a benchmark: detectors as rows; [] where no run on it has the method."""
    rows = [((run.name,), run, method) for run in runs if method in run.methods]
    return _sheets(f"{benchmark}-{method}", benchmark, ("Detector",), rows)


def _sheets(
    name: str, of: str, heads: tuple[str, ...], rows: Sequence[tuple[tuple[str, ...], Run, str]]
) -> list[Sheet]:
    if not rows:
        return []
    cells: dict[tuple[str, str, str], tuple[Cell, ...]] = {}
    for run in {run.name: run for _, run, _ in rows}.values():
        for (kind, *_), table in zip(KINDS, run_tables(run), strict=True):
            found = (those for _, those in table.rows)
            cells |= {(kind, run.name, method): those for method, those in zip(run.methods, found, strict=True)}
    made = []
    for kind, metrics, shows in reversed(KINDS):
        groups = tuple(Group(split.title, metrics) for split in rows[0][1].splits)
        shown = tuple((labels, cells[kind, run.name, method]) for labels, run, method in rows)
        made.append(Sheet(f"{name}-{kind}", f"{of}: {shows} (%).", heads, groups, shown))
    return made


def _table(run: Run, name: str, metrics: tuple[Metric, ...], shows: str) -> Table:
    groups = tuple(Group(split.title, metrics) for split in run.splits)
    columns = []
    for split in run.splits:
        for metric in metrics:
            # What is printed decides who is best: equal numbers are equally bold.
            best = percent(metric.best([run.value(split.name, method, metric.name) for method in run.methods]))
            columns.append([_cell(run, split.name, method, metric.name, best) for method in run.methods])
    rows = tuple((run.label(m), tuple(column[row] for column in columns)) for row, m in enumerate(run.methods))
    note = " ".join(part for part in (choices.note(run), run.left_out) if part)
    return Table(f"{run.name}-{name}", f"{run.name}: {shows} (%).", groups, rows, note)


def _cell(run: Run, split: str, method: str, metric: str, best: str) -> Cell:
    text = percent(run.value(split, method, metric))
    interval = run.interval(split, method, metric)
    written = "" if interval is None else f"{percent(interval[0])} to {percent(interval[1])}"
    is_best = text == best != ABSENT
    return Cell(text, is_best, not is_best and run.is_tied(split, method, metric), written)


def to_markdown(table: Table) -> str:
    """The table in GitHub's Markdown; the best of a column in bold."""
    heads = [f"{group.title} {metric.title} {metric.arrow}" for group, metric in table.metrics]
    lines = [["Method", *heads], ["---", *("---:" for _ in heads)]]
    lines += [[label, *(f"**{c.text}**" if c.is_best else c.text for c in cells)] for label, cells in table.rows]
    body = "\n".join("| " + " | ".join(part.replace("|", r"\|") for part in line) + " |" for line in lines)
    note = f"\n{table.note}\n" if table.note else ""
    return f"{table.caption}\n\n{body}\n{note}"


def to_latex(table: Table) -> str:
    """The table for LaTeX with the package booktabs; the best of a column bold, what may be as good underlined."""
    spans = [len(group.metrics) for group in table.groups]
    starts = [2 + sum(spans[:k]) for k in range(len(spans))]
    heads = " & ".join(rf"\multicolumn{{{len(g.metrics)}}}{{c}}{{{_latex(g.title)}}}" for g in table.groups)
    rules = " ".join(rf"\cmidrule(lr){{{a}-{a + n - 1}}}" for a, n in zip(starts, spans, strict=True))
    names = " & ".join(metric.latex for _, metric in table.metrics)
    note = f"\n\n\\smallskip\\footnotesize {_latex(table.note)}" if table.note else ""
    rows = "\n".join(
        " & ".join([_latex(label), *(_latex_cell(cell) for cell in cells)]) + r" \\" for label, cells in table.rows
    )
    return rf"""\begin{{table}}
\centering
\caption{{{_latex(table.caption)}}}
\label{{tab:{table.name.replace("_", "-")}}}
\begin{{tabular}}{{l{"r" * sum(spans)}}}
\toprule
 & {heads} \\
{rules}
Method & {names} \\
\midrule
{rows}
\bottomrule
\end{{tabular}}{note}
\end{{table}}
"""


def to_text(table: Table, width: int = 100) -> str:
    """The table for a terminal; groups that do not fit beside each other stand below each other."""
    label = max([len("method"), *(len(name) for name, _ in table.rows)])
    parts: list[list[int]] = []
    current: list[int] = []
    used = label
    for place, group in enumerate(table.groups):
        needed = _group_width(group)
        if current and used + needed > width:
            parts.append(current)
            current, used = [], label
        current.append(place)
        used += needed
    return "\n\n".join(_block(table.select(part), label) for part in [*parts, current] if part)


def to_csv(runs: Sequence[Run]) -> str:
    """All figures of all runs, one a row, as fractions, with the bounds of their 95% intervals."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    places = ["run", "benchmark", "split", "dataset", "distance", "method", "metric"]
    writer.writerow([*places, "value", "low", "high"])
    for run in runs:
        for split in run.splits:
            for method in run.methods:
                for metric in METRICS:
                    place = [run.name, run.benchmark, split.name, split.dataset, split.distance, method, metric.name]
                    low, high = run.interval(split.name, method, metric.name) or (None, None)
                    writer.writerow([*place, run.value(split.name, method, metric.name), low, high])
    return text.getvalue()


#: Width of a column of numbers in a terminal.
_COLUMN = 9


def _group_width(group: Group) -> int:
    return max(_COLUMN * len(group.metrics), len(group.title) + 2)


def _block(table: Table, label: int) -> str:
    heads = " " * label + "".join(group.title.rjust(_group_width(group)) for group in table.groups)
    names = "method".ljust(label)
    for group in table.groups:
        first = _group_width(group) - _COLUMN * len(group.metrics)
        names += " " * first + "".join(f"{metric.title} {metric.arrow}".rjust(_COLUMN) for metric in group.metrics)
    lines = [heads.rstrip(), names]
    for name, cells in table.rows:
        line, rest = name.ljust(label), list(cells)
        for group in table.groups:
            line += " " * (_group_width(group) - _COLUMN * len(group.metrics))
            line += "".join((c.text + ("*" if c.is_best else " ")).rjust(_COLUMN) for c in rest[: len(group.metrics)])
            rest = rest[len(group.metrics) :]
        lines.append(line.rstrip())
    return "\n".join(lines)


def _latex_cell(cell: Cell) -> str:
    command = r"\textbf" if cell.is_best else r"\underline" if cell.is_tied else ""
    return f"{command}{{{cell.text}}}" if command else _latex(cell.text)


def _latex(text: str) -> str:
    escaped = "".join("\\" + letter if letter in "&%$#_{}" else letter for letter in text)
    return escaped.replace(ABSENT, "--")
