"""`farther compare`: two commits, two folders or files of metrics, or two methods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from farther.command.project import PARAMS, Json, Params, Project, complete
from farther.errors import ParameterError, choose

if TYPE_CHECKING:
    from farther.command.comparison import Change


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


def compare(
    a: Annotated[str | None, typer.Argument(help="Revision, folder or file to compare with; by default HEAD.")] = None,
    b: Annotated[str | None, typer.Argument(help="What to compare; by default the project's files as they are.")] = None,
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
    markdown: Annotated[bool, typer.Option("--markdown", help="Print a Markdown table.")] = False,
    json: Json = False,
    params: Params = PARAMS,
) -> int:
    """Compare commits, files of metrics, or methods.

    A and B are git revisions, folders of metrics (artifacts/metrics, artifacts, a project) or files. Where the regions
    and scores of both are available (in the folder, or for a commit in DVC's cache or remote), changes are tested by a
    paired bootstrap over the same images: `interval` is the 95% interval of B − A, p the probability of so large a
    change by chance alone. Where only each side's own interval is available, `apart` means that the two intervals do
    not overlap; overlapping intervals prove nothing. Values are fractions.

    \b
    Examples:
      farther compare                              # the last commit and now
      farther compare main~3 main --metric auroc --sort change
      farther compare old/metrics artifacts/metrics --run voc-vos --markdown
      farther compare --methods knn mahalanobis --run voc-vos
      farther compare main --check                 # status 1 if a metric got worse
    """
    if markdown and json:
        raise ParameterError("--markdown and --json exclude each other")
    from farther.command.comparison.changes import ordered

    chosen = Chosen(run or [], split or [], method or [], metric or [])
    if methods:
        if len(chosen.run) != 1 or a:
            raise ParameterError("--methods compares two methods of one run: name it with --run, and omit A and B")
        rows, notes, names = _methods(Project(params), methods, chosen)
    else:
        names = (a or "HEAD", b or "workspace")
        rows, notes = _sides(names, chosen, tested=not no_test)
    rows = ordered([row for row in rows if all or row.before != row.after], sort)
    if json:
        print(_as_json(rows, notes, names))
    else:
        print(_shown(rows, notes, names, sort, markdown))
    return 1 if check and any(row.verdict == "worse" for row in rows) else 0


def _sides(given: argparse.Namespace) -> tuple[list[Change], list[str], tuple[str, str]]:
    from farther.command.comparison import changes, open_side, tested_changes
    from farther.command.comparison.changes import chosen

    folder = Project(given.params).folder
    names = (given.a or "HEAD", given.b or "workspace")
    before, after = (open_side(name, folder) for name in names)
    for side in (before, after):
        if not side.figures:
            raise ParameterError(
                f"{side.name} has no figures of runs: expected artifacts/metrics/RUN/SPLIT/METHOD.json"
            )
    everything = changes(before.figures, after.figures)
    rows = chosen(everything, given.run, given.split, given.method, given.metric)
    if not rows:
        _refuse_unknown(everything, given)
    notes: list[str] = []
    if not given.no_test:
        rows, notes = tested_changes(rows, before, after)
    return rows, notes, names


def _refuse_unknown(rows: Sequence[Change], given: argparse.Namespace) -> None:
    """Names what nothing is called; or says that nothing has all the names at once."""
    from farther.command.project import choose

    known = {
        "run": (given.run, {row.place.run for row in rows}),
        "split": (given.split, {row.place.split for row in rows}),
        "method": (given.method, {row.place.method for row in rows}),
        "metric": (given.metric, {row.metric for row in rows}),
    }
    for kind, (names, there) in known.items():
        for name in names:
            choose(kind, name, there - {""})
    raise ParameterError("no figure has all of these: take out --run, --split, --method or --metric")


def _methods(given: argparse.Namespace) -> tuple[list[Change], list[str], tuple[str, str]]:
    from farther.command.comparison import compared_methods
    from farther.command.project import choose

    if len(given.run) != 1 or given.a:
        raise ParameterError("--methods compares two methods of one run: name it with --run, and leave out A and B")
    project = Project(given.params)
    run = choose("run", given.run[0], project.section("detectors"))
    rows = compared_methods(project.artifacts, run, tuple(given.methods), given.split, given.metric)
    return rows, [], tuple(given.methods)


def _shown(rows: Sequence[Change], notes: Sequence[str], names: tuple[str, str], given: argparse.Namespace) -> str:
    from farther.command.output import coloured, markdown, paragraph, table

    heads = ("figure", *map(_short, names), "B − A", "interval", "p", "")
    if given.markdown:
        cells = [(f"{row.place} {row.metric}".strip(), *_cells(row)) for row in rows]
        return "\n\n".join([markdown(heads, cells, 6), *notes])
    if given.sort != "name":
        parts = [table(heads, [(f"{row.place} {row.metric}".strip(), *_cells(row)) for row in rows], 6)]
    else:
        parts = []
        for place in dict.fromkeys(row.place for row in rows):
            own = [(row.metric, *_cells(row)) for row in rows if row.place == place]
            parts.append(
                "\n".join(
                    [coloured(str(place), "head"), table(heads, own, 6)] if str(place) else [table(heads, own, 6)]
                )
            )
    if not rows:
        parts = ["No figure differs."]
    return "\n\n".join([*parts, *map(paragraph, [_summary(rows), *notes])])


def _cells(row: Change) -> tuple[str, ...]:
    interval = "" if row.interval is None else f"{row.interval[0]:+.3f} … {row.interval[1]:+.3f}"
    change = "" if row.change is None else f"{row.change:+.4f}"
    return (
        _number(row.before),
        _number(row.after),
        change,
        interval,
        "" if row.p is None else f"{row.p:.3f}",
        row.verdict,
    )


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}" if isinstance(value, float) else str(value)


def _short(name: str) -> str:
    return name if len(name) <= 14 else f"…{name[-13:]}"


def _summary(rows: Sequence[Change]) -> str:
    tested = [row for row in rows if row.p is not None]
    counts = {kind: sum(row.verdict == kind for row in tested) for kind in ("better", "worse", "different")}
    listed = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count) or "none clearly different"
    if not tested:
        return f"{len(rows)} figures differ; none was tested."
    chance = (
        f" One in twenty tests says so by chance alone: here about {len(tested) / 20:.0f}." if len(tested) > 10 else ""
    )
    return (
        f"{len(rows)} figures differ; {len(tested)} tested (paired bootstrap over images, p < 0.05): {listed}.{chance}"
    )


def _as_json(rows: Sequence[Change], notes: Sequence[str], names: tuple[str, str]) -> str:
    from farther.command.output import as_json

    figures = [
        {
            **row.place._asdict(),
            "metric": row.metric,
            "a": row.before,
            "b": row.after,
            "change": row.change,
            "interval": row.interval,
            "p": row.p,
            "verdict": row.verdict,
        }
        for row in rows
    ]
    return as_json({"a": names[0], "b": names[1], "notes": list(notes), "figures": figures})
