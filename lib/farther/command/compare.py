"""`farther compare`: two commits, two folders or files of metrics, or two methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from farther.command.comparison import Change, changes, compared_methods, tested_changes
from farther.command.output import as_json, coloured, markdown, next_step, paragraph, table
from farther.command.project import PARAMS, Json, Params, Project, argument, metrics, option, splits
from farther.command.stored_metrics import open_metrics
from farther.errors import ParameterError, choose
from farther.printable import printable_line
from farther.terminal import say


def compare(
    a: Annotated[
        str | None, argument("A", "The baseline: revision, folder or file; by default HEAD.")
    ] = None,
    b: Annotated[
        str | None, argument("B", "What to compare with A; by default the project's current files.")
    ] = None,
    methods: Annotated[
        tuple[str, str] | None, option("M1 M2", "Compare two methods of --run.", "methods")
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
    sort: Annotated[
        Literal["name", "change", "p"], typer.Option(help="Order of the rows.")
    ] = "name",
    all: Annotated[
        bool, typer.Option("--all", help="Also show metrics that did not change.")
    ] = False,
    no_test: Annotated[
        bool, typer.Option("--no-test", help="Do not test changes for significance.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Exit with status 1 if a metric got worse.")
    ] = False,
    as_markdown: Annotated[
        bool, typer.Option("--markdown", help="Print a Markdown table.")
    ] = False,
    json: Json = False,
    params: Params = PARAMS,
) -> int:
    """Compare commits, files of metrics, or methods.

    A and B are git revisions, folders of metrics (artifacts/metrics, artifacts, a project) or
    files. Where the evaluations of both are available (in the folder, or for a commit in DVC's
    cache or remote), changes are tested by their bootstrap replicates over the same images:
    `interval` is the 95% interval of B − A, p is the probability of a change this large by chance
    alone. Where only each side's own interval is available, `apart` means that the two intervals do
    not overlap; overlapping intervals prove nothing. Values are fractions.

    \b
    Examples:
      farther compare                              # the last commit and now
      farther compare main~3 main --metric auroc --sort change
      farther compare old/metrics artifacts --run voc-vos --markdown
      farther compare --methods knn mahalanobis --run voc-vos
      farther compare main --check                 # status 1 if one got worse
    """
    if as_markdown and json:
        raise ParameterError("--markdown and --json cannot be combined")
    notes: list[str] = []
    if methods:
        if run is None or len(run) != 1 or a:
            raise ParameterError(
                "--methods compares two methods of one run: name it with --run, and omit A and B"
            )
        project = Project(params)
        name = choose("run", run[0], project.section("detectors"))
        rows = compared_methods(project.artifacts, name, methods, split or [], metric or [])
    else:
        wanted = {"run": run, "split": split, "method": method, "metric": metric}
        rows, notes = _of_sides(a or "HEAD", b or "workspace", wanted, test=not no_test)
    names = methods or (a or "HEAD", b or "workspace")
    rows = [row for row in rows if all or row.before != row.after]
    if sort == "change":
        rows.sort(key=lambda row: -abs(row.change or 0.0))
    elif sort == "p":
        rows.sort(key=lambda row: (row.p is None, row.p or 0.0))
    if json:
        say(_to_json(rows, notes, names))
    elif as_markdown:
        say(_markdown(rows, notes, names))
    else:
        say(_shown(rows, notes, names, by_name=sort == "name"))
        here = [
            row for row in rows if b is None and row.subject.run
        ]  # `explain` reads the project's files
        if here:
            largest = max(here, key=lambda row: abs(row.change or 0.0))
            words = (
                largest.subject.run,
                methods[1] if methods else largest.subject.method,
                largest.subject.split,
            )
            next_step(
                f"farther explain number {' '.join(word or '-' for word in (*words, largest.metric))}"
            )
    return 1 if check and any(row.result == "worse" for row in rows) else 0


def _of_sides(
    a: str, b: str, wanted: Mapping[str, list[str] | None], *, test: bool
) -> tuple[list[Change], list[str]]:
    """How the metrics of two commits, folders or files differ, and notes on what could not be tested."""
    before, after = (open_metrics(name, Path()) for name in (a, b))
    for side in (before, after):
        if not side.values:
            raise ParameterError(
                f"{side.name} has no metrics of runs: expected artifacts/metrics/RUN/SPLIT/METHOD.json"
            )
    rows = changes(before.values, after.values, wanted)
    return tested_changes(rows, before, after) if test else (rows, [])


def _shown(
    rows: Sequence[Change], notes: Sequence[str], names: tuple[str, str], *, by_name: bool
) -> str:
    heads = _heads(names)
    parts = []
    if by_name:
        for subject in dict.fromkeys(row.subject for row in rows):
            cells = [(row.metric, *_cells(row)) for row in rows if row.subject == subject]
            title = [coloured(str(subject), "head")] if str(subject) else []
            parts.append("\n".join([*title, table(heads, cells, 6)]))
    elif rows:
        parts.append(
            table(heads, [(f"{row.subject} {row.metric}", *_cells(row)) for row in rows], 6)
        )
    return "\n\n".join(
        [
            *(parts or ["No metric differs."]),
            *map(paragraph, [*([_summary(rows)] if rows else []), *notes]),
        ]
    )


def _markdown(rows: Sequence[Change], notes: Sequence[str], names: tuple[str, str]) -> str:
    cells = [(f"{row.subject} {row.metric}".strip(), *_cells(row)) for row in rows]
    return "\n\n".join([markdown(_heads(names), cells, 6), *map(printable_line, notes)])


def _heads(names: tuple[str, str]) -> tuple[str, ...]:
    short = (name if len(name) <= 14 else f"…{name[-13:]}" for name in names)
    return "metric", *short, "B − A", "interval", "p", ""


def _cells(row: Change) -> tuple[str, ...]:
    interval = "" if row.interval is None else f"{row.interval[0]:+.3f} … {row.interval[1]:+.3f}"
    change = "" if row.change is None else f"{row.change:+.4f}"
    p = "" if row.p is None else f"{row.p:.3f}"
    return _number(row.before), _number(row.after), change, interval, p, row.result


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}" if isinstance(value, float) else str(value)


def _summary(rows: Sequence[Change]) -> str:
    tested = [row for row in rows if row.p is not None]
    counts = {
        kind: sum(row.result == kind for row in tested) for kind in ("better", "worse", "different")
    }
    listed = (
        ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
        or "none significantly different"
    )
    differ = "1 metric differs" if len(rows) == 1 else f"{len(rows)} metrics differ"
    if not tested:
        return f"{differ}; none was tested."
    found = f"{differ}; {len(tested)} tested (paired bootstrap over images, p < 0.05): {listed}."
    chance = (
        f" One test in twenty is significant by chance alone: here about {len(tested) / 20:.0f}."
    )
    return found + (chance if len(tested) > 10 else "")


def _to_json(rows: Sequence[Change], notes: Sequence[str], names: tuple[str, str]) -> str:
    shown = ("change", "interval", "p", "result")
    metrics = [
        {
            **row.names,
            "a": row.before,
            "b": row.after,
            **{name: getattr(row, name) for name in shown},
        }
        for row in rows
    ]
    return as_json({"a": names[0], "b": names[1], "notes": list(notes), "metrics": metrics})
