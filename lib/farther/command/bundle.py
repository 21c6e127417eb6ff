"""`farther bundle`: a method of a run with its detector, for where it is deployed."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from farther.command.budget import (
    ChooseOn,
    Guarantee,
    MaxFalseAlarms,
    MaxMisclassified,
    MaxRecallLoss,
    budget_of,
)
from farther.command.output import next_step
from farther.command.project import PARAMS, Params, Project, argument
from farther.errors import ParameterError, choose
from farther.terminal import say

if TYPE_CHECKING:
    from farther.evaluation.deploy.results import Budget
    from farther.monitor import Chosen


def bundle(
    run: Annotated[str, argument("RUN", "A run that was evaluated.", "detectors")],
    method_and_out: Annotated[
        list[str],
        argument("[METHOD] OUT", "One of its methods, and the folder to write.", "methods"),
    ],
    max_misclassified: MaxMisclassified = None,
    max_false_alarms: MaxFalseAlarms = None,
    max_recall_loss: MaxRecallLoss = None,
    guarantee: Guarantee = None,
    choose_on: ChooseOn = None,
    reference_checkpoint: Annotated[
        bool,
        typer.Option(
            "--reference-checkpoint", help="Refer to the checkpoint instead of copying it."
        ),
    ] = False,
    proposals: Annotated[
        str | None,
        typer.Option(
            metavar="SOURCE",
            help="Source of the proposals that are called unknown; by default the network's first.",
        ),
    ] = None,
    onnx: Annotated[
        bool, typer.Option("--onnx", help="Also write detector and method as an ONNX graph.")
    ] = False,
    params: Params = PARAMS,
) -> None:
    """Write a detector and a method as one folder to deploy.

    The folder holds the fitted method, the thresholds, calibrators where the run has them, the
    checkpoint, and what validation showed; `farther.Monitor.load` runs it. An earlier bundle there
    is replaced. Nothing is fitted.

    Thresholds are those of the pipeline. With a limit, or without METHOD, they are those that
    `farther choose` prints.

    \b
    Examples:
      farther bundle voc-vos knn deployed
      farther bundle voc-vos deployed --max-false-alarms 2
      farther bundle voc-vos knn deployed --reference-checkpoint
      farther bundle voc-yolov8 knn deployed --proposals feature_map
      farther bundle voc-vos knn deployed --onnx
    """
    from farther.evaluation.files import RunFiles
    from farther.images.plan import StreamParams
    from farther.monitor import Bundle, BundleSource, write_bundle
    from farther.registry import build
    from farther.scoring.entries import read_entry

    if len(method_and_out) > 2:
        raise ParameterError(
            f"expected RUN, METHOD and OUT, found {1 + len(method_and_out)} arguments"
        )
    method, out = (None, method_and_out[0]) if len(method_and_out) == 1 else method_and_out
    project = Project(params)
    detectors = project.section("detectors")
    methods = project.section("methods")
    entry = detectors[choose("run", run, detectors)]
    if method is not None:
        choose("method", method, methods)
    given = {
        "max_misclassified": max_misclassified,
        "max_false_alarms": max_false_alarms,
        "max_recall_loss": max_recall_loss,
        "guarantee": guarantee,
        "choose_on": choose_on,
    }
    chosen = None
    if method is None or any(value is not None for value in given.values()):
        method, chosen = _chosen(project, run, budget_of(project, **given), method)
    asked = read_entry(method, methods[method] or {})
    inference = build(StreamParams, "params.yaml: inference", project.section("inference"))
    files = RunFiles(run, entry["benchmark"], project.artifacts)
    source = BundleSource(files, entry, asked, inference, chosen, proposals)
    write_bundle(source, out, copy=not reference_checkpoint, onnx=onnx)
    written = Bundle.load(out)
    info = written.info
    seen = written.validation
    say(f"Written: {out} ({run}, {info.method.title}, t* {info.operating:.4g}, τ {info.tau:.4g})")
    say(
        f"On {seen.images} ID validation images it flags {seen.unknown} of {seen.detections} detections as unknown "
        f"and rejects {seen.rejected} images."
    )
    if (bundled := info.proposals) is not None:
        absent = bundled.not_in_graphs
        say(
            f"Proposals ({bundled.source}) on no detection are called unknown, too: "
            f"{bundled.alarms:.2g} false alarms per ID test image."
            f"{f' The ONNX graph gives none: {absent}.' if onnx and absent else ''}"
        )
    next_step(f"farther predict {shlex.quote(out)} IMAGES")


def _chosen(project: Project, run: str, budget: Budget, method: str | None) -> tuple[str, Chosen]:
    """What `farther choose` prints: the method, and its thresholds with what was measured."""
    from pydantic_core import to_jsonable_python

    from farther.command.choose import chosen
    from farther.monitor import Chosen

    found = chosen(project, run, budget, [method] if method else ())
    if found.choice is None:
        raise ParameterError(f"{run}: nothing can be chosen: {' '.join(found.notes)}")
    measured = to_jsonable_python(found.choice.measured)
    return found.choice.method, Chosen(
        found.choice.operating, found.choice.tau, to_jsonable_python(found.budget), measured
    )
