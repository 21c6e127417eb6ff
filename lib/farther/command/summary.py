"""`farther summary` and `farther open`: what the last run showed."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from farther.command.project import PARAMS, Params, Project


def summary(
    params: Params = PARAMS,
    short: Annotated[bool, typer.Option("--short", help="Leave out the tables.")] = False,
) -> None:
    """Print the results of the last run: tables and sentences.

    \b
    Examples:
      farther summary
      farther summary --short
    """
    from farther import report

    project = Project(params)
    if not short:
        print(report.summary(project.params, project.folder), end="\n\n")
    for sentence in report.headline(project.params, project.folder):
        print(f"- {sentence}")
    page = project.artifacts / "report/index.html"
    print(f"\nReport: {page.resolve() if page.is_file() else 'not written yet; run `dvc repro report`'}")


def open_report(
    report: Annotated[Path, typer.Argument(metavar="REPORT", help="Its folder.")] = Path("artifacts/report"),
) -> int:
    """Open the report in the browser.

    Without a display the path is printed instead.

    \b
    Examples:
      farther open
    """
    import webbrowser

    from farther.errors import DataError

    page = (report / "index.html").resolve()
    if not page.is_file():
        raise DataError("there is no report yet; `dvc repro report` writes it", file=page)
    no_display = sys.platform == "linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    if no_display or not webbrowser.open(page.as_uri()):
        print(page)
    return 0
