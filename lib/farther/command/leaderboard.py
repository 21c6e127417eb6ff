"""`farther benchmark leaderboard`: the metrics of several projects or commits on one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from farther.command.committed import read_committed
from farther.command.project import argument
from farther.text.terminal import say


def leaderboard(
    projects: Annotated[
        list[str], argument("PROJECT...", "FOLDER, FOLDER@REVISION, URL or URL@REVISION.")
    ],
    out: Annotated[
        Path, typer.Option("--out", metavar="FOLDER", help="Folder of the page.")
    ] = Path("leaderboard"),
) -> None:
    """Rank the results of several projects or commits on one page.

    Reads artifacts/metrics and dvc.lock of each, by git where a revision is named; nothing of a
    project is executed. Runs are ranked together where splits, protocol, thresholds and parameters
    of metrics are the same, by the digests in dvc.lock; for the others the page says what differs.
    An earlier page there is replaced.

    \b
    Examples:
      farther benchmark leaderboard . ../other --out leaderboard
      farther benchmark leaderboard .@v1.0 .@main
      farther benchmark leaderboard https://example.org/group/project.git@main
    """
    from farther.report.common_runs import count_runs
    from farther.report.leaderboard import StoredRun, read_stored_runs, write_leaderboard

    runs: list[StoredRun] = []
    for name in dict.fromkeys(projects):
        project = read_committed(name)
        runs += read_stored_runs(project.name, project.files, project.commit, project.date)
    groups = write_leaderboard(runs, out)
    plural = "" if groups == 1 else "s"
    say(f"{count_runs(len(runs))} in {groups} group{plural}: {(out / 'index.html').resolve()}")
