"""`farther bundle`: a method of a run with its detector, for where it is deployed."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

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
from farther.command.project import PARAMS, Params, Project, argument, option
from farther.errors import ParameterError
from farther.text.terminal import working


def _names(project: Project, words: set[str]) -> Iterable[str]:
    """Names that may come next: runs, and methods once a run is named or where there is one."""
    runs = project.section("detectors")
    names: list[str] = []
    if words.isdisjoint(runs):
        names += runs
    if len(runs) == 1 or not words.isdisjoint(runs):
        names += project.section("methods")
    return names


def bundle(
    names_and_out: Annotated[
        list[str],
        argument(
            "[RUN] [METHOD] OUT",
            "A run that was evaluated, by default the only one; one of its methods, by default the "
            "one that `farther choose` prints; and the folder to write.",
            _names,
        ),
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
            help="Source of the proposals that share the limit; by default the network's first.",
        ),
    ] = None,
    threshold: Annotated[
        float | None, option("T", "t* of METHOD by hand, with --tau: a confidence from 0 to 1.")
    ] = None,
    tau: Annotated[
        float | None, option("T", "τ of METHOD by hand: detections with a lower score are flagged.")
    ] = None,
    objectness: Annotated[
        float | None,
        option("O", "With --tau: proposals of --proposals above it are called unknown."),
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

    Without METHOD, or with a limit, thresholds and proposals are those that `farther choose`
    prints. With METHOD alone, thresholds are those of the pipeline, and no proposal is called
    unknown. With METHOD and --tau they are set by hand, which promises nothing: the report's page
    Deploy shows what they find and cost, and gives the command.

    \b
    Examples:
      farther bundle voc-vos knn deployed
      farther bundle voc-vos deployed --max-false-alarms 0.02
      farther bundle knn deployed          # in a project with one run
      farther bundle voc-vos knn deployed --reference-checkpoint
      farther bundle voc-yolov8 deployed --proposals feature_map
      farther bundle voc-vos knn deployed --threshold 0.6 --tau -0.9
      farther bundle voc-vos knn deployed --onnx
    """
    with working("starting"):  # which imports much
        from farther.command.bundled import ThresholdsByHand, chosen_for, describe, set_by_hand
        from farther.evaluation.files import RunFiles
        from farther.images.plan import StreamParams
        from farther.monitor import Bundle, BundleSource, write_bundle
        from farther.naming.registry import build
        from farther.scoring.entries import read_entry

    project = Project(params)
    run, method, out = _arguments(project, names_and_out)
    entry = project.section("detectors")[run]
    methods = project.section("methods")
    limits = {
        "max_misclassified": max_misclassified,
        "max_false_alarms": max_false_alarms,
        "max_recall_loss": max_recall_loss,
        "guarantee": guarantee,
        "choose_on": choose_on,
    }
    chosen = None
    by_hand = ThresholdsByHand(threshold, tau, objectness)
    if by_hand.is_given:
        given_limits = [name for name, value in limits.items() if value is not None]
        method = by_hand.checked_method(method, proposals, given_limits)
        chosen = set_by_hand(project, run, by_hand, proposals)
    elif method is None or any(value is not None for value in limits.values()):
        with working("choosing thresholds"):
            budget = budget_of(project, **limits)
            method, chosen = chosen_for(project, run, budget, method, proposals)
    elif proposals is not None:
        raise ParameterError(
            f"--proposals {proposals}: proposals share a limit on false alarms, and {method} alone "
            "has the thresholds of the pipeline: add --max-false-alarms 0.05, or leave out METHOD"
        )

    method_entry = read_entry(method, methods[method] or {}, methods)
    inference = build(StreamParams, "params.yaml: inference", project.section("inference"))
    files = RunFiles(run, entry["benchmark"], project.artifacts)
    source = BundleSource(files, entry, method_entry, inference, chosen, project.encoder)
    with working(f"writing {out}"):
        write_bundle(source, out, copy=not reference_checkpoint, onnx=onnx)
        bundle = Bundle.load(out)
    describe(bundle, run, out, onnx=onnx)
    next_step(f"farther predict {shlex.quote(out)} IMAGES")


def _arguments(project: Project, words: Sequence[str]) -> tuple[str, str | None, str]:
    """Run, method and folder.

    Args:
        project: The project, whose only run may be left out.
        words: The arguments: [RUN] [METHOD] OUT.

    Raises:
        ParameterError: a name is unknown, the run is left out although there are several, or the
            number of arguments is wrong.
    """
    *names, out = words
    runs = project.section("detectors")
    run = None
    if len(names) == 2 or (names and (names[0] in runs or len(runs) != 1)):
        run = names.pop(0)
    is_folder = Path(out).exists()
    if not names and not is_folder and (out in runs or out in project.section("methods")):
        raise ParameterError(
            f"OUT, the folder to write, is missing after {out!r}. If that is the folder, write "
            f"./{out}"
        )
    run = project.run(run)
    if len(names) > 1:
        raise ParameterError(f"expected RUN, METHOD and OUT, found {len(words)} arguments")
    method = project.method(names[0]) if names else None
    return run, method, out
