"""`farther compare`: two commits, two folders or files of metrics, or two methods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from farther.command.comparison import Change, Values, compared_methods, open_side, tested_changes
from farther.command.output import as_json, coloured, markdown, paragraph, table
from farther.command.project import PARAMS, Json, Params, Project, complete
from farther.errors import ParameterError, choose


@dataclass(frozen=True)
class Chosen:
    """The rows to compare, by name; an empty list takes all.

    Args:
        run, split, method, metric: Names.
    """

    run: list[str]
    split: list[str]
    method: list[str]
    metric: list[str]

    def takes(self, row: Change) -> bool:
        """Whether a row is among those to compare."""
        pairs = (
            (self.run, row.subject.run),
            (self.split, row.subject.split),
            (self.method, row.subject.method),
            (self.metric, row.metric),
        )
        return all(not names or name in names for names, name in pairs)


def compare(
    a: Annotated[
        str | None, typer.Argument(metavar="A", help="Revision, folder or file to compare with; by default HEAD.")
    ] = None,
    b: Annotated[
        str | None, typer.Argument(metavar="B", help="What to compare; by default the project's files as they are.")
    ] = None,
    methods: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="M1 M2", help="Compare two methods of --run.", autocompletion=complete("methods")),
    ] = None,
    run: Annotated[
        list[str] | None,
        typer.Option(metavar="RUN", help="Only this run; repeatable.", autocompletion=complete("detectors")),
    ] = None,
    split: Annotated[list[str] | None, typer.Option(metavar="SPLIT", help="Only this split; repeatable.")] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(metavar="METHOD", help="Only this method; repeatable.", autocompletion=complete("methods")),
    ] = None,
    metric: Annotated[list[str] | None, typer.Option(metavar="METRIC", help="Only this metric; repeatable.")] = None,
    sort: Annotated[Literal["name", "change", "p"], typer.Option(help="Order of the rows.")] = "name",
    all: Annotated[bool, typer.Option("--all", help="Show metrics that did not change too.")] = False,
    no_test: Annotated[bool, typer.Option("--no-test", help="Do not test changes for significance.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Exit with status 1 if a metric got worse.")] = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print a Markdown table.")] = False,
    json: Json = False,
    params: Params = PARAMS,
) -> int:
    """Compare commits, files of metrics, or methods.

    A and B are git revisions, folders of metrics (artifacts/metrics, artifacts, a project) or files. Where the
    evaluations of both are available (in the folder, or for a commit in DVC's cache or remote), changes are tested
    by their bootstrap replicates over the same images: `interval` is the 95% interval of B − A, p the probability
    of so large a change by chance alone. Where only each side's own interval is available, `apart` means that the
    two intervals do not overlap; overlapping intervals prove nothing. Values are fractions.

    \b
    Examples:
      farther compare                              # the last commit and now
      farther compare main~3 main --metric auroc --sort change
      farther compare old/metrics artifacts --run voc-vos --markdown
      farther compare --methods knn mahalanobis --run voc-vos
      farther compare main --check                 # status 1 if one got worse
    """
    if as_markdown and json:
        raise ParameterError("--markdown and --json exclude each other")
    chosen = Chosen(run or [], split or [], method or [], metric or [])
    if methods:
        if len(chosen.run) != 1 or a:
            raise ParameterError("--methods compares two methods of one run: name it with --run, and omit A and B")

        project = Project(params)
        name = choose("run", chosen.run[0], project.section("detectors"))
        rows = compared_methods(project.artifacts, name, methods, chosen.split, chosen.metric)
        names, notes = methods, list[str]()
    else:
        names = (a or "HEAD", b or "workspace")
        rows, notes = _sides(names, chosen, tested=not no_test)
    rows = _ordered([row for row in rows if all or row.before != row.after], sort)
    if json:
        print(_to_json(rows, notes, names))
    else:
        print(_markdown(rows, notes, names) if as_markdown else _shown(rows, notes, names, by_name=sort == "name"))
    return 1 if check and any(row.result == "worse" for row in rows) else 0


def _sides(names: tuple[str, str], chosen: Chosen, *, tested: bool) -> tuple[list[Change], list[str]]:

    before, after = (open_side(name, Path()) for name in names)
    for side in (before, after):
        if not side.values:
            raise ParameterError(
                f"{side.name} has no metrics of runs: expected artifacts/metrics/RUN/SPLIT/METHOD.json"
            )
    everything = changes(before.values, after.values)
    rows = [row for row in everything if chosen.takes(row)]
    if not rows:
        _refuse_unknown(everything, chosen)
    return tested_changes(rows, before, after) if tested else (rows, [])


def changes(before: Values, after: Values) -> list[Change]:
    """Each metric that either side has, in the order of the names."""
    rows = []
    for subject in sorted(set(before) | set(after)):
        ours, theirs = before.get(subject, {}), after.get(subject, {})
        rows += [Change(subject, name, ours.get(name), theirs.get(name)) for name in dict.fromkeys([*ours, *theirs])]
    return rows


def _refuse_unknown(rows: Sequence[Change], chosen: Chosen) -> None:
    """Names the first unknown name; or states that no metric has all the names at once."""
    known = {
        "run": {row.subject.run for row in rows},
        "split": {row.subject.split for row in rows},
        "method": {row.subject.method for row in rows},
        "metric": {row.metric for row in rows},
    }
    for kind, there in known.items():
        for name in getattr(chosen, kind):
            choose(kind, name, there - {""})
    raise ParameterError("no metric has all of these: omit --run, --split, --method or --metric")


def _ordered(rows: list[Change], by: str) -> list[Change]:
    """The rows by name, by the size of the change, or by p."""
    if by == "change":
        return sorted(rows, key=lambda row: -abs(row.change or 0.0))
    return sorted(rows, key=lambda row: (row.p is None, row.p or 0.0)) if by == "p" else rows


def _shown(rows: Sequence[Change], notes: Sequence[str], names: tuple[str, str], *, by_name: bool) -> str:
    heads = ("metric", *map(_short, names), "B − A", "interval", "p", "")
    parts = []
    if by_name:
        for subject in dict.fromkeys(row.subject for row in rows):
            cells = [(row.metric, *_cells(row)) for row in rows if row.subject == subject]
            title = [coloured(str(subject), "head")] if str(subject) else []
            parts.append("\n".join([*title, table(heads, cells, 6)]))
    elif rows:
        parts.append(table(heads, [(f"{row.subject} {row.metric}", *_cells(row)) for row in rows], 6))
    return "\n\n".join([*(parts or ["No metric differs."]), *map(paragraph, [_summary(rows), *notes])])


def _markdown(rows: Sequence[Change], notes: Sequence[str], names: tuple[str, str]) -> str:
    heads = ("metric", *map(_short, names), "B − A", "interval", "p", "")
    return "\n\n".join(
        [markdown(heads, [(f"{row.subject} {row.metric}".strip(), *_cells(row)) for row in rows], 6), *notes]
    )


def _cells(row: Change) -> tuple[str, ...]:
    interval = "" if row.interval is None else f"{row.interval[0]:+.3f} … {row.interval[1]:+.3f}"
    change = "" if row.change is None else f"{row.change:+.4f}"
    return (
        _number(row.before),
        _number(row.after),
        change,
        interval,
        "" if row.p is None else f"{row.p:.3f}",
        row.result,
    )


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}" if isinstance(value, float) else str(value)


def _short(name: str) -> str:
    return name if len(name) <= 14 else f"…{name[-13:]}"


def _summary(rows: Sequence[Change]) -> str:
    tested = [row for row in rows if row.p is not None]
    counts = {kind: sum(row.result == kind for row in tested) for kind in ("better", "worse", "different")}
    listed = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count) or "none significantly different"
    differ = "1 metric differs" if len(rows) == 1 else f"{len(rows)} metrics differ"
    if not tested:
        return f"{differ}; none was tested."
    chance = (
        f" One test in twenty finds a difference by chance alone: here about {len(tested) / 20:.0f}."
        if len(tested) > 10
        else ""
    )
    return f"{differ}; {len(tested)} tested (paired bootstrap over images, p < 0.05): {listed}.{chance}"


def _to_json(rows: Sequence[Change], notes: Sequence[str], names: tuple[str, str]) -> str:
    metrics = [
        {
            **row.subject._asdict(),
            "metric": row.metric,
            "a": row.before,
            "b": row.after,
            "change": row.change,
            "interval": row.interval,
            "p": row.p,
            "result": row.result,
        }
        for row in rows
    ]
    return as_json({"a": names[0], "b": names[1], "notes": list(notes), "metrics": metrics})
