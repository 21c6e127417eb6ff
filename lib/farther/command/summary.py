"""`farther summary`: what the last run showed."""

from __future__ import annotations

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
