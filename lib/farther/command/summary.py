"""`farther summary` and `farther open`: what the last run showed, and how it compares with the last commit."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from farther.command.output import hanging, next_step, table
from farther.command.project import PARAMS, Params, Project
from farther.command.stored_metrics import since_commit
from farther.terminal import say

#: Differences up to this are of rounding: another processor adds in another order.
ROUNDING = 1e-6
#: Values that are listed, at most.
LISTED = 10


def summary(
    params: Params = PARAMS,
    short: Annotated[bool, typer.Option("--short", help="Leave out the table.")] = False,
    every: Annotated[
        bool, typer.Option("--all", help="Print every detector and split (long).")
    ] = False,
) -> None:
    """Print the results of the last run: key findings and a table.

    The table has means over detectors and splits; --all prints one table per detector. The last
    lines compare all metrics and counts with those of the last commit, where git has them.

    \b
    Examples:
      farther summary
      farther summary --short
      farther summary --all
    """
    from farther import report

    project = Project(params)
    if every:
        say(report.summary(project.params, project.folder), end="\n\n")
    for sentence in report.headline(project.params, project.folder):
        say(hanging(f"- {sentence}", 0, 2))
    if not (short or every):
        say(f"\n{report.overview(project.params, project.folder)}")
    page = project.artifacts / "report/index.html"
    say(f"\nReport: {page.resolve() if page.is_file() else 'not written yet'}")
    if lines := compared_with_commit(project.folder):
        say(lines)
    run = next(iter(project.section("detectors")), "RUN")
    next_step(
        "farther open" if page.is_file() else "farther repro report",
        f"farther choose {run}",
        "farther explain",
    )


def compared_with_commit(folder: Path) -> str:
    """How metrics and counts differ from those of the last commit; "" where there are none."""
    values = since_commit(folder)
    if not values:
        return ""
    changes = {key: abs(b - a) for key, (a, b) in values.items() if a is not None and b is not None}
    largest = f"largest difference {max(changes.values(), default=0):.2g}"
    # A value that only one side has differs; its change has no size.
    differ = [
        key for key, (a, b) in values.items() if changes.get(key, 0 if a is b else 1) > ROUNDING
    ]
    if not differ:
        return f"metrics: {len(values):,} values match the last commit ({largest})"
    heads = ("file", "name", "committed", "now")
    rows = [
        (*key, *("–" if value is None else f"{value:.6g}" for value in values[key]))
        for key in differ[:LISTED]
    ]
    lines = [
        f"metrics: {len(differ):,} of {len(values):,} values differ from the last commit ({largest})"
    ]
    lines.append(table(heads, rows, numbers=2))
    lines += [f"and {len(differ) - LISTED:,} more"] if len(differ) > LISTED else []
    return "\n".join(lines)


def open_report(
    report: Annotated[
        Path, typer.Argument(metavar="REPORT", help="Its folder, or one of its pages.")
    ] = Path("artifacts/report"),
    export: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write the charts as SVG, PDF, PNG and CSV instead."),
    ] = None,
) -> int:
    """Open the report in the browser, or export its charts as figures.

    Figures are 3.3 and 6.9 inches wide, one and two columns, with 8-point type. Without a display
    the path of the report is printed.

    \b
    Examples:
      farther open
      farther open --export figures
      farther open artifacts/report/deploy.html --export figures
    """
    import webbrowser

    from farther.errors import DataError

    if export is not None:
        from farther.report import export_charts

        count = export_charts(report, export)
        say(f"{count:,} chart{'' if count == 1 else 's'} in {export.resolve()}")
        return 0
    page = (report / "index.html" if report.is_dir() or not report.suffix else report).resolve()
    if not page.is_file():
        raise DataError("there is no report yet; `dvc repro report` writes it", file=page)
    no_display = sys.platform == "linux" and not (
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )
    if no_display or not webbrowser.open(page.as_uri()):
        say(page)
    return 0
