"""Compares figures: two commits, two folders or files of metrics, or two methods.

A and B are git revisions, folders of metrics (artifacts/metrics, artifacts, a
project) or files; B left out is what lies in the folder now, A left out the
last commit. Where the regions and scores of both are at hand (in the folder,
or for a commit in DVC's cache), changes are tested by a paired bootstrap over
the same images: `interval` is the 95% interval of B − A, p how often chance
alone gives so clear a change. Where only each side's own interval is at hand,
`apart` says that the two intervals have nothing in common; intervals that
overlap say nothing. Figures are fractions.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from farther.command.project import Project, add_params
from farther.errors import ParameterError

if TYPE_CHECKING:
    from farther.command.comparison import Change

NAME = "compare"
SUMMARY = "compare commits, files of metrics, or methods, with a test"
EXAMPLES = """
farther compare                                # last commit and now
farther compare main~3 main --metric auroc --sort change
farther compare old/metrics artifacts/metrics --run voc-vos --markdown
farther compare --methods knn mahalanobis --run voc-vos
farther compare main --check                  # status 1 if a figure got worse
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of this subcommand."""
    parser.add_argument("a", nargs="?", metavar="A", help="what to compare with (HEAD)")
    parser.add_argument("b", nargs="?", metavar="B", help="what to compare (the files that are here now)")
    parser.add_argument("--methods", nargs=2, metavar=("M1", "M2"), help="compare two methods of --run instead")
    for name, what in (("run", "runs"), ("split", "splits"), ("method", "methods"), ("metric", "figures")):
        text = f"only these {what}; may be repeated"
        parser.add_argument(f"--{name}", action="append", default=[], metavar=name.upper(), help=text)
    parser.add_argument("--sort", choices=["name", "change", "p"], default="name", help="(name)")
    parser.add_argument("--all", action="store_true", help="show figures that did not change too")
    parser.add_argument("--no-test", action="store_true", help="do not test whether changes are more than chance")
    parser.add_argument("--check", action="store_true", help="exit with status 1 if a figure got worse")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--markdown", action="store_true", help="print a Markdown table")
    form.add_argument("--json", action="store_true", help="print JSON")
    add_params(parser)


def run(given: argparse.Namespace) -> int:
    """Compares; 1 where --check found a figure that got worse."""
    from farther.command.comparison.changes import ordered

    rows, notes, names = _methods(given) if given.methods else _sides(given)
    rows = ordered([row for row in rows if given.all or row.before != row.after], given.sort)
    print(_as_json(rows, notes, names) if given.json else _shown(rows, notes, names, given))
    return 1 if given.check and any(row.verdict == "worse" for row in rows) else 0


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
