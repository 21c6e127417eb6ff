"""`farther summary` and `farther open`: results of the last run, and changes since the commit."""

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
#: Maximum number of values that are listed.
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
    if page.is_file():
        say(f"\nReport: {page.resolve()}")
        view = "farther open"
    else:
        say("\nReport: not written yet")
        view = "farther repro report"
    differences = compared_with_commit(project.folder)
    if differences:
        say(differences)
    run = next(iter(project.section("detectors")), "RUN")
    next_step(view, f"farther choose {run}", "farther explain")


def compared_with_commit(folder: Path) -> str:
    """How metrics and counts differ from those of the last commit; "" where there are none."""
    values = since_commit(folder)
    if not values:
        return ""
    rows = []
    largest = 0.0
    for (file, name), (before, after) in values.items():
        difference = _difference(before, after)
        if difference is not None:
            largest = max(largest, difference)
        # A value that only one side has differs; its change has no size.
        if difference is None or difference > ROUNDING:
            rows.append((file, name, _number(before), _number(after)))

    size = f"largest difference {largest:.2g}"
    if not rows:
        return f"metrics: {len(values):,} values match the last commit ({size})"
    differ = (
        f"metrics: {len(rows):,} of {len(values):,} values differ from the last commit ({size})"
    )
    lines = [differ, table(("file", "name", "committed", "now"), rows[:LISTED], numbers=2)]
    if len(rows) > LISTED:
        lines.append(f"and {len(rows) - LISTED:,} more")
    return "\n".join(lines)


def _difference(before: float | None, after: float | None) -> float | None:
    """The size of a change, 0 where neither side has a value; None where only one has."""
    if before is None and after is None:
        return 0.0
    if before is None or after is None:
        return None
    return abs(after - before)


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.6g}"


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
        plural = "" if count == 1 else "s"
        say(f"{count:,} chart{plural} in {export.resolve()}")
        return 0
    page = report
    if report.is_dir() or not report.suffix:
        page = report / "index.html"
    page = page.resolve()
    if not page.is_file():
        raise DataError("there is no report yet; `dvc repro report` writes it", file=page)
    if not _has_display() or not webbrowser.open(page.as_uri()):
        say(page)
    return 0


def _has_display() -> bool:
    """Whether a browser may open a window; on Linux it needs a display."""
    if sys.platform != "linux":
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
