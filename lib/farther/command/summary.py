"""`farther summary` and `farther open`: results of the last run, and changes since the commit."""

from __future__ import annotations

import os
import sys
import webbrowser
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from farther.command.output import as_json, hanging, next_step, paragraph, table
from farther.command.project import PARAMS, Json, Params, Project
from farther.command.stored_metrics import since_commit
from farther.errors import DataError
from farther.text.terminal import say

#: Differences up to this are of rounding: another processor adds in another order.
ROUNDING = 1e-4
#: Maximum number of values that are listed.
LISTED = 10


def summary(
    params: Params = PARAMS,
    short: Annotated[bool, typer.Option("--short", help="Leave out the table.")] = False,
    every: Annotated[bool, typer.Option("--all", help="Print every run and split (long).")] = False,
    json: Json = False,
) -> None:
    """Print the results of the last run: key findings and a table.

    Means in the table are over runs and splits, of methods that apply to every run; methods that
    apply to fewer are shown by their gain over Confidence on the same runs. The last line compares
    all metrics and counts with those of the last commit, where git has them. --all prints one table
    per run, and the values that differ from the last commit.

    \b
    Examples:
      farther summary
      farther summary --short
      farther summary --all
      farther summary --json
    """
    from farther import report

    project = Project(params)
    page = project.artifacts / "report/index.html"
    if json:
        say(as_json(_data(project, page, short=short, every=every)))
        return
    if every:
        say(report.summary(project.params, project.folder), end="\n\n")
    runs = report.read_evaluated_runs(project.params, project.artifacts)
    for sentence in report.headline(project.params, project.folder, runs):
        say(hanging(f"- {sentence}", 0, 2))
    if not (short or every):
        say(f"\n{report.overview(project.params, project.folder, runs)}")
    if page.is_file():
        say(f"\nReport: {page.resolve()}")
        view = "farther open"
    else:
        say("\nReport: not written yet")
        view = "farther repro report"
    differences = compared_with_commit(project.folder)
    if differences is not None:
        _say_differences(differences, every=every)
    run = next(iter(project.section("detectors")), "RUN")
    next_step(view, f"farther choose {run}", "farther explain")


def _say_differences(differences: Differences, *, every: bool) -> None:
    """Prints how metrics differ from the last commit.

    Args:
        differences: The differences.
        every: Also prints the values that differ; else the option that does.
    """
    sentence = differences.sentence()
    if not differences.rows:
        say(paragraph(sentence))
    elif every:
        say(paragraph(f"{sentence}:"))
        say(differences.table())
    else:
        say(paragraph(f"{sentence}; all: farther summary --all"))


def _data(project: Project, page: Path, *, short: bool, every: bool) -> dict[str, Any]:
    """What `farther summary` prints, for programs.

    Args:
        project: The project.
        page: The first page of its report.
        short: Leaves out the table.
        every: Adds the tables of all runs, and the values that differ from the last commit.
    """
    from farther import report

    runs = report.read_evaluated_runs(project.params, project.artifacts)
    data: dict[str, Any] = {"findings": report.headline(project.params, project.folder, runs)}
    if not short:
        data["means"] = report.overview_data(project.params, project.folder, runs)
    if every:
        data["runs"] = report.summary_data(project.params, project.folder)
    data["report"] = None
    if page.is_file():
        data["report"] = page.resolve()
    differences = compared_with_commit(project.folder)
    data["commit"] = None
    if differences is not None:
        data["commit"] = differences.data(every=every)
    return data


@dataclass(frozen=True)
class Difference:
    """A value that differs from that of the last commit by more than rounding.

    Args:
        file, name: The file, and the name of the value in it.
        before, after: The committed value, and that of now; None where a side has none.
    """

    file: str
    name: str
    before: float | None
    after: float | None

    @property
    def size(self) -> float | None:
        """Size of the change; None where only one side has a value."""
        if self.before is None or self.after is None:
            return None
        return abs(self.after - self.before)


@dataclass(frozen=True)
class Differences:
    """How metrics and counts differ from those of the last commit.

    Args:
        count: Number of values that were compared.
        largest: The largest difference of two values.
        rows: The values that differ by more than `ROUNDING`.
    """

    count: int
    largest: float
    rows: Sequence[Difference]

    def sentence(self) -> str:
        """The result in one sentence."""
        values = f"{self.count:,} metrics and counts"
        if not self.rows:
            return f"{values} match the last commit within {ROUNDING:.0e}.".replace("e-0", "e-")
        verb = "differs" if len(self.rows) == 1 else "differ"
        sized = [row for row in self.rows if row.size is not None]
        if sized:
            largest = max(sized, key=lambda row: row.size or 0)
            most = f"at most by {largest.size:.2g} ({largest.name} of {largest.file})"
        else:
            most = "which only one side has"
        return f"{len(self.rows):,} of {values} {verb} from the last commit, {most}"

    def table(self) -> str:
        """The first values that differ, and the number of the others."""
        cells = []
        for row in self.rows[:LISTED]:
            cells.append((row.file, row.name, _number(row.before), _number(row.after)))
        lines = [table(("file", "name", "committed", "now"), cells, numbers=2)]
        if len(self.rows) > LISTED:
            more = f"and {len(self.rows) - LISTED:,} more"
            lines.append(f"{more}; all: farther summary --all --json")
        return "\n".join(lines)

    def data(self, *, every: bool) -> dict[str, Any]:
        """The same for programs.

        Args:
            every: Adds all values that differ.
        """
        data: dict[str, Any] = {
            "compared": self.count,
            "differ": len(self.rows),
            "largest": self.largest,
            "rounding": ROUNDING,
        }
        if every:
            data["values"] = [vars(row) for row in self.rows]
        return data


def compared_with_commit(folder: Path) -> Differences | None:
    """How metrics and counts differ from those of the last commit; None where there are none."""
    values = since_commit(folder)
    if not values:
        return None
    rows = []
    largest = 0.0
    for (file, name), (before, after) in values.items():
        if before is None and after is None:
            continue
        difference = Difference(file, name, before, after)
        if difference.size is not None:
            largest = max(largest, difference.size)
        # A value that only one side has differs; its change has no size.
        if difference.size is None or difference.size > ROUNDING:
            rows.append(difference)
    return Differences(len(values), largest, rows)


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.6g}"


def open_report(
    report: Annotated[
        Path, typer.Argument(metavar="REPORT", help="Its folder, or one of its pages.")
    ] = Path("artifacts/report"),
) -> int:
    """Open the report in the browser.

    Without a display the path of the report is printed.

    \b
    Examples:
      farther open
      farther open artifacts/report/deploy.html
    """
    page = report
    if report.is_dir() or not report.suffix:
        page = report / "index.html"
    if not page.is_file():
        raise DataError("there is no report yet; `farther repro` writes it", file=page.resolve())
    show_page(page)
    return 0


def show_page(page: Path) -> None:
    """Opens a page in the browser; without a display, its path is printed."""
    page = page.resolve()
    if not _has_display() or not webbrowser.open(page.as_uri()):
        say(page)


def _has_display() -> bool:
    """Whether a browser may open a window; on Linux it needs a display."""
    if sys.platform != "linux":
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
