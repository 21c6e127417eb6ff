"""`farther summary`: the main tables of the last run."""

from __future__ import annotations

from farther.command.project import PARAMS, Params, Project


def summary(params: Params = PARAMS) -> None:
    """Print the main tables of the last run.

    \b
    Examples:
      farther summary
    """
    from farther import report

    project = Project(params)
    print(report.summary(project.params))
    page = project.artifacts / "report/index.html"
    print(f"\nReport: {page.resolve() if page.is_file() else 'not written yet; run `dvc repro report`'}")
