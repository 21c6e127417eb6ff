"""`farther table` and `farther figure`: one table or one figure of a paper, in one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from farther.command.project import PARAMS, Params, Project, metrics, option, splits
from farther.errors import ParameterError
from farther.errors import choose as known_name
from farther.tables.writing import write_aside
from farther.text.terminal import say

#: Kinds of figures, and what they show.
KINDS = {
    "outcomes": "found, misclassified and missed unknown objects of each split",
    "roc": "ROC curves of methods on a split",
    "pr": "precision–recall curves of unknown objects on a split",
    "tau": "a metric over the threshold τ on a split",
    "confidence": "a metric over the operating threshold t* on a split",
    "wilderness": "wilderness impact over the wilderness ratio",
    "reliability": "accuracy over confidence",
}

RunName = Annotated[str | None, option("RUN", "The run; by default the only one.", "detectors")]
SplitName = Annotated[
    str | None, option("SPLIT", "An OOD test split; by default the only one.", splits)
]
MethodNames = Annotated[
    list[str] | None, option("METHOD", "Only this method; repeatable.", "methods")
]
Out = Annotated[
    Path | None, typer.Option("--out", metavar="FILE", help="The file; by default the terminal.")
]


def table(
    run: Annotated[
        list[str] | None,
        option("RUN", "A run; repeatable. By default all of one benchmark.", "detectors"),
    ] = None,
    split: Annotated[
        list[str] | None, option("SPLIT", "An OOD test split; repeatable. By default all.", splits)
    ] = None,
    method: MethodNames = None,
    metric: Annotated[
        list[str] | None,
        option("METRIC", "A metric; repeatable. By default nOSE, AP_U, P_U, R_U.", metrics),
    ] = None,
    intervals: Annotated[
        bool, typer.Option("--intervals", help="With 95% intervals in brackets.")
    ] = False,
    latex: Annotated[bool, typer.Option("--latex", help="For LaTeX, with booktabs.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="In Markdown.")] = False,
    out: Out = None,
    params: Params = PARAMS,
) -> None:
    """Print one table of results.

    Detectors and methods are rows, splits and metrics columns. The best value of a column is
    marked; † marks one that is not significantly different.

    \b
    Examples:
      farther table --split coco_near --metric auroc --metric nose --latex
      farther table --run voc-vos --run voc-yolov8 --intervals --markdown
      farther table --metric auroc --latex --intervals --out auroc.tex
    """
    from farther.command.paper_items import evaluated, for_terminal, result_table, run_names
    from farther.report.tables import to_latex, to_markdown

    if latex and markdown:
        raise ParameterError("--latex and --markdown: give one of them")
    project = Project(params)
    runs = [evaluated(project, name) for name in run_names(project, run)]
    table = result_table(runs, split, method, metric)
    if intervals:
        table = table.with_intervals()

    if latex:
        text = to_latex(table)
    elif markdown:
        text = to_markdown(table)
    else:
        text = for_terminal(table)
    _write(text.rstrip("\n") + "\n", out)


def figure(
    kind: Annotated[str, typer.Argument(metavar="KIND", help=", ".join(KINDS))],
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="A .pdf, .svg, .png, or .csv file.")
    ],
    run: RunName = None,
    split: SplitName = None,
    method: MethodNames = None,
    metric: Annotated[
        str, option("METRIC", "What tau and confidence show: nose, r_u or p_u.", metrics)
    ] = "nose",
    width: Annotated[
        float, typer.Option(metavar="INCHES", help="Width: 3.3 is one column, 6.9 is two.")
    ] = 3.3,
    params: Params = PARAMS,
) -> None:
    """Draw one figure of results.

    It has 8-point type, as in a paper; a .csv file has its numbers.

    \b
    Examples:
      farther figure roc --run voc-vos --split coco_near --width 3.3 --out roc.pdf
      farther figure outcomes --run voc-yolov8 --width 6.9 --out outcomes.svg
      farther figure tau --split coco_near --metric r_u --out tau.csv
    """
    from farther.command.paper_items import chart_of, evaluated
    from farther.report.charts.figures import FORMATS, draw, numbers
    from farther.report.charts.figures import figure as figure_of

    kind = known_name("kind of figure", kind, KINDS)
    ending = out.suffix.removeprefix(".").lower()
    if ending not in (*FORMATS, "csv"):
        endings = ", ".join(f".{name}" for name in (*FORMATS, "csv"))
        raise ParameterError(f"--out: {out} ends in none of {endings}")
    if not 1 <= width <= 20:
        raise ParameterError(f"--width: expected 1 to 20 inches, found {width:g}")
    project = Project(params)
    name = project.run(run)
    chart = chart_of(kind, evaluated(project, name), project, split, method, metric)
    if ending == "csv":
        content = numbers(chart.spec).encode()
    else:
        content = draw(figure_of(chart.spec, width), ending)
    _write(content, out)


def _write(content: str | bytes, out: Path | None) -> None:
    """Writes a file whole or not at all, or prints a text."""
    if out is None:
        say(content, end="")
        return
    data = content.encode() if isinstance(content, str) else content
    with write_aside(out) as aside:
        aside.write_bytes(data)
    say(out)
