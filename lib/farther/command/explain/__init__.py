"""`farther explain`: why an image is in a split, and how a metric's value was computed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated

import typer

from farther.command.output import as_json, next_step
from farther.command.project import (
    PARAMS,
    Json,
    Params,
    Project,
    argument,
    metrics,
    option,
    splits,
)
from farther.command.usage import Subcommand
from farther.errors import ParameterError
from farther.text.terminal import counted, say

app = typer.Typer(
    help="""Explain why an image is in a split, or how a value was computed.

    Nothing is recomputed.

    \b
    Examples:
      farther explain image 000000000139
      farther explain number voc-vos knn coco_near nose
      farther explain uncertainty voc-vos
    """,
    rich_markup_mode=None,
    no_args_is_help=True,
)


@app.command("image", cls=Subcommand)
def image_(
    name: Annotated[str, argument("IMAGE", "Image id, file name, or path (its end is enough).")],
    benchmark: Annotated[str | None, option("NAME", "Only this benchmark.", "benchmarks")] = None,
    run: Annotated[
        str | None, option("RUN", "With --method: the run; by default the only one.", "detectors")
    ] = None,
    method: Annotated[
        str | None, option("METHOD", "Show outcomes with this method.", "methods")
    ] = None,
    json: Json = False,
    params: Params = PARAMS,
) -> None:
    """Explain why an image is in a split, or in none.

    Shows the file, every annotated object, and for each benchmark the split, the rule and the
    object that decided, people's decisions, and the similarity to ID images where `stratify` ran.
    With --run and --method, also which objects the run found, misclassified or missed, as the stage
    `evaluate` wrote it.

    \b
    Examples:
      farther explain image 000000000139
      farther explain image val2017/000000000139.jpg --benchmark voc
      farther explain image 000000000139 --run voc-vos --method knn
    """
    from farther.command.explain.image import add_outcomes, explain_image, to_text

    if run is not None and method is None:
        raise ParameterError("outcomes belong to a run and a method: give --method, too")
    project = Project(params)
    if method is not None:
        run = project.run(run)
        if project.section("methods"):
            method = project.method(method)
        benchmark = project.section("detectors")[run]["benchmark"]
    explanation = explain_image(project, name, benchmark)
    if run is not None and method is not None:
        add_outcomes(explanation, project, run, method)
    if json:
        say(as_json(explanation))
        return
    say("\n".join(to_text(explanation)))
    steps = []
    for reviewed, places in explanation["benchmarks"].items():
        if any("fate" in place for place in places):
            steps.append(f"farther benchmark review {reviewed}")
    next_step(*steps, "farther open")


def _names_of_number(project: Project, words: set[str]) -> Iterable[str]:
    """Names that may come next: runs, then methods, then splits and metrics."""
    runs = project.section("detectors")
    methods = project.section("methods")
    if words.isdisjoint(methods) and "-" not in words:
        if not words.isdisjoint(runs):
            return methods
        if len(runs) == 1:
            return [*runs, *methods]
        return runs
    ood_splits = list(splits(project, words))
    if not words.isdisjoint(ood_splits):
        return metrics()
    if "-" not in words:
        return ood_splits
    if not words.isdisjoint(methods):  # METHOD - is followed by a metric
        return metrics()
    return [*ood_splits, *metrics()]


@app.command("number", cls=Subcommand)
def number_(
    names: Annotated[
        list[str],
        argument(
            "[RUN] METHOD SPLIT METRIC",
            "Names under 'detectors' (by default the only run) and under 'methods', an OOD split, "
            "and a metric (farther list metrics). METHOD is - for metrics of the detector, SPLIT "
            "is - for metrics of the ID split.",
            _names_of_number,
        ),
    ],
    json: Json = False,
    params: Params = PARAMS,
) -> None:
    """Explain how a metric's value was computed.

    Shows the metric's meaning, its formula with the counts in it, the 95% interval, t* and τ with
    the rules that chose them, the method's parameters, the checkpoint, the digests of the inputs,
    and the files and stages involved.

    \b
    Examples:
      farther explain number voc-vos knn coco_near nose
      farther explain number voc-vos - - map          # a metric of the detector
      farther explain number voc-vos knn - misclassification_aurc
    """
    from farther.command.explain.number import explain_number, to_text

    project = Project(params)
    run, method, split, metric = _arguments_of_number(project, names)
    explanation = explain_number(project, run, method, split, metric)
    if json:
        say(as_json(explanation))
        return
    say("\n".join(to_text(explanation)))
    best = explanation.get("against_best")
    if best:
        pair = f"--methods {method} {best['best']}"
        next_step(f"farther compare --run {run} {pair} --split {split}")
    else:
        next_step("farther open")


def _arguments_of_number(project: Project, names: Sequence[str]) -> tuple[str, str, str, str]:
    """Run, method, split and metric; the run may be left out where there is one.

    Raises:
        ParameterError: there are more or fewer names, or the run is left out although there are
            several.
    """
    if len(names) not in (3, 4):
        raise ParameterError(
            f"expected [RUN] METHOD SPLIT METRIC, found {counted(len(names), 'name')}; write - "
            "for METHOD or SPLIT where a metric has none: farther explain number RUN - - mAP"
        )
    run = names[0] if len(names) == 4 else None
    method, split, metric = names[-3:]
    return project.run(run), method, split, metric


@app.command("uncertainty", cls=Subcommand)
def uncertainty_(
    run: Annotated[
        str | None,
        argument("RUN", "A run, evaluated or not; by default the only one.", "detectors"),
    ] = None,
    split: Annotated[
        list[str] | None, option("SPLIT", "Only this OOD split; repeatable.", splits)
    ] = None,
    aggregate: Annotated[
        list[str] | None, option("HOW", "sum, mean, min or top-m; repeatable.")
    ] = None,
    by_split: Annotated[
        bool, typer.Option("--by-split", help="One column per OOD split, for the first aggregate.")
    ] = False,
    json: Json = False,
    params: Params = PARAMS,
) -> None:
    """Print how well image uncertainty separates ID from OOD.

    The values are AUROC, ID test images against OOD images.

    An image's uncertainty is an aggregate of those of its detections (Oksuz et al., 2023, Tables 2
    to 4 and A.9 to A.11): 1 − confidence, entropies of the class, Dempster-Shafer, the box's
    variance where the detector predicts it, and the negated score of every method that the run has
    scores for. Nothing is inferred or fitted. Splits whose images also show known objects are left
    out unless they are named.

    \b
    Examples:
      farther explain uncertainty voc-yolov8
      farther explain uncertainty voc-yolov8 --aggregate top-3 --by-split
      farther explain uncertainty voc-yolov8 --split coco_near --json
    """
    from farther.command.explain.uncertainty import explain_uncertainty, to_text

    project = Project(params)
    run = project.run(run)
    explanation = explain_uncertainty(project, run, split or [], aggregate or [], by_split=by_split)
    if json:
        say(as_json({"run": run, "rows": explanation["rows"]}))
        return
    say(to_text(explanation))
    next_step(f"farther choose {run}")
