"""`farther compare`: two commits, two folders or files of metrics, two runs, or two methods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from farther.command.output import as_json, coloured, markdown, next_step, paragraph, table
from farther.command.project import PARAMS, Json, Params, Project, argument, metrics, option, splits
from farther.command.stored_metrics import Subject, open_metrics
from farther.errors import ParameterError
from farther.text.escaping import latex
from farther.text.printable import printable_line
from farther.text.terminal import say

if TYPE_CHECKING:
    from farther.command.comparison import Change, Selection

#: Columns of numbers in a table: all but the first, which names the metric.
NUMBERS = 6
#: Changes below this are printed as ±0.0000: they are rounding.
ROUNDING = 5e-5
#: Number of tests above which a sentence says how many are significant by chance alone.
FEW_TESTS = 10


@dataclass
class Comparison:
    """Metrics of two sides.

    Args:
        a, b: Names of the sides.
        changes: The metrics that are shown.
        notes: Sentences on what could not be tested.
    """

    a: str
    b: str
    changes: list[Change]
    notes: list[str] = field(default_factory=list)


def compare(
    a: Annotated[
        str | None, argument("A", "The baseline: revision, folder or file; by default HEAD.")
    ] = None,
    b: Annotated[
        str | None, argument("B", "What to compare with A; by default the project's current files.")
    ] = None,
    runs: Annotated[
        tuple[str, str] | None,
        option("A B", "Compare two runs of a benchmark: two detectors.", "detectors"),
    ] = None,
    methods: Annotated[
        tuple[str, str] | None,
        option("M1 M2", "Compare two methods of --run, or of the only run.", "methods"),
    ] = None,
    run: Annotated[
        list[str] | None, option("RUN", "Only this run; repeatable.", "detectors")
    ] = None,
    split: Annotated[
        list[str] | None, option("SPLIT", "Only this split; repeatable.", splits)
    ] = None,
    method: Annotated[
        list[str] | None, option("METHOD", "Only this method; repeatable.", "methods")
    ] = None,
    metric: Annotated[
        list[str] | None, option("METRIC", "Only this metric; repeatable.", metrics)
    ] = None,
    all: Annotated[
        bool, typer.Option("--all", help="Also show metrics that are equal up to rounding.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Exit with status 1 if a metric got worse.")
    ] = False,
    as_latex: Annotated[
        bool, typer.Option("--latex", help="Print a table for LaTeX, with booktabs.")
    ] = False,
    as_markdown: Annotated[
        bool, typer.Option("--markdown", help="Print a Markdown table.")
    ] = False,
    json: Json = False,
    params: Params = PARAMS,
) -> int:
    """Compare commits, files of metrics, runs or methods.

    A and B are git revisions, folders of metrics (artifacts/metrics, artifacts, a project) or
    files. Where the evaluations of both are available (in the folder, or for a commit in DVC's
    cache or remote), changes are tested by their bootstrap replicates over the same images:
    `interval` is the 95% interval of B − A, p is the probability of a change this large by chance
    alone. Where only each side's own interval is available, `apart` means that the two intervals do
    not overlap; overlapping intervals prove nothing. Values are fractions.

    --runs compares two detectors on the same images of one benchmark: mAP on known objects, and
    the metrics of the baseline, or of --method, on each OOD split. Both are resampled by the same
    images, so each difference has an interval and p.

    \b
    Examples:
      farther compare                              # the last commit and now
      farther compare main~3 main --metric auroc
      farther compare old/metrics artifacts --run voc-vos --markdown
      farther compare --runs voc-faster_rcnn voc-vos
      farther compare --runs voc-faster_rcnn voc-vos --method kNN --metric R_U
      farther compare --methods knn mahalanobis --run voc-vos
      farther compare main --check                 # status 1 if one got worse
    """
    from farther.command.comparison import Selection

    if as_markdown + as_latex + json > 1:
        raise ParameterError("--markdown, --latex and --json: give one of them")
    selection = Selection(run, split, method, metric)
    if runs:
        if a or methods or run:
            raise ParameterError(
                "--runs compares two runs of params.yaml: omit A, B, --methods and --run"
            )
        comparison = _compare_runs(Project(params), runs, selection)
    elif methods:
        if a or method or (run is not None and len(run) != 1):
            raise ParameterError(
                "--methods compares two methods of one run: name it with --run, and omit A, B and "
                "--method"
            )
        named_run = None if run is None else run[0]
        comparison = _compare_methods(Project(params), named_run, methods, selection)
    else:
        comparison = _compare_sides(a or "HEAD", b or "workspace", selection)
    if not all:
        comparison = _without_rounding(comparison)

    if json:
        say(_to_json(comparison))
    elif as_latex:
        say(_to_latex(comparison))
    elif as_markdown:
        say(_to_markdown(comparison))
    else:
        say(_to_text(comparison))
        if b is None:  # `explain` reads the project's files
            _advise(comparison, runs, methods)
    is_worse = any(row.result == "worse" for row in comparison.changes)
    if check and is_worse:
        return 1
    return 0


def _compare_runs(project: Project, runs: tuple[str, str], selection: Selection) -> Comparison:
    """How two runs of a benchmark differ."""
    from farther.command.comparison import compared_runs

    first, second = (project.run(name) for name in runs)
    rows, notes = compared_runs(project.artifacts, (first, second), selection)
    return Comparison(first, second, rows, notes)


def _compare_methods(
    project: Project, run: str | None, methods: tuple[str, str], selection: Selection
) -> Comparison:
    """How two methods of a run differ; of the only run where none is named."""
    from farther.command.comparison import compared_methods

    (first, second), rows = compared_methods(
        project.artifacts,
        project.run(run),
        methods,
        selection.split or [],
        selection.metric or [],
    )
    return Comparison(first, second, rows)


def _compare_sides(a: str, b: str, selection: Selection) -> Comparison:
    """How the metrics of two commits, folders or files differ."""
    from farther.command.comparison import changes, tested_changes

    before = open_metrics(a, Path())
    after = open_metrics(b, Path())
    for side in (before, after):
        if not side.values:
            expected = "artifacts/metrics/RUN/SPLIT/METHOD.json"
            raise ParameterError(f"{side.name} has no metrics of runs: expected {expected}")
    rows = changes(before.values, after.values, selection)
    rows, notes = tested_changes(rows, before, after)
    return Comparison(a, b, rows, notes)


def _without_rounding(comparison: Comparison) -> Comparison:
    """The comparison without metrics that are equal, or equal up to rounding.

    A note has the number of the latter, and their largest change.
    """
    rows = []
    rounding = []
    for row in comparison.changes:
        if row.before == row.after:
            continue
        if row.change is not None and abs(row.change) < ROUNDING:
            rounding.append(abs(row.change))
        else:
            rows.append(row)
    if not rounding:
        return replace(comparison, changes=rows)
    count = "1 metric differs" if len(rounding) == 1 else f"{len(rounding):,} metrics differ"
    note = f"{count} by rounding only, at most by {max(rounding):.1g}; --all shows them."
    return replace(comparison, changes=rows, notes=[*comparison.notes, note])


def _size(row: Change) -> float:
    """Size of a change; 0 where one side has no value."""
    return abs(row.change or 0.0)


def _advise(
    comparison: Comparison, runs: tuple[str, str] | None, methods: tuple[str, str] | None
) -> None:
    """Prints the command that explains the largest change of a run."""
    rows = comparison.changes
    if runs is None:
        rows = [row for row in rows if row.subject.run]
    if not rows:
        return
    largest = max(rows, key=_size)
    subject = largest.subject
    run = subject.run
    method = subject.method
    split = subject.split
    if runs is not None:
        run = comparison.b
        if not method:
            split = ""
    if methods is not None:
        method = comparison.b
    words = (run, method, split, largest.metric)
    next_step(f"farther explain number {' '.join(word or '-' for word in words)}")


def _to_text(comparison: Comparison) -> str:
    """Tables and sentences for a terminal: one table per subject."""
    rows = comparison.changes
    heads = HEADS
    verdict = _verdict(comparison)
    blocks = [paragraph(f"{verdict} {_sides(comparison)}".strip())]
    if not rows:
        blocks.append("No metric differs by more than rounding.")
    else:
        blocks += _tables_by_subject(rows, heads)
    if rows:
        blocks.append(paragraph(_summary(rows)))
    blocks += [paragraph(note) for note in comparison.notes]
    return "\n\n".join(blocks)


def _tables_by_subject(rows: Sequence[Change], heads: Sequence[str]) -> list[str]:
    cells_by_subject: dict[Subject, list[tuple[str, ...]]] = {}
    for row in rows:
        cells_by_subject.setdefault(row.subject, []).append((_title(row.metric), *_cells(row)))
    tables = []
    for subject, cells in cells_by_subject.items():
        text = table(heads, cells, NUMBERS)
        if str(subject):
            text = f"{coloured(str(subject), 'head')}\n{text}"
        tables.append(text)
    return tables


def _to_markdown(comparison: Comparison) -> str:
    cells = []
    for row in comparison.changes:
        cells.append((f"{row.subject} {_title(row.metric)}".strip(), *_cells(row)))
    blocks = [
        printable_line(f"{_verdict(comparison)} {_sides(comparison)}".strip()),
        markdown(HEADS, cells, NUMBERS),
    ]
    blocks += [printable_line(note) for note in comparison.notes]
    return "\n\n".join(blocks)


def _to_latex(comparison: Comparison) -> str:
    """One table for LaTeX with the package booktabs; its caption is the verdict."""
    lines = []
    for row in comparison.changes:
        cells = (str(row.subject), _title(row.metric), *_cells(row))
        lines.append(" & ".join(latex(cell) for cell in cells) + r" \\")
    caption = latex(f"{_verdict(comparison)} {_sides(comparison)}".strip())
    heads = " & ".join(latex(head) for head in ("", *HEADS))
    body = "\n".join(lines)
    return rf"""% \usepackage{{booktabs}}
\begin{{table}}
\centering
\caption{{{caption}}}
\begin{{tabular}}{{llrrrrrl}}
\toprule
{heads} \\
\midrule
{body}
\bottomrule
\end{{tabular}}
\end{{table}}"""


#: Headings of the columns; `_sides` says what A and B are.
HEADS = ("metric", "A", "B", "B − A", "interval", "p", "")


def _sides(comparison: Comparison) -> str:
    """What A and B are."""
    return f"A: {comparison.a}; B: {comparison.b}."


def _verdict(comparison: Comparison) -> str:
    """Which side is better, in a sentence; "" where nothing was tested."""
    tested = [row for row in comparison.changes if row.p is not None]
    if not tested:
        return ""
    better = sum(row.result == "better" for row in tested)
    worse = sum(row.result == "worse" for row in tested)
    of_all = f"of {len(tested)} metrics"
    if not better and not worse:
        return f"{comparison.b} and {comparison.a} do not differ significantly in any {of_all}."
    if not worse:
        return f"{comparison.b} is better than {comparison.a} in {better} {of_all}, worse in none."
    if not better:
        return f"{comparison.b} is worse than {comparison.a} in {worse} {of_all}, better in none."
    return (
        f"{comparison.b} is better than {comparison.a} in {better} {of_all} and worse in {worse}."
    )


def _title(metric: str) -> str:
    """A metric's title, as the report has it; its own name where it is not in the catalogue."""
    from farther.metrics.catalogue import METRICS

    return METRICS[metric].title if metric in METRICS else metric


def _cells(row: Change) -> tuple[str, ...]:
    """The cells of a row beside the metric's name."""
    change = ""
    if row.change is not None:
        change = f"{row.change:+.4f}"
    interval = ""
    if row.interval is not None:
        low, high = row.interval
        interval = f"[{low:+.3f}, {high:+.3f}]"
    p = ""
    if row.p is not None:
        p = f"{row.p:.3f}"
    return _number(row.before), _number(row.after), change, interval, p, row.result


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.4f}"
    return str(value)


def _summary(rows: Sequence[Change]) -> str:
    """How many metrics differ, how many were tested, and how many of these are significant."""
    count = sum(row.before != row.after for row in rows)
    differ = "1 metric differs" if count == 1 else f"{count} metrics differ"
    results = [row.result for row in rows if row.p is not None]
    if not results:
        return f"{differ}; none was tested."
    counts = []
    for kind in ("better", "worse", "different"):
        if kind in results:
            counts.append(f"{results.count(kind)} {kind}")
    significant = ", ".join(counts) or "none significantly different"
    text = (
        f"{differ}; {len(results)} tested (paired bootstrap over images, p < 0.05): {significant}."
    )
    if len(results) > FEW_TESTS:
        expected = f"{len(results) / 20:.0f}"
        text += f" One test in twenty is significant by chance alone: here about {expected}."
    return text


def _to_json(comparison: Comparison) -> str:
    metrics = []
    for row in comparison.changes:
        metrics.append(
            {
                **row.names,
                "a": row.before,
                "b": row.after,
                "change": row.change,
                "interval": row.interval,
                "p": row.p,
                "result": row.result,
            }
        )
    sides = {"a": comparison.a, "b": comparison.b, "verdict": _verdict(comparison)}
    return as_json({**sides, "notes": comparison.notes, "metrics": metrics})
